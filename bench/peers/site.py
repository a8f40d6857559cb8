"""The folder that the compared pages are served from: peers' packages, their models, our bundles.

What is large is linked into it, not copied, where the disk can do that. Knows no measurement.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from bench.peers import export
from pybuild import npm
from pybuild.sources import stock_file

HERE = Path(__file__).parent
PAGE = HERE / "page"

PACKAGES = {
    "@wllama/wllama": {
        "esm/index.min.js": "packages/wllama/index.js",
        "esm/wasm/wllama.wasm": "packages/wllama/wllama.wasm",
    },
    "@huggingface/transformers": {
        "dist/transformers.min.js": "packages/transformers/transformers.js",
    },
    "onnxruntime-web": {
        "dist/ort-wasm-simd-threaded.mjs": "packages/onnxruntime-web/ort-wasm-simd-threaded.mjs",
        "dist/ort-wasm-simd-threaded.wasm": "packages/onnxruntime-web/ort-wasm-simd-threaded.wasm",
    },
}
"""The files of each npm package that a page needs, and where they are served."""


def install_packages() -> None:
    """Install the peers' npm packages beside this module, unless they are there."""
    lock, done = HERE / "package-lock.json", HERE / "node_modules" / ".package-lock.json"
    if not done.is_file() or done.stat().st_mtime < lock.stat().st_mtime:
        print("installing the peers' npm packages", file=sys.stderr, flush=True)
        npm.npm_ci(HERE)


def versions() -> dict[str, str]:
    """The installed version of each package that a page uses."""
    return {name: npm.version(name, HERE) for name in PACKAGES}


def write_site(out: Path, bundles: dict[str, Path]) -> Path:
    """Put together the folder `out`, a new one. `bundles` are served under their names."""
    shutil.copytree(PAGE, out)
    for name, files in PACKAGES.items():
        folder = npm.package(name, HERE)
        for inside, place in files.items():
            _link(folder / inside, out / place)
    _link(stock_file(), out / "models" / "model.gguf")
    if export.is_there():
        for inside in export.FILES:
            _link(export.OUT / inside, out / "models" / "export" / inside)
    for name, bundle in bundles.items():
        shutil.copytree(bundle, out / name, copy_function=_link)
    return out


def _link(file: str | Path, place: str | Path) -> None:
    """One file in two places: the server gives out no file that is elsewhere, so not a symbolic link."""
    place = Path(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(Path(file).resolve(), place)
    except OSError:  # another disk, or one without links
        shutil.copy2(file, place)
