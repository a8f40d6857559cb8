"""A bundle of a tiny random model, for what is about the machinery and not about answers: it loads in a second.

It has a pointer, so every readout, and positions for the drift prompts. `python -m bench.tiny` builds it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from bench.common import BUNDLES, ROOT
from pybuild.bundle import build
from pybuild.graph import POINTER


def build_tiny(suffix: str = "", *, fixture: str = "llama", **options: Any) -> Path:
    """A fixture of the tests with a random pointer, as a bundle under build/bench; `suffix` is of its folder's name and
    `options` are those of `build`."""
    stem = "tiny-pointer" if fixture == "llama" else f"tiny-pointer-{fixture}"
    folder = BUNDLES / f"{stem}-model"
    shutil.copytree(ROOT / "tests" / "fixtures" / fixture, folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["max_position_embeddings"] = 4096
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    tensors = load_file(folder / "model.safetensors")
    pointer = np.random.default_rng(4).normal(0, 0.1, (17, config["hidden_size"]))
    save_file({**tensors, POINTER: pointer.astype(np.float32)}, folder / "model.safetensors")
    out = BUNDLES / f"{stem}{suffix}"
    return build(out, source=str(folder), quiet=True, **{"formats": ("fp32",), **options})


if __name__ == "__main__":
    print(build_tiny().relative_to(ROOT))
