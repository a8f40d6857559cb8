"""Side by side with what a user would pick instead: the same text, questions, weights and browser.

Subjects take turns: in each round every one of them opens in a fresh page of a browser that has kept its files, answers
a first question (`first_answer_ms`: from the empty page to the first answer, so with loading), then all questions about
a new text (`all_answers_ms`), then all of them once more about that text with their options reversed
(`second_round_ms`). Medians of all rounds, each with texts of its own, so that nothing is left of an earlier one.
`download_bytes` went over the network at the first visit of all; `peak_bytes` is the most that the page's process held.
`flip_rate` is the share of questions whose chosen option changes when options are reversed; `drift` compares
probabilities with ours in the first format listed, in one order.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import common
from bench.flips import in_order
from bench.link import Link
from bench.peers import export, site
from bench.peers.subjects import DECIDE, STOCK, Subject, subjects
from bench.peers.visits import call, peak_bytes, visit
from pybuild.bundle import build
from pybuild.quantize import DEFAULT_FORMAT, FORMATS
from pybuild.sources import stock_file
from typedecide.bundle import Bundle
from typedecide.journal import Journal
from typedecide.page import PageEngine
from typedecide.prompt import Prompt, PromptSpec
from typedecide.questions import Choice, Question, to_wire
from typedecide.static_server import StaticServer

if TYPE_CHECKING:
    from playwright.sync_api import Playwright

NAME = "peers"
DEVICES = ("wasm",)

ROUNDS, QUICK_ROUNDS = 3, 1
QUICK_QUESTIONS = 3
FOLDER = common.BUNDLES / "peers"

LEFT_OUT = {
    "llama-cpp-python": "not measured: PyPI has its source only, and this benchmark compiles no llama.cpp",
}
"""Peers that were wanted and have no row of figures, and why."""

FIGURES = ("first_answer_ms", "all_answers_ms", "second_round_ms")


@dataclass(frozen=True)
class Case:
    """A question about a text in one order, as each subject takes it: as JSON, and as a prompt with label tokens."""

    question: Choice
    head: str
    text: str
    labels: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """The form in which a page gets it."""
        return {
            "wire": to_wire(self.question),
            "names": self.question.names,
            "head": self.head,
            "text": self.text,
            "labels": self.labels,
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this benchmark; without --format it runs every format."""
    parser.set_defaults(format=None)
    parser.add_argument(
        "--only", nargs="+", metavar="TEXT", help="only rows whose names hold one of these texts"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help=f"turns (default: {ROUNDS})")
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="keep what is finished in a file, and go on from there"
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure, publish, draw and return the results."""
    if args.layers is not None:
        raise common.ArgumentError("--layers: peers have files of the whole model only.", layers=args.layers)
    formats = (args.format,) if args.format else (DEFAULT_FORMAT,) if args.quick else tuple(FORMATS)
    args.format = args.format or "all"
    rows = choose(args, formats)
    bundles = {
        STOCK: args.bundle or build(FOLDER / "-".join((STOCK, *formats)), str(stock_file()), formats),
        **({DECIDE: build(FOLDER / DECIDE)} if any(row.bundle == DECIDE for row in rows) else {}),
    }
    site.install_packages()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with PageEngine(bundles[STOCK], "wasm", formats[0]) as engine:
        facts = {**common.describe(NAME, engine), "format": args.format, "threads": None}
    state, questions = common.read_sample(bundles[STOCK])
    plan = Plan(
        state=common.shorten(state) if args.quick else state,
        questions=[*questions.values()][: QUICK_QUESTIONS if args.quick else None],
        prompt=Prompt(PromptSpec.from_manifest(Bundle.open(bundles[STOCK]).manifest)),
        rounds=args.rounds or (QUICK_ROUNDS if args.quick else ROUNDS),
    )
    # Beside what is linked into it: links do not go from one disk to another.
    with tempfile.TemporaryDirectory(prefix="run-", dir=FOLDER, ignore_cleanup_errors=True) as folder:
        site.write_site(Path(folder) / "site", bundles)
        measured = measure(rows, plan, Path(folder), args.resume)
    result = {**facts, "peers": site.versions(), **measured}
    common.publish(args, result, summarise(result), plot)
    return result


def choose(args: argparse.Namespace, formats: Sequence[str]) -> list[Subject]:
    """The rows that the arguments ask for."""
    every = args.threads or os.cpu_count() or 1
    threads = (every,) if args.quick or args.threads or every == 1 else (1, every)
    found = subjects(formats, DEFAULT_FORMAT, threads)
    if args.only:
        found = [one for one in found if any(text in one.key for text in args.only)]
    if not found:
        raise common.ArgumentError(f"--only {args.only}: no row has such a name.", only=args.only)
    return found


@dataclass(frozen=True)
class Plan:
    """What is asked: questions about a text, in so many rounds."""

    state: str
    questions: Sequence[Question]
    prompt: Prompt
    rounds: int

    def text(self, number: int) -> str:
        """The text with a beginning of its own: no cache holds anything of it."""
        return f"Ticket {4711 + 37 * number}. {self.state}"

    def ask(self, number: int, backwards: bool = False, most: int | None = None) -> dict[str, Any]:
        """What a page is asked: questions about a text, and the text."""
        state = self.text(number)
        head = self.prompt.head_text(state)
        cases = []
        for question in self.questions[:most]:
            listed = in_order(question, backwards)
            criterion = listed.criterion()
            text = head + self.prompt.tail_text(criterion)
            cases.append(Case(listed, head, text, self.prompt.label_ids(criterion)).to_dict())
        return {"state": state, "questions": cases}

    def digest(self, files: Sequence[Path]) -> str:
        """One short hash of what is asked, and of the code in `files`."""
        found = hashlib.sha256(json.dumps(self.ask(0)).encode())
        for file in files:
            found.update(file.read_bytes())
        return found.hexdigest()[:12]


def measure(rows: Sequence[Subject], plan: Plan, folder: Path, resume: Path | None = None) -> dict[str, Any]:
    """All rounds of all rows, by turns; what is in the journal `resume` is not done again.

    `folder` holds the site, and what browsers keep.
    """
    from playwright.sync_api import sync_playwright

    with ExitStack() as stack:
        journal = stack.enter_context(Journal(resume or folder / "journal"))
        server = stack.enter_context(StaticServer(folder / "site"))
        link = stack.enter_context(Link(server.port))
        playwright = stack.enter_context(sync_playwright())
        browsers = Browsers(playwright, link, folder, plan)
        digest = plan.digest(sorted(site.PAGE.iterdir()))
        found: dict[str, list[dict[str, Any]]] = {row.key: [] for row in rows}
        for number in range(plan.rounds):
            for place, row in enumerate(rows):
                key = f"{digest} {number} {row.key}"
                if key not in journal:
                    print(
                        f"round {number + 1} of {plan.rounds}, row {place + 1} of {len(rows)}: {row.key}",
                        file=sys.stderr,
                        flush=True,
                    )
                    journal.add(key, browsers.turn(row, number))
                found[row.key].append(journal[key])
        empty = browsers.empty_bytes()
    table = [summary(row, found[row.key]) for row in rows]
    compare(rows, table, found)
    left_out = [{**_blank(name, ""), "reason": reason} for name, reason in LEFT_OUT.items()]
    return {
        "criteria": len(plan.questions),
        "rounds": plan.rounds,
        "prompt_characters": len(plan.ask(0)["questions"][0]["text"]),
        "empty_page_bytes": empty,
        "rows": [*table, *left_out],
    }


class Browsers:
    """Visits subjects, each in a browser that keeps the files of all who have the same."""

    def __init__(self, playwright: Playwright, link: Link, folder: Path, plan: Plan) -> None:
        self._playwright = playwright
        self._link = link
        self._folder = folder
        self._plan = plan
        self._downloads: dict[str, int] = {}

    def turn(self, row: Subject, number: int) -> dict[str, Any]:
        """One round of a row: its figures, or the reason why there are none."""
        if row.needs_export and not export.is_there():
            return {"reason": f"there is no ONNX export of these weights: `{export.COMMAND}` makes it"}
        try:
            if row.files not in self._downloads:
                self._download(row)
            return self._turn(row, number)
        except Exception as error:
            # One of ours that fails is a fault to be seen, not a finding about a peer.
            if row.bundle is not None or not type(error).__module__.startswith("playwright."):
                raise
            return {"reason": str(error).splitlines()[0]}

    def _download(self, row: Subject) -> None:
        """The first visit, which is not timed."""
        before = self._link.received
        with visit(self._playwright, self._profile(row), self._link.url) as page:
            call(page, "open", self._opening(row, 0))
        self._downloads[row.files] = self._link.received - before

    def _turn(self, row: Subject, number: int) -> dict[str, Any]:
        before = self._link.received
        with visit(self._playwright, self._profile(row), self._link.url) as page:
            first = call(page, "open", self._opening(row, 2 * number))
            given = call(page, "ask", self._plan.ask(2 * number + 1))
            backwards = call(page, "ask", self._plan.ask(2 * number + 1, backwards=True))
            peak = peak_bytes(page)
        return {
            "reason": None,
            "open_ms": first["openMs"],
            "first_answer_ms": first["ms"],
            "all_answers_ms": given["ms"],
            "second_round_ms": backwards["ms"],
            "each_ms": given["eachMs"],
            "peak_bytes": peak,
            "download_bytes": self._downloads[row.files],
            "second_visit_bytes": self._link.received - before,
            "answers": given["answers"],
            "reversed": [one and one[::-1] for one in backwards["answers"]],
            "note": given["note"],
        }

    def _opening(self, row: Subject, number: int) -> dict[str, Any]:
        options = {**row.options, "threads": row.threads}
        return {"module": row.module, "options": options, **self._plan.ask(number, most=1)}

    def _profile(self, row: Subject) -> Path:
        return self._folder / row.files.replace(" ", "-")

    def empty_bytes(self) -> int | None:
        """What the process of an empty page holds."""
        with visit(self._playwright, self._folder / "empty", self._link.url) as page:
            return peak_bytes(page)


def summary(row: Subject, turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One row of the table, without the comparison."""
    blank = {**_blank(row.name, row.setting), "threads": row.threads, "debiased": row.debiased}
    reason = next((one["reason"] for one in turns if one["reason"]), None)
    if reason is not None:
        return {**blank, "reason": reason}
    pairs = [pair for one in turns for pair in zip(one["answers"], one["reversed"], strict=True)]
    both = [(_choice(given), _choice(back)) for given, back in pairs if given and back]
    peaks = [one["peak_bytes"] for one in turns]
    answered = sum(given is not None for given, _ in pairs) / len(pairs)
    return {
        **blank,
        **{name: statistics.median(one[name] for one in turns) for name in ("open_ms", *FIGURES)},
        "each_ms": [
            statistics.median(times) for times in zip(*(one["each_ms"] for one in turns), strict=False)
        ],
        "peak_bytes": None if None in peaks else max(peaks),
        "download_bytes": turns[0]["download_bytes"],
        "second_visit_bytes": max(one["second_visit_bytes"] for one in turns),
        "probabilities": row.probabilities,
        "answered": answered,
        "flip_rate": sum(a != b for a, b in both) / len(both) if both else None,
        "reason": None if answered else "none of its answers could be read",
        "note": turns[0]["note"],
        "ms": {name: [one[name] for one in turns] for name in FIGURES},
    }


def _blank(name: str, setting: str) -> dict[str, Any]:
    figures = ("open_ms", *FIGURES, "peak_bytes", "download_bytes", "second_visit_bytes")
    return {
        **{"name": name, "setting": setting, "threads": None, **dict.fromkeys(figures), "debiased": False},
        **dict.fromkeys(
            ("probabilities", "answered", "flip_rate", "drift", "reason", "note", "ms", "each_ms")
        ),
    }


def compare(
    rows: Sequence[Subject],
    table: Sequence[dict[str, Any]],
    found: Mapping[str, Sequence[Mapping[str, Any]]],
) -> None:
    """Add to each row of the table that read the same prompts how far its probabilities are from ours."""
    ours = next((row for row in rows if row.bundle == STOCK and not row.debiased), None)
    if ours is None:
        return
    for row, line in zip(rows, table, strict=True):
        same = row.bundle != DECIDE and not row.debiased and row.probabilities
        if not same or line["reason"] is not None:
            continue
        pairs = [
            pair
            for mine, theirs in zip(found[ours.key], found[row.key], strict=True)
            for pair in zip(mine["answers"], theirs["answers"], strict=True)
        ]
        apart = [max(abs(a - b) for a, b in zip(one, other, strict=True)) for one, other in pairs]
        line["drift"] = {
            "to": ours.key,
            "max": max(apart),
            "mean": statistics.fmean(apart),
            "same_choice": sum(_choice(one) == _choice(other) for one, other in pairs) / len(pairs),
        }


def _choice(probabilities: Sequence[float]) -> int:
    return max(range(len(probabilities)), key=probabilities.__getitem__)


def plot(result: Mapping[str, Any], path: Path) -> None:
    """Draw after which time each row had how many answers about a new text, all threads in use."""
    pyplot = common.plotting(NAME)

    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    most = max(row["threads"] or 0 for row in result["rows"])
    styles = {"typedecide": "o-", "wllama": "s--", "transformers.js": "^:"}
    for row in result["rows"]:
        if row["reason"] is None and row["threads"] == most and row["each_ms"]:
            counts = range(1, len(row["each_ms"]) + 1)
            label = f"{row['name']}: {row['setting']}"
            axes.plot(
                counts, [ms / 1e3 for ms in row["each_ms"]], styles[row["name"]], markersize=3, label=label
            )
    axes.set(xlabel="questions answered", ylabel="seconds", yscale="log")
    axes.set_title(f"answers about a new text, {most} threads, {result['processor']}", fontsize=10)
    figure.legend(loc="outside right upper", frameon=False, fontsize=7)
    common.save_plot(figure, path)


def summarise(result: Mapping[str, Any]) -> str:
    """The table."""
    head = ("first", "all", "again", "peak MB", "down MB", "flips", "drift")
    lines = [
        f"{NAME}: {result['criteria']} questions, {result['rounds']} rounds, prompts of about"
        f" {result['prompt_characters']} characters, {result['processor']}; times in ms",
        f"  {'':66}" + "".join(f"{name:>9}" for name in head),
    ]
    for row in result["rows"]:
        threads = f", {row['threads']} threads" if row["threads"] else ""
        name = ": ".join(filter(None, (row["name"], row["setting"]))) + threads
        lines.append(f"  {name:<66}{_cells(row)}  {row['reason'] or ''}".rstrip())
    return "\n".join(lines)


def _cells(row: Mapping[str, Any]) -> str:
    cells = [
        *("—" if row[name] is None else f"{row[name]:.0f}" for name in FIGURES),
        *(
            "—" if row[name] is None else f"{row[name] / 1e6:.0f}"
            for name in ("peak_bytes", "download_bytes")
        ),
        "—" if row["flip_rate"] is None else f"{row['flip_rate']:.0%}",
        "—" if row["drift"] is None else f"{row['drift']['max']:.3f}",
    ]
    return "".join(f"{cell:>9}" for cell in cells)
