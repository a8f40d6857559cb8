"""A JupyterLite site for the tests: its kernel runs on the bundle's own Pyodide, and every package is on the site.

The wheels of the kernel are those of requirements/notebook.txt, fetched by the set-up: they are for Pyodide's Python.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests import pyodide_lock

ROOT = Path(__file__).resolve().parents[1]
WHEELS = ROOT / "build" / "notebook"
KERNEL = "@jupyterlite/pyodide-kernel-extension:kernel"


def build(folder: Path, bundle: Path, notebook: Path) -> Path:
    """Make the site in `folder`: the bundle as /bundle/, the kernel's wheels in /kernel/, and one notebook."""
    site = folder / "site"
    command = [
        sys.executable,
        "-m",
        "jupyterlite_core",
        "build",
        "--lite-dir",
        str(folder),
        "--output-dir",
        str(site),
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    shutil.copytree(bundle, site / "bundle")
    (site / "kernel").mkdir()
    packages = pyodide_lock.write(site / "kernel", bundle / "pyodide", WHEELS.glob("*.whl"))
    config = site / "jupyter-lite.json"
    settings = json.loads(config.read_text("utf-8"))
    kernel = settings["jupyter-config-data"].setdefault("litePluginSettings", {}).setdefault(KERNEL, {})
    kernel["pyodideUrl"] = "./bundle/pyodide/pyodide.mjs"
    kernel["loadPyodideOptions"] = {
        "lockFileURL": "/kernel/pyodide-lock.json",
        "packages": packages,
    }
    kernel["disablePyPIFallback"] = True
    settings["jupyter-config-data"]["contentsAllJsonFile"] = "all.json"
    config.write_text(json.dumps(settings), "utf-8")
    _add(site, notebook)
    return site


def _add(site: Path, notebook: Path) -> None:
    """Put a notebook among the site's files, as JupyterLite's own add-on does where a Jupyter server is installed."""
    (site / "files").mkdir(exist_ok=True)
    shutil.copy(notebook, site / "files" / notebook.name)
    time = "2020-01-01T00:00:00Z"
    common = {
        "created": time,
        "last_modified": time,
        "format": None,
        "mimetype": None,
        "content": None,
        "writable": True,
    }
    one = {
        **common,
        "name": notebook.name,
        "path": notebook.name,
        "size": notebook.stat().st_size,
        "type": "notebook",
    }
    whole = {
        **common,
        "name": "",
        "path": "",
        "size": None,
        "type": "directory",
        "format": "json",
        "content": [one],
    }
    contents = site / "api" / "contents"
    contents.mkdir(parents=True, exist_ok=True)
    (contents / "all.json").write_text(json.dumps(whole), "utf-8")
