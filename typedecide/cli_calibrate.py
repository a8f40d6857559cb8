"""`python -m typedecide calibrate`: temperatures and a threshold for abstaining, from labelled decisions.

Knows arguments and files; `fitting.py` does the work, `calibration.py` says what the document means.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typedecide import __version__, terminal
from typedecide.bundle import Bundle
from typedecide.calibration import SCHEMA, Calibrator, Given
from typedecide.cli_evaluate import add_data_arguments, read_data, write
from typedecide.errors import UnsupportedError
from typedecide.evaluation import UNANSWERABLE, Engine
from typedecide.fitting import Fitted, Sample, fit
from typedecide.inputs import InputError, add_asking_arguments, read_json, whole
from typedecide.labelled import Labelled
from typedecide.options import Asking, Options, resolve

ALPHA = 0.1

EXAMPLES = """examples:
  python -m typedecide calibrate tickets.jsonl --out calibration.json
  python -m typedecide calibrate tickets.csv --text message --questions questions.json --alpha 0.05 --out c.json
  python -m typedecide decide --state ticket.txt --questions questions.json --calibration calibration.json
  python -m pybuild bundle --calibration calibration.json

data: as for evaluate. Never the data that figures are reported on.
"""


@dataclass(frozen=True)
class Answers:
    """What an engine made of the records: samples for the fit, and decisions that it could not make."""

    samples: list[Sample]
    failures: list[str]


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    add_data_arguments(command, "valid")
    command.add_argument(
        "--bundle", type=Path, default=Path("dist"), metavar="DIST", help="the bundle folder (default: dist)"
    )
    command.add_argument("--format", help="weight format (default: the bundle's own)")
    command.add_argument("--threads", type=whole(1), metavar="N", help="processor threads")
    add_asking_arguments(command)
    command.add_argument(
        "--alpha",
        type=error_rate,
        default=ALPHA,
        help="the share of a text's questions that may be answered wrong; the others abstain"
        f" (default: {ALPHA})",
    )
    command.add_argument("--out", type=Path, required=True, metavar="FILE", help="where to write it")
    command.add_argument("--json", action="store_true", help="print the document, and no table")


def error_rate(text: str) -> float:
    """A number above 0 and below 1."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"not a number above 0 and below 1: {text!r}")
    return value


def run(args: argparse.Namespace) -> None:
    """Answer the data, fit, write the document, and show it."""
    records, _ = read_data(args)
    bundle = Bundle.open(args.bundle)
    how = resolve(bundle.manifest, "native", args.orderings, Options(readout=args.readout))
    with open_uncalibrated(args) as engine:
        found = answer(engine, records, how)
    fitted = fit(found.samples, args.alpha, args.seed)
    if not fitted.kinds:
        reasons = "; ".join(f"{kind}: {reason}" for kind, reason in fitted.left_out.items())
        raise InputError(f"Nothing can be calibrated: {reasons}.", left_out=fitted.left_out)
    document = {
        "schema": SCHEMA,
        "typedecide": __version__,
        "model": {name: bundle.model[name] for name in ("name", "origin", "shallow") if name in bundle.model},
        "format": bundle.format(args.format).name,
        "readout": how.readout,
        "orderings": how.orderings if how.readout == "labels" else None,
        "budget": how.budget if how.readout == "labels" else None,
        "prompt": dict(bundle.prompt),
        "kinds": fitted.kinds,
        "abstain": fitted.abstain,
        "seed": args.seed,
    }
    Calibrator(document, bundle.manifest, document["format"])  # What is written can be read.
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write(args.out, text)
    if args.json:
        print(text, end="")
    else:
        show(document, fitted)
        print(f"wrote {args.out}")
    for failure in found.failures:
        print(f"left out: {failure}", file=sys.stderr)


def open_uncalibrated(args: argparse.Namespace) -> Engine:
    """The native engine, its answers as the model gives them."""
    try:
        from typedecide.native import NativeEngine
    except ImportError as error:
        raise UnsupportedError(
            f"{error}. This needs `pip install typedecide[native]`.", package=error.name
        ) from error
    return NativeEngine(args.bundle, args.format, threads=args.threads, calibration=False)


def answer(engine: Engine, records: Sequence[Labelled], how: Asking) -> Answers:
    """The answers to all records, one question at a time where a record has one that cannot be answered."""
    found = Answers([], [])
    orderings = how.orderings if how.readout == "labels" else None
    for number, record in enumerate(terminal.track(records, len(records), "Answering")):
        asked = [record.questions]
        while asked:
            questions = asked.pop(0)
            try:
                done = engine.decide(record.state, questions, orderings, readout=how.readout)
            except UNANSWERABLE as error:
                if len(questions) == 1:
                    found.failures.append(f"{record.source}, {next(iter(questions))}: {error.message}")
                else:
                    asked += [{key: question} for key, question in questions.items()]
                continue
            for key, one in done.answers.items():
                gold = questions[key].names.index(record.gold[key])
                found.samples.append(Sample(number, questions[key].kind, one.answer.logits, gold))
    return found


def show(document: Mapping[str, Any], fitted: Fitted) -> None:
    """Print what was found, kind by kind, and what the threshold does."""
    rich = terminal.rich()
    console = rich.console.Console()
    model, abstain = document["model"]["name"], document["abstain"]
    table = rich.table.Table(title=f"{model}, {document['format']}, {document['readout']} readout")
    table.add_column("kind")
    for heading in ("answers", "temperature", "NLL before", "after", "ECE before", "after"):
        table.add_column(heading, justify="right", no_wrap=True)
    for kind, one in document["kinds"].items():
        figures = (f"{one[name]:.3f}" for name in ("nll_before", "nll_after", "ece_before", "ece_after"))
        kept = f"{one['temperature']:.3f}" if one["temperature"] != 1 else "1 (none helped)"
        table.add_row(kind, str(one["n"]), kept, *figures)
    console.print(table)
    lines = [f"{kind}: not calibrated: {reason}." for kind, reason in fitted.left_out.items()]
    if abstain["threshold"] == 1:
        lines.append(
            f"No threshold keeps the error rate of {abstain['alpha']:g} on {abstain['texts']} texts: all abstain."
        )
    else:
        lines.append(
            f"Abstains at a probability of {abstain['threshold']:.3f} and below: of {abstain['n']} answers about"
            f" {abstain['texts']} other texts {abstain['coverage']:.1%} are given, {abstain['error'] or 0:.1%} of them"
            f" wrong; {abstain['risk']:.1%} of all are given and wrong (at most {abstain['alpha']:.1%} is to be"
            " expected of such texts)."
        )
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)


def given(file: str | None, bundle: Bundle, format: str | None, how: Asking) -> Given:
    """What an engine is given for `--calibration FILE|none`; InputError where the file does not serve what is asked."""
    if file is None:
        return None
    if file == "none":
        return False
    document = read_json(file)
    try:
        Calibrator(document, bundle.manifest, bundle.format(format).name).require(how)
    except UnsupportedError as error:
        raise InputError(f"{file}: {error.message}", **error.data) from error
    checked: Mapping[str, Any] = document
    return checked
