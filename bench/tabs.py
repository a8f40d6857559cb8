"""Browser windows whose tabs use a bundle through its public API, from any address, with typed errors.

A window has storage of its own; its tabs share it. Knows the page's API and Playwright.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from typedecide.chromium import LAUNCH_ARGS, SANDBOX, find_chromium, webgpu_args
from typedecide.errors import revive_error

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Playwright

_GUARD = """async (text) => {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(Object.assign(new Error("nothing happened"), { code: "HANG" })), 180_000);
  });
  try {
    return { ok: (await Promise.race([(%s)(JSON.parse(text)), late])) ?? null };
  } catch (error) {
    const code = typeof error?.code === "string" ? error.code : "ERROR";
    const data = JSON.parse(JSON.stringify(error?.data ?? {}));
    return { error: { code, message: String(error?.message ?? error), data } };
  } finally {
    clearTimeout(timer);
  }
}"""

_LOAD = """async (options) => {
  const { createEngine } = await import("./index.js");
  globalThis.progress = [];
  const onProgress = (p) => globalThis.progress.push(p);
  globalThis.engine = await createEngine({ ...options, onProgress });
  return globalThis.engine.info;
}"""

_DECIDE = """async ({ state, questions, options }) => {
  const { answers } = await globalThis.engine.decide({ state, questions: new Map(questions) }, options);
  return questions.map(([id]) => answers[id]);
}"""

_FILES = """async () => {
  const found = {};
  const top = await (await navigator.storage.getDirectory()).getDirectoryHandle("typedecide", { create: true });
  for await (const folder of top.values())
    for await (const file of folder.values()) found[file.name] = (await file.getFile()).size;
  return found;
}"""


class Tab:
    """One page at a bundle's address, and the engine that it loads."""

    def __init__(self, page: Page, url: str, added: str = "") -> None:
        """`added` is JavaScript that goes behind the worker's own script, such as a planted fault."""
        self.page = page
        self.load_ms: list[float] = []
        """What each load took."""
        if added:
            page.route("**/worker.js", lambda route: _serve(route, added))
        # Any file of the origin will do as a page: this one starts nothing by itself.
        page.goto(f"{url}manifest.json")

    def evaluate(self, function: str, argument: object = None) -> Any:
        """What a JavaScript function of one JSON argument gives; its errors are those of `typedecide.errors`."""
        done = self.page.evaluate(_GUARD % function, json.dumps(argument))
        if "error" in done:
            raise revive_error(done["error"])
        return done["ok"]

    def load(self, **options: Any) -> dict[str, Any]:
        """Load an engine on WASM, unless the options say otherwise; gives its info."""
        info: dict[str, Any] = self.evaluate(_LOAD, {"device": "wasm", **options})
        self.load_ms.append(info["loadMs"])
        return info

    def decide(
        self, state: str, questions: Mapping[str, Any], options: Mapping[str, Any] | None = None
    ) -> list[list[float]]:
        """The probabilities of each question's options."""
        argument = {"state": state, "questions": list(questions.items()), "options": options or {}}
        return [answer["probabilities"] for answer in self.evaluate(_DECIDE, argument)]

    def files(self) -> dict[str, int]:
        """Sizes of the kept files, by sha256."""
        found: dict[str, int] = self.evaluate(_FILES)
        return found

    def in_worker(self, function: str, argument: object = None) -> Any:
        """What a JavaScript function of one JSON argument gives in the engine's worker."""
        # The runtime's threads are workers too, with a script of their own.
        own = [worker for worker in self.page.workers if worker.url.endswith("/worker.js")]
        return own[-1].evaluate(function, argument)


def _serve(route: Any, added: str) -> None:
    response = route.fetch()
    route.fulfill(response=response, body=response.text() + added)


@contextmanager
def chromium(playwright: Playwright, gpu: bool = False, extra: Sequence[str] = ()) -> Iterator[Browser]:
    """A headless browser; with `gpu` it has WebGPU, computed on the CPU."""
    switches = (*LAUNCH_ARGS, *(webgpu_args(software=True) if gpu else ()), *extra)
    browser = playwright.chromium.launch(
        executable_path=find_chromium(), args=list(switches), chromium_sandbox=SANDBOX, headless=True
    )
    try:
        yield browser
    finally:
        browser.close()
