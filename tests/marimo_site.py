"""marimo's WebAssembly build of a notebook for the tests: all that its page and its worker load is on the site.

The wheels are those of requirements/marimo.txt, fetched by the set-up: they are for Pyodide's Python. marimo's page
works with one version of Pyodide only, which is the npm package `pyodide-for-marimo`.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from pybuild import npm, pyodide
from tests import pyodide_lock

ROOT = Path(__file__).resolve().parents[1]
WHEELS = ROOT / "build" / "marimo"
PYTHON = "python"
"""The folder of the site with Pyodide and the wheels."""


def build(folder: Path, bundle: Path, notebook: Path) -> Path:
    """Make the site in `folder`: the exported notebook, with the bundle beside it as dist/."""
    site = folder / "site"
    command = [sys.executable, "-m", "marimo", "export", "html-wasm", str(notebook), "-o", str(site)]
    # uv, which looks for modules beside the notebook, lies beside this Python.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    given = ["--mode", "run", "--no-sandbox", "--force"]
    subprocess.run([*command, *given], check=True, capture_output=True, env={**os.environ, "PATH": path})
    shutil.copytree(bundle, site / "dist")
    core = npm.package("pyodide-for-marimo")
    (site / PYTHON).mkdir()
    for name in pyodide.CORE:
        shutil.copyfile(core / name, site / PYTHON / name)
    (folder / "wheels").mkdir()
    wheels = [*WHEELS.glob("*.whl"), _pure("PyYAML", folder / "wheels")]
    pyodide_lock.write(site / PYTHON, core, wheels)
    page = site / "index.html"
    text, changed = re.subn(
        "<marimo-wasm ",
        f'<marimo-wasm data-pyodide-index-url="./{PYTHON}/"'
        f' data-pyodide-lockfile-url="./{PYTHON}/{pyodide.LOCK}" data-pypi-index-url="./{PYTHON}/index/" ',
        page.read_text("utf-8"),
    )
    assert changed == 1
    page.write_text(text, "utf-8")
    return site


def _pure(name: str, folder: Path) -> Path:
    """A wheel of an installed package without its compiled part, for packages that do without it but publish none."""
    package = importlib.metadata.distribution(name)
    wheel = folder / f"{name.lower()}-{package.version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in package.files or ():
            inside = file.parts[0].endswith(".dist-info") and file.name in ("METADATA", "RECORD", "WHEEL")
            if file.suffix == ".py" or inside:
                archive.write(Path(str(file.locate())), str(file))
    return wheel
