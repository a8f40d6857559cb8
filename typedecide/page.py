"""The page's own engine, driven from Python: the bundle's JavaScript API in headless Chromium.

Knows the page's API and Playwright; knows no tensors and no prompts. Needs the `page` extra (playwright).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from typedecide import javascript
from typedecide.bundle import MANIFEST, Bundle
from typedecide.calibration import Given
from typedecide.chromium import LAUNCH_ARGS, SANDBOX, find_chromium, gpu_args
from typedecide.errors import DeviceLostError, TypedecideError, UnsupportedError, revive_error
from typedecide.inputs import read_json
from typedecide.options import Options
from typedecide.orderings import Level
from typedecide.questions import Question, to_wire
from typedecide.results import Aborted, Debiased, Decided, OnAnswer, OnDecided, Prefill, Scored, ScoredAll
from typedecide.static_server import PAGE_HEADERS, StaticServer

if TYPE_CHECKING:
    from playwright.sync_api import Page

T = TypeVar("T")

Progress = Callable[[Mapping[str, Any]], None]
"""Receives the page's progress: `phase`, `file`, `loadedBytes`, `totalBytes`, `message`."""

DEVICES = ("auto", "webgpu", "wasm")

# Arguments cross as JSON text, which keeps lone surrogates and key order as they are, and results come
# back as `{ok}` or `{error}`, so that an error keeps its code and data.
_SETUP = """
() => {
  const plain = (error) => ({
    code: typeof error?.code === "string" ? error.code : "ERROR",
    message: String(error?.message ?? error),
    data: JSON.parse(JSON.stringify(error?.data ?? {})),
    name: error?.name ?? typeof error,
    stack: String(error?.stack ?? ""),
  });
  globalThis.typedecide = {
    engine: null,
    async guard(work) {
      try {
        return { ok: (await work()) ?? null };
      } catch (error) {
        return { error: plain(error) };
      }
    },
  };
}
"""

_CREATE = """async (engine, { url, options, progress }) => {
  const { createEngine } = await import(url);
  const onProgress = progress ? (event) => void globalThis.typedecideProgress(event) : undefined;
  globalThis.typedecide.engine = await createEngine({ ...options, onProgress });
  return globalThis.typedecide.engine.info;
}"""

_SCORE_ALL = """(engine, { questions, options, stream }) => {
  const onAnswer = stream ? (index, answer) => void globalThis.typedecideAnswer(index, answer) : undefined;
  return engine.scoreAll(questions, { ...options, onAnswer });
}"""

# Answers come back as a list: an object would put ids like "10" first. Nobody can call into the page while it works,
# so it asks whether to go on.
_DECIDE = """async (engine, { state, questions, options, stream, pollMs }) => {
  const onAnswer = stream ? (id, answer) => void globalThis.typedecideAnswer(id, answer) : undefined;
  const controller = new AbortController();
  const ask = async () => (await globalThis.typedecideAborted()) && controller.abort();
  const timer = pollMs === null ? undefined : setInterval(ask, pollMs);
  const { signal } = controller;
  try {
    const done = await engine.decide({ state, questions: new Map(questions) }, { ...options, onAnswer, signal });
    return { ...done, answers: questions.map(([id]) => done.answers[id]) };
  } finally {
    clearInterval(timer);
  }
}"""

POLL_MS = 100
"""How often the page asks whether its answers are still wanted."""


class PageEngine:
    """Answers questions with the page's engine.

    >>> with PageEngine("dist", device="wasm") as engine:            # doctest: +SKIP
    ...     engine.prefill("I was charged twice.")
    ...     engine.score(Noul("Does the customer want money back?")).answer.value
    0.73

    Args:
        bundle: the bundle folder.
        device: `auto` (what the page chooses), `webgpu` or `wasm`.
        format: the weight format; None takes the bundle's default.
        threads: WASM threads; None takes the page's default.
        candidates: the ways of running that the page may try, such as `["webgpu-explicit"]`; None for all.
        software: whether WebGPU runs on the CPU; None: only where `device` is `webgpu` and there is no GPU.
        on_progress: called with what the page reports while it loads.
        calibration: a file, a document, False for none; None takes the bundle's own, where it has one.

    Errors that the page throws arrive as the Python errors of the same names. It works inside a running event
    loop (a notebook) too: the browser is driven from a thread of its own. Threads may share an engine: their calls run
    one after another; `score` and `score_all` are about the text that was read last, whoever read it.
    """

    def __init__(
        self,
        bundle: str | Path,
        device: str = "auto",
        format: str | None = None,
        *,
        threads: int | None = None,
        candidates: Sequence[str] | None = None,
        software: bool | None = None,
        on_progress: Progress | None = None,
        calibration: Given = None,
    ) -> None:
        if device not in DEVICES:
            raise UnsupportedError(f"A page runs on {', '.join(DEVICES)}, not on {device!r}.", device=device)
        self.bundle = Bundle.open(bundle)
        self.bundle.format(format)
        if isinstance(calibration, Path | str):
            calibration = read_json(str(calibration))
        options = {
            "device": device,
            "format": format,
            "threads": threads,
            "candidates": candidates,
            "calibration": calibration,
        }
        given = {
            name: value if not isinstance(value, tuple) else list(value)
            for name, value in options.items()
            if value is not None
        }
        self._tell: Callable[[Any, Debiased], None] | None = None
        self._aborted: Aborted | None = None
        self._stack = ExitStack()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="page-engine")
        self._open = partial(self._start, device, software, on_progress, given)
        # Whether the browser or the page has gone, and whether a caller was told that it failed.
        self._gone = self._told = False
        try:
            self._call(self._open)
        except BaseException:
            self.close()
            raise

    def _start(
        self,
        device: str,
        software: bool | None,
        on_progress: Progress | None,
        options: Mapping[str, Any],
    ) -> None:
        """Start server, browser and a page of the bundle's own origin, and its engine."""
        try:
            from playwright.sync_api import sync_playwright
        except ImportError as error:
            raise UnsupportedError(
                "The page's engine needs Playwright: `pip install typedecide[page]`.", package="playwright"
            ) from error
        self._base = self._stack.enter_context(StaticServer(self.bundle.root, headers=PAGE_HEADERS)).url
        playwright = self._stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(
            executable_path=find_chromium(),
            args=[*LAUNCH_ARGS, *gpu_args(device, software)],
            chromium_sandbox=SANDBOX,
            headless=True,
        )
        self._stack.callback(browser.close)
        browser.on("disconnected", self._note_loss)
        self.browser_version: str = browser.version
        self._page: Page = browser.new_page()
        self._page.on("crash", self._note_loss)
        self._page.on("close", self._note_loss)
        if on_progress is not None:
            # Wrapped, because Playwright sets attributes on what it is given, and not every callable takes them.
            self._page.expose_function("typedecideProgress", lambda event: on_progress(event))
        self._page.expose_function("typedecideAnswer", self._take_answer)
        self._page.expose_function("typedecideAborted", lambda: self._aborted is not None and self._aborted())
        # Any file of the origin will do as a page: this one starts nothing by itself.
        self._page.goto(f"{self._base}{MANIFEST}")
        self._page.evaluate(_SETUP)
        creation = {"url": f"{self._base}index.js", "options": options, "progress": on_progress is not None}
        self._info: dict[str, Any] = self._ask(_CREATE, creation)
        self._gone = self._told = False

    def _note_loss(self, _: object) -> None:
        self._gone = True

    @property
    def info(self) -> Mapping[str, Any]:
        """What the page's `engine.info` says: model, format, device, candidate, self-test, versions."""
        return self._info

    def release(self) -> None:
        """Free all kept states; the engine stays usable."""
        self.evaluate("(engine) => engine.release()")

    def prefill(self, state: str) -> Prefill:
        """Compute and keep the prefix of `state`; it replaces the one before."""
        return javascript.prefill(self.evaluate("(engine, state) => engine.prefill(state)", state))

    def score(self, question: Question, orderings: Level | None = None, **options: Unpack[Options]) -> Scored:
        """Answer `question` about the prefilled state; the arguments are those of `NativeEngine.score`."""
        argument = {"question": to_wire(question), "options": javascript.options(orderings, options)}
        done = self.evaluate("(engine, { question, options }) => engine.score(question, options)", argument)
        return javascript.scored(done)

    def score_all(
        self,
        questions: Sequence[Question],
        orderings: Level | None = None,
        *,
        on_answer: OnAnswer | None = None,
        **options: Unpack[Options],
    ) -> ScoredAll:
        """Answer many questions about the prefilled state, in packed runs.

        The arguments are those of `NativeEngine.score_all`.
        """
        argument = {
            "questions": [to_wire(question) for question in questions],
            "options": javascript.options(orderings, options),
            "stream": on_answer is not None,
        }
        done = self.evaluate(_SCORE_ALL, argument, tell=on_answer)
        return ScoredAll(**javascript.cost(done), answers=tuple(map(javascript.debiased, done["answers"])))

    def decide(
        self,
        state: str,
        questions: Mapping[str, Question],
        orderings: Level | None = None,
        *,
        on_answer: OnDecided | None = None,
        aborted: Aborted | None = None,
        **options: Unpack[Options],
    ) -> Decided:
        """Prefill a state and answer questions about it, by id; the arguments are those of `score_all`.

        Where `aborted` says so, the work stops before a next run with an AbortedError; the engine stays usable.
        """
        argument = {
            "state": state,
            "questions": [[id, to_wire(question)] for id, question in questions.items()],
            "options": javascript.options(orderings, options),
            "stream": on_answer is not None,
            "pollMs": None if aborted is None else POLL_MS,
        }
        done = self.evaluate(_DECIDE, argument, tell=on_answer, aborted=aborted)
        return javascript.decided(done, questions, done["answers"])

    def _take_answer(self, key: int | str, answer: Mapping[str, Any]) -> None:
        if self._tell is not None:
            self._tell(key, javascript.debiased(answer))

    def score_full(self, state: str, question: Question, readout: str = "labels") -> Scored:
        """Answer `question` in the order given from whole prompts, without any cache."""
        argument = {"state": state, "question": to_wire(question), "readout": readout}
        function = "(engine, { state, question, readout }) => engine.scoreFull(state, question, { readout })"
        return javascript.scored(self.evaluate(function, argument))

    def evaluate(
        self,
        function: str,
        argument: object = None,
        *,
        tell: Callable[[Any, Debiased], None] | None = None,
        aborted: Aborted | None = None,
    ) -> Any:
        """Call a JavaScript function of `(engine, argument)` in the page and return what its promise gives.

        `argument` must be JSON. Meanwhile `tell` gets what the page calls `typedecideAnswer` with, and `aborted` is
        what its `typedecideAborted` asks. Where the browser or the page has gone, the call under way, or the
        first one after that, gets a DeviceLostError, and the next one a new browser, which has read no text.
        """

        def work() -> Any:
            # On the browser's own thread: calls of other threads wait for this one, and have their own.
            if self._gone and self._told:
                with suppress(Exception):
                    self._stack.close()
                self._open()
            self._tell, self._aborted = tell, aborted
            return self._ask(function, argument)

        return self._call(work)

    def _ask(self, function: str, argument: object) -> Any:
        """`evaluate`, on the browser's own thread."""
        source = (
            "(text) => globalThis.typedecide.guard(() =>"
            f" ({function})(globalThis.typedecide.engine, JSON.parse(text)))"
        )
        outcome: dict[str, Any] = self._page.evaluate(source, json.dumps(argument))
        if (error := outcome.get("error")) is not None:
            raise _revive(error)
        return outcome["ok"]

    def _call(self, work: Callable[[], T]) -> T:
        """Run `work` on the browser's thread."""

        def guarded() -> T:
            try:
                return work()
            except Exception as error:
                # By module, because Playwright need not be importable.
                if type(error).__module__.startswith("playwright."):
                    self._told = True
                    raise DeviceLostError(
                        f"The browser failed: {error}", cause=type(error).__name__
                    ) from error
                raise

        return self._thread.submit(guarded).result()

    def close(self) -> None:
        """End the page, the browser and the server."""
        try:
            self._thread.submit(self._stack.close).result()
        finally:
            self._thread.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _revive(error: Mapping[str, Any]) -> TypedecideError:
    """The Python error for one that the page threw; one without a code of ours keeps its name and stack."""
    if error["code"] == TypedecideError.code:
        return TypedecideError(
            f"The page failed: {error['name']}: {error['message']}", name=error["name"], stack=error["stack"]
        )
    return revive_error(error)
