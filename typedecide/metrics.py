"""What labelled answers are worth: accuracy, calibration, ranking, and how sure one may be of each.

Numbers in, numbers out: knows no questions, engines or files, and needs no package. An item is one labelled decision.
`weights` say how often each item counts, which is how a bootstrap resamples; without them each counts once. Functions
give None where a figure is not defined, as of no items at all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from operator import itemgetter, mul
from random import Random
from typing import Literal

BINS = 15
"""Of reliability tables and calibration errors."""

Weights = Sequence[int] | None

Binning = Literal["mass", "width"]
"""Bins that hold equally many items, or that are equally wide."""


def mean(values: Sequence[float], weights: Weights = None) -> float | None:
    """The weighted mean.

    >>> mean([1.0, 0.0, 0.0]), mean([1.0, 0.0, 0.0], [2, 1, 1])
    (0.3333333333333333, 0.5)
    """
    if weights is None:
        return sum(values) / len(values) if values else None
    total = sum(weights)
    return sum(map(mul, values, weights)) / total if total else None


def credit(probabilities: Sequence[float], gold: int) -> float:
    """What an answer earns: 1 where the true option is the most probable one, 1/k where it ties with k - 1 others.

    The mean of it is the accuracy. Ties are split because the option that happens to be listed first is no answer:
    a model that knows nothing earns chance.

    >>> credit([0.2, 0.8], 1), credit([0.5, 0.5], 1), credit([0.9, 0.1], 1)
    (1.0, 0.5, 0.0)
    """
    top = max(probabilities)
    return 1 / sum(p == top for p in probabilities) if probabilities[gold] == top else 0.0


def chance(options: Sequence[int]) -> float | None:
    """The accuracy of guessing: the mean of 1/n over the items' numbers of options.

    >>> chance([2, 4])
    0.375
    """
    return mean([1 / n for n in options])


def majority(gold: Sequence[Hashable]) -> float | None:
    """The share of the most frequent true answer: the accuracy of always giving that one.

    >>> majority(["spam", "ham", "ham", "ham"])
    0.75
    """
    return max(Counter(gold).values()) / len(gold) if gold else None


def macro_f1(gold: Sequence[Hashable], chosen: Sequence[Hashable], weights: Weights = None) -> float | None:
    """The unweighted mean over all answers that are true or given of F1 = 2·TP / (2·TP + FP + FN).

    Opitz and Burst, "Macro F1 and Macro F1" (2019), their averaged F1.

    >>> macro_f1(["a", "a", "b", "b"], ["a", "b", "b", "b"])
    0.7333333333333334
    """
    true: Counter[Hashable] = Counter()
    given: Counter[Hashable] = Counter()
    hits: Counter[Hashable] = Counter()
    for truth, choice, weight in zip(gold, chosen, weights or [1] * len(gold), strict=True):
        true[truth] += weight
        given[choice] += weight
        hits[truth] += weight * (truth == choice)
    # Those that a bootstrap sample left out are not there.
    names = [name for name in {**true, **given} if true[name] + given[name]]
    return mean([2 * hits[name] / (true[name] + given[name]) for name in names])


def brier(probabilities: Sequence[float], gold: int) -> float:
    """The squared distance of an answer's probabilities from the truth: 0 (certain and right) to 2 (certain and wrong).

    Brier, "Verification of forecasts expressed in terms of probability" (1950), over all options.

    >>> brier([0.5, 0.5], 0)
    0.5
    """
    return sum((p - (option == gold)) ** 2 for option, p in enumerate(probabilities))


@dataclass(frozen=True)
class Bin:
    """Items whose confidences lie from `low` to `high`: how many, their mean confidence, their accuracy."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


def reliability(
    confidences: Sequence[float],
    credits: Sequence[float],
    binning: Binning = "mass",
    bins: int = BINS,
    weights: Weights = None,
) -> list[Bin]:
    """Items by confidence, the probability of the answer given, in bins of equal mass or equal width; no empty ones.

    Equal mass splits the items in the order of their confidences, so that items that tie may lie in two bins; what
    ties earns the mean of the tie, so that the result does not depend on how the items were listed.

    >>> [one.accuracy for one in reliability([0.6, 0.7, 0.8, 0.9], [0, 1, 1, 1], bins=2)]
    [0.5, 1.0]
    """
    pairs = _by_confidence(confidences, credits, weights)
    if binning == "mass":
        ends = [place * len(pairs) // bins for place in range(bins + 1)]
        cuts = [pairs[start:end] for start, end in pairwise(ends)]
        return [_bin(cut, cut[0][0], cut[-1][0]) for cut in cuts if cut]
    held: list[list[tuple[float, float]]] = [[] for _ in range(bins)]
    for pair in pairs:
        held[min(int(pair[0] * bins), bins - 1)].append(pair)
    return [_bin(cut, place / bins, (place + 1) / bins) for place, cut in enumerate(held) if cut]


def calibration_error(bins: Sequence[Bin]) -> float | None:
    """Expected calibration error: the mean distance of confidence and accuracy over bins, weighted by their items.

    Naeini et al., "Obtaining Well Calibrated Probabilities Using Bayesian Binning" (2015); with bins of equal mass:
    Nguyen and O'Connor, "Posterior calibration and exploratory analysis" (2015).

    >>> round(calibration_error(reliability([0.6, 0.8], [1, 0], bins=1)), 12)
    0.2
    """
    total = sum(one.count for one in bins)
    gaps = sum(one.count * abs(one.confidence - one.accuracy) for one in bins)
    return gaps / total if total else None


def risk_coverage(confidences: Sequence[float], credits: Sequence[float]) -> list[tuple[float, float]]:
    """(coverage, risk) after each item, the most confident first: the share answered, and the error among those.

    Items that tie share their errors.

    >>> risk_coverage([0.9, 0.6], [1, 0])
    [(0.5, 0.0), (1.0, 0.5)]
    """
    pairs = _by_confidence(confidences, credits)
    errors = accumulate(1 - earned for _, earned in reversed(pairs))
    return [(rank / len(pairs), wrong / rank) for rank, wrong in enumerate(errors, start=1)]


def aurc(confidences: Sequence[float], credits: Sequence[float], weights: Weights = None) -> float | None:
    """The area under the risk–coverage curve: the mean risk over all coverages; lower is better.

    Geifman et al., "Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers" (2019).

    >>> aurc([0.9, 0.6], [1, 0])
    0.25
    """
    pairs = _by_confidence(confidences, credits, weights)
    errors = accumulate(1 - earned for _, earned in reversed(pairs))
    return mean([wrong / rank for rank, wrong in enumerate(errors, start=1)])


def confusion(gold: Sequence[int], chosen: Sequence[int], options: int) -> list[list[int]]:
    """How often each option was the true one (rows) and the answer (columns), by their places.

    >>> confusion([0, 0, 1], [0, 1, 1], 2)
    [[1, 1], [0, 1]]
    """
    counts = Counter(zip(gold, chosen, strict=True))
    return [[counts[truth, choice] for choice in range(options)] for truth in range(options)]


@dataclass(frozen=True)
class Kept:
    """What remains where answers whose confidence is not above `threshold` are left out: how many, and how many of
    them are wrong; a tie counts with the share of it that is wrong."""

    threshold: float
    kept: int
    wrong: float


def thresholds(confidences: Sequence[float], credits: Sequence[float]) -> list[Kept]:
    """What each threshold keeps: 0, and the confidences themselves, the lowest first. Beyond the last, nothing is kept.

    >>> [(one.threshold, one.kept, one.wrong) for one in thresholds([0.6, 0.9], [0, 1])]
    [(0.0, 2, 1.0), (0.6, 1, 0.0), (0.9, 0, 0.0)]
    """
    pairs = sorted(zip(confidences, credits, strict=True), reverse=True)
    found: list[Kept] = []
    kept, wrong = 0, 0.0
    for confidence, tied in groupby(pairs, key=itemgetter(0)):
        found.append(Kept(confidence, kept, wrong))
        for _, earned in tied:
            kept, wrong = kept + 1, wrong + 1 - earned
    # Where a confidence is 0, the threshold 0 leaves it out.
    return [*([] if found and found[-1].threshold == 0 else [Kept(0.0, kept, wrong)]), *reversed(found)]


def at_threshold(found: Sequence[Kept], threshold: float) -> Kept:
    """What a threshold keeps, of what `thresholds` found.

    >>> at_threshold(thresholds([0.6, 0.9], [0, 1]), 0.7).kept
    1
    """
    below = [one for one in found if one.threshold <= threshold]
    return below[-1] if below else found[0]


def widest(found: Sequence[Kept], error: float) -> Kept | None:
    """The lowest threshold at which at most the share `error` of what is kept is wrong; None where there is none.

    It was looked for on these very answers, so that on others the error is likely to be a little higher.

    >>> widest(thresholds([0.6, 0.9], [0, 1]), 0.1).threshold
    0.6
    """
    return next((one for one in found if one.kept and one.wrong <= error * one.kept), None)


def kendall_tau(left: Sequence[float], right: Sequence[int], weights: Weights = None) -> float | None:
    """Kendall's tau-b, how alike two rankings are: 1 the same, 0 unrelated, -1 the reverse.

    (C - D) / sqrt((N - ties in left) · (N - ties in right)) over the N pairs, C concordant and D discordant; Kendall,
    "The treatment of ties in ranking problems" (1945). `right` should hold few different values, as levels do.

    >>> kendall_tau([0.1, 0.4, 0.9], [0, 1, 2]), kendall_tau([1, 1, 2], [0, 1, 1])
    (1.0, 0.5)
    """
    rows = sorted(row for row in zip(left, right, weights or [1] * len(left), strict=True) if row[2])
    below = dict.fromkeys(right, 0)
    balance = left_ties = 0
    for _, group in groupby(rows, key=itemgetter(0)):
        tied = list(group)
        for _, level, weight in tied:
            for other, count in below.items():
                if other < level:
                    balance += weight * count
                elif other > level:
                    balance -= weight * count
        for _, level, weight in tied:
            below[level] += weight
        left_ties += _pairs(sum(weight for _, _, weight in tied))
    pairs = _pairs(sum(below.values()))
    right_ties = sum(map(_pairs, below.values()))
    scale = math.sqrt((pairs - left_ties) * (pairs - right_ties))
    return balance / scale if scale else None


def resamples(clusters: Sequence[int], count: int, seed: int) -> Iterator[list[int]]:
    """Weights of the items in `count` bootstrap samples: whole clusters are drawn, as many as there are, with
    replacement.

    Questions about one text stand or fall together, so a text is a cluster (Cameron et al., "Bootstrap-Based
    Improvements for Inference with Clustered Errors", 2008, their pairs cluster bootstrap).

    >>> next(resamples([0, 0, 1], 1, seed=4))
    [2, 2, 0]
    """
    rng = Random(seed)
    population = sorted(set(clusters))
    for _ in range(count):
        drawn = Counter(rng.choices(population, k=len(population)))
        yield [drawn[cluster] for cluster in clusters]


def interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float] | None:
    """The percentile interval of bootstrapped values (Efron, 1979): the middle `level` of them.

    >>> interval([0.0, 1.0, 2.0, 3.0, 4.0], 0.5)
    (1.0, 3.0)
    """
    if not values:
        return None
    return quantile(values, (1 - level) / 2), quantile(values, (1 + level) / 2)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share of the values lies, interpolated linearly between two of them.

    >>> quantile([4.0, 1.0, 3.0, 2.0], 0.5)
    2.5
    """
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def _pairs(count: int) -> int:
    return count * (count - 1) // 2


def _by_confidence(
    confidences: Sequence[float], credits: Sequence[float], weights: Weights = None
) -> list[tuple[float, float]]:
    """(confidence, credit) of each item as often as it counts, least confident first; a tie shares its credit."""
    rows = sorted(zip(confidences, credits, weights or [1] * len(credits), strict=True))
    pairs = [(confidence, earned) for confidence, earned, weight in rows for _ in range(weight)]
    if len(set(confidences)) == len(confidences):
        return pairs
    levelled: list[tuple[float, float]] = []
    for confidence, tied in groupby(pairs, key=itemgetter(0)):
        earned = [credit for _, credit in tied]
        levelled += [(confidence, sum(earned) / len(earned))] * len(earned)
    return levelled


def _bin(pairs: Sequence[tuple[float, float]], low: float, high: float) -> Bin:
    count = len(pairs)
    confidence = sum(pair[0] for pair in pairs) / count
    return Bin(low, high, count, confidence, sum(pair[1] for pair in pairs) / count)
