"""Kept states and the constant head's cache: a kept text costs nothing, what goes is freed, no number changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from typedecide.errors import InvalidStateError, TooLongError, UnsupportedError
from typedecide.model import Suffix
from typedecide.native import NativeEngine
from typedecide.orderings import log_softmax
from typedecide.page import PageEngine
from typedecide.prompt import suffix_after
from typedecide.questions import Choice, Noul, Question
from typedecide.results import DecisionEngine
from typedecide.states import States

LONG = " ".join(f"On day {day} the parcel for order {day * 37} had still not come." for day in range(30))
TEXTS = [
    f"My card was charged twice for order {number}, and nobody has answered me for {number % 7} days."
    for number in (4412, 9031, 2210, 7675)
]
QUESTIONS: list[Question] = [
    Choice("Which team should handle this?", ["billing", "shipping", "technical support"]),
    Noul("Is the customer angry?"),
]

# Starts that could merge with the end of the head, or look like it.
STARTS = ["", " ", "\n", "\n\n", "  \n\t", "Evidence:\n", "é", "👩🏽‍🚀", "7", "<|im_end|>"]

# Another engine in the same page: PageEngine has no parameter for the memory of kept states.
RESTART = """async (engine, options) => {
  const { createEngine } = await import("/index.js");
  engine.close();
  globalThis.typedecide.engine = await createEngine({ device: "wasm", ...options });
}"""


# -- the LRU itself -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Note:
    """Something that can be kept."""

    text: str
    bytes: int


def kept(states: States[Note]) -> list[str]:
    return [state.text for state in states.list()]


def test_least_recently_used_goes_first() -> None:
    states: States[Note] = States(30)
    for text in "abc":
        states.add(Note(text, 10))
    assert (kept(states), states.bytes, len(states)) == (["a", "b", "c"], 30, 3)
    assert states.get("a") == Note("a", 10)
    states.add(Note("d", 10))
    assert (kept(states), states.bytes) == (["c", "a", "d"], 30)
    assert states.get("b") is None and kept(states) == ["c", "a", "d"]


def test_as_many_go_as_must_and_the_newest_stays() -> None:
    states: States[Note] = States(30)
    for text in "abc":
        states.add(Note(text, 10))
    states.add(Note("large", 25))
    assert kept(states) == ["large"]
    states.add(Note("larger than all", 1000))
    assert (kept(states), states.bytes) == (["larger than all"], 1000)
    states.add(Note("small", 1))
    assert kept(states) == ["small"]


def test_a_text_is_kept_once_and_clear_drops_all() -> None:
    states: States[Note] = States(30)
    states.add(Note("a", 10))
    states.add(Note("a", 20))
    assert (states.list(), states.bytes) == ([Note("a", 20)], 20)
    states.clear()
    assert (len(states), states.bytes, states.get("a")) == (0, 0, None)


# -- both engines ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page_engine(dist_fp32_4l: Path) -> Iterator[PageEngine]:
    """The cut-down model on WASM."""
    with PageEngine(dist_fp32_4l, "wasm") as engine:
        yield engine


@pytest.fixture(scope="module")
def native_engine(dist_fp32_4l: Path) -> Iterator[NativeEngine]:
    """The same model natively."""
    with NativeEngine(dist_fp32_4l) as engine:
        yield engine


def check_going_back(engine: DecisionEngine) -> None:
    """A kept text is there at once, and gives the same answers to the last bit."""
    texts = [LONG, *TEXTS]
    first = []
    for text in texts:
        prefill = engine.prefill(text)
        assert not prefill.kept
        first.append(
            (
                prefill,
                engine.score_all(QUESTIONS).answers,
                engine.score(QUESTIONS[0], 1, readout="labels").answer,
            )
        )
    for text, (computed, answers, plain) in zip(texts, first, strict=True):
        again = engine.prefill(text)
        assert (again.kept, again.tokens) == (True, computed.tokens)
        assert engine.score_all(QUESTIONS).answers == answers
        assert engine.score(QUESTIONS[0], 1, readout="labels").answer == plain
    computed, again = first[0][0], engine.prefill(LONG)
    print(f"{computed.tokens} tokens: computed in {computed.ms:.1f} ms, kept in {again.ms:.1f} ms")
    assert again.kept and again.ms < computed.ms / 10


def check_failures_keep_the_text(engine: DecisionEngine) -> None:
    """A prefill that fails changes neither the text in use nor what is kept."""
    engine.prefill(TEXTS[0])
    before = engine.score_all(QUESTIONS).answers
    for text, error in (("word " * 9000, TooLongError), ("lone \ud800", InvalidStateError)):
        with pytest.raises(error):
            engine.prefill(text)
    assert engine.score_all(QUESTIONS).answers == before
    assert engine.prefill(TEXTS[0]).kept


def check_release(engine: DecisionEngine, release: Callable[[], object]) -> None:
    """Nothing is left after a release, and the next prefill gives the same answers."""
    engine.prefill(TEXTS[0])
    before = engine.score_all(QUESTIONS).answers
    release()
    with pytest.raises(InvalidStateError, match="call prefill"):
        engine.score(QUESTIONS[0], 1, readout="labels")
    with pytest.raises(InvalidStateError, match="call prefill"):
        engine.score_all(QUESTIONS)
    assert not engine.prefill(TEXTS[0]).kept
    assert engine.score_all(QUESTIONS).answers == before


def page_states(engine: PageEngine) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = engine.evaluate("(engine) => engine.states()")
    return found


def page_release(engine: PageEngine) -> None:
    engine.evaluate("(engine) => engine.release()")
    assert page_states(engine) == []


def test_going_back_natively(native_engine: NativeEngine) -> None:
    native_engine.release()
    check_going_back(native_engine)
    check_failures_keep_the_text(native_engine)
    check_release(native_engine, native_engine.release)


@pytest.mark.browser
def test_going_back_in_the_page(page_engine: PageEngine) -> None:
    page_release(page_engine)
    check_going_back(page_engine)
    check_failures_keep_the_text(page_engine)
    check_release(page_engine, lambda: page_release(page_engine))


@pytest.mark.browser
def test_going_back_on_webgpu(dist_fp32_4l: Path) -> None:
    # This kernel writes new keys behind the prefix, in the prefix's own buffers: a kept state must survive that.
    with PageEngine(dist_fp32_4l, "webgpu", candidates=["webgpu-gqa-nosubgroups"]) as engine:
        first, second = "I was charged twice.", "The lamp is broken."
        engine.prefill(first)
        right = engine.score(QUESTIONS[1], 1, readout="labels").answer
        tokens = engine.prefill(second).tokens
        assert engine.score(QUESTIONS[1], 1, readout="labels").answer != right
        assert engine.prefill(first).kept
        assert engine.score(QUESTIONS[1], 1, readout="labels").answer == right
        assert [state["tokens"] for state in page_states(engine)] == [tokens, engine.prefill(first).tokens]
        page_release(engine)
        assert not engine.prefill(first).kept
        assert engine.score(QUESTIONS[1], 1, readout="labels").answer == right


def test_eviction_natively(dist_fp32_4l: Path) -> None:
    with NativeEngine(dist_fp32_4l) as engine:
        engine.prefill(TEXTS[0])
        right = engine.score_all(QUESTIONS).answers
        one = engine.states.bytes
    with NativeEngine(dist_fp32_4l, state_bytes=int(one * 2.5)) as engine:
        for text in TEXTS[:3]:
            engine.prefill(text)
        assert [state.text for state in engine.states.list()] == TEXTS[1:3]
        assert 0 < engine.states.bytes <= engine.states.limit
        assert not engine.prefill(TEXTS[0]).kept  # pushes TEXTS[1] out
        assert engine.score_all(QUESTIONS).answers == right
        assert engine.prefill(TEXTS[2]).kept and not engine.prefill(TEXTS[1]).kept
    with NativeEngine(dist_fp32_4l, state_bytes=0) as engine:
        assert not engine.prefill(TEXTS[1]).kept and not engine.prefill(TEXTS[0]).kept
        assert engine.prefill(TEXTS[0]).kept and len(engine.states) == 1
        assert engine.score_all(QUESTIONS).answers == right


@pytest.mark.browser
def test_eviction_in_the_page(dist_fp32_4l: Path) -> None:
    with PageEngine(dist_fp32_4l, "wasm") as engine:
        tokens = [engine.prefill(text).tokens for text in TEXTS]
        engine.prefill(TEXTS[0])
        right = engine.score_all(QUESTIONS).answers
        shape = engine.info["model"]["shape"]
        token_bytes = 2 * shape["layers"] * shape["kv_heads"] * shape["head_dim"] * 4
        sizes = [{"tokens": count, "bytes": count * token_bytes} for count in tokens]
        # The text used last is at the end.
        assert page_states(engine) == [*sizes[1:], sizes[0]]

        engine.evaluate(RESTART, {"stateBytes": int(sizes[0]["bytes"] * 2.5)})
        for text in TEXTS[:3]:
            engine.prefill(text)
        assert page_states(engine) == sizes[1:3]
        assert not engine.prefill(TEXTS[0]).kept  # pushes TEXTS[1] out
        assert engine.score_all(QUESTIONS).answers == right
        assert page_states(engine) == [sizes[2], sizes[0]]
        assert engine.prefill(TEXTS[2]).kept and not engine.prefill(TEXTS[1]).kept

        engine.evaluate(RESTART, {"stateBytes": 0})
        assert not engine.prefill(TEXTS[1]).kept and not engine.prefill(TEXTS[0]).kept
        assert engine.prefill(TEXTS[0]).kept and page_states(engine) == sizes[:1]
        assert engine.score_all(QUESTIONS).answers == right

        with pytest.raises(UnsupportedError, match="-1"):
            engine.evaluate(RESTART, {"stateBytes": -1})


# -- the constant head ----------------------------------------------------------------------------------------------


@contextmanager
def wrong_head(engine: NativeEngine) -> Iterator[None]:
    """The engine with keys and values in its head that no token has."""
    before = engine._head()
    engine._head_cache = type(before)({name: array + np.float32(0.1) for name, array in before.past.items()})
    try:
        yield
    finally:
        engine._head_cache = before


def test_head_cache_changes_no_logit_natively(native_engine: NativeEngine) -> None:
    head, base = native_engine._head_ids, native_engine._head()
    assert base.length == len(head) > 10
    criterion = QUESTIONS[0].criterion()
    labels = native_engine.prompt.label_ids(criterion)
    largest, used = 0.0, 0
    for start in STARTS:
        state = start + TEXTS[0]
        ids = native_engine.prompt.state_prefix_ids(native_engine.tokenizer, state)
        full = native_engine.prompt.full_ids(native_engine.tokenizer, state, criterion)
        native_engine.release()
        native_engine.prefill(state)
        cached = np.asarray(native_engine.score(QUESTIONS[0], 1, readout="labels").answer.logits)
        (plain,), _ = native_engine.model.score(
            native_engine.model.prefill(ids), [Suffix(suffix_after(ids, full), labels)]
        )
        largest = max(largest, float(np.abs(cached - log_softmax(plain.tolist())).max()))
        used += ids[: len(head)] == head
    print(
        f"logits with the head's cache and without: {largest:.1e}; it was used for {used} of {len(STARTS)} states"
    )
    assert largest <= 1e-6
    assert used > len(STARTS) / 2


def test_a_wrong_head_cache_is_seen(native_engine: NativeEngine) -> None:
    native_engine.release()
    native_engine.prefill(TEXTS[0])
    right = np.asarray(native_engine.score(QUESTIONS[0], 1, readout="labels").answer.logits)
    with wrong_head(native_engine):
        native_engine.release()
        native_engine.prefill(TEXTS[0])
        wrong = np.asarray(native_engine.score(QUESTIONS[0], 1, readout="labels").answer.logits)
    native_engine.release()
    assert np.abs(wrong - right).max() > 1e-3


@pytest.mark.browser
def test_head_cache_changes_no_bit_on_wasm(page_engine: PageEngine) -> None:
    for start in STARTS:
        state = start + TEXTS[0]
        page_engine.prefill(state)
        for question in QUESTIONS:
            cached, full = (
                page_engine.score(question, 1, readout="labels"),
                page_engine.score_full(state, question),
            )
            assert cached.answer.logits == full.answer.logits, start
            assert cached.tokens < full.tokens
