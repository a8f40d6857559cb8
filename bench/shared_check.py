"""Is a question answered against the kept prefix as it is from the whole prompt, and how much faster?

Scores the sample's questions both ways, by letters in one order, and reports the largest difference of an option's
probability.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping
from itertools import islice
from typing import Any

from bench import common
from typedecide.page import PageEngine
from typedecide.questions import Question
from typedecide.results import Scored

NAME = "shared_check"
DEVICES = ("wasm", "webgpu")

REPEATS = 3
"""Runs of each question and way in the long form; a drift is the largest of them, a time the median."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this benchmark."""
    parser.add_argument("--criteria", type=int, metavar="N", help="only the sample's first N (default: all)")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure, publish and return the results."""
    bundle = common.find_bundle(args)
    state, questions = common.read_sample(bundle)
    if args.criteria is not None and not 1 <= args.criteria <= len(questions):
        raise common.ArgumentError(
            f"--criteria {args.criteria}: the sample has 1 to {len(questions)}.", criteria=args.criteria
        )
    chosen = dict(islice(questions.items(), args.criteria))
    state, repeats = (common.shorten(state), 1) if args.quick else (state, REPEATS)
    with common.open_page(args, bundle) as engine:
        result = measure(engine, state, chosen, repeats)
    common.publish(args, result, summarise(result))
    return result


def measure(
    engine: PageEngine, state: str, questions: Mapping[str, Question], repeats: int
) -> dict[str, Any]:
    """Score every question by letters, against the kept prefix and from the whole prompt, by turns."""
    prefill = engine.prefill(state)
    rows: dict[str, list[tuple[Scored, Scored]]] = {key: [] for key in questions}
    for _ in range(repeats):
        for key, question in questions.items():
            cached = engine.score(question, 1, readout="labels")
            rows[key].append((cached, engine.score_full(state, question)))
    drift = {key: max(_drift(*pair) for pair in pairs) for key, pairs in rows.items()}
    shared, full = (sum(_median_ms(pairs, way) for pairs in rows.values()) for way in (0, 1))
    return {
        **common.describe(NAME, engine),
        "criteria": len(questions),
        "prefix_tokens": prefill.tokens,
        "suffix_tokens": {key: pairs[0][0].tokens for key, pairs in rows.items()},
        "max_drift": max(drift.values()),
        "drift": drift,
        "repeats": repeats,
        "ms": {
            "prefill": prefill.ms,
            "shared": shared,
            "full": full,
            "full_over_prefill_and_shared": full / (prefill.ms + shared),
        },
    }


def _drift(shared: Scored, full: Scored) -> float:
    pairs = zip(shared.answer.probabilities, full.answer.probabilities, strict=True)
    return max(abs(one - other) for one, other in pairs)


def _median_ms(pairs: list[tuple[Scored, Scored]], way: int) -> float:
    return statistics.median(pair[way].ms for pair in pairs)


def summarise(result: Mapping[str, Any]) -> str:
    """The figures in a few lines."""
    ms = result["ms"]
    return (
        f"{result['benchmark']}: {result['criteria']} criteria, prefix of {result['prefix_tokens']} tokens,"
        f" {result['format']} on {result['candidate']}, {result['layers']} layers\n"
        f"  largest probability drift {result['max_drift']:.2e}\n"
        f"  prefill {ms['prefill']:.0f} ms + shared {ms['shared']:.0f} ms against {ms['full']:.0f} ms"
        f" for full prompts: {ms['full_over_prefill_and_shared']:.1f} times"
    )
