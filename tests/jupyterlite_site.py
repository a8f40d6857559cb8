"""A JupyterLite site for the tests: its kernel runs on the bundle's own Pyodide, and every package is on the site.

The wheels of the kernel are those of requirements/notebook.txt, fetched by the set-up: they are for Pyodide's Python.
"""

from __future__ import annotations

import email
import hashlib
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from pybuild import pyodide

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
    lock = json.loads((bundle / "pyodide" / pyodide.LOCK).read_text("utf-8"))
    lock["packages"] = {}
    for wheel in sorted(WHEELS.glob("*.whl")):
        shutil.copy(wheel, site / "kernel" / wheel.name)
        entry = _entry(wheel)
        lock["packages"][entry["name"]] = entry
    for entry in lock["packages"].values():
        entry["depends"] = [name for name in entry["depends"] if name in lock["packages"]]
    (site / "kernel" / pyodide.LOCK).write_text(json.dumps(lock), "utf-8")
    config = site / "jupyter-lite.json"
    settings = json.loads(config.read_text("utf-8"))
    kernel = settings["jupyter-config-data"].setdefault("litePluginSettings", {}).setdefault(KERNEL, {})
    kernel["pyodideUrl"] = "./bundle/pyodide/pyodide.mjs"
    kernel["loadPyodideOptions"] = {
        "lockFileURL": "/kernel/pyodide-lock.json",
        "packages": [*lock["packages"]],
    }
    kernel["disablePyPIFallback"] = True
    settings["jupyter-config-data"]["contentsAllJsonFile"] = "all.json"
    config.write_text(json.dumps(settings), "utf-8")
    _add(site, notebook)
    return site


def _entry(wheel: Path) -> dict[str, Any]:
    """A wheel as Pyodide's lock file has it."""
    with zipfile.ZipFile(wheel) as archive:
        info = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(info))
        tops = {name.split("/")[0].removesuffix(".py") for name in archive.namelist() if name.endswith(".py")}
    needed = [one for one in metadata.get_all("Requires-Dist", []) if "extra ==" not in one]
    return {
        "depends": [_canonical(re.split(r"[^A-Za-z0-9._-]", one)[0]) for one in needed],
        "file_name": wheel.name,
        "imports": sorted(tops),
        "install_dir": "site",
        "name": _canonical(metadata["Name"]),
        "package_type": "package",
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "unvendored_tests": False,
        "version": metadata["Version"],
    }


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


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
