"""`python -m pybuild verify DIST`: proves a bundle's prompt trim, tokenizer, golden values and files.

Knows a bundle and its manifest; needs Node.js for the page's tokenizer. Each check is a function from a bundle to a
`Check`, which lists what is wrong; the terminal is at the edge.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pybuild import npm
from pybuild.attacks import Attack, pairs, strings
from pybuild.golden import Score, behind_cache, logits_of
from typedecide import batches
from typedecide.bundle import Bundle, Format
from typedecide.errors import PrefixMismatchError, TypedecideError, UnsupportedError
from typedecide.native import NativeEngine, TextTokenizer
from typedecide.prompt import Prompt, PromptSpec, Tokenizer, suffix_after
from typedecide.readout import softmax

TOKENIZE = Path(__file__).with_name("tokenize.mjs")
TOKENIZER_MODULE = "vendor/tokenizers/tokenizers.min.mjs"
"""The bundle's file that the page imports its tokenizer from."""

SHOWN = 20
"""Failures of one check that are printed; the rest are counted."""

Tick = Callable[[int], None]
"""Told how much more is done."""


def _no_tick(done: int) -> None:
    """Nobody watches."""


@dataclass
class Check:
    """What one check looked at, and every fault it found, each naming the text or value at fault."""

    name: str
    counted: str
    failures: list[str] = field(default_factory=list)
    note: str = ""


def verify(
    bundle: Bundle,
    *,
    states: int = 5000,
    texts: int = 10000,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Check]:
    """Run every check on `bundle`: `states` pairs against the trim, `texts` strings against the tokenizer."""
    bars = _Bars(progress)
    tokenizer = TextTokenizer.from_file(bundle.tokenizer_path)
    size = sum(entry.bytes for entry in bundle.files.values())
    graphs = sum(len(format.graphs) for format in bundle.formats.values())
    return [
        check_files(bundle, bars.tick("files", size)),
        check_trim(bundle, tokenizer, states, seed, bars.tick("trim", states)),
        check_tokenizer(bundle, tokenizer, texts, seed, bars.tick("tokenizer", texts)),
        check_golden(bundle, bars.tick("golden values", graphs)),
    ]


def check_files(bundle: Bundle, tick: Tick = _no_tick) -> Check:
    """Every file of the manifest is there, with its size and sha256."""
    damage = bundle.damage(progress=lambda path, count: tick(count))
    return Check("files", f"{len(bundle.files)} files", [str(one) for one in damage])


# -- (a) the trim ---------------------------------------------------------------------------------------------------


def check_trim(
    bundle: Bundle, tokenizer: Tokenizer, count: int, seed: int = 0, tick: Tick = _no_tick
) -> Check:
    """The state's prefix is a token-level prefix of every full prompt, and no text becomes a control token."""
    prompt = Prompt(PromptSpec.from_manifest(bundle.manifest))
    vocabulary = Vocabulary.read(bundle)
    check = Check("trim", f"{count} pairs", note="prefix of every prompt, no control token from text")
    for attack in pairs(count, seed, list(vocabulary.control), len(bundle.labels)):
        check.failures += _trim_failures(prompt, tokenizer, vocabulary, attack)
        tick(1)
    return check


def _trim_failures(
    prompt: Prompt, tokenizer: Tokenizer, vocabulary: Vocabulary, attack: Attack
) -> Iterator[str]:
    where = f"{attack.kind}: state {attack.state!r}, criterion {attack.criterion.text!r}"
    prefix = prompt.state_prefix_ids(tokenizer, attack.state)
    full = prompt.full_ids(tokenizer, attack.state, attack.criterion)
    try:
        suffix_after(prefix, full)
    except PrefixMismatchError as error:
        yield (
            f"{where}: token {error.position} is {error.prefix_token} in the prefix and {error.full_token}"
            " in the full prompt"
        )
    first = len(prompt.spec.bos_ids)
    for position, token in enumerate(full[first:], first):
        if token not in vocabulary.plain:
            yield f"{where}: token {position} is the control token {token} {vocabulary.text(token)!r}"


@dataclass(frozen=True)
class Vocabulary:
    """The ids that plain text can become, and the control tokens (id by text), which it must never become."""

    plain: frozenset[int]
    control: Mapping[str, int]

    @classmethod
    def read(cls, bundle: Bundle) -> Vocabulary:
        """Tell plain from control tokens by how the bundle's BPE tokenizer can form them."""
        spec = json.loads(bundle.tokenizer_path.read_bytes())
        model: Mapping[str, Any] = spec["model"]
        if model["type"] != "BPE":
            raise UnsupportedError(
                f"Only BPE tokenizers can be verified, not {model['type']!r}.", type=model["type"]
            )
        control = {token["content"]: token["id"] for token in spec["added_tokens"]}
        formed = _formed(model)
        for text, token in model["vocab"].items():
            if text not in formed:
                control.setdefault(text, token)
        held_back = {*control.values(), *bundle.model["control_ids"]}
        plain = {token for token in model["vocab"].values() if token not in held_back}
        return cls(frozenset(plain), control)

    def text(self, token: int) -> str:
        """The text of a control token, or "" for an id that the tokenizer does not know."""
        return next((text for text, number in self.control.items() if number == token), "")


def _formed(model: Mapping[str, Any]) -> set[str]:
    """The vocabulary entries that BPE can form: single symbols, products of merges, and raw bytes."""
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    formed = {left + right for left, right in merges}
    formed.update(text for text in model["vocab"] if len(text) == 1)
    if model.get("ignore_merges"):
        formed.update(model["vocab"])
    if model.get("byte_fallback"):
        formed.update(f"<0x{byte:02X}>" for byte in range(256))
    return formed


# -- (b) the page's tokenizer ---------------------------------------------------------------------------------------


def check_tokenizer(
    bundle: Bundle, tokenizer: Tokenizer, count: int, seed: int = 0, tick: Tick = _no_tick
) -> Check:
    """Python's and the page's tokenizer give the same ids."""
    check = Check("tokenizer", f"{count} strings", note="Python against the page's, under Node.js")
    texts = list(strings(count, seed, list(Vocabulary.read(bundle).control)))
    for text, page in zip(texts, page_ids(bundle, texts), strict=True):
        ours = tokenizer.encode(text)
        if ours != page:
            at = _first_difference(ours, page)
            check.failures.append(
                f"{text!r}: token {at} is {_at(ours, at)} in Python and {_at(page, at)} in the page"
            )
        tick(1)
    return check


def page_ids(bundle: Bundle, texts: Sequence[str]) -> Iterator[list[int]]:
    """The ids that the bundle's own JavaScript tokenizer gives for each text."""
    command = [npm.node(), TOKENIZE, bundle.root / TOKENIZER_MODULE, bundle.tokenizer_path]
    with subprocess.Popen(
        list(map(str, command)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as node:
        assert node.stdin and node.stdout and node.stderr
        errors: list[str] = []
        # Both on threads of their own: a full pipe in one direction must not stop the other.
        writer = threading.Thread(target=_write_lines, args=(node.stdin, texts))
        reader = threading.Thread(target=lambda stream: errors.append(stream.read()), args=(node.stderr,))
        writer.start()
        reader.start()
        answered = 0
        try:
            for line in islice(node.stdout, len(texts)):
                answered += 1
                yield json.loads(line)
        finally:
            if answered < len(texts):
                node.kill()
            writer.join()
            reader.join()
        if answered < len(texts):
            raise UnsupportedError(
                f"The page's tokenizer stopped after {answered} of {len(texts)} strings: {''.join(errors)}",
                answered=answered,
            )


def _write_lines(stream: Any, texts: Iterable[str]) -> None:
    try:
        with stream:
            for text in texts:
                # ASCII only: readline() of Node.js takes U+2028 for the end of a line.
                stream.write(json.dumps(text) + "\n")
    except BrokenPipeError:
        pass  # The reader sees that Node.js ended, and says why.


def _first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    pairs_of_ids = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs_of_ids if a != b), min(len(one), len(other)))


def _at(ids: Sequence[int], position: int) -> int | str:
    return ids[position] if position < len(ids) else "missing"


# -- (c) golden values ----------------------------------------------------------------------------------------------


def check_golden(bundle: Bundle, tick: Tick = _no_tick) -> Check:
    """Every graph of every format gives the manifest's golden label logits, and so its probabilities."""
    cases = sum(len(format.golden) for format in bundle.formats.values())
    graphs = sum(len(format.graphs) for format in bundle.formats.values())
    check = Check("golden values", f"{cases} cases, {graphs} graphs")
    worst = Gap(0.0, 0.0)
    for format in bundle.formats.values():
        if not format.golden:
            check.failures.append(f"{format.name}: the manifest holds no golden values")
        for variant in format.graphs:
            for gap, failure in _golden_gaps(bundle, format, variant):
                worst = worst.larger(gap)
                check.failures += [failure] if failure else []
            tick(1)
    check.note = (
        f"largest difference: logits {worst.logit:.1e} of {bundle.tolerance:.1e},"
        f" probabilities {worst.probability:.1e}"
    )
    return check


@dataclass(frozen=True)
class Gap:
    """How far computed values are from golden ones."""

    logit: float
    probability: float

    def larger(self, other: Gap) -> Gap:
        """The larger of each."""
        return Gap(max(self.logit, other.logit), max(self.probability, other.probability))


def _golden_gaps(bundle: Bundle, format: Format, variant: str) -> Iterator[tuple[Gap, str]]:
    """The gap of each golden case under one graph, with what is wrong about it, if anything."""
    allowed = bundle.tolerance_of(format.name)
    try:
        with _running(bundle, format, variant) as score:
            for case in format.golden:
                gap = _gap(score, case)
                where = f"{format.name}, {variant} graph, case {case['name']!r}"
                far = not max(gap.logit, gap.probability) <= allowed
                yield (
                    gap,
                    (
                        f"{where}: logits differ by {gap.logit:.3e} and probabilities by {gap.probability:.3e};"
                        f" {allowed:.1e} is allowed"
                        if far
                        else ""
                    ),
                )
    except TypedecideError as error:
        yield Gap(0.0, 0.0), f"{format.name}, {variant} graph: cannot be run: {error}"


@contextmanager
def _running(bundle: Bundle, format: Format, variant: str) -> Iterator[Score]:
    """One graph of a format: behind a cache, or with whole prompts where it is for those."""
    if variant != batches.GRAPH:
        with NativeEngine(bundle.root, format.name, variant) as engine:
            yield behind_cache(engine.model)
        return
    with batches.open_batched(bundle, format.name) as model:
        yield lambda prefix, suffixes, anchor: model.score(
            [replace(one, ids=[*prefix, *one.ids], hidden=(anchor, len(prefix))) for one in suffixes],
            batches.BUDGET,
        )


def _gap(score: Score, case: Mapping[str, Any]) -> Gap:
    gap = Gap(0.0, 0.0)
    for computed, golden in zip(logits_of(score, case), case["logits"], strict=True):
        gap = gap.larger(Gap(_distance(computed, golden), _distance(softmax(computed), softmax(golden))))
    return gap


def _distance(one: Sequence[float], other: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


# -- the command ----------------------------------------------------------------------------------------------------


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the `verify` command, whose `func` is `run`."""
    parser = subparsers.add_parser(
        "verify",
        help="prove a bundle's prompt trim, tokenizer, golden values and files",
        description="Attacks a bundle with generated texts and compares it with itself. Exit status 1 on any fault.",
    )
    parser.add_argument(
        "dist", type=Path, nargs="?", default=Path("dist"), help="bundle folder (default: dist)"
    )
    parser.add_argument("--states", type=int, default=5000, metavar="N", help="pairs of state and criterion")
    parser.add_argument("--strings", type=int, default=10000, metavar="N", help="strings for both tokenizers")
    parser.add_argument("--seed", type=int, default=0, help="of the generated texts (default: 0)")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Verify and print a table; 1 when anything is wrong."""
    bundle = Bundle.open(args.dist)
    with _progress() as progress:
        checks = verify(bundle, states=args.states, texts=args.strings, seed=args.seed, progress=progress)
    report(checks, Console())
    return 1 if any(check.failures for check in checks) else 0


def report(checks: Sequence[Check], console: Console) -> None:
    """Print what was checked and every fault that was found."""
    table = Table("check", "looked at", "faults", "")
    for check in checks:
        faults = f"[red]{len(check.failures)}[/red]" if check.failures else "[green]none[/green]"
        table.add_row(check.name, check.counted, faults, check.note)
    console.print(table)
    for check in checks:
        for failure in check.failures[:SHOWN]:
            console.print(f"[red]{check.name}:[/red] {escape(failure)}", highlight=False, soft_wrap=True)
        if (more := len(check.failures) - SHOWN) > 0:
            console.print(f"[red]{check.name}:[/red] and {more} more", highlight=False)


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True))


class _Bars:
    """One progress bar for each check, or none at all."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress

    def tick(self, description: str, total: int) -> Tick:
        """A new bar, as the function that moves it on."""
        if self.progress is None:
            return _no_tick
        progress, bar = self.progress, self.progress.add_task(description, total=total)
        return lambda done: progress.advance(bar, done)
