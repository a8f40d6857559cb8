"""`python -m typedecide batch`: the same questions about every row of a table, on one machine or many.

Knows arguments and the terminal; `batch.py` does the work.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from typedecide import terminal
from typedecide.batch import Answerer, Batch, Job, Summary, here, journal_of
from typedecide.batch_tables import INPUTS, OUTPUTS, arrow, open_table
from typedecide.bundle import Bundle
from typedecide.cli_calibrate import given
from typedecide.errors import InvalidQuestionError, UnsupportedError
from typedecide.inputs import (
    InputError,
    add_asking_arguments,
    add_calibration_argument,
    explain,
    parse_asked,
    read_json,
    whole,
)
from typedecide.journal import Journal
from typedecide.options import Options, resolve
from typedecide.page import DEVICES

ENGINES = ("local", "page", "ray")

MOST_TOLD = 20
"""So many rejected rows are told; all of them are in their file."""

EXAMPLES = """examples:
  python -m typedecide batch tickets.csv --text message --questions questions.json --out answers.csv
  python -m typedecide batch tickets.parquet --questions questions.json --keep id --out answers.parquet
  python -m typedecide batch tickets.csv --questions questions.json --out answers.csv --engine ray --workers 8

The result has a row for each row that could be answered: its number, the columns kept, and for each question its
answer, confidence, the probability of each option, and where it is calibrated whether to abstain. What could not be
answered goes into a file beside it, with the reason; only a stray quote that hides where the next row begins ends the
reading. A run that was killed goes on where it was when it is started again; the journal beside the result makes that
possible, and can be deleted in the end.
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    command.add_argument("table", type=Path, metavar="TABLE", help=f"the rows: {', '.join(INPUTS)}")
    command.add_argument("--questions", required=True, metavar="FILE.json", help="the questions, by id")
    command.add_argument(
        "--text", default="text", metavar="COLUMN", help="the column that holds the texts (default: text)"
    )
    command.add_argument(
        "--keep", action="append", default=[], metavar="COLUMN", help="a column to copy; may be repeated"
    )
    command.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help=f"the result: {' or '.join(OUTPUTS)}"
    )
    command.add_argument(
        "--bundle", type=Path, default=Path("dist"), metavar="DIST", help="the bundle folder (default: dist)"
    )
    command.add_argument("--format", help="weight format (default: the bundle's own)")
    add_asking_arguments(command)
    add_calibration_argument(command)
    command.add_argument(
        "--engine",
        choices=ENGINES,
        default=ENGINES[0],
        help="local: this process (default); page: the page's engine in headless Chromium, whose file is that of the"
        " page's Table tab byte for byte; ray: the cluster that RAY_ADDRESS names, or this machine's processors",
    )
    command.add_argument("--device", choices=DEVICES, help="for page: what it runs on (default: auto)")
    command.add_argument(
        "--workers", type=whole(1), metavar="N", help="for ray: processes with an engine each"
    )
    command.add_argument(
        "--threads", type=whole(1), metavar="N", help="processor threads (of each worker, for ray)"
    )


def run(args: argparse.Namespace) -> None:
    """Answer every row, write the result, and say what came of it."""
    if args.workers is not None and args.engine != "ray":
        raise InputError(f"--workers {args.workers}: only --engine ray has workers.", workers=args.workers)
    if args.device is not None and args.engine != "page":
        raise InputError(f"--device {args.device}: only --engine page has devices.", device=args.device)
    if args.out.suffix.lower() not in OUTPUTS:
        raise InputError(f"{args.out}: its name must end in {' or '.join(OUTPUTS)}.", path=str(args.out))
    if args.out.resolve() == args.table.resolve():
        raise InputError(f"{args.out}: the result would take the place of the table.", path=str(args.out))
    if args.out.suffix.lower() == ".parquet":
        arrow()  # Better now than after hours of work.
    table = open_table(args.table, args.text, args.keep)
    job = read_job(args)
    try:
        plan = job.plan()
    except InvalidQuestionError as error:
        raise InputError(f"{args.questions}: {explain(error)}", **error.data) from error
    except ImportError as error:
        raise UnsupportedError(
            f"{error}. This needs `pip install typedecide[native]`.", package=error.name
        ) from error
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with Journal(journal_of(args.out)) as journal:
        batch = Batch(job, plan, table, args.out, journal)
        for _ in terminal.track(batch.run(answerer(args, job)), batch.pending, "Answering"):
            pass
        show(batch.finish())


def read_job(args: argparse.Namespace) -> Job:
    """What the arguments ask for."""
    bundle = Bundle.open(args.bundle)
    how = resolve(bundle.manifest, "native", args.orderings, Options(readout=args.readout))
    return Job(
        bundle=args.bundle.resolve(),
        questions=parse_asked(args.questions, read_json(args.questions)),
        format=args.format,
        readout=args.readout,
        orderings=args.orderings,
        calibration=given(args.calibration, bundle, args.format, how),
        threads=args.threads,
        device=(args.device or "auto") if args.engine == "page" else "native",
    )


def answerer(args: argparse.Namespace, job: Job) -> Answerer:
    """What answers."""
    if args.engine != "ray":
        return here(job)
    from typedecide.batch_ray import on_ray

    return on_ray(job, args.workers)


def show(summary: Summary) -> None:
    """Say what came of it."""
    print(f"wrote {summary.out}: {summary.written} rows")
    for one in summary.rejected[:MOST_TOLD]:
        column = "" if one["column"] is None else f", column {one['column']!r}"
        print(f"row {one['row']}{column}: {one['reason']}", file=sys.stderr)
    if summary.rejected:
        print(f"{len(summary.rejected)} rows could not be answered: see {summary.rejects}", file=sys.stderr)
