"""Wheels as Pyodide's lock file has them: what tests serve to a Pyodide that must ask for nothing from elsewhere."""

from __future__ import annotations

import email
import hashlib
import json
import re
import shutil
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pybuild import pyodide


def write(folder: Path, core: Path, wheels: Iterable[Path]) -> list[str]:
    """Put wheels into a folder, with a lock file that holds these and nothing else; the names of the packages.

    Args:
        folder: where to; it is there.
        core: the folder of the Pyodide that is to load them: its lock file says for which one it is.
        wheels: what they depend on beyond each other is left out.
    """
    lock = json.loads((core / pyodide.LOCK).read_text("utf-8"))
    entries = {}
    for wheel in sorted(wheels):
        shutil.copy(wheel, folder / wheel.name)
        entry = _entry(wheel)
        entries[entry["name"]] = entry
    for entry in entries.values():
        entry["depends"] = [name for name in entry["depends"] if name in entries]
    lock["packages"] = entries
    (folder / pyodide.LOCK).write_text(json.dumps(lock), "utf-8")
    return [*entries]


def _entry(wheel: Path) -> dict[str, Any]:
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
