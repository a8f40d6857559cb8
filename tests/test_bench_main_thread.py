"""The benchmark of the main thread on the cut-down model: free while the model scores; a planted task is seen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import common, main_thread
from bench.probe import MainThread, ProbedPage, read_trace
from tests.test_bench import check_result, run_json
from typedecide.errors import DeviceLostError


@pytest.mark.browser
@pytest.mark.usefixtures("dist_fp32_4l")
def test_main_thread_stays_free() -> None:
    result = run_json("main_thread", "--device", "wasm", "--format", "fp32", "--layers", "4")
    print(main_thread.summarise(result))
    check_result(result)
    assert result["free"] and result["longest_task_ms"] <= 50
    for row in result["rows"]:
        assert row["long_tasks_ms"] == [] and 0 < row["longest_task_ms"] <= 50
        assert row["answers"] == result["criteria"] and row["tokens"] > 500 and row["ms"] > 50
        # Each answer comes as a message of its run: the watch does see the thread's tasks.
        assert row["tasks"] > 2


@pytest.fixture(scope="module")
def probed(dist_fp32_4l: Path) -> Iterator[ProbedPage]:
    with ProbedPage(dist_fp32_4l, "wasm") as probed:
        yield probed


@pytest.mark.browser
def test_a_task_of_80_ms_is_seen(probed: ProbedPage, dist_fp32_4l: Path) -> None:
    state, questions = common.read_sample(dist_fp32_4l)
    result = main_thread.measure(probed, state, list(questions.values()), rounds=1, block=80)
    print(main_thread.summarise(result))
    assert not result["free"] and result["longest_task_ms"] >= 80
    for row in result["rows"]:
        # By the trace and by the page's own observer.
        assert row["longest_task_ms"] >= 80 and max(row["long_tasks_ms"]) >= 80


def event(name: str, thread: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "pid": 1, "tid": thread, "ph": "X", **more}


def test_traces_by_hand() -> None:
    named = [
        event("thread_name", 1, args={"name": "CrRendererMain"}),
        event("thread_name", 2, args={"name": "DedicatedWorker thread"}),
    ]
    tasks = [
        event("ThreadControllerImpl::RunTask", 1, dur=1500),
        event("ThreadControllerImpl::RunTask", 1, dur=2500),
        event("ThreadControllerImpl::RunTask", 2, dur=900_000),
        event("Receive mojo message", 1, dur=7000),
    ]
    trace = json.dumps({"traceEvents": [*named, *tasks]}).encode()
    assert read_trace(trace) == MainThread(tasks=2, longest_ms=2.5)
    # A trace that says nothing of the main thread is no proof that it was free.
    with pytest.raises(DeviceLostError, match="main thread"):
        read_trace(json.dumps({"traceEvents": named}).encode())
