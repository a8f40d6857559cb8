"""How often does an answer change when a question's options are listed in reverse?

Asks a hundred questions about ten texts of different domains, each as given and reversed: in a single order of the
options, averaged over several orders, and by the bundle's own readout. Without --bundle it asks the stock model, since
letters in a list are for models that are not tuned.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import common
from pybuild.sources import STOCK_MODEL
from typedecide.evaluation import listed
from typedecide.native import NativeEngine
from typedecide.orderings import Level
from typedecide.page import PageEngine
from typedecide.questions import Choice, Question, parse_questions
from typedecide.results import Debiased

NAME = "flips"
DEVICES = ("native", "wasm", "webgpu")

QUESTIONS = Path(__file__).with_name("flips_questions.json")
"""Texts of different domains, and questions about each."""

QUICK_TEXTS = 2
"""Texts that the short form asks about."""


@dataclass(frozen=True)
class Text:
    """A text of some domain, and questions about it by id."""

    domain: str
    state: str
    questions: Mapping[str, Question]


@dataclass(frozen=True)
class Way:
    """A way to ask: a readout and, where it lists options, how many orders of them."""

    readout: str
    orderings: Level | None

    @property
    def words(self) -> str:
        """Its name in tables."""
        return self.readout if self.orderings is None else f"{self.readout}, {_ORDERS[self.orderings]}"


_ORDERS: Mapping[Level, str] = {1: "1 order", "auto": "auto", "all": "all orders"}

BEFORE = Way("labels", 1)
LETTERS = (BEFORE, Way("labels", "auto"), Way("labels", "all"))


@dataclass(frozen=True)
class Pair:
    """One question's answers as given and reversed, the latter's probabilities put back into the given order."""

    name: str
    options: int
    given: Debiased
    reversed: Debiased

    @property
    def flipped(self) -> bool:
        """Whether another option is chosen."""
        return self.given.answer.choice != self.reversed.answer.choice

    @property
    def change(self) -> float:
        """The largest change of an option's probability."""
        one, other = self.given.answer.probabilities, self.reversed.answer.probabilities[::-1]
        return max(abs(a - b) for a, b in zip(one, other, strict=True))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """This benchmark has no arguments of its own."""


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure, publish, draw and return the results."""
    texts = read_texts()
    bundle = common.find_bundle(args, STOCK_MODEL)
    with common.open_engine(args, bundle) as engine:
        result = measure(engine, texts[:QUICK_TEXTS] if args.quick else texts)
    common.publish(args, result, summarise(result), plot)
    return result


def read_texts() -> list[Text]:
    """The texts and their questions."""
    records = json.loads(QUESTIONS.read_text(encoding="utf-8"))
    return [Text(one["domain"], one["state"], parse_questions(one["questions"])) for one in records]


def in_order(question: Question, backwards: bool) -> Choice:
    """The question as a choice among the same options, listed as given or backwards: the same prompt but for that."""
    places = range(len(question.names))
    return listed(question, [*reversed(places)] if backwards else places)


def ways(readout: str) -> tuple[Way, ...]:
    """The ways to ask a bundle: by letters, and by its own readout where that is another."""
    return LETTERS if readout == "labels" else (*LETTERS, Way(readout, None))


def measure(engine: PageEngine | NativeEngine, texts: Sequence[Text]) -> dict[str, Any]:
    """Ask all questions about all texts in every way, as given and reversed."""
    own = engine.bundle.manifest["readout"]
    pairs: dict[Way, list[Pair]] = {way: [] for way in ways(own)}
    for text in texts:
        print(f"asking about: {text.domain}", file=sys.stderr, flush=True)
        engine.prefill(text.state)
        for way, found in pairs.items():
            found += ask(engine, text, way)
    rows = [
        row(way, options, [pair for pair in found if pair.options == options])
        for way, found in pairs.items()
        for options in sorted({pair.options for pair in found})
    ]
    return {
        **common.describe(NAME, engine),
        "readout": own,
        "texts": len(texts),
        "criteria": sum(len(text.questions) for text in texts),
        "rows": rows,
        "totals": [row(way, None, found) for way, found in pairs.items()],
        "two_options": {
            "before": sum(pair.flipped for pair in pairs[BEFORE] if pair.options == 2),
            "after": sum(
                pair.flipped
                for way, found in pairs.items()
                for pair in found
                if way != BEFORE and pair.options == 2
            ),
        },
    }


def ask(engine: PageEngine | NativeEngine, text: Text, way: Way) -> list[Pair]:
    """The questions about the prefilled text, as given and reversed."""
    given, backwards = (
        engine.score_all(
            [in_order(question, reverse) for question in text.questions.values()],
            way.orderings,
            readout=way.readout,
        ).answers
        for reverse in (False, True)
    )
    return [
        Pair(f"{text.domain}/{name}", len(question.names), one, other)
        for (name, question), one, other in zip(text.questions.items(), given, backwards, strict=True)
    ]


def row(way: Way, options: int | None, pairs: Sequence[Pair]) -> dict[str, Any]:
    """One way's flips over the questions of so many options; None: of all.

    `between_orders` is the mean share of a question's own orders that disagree with its answer.
    """
    flipped = [pair.name for pair in pairs if pair.flipped]
    return {
        "readout": way.readout,
        "orderings": way.orderings,
        "options": options,
        "questions": len(pairs),
        "flips": len(flipped),
        "flip_rate": len(flipped) / len(pairs),
        "between_orders": sum(pair.given.flip_rate for pair in pairs) / len(pairs),
        "max_change": max(pair.change for pair in pairs),
        "flipped": flipped,
    }


def plot(result: Mapping[str, Any], path: Path) -> None:
    """Draw the flip rate of each way by the number of options."""
    pyplot = common.plotting(NAME)

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    found = ways(result["readout"])
    width = 0.8 / len(found)
    counts = _option_counts(result)
    for place, way in enumerate(found):
        rates = [_find(result, way, count)["flip_rate"] for count in counts]
        at = [i + (place - (len(found) - 1) / 2) * width for i in range(len(counts))]
        # Nothing to see is what is hoped for: a line at zero shows that it was measured.
        axes.bar(at, rates, width, label=way.words, linewidth=1, edgecolor=f"C{place}")
    names = [f"{n} options\n({_find(result, BEFORE, n)['questions']})" for n in counts]
    axes.set_xticks(range(len(counts)), names)
    axes.set_ylabel("answers that change")
    axes.set_ylim(0, 1)
    axes.set_title(
        f"options reversed: {result['model']}, {result['format']} on {result['candidate']},"
        f" {result['criteria']} questions",
        fontsize=10,
    )
    figure.legend(loc="outside lower center", ncols=len(found), frameon=False)
    common.save_plot(figure, path)


def _option_counts(result: Mapping[str, Any]) -> list[int]:
    return sorted({one["options"] for one in result["rows"]})


def _find(result: Mapping[str, Any], way: Way, options: int | None) -> Mapping[str, Any]:
    rows = result["totals"] if options is None else result["rows"]
    wanted = (way.readout, way.orderings, options)
    found: Mapping[str, Any] = next(
        one for one in rows if (one["readout"], one["orderings"], one["options"]) == wanted
    )
    return found


def summarise(result: Mapping[str, Any]) -> str:
    """The table of flips before and after."""
    found = ways(result["readout"])
    counts: list[int | None] = [*_option_counts(result), None]
    lines = [
        f"{result['benchmark']}: answers that change when the options are reversed; {result['criteria']} questions"
        f" about {result['texts']} texts, {result['format']} on {result['candidate']}, {result['layers']} layers",
        "  options  questions" + "".join(f"{way.words:>18}" for way in found),
    ]
    for count in counts:
        cells = [_find(result, way, count) for way in found]
        lines.append(
            f"  {'all' if count is None else count:>7}{cells[0]['questions']:>11}"
            + "".join(f"{one['flips']:>11} ({one['flip_rate']:4.0%})" for one in cells)
        )
    two = result["two_options"]
    lines.append(
        f"  two options: {two['before']} changed in one order, {two['after']} in all other ways together"
    )
    return "\n".join(lines)
