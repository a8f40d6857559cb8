"""`python -m bench NAME`: run one benchmark, in headless Chromium or natively; without a name, run them all."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence

from bench import (
    common,
    compat,
    faults,
    flips,
    limit,
    load,
    logit_cost,
    main_thread,
    memory,
    packing,
    peers,
    report,
    selftest,
    shallow_quality,
    shared_check,
    speed,
    suite,
)
from typedecide.errors import TypedecideError

BENCHES = (
    *(shared_check, logit_cost, packing, speed, shallow_quality, flips, memory, main_thread, compat, faults),
    load,
    limit,
    peers,
    selftest,
)

_EPILOG = """Each run prints its figures and writes bench/results/NAME-DEVICE-FORMAT.json, with processor, versions,
date and its own command; most draw a plot beside it. The bundle is built when it is missing. Without a benchmark's name
everything that has results runs, one after another, which takes hours, and report, README and plots are brought up to
date, as `python -m bench.report` does by itself. `bench/device.sh` runs some of them on a machine with a GPU.

examples:
  python -m bench shared_check --device wasm --format fp32 --json -
  python -m bench shared_check --device webgpu --format fp32 --layers 4
  python -m bench logit_cost --device wasm --format int8
  python -m bench packing --device wasm --format fp32 --json -
  python -m bench speed --device wasm --json -
  python -m bench shallow_quality --limit 60 --resume build/shallow_quality.jsonl
  python -m bench flips --device native --json -
  python -m bench memory --device wasm --json -
  python -m bench main_thread --device wasm
  python -m bench compat --device native --format int8
  python -m bench faults
  python -m bench load --mbits 50
  python -m bench limit --device wasm --format fp32
  python -m bench selftest --device webgpu --format fp16 --layers 4
  python -m bench.peers.export && python -m bench peers --resume build/peers.jsonl
  python -m bench
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="python -m bench",
        description="Benchmarks of the page's engine in headless Chromium, and of the native one.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="benchmark", metavar="[benchmark]")
    for module in BENCHES:
        about = (module.__doc__ or "").split("\n\n")[0]
        command = commands.add_parser(
            module.NAME,
            help=about,
            description=module.__doc__,
            epilog=_EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        common.add_arguments(command, module.DEVICES)
        module.add_arguments(command)
        command.set_defaults(func=module.run)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark, or all; gives the exit status: 1 when one failed, 2 for arguments that do not fit together."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    args = parser().parse_args(given)
    if args.benchmark is None:
        status = suite.run()
        report.write(report.read_results())
        return status
    args.command = shlex.join(["python", "-m", "bench", *given])
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
