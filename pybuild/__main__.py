"""`python -m pybuild …`: the build system's command line."""

from __future__ import annotations

import argparse
import sys

from pybuild import bundle, serve, tune, verify
from typedecide.errors import TypedecideError


def main(argv: list[str] | None = None) -> int:
    """Run a command; exit status 2 for bad input, with a message that says what to do."""
    parser = argparse.ArgumentParser(
        prog="pybuild", description="Build, verify and serve typedecide bundles."
    )
    subparsers = parser.add_subparsers(required=True, metavar="command")
    for module in (bundle, verify, serve, tune):
        module.add_parser(subparsers)
    args = parser.parse_args(argv)
    try:
        status: int = args.func(args)
        return status
    except TypedecideError as error:
        print(f"pybuild: {error.code}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
