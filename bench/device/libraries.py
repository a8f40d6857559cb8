"""Shared libraries of programs on Linux: which ones a program needs, and which of them a machine lacks."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from typedecide.errors import TypedecideError

_LINE = re.compile(r"^\s*(\S+) => (not found|/\S+)", re.MULTILINE)

_SYSTEM = re.compile(
    r"(ld-linux[\w-]*|lib(c|m|dl|rt|pthread|resolv|util|nss_\w+|mvec|GL|EGL|GLX|GLdispatch|OpenGL|gbm|drm|vulkan))\.so"
)
"""A machine's own: the C library, which must fit its kernel and loader, and what belongs to the driver of its GPU."""

_BESIDE = {"libnss3.so": ("libsoftokn3.so", "libfreebl3.so", "libfreeblpriv3.so", "libnssckbi.so")}
"""What a library loads by itself when it runs, from its own folder or the one called `nss` in it."""


class LibraryError(TypedecideError):
    """Libraries that a program needs and nobody has."""

    code = "LIBRARY"


def needed(programs: Iterable[Path]) -> dict[str, Path]:
    """Files of all libraries that programs need here, by name, without those that are a machine's own."""
    found: dict[str, Path] = {}
    for program in programs:
        for name, place in _linked(program, None).items():
            if place is not None and not _SYSTEM.match(name):
                found[name] = place
    for name, others in _BESIDE.items():
        if name in found:
            folder = found[name].resolve().parent
            places = [folder / sub / other for sub in (".", "nss") for other in others]
            found |= {place.name: place for place in places if place.is_file()}
    return found


def supply(program: Path, packed: Path, folder: Path) -> bool:
    """Link into `folder` those of the `packed` libraries that a program lacks on this machine; whether there were any.

    Raises:
        LibraryError: a library that it lacks is not among them.
    """
    folder.mkdir(exist_ok=True)
    while missing := [name for name, place in _linked(program, folder).items() if place is None]:
        for name in missing:
            if not (packed / name).is_file() or (folder / name).exists():
                raise LibraryError(
                    f"{program.name} needs {name}, which is neither on this machine nor in the package.",
                    missing=missing,
                )
            (folder / name).symlink_to(packed / name)
            for other in _BESIDE.get(name, ()):
                if (packed / other).is_file():
                    (folder / other).symlink_to(packed / other)
    return any(folder.iterdir())


def _linked(program: Path, more: Path | None) -> dict[str, Path | None]:
    """What the loader says of a program's libraries: where each is, None for one that is not found."""
    environment = None if more is None else {"LD_LIBRARY_PATH": str(more), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["ldd", program], env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0 or "version `" in done.stderr:
        first = (done.stderr or done.stdout).strip().split("\n")[0]
        raise LibraryError(f"{program.name} cannot be loaded on this machine: {first}", program=program.name)
    return {name: None if place == "not found" else Path(place) for name, place in _LINE.findall(done.stdout)}
