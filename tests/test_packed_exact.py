"""Packed scoring gives what full prompts give: random questions, orders and runs, in the native engine in fp32.

The mask is what keeps packed questions apart, so errors planted in it have to show.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.packing import drift, in_order
from typedecide import model
from typedecide.native import NativeEngine
from typedecide.orderings import Level, cyclic_shifts, how_many, unrotate
from typedecide.packing import NO_JOINS, Joins
from typedecide.questions import Choice, Noul, Question, Score

LIMIT = 1e-5

LIMITS = {"pointer": LIMIT, "text": 5e-5}
"""Of readouts without orders. `text` adds up a log-probability for each token of an option, and takes off as many under
blank evidence: each is rounded as a logit is."""

Mask = NDArray[np.float32]

WORDS = [
    "refund", "invoice", "angry", "late", "card", "order", "login", "Friday", "phone", "plan", "charge", "help", "12",
    "249.00", "größer", "façade", "naïve", "счёт", "возврат", "返金", "請求書", "चालान", "😀", "¿cuándo?", "{state}",
    "{options}", "A.", "Answer:", "\n",
]  # fmt: skip

LEVELS: list[Level] = ["auto", "all", 1, 2]


@dataclass(frozen=True)
class Packing:
    """Questions and how they are packed."""

    questions: Sequence[Question]
    orderings: Level
    budget: int
    run_tokens: int


def text(rng: random.Random, most: int) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(1, most)))


def names(rng: random.Random, count: int) -> list[str]:
    """Different names; the number in them keeps them apart."""
    return [f"{text(rng, 2)} {number}" for number in rng.sample(range(1000), count)]


def options(rng: random.Random, count: int) -> dict[str, str]:
    described = rng.random() < 0.3
    return {name: text(rng, 3) if described else "" for name in names(rng, count)}


def random_question(rng: random.Random, most: int) -> Question:
    asked = text(rng, 8) + "?"
    match rng.choice(["choice", "choice", "noul", "score"]):
        case "noul":
            return Noul(asked)
        case "score":
            return Score(asked, options(rng, rng.randint(2, min(most, 10))))
        case _:
            return Choice(asked, options(rng, rng.randint(2, most)))


def random_packing(rng: random.Random) -> Packing:
    """A few questions; some are asked twice, or with the options of another, so that their starts are shared."""
    questions = [random_question(rng, 16) for _ in range(rng.randint(1, 5))]
    if rng.random() < 0.5:
        again = rng.choice(questions)
        questions += [again, in_order(again, 1)]
    least = min(len(question.names) for question in questions)
    level = rng.choice([*LEVELS, rng.randint(1, least)])
    return Packing(questions, level, rng.randint(2, 6), rng.choice([20, 100, 300, 10_000]))


def packed_drift(engine: NativeEngine, state: str, packing: Packing) -> float:
    """The largest difference of an option's probability between packed answers and full prompts, one by one."""
    engine.prefill(state)
    done = engine.score_all(
        packing.questions,
        packing.orderings,
        budget=packing.budget,
        run_tokens=packing.run_tokens,
        readout="labels",
    )
    drifts = []
    for question, found in zip(packing.questions, done.answers, strict=True):
        n = len(question.names)
        shifts = cyclic_shifts(n, how_many(n, packing.orderings, packing.budget))
        assert found.orderings_used == len(shifts) and found.answer.names == question.names
        fulls = [engine.score_full(state, in_order(question, shift)).answer.logits for shift in shifts]
        own = [unrotate(logits, shift) for logits, shift in zip(fulls, shifts, strict=True)]
        drifts.append(drift(found.answer.probabilities, own))
    return max(drifts)


@pytest.fixture(scope="module")
def small(dist_fp32_4l: Path) -> Iterator[NativeEngine]:
    """Four layers."""
    with NativeEngine(dist_fp32_4l, "fp32") as engine:
        yield engine


@pytest.mark.parametrize("seed", range(12))
def test_random_packings(small: NativeEngine, seed: int) -> None:
    rng = random.Random(seed)
    packing = random_packing(rng)
    found = packed_drift(small, text(rng, 40), packing)
    counts = [len(question.names) for question in packing.questions]
    print(
        f"{counts} options, orders {packing.orderings} (budget {packing.budget}),"
        f" runs of {packing.run_tokens} tokens: drift {found:.2e}"
    )
    assert found <= LIMIT


@pytest.mark.parametrize(("count", "orderings"), [(40, "auto"), (100, 3), (255, 2)])
def test_many_options(small: NativeEngine, count: int, orderings: Level) -> None:
    rng = random.Random(count)
    questions: list[Question] = [Choice(text(rng, 5), names(rng, count)), random_question(rng, 4)]
    found = packed_drift(small, text(rng, 20), Packing(questions, orderings, 2, 10_000))
    print(f"{count} options, orders {orderings}: drift {found:.2e}")
    assert found <= LIMIT


def drift_of_one_pass(engine: NativeEngine, state: str, packing: Packing, readout: str) -> float:
    """As `packed_drift`, of a readout that needs no orders."""
    engine.prefill(state)
    done = engine.score_all(packing.questions, run_tokens=packing.run_tokens, readout=readout)
    pairs = [
        (one.answer.probabilities, engine.score_full(state, question, readout).answer.probabilities)
        for question, one in zip(packing.questions, done.answers, strict=True)
    ]
    return max(float(np.abs(np.subtract(found, full)).max()) for found, full in pairs)


@pytest.mark.parametrize("readout", ["text", "pointer"])
@pytest.mark.parametrize("seed", range(12))
def test_random_packings_of_readouts_without_orders(small: NativeEngine, seed: int, readout: str) -> None:
    rng = random.Random(seed)
    packing = random_packing(rng)
    found = drift_of_one_pass(small, text(rng, 40), packing, readout)
    print(f"{[len(one.names) for one in packing.questions]} options: drift {found:.2e}")
    assert found <= LIMITS[readout]


@pytest.mark.parametrize("readout", ["text", "pointer"])
@pytest.mark.parametrize("count", [40, 255])
def test_many_options_without_orders(small: NativeEngine, count: int, readout: str) -> None:
    rng = random.Random(count)
    questions: list[Question] = [Choice(text(rng, 5), names(rng, count)), random_question(rng, 4)]
    found = drift_of_one_pass(small, text(rng, 20), Packing(questions, 1, 2, 10_000), readout)
    print(f"{count} options by {readout}: drift {found:.2e}")
    assert found <= LIMITS[readout]


def test_the_whole_model(dist_fp32: Path) -> None:
    rng = random.Random(7)
    questions = [random_question(rng, 4) for _ in range(3)]
    with NativeEngine(dist_fp32, "fp32") as engine:
        found = packed_drift(engine, text(rng, 30), Packing(questions, "all", 2, 150))
    print(f"30 layers: drift {found:.2e}")
    assert found <= LIMIT


def sees_a_stranger(mask: Mask, past: int, parents: Sequence[int]) -> None:
    """The last token also sees one of another question."""
    seen = mask[-1] == 0
    mask[-1, past + int(np.flatnonzero(~seen[past:])[-1])] = 0


def misses_its_parent(mask: Mask, past: int, parents: Sequence[int]) -> None:
    """The last token does not see the one before it."""
    mask[-1, past + parents[-1]] = model.HIDDEN


def misses_a_shared_token(mask: Mask, past: int, parents: Sequence[int]) -> None:
    """The last token does not see the first one of its suffix, which all share."""
    mask[-1, past] = model.HIDDEN


def misses_the_prefix(mask: Mask, past: int, parents: Sequence[int]) -> None:
    """The last token does not see the first one of the prefix."""
    mask[-1, 0] = model.HIDDEN


@pytest.mark.parametrize(
    "fault", [sees_a_stranger, misses_its_parent, misses_a_shared_token, misses_the_prefix]
)
def test_a_planted_mask_error_is_caught(
    small: NativeEngine, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Mask, int, Sequence[int]], None]
) -> None:
    state = "I was charged twice and want my money back."
    questions: list[Question] = [Choice("Which team?", ["billing", "sales"]), Noul("Is the customer angry?")]
    packing = Packing(questions, 1, 2, 10_000)
    sound = packed_drift(small, state, packing)
    right = model.tree_mask
    planted = []

    def wrong(past: int, parents: Sequence[int], joins: Joins = NO_JOINS) -> Mask:
        mask = right(past, parents, joins)
        # Runs with two branches only: the prefix and full prompts stay as they are.
        if any(parent != row - 1 for row, parent in enumerate(parents)):
            fault(mask[0, 0], past, parents)
            planted.append(int((mask != right(past, parents)).sum()))
        return mask

    monkeypatch.setattr(model, "tree_mask", wrong)
    broken = packed_drift(small, state, packing)
    print(f"{fault.__name__}: drift {broken:.2e}, without it {sound:.2e}")
    assert planted == [1]
    assert sound <= LIMIT and broken > 10 * LIMIT
