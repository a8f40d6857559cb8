"""Decisions become rows of figures, each with an interval, and the curves of calibration and abstention.

Knows no engine, no file and no terminal. Intervals are 95 % percentile intervals of a bootstrap by text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from typedecide import metrics
from typedecide.evaluation import Decision, Evaluation, Timing
from typedecide.metrics import Weights
from typedecide.orderings import log_softmax
from typedecide.readout import softmax

RESAMPLES = 500
"""Bootstrap samples behind an interval."""

SEED = 0

ALL = "all"
"""The task of a row that counts the decisions of all tasks."""

Statistic = Callable[[Weights], float | None]

By = Callable[[Decision], Any]

GROUPS: Mapping[str, By] = {
    "family": lambda one: one.family,
    "domain": lambda one: one.domain,
    "kind": lambda one: one.kind,
    "options": lambda one: len(one.names),
}
"""Besides tasks, what rows are made for: a row for each value, where there are several."""


def rows_by_task(model: Mapping[str, Any], decisions: Sequence[Decision]) -> list[dict[str, Any]]:
    """A row for each task and split, in the order in which they come."""
    return [
        {**model, "task": task, "split": split, **row(members)}
        for (task, split), members in _grouped(decisions, lambda one: (one.task, one.split)).items()
    ]


def totals(model: Mapping[str, Any], decisions: Sequence[Decision]) -> list[dict[str, Any]]:
    """A row for each split, where there are several, and one for all decisions; their task is `ALL`."""
    splits = _grouped(decisions, lambda one: one.split)
    parts = {**(splits if len(splits) > 1 else {}), "": decisions}
    return [{**model, "task": ALL, "split": split, **row(parts[split])} for split in parts]


def rows_by(model: Mapping[str, Any], decisions: Sequence[Decision], name: str) -> list[dict[str, Any]]:
    """A row for each value of one of `GROUPS`, none where there is one value only."""
    groups = _grouped(decisions, GROUPS[name])
    if len(groups) < 2:
        return []
    return [{**model, name: value, **row(groups[value])} for value in sorted(groups)]


def row(decisions: Sequence[Decision]) -> dict[str, Any]:
    """All figures of some decisions."""
    columns = _Columns(decisions)
    statistics = columns.statistics()
    clusters = [one.text for one in decisions]
    points, intervals = estimates(statistics, clusters)
    names = decisions[0].baselines
    own = [name for name in statistics if not name.startswith(_BASELINE)]
    return {
        "n": len(decisions),
        "texts": len(set(clusters)),
        "accuracy": points["accuracy"],
        "ci": intervals["accuracy"],
        "chance": metrics.chance(columns.options),
        "majority": metrics.majority(columns.true_names),
        **{name: points[name] for name in own if name != "accuracy"},
        "margin_ci": intervals["margin_over_hidden"],
        "flip_n": sum(one.backwards is not None for one in decisions),
        "position": columns.position(),
        "intervals": {name: intervals[name] for name in own},
        "baselines": {
            name: {"accuracy": points[_BASELINE + name], "ci": intervals[_BASELINE + name]} for name in names
        },
    }


def estimates(
    statistics: Mapping[str, Statistic], texts: Sequence[int]
) -> tuple[dict[str, float | None], dict[str, tuple[float, float] | None]]:
    """Each statistic's value, and its interval by a bootstrap of the texts; `texts` has that of each decision."""
    drawn: dict[str, list[float]] = {name: [] for name in statistics}
    for weights in metrics.resamples(texts, RESAMPLES, SEED):
        for name, statistic in statistics.items():
            value = statistic(weights)
            if value is not None:
                drawn[name].append(value)
    points = {name: statistic(None) for name, statistic in statistics.items()}
    intervals = {
        name: metrics.interval(drawn[name]) if points[name] is not None else None for name in statistics
    }
    return points, intervals


def curves(decisions: Sequence[Decision]) -> dict[str, Any]:
    """Reliability by both binnings, and risk by coverage (at most 200 points of it)."""
    columns = _Columns(decisions)
    points = metrics.risk_coverage(columns.confidences, columns.credits)
    step = max(1, len(points) // 200)
    kept = points[step - 1 :: step]
    bins = {
        f"equal_{binning}": [
            vars(one) for one in metrics.reliability(columns.confidences, columns.credits, binning)
        ]
        for binning in ("mass", "width")
    }
    return {"reliability": bins, "risk_coverage": [{"coverage": c, "risk": r} for c, r in kept]}


def agreement(evaluation: Evaluation) -> dict[str, Any]:
    """How far complete prompts and the prefix-sharing engine lie apart."""
    pairs = [
        (softmax(one.logits), softmax(one.whole)) for one in evaluation.decisions if one.whole is not None
    ]
    largest = max(
        (abs(p - q) for left, right in pairs for p, q in zip(left, right, strict=True)), default=None
    )
    return {
        "decisions": len(pairs),
        "max_difference": largest,
        "changed_answers": sum(_top(left) != _top(right) for left, right in pairs),
        "tolerance": evaluation.tolerance,
        "agree": None if largest is None else largest <= evaluation.tolerance,
    }


def latency(timings: Sequence[Timing]) -> dict[str, Any]:
    """Medians and 90th percentiles of what texts and decisions took, in milliseconds, and tokens run for a decision."""
    each = {
        "prefill_ms": [one.prefill_ms for one in timings],
        "decision_ms": [one.score_ms / one.decisions for one in timings],
        "tokens": [one.tokens / one.decisions for one in timings],
    }
    return {
        name: {"median": metrics.quantile(values, 0.5), "p90": metrics.quantile(values, 0.9)}
        for name, values in each.items()
        if values
    }


_BASELINE = "baseline "


class _Columns:
    """What statistics are made of, a value for each decision."""

    def __init__(self, decisions: Sequence[Decision]) -> None:
        self.decisions = decisions
        probabilities = [softmax(one.logits) for one in decisions]
        gold = [one.gold for one in decisions]
        pairs = list(zip(probabilities, gold, strict=True))
        self.options = [len(one.names) for one in decisions]
        self.true_names = [one.names[one.gold] for one in decisions]
        self.places = [_top(p) for p in probabilities]
        self.chosen = [one.names[place] for one, place in zip(decisions, self.places, strict=True)]
        self.confidences = [max(p) for p in probabilities]
        self.credits = [metrics.credit(p, g) for p, g in pairs]
        self.hidden = [metrics.credit(one.hidden, one.gold) for one in decisions]
        self.nll = [-log_softmax(one.logits)[one.gold] for one in decisions]
        self.brier = [metrics.brier(p, g) for p, g in pairs]
        self.probabilities = probabilities

    def statistics(self) -> dict[str, Statistic]:
        """Every figure that has an interval, as a function of how often each decision counts."""
        chances = [1 / n for n in self.options]
        turned = [i for i, one in enumerate(self.decisions) if one.backwards is not None]
        flips = [float(_top(self.decisions[i].backwards or ()) != self.places[i]) for i in turned]
        scales = [i for i, one in enumerate(self.decisions) if one.kind == "score"]
        levels = [sum(level * p for level, p in enumerate(self.probabilities[i])) for i in scales]
        true_levels = [self.decisions[i].gold for i in scales]
        found: dict[str, Statistic] = {
            "accuracy": _mean(self.credits),
            "macro_f1": lambda w: metrics.macro_f1(self.true_names, self.chosen, w),
            "hidden_evidence_accuracy": _mean(self.hidden),
            "margin_over_hidden": _mean(_minus(self.credits, self.hidden)),
            "margin_over_chance": _mean(_minus(self.credits, chances)),
            "flip_rate": lambda w: metrics.mean(flips, _of(w, turned)),
            "between_orders": _mean([one.between_orders for one in self.decisions]),
            "nll": _mean(self.nll),
            "brier": _mean(self.brier),
            "ece": lambda w: self._calibration(w, "mass"),
            "ece_equal_width": lambda w: self._calibration(w, "width"),
            "aurc": lambda w: metrics.aurc(self.confidences, self.credits, w),
            "kendall_tau": lambda w: metrics.kendall_tau(levels, true_levels, _of(w, scales)),
        }
        for name in self.decisions[0].baselines:
            earned = [metrics.credit(one.baselines[name], one.gold) for one in self.decisions]
            found[_BASELINE + name] = _mean(earned)
        return found

    def position(self) -> dict[str, Any]:
        """How often the answer is the option listed first or last, and how often the true one is."""
        last = [n - 1 for n in self.options]
        gold = [one.gold for one in self.decisions]
        return {
            "first": metrics.mean([float(place == 0) for place in self.places]),
            "last": metrics.mean([float(a == b) for a, b in zip(self.places, last, strict=True)]),
            "true_first": metrics.mean([float(place == 0) for place in gold]),
            "true_last": metrics.mean([float(a == b) for a, b in zip(gold, last, strict=True)]),
        }

    def _calibration(self, weights: Weights, binning: metrics.Binning) -> float | None:
        bins = metrics.reliability(self.confidences, self.credits, binning, weights=weights)
        return metrics.calibration_error(bins)


def _grouped(decisions: Sequence[Decision], by: By) -> dict[Any, list[Decision]]:
    groups: dict[Any, list[Decision]] = {}
    for one in decisions:
        groups.setdefault(by(one), []).append(one)
    return groups


def _mean(values: Sequence[float]) -> Statistic:
    return lambda weights: metrics.mean(values, weights)


def _minus(left: Sequence[float], right: Sequence[float]) -> list[float]:
    return [a - b for a, b in zip(left, right, strict=True)]


def _of(weights: Weights, places: Sequence[int]) -> Weights:
    return None if weights is None else [weights[i] for i in places]


def _top(values: Sequence[float]) -> int:
    return values.index(max(values))
