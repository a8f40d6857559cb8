"""Python for the page: Pyodide's core from npm, and typedecide as a wheel, in one folder that `loadPyodide` takes.

The lock file is trimmed to what is really there, so that `loadPackage("typedecide")` asks for nothing else. Knows a
folder of a bundle, and nothing of its model.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from pybuild import npm, wheel
from typedecide import __version__

FOLDER = "pyodide"
"""The folder in a bundle."""

CORE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")

LOCK = "pyodide-lock.json"

NOTICE = """\
Pyodide {version}, unchanged, from the npm package of that name. Mozilla Public License 2.0,
https://www.mozilla.org/MPL/2.0/; its source: https://github.com/pyodide/pyodide/tree/{version}
It holds CPython {python} and its standard library: Python Software Foundation License, https://docs.python.org/3/license.html
pyodide-lock.json is trimmed to the packages of this folder: typedecide, Apache-2.0.
"""


def copy(folder: Path) -> dict[str, Any]:
    """Put Python into a bundle's folder; its manifest entry."""
    package, target = npm.package("pyodide"), folder / FOLDER
    target.mkdir()
    for name in CORE:
        shutil.copyfile(package / name, target / name)
    built = wheel.write(target)
    lock = json.loads((package / LOCK).read_text("utf-8"))
    lock["packages"] = {"typedecide": _locked(built)}
    (target / LOCK).write_text(json.dumps(lock, indent=1) + "\n", "utf-8")
    version, python = npm.version("pyodide"), lock["info"]["python"]
    (target / "NOTICE").write_text(NOTICE.format(version=version, python=python), "utf-8")
    return {"pyodide": version, "python": python, "folder": f"{FOLDER}/", "wheel": f"{FOLDER}/{built.name}"}


def _locked(built: Path) -> dict[str, Any]:
    """The lock file's entry for our wheel.

    Written here, because the releases of the package `pyodide-lock` that know this form of the file need a newer Python
    than the build does.
    """
    return {
        "depends": [],
        "file_name": built.name,
        "imports": ["typedecide"],
        "install_dir": "site",
        "name": "typedecide",
        "package_type": "package",
        "sha256": hashlib.sha256(built.read_bytes()).hexdigest(),
        "unvendored_tests": False,
        "version": __version__,
    }
