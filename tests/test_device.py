"""bench/device.sh: its parts and their time, its checks, and the whole path with a tiny model on a software adapter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench import device
from bench.device import libraries, package
from bench.device.__main__ import DeviceError, check_adapter, main
from bench.device.parts import MINUTES, SHALLOW, TINY, Part, budget, parts, run_one, run_parts
from bench.report import report
from pybuild.sources import DEFAULT_MODEL

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "bench" / "device.sh"

GPU: dict[str, Any] = {"name": "nvidia hopper", "fallback": False}


# -- parts and their time -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("minutes", [MINUTES, 2.5, 60])
@pytest.mark.parametrize("model", SHALLOW)
def test_all_parts_fit_into_the_time(model: str, minutes: float) -> None:
    chosen = parts(model, minutes)
    assert {part.arguments[0] for part in chosen} == {"shared_check", "selftest", "packing", "speed"}
    assert [part.name for part in chosen if "fp16" in part.arguments] == ["selftest-fp16"]
    # Some of it, of eight minutes one, is for unpacking and the browser's first start.
    assert sum(part.limit_s for part in chosen) <= 60 * minutes * 7 / 8 and MINUTES <= 8
    text = budget(chosen, minutes)
    assert all(f"{part.name:<14}{part.limit_s:>4} s" in text for part in chosen)


def test_parts_ask_for_what_is_packed() -> None:
    (speed,) = (part for part in parts(DEFAULT_MODEL) if part.name == "speed")
    wanted = speed.arguments[speed.arguments.index("--k") + 1 :][: len(SHALLOW[DEFAULT_MODEL])]
    assert wanted == tuple(map(str, SHALLOW[DEFAULT_MODEL]))
    assert all("--built" in part.arguments for part in parts(DEFAULT_MODEL))


def test_a_part_that_is_too_slow_ends_with_all_that_it_started(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); p.wait()"
    )
    began = time.monotonic()
    assert run_one([sys.executable, "-c", script], tmp_path, "slow", 3) == "too slow"
    assert time.monotonic() - began < 60
    child = Path(f"/proc/{int((tmp_path / 'slow.txt').read_text())}")
    for _ in range(100):
        # Nobody may have taken its status yet.
        if not child.exists() or "(zombie)" in (child / "status").read_text():
            return
        time.sleep(0.1)
    raise AssertionError("the child of a part that was too slow still runs")


def test_how_a_part_ended_and_what_it_said(tmp_path: Path) -> None:
    script = "import sys; print('figures'); print('progress', file=sys.stderr); sys.exit({})"
    for status, word in ((0, "done"), (3, "failed")):
        assert run_one([sys.executable, "-c", script.format(status)], tmp_path, word, 60) == word
        assert (tmp_path / f"{word}.txt").read_text() == "figures\n"
        assert (tmp_path / f"{word}.log").read_text() == "progress\n"


def test_what_there_is_no_time_for_is_left_out(tmp_path: Path) -> None:
    notes: list[Sequence[Any]] = []
    chosen = [Part("one", ("shared_check", "--format", "fp32"), 50)]
    done = run_parts(chosen, tmp_path, time.time() + 2, lambda found: notes.append([*found]))
    assert [part["status"] for part in done] == ["left out"] and notes == [done]
    assert not [*tmp_path.iterdir()]


# -- checks ---------------------------------------------------------------------------------------------------------


def test_no_adapter_and_software_ones_are_told() -> None:
    with pytest.raises(DeviceError, match=r"finds no adapter here.*Vulkan"):
        check_adapter(None, True)
    software = {"name": "google swiftshader", "fallback": False}
    for adapter in (software, {**GPU, "fallback": True}):
        with pytest.raises(DeviceError, match="software adapter"):
            check_adapter(adapter, False)
        check_adapter(adapter, True)
    check_adapter(GPU, False)


def test_libraries_that_a_machine_lacks_are_supplied(tmp_path: Path) -> None:
    import numpy._core._multiarray_umath as module

    # Away from its folder it finds its own libraries no more.
    program = tmp_path / "program.so"
    program.write_bytes(Path(module.__file__).read_bytes())
    packed = Path(module.__file__).parents[2] / "numpy.libs"
    own = {path.name for path in packed.iterdir()}
    assert own & libraries.needed([Path(module.__file__)]).keys()
    assert libraries.supply(program, packed, tmp_path / "supplied")
    assert {path.name for path in (tmp_path / "supplied").iterdir()} <= own
    assert not libraries.supply(Path(sys.executable).resolve(), packed, tmp_path / "other")
    (tmp_path / "nothing").mkdir()
    with pytest.raises(libraries.LibraryError, match="neither on this machine nor in the package"):
        libraries.supply(program, tmp_path / "nothing", tmp_path / "third")


def test_the_program_behind_a_launcher(tmp_path: Path) -> None:
    assert package.browser_program(Path(sys.executable)) == Path(sys.executable).resolve()
    with pytest.raises(package.PackageError, match=r"ends in \.tar"):
        package.pack(tmp_path / "package.zip", tiny=True)


def test_a_checkout_is_no_package(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run", "--results", str(tmp_path)]) == 1
    assert "this is no unpacked package" in capsys.readouterr().err


def test_wrong_arguments_show_how_it_is_called() -> None:
    for arguments in ([], ["run"], ["run", "FILE"], ["nonsense", "FILE"]):
        done = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "device.sh run FILE RESULTS" in done.stderr


# -- the whole path -------------------------------------------------------------------------------------------------


@pytest.mark.browser
def test_packed_and_run_elsewhere(tmp_path: Path) -> None:
    archive, results = tmp_path / "device.tar", tmp_path / "results"
    packed = subprocess.run(
        [sys.executable, "-m", "bench.device", "pack", str(archive), "--tiny"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert packed.returncode == 0, packed.stderr
    print(packed.stderr)
    # Nothing of this checkout or its environment but the script.
    script = tmp_path / "device.sh"
    script.write_bytes(SCRIPT.read_bytes())
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", script, "run", archive, results, *options]
        return subprocess.run(command, cwd=tmp_path, env=bare, capture_output=True, text=True, check=False)

    refused = run()
    assert refused.returncode == 1 and "DEVICE: WebGPU got the software adapter" in refused.stderr
    assert not [*results.iterdir()]
    # However slow this machine may be at the moment.
    done = run("--allow-software", "--minutes", "90")
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads((results / "device.json").read_bytes())
    assert [part["status"] for part in told["parts"]] == ["done"] * len(parts(TINY))
    assert "swiftshader" in told["adapter"]["name"]
    for part in told["parts"]:
        result = json.loads((results / part["file"]).read_bytes())
        assert result["device"] == "webgpu" and result["command"] == part["command"]
        assert (results / f"{part['name']}.txt").read_text("utf-8").strip()
    assert "time budget:" in done.stdout and device.summarise(told) in done.stdout
    # The report takes it as it is.
    assert "\n## device\n" in report({"device": told})
    # Nothing is left of what was unpacked.
    assert {path.name for path in tmp_path.iterdir()} >= {"device.tar", "results", "device.sh"}
    assert not [path for path in tmp_path.iterdir() if path.is_dir() and (path / "plan.json").exists()]
    assert os.environ.get("PYTHONHOME") is None
