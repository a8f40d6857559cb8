"""Many callers in one page: right answers for all, and aborts that hurt nobody."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from typedecide.page import PageEngine

pytestmark = pytest.mark.browser

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
    count = 8 if number in ABORTED else 1 + number % 3
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
