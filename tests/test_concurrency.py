"""Many callers in one page: right answers for all, aborts that hurt nobody, a free main thread and flat memory."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Route

from tests.conftest import ROOT
from typedecide.page import PageEngine

pytestmark = pytest.mark.browser

SAMPLE = json.loads((ROOT / "web" / "app" / "sample.json").read_text("utf-8"))

TEXTS = [
    f"Order {number * 131} came {number} days late and the {thing} is broken. I want my money back."
    for number, thing in enumerate(("lamp", "chair", "mirror", "clock", "table", "shelf", "vase", "radio"), 2)
]

CALLERS = 20
ABORTED = {3: "own first answer", 6: "at once", 9: "own first answer", 13: "caller 0", 18: "own first answer"}
"""Callers that are aborted, and when: while they run, right after the call, or while they wait in the queue."""

RUN_TOKENS = 60
"""Small, so that each caller takes several runs and can be aborted between two."""

ASK_ALL = """async (engine, { callers, runTokens, readout }) => {
  const ask = ({ state, questions }, options) =>
    engine.decide({ state, questions }, { runTokens, readout, ...options });
  const right = [];
  for (const caller of callers) right.push((await ask(caller).catch((e) => e.code)).answers);
  await engine.release();

  const waiting = new AbortController();
  const outcomes = await Promise.all(
    callers.map(async (caller, i) => {
      const controller = caller.abort === "caller 0" ? waiting : new AbortController();
      let seen = 0;
      const onAnswer = () => {
        seen += 1;
        if (i === 0) waiting.abort();
        if (caller.abort === "own first answer") controller.abort();
      };
      if (caller.abort === "at once") setTimeout(() => controller.abort());
      try {
        const { answers } = await ask(caller, { signal: controller.signal, onAnswer });
        return { answers, seen };
      } catch (error) {
        return { code: error.code, seen };
      }
    }),
  );
  const states = await engine.states();
  const again = [];
  for (const caller of callers.slice(0, 3)) again.push((await ask(caller).catch((e) => e.code)).answers);
  return { right, outcomes, states, again };
}"""


@pytest.fixture(scope="module")
def engine(dist_fp32_4l: Path) -> Iterator[PageEngine]:
    """The cut-down model on WASM."""
    with PageEngine(dist_fp32_4l, "wasm") as engine:
        yield engine


def caller(number: int) -> dict[str, Any]:
    """One caller's text, questions, and when it is aborted."""
    ids = list(SAMPLE["questions"])
    count = 5 if number in ABORTED else 1 + number % 3
    chosen = [ids[(number + step) % len(ids)] for step in range(count)]
    return {
        "state": TEXTS[number % len(TEXTS)],
        "questions": {name: SAMPLE["questions"][name] for name in chosen},
        "abort": ABORTED.get(number),
    }


@pytest.mark.parametrize("readout", ("labels", "text"))
def test_twenty_callers_five_aborted(engine: PageEngine, readout: str) -> None:
    callers = [caller(number) for number in range(CALLERS)]
    done = engine.evaluate(ASK_ALL, {"callers": callers, "runTokens": RUN_TOKENS, "readout": readout})
    codes = {}
    for number, (right, outcome) in enumerate(zip(done["right"], done["outcomes"], strict=True)):
        assert len(right) == len(callers[number]["questions"])
        if number in ABORTED and "code" in outcome:
            codes[number] = outcome["code"]
            # What came before the abort came as it should, and no more than that.
            assert outcome["seen"] < len(right)
        else:
            assert outcome["answers"] == right, number
    print(f"aborted: { {number: ABORTED[number] for number in codes} }")
    assert set(codes.values()) == {"ABORTED"}
    assert set(codes) == set(ABORTED)
    for number, when in ABORTED.items():
        assert (done["outcomes"][number]["seen"] > 0) == (when == "own first answer")
    # The engine is as it was: all texts are kept, and give the answers that they gave.
    assert len(done["states"]) == len(TEXTS)
    assert done["again"] == done["right"][:3]


def test_callers_that_fail_hurt_nobody(engine: PageEngine) -> None:
    good = [caller(number) for number in (0, 1, 2)]
    bad = {
        "INVALID_QUESTION": {"state": TEXTS[0], "questions": {"q": {"type": "choice", "criteria": ["one"]}}},
        "TOO_LONG": {"state": "word " * 9000, "questions": good[0]["questions"]},
        "INVALID_STATE": {"state": 7, "questions": good[0]["questions"]},
    }
    mixed = [good[0], *bad.values(), good[1], *bad.values(), good[2]]
    done = engine.evaluate(ASK_ALL, {"callers": mixed, "runTokens": RUN_TOKENS})
    alone = engine.evaluate(ASK_ALL, {"callers": good, "runTokens": RUN_TOKENS})
    assert [one.get("code", "right") for one in done["outcomes"]] == [
        "right", *bad, "right", *bad, "right"
    ]  # fmt: skip
    assert [one["answers"] for one in done["outcomes"] if "answers" in one] == alone["right"]


WATCH = """async (engine, { text, questions, block }) => {
  const tasks = [];
  const observer = new PerformanceObserver((list) => tasks.push(...list.getEntries()));
  observer.observe({ type: "longtask" });
  let last = performance.now();
  let gap = 0;
  const timer = setInterval(() => {
    const now = performance.now();
    [gap, last] = [Math.max(gap, now - last), now];
  }, 10);
  const began = last;
  if (block) setTimeout(() => { while (performance.now() < began + 200); }, 50);
  const prefill = await engine.prefill(text);
  const { tokens_run } = await engine.scoreAll(questions, { readout: "labels", orderings: "all" });
  const ms = performance.now() - began;
  // Entries come a moment after the task that they are about.
  await new Promise((resolve) => setTimeout(resolve, 200));
  clearInterval(timer);
  tasks.push(...observer.takeRecords());
  observer.disconnect();
  return { longest: Math.max(0, ...tasks.map((t) => t.duration)), gap, ms, tokens: prefill.tokens + tokens_run };
}"""


def test_main_thread_stays_free(engine: PageEngine) -> None:
    questions = list(SAMPLE["questions"].values())
    watched = engine.evaluate(
        WATCH, {"text": SAMPLE["state"] * 3, "questions": questions * 2, "block": False}
    )
    print(
        f"{watched['tokens']} tokens on WASM in {watched['ms']:.0f} ms: longest main-thread task over 50 ms:"
        f" {watched['longest'] or 'none'}; largest gap of a 10 ms timer: {watched['gap']:.1f} ms"
    )
    assert watched["ms"] > 500
    assert watched["longest"] == 0
    # The watch sees a thread that is held up.
    held = engine.evaluate(WATCH, {"text": TEXTS[0], "questions": questions[:1], "block": True})
    assert held["longest"] > 50 and held["gap"] > 50


DECISIONS = 300
STEP = 50
WARM_UP = 100
STATE_TEXTS = 50
KEPT_TEXTS = 20
"""How many of the texts there is memory for: most decisions compute a state, and drop one."""

DECIDE_SOME = """async (engine, { texts, questions }) => {
  for (const state of texts) await engine.decide({ state, questions });
  return engine.states();
}"""

RESTART = """async (engine, options) => {
  const { createEngine } = await import("/index.js");
  engine.close();
  globalThis.typedecide.engine = await createEngine({ device: "wasm", ...options });
}"""


# Behind the worker's own script: the runtime makes its memory later, when the model is loaded.
KEEP_MEMORIES = """
globalThis.memories = [];
WebAssembly.Memory = class extends WebAssembly.Memory {
  constructor(descriptor) {
    super(descriptor);
    memories.push(this);
  }
};
"""


def watch_worker(route: Route) -> None:
    """Serve the worker's script with `KEEP_MEMORIES` behind it."""
    response = route.fetch()
    route.fulfill(response=response, body=response.text() + KEEP_MEMORIES)


class Memory:
    """What the page and its worker hold, in bytes, after a garbage collection."""

    def __init__(self, engine: PageEngine) -> None:
        self._engine = engine
        self._replies: dict[int, dict[str, Any]] = {}
        self._workers: list[str] = []
        self._sent = 0
        engine._call(self._attach)

    def _attach(self) -> None:
        page = self._engine._page
        self._page = page.context.new_cdp_session(page)
        self._page.on("Target.attachedToTarget", lambda event: self._workers.append(event["sessionId"]))
        self._page.on("Target.detachedFromTarget", lambda event: self._workers.remove(event["sessionId"]))
        self._page.on("Target.receivedMessageFromTarget", self._receive)
        self._page.send(
            "Target.setAutoAttach", {"autoAttach": True, "waitForDebuggerOnStart": False, "flatten": False}
        )
        # The worker of an engine that was closed goes a moment later.
        deadline = time.monotonic() + 10
        while len(self._workers) != 1:
            assert time.monotonic() < deadline, self._workers
            page.wait_for_timeout(50)

    def _receive(self, event: dict[str, Any]) -> None:
        reply = json.loads(event["message"])
        if "id" in reply:
            self._replies[reply["id"]] = reply["result"]

    def _in_worker(self, method: str, **params: Any) -> dict[str, Any]:
        self._sent += 1
        message = json.dumps({"id": self._sent, "method": method, "params": params})
        self._page.send("Target.sendMessageToTarget", {"sessionId": self._workers[0], "message": message})
        while self._sent not in self._replies:
            self._engine._page.wait_for_timeout(5)
        return self._replies.pop(self._sent)

    def _wasm(self) -> int:
        """Bytes of the WebAssembly memories that were made in the worker."""
        size = "memories.reduce((sum, memory) => sum + memory.buffer.byteLength, 0)"
        total: int = self._in_worker("Runtime.evaluate", expression=size)["result"]["value"]
        return total

    def read(self) -> dict[str, int]:
        """The JavaScript heaps, the buffers of typed arrays (kept states among them), and the WASM heap."""
        return self._engine._call(self._read)

    def _read(self) -> dict[str, int]:
        self._page.send("HeapProfiler.collectGarbage")
        page = self._page.send("Runtime.getHeapUsage")
        self._in_worker("HeapProfiler.collectGarbage")
        worker = self._in_worker("Runtime.getHeapUsage")
        return {
            "page heap": page["usedSize"],
            "worker heap": worker["usedSize"],
            "worker buffers": worker["backingStorageSize"],
            "WASM heap": self._wasm(),
        }


def test_memory_is_flat(engine: PageEngine) -> None:
    texts = [f"{TEXTS[i % 8]} This is ticket {i}." for i in range(STATE_TEXTS)]
    one = engine.evaluate(DECIDE_SOME, {"texts": texts[:1], "questions": {}})[-1]["bytes"]
    limit = one * KEPT_TEXTS
    engine._call(lambda: engine._page.route("**/worker.js", watch_worker))
    engine.evaluate(RESTART, {"stateBytes": limit})
    questions = {name: SAMPLE["questions"][name] for name in ("refund", "channel")}
    picks = random.Random(3).choices(texts, k=DECISIONS)
    memory = Memory(engine)
    found: list[dict[str, int]] = []
    for start in range(0, DECISIONS, STEP):
        argument = {"texts": picks[start : start + STEP], "questions": questions}
        states = engine.evaluate(DECIDE_SOME, argument)
        kept = sum(state["bytes"] for state in states)
        assert limit - 2 * one < kept <= limit
        found.append({**memory.read(), "kept states": kept})
        print(start + STEP, {name: f"{size / 1e6:.3f} MB" for name, size in found[-1].items()})
    first, last = found[WARM_UP // STEP - 1], found[-1]
    assert last["WASM heap"] == first["WASM heap"] > 1e6
    for name in ("page heap", "worker heap"):
        assert last[name] - first[name] < 0.3e6, name
    # Each state takes a few bytes more or less than the next, so as many as fit may differ by one.
    assert abs(last["worker buffers"] - first["worker buffers"]) < 2 * one
    # And the figure does see what is kept.
    engine.evaluate("(engine) => engine.release()")
    freed = last["worker buffers"] - memory.read()["worker buffers"]
    print(f"release() freed {freed / 1e6:.3f} MB of {last['kept states'] / 1e6:.3f} MB kept")
    assert freed > 0.8 * last["kept states"]
