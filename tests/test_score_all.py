"""Packed, order-debiased scoring: page and native agree, answers stream, and nothing breaks when a run is aborted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from typedecide.errors import AbortedError, InvalidQuestionError, InvalidStateError, TooLongError
from typedecide.native import NativeEngine
from typedecide.page import PageEngine
from typedecide.questions import Choice, Noul, Question, parse_questions
from typedecide.results import Debiased, DecisionEngine

SAMPLE = json.loads((ROOT / "web" / "app" / "decide" / "samples" / "support.json").read_text("utf-8"))
QUESTIONS: list[Question] = list(parse_questions(SAMPLE["questions"]).values())


@pytest.fixture(scope="module")
def page_engine(dist_fp32_4l: Path) -> Iterator[PageEngine]:
    """The cut-down model on WASM."""
    with PageEngine(dist_fp32_4l, "wasm") as engine:
        engine.prefill(SAMPLE["state"])
        yield engine


@pytest.fixture(scope="module")
def native_engine(dist_fp32_4l: Path) -> Iterator[NativeEngine]:
    """The same model natively."""
    with NativeEngine(dist_fp32_4l) as engine:
        engine.prefill(SAMPLE["state"])
        yield engine


def drift(found: tuple[Debiased, ...], right: tuple[Debiased, ...]) -> float:
    """Largest probability difference of two lists of answers."""
    return max(
        abs(a - b)
        for one, other in zip(found, right, strict=True)
        for a, b in zip(one.answer.probabilities, other.answer.probabilities, strict=True)
    )


@pytest.mark.browser
@pytest.mark.parametrize("orderings", (1, "auto", "all"))
def test_page_and_native_agree(
    page_engine: PageEngine, native_engine: NativeEngine, orderings: int | str
) -> None:
    found = page_engine.score_all(QUESTIONS, orderings, readout="labels")  # type: ignore[arg-type]
    right = native_engine.score_all(QUESTIONS, orderings, readout="labels")  # type: ignore[arg-type]
    print(
        f"orderings {orderings}: {found.tokens_run} tokens run, {found.tokens_saved} saved, {found.runs} runs"
    )
    assert drift(found.answers, right.answers) <= 1e-5
    assert (found.tokens_run, found.tokens_saved, found.runs) == (
        right.tokens_run,
        right.tokens_saved,
        right.runs,
    )
    for one, other in zip(found.answers, right.answers, strict=True):
        assert (one.orderings_used, one.flip_rate) == (other.orderings_used, other.flip_rate)


@pytest.mark.parametrize("run_tokens", (1, 70, 10_000))
def test_runs_of_any_size_give_the_same(native_engine: NativeEngine, run_tokens: int) -> None:
    right = native_engine.score_all(QUESTIONS[:4], "all", run_tokens=10_000, readout="labels")
    found = native_engine.score_all(QUESTIONS[:4], "all", run_tokens=run_tokens, readout="labels")
    assert drift(found.answers, right.answers) <= 1e-5
    assert found.tokens_run + found.tokens_saved == right.tokens_run + right.tokens_saved


def test_one_order_is_what_score_gives(native_engine: NativeEngine) -> None:
    found = native_engine.score_all(QUESTIONS, 1, readout="labels").answers
    for question, one in zip(QUESTIONS, found, strict=True):
        right = native_engine.score(question, 1, readout="labels").answer
        pairs = zip(one.answer.probabilities, right.probabilities, strict=True)
        assert max(abs(a - b) for a, b in pairs) <= 1e-5
        assert (one.orderings_used, one.flip_rate) == (1, 0.0)


def test_reversing_two_options_changes_no_debiased_answer(native_engine: NativeEngine) -> None:
    forward = Choice("Which team?", ["billing", "technical support"])
    backward = Choice("Which team?", ["technical support", "billing"])
    plain = [native_engine.score(q, 1, readout="labels").answer.choice for q in (forward, backward)]
    pooled = [d.answer for d in native_engine.score_all([forward, backward], readout="labels").answers]
    print(f"plain {plain}, debiased {[a.choice for a in pooled]}")
    assert pooled[0].choice == pooled[1].choice
    assert pooled[0].probabilities[0] == pytest.approx(pooled[1].probabilities[1], abs=1e-6)


def check_streaming(engine: DecisionEngine) -> None:
    seen: list[tuple[int, Debiased]] = []
    done = engine.score_all(QUESTIONS, run_tokens=60, on_answer=lambda i, a: seen.append((i, a)))
    assert [index for index, _ in seen] == list(range(len(QUESTIONS)))
    assert tuple(answer for _, answer in seen) == done.answers
    assert done.runs > 3


def test_answers_stream_natively(native_engine: NativeEngine) -> None:
    check_streaming(native_engine)


@pytest.mark.browser
def test_answers_stream_in_the_page(page_engine: PageEngine) -> None:
    check_streaming(page_engine)


@pytest.mark.browser
def test_aborted_between_runs_and_still_usable(page_engine: PageEngine) -> None:
    before = page_engine.score_all(QUESTIONS[:2]).answers
    with pytest.raises(AbortedError):
        page_engine.evaluate(
            """async (engine, questions) => {
              const controller = new AbortController();
              const onAnswer = () => controller.abort();
              return engine.scoreAll(questions, { runTokens: 60, signal: controller.signal, onAnswer });
            }""",
            list(SAMPLE["questions"].values())[2:] * 3,
        )
    assert page_engine.score_all(QUESTIONS[:2]).answers == before


@pytest.mark.browser
def test_invalid_question_is_named_by_its_index(page_engine: PageEngine) -> None:
    with pytest.raises(InvalidQuestionError) as caught:
        page_engine.evaluate(
            """(engine) => engine.scoreAll([
              { type: "noul", instructions: "Is it urgent?" },
              { type: "choice", criteria: ["one"] },
            ])"""
        )
    assert list(caught.value.data["loc"]) == [1, "criteria"]


def test_more_orders_than_options_are_refused_by_name(native_engine: NativeEngine) -> None:
    with pytest.raises(InvalidQuestionError, match="Question 1") as caught:
        native_engine.score_all([QUESTIONS[0], Noul("Is it urgent?")], 3, readout="labels")
    assert caught.value.data["value"] == 3
    assert caught.value.data["loc"] == [1]


def test_a_question_alone_is_not_counted(native_engine: NativeEngine) -> None:
    with pytest.raises(InvalidQuestionError, match=r"^The orderings must be") as caught:
        native_engine.score(Noul("Is it urgent?"), 3, readout="labels")
    assert caught.value.data["loc"] == []


@pytest.mark.browser
def test_more_orders_than_options_are_refused_in_the_page(page_engine: PageEngine) -> None:
    with pytest.raises(InvalidQuestionError, match="Question 1"):
        page_engine.score_all([QUESTIONS[0], Noul("Is it urgent?")], 3, readout="labels")


def test_suffix_that_does_not_fit_gives_both_lengths(native_engine: NativeEngine) -> None:
    with pytest.raises(TooLongError) as caught:
        native_engine.score_all([QUESTIONS[0], Choice("word " * 9000, ["a", "b"])])
    assert caught.value.limit == 8192


def test_nothing_prefilled_says_what_to_do(dist_fp32_4l: Path) -> None:
    with NativeEngine(dist_fp32_4l) as engine, pytest.raises(InvalidStateError, match="call prefill"):
        engine.score_all([Noul("Is it urgent?")])
