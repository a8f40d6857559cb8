"""`python -m bench.datasets`: list the data sets, show records of one, write a suite to a file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.datasets.mixes import SUITES, describe, load, names, suite
from typedecide.errors import TypedecideError

WIDTH = 160
"""Of the table of sets, where it is not written to a terminal."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m bench.datasets", description=__doc__)
    commands = top.add_subparsers(required=True, metavar="command")
    command = commands.add_parser("list", help="every set: task, licence, use, source")
    command.set_defaults(func=_list)
    command = commands.add_parser("show", help="print records of a set, as JSON lines")
    command.add_argument("name", choices=names())
    command.add_argument("--split", choices=("train", "valid", "test"), default="test", help="default: test")
    command.add_argument("--limit", type=int, default=3, metavar="N", help="how many (default: 3)")
    command.add_argument("--seed", type=int, default=0, help="default: 0")
    command.set_defaults(func=_show)
    command = commands.add_parser("export", help="write a suite's records to a file, as JSON lines")
    command.add_argument("suite", choices=tuple(SUITES))
    command.add_argument("file", type=Path)
    command.add_argument(
        "--limit", type=int, default=300, metavar="N", help="records per task (default: 300)"
    )
    command.add_argument("--seed", type=int, default=0, help="default: 0")
    command.set_defaults(func=_export)
    return top


def _list(_: argparse.Namespace) -> None:
    columns = ("name", "use", "held out", "licence", "source", "about")
    table = Table(*columns, title="Data sets")
    for row in describe():
        table.add_row(*(row[column] for column in columns))
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table)


def _show(args: argparse.Namespace) -> None:
    for record in load(args.name, args.split, args.limit, args.seed):
        print(json.dumps(record.to_dict(), ensure_ascii=False))


def _export(args: argparse.Namespace) -> None:
    found = suite(args.suite, args.limit, args.seed)
    with args.file.open("w", encoding="utf-8", newline="\n") as out:
        for records in found.values():
            out.writelines(json.dumps(record.to_dict(), ensure_ascii=False) + "\n" for record in records)
    counts = ", ".join(f"{task} {len(records)}" for task, records in found.items())
    print(f"{args.file}: {counts}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit status."""
    args = parser().parse_args(arguments)
    try:
        args.func(args)
    except TypedecideError as error:
        print(f"error: {error.code}: {error.message}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
