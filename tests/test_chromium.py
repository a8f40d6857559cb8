"""Where the browser is looked for and in which order, and that the switches do to a real one what they are for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from typedecide import chromium
from typedecide.chromium import (
    LAUNCH_ARGS,
    SANDBOX,
    find_chromium,
    gpu_args,
    playwright_chromium,
    webgpu_args,
)
from typedecide.errors import UnsupportedError
from typedecide.static_server import StaticServer

ROOT = Path(__file__).resolve().parent.parent


def executable(path: Path) -> Path:
    """A file that could be started, at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any browser; the folder is its whole PATH, and `pw` in it would be Playwright's."""
    monkeypatch.delenv(chromium.VARIABLE, raising=False)
    monkeypatch.delenv("INIT_CWD", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "pw"))
    return tmp_path


def test_none_is_an_error_that_names_the_ways_out(bare: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        find_chromium()
    for way in ("apt-get install chromium", "playwright install chromium", "TYPEDECIDE_CHROMIUM"):
        assert way in str(caught.value)
    assert caught.value.code == "UNSUPPORTED"
    assert str(bare / "pw") in caught.value.data["looked_at"][0]


def test_order_of_the_search(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chrome = executable(bare / "google-chrome")
    assert find_chromium() == chrome
    system = executable(bare / "chromium")
    assert find_chromium() == system
    own = playwright_chromium()
    assert own is not None and own.is_relative_to(bare / "pw")
    executable(own)
    assert find_chromium() == own
    named = executable(bare / "somewhere" / "browser")
    monkeypatch.setenv(chromium.VARIABLE, str(named))
    assert find_chromium() == named
    monkeypatch.setenv(chromium.VARIABLE, "google-chrome")
    assert find_chromium() == chrome


def test_a_file_that_cannot_be_started_is_passed_over(bare: Path) -> None:
    own = playwright_chromium()
    assert own is not None
    executable(own).chmod(0o644)
    system = executable(bare / "chromium")
    assert find_chromium() == system


@pytest.mark.parametrize("value", ["/none/such", "no-such-command", "."])
def test_a_wrong_name_is_an_error_and_no_fall_back(
    bare: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    executable(bare / "chromium")
    monkeypatch.setenv(chromium.VARIABLE, value)
    with pytest.raises(UnsupportedError) as caught:
        find_chromium()
    assert caught.value.data == {"value": value}


def test_the_module_itself_answers_the_set_up(bare: Path) -> None:
    command = [sys.executable, "-m", "typedecide.chromium"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("No Chromium was found.")
    system = executable(bare / "chromium")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{system}\n", "")


@pytest.mark.parametrize("folder", [None, "0", "relative/folder", "/tmp/absolute"])
def test_playwright_itself_says_the_same_path(monkeypatch: pytest.MonkeyPatch, folder: str | None) -> None:
    if folder is None:
        monkeypatch.delenv("PLAYWRIGHT_BROWSERS_PATH", raising=False)
    else:
        monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", folder)
    # In a process of its own: the sync API cannot be entered twice in one.
    script = "from playwright.sync_api import sync_playwright as s\nwith s() as p: print(p.chromium.executable_path)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert str(playwright_chromium()) == done.stdout.strip()


def test_the_sandbox_is_off_for_root_only() -> None:
    assert ("--no-sandbox" in LAUNCH_ARGS) == (os.geteuid() == 0)
    assert (os.geteuid() != 0) == SANDBOX


def test_switches_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for platform, vulkan in (("linux", True), ("darwin", False)):
        monkeypatch.setattr(chromium.sys, "platform", platform)
        switches = webgpu_args(software=False)
        assert "--enable-unsafe-webgpu" in switches and not any("swiftshader" in one for one in switches)
        assert ("--use-angle=vulkan" in switches) == vulkan
        # Two would not add up: the browser takes the last one.
        assert len([one for one in switches if one.startswith("--enable-features=")]) == vulkan


@pytest.mark.parametrize("gpu", [True, False])
def test_a_page_gets_the_gpu_that_is_there(monkeypatch: pytest.MonkeyPatch, gpu: bool) -> None:
    monkeypatch.setattr(chromium, "has_gpu", lambda: gpu)
    assert gpu_args("wasm") == gpu_args("wasm", True) == ()
    assert gpu_args("auto") == (webgpu_args(software=False) if gpu else ())
    assert gpu_args("webgpu") == webgpu_args(software=not gpu)
    assert gpu_args("auto", True) == gpu_args("webgpu", True) == webgpu_args(software=True)


# In a process of its own, because one process can hold only one Playwright, and other tests hold theirs.
PROBE = """
import json, sys
from playwright.sync_api import sync_playwright
from typedecide.chromium import LAUNCH_ARGS, SANDBOX, find_chromium

url, *args = sys.argv[1:]
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(
        executable_path=find_chromium(), args=[*LAUNCH_ARGS, *args], chromium_sandbox=SANDBOX
    )
    page = browser.new_page()
    page.goto(url)
    print(json.dumps(page.evaluate('''async () => {
        const adapter = await navigator.gpu?.requestAdapter();
        return [crossOriginIsolated, typeof SharedArrayBuffer, adapter?.info.architecture ?? null];
    }''')))
    browser.close()
"""


def probe(root: Path, isolated: bool, *args: str) -> Any:
    """What a page of a real browser sees: is it isolated, can it share memory, which GPU adapter has it."""
    (root / "index.html").write_text("<!doctype html><title>probe</title>")
    with StaticServer(root, isolated=isolated) as server:
        command = [sys.executable, "-c", PROBE, server.url, *args]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.browser
def test_a_served_page_is_isolated_and_has_the_software_adapter(tmp_path: Path) -> None:
    assert probe(tmp_path, True, *webgpu_args(software=True)) == [True, "function", "swiftshader"]


@pytest.mark.browser
def test_without_the_headers_and_switches_a_page_has_neither(tmp_path: Path) -> None:
    assert probe(tmp_path, False, "--disable-gpu", "--disable-features=WebGPU") == [False, "undefined", None]
