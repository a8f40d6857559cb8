"""What does shallow prefill cost in quality? Answers at each depth and anchor against those of the whole model.

Every model answers the same labelled decisions, and again with the evidence hidden, natively. The evidence effect of a
decision is its centred option logits with the evidence minus those without; a depth's effect error is the squared
distance of its effects from the whole model's, over the square of these. Intervals are 95 % intervals of a bootstrap by
text.
`python -m bench.gate` decides from the results.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import common, depths, gate, suites
from typedecide import metrics, tables
from typedecide.evaluation import Decision, Evaluation, Evaluator, Log, Settings
from typedecide.inputs import whole
from typedecide.labelled import Labelled
from typedecide.metrics import Weights
from typedecide.native import NativeEngine
from typedecide.orderings import log_softmax
from typedecide.readout import softmax
from typedecide.shallow import ANCHORS, DEFAULT_ANCHOR
from typedecide.tables import Statistic
from typedecide.terminal import track

NAME = "shallow_quality"
DEVICES = ("native",)

SUITES = {"heldout": suites.heldout, "valid": suites.valid}
LIMIT, QUICK_LIMIT = 20, 2
"""Texts of each task of a suite."""

ERROR_TICKS = (0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)

OWN = ("accuracy", "hidden_evidence_accuracy", "margin_over_hidden", "nll", "brier", "ece")
"""Figures that a depth has by itself; `typedecide.tables` makes them."""


@dataclass(frozen=True)
class Depth:
    """Layers that texts go through, and what the others see of the prompt; all layers have no anchor."""

    k: int
    anchor: str | None

    @property
    def words(self) -> str:
        """Its name."""
        return f"{self.k} layers" + ("" if self.anchor is None else f", {self.anchor}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this benchmark."""
    parser.set_defaults(format="fp32")
    depths.add_arguments(parser)
    parser.add_argument(
        "--reference",
        metavar="NAME",
        help="the model that, with all its layers, is compared with, where that is not --model itself: for a model that"
        " was tuned to be shallow",
    )
    parser.add_argument(
        "--anchors", nargs="+", choices=ANCHORS, default=list(ANCHORS), help=f"default: {' '.join(ANCHORS)}"
    )
    parser.add_argument("--suite", choices=SUITES, default="heldout", help="labelled data (default: heldout)")
    parser.add_argument(
        "--limit",
        type=whole(1),
        metavar="N",
        help=f"texts of each task of the suite (default: {LIMIT}; with --quick: {QUICK_LIMIT})",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the texts drawn (default: 0)")
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="keep what is finished in a file, and go on from there"
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure, publish, draw and return the results."""
    limit = args.limit or (QUICK_LIMIT if args.quick else LIMIT)
    records = SUITES[args.suite](limit, args.seed)
    bundle = depths.whole(args, args.model)
    layers = depths.layers_of(bundle)
    ks = depths.chosen(args, layers)
    wanted = [Depth(k, anchor) for k in ks if k < layers for anchor in args.anchors]
    with Log(args.resume) as log:
        with open_engine(args, bundle) as engine:
            about = {**common.describe(NAME, engine, args.seed), "origin": engine.info["model"]["origin"]}
            whole_model = answer(engine, records, log, f"{layers} layers")
        found = {depth: answer_at(args, depth, records, log) for depth in wanted}
        found[Depth(layers, None)] = whole_model
        if args.reference is not None:
            with open_engine(args, depths.whole(args, args.reference)) as engine:
                whole_model = answer(engine, records, log, args.reference)
    result = {
        **about,
        "reference": whole_model.info["model"]["name"],
        "readout": whole_model.readout,
        "suite": args.suite,
        "limit": limit,
        "failures": len(whole_model.failures),
        "rows": [row(depth, layers, one.decisions, whole_model.decisions) for depth, one in found.items()],
    }
    common.publish(args, result, summarise(result), plot)
    return result


def open_engine(args: argparse.Namespace, bundle: Path) -> NativeEngine:
    """The native engine, not calibrated: temperatures of the whole model say nothing of another one's logits."""
    return NativeEngine(bundle, args.format, threads=args.threads, calibration=False)


def answer_at(args: argparse.Namespace, depth: Depth, records: Sequence[Labelled], log: Log) -> Evaluation:
    """The answers of one depth."""
    assert depth.anchor is not None
    built = common.find_bundle(args, args.model, depth.k, DEFAULT_ANCHOR)
    bundle = built if depth.anchor == DEFAULT_ANCHOR else depths.with_anchor(built, depth.anchor)
    with open_engine(args, bundle) as engine:
        return answer(engine, records, log, depth.words)


def answer(engine: NativeEngine, records: Sequence[Labelled], log: Log, what: str) -> Evaluation:
    """An engine's answers to all records, with the evidence and without."""
    evaluator = Evaluator(engine, records, Settings(), log, {}, None)
    for _ in track(evaluator.run(), evaluator.pieces, what):
        pass
    return evaluator.result


# -- figures --------------------------------------------------------------------------------------------------------


def row(
    depth: Depth, layers: int, found: Sequence[Decision], whole_model: Sequence[Decision]
) -> dict[str, Any]:
    """All figures of one depth, each with its interval, and the whole model's own beside them."""
    own, beside = tables.row(found), tables.row(whole_model)
    points, intervals = tables.estimates(compared(found, whole_model), [one.text for one in found])
    return {
        "k": depth.k,
        "layers": layers,
        "anchor": depth.anchor,
        "n": own["n"],
        "texts": own["texts"],
        "chance": own["chance"],
        **points,
        **{name: own[name] for name in OWN},
        "intervals": {**intervals, **{name: own["intervals"][name] for name in OWN}},
        "whole": {name: beside[name] for name in OWN},
    }


def compared(found: Sequence[Decision], whole_model: Sequence[Decision]) -> dict[str, Statistic]:
    """What compares a depth's decisions with the whole model's, as functions of how often each decision counts."""
    pairs = list(zip(found, whole_model, strict=True))
    for one, other in pairs:
        if (one.text, one.task, one.names) != (other.text, other.task, other.names):
            raise ValueError(f"decisions about texts {one.text} and {other.text} are no pair")
    effects = [(effect(one), effect(other)) for one, other in pairs]
    errors = [sum((a - b) ** 2 for a, b in zip(*both, strict=True)) for both in effects]
    sizes = [sum(value**2 for value in other) for _, other in effects]
    own, others = [credit(one) for one in found], [credit(one) for one in whole_model]
    more_nll = [nll(one) - nll(other) for one, other in pairs]
    same = [float(chosen(one) == chosen(other)) for one, other in pairs]

    def effect_error(weights: Weights) -> float | None:
        error, size = metrics.mean(errors, weights), metrics.mean(sizes, weights)
        return error / size if error is not None and size else None

    def average(values: Sequence[float]) -> Statistic:
        return lambda weights: metrics.mean(values, weights)

    return {
        "effect_error": effect_error,
        "kl": average([divergence(other.logits, one.logits) for one, other in pairs]),
        "agreement": average(same),
        "accuracy_loss": average([b - a for a, b in zip(own, others, strict=True)]),
        "nll_loss": average(more_nll),
    }


def effect(decision: Decision) -> list[float]:
    """What the evidence adds to each option: centred logits with it, minus those without."""
    pairs = zip(centred(decision.logits), centred(decision.hidden), strict=True)
    return [seen - hidden for seen, hidden in pairs]


def centred(logits: Sequence[float]) -> list[float]:
    """Logits whose mean is 0.

    >>> centred([1.0, 3.0])
    [-1.0, 1.0]
    """
    mean = sum(logits) / len(logits)
    return [logit - mean for logit in logits]


def divergence(whole_model: Sequence[float], shallow: Sequence[float]) -> float:
    """The Kullback-Leibler divergence of the options' distribution from the whole model's, by the logits, in nats.

    >>> divergence([0.0, 0.0], [0.0, 0.0])
    0.0
    """
    true, found = log_softmax(whole_model), log_softmax(shallow)
    return sum(math.exp(p) * (p - q) for p, q in zip(true, found, strict=True))


def credit(decision: Decision) -> float:
    """What the answer earns."""
    return metrics.credit(softmax(decision.logits), decision.gold)


def nll(decision: Decision) -> float:
    """Minus the log-probability of the true option."""
    return -log_softmax(decision.logits)[decision.gold]


def chosen(decision: Decision) -> int:
    """The place of the most probable option, the first of several."""
    return decision.logits.index(max(decision.logits))


# -- what is shown --------------------------------------------------------------------------------------------------


def plot(result: Mapping[str, Any], path: Path) -> None:
    """Draw what the gate asks for, with its limits dotted, and accuracy with and without evidence, by depth."""
    pyplot = common.plotting(NAME)

    whole_row = next(one for one in result["rows"] if one["anchor"] is None)
    anchors = list(dict.fromkeys(one["anchor"] for one in result["rows"] if one["anchor"] is not None))
    panels = ("effect_error", "agreement", "accuracy", "hidden_evidence_accuracy")
    figure, axes = pyplot.subplots(1, len(panels), figsize=(13, 4), layout="constrained")
    for panel, name in zip(axes, panels, strict=True):
        for colour, anchor in enumerate(anchors):
            rows = [one for one in result["rows"] if one["anchor"] == anchor] + [whole_row]
            drawn = [(one["k"], one[name], one["intervals"][name]) for one in rows if one[name] is not None]
            at, values = [k for k, _, _ in drawn], [value for _, value, _ in drawn]
            spread = [
                [max(0.0, value - low) for _, value, (low, _) in drawn],
                [max(0.0, high - value) for _, value, (_, high) in drawn],
            ]
            panel.errorbar(at, values, spread, fmt="o-", color=f"C{colour}", capsize=3, label=anchor)
        panel.set(xlabel=f"layers, of {result['layers']}", title=name.replace("_", " "))
    axes[0].set_yscale("symlog", linthresh=0.01)
    axes[0].set_yticks(ERROR_TICKS, [f"{tick:.0%}" for tick in ERROR_TICKS])
    for panel, limit in ((axes[0], gate.MOST_EFFECT_ERROR), (axes[1], gate.LEAST_AGREEMENT)):
        panel.axhline(limit, linestyle=":", color="grey")
    if anchors:
        axes[0].legend(frameon=False, title="anchor")
    figure.suptitle(
        f"{result['model']} against {result['reference']} with all layers: {whole_row['n']} decisions of"
        f" {result['suite']}, {result['readout']}, {result['format']}",
        fontsize=10,
    )
    common.save_plot(figure, path)


def summarise(result: Mapping[str, Any]) -> str:
    """The figures as a table."""
    first = result["rows"][0]
    lines = [
        f"{result['benchmark']}: {result['model']} against {result['reference']} with all {result['layers']} layers;"
        f" {first['n']} decisions about {first['texts']} texts of {result['suite']}, {result['readout']},"
        f" {result['format']}; 95 % intervals",
        f"  {'k':>3} {'anchor':<12}{'effect error':>22}{'KL':>9}{'agreement':>22}{'accuracy loss':>24}{'accuracy':>10}"
        f"{'hidden':>8}{'NLL':>7}{'ECE':>7}",
    ]
    for one in result["rows"]:
        lines.append(
            f"  {one['k']:>3} {one['anchor'] or '-':<12}{_percent(one, 'effect_error'):>22}{one['kl']:>9.4f}"
            f"{_percent(one, 'agreement'):>22}{_percent(one, 'accuracy_loss'):>24}{one['accuracy']:>10.1%}"
            f"{one['hidden_evidence_accuracy']:>8.1%}{one['nll']:>7.3f}{one['ece']:>7.3f}"
        )
    return "\n".join(lines)


def _percent(one: Mapping[str, Any], name: str) -> str:
    if one[name] is None:
        return "-"
    low, high = one["intervals"][name]
    return f"{100 * one[name]:.1f} % ({100 * low:.1f}, {100 * high:.1f})"
