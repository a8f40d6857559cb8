"""Does `python -m typedecide serve` keep to the System One specification, as jevcompat checks it?

Starts the server, with the native engine or with the page's, runs `jevcompat test` against it without and with an API
key, its official Python SDK included, and reports each requirement. Any MUST or SHOULD that fails makes this fail.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import typedecide
from bench import common
from typedecide.bundle import Bundle
from typedecide.errors import TypedecideError

NAME = "compat"
DEVICES = ("native", "wasm", "webgpu")

KEY = "open-sesame"
TIMEOUT_S = 600
"""For one request: 255 options take a while where the model is large and the processor small."""


class NotConformantError(TypedecideError):
    """The server breaks requirements, or some could not be tested; `failed` names them."""

    code = "NOT_CONFORMANT"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this benchmark: none."""


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run the suite, publish and return the results; NotConformantError where a requirement fails."""
    bundle = common.find_bundle(args)
    keys = (KEY,) if args.quick else (None, KEY)
    runs = [measure(args, bundle, key) for key in keys]
    result = {**describe(args, bundle), "runs": runs}
    common.publish(args, result, summarise(result))
    failed = [name for one in runs for name in one["not_passed"]]
    if failed or any(one["verdict"] != "conformant" for one in runs):
        raise NotConformantError(
            f"not passed: {', '.join(failed) or 'not all could be tested'}", failed=failed
        )
    return result


def describe(args: argparse.Namespace, bundle: Path) -> dict[str, Any]:
    """What is tested, with what, where and when."""
    model = Bundle.open(bundle).model
    packages = ("jevcompat", "typesafe-sdk", "starlette", "uvicorn")
    return {
        "benchmark": NAME,
        "model": model["name"],
        "layers": model["shape"]["layers"],
        "device": args.device,
        "format": args.format,
        "processor": common.processor(),
        "cores": os.cpu_count(),
        "versions": {
            "typedecide": typedecide.__version__,
            **{name: version(name) for name in packages},
            "python": platform.python_version(),
        },
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def measure(args: argparse.Namespace, bundle: Path, key: str | None) -> dict[str, Any]:
    """One run of jevcompat against a server of its own."""
    print(f"serving {args.format} on {args.device}", file=sys.stderr, flush=True)
    with (
        serving(bundle, *_options(args), key=key or "") as (_, url),
        tempfile.TemporaryDirectory() as folder,
    ):
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "jevcompat.cli", "test", url, "--timeout", str(TIMEOUT_S)]
        command += ["--json", str(report), *(["--key", key] if key else [])]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if not report.is_file():
            raise NotConformantError(f"jevcompat wrote no report:\n{done.stdout}", status=done.returncode)
        found = json.loads(report.read_text("utf-8"))
    return {"key": key is not None, **shorten(found)}


def shorten(report: Mapping[str, Any]) -> dict[str, Any]:
    """A report without the bodies of its requests: each requirement's outcome, and what took longest."""
    results = {
        one["id"]: {"level": one["level"], "status": one["status"]}
        | ({"findings": [finding["message"] for finding in one["findings"]]} if one["findings"] else {})
        | ({"reason": one["reason"]} if one["status"] == "skip" else {})
        for one in report["results"]
    }
    slowest = max(report["exchanges"], key=lambda one: one["ms"] or 0)
    return {
        "spec": report["spec_version"],
        "verdict": report["summary"]["verdict"],
        "MUST": report["summary"]["MUST"],
        "SHOULD": report["summary"]["SHOULD"],
        "requests": len(report["exchanges"]),
        "seconds": report["seconds"],
        "slowest": {"case": slowest["case"], "ms": slowest["ms"]},
        "not_passed": [
            id
            for id, one in results.items()
            if one["status"] == "fail" or (one["status"] == "skip" and not id.startswith("auth."))
        ],
        "results": results,
    }


@contextmanager
def serving(bundle: Path, *arguments: str, key: str = "") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server that is started on a free port and ended after the block: its process, and its address."""
    command = [sys.executable, "-m", "typedecide", "serve", str(bundle), "--port", "0", *arguments]
    environment = {**os.environ, "TYPEDECIDE_API_KEY": key}
    with subprocess.Popen(
        command, cwd=common.ROOT, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            if not first.startswith("Serving "):
                raise NotConformantError("the server did not start", status=process.wait())
            yield process, first.split()[-1]
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)


def _options(args: argparse.Namespace) -> list[str]:
    """The server's, for what the benchmark is asked to run."""
    options = ["--format", args.format]
    if args.device != "native":
        options += ["--engine", "page", "--device", args.device]
    if args.threads is not None:
        options += ["--threads", str(args.threads)]
    return options


def summarise(result: Mapping[str, Any]) -> str:
    """The figures in a few lines."""
    lines = [
        f"{result['benchmark']}: {result['model']}, {result['layers']} layers, {result['format']}"
        f" on {result['device']}"
    ]
    for one in result["runs"]:
        counts = ", ".join(
            f"{level} {one[level]['passed']}/{one[level]['tested']}" for level in ("MUST", "SHOULD")
        )
        lines.append(
            f"  {'with' if one['key'] else 'without'} a key: {one['verdict']}, {counts};"
            f" {one['requests']} requests in {one['seconds']:.0f} s"
        )
    return "\n".join(lines)
