"""The benchmarks' short forms, in headless Chromium; they print their figures. What all of them share."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import common, device, logit_cost, report, suite
from bench.__main__ import BENCHES, main, parser

ROOT = Path(__file__).resolve().parents[1]

EVERY_RESULT = {
    "benchmark", "model", "layers", "device", "candidate", "format", "threads", "adapter", "processor", "cores",
    "versions", "seed", "date", "command",
}  # fmt: skip


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=False)


def run_json(*arguments: str) -> Any:
    """The one JSON object that `--json -` prints, which must be all of standard output."""
    done = run(*arguments, "--quick", "--json", "-")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_result(result: Any) -> None:
    """What holds of every published result."""
    assert set(result) >= EVERY_RESULT
    runtime = {"onnxruntime"} if result["device"] == "native" else {"onnxruntime-web", "chromium"}
    assert set(result["versions"]) == {"typedecide", "python", *runtime}
    assert result["processor"] and result["date"].endswith("+00:00")
    assert result["command"].startswith(f"python -m bench {result['benchmark']} ")


@pytest.mark.browser
@pytest.mark.usefixtures("dist_fp32")
def test_shared_check_wasm() -> None:
    result = run_json("shared_check", "--device", "wasm", "--format", "fp32")
    print(f"shared_check wasm fp32: max_drift {result['max_drift']:.2e}, ms {result['ms']}")
    check_result(result)
    assert (result["device"], result["format"], result["layers"]) == ("wasm", "fp32", 30)
    assert result["criteria"] >= 11 and len(result["drift"]) == result["criteria"]
    assert result["max_drift"] == max(result["drift"].values()) <= 1e-6


@pytest.mark.browser
@pytest.mark.usefixtures("dist_fp32_4l")
def test_shared_check_webgpu() -> None:
    result = run_json("shared_check", "--device", "webgpu", "--format", "fp32", "--layers", "4")
    print(f"shared_check webgpu fp32, 4 layers: max_drift {result['max_drift']:.2e}, {result['candidate']}")
    check_result(result)
    assert (result["device"], result["format"], result["layers"]) == ("webgpu", "fp32", 4)
    assert result["criteria"] >= 11 and result["adapter"]
    assert result["max_drift"] <= 1e-5


@pytest.mark.browser
@pytest.mark.usefixtures("dist_fp32_4l")
def test_logit_cost() -> None:
    result = run_json("logit_cost", "--device", "wasm", "--format", "fp32", "--layers", "4")
    print(f"logit_cost wasm fp32, 4 layers: {result['fit']}")
    check_result(result)
    tokens = [point["suffix_tokens"] for point in result["points"]]
    assert tokens == sorted(set(tokens)) and len(tokens) == 3
    assert all(len(point["ms"]) == result["repeats"] and min(point["ms"]) > 0 for point in result["points"])
    assert result["fit"]["ms_per_token"] > 0


@pytest.mark.browser
def test_figures_are_printed_and_the_plot_is_drawn(
    dist_fp32_4l: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results" / "cost.json"
    arguments = (
        "logit_cost",
        "--quick",
        "--bundle",
        str(dist_fp32_4l),
        "--format",
        "fp32",
        "--json",
        str(path),
    )
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "ms per token" in printed and str(path) in printed
    result = json.loads(path.read_text(encoding="utf-8"))
    check_result(result)
    drawing = path.with_suffix(".svg")
    assert drawing.read_text(encoding="utf-8").startswith("<?xml")
    first = drawing.read_bytes()
    logit_cost.plot(result, drawing)
    assert drawing.read_bytes() == first


def test_fit_finds_a_known_line() -> None:
    tokens = [10, 20, 40, 80]
    line = logit_cost.fit(tokens, [5 + 0.25 * count for count in tokens])
    assert line == pytest.approx({"fixed_ms": 5, "ms_per_token": 0.25, "r2": 1})
    noisy = logit_cost.fit(tokens, [7.5, 12.5, 14, 26])
    assert 0.9 < noisy["r2"] < 1
    assert logit_cost.fit(tokens, [3, 3, 3, 3])["ms_per_token"] == pytest.approx(0)


def test_lengthened_questions_grow() -> None:
    texts = [sum(map(len, logit_cost.lengthened(words).criterion().options)) for words in (0, 4, 8, 64)]
    assert texts == sorted(set(texts))
    assert len({logit_cost.lengthened(words).names for words in (0, 64)}) == 1


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ([], common.RESULTS / "shared_check-webgpu-int4.json"),
        (["--quick"], None),
        (["--json", "-"], None),
        (["--quick", "--json", "here.json"], Path("here.json")),
    ],
)
def test_where_results_go(arguments: list[str], place: Path | None) -> None:
    args = parser().parse_args(["shared_check", "--device", "webgpu", "--format", "int4", *arguments])
    assert common.results_path(args, "shared_check") == place


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["shared_check", "--criteria", "0"], "--criteria 0"),
        (["shared_check", "--criteria", "99"], "--criteria 99"),
        (["logit_cost", "--layers", "7"], "--layers 7"),
    ],
)
def test_arguments_that_do_not_fit(
    dist_fp32_4l: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main([*arguments, "--bundle", str(dist_fp32_4l), "--format", "fp32"]) == 2
    printed = capsys.readouterr()
    assert words in printed.err and printed.out == ""


def test_unknown_formats_are_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shared_check", "--format", "fp8"]) == 1
    assert "fp8" in capsys.readouterr().err


def test_help_names_every_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    printed = capsys.readouterr().out
    assert caught.value.code == 0
    assert "examples:" in printed
    for name in ("shared_check", "logit_cost", "packing", "flips", "memory", "main_thread"):
        assert f"\n    {name}" in printed


def test_the_suite_runs_everything_that_has_results() -> None:
    benches = [step[1:] for step in suite.SUITE if step[0] == "bench"]
    assert {name for name, *_ in benches} == {module.NAME for module in BENCHES}
    assert all(importlib.util.find_spec(step[0]) for step in suite.SUITE)
    # What a benchmark needs comes before it.
    order = [step[:2] for step in suite.SUITE]
    assert order[0] == ("bench.tiny",) and ("bench.heldout",) in order
    assert order.index(("bench.peers.export",)) < order.index(("bench", "peers"))


def test_no_two_steps_write_one_file_and_every_kept_result_is_of_one() -> None:
    steps = [parser().parse_args(step[1:]) for step in suite.SUITE if step[0] == "bench"]
    files = [common.results_path(args, args.benchmark) for args in steps]
    assert None not in files and len({*files}) == len(files)
    measured = {(args.benchmark, args.device) for args in steps}
    for name, result in report.read_results().items():
        # Those of a GPU are brought from elsewhere.
        if name not in (report.HELDOUT, suite.NAME, device.NAME) and result["device"] != "webgpu":
            assert (result["benchmark"], result["device"]) in measured, name


def test_all_run_also_after_a_failure(
    dist_pointer: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    steps = (
        ("bench", "shared_check", "--format", "fp8"),
        ("bench", "flips", "--quick", "--bundle", str(dist_pointer), "--format", "fp32"),
    )
    assert suite.run(steps, tmp_path) == 1
    printed = capfd.readouterr()
    assert "[1/2] FAILED with status 1" in printed.err and "[2/2] done" in printed.err
    assert "answers that change" in printed.out and "FAILED with status 1" in printed.out
    result = json.loads((tmp_path / "suite.json").read_bytes())
    assert [step["status"] for step in result["steps"]] == [1, 0]
    assert result["seconds"] >= sum(step["seconds"] for step in result["steps"]) > 0
    told = suite.told({"suite": result})
    assert told.startswith("All 2 steps, 1 of which failed, took ")
    assert "take hours" in suite.told({})


def test_without_a_name_all_run_and_the_report_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(suite, "run", lambda: done.append("run") or 3)
    monkeypatch.setattr(report, "write", lambda results: done.append(f"report of {len(results)}"))
    assert main([]) == 3
    assert done == ["run", f"report of {len(report.read_results())}"]


def test_devices_are_those_that_a_benchmark_runs_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert parser().parse_args(["flips"]).device == "native"
    assert parser().parse_args(["memory"]).device == "wasm"
    with pytest.raises(SystemExit):
        parser().parse_args(["memory", "--device", "native"])
    assert "'native'" in capsys.readouterr().err
