"""Many callers of one engine, in a page and natively: right answers for all, and aborts that hurt nobody."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from typedecide import AbortedError, IntegrityError, parse_questions
from typedecide.native import NativeEngine
from typedecide.page import PageEngine

SAMPLE = json.loads((ROOT / "web" / "app" / "decide" / "samples" / "support.json").read_text("utf-8"))

TEXTS = [
    f"Order {number * 131} came {number} days late and the {thing} is broken. I want my money back."
    for number, thing in enumerate(("lamp", "chair", "mirror", "clock", "table", "shelf", "vase", "radio"), 2)
]

CALLERS = 20
ABORTED = {3: "own first answer", 6: "at once", 9: "own first answer", 13: "caller 0", 18: "own first answer"}
"""Callers that are aborted, and when: while they run, right after the call, or while they wait in the queue."""

RUN_TOKENS = 40
"""Small, so that those who are aborted take many runs: an abort is seen between two, a moment after it is sent."""

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
    # Those who are aborted have so much to ask that they are not done when the abort arrives, however busy the machine.
    count = 40 if number in ABORTED else 1 + number % 3
    chosen = [ids[(number + step) % len(ids)] for step in range(count)]
    return {
        "state": TEXTS[number % len(TEXTS)],
        "questions": {f"{name} {step}": SAMPLE["questions"][name] for step, name in enumerate(chosen)},
        "abort": ABORTED.get(number),
    }


@pytest.mark.browser
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


@pytest.mark.browser
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


def test_threads_share_a_native_engine(dist_pointer: Path) -> None:
    callers = [caller(number) for number in range(CALLERS)]
    questions = [parse_questions(one["questions"]) for one in callers]
    with NativeEngine(dist_pointer, threads=1) as engine:

        def ask(number: int, give_up_after: float = math.inf) -> Any:
            asked = 0

            def aborted() -> bool:
                nonlocal asked
                asked += 1
                return asked > give_up_after

            try:
                return engine.decide(
                    callers[number]["state"], questions[number], run_tokens=RUN_TOKENS, aborted=aborted
                ).answers
            except AbortedError:
                return "aborted"

        right = [ask(number) for number in range(CALLERS)]
        engine.release()
        limits = [2.0 if number in ABORTED else math.inf for number in range(CALLERS)]
        with ThreadPoolExecutor(CALLERS) as threads:
            found = [*threads.map(ask, range(CALLERS), limits)]
        assert {number for number, one in enumerate(found) if one == "aborted"} == set(ABORTED)
        assert all(found[number] == right[number] for number in range(CALLERS) if number not in ABORTED)
        assert [ask(number) for number in range(3)] == right[:3]


def test_a_failed_decide_leaves_the_text_before(dist_pointer: Path) -> None:
    first, other = caller(0), caller(1)
    questions = parse_questions(first["questions"])
    asked = [*questions.values()]
    with NativeEngine(dist_pointer, threads=1) as engine:
        engine.prefill(first["state"])
        right = engine.score_all(asked).answers
        runs = iter(range(100))
        with pytest.raises(AbortedError):
            engine.decide(other["state"], questions, aborted=lambda: next(runs) > 1)
        assert len(engine.states) == 2, "the other text was read"
        assert engine.score_all(asked).answers == right


@pytest.mark.parametrize("readout", ("pointer", "text"))
def test_numbers_that_are_none_are_computed_again(
    dist_pointer: Path, monkeypatch: pytest.MonkeyPatch, readout: str
) -> None:
    """Also where they were computed long ago: in the constant head, a kept text, or blank evidence."""
    one = caller(0)
    questions = parse_questions(one["questions"])
    with NativeEngine(dist_pointer, threads=1) as engine:
        right = engine.decide(one["state"], questions, readout=readout).answers
        poisoned = engine._head()
        engine.release()
        with monkeypatch.context() as patch:
            for array in poisoned.past.values():
                array[:] = math.nan
            patch.setattr(engine, "_head_cache", poisoned)
            with pytest.raises(IntegrityError, match="nan"):
                engine.decide(one["state"], questions, readout=readout)
            assert len(engine.states) == 0 and engine._head_cache is None
            assert engine.decide(one["state"], questions, readout=readout).answers == right
