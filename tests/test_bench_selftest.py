"""The self-test matrix in headless Chromium: what is right, what a planted fault makes wrong, and fp16."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench import half, selftest
from bench.__main__ import main
from tests.test_bench import check_result
from typedecide.bundle import Bundle
from typedecide.native import NativeEngine

GRID = ("--tokens", "1", "2", "33", "--prefixes", "0", "5")


def measure(path: Path, *arguments: str) -> Any:
    assert main(["selftest", *arguments, "--json", str(path)]) == 0
    result = json.loads(path.read_bytes())
    check_result(result)
    assert result["candidate"] == "all" and result["seed"] is None
    for row in result["rows"]:
        assert row["startup"] in ("passed", "rejected", "failed")
        assert row["verdict"] in ("right", "wrong", "failed")
        assert (row["verdict"] == "wrong") == (len(row["wrong"]) > 0)
        if row["verdict"] == "failed":
            assert row["reason"] and not row["runs"]
            continue
        # One token cannot be split.
        counts = {count: 1 if count == 1 else 2 for count in result["tokens"]}
        assert len(row["runs"]) == len(result["prefixes"]) * sum(counts.values())
    return result


@pytest.mark.browser
def test_wasm(dist_pointer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = measure(tmp_path / "one.json", "--device", "wasm", "--bundle", str(dist_pointer), *GRID)
    printed = capsys.readouterr().out
    print(printed)
    (row,) = result["rows"]
    assert (row["candidate"], row["startup"], row["verdict"]) == ("wasm", "passed", "right")
    assert row["max_error"] <= 1e-4 and row["startup_error"] <= 1e-4
    assert result["sound"] and result["tolerance"] == 5e-3
    assert "wasm: RIGHT; start-up self-test passed" in printed and "33 new" in printed
    assert "what the start-up self-test lets through is right everywhere" in printed


@pytest.mark.browser
def test_software_webgpu(dist_pointer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = measure(tmp_path / "one.json", "--device", "webgpu", "--bundle", str(dist_pointer), *GRID)
    print(capsys.readouterr().out)
    rows = {row["candidate"]: row for row in result["rows"]}
    assert [*rows] == ["webgpu-gqa", "webgpu-gqa-nosubgroups", "webgpu-explicit"]
    # Where subgroups have 4 members, the plain one goes wrong from 32 tokens on, and the start-up self-test sees it.
    plain = rows.pop("webgpu-gqa")
    assert (plain["startup"], plain["verdict"]) == ("rejected", "wrong")
    assert {(one["tokens"], one["packed"]) for one in plain["wrong"]} == {(33, False), (33, True)}
    for row in rows.values():
        assert (row["startup"], row["verdict"]) == ("passed", "right") and row["max_error"] <= 1e-4
    assert result["sound"] and result["adapter"]


@pytest.mark.browser
def test_a_fault_that_the_start_up_self_test_does_not_see(
    dist_pointer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(dist_pointer, broken, copy_function=os.link)
    code = (broken / "engine.js").read_text("utf-8")
    planned = "const plan = planRuns(suffixes, this.stock ? ALONE : Math.min(budget, this.shape.context));"
    assert planned in code
    (broken / "engine.js").unlink()
    fault = "for (const run of plan) if (run.ids.length === 2) run.ids[0] = 7;"
    (broken / "engine.js").write_text(code.replace(planned, f"{planned}\n{fault}"), "utf-8")
    result = measure(tmp_path / "one.json", "--device", "wasm", "--bundle", str(broken), *GRID)
    (row,) = result["rows"]
    assert (row["startup"], row["verdict"]) == ("passed", "wrong") and row["max_error"] > result["tolerance"]
    assert {one["tokens"] for one in row["wrong"]} == {2}
    assert not result["sound"]
    assert "what the start-up self-test lets through is NOT right everywhere" in capsys.readouterr().out


@pytest.mark.browser
def test_half_precision(dist_pointer: Path, tmp_path: Path) -> None:
    arguments = ("--device", "wasm", "--format", "fp16", "--bundle", str(dist_pointer))
    result = measure(tmp_path / "one.json", *arguments, *GRID)
    (row,) = result["rows"]
    print(f"fp16 on WASM against native: {row['max_error']:.1e}")
    assert (row["startup"], row["verdict"]) == ("passed", "right")
    assert result["format"] == "fp16" and result["tolerance"] == 0.05


def test_the_half_bundle_is_of_half_precision_and_kept(dist_pointer: Path) -> None:
    folder = half.half(dist_pointer)
    made = (folder / "manifest.json").stat().st_mtime_ns
    assert half.half(dist_pointer) == folder and (folder / "manifest.json").stat().st_mtime_ns == made
    bundle = Bundle.open(folder)
    bundle.check()
    assert [*bundle.formats] == ["fp16"] and bundle.default_format == "fp16"
    assert bundle.formats["fp16"].bytes < 0.6 * Bundle.open(dist_pointer).formats["fp32"].bytes
    with NativeEngine(dist_pointer, "fp32") as whole:
        right = selftest.make_cases(whole, (1, 33), (0, 37))
    for variant in ("gqa", "explicit"):
        with NativeEngine(folder, "fp16", variant) as engine:
            cases = selftest.make_cases(engine, (1, 33), (0, 37))
        errors = [one.error(other.logits) for one, other in zip(cases, right, strict=True)]
        print(f"{variant} in fp16 against fp32: {max(error or 0 for error in errors):.1e}")
        # Rounded, and only rounded.
        assert all(error is not None and error < 0.05 for error in errors)
        assert max(error or 0 for error in errors) > 1e-4


@pytest.mark.browser
def test_what_cannot_run_has_failed_and_nothing_is_let_through(
    dist_pointer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The software adapter has no float16."""
    arguments = ("--device", "webgpu", "--format", "fp16", "--bundle", str(dist_pointer))
    result = measure(tmp_path / "one.json", *arguments, "--tokens", "1", "--prefixes", "0", "5")
    assert {(row["startup"], row["verdict"]) for row in result["rows"]} == {("failed", "failed")}
    assert all("f16" in row["reason"] for row in result["rows"]) and result["sound"] is None
    printed = capsys.readouterr().out
    assert "webgpu-explicit: FAILED; start-up self-test failed: " in printed
    assert "what the start-up self-test lets through is nothing" in printed


def test_more_tokens_than_the_context_holds(dist_pointer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", "--bundle", str(dist_pointer), "--tokens", "5000"]) == 2
    assert "5300 tokens together; the context holds 4096" in capsys.readouterr().err


def test_no_number_is_an_error_of_its_own() -> None:
    case = selftest.Case([1], [], [[1.0, 2.0]])
    assert case.error([[1.5, 2.0]]) == 0.5
    assert case.error([[float("nan"), 2.0]]) is None
    assert case.error([[float("-inf"), 2.0]]) is None
