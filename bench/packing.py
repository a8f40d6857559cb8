"""What does it cost to ask many questions, in many orders of their options, packed into few runs?

Asks the same questions by letters, the readout that has orders, in three ways by turns: full prompts, one suffix after
another, and packed; and reports the largest difference between a packed answer's option probabilities and those that
the full prompts give.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bench import common
from typedecide.evaluation import listed
from typedecide.orderings import combine, cyclic_shifts, how_many, rotate, unrotate
from typedecide.page import PageEngine
from typedecide.questions import Choice, Question, parse_questions
from typedecide.results import DecisionEngine, ScoredAll

NAME = "packing"
DEVICES = ("wasm", "webgpu")

Orders = Literal[1, 2, "all"]

COUNTS: tuple[int, ...] = (1, 4, 11, 32)
QUICK_COUNTS: tuple[int, ...] = (4,)
ORDERS: tuple[Orders, ...] = (1, 2, "all")
QUICK_ORDERS: tuple[Orders, ...] = (1, "all")
REPEATS, QUICK_REPEATS = 3, 1
SUMMARY_COUNT = 11
"""How many questions the summary speaks of, where they were asked; else the most that were."""

WAYS = ("packed", "sequential", "full")
LABELS = {"full": "full prompts", "sequential": "one suffix after another", "packed": "packed"}

FULL_PROMPTS, LEAST_FULL_PROMPTS = 4, 3
"""Full prompts timed for each row in each repeat, where it has as many, and the least: the same ones again."""

MORE_QUESTIONS: tuple[Question, ...] = tuple(
    parse_questions(json.loads((common.ROOT / "web/app/proof/more_questions.json").read_bytes())).values()
)
"""Asked after the sample's own, where more questions are wanted than it has; the page's Proof tab asks them too."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this benchmark."""
    parser.add_argument(
        "--questions",
        type=int,
        nargs="+",
        metavar="N",
        help="how many questions to ask (default: 1 4 11 32; with --quick: 4)",
    )
    parser.add_argument(
        "--short", action="store_true", help="read the state's first sentence only: for a slow device"
    )


@dataclass
class Case:
    """One row: questions asked in orders, which of them are compared with full prompts, and what was measured.

    A prompt is a pair (index of the question, shift of its options). fulls: what full prompts gave, in the
    question's own option order. full: milliseconds and tokens of the full prompts of each repeat.
    """

    orders: Orders
    questions: Sequence[Question]
    compared: Sequence[int] = ()
    fulls: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    full: list[tuple[float, int]] = field(default_factory=list)
    sequential: list[tuple[float, int]] = field(default_factory=list)
    packed: list[ScoredAll] = field(default_factory=list)
    prompts_timed: int = 0

    def prompts(self, questions: Iterable[int] | None = None) -> list[tuple[int, int]]:
        """The prompts of these questions, by index; None: of all."""
        chosen = range(len(self.questions)) if questions is None else questions
        counts = [(index, len(self.questions[index].names)) for index in chosen]
        return [(index, shift) for index, n in counts for shift in cyclic_shifts(n, how_many(n, self.orders))]


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure, publish, draw and return the results."""
    bundle = common.find_bundle(args)
    state, sample = common.read_sample(bundle)
    questions = [*sample.values(), *MORE_QUESTIONS]
    counts = args.questions or (QUICK_COUNTS if args.quick else COUNTS)
    for count in counts:
        if not 1 <= count <= len(questions):
            raise common.ArgumentError(
                f"--questions {count}: there are 1 to {len(questions)}.", questions=count
            )
    orders, repeats = (QUICK_ORDERS, QUICK_REPEATS) if args.quick else (ORDERS, REPEATS)
    cases = [make_case(questions[:count], level, repeats) for count in counts for level in orders]
    with common.open_page(args, bundle) as engine:
        result = measure(engine, common.shorten(state) if args.short else state, cases, repeats)
    common.publish(args, result, summarise(result), plot)
    return result


def make_case(questions: Sequence[Question], orders: Orders, repeats: int) -> Case:
    """A row that compares as many questions, spread evenly, as the full prompts of all repeats can cover."""
    case = Case(orders, questions)
    for count in range(len(questions), 0, -1):
        case.compared = cyclic_shifts(len(questions), count)
        if len(case.prompts(case.compared)) <= repeats * FULL_PROMPTS:
            break
    return case


def measure(engine: PageEngine, state: str, cases: Sequence[Case], repeats: int) -> dict[str, Any]:
    """Ask all rows in every repeat, so that a slow moment hits rows and ways alike."""
    # The first runs compile and allocate: they are no cost of the questions.
    tokens = engine.prefill(state).tokens
    engine.score_all(cases[0].questions, 1, readout="labels")
    engine.score_full(state, cases[0].questions[0])
    prefill_ms = []
    for repeat in range(repeats):
        # A kept state would cost nothing.
        engine.release()
        prefill_ms.append(engine.prefill(state).ms)
        for case in cases:
            _measure_case(engine, state, case, repeat)
    rows = [_row(case, tokens) for case in cases]
    return {
        **common.describe(NAME, engine),
        "criteria": max(row["questions"] for row in rows),
        "prefix_tokens": tokens,
        "prefill_ms": statistics.median(prefill_ms),
        "prefill_runs_ms": prefill_ms,
        "repeats": repeats,
        "rows": rows,
        "max_drift": max(row["max_drift"] for row in rows),
        "summary": ratios(rows, prefill_ms),
    }


def _measure_case(engine: DecisionEngine, state: str, case: Case, repeat: int) -> None:
    """One repeat of one row; each repeat starts with another of the three ways."""
    for way in rotate(WAYS, repeat % len(WAYS)):
        print(
            f"repeat {repeat + 1}: {len(case.questions)} questions, orders {case.orders}, {way}",
            file=sys.stderr,
            flush=True,
        )
        match way:
            case "packed":
                case.packed.append(engine.score_all(case.questions, case.orders, readout="labels"))
            case "sequential":
                case.sequential.append(_ask_sequentially(engine, case))
            case "full":
                case.full.append(_ask_fully(engine, state, case, repeat))


def _ask_sequentially(engine: DecisionEngine, case: Case) -> tuple[float, int]:
    """Milliseconds and tokens of all suffixes, one run each."""
    done = [
        engine.score(in_order(case.questions[index], shift), 1, readout="labels")
        for index, shift in case.prompts()
    ]
    return sum(scored.ms for scored in done), sum(scored.tokens for scored in done)


def _ask_fully(engine: DecisionEngine, state: str, case: Case, repeat: int) -> tuple[float, int]:
    """Milliseconds and tokens of this repeat's share of the full prompts."""
    ms, tokens = 0.0, 0
    for index, shift in share(case.prompts(case.compared), repeat):
        scored = engine.score_full(state, in_order(case.questions[index], shift))
        case.fulls[index, shift] = unrotate(scored.answer.logits, shift)
        ms, tokens = ms + scored.ms, tokens + scored.tokens
        case.prompts_timed += 1
    return ms, tokens


def share(prompts: Sequence[tuple[int, int]], repeat: int) -> list[tuple[int, int]]:
    """The prompts that a repeat runs in full: the next ones, going round, so that all repeats cover them."""
    count = max(LEAST_FULL_PROMPTS, min(len(prompts), FULL_PROMPTS))
    return [prompts[at % len(prompts)] for at in range(repeat * count, (repeat + 1) * count)]


def in_order(question: Question, shift: int) -> Choice:
    """The question as an ordering asks it: the same prompt with the options' texts rotated by `shift`."""
    return listed(question, rotate(range(len(question.names)), shift))


def drift(found: Sequence[float], fulls: Sequence[Sequence[float]]) -> float:
    """The largest difference of an option's probability from what full prompts give.

    `fulls` are the logits of each order, in the question's own option order.
    """
    wanted = combine(fulls).probabilities
    return max(abs(one - other) for one, other in zip(found, wanted, strict=True))


def _row(case: Case, prefix_tokens: int) -> dict[str, Any]:
    suffixes, compared = case.prompts(), case.prompts(case.compared)
    tokens_sequential = case.sequential[0][1]
    tokens_full = len(suffixes) * prefix_tokens + tokens_sequential
    ms = {
        # By token: a repeat runs some of the prompts only, and their lengths differ.
        "full": [spent * tokens_full / tokens for spent, tokens in case.full],
        "sequential": [spent for spent, _ in case.sequential],
        "packed": [done.ms for done in case.packed],
    }
    drifts = [
        drift(
            done.answers[index].answer.probabilities, [case.fulls[prompt] for prompt in case.prompts([index])]
        )
        for index in case.compared
        for done in case.packed
    ]
    return {
        "questions": len(case.questions),
        "orders": case.orders,
        "suffixes": len(suffixes),
        "tokens_full": tokens_full,
        "tokens_sequential": tokens_sequential,
        "tokens_run": case.packed[0].tokens_run,
        "tokens_saved": case.packed[0].tokens_saved,
        "runs": case.packed[0].runs,
        **{f"{way}_ms": statistics.median(values) for way, values in ms.items()},
        "full_ms_extrapolated": min(len(compared), FULL_PROMPTS) < len(suffixes),
        "full_prompts_timed": case.prompts_timed,
        "max_drift": max(drifts),
        "compared": {"questions": len(case.compared), "suffixes": len(compared)},
        "ms": ms,
    }


def ratios(rows: Sequence[Mapping[str, Any]], prefill_ms: Sequence[float]) -> dict[str, Any]:
    """How many times faster packing is for one order, and what all orders cost; with the prefill, and without.

    Medians of each repeat's own ratio: what else the machine does changes from repeat to repeat.
    """
    counts = {row["questions"] for row in rows}
    count = SUMMARY_COUNT if SUMMARY_COUNT in counts else max(counts)
    one, every = (
        next(row for row in rows if (row["questions"], row["orders"]) == (count, orders))
        for orders in (1, "all")
    )

    def compare(before: Sequence[float]) -> dict[str, float]:
        packed, sequential, all_orders = (
            [prefill + spent for prefill, spent in zip(before, times, strict=True)]
            for times in (one["ms"]["packed"], one["ms"]["sequential"], every["ms"]["packed"])
        )
        return {
            # A full prompt has no prefill to wait for.
            "full_over_packed": _median_ratio(one["ms"]["full"], packed),
            "sequential_over_packed": _median_ratio(sequential, packed),
            "all_orders_over_one": _median_ratio(all_orders, packed),
        }

    return {
        "questions": count,
        "scoring": compare([0] * len(prefill_ms)),
        "prefill_and_scoring": compare(prefill_ms),
        "tokens_all_orders_over_one": every["tokens_run"] / one["tokens_run"],
    }


def _median_ratio(over: Sequence[float], under: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def plot(result: Mapping[str, Any], path: Path) -> None:
    """Draw, for each number of orders, the time of the three ways by the number of questions."""
    pyplot = common.plotting(NAME)

    levels = list(dict.fromkeys(row["orders"] for row in result["rows"]))
    figure, panels = pyplot.subplots(
        1, len(levels), figsize=(3.6 * len(levels), 4), sharey=True, squeeze=False, layout="constrained"
    )
    for axes, orders in zip(panels[0], levels, strict=True):
        rows = [row for row in result["rows"] if row["orders"] == orders]
        counts = [row["questions"] for row in rows]
        for colour, way in enumerate(("full", "sequential", "packed")):
            for row in rows:
                axes.plot(
                    [row["questions"]] * len(row["ms"][way]),
                    row["ms"][way],
                    ".",
                    color=f"C{colour}",
                    alpha=0.4,
                )
            axes.plot(counts, [row[f"{way}_ms"] for row in rows], "o-", color=f"C{colour}", label=LABELS[way])
        axes.set(xscale="log", yscale="log", xlabel="questions", title=_orders_text(orders))
        axes.set_xticks(counts, map(str, counts))
        axes.set_xticks([], minor=True)
    panels[0][0].set_ylabel("ms")
    panels[0][0].legend(frameon=False)
    figure.suptitle(
        f"{result['model']}, {result['format']} on {result['candidate']}, prefix {result['prefix_tokens']} tokens,"
        f" {result['processor']}, {result['threads']} threads",
        fontsize=9,
    )
    common.save_plot(figure, path)


def _orders_text(orders: Orders) -> str:
    return {1: "one order", 2: "two orders", "all": "all cyclic orders"}[orders]


def summarise(result: Mapping[str, Any]) -> str:
    """The figures in a few lines."""
    summary = result["summary"]
    lines = [
        f"{result['benchmark']}: prefix of {result['prefix_tokens']} tokens, {result['format']} on"
        f" {result['candidate']}, {result['layers']} layers, prefill {result['prefill_ms']:.0f} ms",
        *map(_row_text, result["rows"]),
        f"  full_ms from {min(row['full_prompts_timed'] for row in result['rows'])} or more full prompts, by token",
    ]
    for key, words in (("scoring", "scoring alone"), ("prefill_and_scoring", "with the prefill")):
        ratio = summary[key]
        lines.append(
            f"  {summary['questions']} questions, {words}: one order {ratio['full_over_packed']:.2f} times faster than"
            f" full prompts, {ratio['sequential_over_packed']:.2f} than one suffix after another;"
            f" all orders cost {ratio['all_orders_over_one']:.2f} times one"
        )
    return "\n".join(lines)


def _row_text(row: Mapping[str, Any]) -> str:
    about = "about " if row["full_ms_extrapolated"] else ""
    return (
        f"  {row['questions']} questions, {_orders_text(row['orders'])}: packed {row['packed_ms']:.0f} ms"
        f" ({row['tokens_run']} tokens), sequential {row['sequential_ms']:.0f} ms ({row['tokens_sequential']}),"
        f" full {about}{row['full_ms']:.0f} ms ({row['tokens_full']}); largest drift {row['max_drift']:.2e}"
        f" ({row['compared']['suffixes']} of {row['suffixes']} prompts compared)"
    )
