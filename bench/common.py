"""What the benchmarks share: arguments, the bundle to run, the sample questions, and where results go.

Knows no measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typedecide
from bench.probe import ProbedPage
from pybuild.bundle import build
from pybuild.sources import DEFAULT_MODEL
from typedecide.bundle import Bundle
from typedecide.errors import TypedecideError
from typedecide.native import NativeEngine
from typedecide.page import PageEngine
from typedecide.questions import Question, parse_questions

ROOT = Path(__file__).resolve().parent.parent
BUNDLES = ROOT / "build" / "bench"
RESULTS = ROOT / "bench" / "results"


class ArgumentError(TypedecideError):
    """Arguments that do not fit together, or not to the bundle."""

    code = "ARGUMENT"


def add_arguments(parser: argparse.ArgumentParser, devices: Sequence[str]) -> None:
    """Add the arguments that every benchmark takes; `devices` are those it runs on, its usual one first."""
    parser.add_argument("--device", choices=devices, default=devices[0], help=f"default: {devices[0]}")
    parser.add_argument("--format", default="int8", help="weight format: fp32, int8 or int4 (default: int8)")
    parser.add_argument("--layers", type=int, metavar="N", help="keep only the model's first N layers")
    parser.add_argument(
        "--threads", type=int, metavar="N", help="threads on the CPU (default: the engine's own)"
    )
    parser.add_argument(
        "--bundle",
        type=Path,
        metavar="DIST",
        help="run this bundle instead of building one under build/bench",
    )
    parser.add_argument(
        "--built",
        action="store_true",
        help="run the bundles that are under build/bench as they are, and build none",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a short form for tests: less to read or to ask, fewer runs, no results file",
    )
    parser.add_argument(
        "--json",
        metavar="PATH",
        help="where to write the results; - prints the JSON object on standard output and nothing else there",
    )


def find_bundle(
    args: argparse.Namespace,
    model: str = DEFAULT_MODEL,
    shallow: int | None = None,
    anchor: str | None = None,
) -> Path:
    """The bundle that the arguments name, or one of `model` built (or kept from before) for format and layers.

    `shallow` and `anchor` are those of `pybuild.bundle.build`.
    """
    if args.bundle is None:
        layers = "" if args.layers is None else f"-{args.layers}-layers"
        depth = "" if shallow is None else f"-shallow-{shallow}-{anchor}"
        out = BUNDLES / (re.sub(r"[^\w.-]+", "-", f"{model}-{args.format}") + layers + depth)
        if args.built:
            return Bundle.open(out).root
        return build(out, model, (args.format,), args.layers, shallow=shallow, anchor=anchor)
    bundle: Path = args.bundle
    if args.layers is not None:
        found = Bundle.open(bundle).model["shape"]["layers"]
        if found != args.layers:
            raise ArgumentError(
                f"--layers {args.layers}: the bundle {bundle} has {found}; leave --bundle out to build one.",
                layers=args.layers,
                found=found,
            )
    return bundle


def open_page(args: argparse.Namespace, bundle: Path) -> ProbedPage:
    """The page's engine on the device and format asked for."""
    print(f"loading {args.format} on {args.device}", file=sys.stderr, flush=True)
    return ProbedPage(bundle, args.device, args.format, threads=args.threads)


def open_engine(args: argparse.Namespace, bundle: Path) -> ProbedPage | NativeEngine:
    """The engine that the device asks for: the page's, or the native one."""
    if args.device != "native":
        return open_page(args, bundle)
    print(f"loading {args.format} natively", file=sys.stderr, flush=True)
    return NativeEngine(bundle, args.format, threads=args.threads)


def read_sample(bundle: Path) -> tuple[str, dict[str, Question]]:
    """The state and the questions that the bundle ships as a sample."""
    sample = json.loads((bundle / "app" / "decide" / "samples" / "support.json").read_bytes())
    return sample["state"], parse_questions(sample["questions"])


def shorten(state: str) -> str:
    """The state up to its first full stop: what a short run reads."""
    return state[: state.index(".") + 1]


def describe(name: str, engine: PageEngine | NativeEngine, seed: int | None = None) -> dict[str, Any]:
    """What every result says: what ran, on what, with which versions, and when.

    Args:
        seed: of what the benchmark draws; None where it draws nothing.
    """
    info = engine.info
    if isinstance(engine, PageEngine):
        return facts(name, info, page_versions(info["ort"], engine.browser_version), seed)
    return facts(name, info, {"onnxruntime": info["ort"]["version"]}, seed)


def page_versions(ort: Mapping[str, str], browser: str) -> dict[str, str]:
    """Versions of what runs a page: ONNX Runtime Web, as the page's runtime tells of it, and the browser."""
    return {"onnxruntime-web": f"{ort['version']} ({ort['build']})", "chromium": browser}


def facts(
    name: str, info: Mapping[str, Any], runtime: Mapping[str, str], seed: int | None = None
) -> dict[str, Any]:
    """As `describe`, of what an engine's info says and of the versions of what ran it."""
    return {
        "benchmark": name,
        "model": info["model"]["name"],
        "layers": info["model"]["shape"]["layers"],
        "device": info["device"],
        "candidate": info["candidate"],
        "format": info["format"],
        "threads": info["threads"],
        "adapter": info["adapter"],
        "processor": processor(),
        "cores": os.cpu_count(),
        "versions": {
            "typedecide": typedecide.__version__,
            **runtime,
            "python": platform.python_version(),
        },
        "seed": seed,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def processor() -> str:
    """The processor's name as the system gives it."""
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model"):
                return value.strip()
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return platform.processor() or platform.machine()


def results_path(args: argparse.Namespace, name: str) -> Path | None:
    """Where the results go; None for a short run that was told no place, and for standard output."""
    if args.json == "-" or (args.json is None and args.quick):
        return None
    return Path(args.json) if args.json else RESULTS / f"{name}-{args.device}-{args.format}.json"


def publish(args: argparse.Namespace, result: Mapping[str, Any], summary: str) -> Path | None:
    """Print the results and write them; gives the path of the file, if one was written."""
    text = json.dumps({**result, "command": args.command}, indent=2, allow_nan=False)
    if args.json == "-":
        print(text)
        return None
    print(summary)
    path = results_path(args, result["benchmark"])
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
        print(f"wrote {path}")
    return path


def plotting(name: str) -> Any:
    """`matplotlib.pyplot`, set to write SVG files without a screen; `name` is the benchmark's."""
    import matplotlib

    matplotlib.use("svg")
    # Fixed ids, and no date in `save_plot`: the same figures give the same file.
    matplotlib.rcParams["svg.hashsalt"] = name
    from matplotlib import pyplot

    return pyplot


def save_plot(figure: Any, path: Path) -> None:
    """Write a figure of `plotting`, and free it."""
    from matplotlib import pyplot

    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
