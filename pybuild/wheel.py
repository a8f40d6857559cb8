"""typedecide as a wheel: pure Python, and the same bytes from the same files.

Knows pyproject.toml and the source tree; nothing of what the wheel is for.
"""

from __future__ import annotations

import base64
import hashlib
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typedecide import __version__

ROOT = Path(__file__).resolve().parent.parent
TAG = "py3-none-any"

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The oldest time that a zip file can say."""


def file_name() -> str:
    """The wheel's name, which says all that an installer asks of it."""
    return f"typedecide-{__version__}-{TAG}.whl"


def sources(root: Path = ROOT) -> list[Path]:
    """The files of the package."""
    package = root / "typedecide"
    return sorted(p for p in package.rglob("*") if p.suffix == ".py" or p.name == "py.typed")


def write(folder: Path, root: Path = ROOT) -> Path:
    """Make the wheel of `root`'s package in `folder`; its path."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    info = f"typedecide-{__version__}.dist-info"
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in sources(root)}
    files[f"{info}/licenses/LICENSE"] = (root / "LICENSE").read_bytes()
    files[f"{info}/METADATA"] = _metadata(project, root).encode()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: typedecide\nRoot-Is-Purelib: true\nTag: {TAG}\n".encode()
    )
    files[f"{info}/entry_points.txt"] = _entry_points(project["scripts"]).encode()
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD").encode()
    path = folder / file_name()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    return path


def _metadata(project: Mapping[str, Any], root: Path) -> str:
    optional: Mapping[str, list[str]] = project["optional-dependencies"]
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {__version__}",
        f"Summary: {project['description']}",
        f"License-Expression: {project['license']}",
        "License-File: LICENSE",
        *(f"Classifier: {one}" for one in project["classifiers"]),
        f"Requires-Python: {project['requires-python']}",
        "Description-Content-Type: text/markdown",
    ]
    for extra, requirements in sorted(optional.items()):
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {one}; extra == "{extra}"' for one in requirements]
    readme = (root / str(project["readme"])).read_text("utf-8")
    return "\n".join([*lines, "", readme])


def _entry_points(scripts: Mapping[str, str]) -> str:
    return "[console_scripts]\n" + "".join(f"{name} = {target}\n" for name, target in sorted(scripts.items()))


def _record(files: Mapping[str, bytes], own: str) -> str:
    def line(name: str, content: bytes) -> str:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        return f"{name},sha256={digest},{len(content)}\n"

    return "".join(line(name, content) for name, content in files.items()) + f"{own},,\n"
