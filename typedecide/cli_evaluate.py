"""`python -m typedecide evaluate`: how far to trust a model, measured on labelled decisions.

Knows arguments and files; `evaluation.py` does the work, `tables.py` the figures, `report.py` shows them. Ready-made
suites, baselines, and models that are built first come from entry points: the source tree of the project has them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import entry_points
from pathlib import Path
from random import Random
from typing import Any, cast

import typedecide
from typedecide import report, tables
from typedecide.errors import UnsupportedError
from typedecide.evaluation import (
    Baseline,
    Engine,
    Evaluation,
    Evaluator,
    Log,
    Settings,
    Shared,
    Whole,
    WholeByOne,
)
from typedecide.inputs import InputError, add_asking_arguments, parse_asked, read_json, whole
from typedecide.labelled import Labelled, read_file
from typedecide.results import DecisionEngine
from typedecide.terminal import say, track

SUITES, BASELINES, MODELS = "typedecide.suites", "typedecide.baselines", "typedecide.models"
"""Groups of entry points: `(limit, seed) -> list[Labelled]`, `() -> Baseline`, `(name, format) -> bundle folder`."""

MORE_ENGINES = "typedecide.engines"
"""Another group: `(bundle folder, name of its model) -> Engine`."""

ENGINES = ("native", "page", "torch")

SUITE_LIMIT = 300
"""Texts of each task of a suite, where no limit is given."""

EXAMPLES = """examples:
  python -m typedecide evaluate tickets.csv --text message --questions questions.json
  python -m typedecide evaluate tickets.jsonl --bundle dist --report report.html --json results.json
  python -m typedecide evaluate --suite heldout --limit 100 --json -
  python -m typedecide evaluate --suite heldout --model smollm2-135m-instruct --format fp32 --resume run.jsonl

data: a table (.csv, .tsv) has a header; --text names the column of the texts, and for each id in the questions a column
of that name holds the true answer (the option's name; yes or no; blank: none). JSON lines have one text a line:
  {"state": "My card …", "questions": {"refund": {"type": "noul", "criteria": "…"}}, "gold": {"refund": "yes"}}
  {"state": "My card …", "question": {"type": "choice", "criteria": ["billing", "other"]}, "gold": "billing"}
with "task", "family", "domain" and "split" where wanted.
"""


def add_data_arguments(arguments: argparse._ActionsContainer, suite: str) -> None:
    """What `read_data` reads; `suite` is the example of one."""
    add = arguments.add_argument
    add("data", nargs="*", type=Path, metavar="DATA", help="labelled decisions: .csv, .tsv, .jsonl")
    add("--text", metavar="COLUMN", help="the column of a table that holds the texts")
    add("--questions", metavar="FILE.json", help="what is asked about each text of a table, by id")
    add("--suite", metavar="NAME", help=f"a ready-made suite, such as {suite}")
    add(
        "--limit",
        type=whole(1),
        metavar="N",
        help=f"texts drawn of each file (default: all) or task of a suite (default: {SUITE_LIMIT})",
    )
    add("--seed", type=int, default=0, help="of all that is drawn (default: 0)")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    add_data_arguments(command.add_argument_group("data"), "heldout")
    model = command.add_argument_group("model")
    model.add_argument(
        "--bundle",
        type=Path,
        action="append",
        metavar="DIST",
        help="a bundle; may be repeated (default: dist)",
    )
    model.add_argument(
        "--model", action="append", metavar="NAME", help="a model to build a bundle of first; may be repeated"
    )
    model.add_argument("--format", help="weight format (default: each bundle's own)")
    model.add_argument(
        "--engine",
        choices=ENGINES,
        default=ENGINES[0],
        help="the bundle in Python (native, the default) or in headless Chromium (page), or the --model in PyTorch,"
        " in fp32, on a GPU where there is one (torch)",
    )
    model.add_argument("--threads", type=whole(1), metavar="N", help="processor threads")
    add_asking_arguments(model)
    checks = command.add_argument_group("checks and results")
    checks.add_argument(
        "--full", action="store_true", help="complete prompts for all texts and not for a sample; slow"
    )
    checks.add_argument(
        "--baselines",
        default="all",
        metavar="all|none|NAME,…",
        help="what to compare with (default: all that are installed)",
    )
    checks.add_argument("--report", type=Path, metavar="FILE.html", help="write a page with tables and plots")
    checks.add_argument("--json", metavar="FILE", help="write the result; - prints it and nothing else")
    checks.add_argument(
        "--resume", type=Path, metavar="FILE", help="keep what is finished in a file, and go on from there"
    )


def run(args: argparse.Namespace) -> None:
    """Evaluate, and show what came out."""
    if args.report is not None:
        report.require_plots()
    records, unlabelled = read_data(args)
    baselines, missing = load_baselines(args.baselines)
    settings = Settings(args.readout, args.orderings, args.full, args.seed)
    bundles = find_bundles(args)
    found = []
    with Log(args.resume) as log:
        for bundle, name in bundles:
            with (
                open_engine(args, bundle, name) as engine,
                open_whole(args, engine, settings) as whole_prompts,
            ):
                evaluator = Evaluator(engine, records, settings, log, baselines, whole_prompts)
                for _ in track(evaluator.run(), evaluator.pieces, engine.info["model"]["name"]):
                    pass
                found.append(evaluator.result)
    about = {name: baseline.about for name, baseline in baselines.items()}
    data = {
        "texts": len(records),
        "decisions": sum(len(record.questions) for record in records),
        "unlabelled": unlabelled,
        "files": [str(path) for path in args.data],
        "suite": args.suite,
    }
    result = {
        **summarise(found),
        "baselines": about,
        "baselines_missing": missing,
        "data": data,
        "run": describe(args),
    }
    deliver(args, result)


def read_data(args: argparse.Namespace) -> tuple[list[Labelled], int]:
    """The records that the arguments ask for, and how many questions without a true answer were left out."""
    if not args.data and args.suite is None:
        raise InputError("There is nothing to evaluate on: give files, or --suite NAME.")
    if args.questions is not None and args.text is None:
        raise InputError("--questions: a table's texts need --text COLUMN too.", questions=args.questions)
    questions = None if args.questions is None else parse_asked(args.questions, read_json(args.questions))
    records: list[Labelled] = []
    unlabelled = 0
    for path in args.data:
        read = read_file(path, args.text, questions)
        unlabelled += read.unlabelled
        records += draw(read.records, args.limit, args.seed)
    if args.suite is not None:
        suite = registered(SUITES, args.suite, "--suite")
        records += suite(args.limit or SUITE_LIMIT, args.seed)
    return records, unlabelled


def draw(records: Sequence[Labelled], limit: int | None, seed: int) -> list[Labelled]:
    """At most `limit` of the records, drawn at random, in the order of the file."""
    if limit is None or limit >= len(records):
        return [*records]
    return [records[i] for i in sorted(Random(seed).sample(range(len(records)), limit))]


def registered(group: str, name: str, argument: str) -> Any:
    """What is offered in a group of entry points under a name.

    Raises:
        InputError: there is no such name.
        UnsupportedError: its module is not here. A wheel of typedecide names what only the source tree has.
    """
    offered = {one.name: one for one in entry_points(group=group)}
    if name not in offered:
        known = ", ".join(offered) or "none"
        raise InputError(f"{argument} {name}: there is no such thing; known: {known}.", name=name)
    try:
        return offered[name].load()
    except ImportError as error:
        raise UnsupportedError(
            f"{argument} {name}: {error}. It comes with the source tree of typedecide: run this in the tree's root,"
            " after `make setup` there.",
            name=name,
            package=error.name,
        ) from error


def load_baselines(wanted: str) -> tuple[dict[str, Baseline], dict[str, str]]:
    """The baselines to compare with by name, and of those that cannot be had here, why."""
    if wanted == "none":
        return {}, {}
    every = wanted == "all"
    names = [one.name for one in entry_points(group=BASELINES)] if every else wanted.split(",")
    found: dict[str, Baseline] = {}
    missing: dict[str, str] = {}
    for name in sorted(names):
        try:
            found[name] = registered(BASELINES, name, "--baselines")()
        except UnsupportedError as error:
            if not every:
                raise
            missing[name] = error.message
    return found, missing


def find_bundles(args: argparse.Namespace) -> list[tuple[Path, str | None]]:
    """The bundles that the arguments name; those of models are built, and the model's name is with them."""
    if args.engine == "torch":
        if args.bundle or not args.model or args.format not in (None, "fp32"):
            raise InputError("--engine torch takes --model NAME, no --bundle, and no --format but fp32.")
        args.format = "fp32"
    folders = args.bundle or ([] if args.model else [Path("dist")])
    found: list[tuple[Path, str | None]] = [(folder, None) for folder in folders]
    for name in args.model or ():
        found.append((registered(MODELS, "build", "--model")(name, args.format), name))
    return found


def open_engine(args: argparse.Namespace, bundle: Path, model: str | None) -> Engine:
    """The engine that the arguments ask for."""
    if args.engine == "torch":
        engine: Engine = registered(MORE_ENGINES, "torch", "--engine")(bundle, model)
        return engine
    try:
        if args.engine == "native":
            from typedecide.native import NativeEngine

            return NativeEngine(bundle, args.format, threads=args.threads)
        from typedecide.page import PageEngine

        return PageEngine(bundle, format=args.format, threads=args.threads)
    except ImportError as error:
        raise UnsupportedError(
            f"{error}. This engine needs `pip install typedecide[{args.engine}]`.", package=error.name
        ) from error


@contextmanager
def open_whole(args: argparse.Namespace, engine: Engine, settings: Settings) -> Iterator[Whole]:
    """The path that the engine is compared with: complete prompts, in batches natively, one by one in the page; or,
    where the engine itself runs complete prompts, the prefix-sharing one."""
    if args.engine == "page" or engine.bundle.stock:
        yield WholeByOne(cast(DecisionEngine, engine), engine.bundle, settings)
        return
    from typedecide.batches import WholePrompts
    from typedecide.native import NativeEngine

    if args.engine == "torch":
        with NativeEngine(engine.bundle.root, args.format, threads=args.threads, calibration=False) as native:
            yield Shared(native, settings)
        return
    way = (settings.readout, settings.orderings)
    with WholePrompts(engine.bundle, args.format, *way, args.threads) as whole_prompts:
        yield whole_prompts


def summarise(found: Sequence[Evaluation]) -> dict[str, Any]:
    """The figures of all models."""
    rows: list[dict[str, Any]] = []
    totals: list[dict[str, Any]] = []
    groups: dict[str, list[dict[str, Any]]] = {name: [] for name in tables.GROUPS}
    models = []
    for evaluation in found:
        decisions = evaluation.decisions
        info = evaluation.info
        model = {"model": info["model"]["name"], "format": info["format"], "readout": evaluation.readout}
        if not decisions:
            failure = evaluation.failures[0]
            raise UnsupportedError(
                f"{model['model']} could answer none of {len(evaluation.failures)} decisions; the first one,"
                f" {failure.source}, {failure.question}: {failure.error.message}",
                **failure.error.data,
            )
        say(f"{model['model']}: figures and their intervals")
        rows += tables.rows_by_task(model, decisions)
        totals += tables.totals(model, decisions)
        for name in groups:
            groups[name] += tables.rows_by(model, decisions, name)
        models.append(
            {
                **model,
                "device": info["candidate"],
                "threads": info["threads"],
                "agreement": tables.agreement(evaluation),
                "latency": tables.latency(evaluation.timings),
                "curves": tables.curves(decisions),
                "failures": [
                    {"source": one.source, "question": one.question, "message": one.error.message}
                    for one in evaluation.failures
                ],
            }
        )
    return {"rows": rows, "totals": totals, "groups": groups, "models": models}


def describe(args: argparse.Namespace) -> dict[str, Any]:
    """What ran, where and when."""
    return {
        "typedecide": typedecide.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "engine": args.engine,
        "orderings": args.orderings or "auto",
        "limit": args.limit,
        "seed": args.seed,
    }


def deliver(args: argparse.Namespace, result: Mapping[str, Any]) -> None:
    """Write and print what is wanted."""
    text = json.dumps(result, indent=1, allow_nan=False) + "\n"
    if args.report is not None:
        write(args.report, report.page(result))
    if args.json == "-":
        sys.stdout.write(text)
        return
    report.show(result)
    if args.json is not None:
        write(Path(args.json), text)
    for path in filter(None, (args.report, args.json)):
        print(f"wrote {path}")


def write(path: Path, text: str) -> None:
    """Write a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}.", path=str(path)) from error
