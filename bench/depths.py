"""Bundles of one model whose texts go through all layers or some: what the benchmarks of shallow prefill compare.

Knows no measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from bench import common
from pybuild.sources import DEFAULT_MODEL
from typedecide.bundle import MANIFEST, Bundle

SHARES = (15 / 30, 19 / 30, 22 / 30, 26 / 30, 1)
"""Layers that texts go through, as shares of the default model's 30."""

QUICK_SHARES = (22 / 30, 1)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What says which bundles are compared."""
    parser.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        metavar="NAME",
        help=f"the model to build bundles of: a name, a folder, a GGUF file or a hub id (default: {DEFAULT_MODEL})",
    )
    parser.add_argument(
        "--k",
        type=int,
        nargs="+",
        metavar="K",
        help="layers that texts go through; all are compared with in any case (default: 15 19 22 26 30 of 30 layers,"
        " and the same shares of other models; with --quick: 22 30)",
    )


def whole(args: argparse.Namespace, model: str) -> Path:
    """The bundle of a model whose texts go through all layers."""
    if args.bundle is not None:
        raise common.ArgumentError(
            f"--bundle {args.bundle}: this benchmark compares several bundles, and builds them: say --model.",
            bundle=str(args.bundle),
        )
    return common.find_bundle(args, model)


def chosen(args: argparse.Namespace, layers: int) -> list[int]:
    """The numbers of layers to compare, where the model has so many: ascending, all of them last."""
    wanted: Sequence[int] = args.k or [
        max(1, round(share * layers)) for share in (QUICK_SHARES if args.quick else SHARES)
    ]
    for k in wanted:
        if not 1 <= k <= layers:
            raise common.ArgumentError(f"--k {k}: the model has 1 to {layers} layers.", k=k, layers=layers)
    return sorted({*wanted, layers})


def layers_of(bundle: Path) -> int:
    """How many layers a bundle's model has."""
    layers: int = Bundle.open(bundle).model["shape"]["layers"]
    return layers


def with_anchor(bundle: Path, anchor: str) -> Path:
    """A shallow bundle with another anchor, for the native engine.

    Neither graphs nor weights depend on the anchor, so that all files but the manifest are the same ones on disk.
    """
    out = bundle.with_name(f"{bundle.name}-{anchor}")
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(bundle, out, copy_function=os.link)
    manifest = json.loads((out / MANIFEST).read_text("utf-8"))
    manifest["model"]["shallow"] = {"layers": manifest["model"]["shallow"]["layers"], "anchor": anchor}
    (out / MANIFEST).unlink()
    (out / MANIFEST).write_text(json.dumps(manifest), "utf-8")
    return out
