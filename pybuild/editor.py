"""The page's editor: CodeMirror, which is many npm packages, as one module; made once and kept."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from pybuild import npm
from typedecide.errors import UnsupportedError

FOLDER = "vendor/codemirror"
"""The folder in a bundle."""

HERE = Path(__file__).resolve().parent
KEPT = npm.ROOT / "build" / "editor"
SOURCES = (HERE / "editor.js", HERE / "editor.mjs", npm.ROOT / "package-lock.json")
LICENCES = ("codemirror", "@lezer/common", "crelt", "style-mod", "w3c-keyname")
"""One package of each author and licence text; all are MIT."""


def copy(folder: Path) -> None:
    """Put the editor and its licences into a bundle's folder."""
    target = folder / FOLDER
    target.mkdir(parents=True)
    shutil.copyfile(_made(), target / "editor.js")
    texts = [f"{name}\n\n{(npm.package(name) / 'LICENSE').read_text('utf-8')}" for name in LICENCES]
    (target / "LICENSE").write_text("\n\n".join(texts), "utf-8")


def _made() -> Path:
    digest = hashlib.sha256()
    for path in SOURCES:
        digest.update(path.read_bytes())
    made = KEPT / f"{digest.hexdigest()[:16]}.js"
    if not made.is_file():
        KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT) as out:
            command = [str(npm.node()), str(HERE / "editor.mjs"), out]
            done = subprocess.run(command, cwd=npm.ROOT, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise UnsupportedError(
                    f"The editor could not be bundled:\n{done.stdout}{done.stderr}", command=command
                )
            (Path(out) / "editor.js").replace(made)
    return made
