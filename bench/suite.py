"""How long does it take to measure everything again, and what of it failed?

`make bench` runs all of this: every benchmark on the device and in the format that its question is about, quick ones
first, each in a process of its own, also after one has failed; then it writes the report.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typedecide
from bench import common

NAME = "suite"

TINY = ("--bundle", "build/bench/tiny-pointer")
"""For what is about the machinery, where WebGPU may run on the processor."""

SUITE: tuple[tuple[str, ...], ...] = (
    ("bench.tiny",),
    ("bench", "shared_check", "--device", "wasm", "--format", "fp32"),
    ("bench", "shared_check", "--device", "webgpu", "--format", "fp32", "--layers", "4"),
    ("bench", "selftest", "--device", "wasm", "--format", "fp32"),
    ("bench", "selftest", "--device", "webgpu", "--format", "fp32", *TINY),
    ("bench", "logit_cost", "--device", "wasm", "--format", "int8"),
    ("bench", "flips", "--device", "native", "--format", "fp32"),
    ("bench", "main_thread", "--device", "wasm", "--format", "int8"),
    ("bench", "load", "--device", "wasm", "--format", "int8"),
    ("bench", "faults"),
    ("bench", "compat", "--device", "native", "--format", "int8"),
    ("bench", "compat", "--device", "wasm", "--format", "int8", "--layers", "4"),
    ("bench", "limit", "--device", "wasm", "--format", "fp32"),
    ("bench", "packing", "--device", "wasm", "--format", "fp32"),
    ("bench", "packing", "--device", "wasm", "--format", "int8"),
    ("bench", "memory", "--device", "webgpu", "--format", "fp32", *TINY),
    ("bench", "memory", "--device", "wasm", "--format", "int8"),
    ("bench", "speed", "--device", "wasm", "--format", "int8"),
    ("bench.peers.export",),
    ("bench", "peers"),
    ("bench.heldout",),
    ("bench", "shallow_quality"),
)
"""Commands of `python -m`, in their order. What a benchmark needs stands before it."""


def run(steps: Sequence[tuple[str, ...]] = SUITE, folder: Path = common.RESULTS) -> int:
    """Run the steps, also after one has failed, and write how long each took; gives the worst exit status."""
    began = time.monotonic()
    done: list[dict[str, Any]] = []
    for number, step in enumerate(steps, 1):
        command = shlex.join(["python", "-m", *step])
        _say(f"[{number}/{len(steps)}] {command}")
        start = time.monotonic()
        status = subprocess.run([sys.executable, "-m", *step], cwd=common.ROOT, check=False).returncode
        seconds = time.monotonic() - start
        done.append({"command": command, "status": status, "seconds": seconds})
        outcome = "done" if status == 0 else f"FAILED with status {status}"
        _say(f"[{number}/{len(steps)}] {outcome} in {seconds:.0f} s")
    result = {
        "benchmark": NAME,
        "steps": done,
        "seconds": time.monotonic() - began,
        "processor": common.processor(),
        "cores": os.cpu_count(),
        "versions": {"typedecide": typedecide.__version__, "python": platform.python_version()},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": "python -m bench",
    }
    (folder / f"{NAME}.json").write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    print(summarise(result), flush=True)
    # A negative status is the signal that ended a step.
    return max((abs(one["status"]) for one in done), default=0)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def summarise(result: Mapping[str, Any]) -> str:
    """The steps as a table."""
    lines = [f"{NAME}: {len(result['steps'])} steps in {_minutes(result['seconds'])}"]
    for step in result["steps"]:
        outcome = "" if step["status"] == 0 else f"  FAILED with status {step['status']}"
        lines.append(f"  {_minutes(step['seconds']):>10}  {step['command']}{outcome}")
    return "\n".join(lines)


def told(results: Mapping[str, Mapping[str, Any]]) -> str:
    """How long it took when it was last run as a whole, as a sentence."""
    if NAME not in results:
        return "All of them together take hours; the next run says how many."
    result = results[NAME]
    failed = sum(step["status"] != 0 for step in result["steps"])
    outcome = f", {failed} of which failed," if failed else ""
    return (
        f"All {len(result['steps'])} steps{outcome} took {_minutes(result['seconds'])} on {result['cores']} cores"
        f" ({result['processor']})."
    )


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:,.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
