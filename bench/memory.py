"""Does memory stay flat over many decisions in one page?

Asks questions about many texts in one page, with memory for some of the texts only, so that most are read again; and
samples the JavaScript heaps of page and worker, the WASM heap and the buffers on the GPU along the way.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import common
from bench.packing import MORE_QUESTIONS
from bench.probe import Memory, ProbedPage
from typedecide.questions import Question, to_wire

NAME = "memory"
DEVICES = ("wasm", "webgpu")

SEED = 3
"""Of the order in which texts and questions come."""

WARM_UP = 0.25
"""Share of the decisions after which memory must be flat: by then the memory for texts is full."""

ALLOWED_BYTES, ALLOWED_SHARE = 2_000_000, 0.02
"""How much a figure may grow after the warm-up and count as flat: whichever of the two is more."""

GROWING = ("page_heap", "worker_heap", "other_buffers", "gpu_bytes")
EQUAL = ("wasm_heap", "other_gpu_buffers")
"""Figures that may grow by that little, and those that must not change."""

COUNTS = ("gpu_buffers", "other_gpu_buffers")
"""Figures that are numbers of things; all others are bytes."""

WORDS = {
    "page_heap": "page's JavaScript heap",
    "worker_heap": "worker's JavaScript heap",
    "other_buffers": "worker's typed arrays, without kept states",
    "wasm_heap": "WASM heap",
    "gpu_buffers": "GPU buffers",
    "other_gpu_buffers": "GPU buffers, without kept states",
    "gpu_bytes": "bytes in GPU buffers",
    "kept_states": "kept states",
}

# Prefilling a text and asking about it in one call, as an application does. Says how many texts were still there.
_DECIDE = """async (engine, calls) => {
  let kept = 0;
  for (const call of calls) kept += (await engine.decide(call)).prefill.kept;
  return { kept, states: await engine.states() };
}"""


@dataclass(frozen=True)
class Plan:
    """How much is asked: each of `groups` groups of `per_group` questions about each of `texts` texts.

    kept: texts that there is memory for. sample: calls between two samples of memory.
    """

    texts: int
    groups: int
    per_group: int
    kept: int
    sample: int


LONG = Plan(texts=50, groups=4, per_group=5, kept=20, sample=10)
QUICK = Plan(texts=12, groups=2, per_group=2, kept=3, sample=2)

_FIRST = (
    "Order {number} came {days} days late and the {thing} is broken.",
    "I was charged twice for order {number}, a {thing}, {days} days ago.",
    "The {thing} of order {number} is the wrong colour, and I have been waiting for {days} days.",
    "Where is order {number}? The {thing} should have been here {days} days ago.",
    "Thank you for the {thing}! Order {number} was here within {days} days.",
)
_SECOND = (
    "I want my money back.",
    "Please call me in the afternoon; I cannot sign in to your shop any more.",
    "",
    "Nobody has answered my letters, and I will look for another shop if nothing happens until Friday.",
)
_THINGS = ("lamp", "chair", "mirror", "garden table", "bookshelf", "vase", "radio")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """This benchmark has no arguments of its own."""


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure, publish, draw and return the results."""
    bundle = common.find_bundle(args)
    _, sample = common.read_sample(bundle)
    plan = QUICK if args.quick else LONG
    with common.open_page(args, bundle) as page:
        result = measure(page, [*sample.values(), *MORE_QUESTIONS], plan)
    common.publish(args, result, summarise(result), plot)
    return result


def write_texts(count: int) -> list[str]:
    """Different texts of different lengths, the longest first."""
    texts = [
        f"{_FIRST[i % len(_FIRST)]} {_SECOND[i % len(_SECOND)]}".strip().format(
            number=i * 131 + 1017, days=i % 9 + 2, thing=_THINGS[i % len(_THINGS)]
        )
        for i in range(count)
    ]
    return sorted(texts, key=len, reverse=True)


def make_calls(questions: Sequence[Question], plan: Plan) -> list[dict[str, Any]]:
    """Every group of questions about every text, once, in a mixed order.

    The longest text comes first, with each group: the runtime's heap never gets smaller, so its largest need must
    come before the warm-up ends.
    """
    wanted = questions[: plan.groups * plan.per_group]
    groups = [
        {f"q{start + i}": to_wire(one) for i, one in enumerate(wanted[start : start + plan.per_group])}
        for start in range(0, len(wanted), plan.per_group)
    ]
    longest, *others = write_texts(plan.texts)
    first = [{"state": longest, "questions": group} for group in groups]
    rest = [{"state": text, "questions": group} for text in others for group in groups]
    random.Random(SEED).shuffle(rest)
    return first + rest


def measure(page: ProbedPage, questions: Sequence[Question], plan: Plan, added: str = "") -> dict[str, Any]:
    """Make all calls, and sample memory between them. `added` goes into the worker's script: a planted leak."""
    calls = make_calls(questions, plan)
    tokens = page.prefill(calls[0]["state"]).tokens
    state_bytes = page.evaluate("(engine) => engine.states()")[-1]["bytes"]
    page.restart(state_bytes * plan.kept, added)
    memory = Memory(page)
    layers = page.bundle.model["shape"]["layers"]
    began, kept = time.monotonic(), 0
    rows = []
    for start in range(0, len(calls), plan.sample):
        chunk = calls[start : start + plan.sample]
        done = page.evaluate(_DECIDE, chunk)
        kept += done["kept"]
        decisions = (start + len(chunk)) * plan.per_group
        held = asdict(memory.read())
        states = sum(state["bytes"] for state in done["states"])
        # On a GPU the states are in its buffers, one for the keys and one for the values of each layer; else in arrays.
        in_arrays = states if page.info["device"] == "wasm" else 0
        buffers = 0 if page.info["device"] == "wasm" else 2 * layers * len(done["states"])
        rows.append(
            {
                "decisions": decisions,
                "seconds": time.monotonic() - began,
                **held,
                "kept_states": states,
                "other_buffers": held["worker_buffers"] - in_arrays,
                "other_gpu_buffers": held["gpu_buffers"] - buffers,
            }
        )
        print(f"{decisions} decisions: {_row_text(rows[-1])}", file=sys.stderr, flush=True)
    growth = grown(rows)
    return {
        **common.describe(NAME, page, SEED),
        "readout": page.bundle.manifest["readout"],
        "decisions": rows[-1]["decisions"],
        "texts": plan.texts,
        "longest_text_tokens": tokens,
        "calls": len(calls),
        "prefills": len(calls) - kept,
        "texts_kept": plan.kept,
        "state_limit_bytes": state_bytes * plan.kept,
        "rows": rows,
        "warm_up_decisions": after_warm_up(rows)[0]["decisions"],
        "growth": growth,
        "flat": all(one["flat"] for one in growth.values()),
    }


def after_warm_up(rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The rows that memory is judged by: from the first sample at the end of the warm-up on."""
    return [row for row in rows if row["decisions"] >= WARM_UP * rows[-1]["decisions"]]


def grown(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """For each figure: what it was after the warm-up, how it grew until the end, and whether that counts as flat.

    `per_decision` is the slope of a straight line through all samples after the warm-up.
    """
    judged = after_warm_up(rows)
    found = {}
    for name in (*GROWING, *EQUAL):
        values = [row[name] for row in judged]
        change = values[-1] - values[0]
        allowed = max(ALLOWED_BYTES, ALLOWED_SHARE * values[0])
        found[name] = {
            "before": values[0],
            "change": change,
            "per_decision": statistics.linear_regression([row["decisions"] for row in judged], values).slope,
            "flat": change <= allowed if name in GROWING else min(values) == max(values),
        }
    return found


def plot(result: Mapping[str, Any], path: Path) -> None:
    """Draw each figure over the decisions."""
    pyplot = common.plotting(NAME)

    rows = result["rows"]
    names = [name for name in WORDS if any(row[name] for row in rows)]
    figure, panels = pyplot.subplots(
        len(names), 1, figsize=(7, 1.3 * len(names)), sharex=True, squeeze=False, layout="constrained"
    )
    for axes, name in zip(panels[:, 0], names, strict=True):
        scale = 1 if name in COUNTS else 1e6
        axes.plot([row["decisions"] for row in rows], [row[name] / scale for row in rows], ".-")
        axes.axvspan(0, result["warm_up_decisions"], color="0.93")
        axes.set_title(WORDS[name] + ("" if scale == 1 else ", MB"), fontsize=9, loc="left")
        axes.set_ylim(0, 1.2 * max(row[name] for row in rows) / scale)
        axes.set_xlim(left=0)
    panels[-1][0].set_xlabel("decisions (grey: warm-up)")
    figure.suptitle(
        f"{result['model']}, {result['format']} on {result['candidate']}: {result['texts']} texts, memory for"
        f" {result['texts_kept']}",
        fontsize=10,
    )
    common.save_plot(figure, path)


def summarise(result: Mapping[str, Any]) -> str:
    """The figures in a few lines."""
    last = result["rows"][-1]
    lines = [
        f"{result['benchmark']}: {result['decisions']} decisions on {result['texts']} texts in"
        f" {last['seconds']:.0f} s, {result['format']} on {result['candidate']}, {result['layers']} layers,"
        f" {result['readout']} readout",
        f"  {result['prefills']} prefills in {result['calls']} calls, memory for {result['texts_kept']} texts",
    ]
    for name, one in result["growth"].items():
        if not one["before"]:
            continue
        amount = (
            f"{one['before']}, then {one['change']:+d}"
            if name in COUNTS
            else f"{one['before'] / 1e6:.3f} MB, then {one['change'] / 1e6:+.3f} MB"
            f" ({one['per_decision']:+.0f} bytes a decision)"
        )
        lines.append(f"  {WORDS[name]}: {amount}: {'flat' if one['flat'] else 'NOT flat'}")
    lines.append(
        f"  after {result['warm_up_decisions']} decisions memory is {'flat' if result['flat'] else 'NOT flat'}"
    )
    return "\n".join(lines)


def _row_text(row: Mapping[str, Any]) -> str:
    parts = [
        f"{WORDS[name]} {row[name]}" if name in COUNTS else f"{WORDS[name]} {row[name] / 1e6:.3f} MB"
        for name in WORDS
        if row[name]
    ]
    return ", ".join(parts)
