"""How a calibration is made from labelled answers: temperatures, and a threshold for abstaining.

Numbers in, numbers out: knows no engine, no file and no document. A third of the texts, drawn by a seed, is kept from
the temperatures and sets the threshold.

Temperature (Guo et al., "On Calibration of Modern Neural Networks", 2017): logits are divided by one number for each
kind of question, the one with the least negative log-likelihood. It is kept only where it lowers that on texts that it
was not fitted on: five folds, by text. It changes no answer.

Threshold: conformal risk control (Angelopoulos et al., "Conformal Risk Control", 2022). The loss of a text is the
share of its questions that are answered, because their highest probability is above the threshold, and answered wrong.
Of the thresholds at which (sum of losses + 1) / (texts + 1) is at most alpha, the lowest is taken.

Guaranteed, where the next text is exchangeable with those that set the threshold: the expected share of its questions
that are answered and wrong is at most alpha, on average over the draw of those texts. Not guaranteed: that the error
*among the answers given* is at most alpha (it is that share over the coverage; what it was on those texts is
reported), nor anything of one kind of question, one task or one particular text, nor of other texts than such as
these were drawn from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from typedecide import metrics
from typedecide.calibration import KINDS
from typedecide.orderings import log_softmax
from typedecide.readout import softmax

MIN_ANSWERS = 50
"""Labelled answers that a temperature is fitted on at least."""

FOLDS = 5

THRESHOLD_SHARE = 3
"""One text of so many sets the threshold."""

COLDEST, HOTTEST = 0.05, 20.0
"""Between these a temperature is sought: where all answers are right, none would be cold enough."""

STEPS = 40
"""Halvings of that range, on a log scale: to eleven digits."""


@dataclass(frozen=True)
class Sample:
    """The logits of an answer, the place of the true option, the kind of the question, and the number of its text."""

    text: int
    kind: str
    logits: tuple[float, ...]
    gold: int


@dataclass(frozen=True)
class Fitted:
    """What was found: `kinds` and `abstain` as the document holds them; why other kinds are not calibrated."""

    kinds: dict[str, dict[str, Any]]
    abstain: dict[str, Any]
    left_out: dict[str, str]


def fit(answers: Sequence[Sample], alpha: float, seed: int = 0) -> Fitted:
    """Temperatures of all kinds that have enough answers, and the threshold for the error rate `alpha`."""
    texts = sorted({one.text for one in answers})
    Random(seed).shuffle(texts)
    aside = set(texts[: len(texts) // THRESHOLD_SHARE])
    folds = {text: place % FOLDS for place, text in enumerate(texts[len(aside) :])}
    kinds: dict[str, dict[str, Any]] = {}
    left_out: dict[str, str] = {}
    for kind in KINDS:
        own = [one for one in answers if one.kind == kind and one.text not in aside]
        used = {folds[one.text] for one in own}
        if len(own) < MIN_ANSWERS:
            left_out[kind] = (
                f"{len(own)} labelled answers beside those that set the threshold; {MIN_ANSWERS} are needed"
            )
        elif len(used) < FOLDS:
            left_out[kind] = f"{len(used)} of the {FOLDS} groups of texts have such a question"
        else:
            kinds[kind] = _kind(own, folds)
    temperatures = {kind: one["temperature"] for kind, one in kinds.items()}
    kept = [one for one in answers if one.text in aside and one.kind in kinds]
    return Fitted(kinds, threshold(kept, temperatures, alpha), left_out)


def temperature(answers: Sequence[Sample]) -> float:
    """The temperature with the least negative log-likelihood, from COLDEST to HOTTEST.

    >>> round(temperature([Sample(0, "noul", (2.0, 0.0), gold) for gold in (0, 0, 0, 1)]), 6)
    1.820478
    """
    # In the inverse temperature b the likelihood is concave: its slope, the mean over the answers of what b·logits
    # expect of a logit less the true option's logit, has one zero at most.
    low, high = -math.log(HOTTEST), -math.log(COLDEST)
    for _ in range(STEPS):
        middle = (low + high) / 2
        if sum(_slope(one, math.exp(middle)) for one in answers) < 0:
            low = middle
        else:
            high = middle
    return math.exp(-(low + high) / 2)


def threshold(answers: Sequence[Sample], temperatures: Mapping[str, float], alpha: float) -> dict[str, Any]:
    """The threshold for the error rate `alpha`, and what came of it on these answers.

    Gives `alpha`, `threshold` (answers whose highest probability is not above it abstain), `texts`, `n` (answers),
    `coverage` (the share answered), `error` (the share of those that is wrong; None where nothing is answered) and
    `risk` (the mean share of a text's questions that are answered and wrong).
    """
    rows = [_row(one, temperatures[one.kind]) for one in answers]
    sizes: dict[int, int] = {}
    for text, _, _ in rows:
        sizes[text] = sizes.get(text, 0) + 1
    lowest = 1.0
    # Falling through the wrong answers, the most confident first: a threshold at one of them is the lowest that
    # still keeps it back.
    losses, allowed = 0.0, alpha * (len(sizes) + 1) - 1
    wrong = sorted(((top, 1 / sizes[text]) for text, top, right in rows if not right), reverse=True)
    if allowed >= 0:
        lowest = 0.0
        for top, loss in wrong:
            losses += loss
            if losses > allowed:
                lowest = top
                break
    given = [(text, right) for text, top, right in rows if top > lowest]
    missed = [text for text, right in given if not right]
    return {
        "alpha": alpha,
        "threshold": lowest,
        "texts": len(sizes),
        "n": len(rows),
        "coverage": len(given) / len(rows) if rows else 0.0,
        "error": len(missed) / len(given) if given else None,
        "risk": sum(1 / sizes[text] for text in missed) / len(sizes) if sizes else 0.0,
    }


def _kind(answers: Sequence[Sample], folds: Mapping[int, int]) -> dict[str, Any]:
    """One kind's temperature; `after` is what others' temperatures made of each fold."""
    held_out = {
        fold: temperature([one for one in answers if folds[one.text] != fold]) for fold in range(FOLDS)
    }
    before = [(one, 1.0) for one in answers]
    after = [(one, held_out[folds[one.text]]) for one in answers]
    helps = _nll(after) < _nll(before)
    return {
        "temperature": temperature(answers) if helps else 1.0,
        "n": len(answers),
        "nll_before": _nll(before),
        "nll_after": _nll(after),
        "ece_before": _ece(before),
        "ece_after": _ece(after),
    }


def _slope(one: Sample, inverse: float) -> float:
    weights = softmax([inverse * logit for logit in one.logits])
    expected = sum(p * logit for p, logit in zip(weights, one.logits, strict=True))
    return expected - one.logits[one.gold]


def _tempered(one: Sample, by: float) -> list[float]:
    return [logit / by for logit in one.logits]


def _nll(pairs: Sequence[tuple[Sample, float]]) -> float:
    return -sum(log_softmax(_tempered(one, by))[one.gold] for one, by in pairs) / len(pairs)


def _ece(pairs: Sequence[tuple[Sample, float]]) -> float:
    answers = [(one, softmax(_tempered(one, by))) for one, by in pairs]
    credits = [metrics.credit(probabilities, one.gold) for one, probabilities in answers]
    bins = metrics.reliability([max(probabilities) for _, probabilities in answers], credits)
    error = metrics.calibration_error(bins)
    assert error is not None
    return error


def _row(one: Sample, by: float) -> tuple[int, float, bool]:
    """The text, the highest probability, and whether the answer is right."""
    probabilities = softmax(_tempered(one, by))
    top = max(probabilities)
    return one.text, top, probabilities.index(top) == one.gold
