"""What runs on the device, and for how long at most: one benchmark after another, each a process of its own."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import common
from pybuild.sources import DEFAULT_MODEL

MINUTES = 8.0
"""All parts together, from the start of unpacking."""

LEAST_S = 10
"""A part that has less than this left is not begun."""

TINY = "tiny"
"""The model of a trial package."""

SHALLOW = {DEFAULT_MODEL: (15, 22), TINY: (2,)}
"""Layers that texts go through in the bundles that `speed` compares with the whole model's."""

PACKED = {DEFAULT_MODEL: "int8", TINY: "fp32"}
"""The format of those bundles."""


@dataclass(frozen=True)
class Part:
    """One benchmark: its name, its arguments, and the seconds that it may take."""

    name: str
    arguments: tuple[str, ...]
    limit_s: int


def parts(model: str, minutes: float = MINUTES) -> list[Part]:
    """What runs, the most telling first: on bundles of `model` that are under build/bench as they are.

    With more or less time than MINUTES each part gets as much more or less.
    """
    tiny = model == TINY
    webgpu = ("--device", "webgpu", "--built", *(("--quick",) if tiny else ()))
    plain = (*webgpu, *(("--bundle", str(common.BUNDLES / f"{TINY}-fp32")) if tiny else ()))
    counts = ("--short", "--questions", "2") if tiny else ("--questions", "1", "4", "11")
    few = ("--criteria", "2") if tiny else ()
    lengths = ("256",) if tiny else ("128", "512", "1024")
    depths = ("--model", model, "--k", *map(str, SHALLOW[model]), "--rounds", "3", "--prefix", *lengths)
    chosen = [
        Part("shared_check", ("shared_check", *plain, "--format", "fp32", *few), 50),
        Part("selftest-fp32", ("selftest", *plain, "--format", "fp32"), 100),
        Part("selftest-fp16", ("selftest", *plain, "--format", "fp16"), 70),
        Part("packing", ("packing", *plain, "--format", "fp32", *counts), 90),
        Part("speed", ("speed", *webgpu, "--format", PACKED[model], *depths), 100),
    ]
    return [replace(part, limit_s=round(part.limit_s * minutes / MINUTES)) for part in chosen]


def budget(chosen: Sequence[Part], minutes: float) -> str:
    """The time budget as a table."""
    total = sum(part.limit_s for part in chosen)
    rows = [f"  {part.name:<14}{part.limit_s:>4} s" for part in chosen]
    left = round(60 * minutes - total)
    rest = f"{left} s of {minutes:g} minutes are left for unpacking and the browser's start"
    return "\n".join(["time budget:", *rows, f"  {'together':<14}{total:>4} s; {rest}"])


def run_parts(
    chosen: Sequence[Part],
    results: Path,
    deadline: float,
    note: Callable[[Sequence[Mapping[str, Any]]], None],
) -> list[dict[str, Any]]:
    """Run the parts in the folder `results`, which their results and logs go into.

    Args:
        deadline: on the clock of `time.time`; a part gets what is left, and is left out where that is little.
        note: told all outcomes so far after each part.
    """
    done: list[dict[str, Any]] = []
    for number, part in enumerate(chosen, 1):
        limit = min(part.limit_s, int(deadline - time.time()))
        # A name of its own, so that both formats of a benchmark are kept, as `python -m bench` names its results.
        file = f"{part.arguments[0]}-webgpu-{part.arguments[part.arguments.index('--format') + 1]}.json"
        command = ["python", "-m", "bench", *part.arguments, "--json", file]
        told = {"name": part.name, "command": shlex.join(command), "file": file, "limit_s": max(0, limit)}
        print(f"[{number}/{len(chosen)}] {part.name}, {max(0, limit)} s at most", flush=True)
        if limit < LEAST_S:
            done.append({**told, "status": "left out", "seconds": 0.0})
        else:
            began = time.monotonic()
            status = run_one([sys.executable, *command[1:]], results, part.name, limit)
            done.append({**told, "status": status, "seconds": time.monotonic() - began})
            print((results / f"{part.name}.txt").read_text("utf-8").rstrip(), flush=True)
        print(f"[{number}/{len(chosen)}] {done[-1]['status']} after {done[-1]['seconds']:.0f} s", flush=True)
        note(done)
    return done


def run_one(command: Sequence[str], folder: Path, name: str, limit_s: float) -> str:
    """Run a command, its output in NAME.txt and what it says meanwhile in NAME.log; gives how it ended."""
    with (folder / f"{name}.txt").open("wb") as output, (folder / f"{name}.log").open("wb") as log:
        # A process group of its own, so that all that it starts ends with it.
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=log, start_new_session=True
        )
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return "too slow"
        finally:
            _end(process)
    return "done" if status == 0 else "failed"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
            return
