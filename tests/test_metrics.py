"""The figures: against definitions written out, against each other where they must agree.

The shared vectors hold what these functions compute; test_vectors.py keeps them up to date.
"""

from __future__ import annotations

import doctest
import itertools
import math
import random
from collections import Counter
from typing import Any

import pytest

from typedecide import metrics

SEEDS = range(20)


def close(left: float | None, right: float | None) -> bool:
    if left is None or right is None:
        return left is right
    return math.isclose(left, right, abs_tol=1e-12)


def draw(seed: int) -> tuple[list[float], list[float], list[int]]:
    """Confidences (some of which tie), credits, and how often each item counts."""
    rng = random.Random(seed)
    n = rng.randrange(1, 80)
    confidences = [rng.choice((0.5, 0.9, rng.random())) for _ in range(n)]
    return confidences, [rng.choice((0.0, 0.5, 1.0)) for _ in range(n)], [rng.randrange(3) for _ in range(n)]


def repeated(values: list[Any], weights: list[int]) -> list[Any]:
    return [value for value, weight in zip(values, weights, strict=True) for _ in range(weight)]


def test_examples() -> None:
    result = doctest.testmod(metrics)
    assert result.attempted > 10
    assert result.failed == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_weight_counts_like_copies(seed: int) -> None:
    confidences, credits, weights = draw(seed)
    rng = random.Random(seed)
    levels = [rng.randrange(4) for _ in credits]
    names = [rng.choice("abc") for _ in credits]
    chosen = [rng.choice("abc") for _ in credits]
    pairs: list[tuple[Any, list[list[Any]]]] = [
        (metrics.mean, [credits]),
        (metrics.macro_f1, [names, chosen]),
        (metrics.aurc, [confidences, credits]),
        (metrics.kendall_tau, [confidences, levels]),
    ]
    for function, columns in pairs:
        copies = [repeated(column, weights) for column in columns]
        assert close(function(*columns, weights), function(*copies)), function.__name__
    for binning in ("mass", "width"):
        found = metrics.reliability(confidences, credits, binning, weights=weights)  # type: ignore[arg-type]
        copies = [repeated(confidences, weights), repeated(credits, weights)]
        assert found == metrics.reliability(copies[0], copies[1], binning)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", SEEDS)
def test_kendall_tau_is_what_all_pairs_say(seed: int) -> None:
    rng = random.Random(seed)
    n = rng.randrange(2, 40)
    left = [round(rng.random(), 1) for _ in range(n)]
    right = [rng.randrange(4) for _ in range(n)]
    balance = left_pairs = right_pairs = 0
    for i, j in itertools.combinations(range(n), 2):
        a = (left[i] > left[j]) - (left[i] < left[j])
        b = (right[i] > right[j]) - (right[i] < right[j])
        balance, left_pairs, right_pairs = balance + a * b, left_pairs + a * a, right_pairs + b * b
    scale = math.sqrt(left_pairs * right_pairs)
    assert close(metrics.kendall_tau(left, right), balance / scale if scale else None)


@pytest.mark.parametrize("seed", SEEDS)
def test_macro_f1_is_the_mean_of_precision_and_recall(seed: int) -> None:
    rng = random.Random(seed)
    gold = [rng.choice("abc") for _ in range(30)]
    chosen = [rng.choice("abcd") for _ in range(30)]
    scores = []
    for name in sorted({*gold, *chosen}):
        hits = sum(g == c == name for g, c in zip(gold, chosen, strict=True))
        precision = hits / chosen.count(name) if name in chosen else 0.0
        recall = hits / gold.count(name) if name in gold else 0.0
        scores.append(2 * precision * recall / (precision + recall) if hits else 0.0)
    assert close(metrics.macro_f1(gold, chosen), sum(scores) / len(scores))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("binning", ("mass", "width"))
def test_bins_hold_every_item_and_both_sums(seed: int, binning: metrics.Binning) -> None:
    confidences, credits, _ = draw(seed)
    bins = metrics.reliability(confidences, credits, binning)
    n = len(credits)
    assert sum(one.count for one in bins) == n
    assert close(sum(one.count * one.confidence for one in bins), sum(confidences))
    assert close(sum(one.count * one.accuracy for one in bins), sum(credits))
    assert all(one.low <= one.confidence <= one.high for one in bins)
    if binning == "mass":
        assert {one.count for one in bins} <= {n // metrics.BINS, -(-n // metrics.BINS)}
    gap = abs(sum(confidences) - sum(credits)) / n
    error = metrics.calibration_error(bins)
    assert error is not None
    assert gap - 1e-12 <= error <= 1


def test_the_order_of_the_items_changes_nothing() -> None:
    confidences, credits, _ = draw(7)
    order = random.Random(1).sample(range(len(credits)), len(credits))
    other = [confidences[i] for i in order], [credits[i] for i in order]
    assert metrics.reliability(confidences, credits) == metrics.reliability(*other)
    assert metrics.risk_coverage(confidences, credits) == metrics.risk_coverage(*other)


@pytest.mark.parametrize("seed", SEEDS)
def test_risk_ends_at_the_error_and_its_mean_is_the_area(seed: int) -> None:
    confidences, credits, _ = draw(seed)
    points = metrics.risk_coverage(confidences, credits)
    accuracy = metrics.mean(credits)
    assert accuracy is not None
    assert points[-1][0] == 1
    assert close(points[-1][1], 1 - accuracy)
    assert close(metrics.aurc(confidences, credits), sum(risk for _, risk in points) / len(points))


def test_perfect_calibration_has_no_error() -> None:
    confidences = [0.75] * 400
    credits = [1.0, 1.0, 1.0, 0.0] * 100
    for binning in ("mass", "width"):
        bins = metrics.reliability(confidences, credits, binning)  # type: ignore[arg-type]
        assert close(metrics.calibration_error(bins), 0.0)


def test_brier_and_credit_are_proper_for_two_options() -> None:
    assert metrics.brier([0.8, 0.2], 0) < metrics.brier([0.6, 0.4], 0)
    assert [metrics.credit([1 / 3] * 3, gold) for gold in range(3)] == [1 / 3] * 3


def test_resamples_draw_whole_clusters() -> None:
    clusters = [0, 0, 1, 2, 2, 2]
    drawn = list(metrics.resamples(clusters, 50, seed=5))
    assert drawn == list(metrics.resamples(clusters, 50, seed=5))
    assert drawn != list(metrics.resamples(clusters, 50, seed=6))
    for weights in drawn:
        by_cluster = {cluster: weights[clusters.index(cluster)] for cluster in set(clusters)}
        assert sum(by_cluster.values()) == 3
        assert weights == [by_cluster[cluster] for cluster in clusters]
    assert len({tuple(weights) for weights in drawn}) > 5


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = random.Random(2)
    hits = Counter[bool]()
    for trial in range(200):
        credits = [float(rng.random() < 0.7) for _ in range(60)]
        means = [metrics.mean(credits, w) or 0.0 for w in metrics.resamples(range(60), 200, seed=trial)]
        low, high = metrics.interval(means) or (1.0, 0.0)
        hits[low <= 0.7 <= high] += 1
    assert 0.88 <= hits[True] / 200 <= 0.99


def test_clusters_widen_the_interval() -> None:
    rng = random.Random(3)
    credits = [float(rng.random() < 0.5) for _ in range(40)]
    copies = [credit for credit in credits for _ in range(5)]
    alone = [metrics.mean(copies, w) or 0.0 for w in metrics.resamples(range(200), 300, seed=1)]
    clusters = [i // 5 for i in range(200)]
    together = [metrics.mean(copies, w) or 0.0 for w in metrics.resamples(clusters, 300, seed=1)]
    (low, high), (low_too, high_too) = metrics.interval(alone) or (0, 0), metrics.interval(together) or (0, 0)
    assert high_too - low_too > 1.5 * (high - low)


def test_nothing_gives_none() -> None:
    assert metrics.mean([]) is metrics.chance([]) is metrics.majority([]) is metrics.macro_f1([], []) is None
    assert metrics.aurc([], []) is metrics.kendall_tau([], []) is metrics.interval([]) is None
    assert metrics.calibration_error(metrics.reliability([], [])) is None
