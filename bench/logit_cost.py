"""What does one question cost, by the length of its suffix?

Holds the prefix fixed, lengthens the option texts, reads the letters in one order, and fits
milliseconds = fixed cost + cost per token.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from bench import common
from typedecide.page import PageEngine
from typedecide.questions import Choice, Question

NAME = "logit_cost"
DEVICES = ("wasm", "webgpu")

LENGTHS, REPEATS = (0, 4, 8, 16, 24, 32, 48, 64), 7
QUICK_LENGTHS, QUICK_REPEATS = (0, 12, 24), 3
"""Words added to each of the four options, and timed runs of each length."""

_TEAMS = {
    "billing": "charges, refunds and invoices",
    "accounts": "sign-in, passwords and access",
    "product": "faults in the app's features",
    "sales": "plans, upgrades and offers",
}
_FILLER = (
    "as",
    "well",
    "as",
    "every",
    "other",
    "matter",
    "that",
    "our",
    "handbook",
    "lists",
    "under",
    "this",
    "name",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """This benchmark has no arguments of its own."""


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure, publish, draw and return the results."""
    bundle = common.find_bundle(args)
    state, _ = common.read_sample(bundle)
    lengths: Sequence[int] = LENGTHS
    repeats = REPEATS
    if args.quick:
        state, lengths, repeats = common.shorten(state), QUICK_LENGTHS, QUICK_REPEATS
    with common.open_page(args, bundle) as engine:
        result = measure(engine, state, [lengthened(words) for words in lengths], repeats)
    common.publish(args, result, summarise(result), plot)
    return result


def lengthened(words: int) -> Question:
    """A question whose four options each carry `words` more words."""
    more = " ".join(islice(cycle(_FILLER), words))
    options = {name: f"{about} {more}".rstrip() for name, about in _TEAMS.items()}
    return Choice("Which team should handle this ticket first?", options)


def measure(engine: PageEngine, state: str, questions: Sequence[Question], repeats: int) -> dict[str, Any]:
    """Time every question `repeats` times, by turns, so that a slow moment hits all lengths alike."""
    prefill = engine.prefill(state)
    # The first run of a shape compiles and allocates: it is no cost of the question.
    tokens = [engine.score(question, 1, readout="labels").tokens for question in questions]
    times: list[list[float]] = [[] for _ in questions]
    for _ in range(repeats):
        for row, question in zip(times, questions, strict=True):
            row.append(engine.score(question, 1, readout="labels").ms)
    medians = [statistics.median(row) for row in times]
    return {
        **common.describe(NAME, engine),
        "criteria": len(questions),
        "prefix_tokens": prefill.tokens,
        "prefill_ms": prefill.ms,
        "repeats": repeats,
        "points": [
            {"suffix_tokens": count, "median_ms": median, "ms": row}
            for count, median, row in zip(tokens, medians, times, strict=True)
        ],
        "fit": fit(tokens, medians),
    }


def fit(tokens: Sequence[int], ms: Sequence[float]) -> dict[str, float]:
    """Least squares of ms = fixed + per_token · tokens, and the share of variance it explains."""
    x, y = np.asarray(tokens, float), np.asarray(ms, float)
    per_token, fixed = np.polyfit(x, y, 1)
    residual = float(np.sum((y - fixed - per_token * x) ** 2))
    spread = float(np.sum((y - y.mean()) ** 2))
    # Equal times leave nothing to explain.
    r2 = 1 - residual / spread if spread else 1.0
    return {"fixed_ms": float(fixed), "ms_per_token": float(per_token), "r2": r2}


def plot(result: Mapping[str, Any], path: Path) -> None:
    """Draw every timed run, the medians and the fitted line."""
    pyplot = common.plotting(NAME)

    points, line = result["points"], result["fit"]
    tokens = [point["suffix_tokens"] for point in points]
    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for point in points:
        axes.plot([point["suffix_tokens"]] * len(point["ms"]), point["ms"], ".", color="0.7", markersize=5)
    axes.plot(tokens, [point["median_ms"] for point in points], "o", color="C0", label="median")
    ends = [0, max(tokens)]
    fitted = [line["fixed_ms"] + line["ms_per_token"] * end for end in ends]
    axes.plot(ends, fitted, color="C1", label=_formula(line))
    axes.set_xlabel("suffix tokens")
    axes.set_ylabel("ms per question")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_title(
        f"{result['model']}, {result['format']} on {result['candidate']}, prefix {result['prefix_tokens']} tokens\n"
        f"{result['processor']}, {result['threads']} threads",
        fontsize=10,
    )
    axes.legend(frameon=False)
    common.save_plot(figure, path)


def _formula(line: Mapping[str, float]) -> str:
    return f"{line['fixed_ms']:.1f} ms + {line['ms_per_token']:.2f} ms per token (R² {line['r2']:.3f})"


def summarise(result: Mapping[str, Any]) -> str:
    """The figures in a few lines."""
    points = ", ".join(f"{p['suffix_tokens']}: {p['median_ms']:.0f} ms" for p in result["points"])
    return (
        f"{result['benchmark']}: prefix of {result['prefix_tokens']} tokens, {result['format']} on"
        f" {result['candidate']}, {result['layers']} layers\n"
        f"  {_formula(result['fit'])}\n  suffix tokens: {points}"
    )
