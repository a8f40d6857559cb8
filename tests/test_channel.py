"""Calls and the worker behind them: what cannot be sent, what is aborted, and what a worker that went leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Playwright, Route

from bench.faults import OTHER_STATE, QUESTIONS, STATE, Stage, refused, set_up
from bench.tabs import Tab
from typedecide.native import NativeEngine
from typedecide.questions import parse_questions

pytestmark = pytest.mark.browser

ASKED = list(QUESTIONS.values())
SCORE_ALL = (
    "async (questions) => (await globalThis.engine.scoreAll(questions)).answers.map((a) => a.probabilities)"
)

# What is refused: its code, and where its fault is.
REFUSED = """async () => {
  const question = { type: "noul", instructions: "Angry?" };
  const loop = { ...question };
  loop.self = loop;
  loop.icon = () => {};
  const calls = {
    listener: () => engine.score(question, { onAnswer: () => {} }),
    symbol: () => engine.scoreAll([question, { ...question, mark: Symbol("x") }]),
    proxy: () => engine.scoreAll([new Proxy(question, {})]),
    element: () => engine.decide({ state: "", questions: { a: { ...question, at: document.body } } }),
    loop: () => engine.score(loop),
    getter: () => engine.score({ ...question, deep: { get it() { throw Error("no") } } }),
    option: () => engine.scoreFull("", question, { readout: () => {} }),
  };
  const found = {};
  for (const [name, call] of Object.entries(calls))
    found[name] = await call().then(() => null, ({ code, data }) => [code, data.faults?.[0].loc]);
  return found;
}"""

# The worker is busy, and gone before it could read the message that aborts.
BUSY_TO_THE_END = """() => {
  globalThis.fault = () => {
    const end = performance.now() + 2000;
    while (performance.now() < end);
    self.close();
    return new Promise(() => {});
  };
}"""
ABORTED_MEANWHILE = """async (questions) => {
  const controller = new AbortController();
  const { signal } = controller;
  const waiting = globalThis.engine.scoreAll(questions, { signal });
  const behind = globalThis.engine.scoreAll(questions);
  setTimeout(() => controller.abort(), 200);
  const code = await waiting.then(() => "ANSWERS", (error) => error.code);
  return [code, (await behind).answers.map((answer) => answer.probabilities)];
}"""

CHANGED_MEANWHILE = """async (questions) => {
  const running = globalThis.engine.scoreAll(questions);
  for (const question of questions) question.instructions = "Something else?";
  return (await running).answers.map((answer) => answer.probabilities);
}"""

END = """() => {
  globalThis.fault = () => {
    self.close();
    return new Promise(() => {});
  };
}"""

# Runs wait until they are told to go on.
HOLD = """() => {
  globalThis.runs = 0;
  globalThis.fault = async (run) => {
    globalThis.runs += 1;
    await new Promise((resolve) => (globalThis.go = resolve));
    return run();
  };
}"""
# Long enough for a message that was sent before.
GO_ON = "() => new Promise((resolve) => setTimeout(resolve, 300)).then(() => globalThis.go())"


@pytest.fixture(scope="module")
def stage(playwright: Playwright, dist_pointer: Path) -> Iterator[Stage]:
    with set_up(playwright, dist_pointer) as stage:
        yield stage


@pytest.fixture
def tab(stage: Stage) -> Iterator[Tab]:
    """A tab with an engine, around whose runs faults can be planted, and a text that is read."""
    with stage.served(stage.bundle) as window:
        tab = window.tab(stage.around_runs())
        tab.load()
        tab.evaluate("async (text) => (await globalThis.engine.prefill(text)).tokens", STATE)
        yield tab


def test_what_cannot_be_sent_is_named_and_leaves_nothing_behind(stage: Stage, tab: Tab) -> None:
    assert tab.evaluate(REFUSED) == {
        "listener": ["INVALID_REQUEST", ["options", "onAnswer"]],
        "symbol": ["INVALID_REQUEST", ["questions", 1, "mark"]],
        "proxy": ["INVALID_REQUEST", ["questions", 0]],
        "element": ["INVALID_REQUEST", ["questions", 0, "at"]],
        "loop": ["INVALID_REQUEST", ["question", "icon"]],
        "getter": ["INVALID_REQUEST", ["question", "deep", "it"]],
        "option": ["INVALID_REQUEST", ["readout"]],
    }
    # A call that was refused is no call that a new worker would have to do.
    tab.in_worker("() => self.close()")
    stage.check(tab.evaluate(SCORE_ALL, ASKED))


def test_a_call_is_what_it_was_when_it_was_made(stage: Stage, tab: Tab) -> None:
    tab.in_worker(END)
    stage.check(tab.evaluate(CHANGED_MEANWHILE, ASKED))


def test_an_abort_that_meets_a_dying_worker_is_heeded(stage: Stage, tab: Tab) -> None:
    tab.in_worker(BUSY_TO_THE_END)
    code, answers = tab.evaluate(ABORTED_MEANWHILE, ASKED)
    assert code == "ABORTED"
    stage.check(answers)


def test_a_new_worker_knows_the_text_whatever_is_asked_first(stage: Stage, tab: Tab) -> None:
    first_calls = (
        "() => engine.memory()",
        "() => engine.scoreFull('Another text.', { type: 'noul', instructions: 'Is it?' })",
        "() => engine.prefill('word '.repeat(9000)).catch((error) => error.code)",
    )
    for call in first_calls:
        tab.in_worker("() => self.close()")
        tab.evaluate(call)
        stage.check(tab.evaluate(SCORE_ALL, ASKED))


def test_a_script_that_is_not_to_be_had_for_a_while_ends_no_engine(stage: Stage, tab: Tab) -> None:
    def away(route: Route) -> None:
        route.abort()

    tab.page.route("**/worker.js", away)
    tab.in_worker("() => self.close()")
    refused(lambda: tab.evaluate(SCORE_ALL, ASKED), "BUNDLE")
    tab.page.unroute("**/worker.js", away)
    stage.check(tab.evaluate(SCORE_ALL, ASKED))


def test_an_abort_of_whole_prompts_comes_between_them(tab: Tab) -> None:
    tab.in_worker(HOLD)
    tab.evaluate(
        """async ([state, question]) => {
          globalThis.control = new AbortController();
          const options = { readout: "text", signal: globalThis.control.signal };
          globalThis.running = globalThis.engine.scoreFull(state, question, options).catch((error) => error.code);
        }""",
        [STATE, QUESTIONS["team"]],
    )
    tab.page.wait_for_timeout(300)
    tab.evaluate("async () => globalThis.control.abort()")
    tab.in_worker(GO_ON)
    assert tab.evaluate("() => globalThis.running") == "ABORTED"
    assert tab.in_worker("() => globalThis.runs") == 1


@pytest.mark.parametrize("kept_bytes", [2**20, 0], ids=["kept", "not kept"])
def test_a_decision_that_fails_leaves_the_text_before(stage: Stage, kept_bytes: int) -> None:
    long: dict[str, Any] = {"long": {"type": "noul", "instructions": "why " * 9000}}
    with stage.served(stage.bundle) as window:
        tab = window.tab()
        tab.load(stateBytes=kept_bytes)
        refused(lambda: tab.decide(OTHER_STATE, long), "TOO_LONG")
        refused(lambda: tab.evaluate(SCORE_ALL, ASKED), "INVALID_STATE")
        tab.evaluate("async (text) => (await globalThis.engine.prefill(text)).tokens", STATE)
        # The text is read before the question turns out to be too long.
        refused(lambda: tab.decide(OTHER_STATE, long), "TOO_LONG")
        stage.check(tab.evaluate(SCORE_ALL, ASKED))
        tab.in_worker("() => self.close()")
        stage.check(tab.evaluate(SCORE_ALL, ASKED))


def test_the_texts_of_these_tests_differ_in_their_answers(stage: Stage) -> None:
    with NativeEngine(stage.bundle) as engine:
        other = engine.decide(OTHER_STATE, parse_questions(QUESTIONS)).answers.values()
    far = max(
        abs(a - b)
        for one, right in zip(other, stage.right, strict=True)
        for a, b in zip(one.answer.probabilities, right, strict=True)
    )
    assert far > 1e-3
