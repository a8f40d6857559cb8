"""What `python -m typedecide evaluate` offers in the source tree: suites of held-out data, and models built on demand.

Entry points of the groups `typedecide.suites` and `typedecide.models` name these functions.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from bench import datasets
from bench.common import BUNDLES
from bench.datasets import HELD_OUT
from pybuild.bundle import build
from pybuild.quantize import DEFAULT_FORMAT
from typedecide.labelled import Labelled


def heldout(limit: int, seed: int) -> list[Labelled]:
    """Up to `limit` records of each held-out task; their split says what training has seen of it."""
    found = datasets.suite("heldout", limit, seed)
    return [replace(one, split=HELD_OUT[task]) for task, records in found.items() for one in records]


def valid(limit: int, seed: int) -> list[Labelled]:
    """Up to `limit` records of each task by which a training run may be stopped or calibrated: none is in `heldout`."""
    found = datasets.suite("valid", limit, seed)
    return [one for records in found.values() for one in records]


def bundle(model: str, format: str | None) -> Path:
    """A bundle of a packaged model's name, a folder, a GGUF file or a hub id, built or kept from before."""
    wanted = format or DEFAULT_FORMAT
    folder = re.sub(r"[^\w.-]+", "-", f"{model}-{wanted}")
    return build(BUNDLES / folder, source=model, formats=(wanted,))
