"""Where to find a Chromium to drive, and how to start it.

Knows paths and switches only: it starts nothing, needs no Playwright at import time, and knows no page.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from typedecide.errors import TypedecideError, UnsupportedError

VARIABLE = "TYPEDECIDE_CHROMIUM"
"""Environment variable that names the browser to use, before any search."""

SANDBOX: bool = not (hasattr(os, "geteuid") and os.geteuid() == 0)
"""Chromium refuses its own sandbox to root. Pass this as Playwright's `chromium_sandbox`, which is off by default."""

LAUNCH_ARGS: tuple[str, ...] = (
    *(() if SANDBOX else ("--no-sandbox",)),
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
"""Switches for every start: no calls home, no sign-in, no update checks."""

# Folder and file of Playwright's own build, by (sys.platform, is ARM): the same table as in its registry.
_MAC_APP = ("Google Chrome for Testing.app", "Contents", "MacOS", "Google Chrome for Testing")
_PLAYWRIGHT_EXECUTABLES: dict[tuple[str, bool], tuple[str, ...]] = {
    ("linux", False): ("chrome-linux64", "chrome"),
    ("linux", True): ("chrome-linux-arm64", "chrome"),
    ("darwin", False): ("chrome-mac-x64", *_MAC_APP),
    ("darwin", True): ("chrome-mac-arm64", *_MAC_APP),
    ("win32", False): ("chrome-win64", "chrome.exe"),
}

_SYSTEM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_MAC_PATHS = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
_WINDOWS_FOLDERS = ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA")
_WINDOWS_FILES = (
    ("Chromium", "Application", "chrome.exe"),
    ("Google", "Chrome", "Application", "chrome.exe"),
)

_WAYS_OUT = (
    "Do one of these: install it from the system's packages (Debian: `apt-get install chromium`); "
    "let Playwright fetch its own (`python -m playwright install chromium`); "
    f"or set {VARIABLE} to the path of a Chromium or Chrome executable."
)


# Of a GPU on Linux, Chromium offers WebGPU over Vulkan only, without a window to draw in only if told so:
# https://developer.chrome.com/blog/supercharge-web-ai-testing#enable-webgpu (headless, on NVIDIA's), and
# https://github.com/gpuweb/gpuweb/issues/5022 (that ANGLE must use Vulkan as well). Of two `--enable-features` the last
# one counts: the other feature is from Playwright's own, and keeps Chromium from asking for accounts at the start.
_VULKAN = (
    "--enable-features=Vulkan,SkipListAccountsWithoutGaiaCookies",
    "--use-angle=vulkan",
    "--disable-vulkan-surface",
)


def webgpu_args(software: bool) -> tuple[str, ...]:
    """The switches that give a page WebGPU where Chromium would not offer it by itself.

    With `software` the adapter is SwiftShader, on the CPU: slow, and the same on every machine.

    >>> webgpu_args(software=True)
    ('--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader')
    """
    if software:
        return ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")
    return ("--enable-unsafe-webgpu", *(_VULKAN if sys.platform == "linux" else ()))


def gpu_args(device: str, software: bool | None = None) -> tuple[str, ...]:
    """The switches for a page that runs a model on `device`: `auto`, `webgpu` or `wasm`.

    `software`: whether WebGPU runs on the CPU; None: only where the device is `webgpu` and there is no GPU.
    """
    if device == "wasm":
        return ()
    if software is None:
        software = device == "webgpu" and not has_gpu()
    return webgpu_args(software) if software or has_gpu() else ()


def has_gpu() -> bool:
    """Whether this machine has a GPU that a browser could use, as far as its device files tell."""
    if sys.platform != "linux":
        return True
    return any(any(Path("/dev").glob(pattern)) for pattern in ("dri/renderD*", "nvidia[0-9]*"))


def find_chromium() -> Path:
    """The Chromium to use: `TYPEDECIDE_CHROMIUM`, else Playwright's own, else the system's.

    Raises `UnsupportedError` with the ways out when there is none, or when the variable names no executable.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return _named(named)
    candidates = [path for path in (playwright_chromium(), *_system_candidates()) if path is not None]
    for path in candidates:
        if _is_executable(path):
            return path
    raise UnsupportedError(
        f"No Chromium was found. {_WAYS_OUT}", looked_at=[str(path) for path in candidates]
    )


def playwright_chromium() -> Path | None:
    """Where the installed Playwright keeps its own Chromium, or None if it has none for this machine.

    Read from Playwright's own list of revisions, because asking Playwright itself starts a Node.js process. The file
    need not be there: Playwright fetches it only when told to.
    """
    spec = importlib.util.find_spec("playwright")
    tail = _PLAYWRIGHT_EXECUTABLES.get((sys.platform, platform.machine().lower() in ("arm64", "aarch64")))
    if spec is None or spec.origin is None or tail is None:
        return None
    package = Path(spec.origin).parent / "driver" / "package"
    browsers = json.loads((package / "browsers.json").read_text(encoding="utf-8"))["browsers"]
    revision = next(browser["revision"] for browser in browsers if browser["name"] == "chromium")
    return _playwright_registry(package).joinpath(f"chromium-{revision}", *tail)


def _named(value: str) -> Path:
    """The browser that the environment names: a path, or a command on PATH."""
    found = shutil.which(Path(value).expanduser())
    if found is None:
        raise UnsupportedError(f"{VARIABLE} names no executable file: {value!r}. {_WAYS_OUT}", value=value)
    return Path(found).absolute()


def _playwright_registry(package: Path) -> Path:
    """The folder in which Playwright keeps its browsers, by its own rules."""
    chosen = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    if chosen == "0":
        return package / ".local-browsers"
    if chosen:
        return Path(os.environ.get("INIT_CWD") or Path.cwd(), chosen)
    home = Path.home()
    if sys.platform == "darwin":
        cache = home / "Library" / "Caches"
    elif sys.platform == "win32":
        cache = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return cache / "ms-playwright"


def _system_candidates() -> Iterator[Path]:
    """Browsers on PATH, then those in the usual folders of macOS and Windows."""
    for name in _SYSTEM_NAMES:
        found = shutil.which(name)
        if found is not None:
            yield Path(found)
    if sys.platform == "darwin":
        yield from map(Path, _MAC_PATHS)
    if sys.platform == "win32":
        folders = [os.environ[name] for name in _WINDOWS_FOLDERS if name in os.environ]
        yield from (Path(folder, *file) for file in _WINDOWS_FILES for folder in folders)


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def main() -> int:
    """Print the browser's path, or what to do when there is none: the set-up's own question."""
    try:
        print(find_chromium())
    except TypedecideError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
