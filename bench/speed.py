"""What does shallow prefill save? Time to the first answer, time for all answers, and cache, by length of the text.

Bundles of one model that differ in how many of its layers texts go through read the same texts and answer the sample's
questions by turns: the first one alone, and all of them packed. Each figure is a median of rounds, each ratio one of
each round's own ratio to the model whose texts go through all layers, and beside both stands what a count of operations
foretells. How good the answers are is `shallow_quality`'s question.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Self

from bench import common, depths
from bench.cost_model import CostModel
from bench.probe import ProbedPage
from typedecide.bundle import Bundle
from typedecide.native import NativeEngine, TextTokenizer
from typedecide.orderings import rotate
from typedecide.prompt import Prompt, PromptSpec
from typedecide.questions import Question
from typedecide.shallow import ANCHORS, DEFAULT_ANCHOR, anchor_tokens
from typedecide.terminal import track

NAME = "speed"
DEVICES = ("wasm", "webgpu", "native")

PREFIXES = (128, 256, 512, 1024, 2048, 4096)
QUICK_PREFIXES = (1024,)
ROUNDS, QUICK_ROUNDS = 5, 3

COUNTS = ("first_answer", "all_answers", "cache")
"""What ratios are made of."""

WORDS = {"first_answer": "time to the first answer", "all_answers": "time for all answers", "cache": "cache"}

Engine = ProbedPage | NativeEngine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this benchmark."""
    depths.add_arguments(parser)
    parser.add_argument(
        "--anchor",
        choices=ANCHORS,
        default=DEFAULT_ANCHOR,
        help=f"of the shallow bundles (default: {DEFAULT_ANCHOR}; for time it matters little)",
    )
    parser.add_argument(
        "--prefix",
        type=int,
        nargs="+",
        metavar="TOKENS",
        help=f"tokens of the texts' prefixes (default: {' '.join(map(str, PREFIXES))}; with --quick: 1024)",
    )
    parser.add_argument(
        "--rounds", type=int, metavar="N", help=f"default: {ROUNDS}; with --quick: {QUICK_ROUNDS}"
    )
    parser.add_argument(
        "--in-turn",
        action="store_true",
        help="hold one engine at a time, loaded anew for its turn in each round: for little memory",
    )


@dataclass
class Cell:
    """One row: a text's tokens, the layers that it goes through, and what each round took."""

    prefix: int
    k: int
    prefill_ms: list[float] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)
    all_ms: list[float] = field(default_factory=list)
    first_tokens: int = 0
    all_tokens: int = 0
    cache_bytes: int = 0

    def of(self, what: str) -> list[float]:
        """A figure that has ratios, of each round."""
        if what == "cache":
            return [float(self.cache_bytes)] * len(self.prefill_ms)
        asked = self.first_ms if what == "first_answer" else self.all_ms
        return [before + own for before, own in zip(self.prefill_ms, asked, strict=True)]


class Engines:
    """Engines by the layers that texts go through, opened when first wanted; with `in_turn` one at a time."""

    def __init__(self, open: Callable[[int], Engine], in_turn: bool = False) -> None:
        self._open, self._in_turn = open, in_turn
        self._engines: dict[int, Engine] = {}

    def __getitem__(self, k: int) -> Engine:
        if k not in self._engines:
            if self._in_turn:
                self.close()
            self._engines[k] = self._open(k)
        return self._engines[k]

    def order(self, prefixes: Sequence[int], ks: Sequence[int]) -> Iterator[tuple[int, int]]:
        """The pairs of one round: all depths of one length together where they are all open."""
        if self._in_turn:
            return ((prefix, k) for k in ks for prefix in prefixes)
        return ((prefix, k) for prefix in prefixes for k in ks)

    def close(self) -> None:
        """Close all."""
        while self._engines:
            self._engines.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure, publish, draw and return the results."""
    plain = depths.whole(args, args.model)
    layers = depths.layers_of(plain)
    ks = depths.chosen(args, layers)
    bundles = {k: common.find_bundle(args, args.model, k, args.anchor) for k in ks if k < layers} | {
        layers: plain
    }
    prefixes = args.prefix or (QUICK_PREFIXES if args.quick else PREFIXES)
    rounds = args.rounds or (QUICK_ROUNDS if args.quick else ROUNDS)
    state, sample = common.read_sample(plain)
    texts = {tokens: text_of(plain, state, tokens) for tokens in prefixes}
    with Engines(lambda k: common.open_engine(args, bundles[k]), args.in_turn) as engines:
        result = measure(engines, texts, [*sample.values()], ks, args.anchor, rounds)
    common.publish(args, result, summarise(result), plot)
    return result


def text_of(bundle: Path, state: str, tokens: int) -> str:
    """A text whose prefix has exactly so many tokens: as many of the state's words as fit, over and over, and some more
    of the last kind."""
    opened = Bundle.open(bundle)
    prompt = Prompt(PromptSpec.from_manifest(opened.manifest))
    tokenizer = TextTokenizer.from_file(opened.tokenizer_path)

    def length(text: str) -> int:
        return len(prompt.state_prefix_ids(tokenizer, text))

    if tokens <= length(""):
        raise common.ArgumentError(
            f"--prefix {tokens}: the prompt before a text has {length('')} tokens already.", prefix=tokens
        )
    words = state.split()
    words *= tokens // len(words) + 1
    low, high = 0, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if length(" ".join(words[:middle])) <= tokens else (low, middle - 1)
    text = " ".join(words[:low])
    for more in count():
        filled = text + " a" * more
        if (found := length(filled)) >= tokens:
            if found == tokens:
                return filled
            raise common.ArgumentError(f"--prefix {tokens}: no text has so many tokens.", prefix=tokens)
    raise AssertionError


def measure(
    engines: Engines,
    texts: Mapping[int, str],
    questions: Sequence[Question],
    ks: Sequence[int],
    anchor: str,
    rounds: int,
) -> dict[str, Any]:
    """Ask about all texts at all depths in every round, so that a slow moment hits depths alike.

    Args:
        texts: by the tokens of their prefixes.
        ks: layers that texts go through, all of the model's last.
    """
    cells = {(prefix, k): Cell(prefix, k) for prefix in texts for k in ks}
    warm: set[int] = set()
    turns = (
        cells[pair]
        for number in range(rounds)
        for pair in engines.order([*texts], rotate(ks, number % len(ks)))
    )
    for cell in track(turns, rounds * len(cells), NAME):
        engine = engines[cell.k]
        if id(engine) not in warm:
            # The first runs compile and allocate: they are no cost of the questions.
            engine.decide("", {str(number): question for number, question in enumerate(questions)})
            warm.add(id(engine))
        ask(engine, cell, texts[cell.prefix], questions)
    engine = engines[ks[-1]]
    model = CostModel.of(engine.info["model"])
    head = _head(engine)
    rows = [
        _row(cell, cells[cell.prefix, ks[-1]], model, anchor, head, len(questions)) for cell in cells.values()
    ]
    return {
        **common.describe(NAME, engine),
        "rounds": rounds,
        "criteria": len(questions),
        "head_tokens": head,
        "rows": rows,
    }


def ask(engine: Engine, cell: Cell, text: str, questions: Sequence[Question]) -> None:
    """One round of one row: a new text, the first question about it, and all of them."""
    # A kept text would cost nothing.
    engine.release()
    prefill = engine.prefill(text)
    first = engine.score(questions[0])
    every = engine.score_all(questions)
    cell.prefill_ms.append(prefill.ms)
    cell.first_ms.append(first.ms)
    cell.all_ms.append(every.ms)
    cell.prefix, cell.first_tokens, cell.all_tokens = prefill.tokens, first.tokens, every.tokens_run
    cell.cache_bytes = kept_bytes(engine)


def kept_bytes(engine: Engine) -> int:
    """Memory of the text that an engine keeps."""
    if isinstance(engine, NativeEngine):
        return engine.states.bytes
    states = engine.evaluate("(engine) => engine.states()")
    return sum(state["bytes"] for state in states)


def _head(engine: Engine) -> int:
    """Tokens before every text, which are computed once for each loaded model."""
    bundle = engine.bundle
    prompt = Prompt(PromptSpec.from_manifest(bundle.manifest))
    return len(prompt.head_ids(TextTokenizer.from_file(bundle.tokenizer_path)))


def _row(cell: Cell, whole: Cell, model: CostModel, anchor: str, head: int, questions: int) -> dict[str, Any]:
    """A row; `whole` is that of the same text through all layers."""
    expected, expected_whole = (_predict(one, model, anchor, head, questions) for one in (cell, whole))
    prefill_ms, suffix_ms = statistics.median(cell.prefill_ms), statistics.median(cell.all_ms) / questions
    return {
        "prefix_tokens": cell.prefix,
        "k": cell.k,
        "layers": model.layers,
        "anchor": anchor if cell.k < model.layers else None,
        "first_answer_ms": statistics.median(cell.of("first_answer")),
        "all_answers_ms": statistics.median(cell.of("all_answers")),
        "prefill_ms": prefill_ms,
        "ms_per_question": suffix_ms,
        "suffix_tokens": {"first": cell.first_tokens, "all": cell.all_tokens},
        "cache_bytes": cell.cache_bytes,
        "ratio": {
            what: statistics.median(a / b for a, b in zip(whole.of(what), cell.of(what), strict=True))
            for what in COUNTS
        },
        "predicted": expected,
        "predicted_ratio": {what: expected_whole[what] / expected[what] for what in COUNTS},
        "ms": {"prefill": cell.prefill_ms, "first": cell.first_ms, "all": cell.all_ms},
    }


def _predict(cell: Cell, model: CostModel, anchor: str, head: int, questions: int) -> dict[str, float]:
    """Operations up to the first answer and to all of them, and bytes of the cache, by the count."""
    seen = anchor_tokens(anchor, range(head))
    prefill = model.prefill(cell.prefix, cell.k, head)
    # The suffixes as one of their mean length each: what they share is computed once.
    lengths = [cell.all_tokens / questions] * questions
    return {
        "first_answer": prefill + model.suffixes([cell.first_tokens], cell.prefix, cell.k, seen),
        "all_answers": prefill + model.suffixes(lengths, cell.prefix, cell.k, seen),
        # The anchor's keys and values in the upper layers are the model's own, and no text's.
        "cache": model.cache_bytes(cell.prefix, cell.k, 0),
    }


def plot(result: Mapping[str, Any], path: Path) -> None:
    """Draw each ratio by the length of the text: measured as points, foretold as dashes."""
    pyplot = common.plotting(NAME)

    ks = sorted({row["k"] for row in result["rows"]})
    prefixes = sorted({row["prefix_tokens"] for row in result["rows"]})
    figure, panels = pyplot.subplots(1, len(COUNTS), figsize=(11, 4), sharey=True, layout="constrained")
    for axes, what in zip(panels, COUNTS, strict=True):
        for colour, k in enumerate(ks):
            rows = sorted(
                (row for row in result["rows"] if row["k"] == k), key=lambda row: row["prefix_tokens"]
            )
            at = [row["prefix_tokens"] for row in rows]
            label = f"{k} of {result['layers']} layers"
            axes.plot(at, [row["ratio"][what] for row in rows], "o-", color=f"C{colour}", label=label)
            axes.plot(at, [row["predicted_ratio"][what] for row in rows], "--", color=f"C{colour}", alpha=0.6)
        axes.set(xscale="log", xlabel="tokens of the text", title=WORDS[what])
        axes.set_xticks(prefixes, map(str, prefixes))
        axes.set_xticks([], minor=True)
    panels[0].set_ylabel("times less than with all layers (dashes: foretold)")
    panels[0].legend(frameon=False, fontsize=8)
    figure.suptitle(
        f"{result['model']}, {result['format']} on {result['candidate']}, {result['processor']},"
        f" {result['threads']} threads, medians of {result['rounds']} rounds",
        fontsize=9,
    )
    common.save_plot(figure, path)


def summarise(result: Mapping[str, Any]) -> str:
    """The figures as a table."""
    lines = [
        f"{result['benchmark']}: {result['model']}, {result['format']} on {result['candidate']},"
        f" {result['criteria']} questions, medians of {result['rounds']} rounds; in brackets how many times less than"
        " with all layers: measured, foretold",
        f"  {'tokens':>6} {'k':>3} {'first answer, ms':>27} {'all answers, ms':>27} {'a question, ms':>14}"
        f" {'cache, MB':>22}",
    ]
    for row in sorted(result["rows"], key=lambda row: (row["prefix_tokens"], row["k"])):
        first, every, cache = (
            f"({row['ratio'][what]:.2f}, {row['predicted_ratio'][what]:.2f})" for what in COUNTS
        )
        lines.append(
            f"  {row['prefix_tokens']:>6} {row['k']:>3} {row['first_answer_ms']:>14,.0f} {first}"
            f" {row['all_answers_ms']:>14,.0f} {every} {row['ms_per_question']:>14,.1f}"
            f" {row['cache_bytes'] / 1e6:>9,.1f} {cache}"
        )
    return "\n".join(lines)
