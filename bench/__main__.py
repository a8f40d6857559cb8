"""`python -m bench NAME`: run one benchmark in the page's engine, in headless Chromium."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench import common, logit_cost, packing, shared_check
from typedecide.errors import TypedecideError

BENCHES = (shared_check, logit_cost, packing)

_EPILOG = """Each run prints its figures and writes bench/results/NAME-DEVICE-FORMAT.json, with processor, versions and
date. The bundle is built when it is missing.

examples:
  python -m bench shared_check --device wasm --format fp32 --json -
  python -m bench shared_check --device webgpu --format fp32 --layers 4
  python -m bench logit_cost --device wasm --format int8
  python -m bench packing --device wasm --format fp32 --json -
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="python -m bench",
        description="Benchmarks of the page's engine, in headless Chromium.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(required=True, metavar="benchmark")
    for module in BENCHES:
        about = (module.__doc__ or "").split("\n\n")[0]
        command = commands.add_parser(
            module.NAME,
            help=about,
            description=module.__doc__,
            epilog=_EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        common.add_arguments(command)
        module.add_arguments(command)
        command.set_defaults(func=module.run)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark; gives the exit status: 1 when it failed, 2 for arguments that do not fit together."""
    args = parser().parse_args(arguments)
    try:
        args.func(args)
    except common.ArgumentError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 2
    except TypedecideError as error:
        print(f"error: {error.code}: {error.message}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
