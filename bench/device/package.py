"""Puts all that the device's run needs into one archive: project, Python, packages, Chromium and bundles.

The machine that it is for needs the same kind of processor and as new a C library as this one, and nothing else.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from bench import common, half
from bench.device import libraries
from bench.device.parts import PACKED, SHALLOW, TINY
from bench.tiny import build_tiny
from pybuild.sources import DEFAULT_MODEL
from typedecide.chromium import VARIABLE, find_chromium
from typedecide.errors import TypedecideError
from typedecide.shallow import DEFAULT_ANCHOR

PLAN = "plan.json"
"""Says of a package which model it is for, which browser is in it, and where it can run."""

PROJECT = ("typedecide", "pybuild", "bench", "web")
EXTRAS = ("native", "page", "build", "evaluate")
"""Of this project: what they need is packed, as it is installed here."""

_LEFT_OUT = {"__pycache__", "node_modules", "site-packages", "results", "test", "tests", "idlelib", "pyodide"}
"""Folders of project, Python and bundles that nothing needs."""

# What the launchers in /usr/bin start.
_BEHIND_LAUNCHERS = (
    "/usr/lib/chromium/chromium",
    "/usr/lib64/chromium-browser/chromium-browser",
    "/opt/google/chrome/chrome",
)
_UNUSED_BY_BROWSER = ("*.TOC", "libVkLayer_*", "libVkICD_*", "extensions", "WidevineCdm")


class PackageError(TypedecideError):
    """What cannot be packed, or run, and why."""

    code = "PACKAGE"


def pack(out: Path, tiny: bool = False) -> Path:
    """Write the package; with `tiny` one of a tiny model, to try the whole path on any machine."""
    model = TINY if tiny else DEFAULT_MODEL
    browser = browser_program(find_chromium())
    # Bundles share files on disk: an archive holds each once.
    with tempfile.TemporaryDirectory() as temporary, tarfile.open(out, _mode(out)) as archive:
        add = Adder(archive)
        add.tell("bundles", bundles(model))
        add.tell("project", project())
        add.tell("Python", python())
        add.tell("packages", packages())
        add.tell("browser", chromium(browser))
        plan = Path(temporary) / PLAN
        told = {
            "model": model,
            "browser": browser.name,
            "system": sys.platform,
            "machine": platform.machine(),
        }
        plan.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
        archive.add(plan, PLAN)
    print(f"wrote {out}: {out.stat().st_size / 1e6:,.0f} MB", file=sys.stderr)
    return out


def _mode(out: Path) -> Any:
    kinds = {".tar": "w", ".gz": "w:gz", ".tgz": "w:gz", ".xz": "w:xz"}
    if out.suffix not in kinds:
        raise PackageError(
            f"{out.name}: the archive's name ends in .tar, .tar.gz, .tgz or .tar.xz", name=out.name
        )
    return kinds[out.suffix]


class Adder:
    """Adds files to an archive, and says how much that was."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive

    def tell(self, what: str, files: Iterable[tuple[Path, str]]) -> None:
        """Add files under their names in the archive."""
        size = 0
        for path, name in files:
            size += path.stat().st_size
            self._archive.add(path, name, recursive=False)
        print(f"{what}: {size / 1e6:,.0f} MB", file=sys.stderr, flush=True)


Files = Iterator[tuple[Path, str]]
"""Files to pack, with their names in the archive."""


def _tree(folder: Path, name: str, unused: tuple[str, ...] = ()) -> Files:
    """All files of a folder but those in folders that nothing needs, and what fits one of the patterns `unused`."""
    ignore = shutil.ignore_patterns(*unused)
    for at, folders, files in os.walk(folder):
        out = ignore(at, [*folders, *files])
        folders[:] = sorted(one for one in folders if one not in _LEFT_OUT | out)
        for file in sorted(set(files) - out):
            path = Path(at) / file
            yield (
                path.resolve() if path.is_symlink() else path,
                f"{name}/{path.relative_to(folder).as_posix()}",
            )


def bundles(model: str) -> Files:
    """The bundles that the parts run, built where they are missing, under the names that `--built` looks for."""
    found = {}
    if model == TINY:
        found[f"{TINY}-fp32"] = build_tiny()
    else:
        found[f"{model}-fp32"] = _built(model, "fp32")
        found[f"{model}-{PACKED[model]}"] = _built(model, PACKED[model])
    found[f"{model}-fp32-half"] = half.half(found[f"{model}-fp32"])
    for k in SHALLOW[model]:
        name = f"{model}-{PACKED[model]}-shallow-{k}-{DEFAULT_ANCHOR}"
        found[name] = (
            build_tiny(f"-shallow-{k}", shallow=k, anchor=DEFAULT_ANCHOR)
            if model == TINY
            else _built(model, PACKED[model], k)
        )
    for name, folder in found.items():
        yield from _tree(folder, f"build/bench/{name}")


def _built(model: str, format: str, k: int | None = None) -> Path:
    args = argparse.Namespace(bundle=None, layers=None, format=format, built=False)
    return common.find_bundle(args, model, k, None if k is None else DEFAULT_ANCHOR)


def project() -> Files:
    """The code."""
    for name in PROJECT:
        yield from _tree(common.ROOT / name, name)


def python() -> Files:
    """This Python: its program, its standard library, and the libraries that these need."""
    program = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    stdlib = Path(sysconfig.get_path("stdlib"))
    yield program, "python/bin/python3"
    yield from _tree(stdlib, f"python/lib/{stdlib.name}", ("config-*", "ensurepip", "turtledemo"))
    loaded = [program, *(stdlib / "lib-dynload").glob("*.so")]
    for name, path in libraries.needed(loaded).items():
        yield path.resolve(), f"python/lib/{name}"


def packages() -> Files:
    """The files of the distributions that this project's extras need, as they are installed here."""
    for name in sorted(_closure()):
        for file in importlib.metadata.distribution(name).files or ():
            # Programs in bin/ lie outside: nobody calls them.
            if ".." not in file.parts and "__pycache__" not in file.parts:
                yield Path(str(file.locate())), f"site/{file.as_posix()}"


def _closure() -> set[str]:
    """Names of all distributions that the extras need, directly or not."""
    found: set[str] = set()
    wanted = [(one, extra) for extra in EXTRAS for one in importlib.metadata.requires("typedecide") or ()]
    while wanted:
        text, extra = wanted.pop()
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        if requirement.name not in found:
            found.add(requirement.name)
            needs = importlib.metadata.requires(requirement.name) or ()
            wanted += [(one, more) for one in needs for more in ("", *requirement.extras)]
    return found


def browser_program(launcher: Path) -> Path:
    """The program behind a launcher, which may be a script."""
    for path in (launcher.resolve(), *map(Path, _BEHIND_LAUNCHERS)):
        if path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
            return path
    raise PackageError(
        f"{launcher} is a script, and what it starts is not known: set {VARIABLE} to the program itself.",
        launcher=str(launcher),
    )


def chromium(program: Path) -> Files:
    """The browser's folder, and the libraries that it takes from this system."""
    yield from _tree(program.parent, "chromium", _UNUSED_BY_BROWSER)
    own = [program, *program.parent.glob("*.so"), *program.parent.glob("*.so.*")]
    for name, path in libraries.needed(one for one in own if one.suffix != ".TOC").items():
        yield path.resolve(), f"libraries/{name}"
