"""The memory benchmark on the cut-down model: flat as it is, and not flat with each kind of leak planted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import common, memory
from bench.__main__ import main
from bench.memory import Plan
from bench.packing import MORE_QUESTIONS
from bench.probe import HELD, Memory, ProbedPage
from tests.test_bench import check_result

# Run in the worker at each message from the page: what is forgotten to be freed after a call.
LEAKS = {
    "worker_heap": "Array.from({ length: 20000 }, (_, i) => ({ i }))",
    "other_buffers": "new Uint8Array(400_000)",
    "wasm_heap": "new WebAssembly.Memory({ initial: 1 })",
}
PLANT = 'addEventListener("message", () => (globalThis.leak ??= []).push(%s));'


@pytest.fixture(scope="module")
def probed(dist_fp32_4l: Path) -> Iterator[ProbedPage]:
    """The cut-down model on WASM, in a browser that has WebGPU as well."""
    with ProbedPage(dist_fp32_4l, "auto", candidates=["wasm"], software=True) as probed:
        yield probed


@pytest.mark.browser
def test_memory_is_flat(dist_fp32_4l: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "memory.json"
    arguments = ["memory", "--quick", "--bundle", str(dist_fp32_4l), "--format", "fp32", "--json", str(path)]
    assert main(arguments) == 0
    result = json.loads(path.read_text("utf-8"))
    with capsys.disabled():
        print(f"\n{memory.summarise(result)}")
    check_result(result)
    assert result["flat"] and all(one["flat"] for one in result["growth"].values())
    assert result["seed"] == memory.SEED
    plan = memory.QUICK
    assert result["decisions"] == plan.texts * plan.groups * plan.per_group
    # Texts are dropped and read again; what is there for them is used.
    assert plan.texts < result["prefills"] < result["calls"]
    last = result["rows"][-1]
    assert 0 < last["kept_states"] <= result["state_limit_bytes"] < plan.texts * last["kept_states"]
    assert last["wasm_heap"] > 1e6 and last["gpu_buffers"] == 0
    drawing = path.with_suffix(".svg")
    first = drawing.read_bytes()
    assert first.startswith(b"<?xml")
    memory.plot(result, drawing)
    assert drawing.read_bytes() == first


@pytest.mark.browser
@pytest.mark.parametrize("figure", LEAKS)
def test_a_planted_leak_is_seen(probed: ProbedPage, figure: str) -> None:
    plan = Plan(texts=8, groups=2, per_group=1, kept=2, sample=2)
    result = memory.measure(probed, MORE_QUESTIONS, plan, PLANT % LEAKS[figure])
    print(memory.summarise(result))
    assert not result["flat"]
    assert [name for name, one in result["growth"].items() if not one["flat"]] == [figure]
    assert result["growth"][figure]["per_decision"] > 50_000


@pytest.mark.browser
def test_released_states_are_freed(probed: ProbedPage) -> None:
    probed.restart(state_bytes=10**9)
    held = Memory(probed)
    for text in memory.write_texts(12):
        probed.prefill(text)
    kept = sum(state["bytes"] for state in probed.evaluate("(engine) => engine.states()"))
    before = held.read()
    probed.release()
    freed = before.worker_buffers - held.read().worker_buffers
    print(f"release() freed {freed / 1e6:.3f} MB of {kept / 1e6:.3f} MB kept")
    assert freed == pytest.approx(kept, rel=0.2)


# One buffer is destroyed, one is forgotten and one is held.
MAKE_BUFFERS = """async (engine, script) => {
  (0, eval)(script);
  const device = await (await navigator.gpu.requestAdapter()).requestDevice();
  const make = (size) => device.createBuffer({ size, usage: GPUBufferUsage.COPY_DST });
  make(16).destroy();
  make(32);
  globalThis.buffer = make(64);
  return held();
}"""


@pytest.mark.browser
def test_gpu_buffers_are_counted_until_destroyed_or_collected(probed: ProbedPage) -> None:
    assert probed.evaluate(MAKE_BUFFERS, HELD) == {"wasm": 0, "buffers": 2, "bytes": 96}
    probed.on_page(lambda one: one.context.new_cdp_session(one).send("HeapProfiler.collectGarbage"))
    assert probed.evaluate("() => held()") == {"wasm": 0, "buffers": 1, "bytes": 64}
    assert probed.evaluate("() => (buffer.destroy(), held())") == {"wasm": 0, "buffers": 0, "bytes": 0}


def test_each_question_is_asked_about_each_text_once(dist_fp32_4l: Path) -> None:
    _, sample = common.read_sample(dist_fp32_4l)
    plan = memory.LONG
    calls = memory.make_calls([*sample.values(), *MORE_QUESTIONS], plan)
    assert len(calls) * plan.per_group == 1000 and len({call["state"] for call in calls}) == 50
    asked = {(call["state"], name) for call in calls for name in call["questions"]}
    assert len(asked) == 1000
    # The longest first: the runtime's heap grows to its need, and never gets smaller.
    assert {len(call["state"]) for call in calls[: plan.groups]} == {
        max(len(call["state"]) for call in calls)
    }
    assert calls == memory.make_calls([*sample.values(), *MORE_QUESTIONS], plan)


def rows(**figures: list[int]) -> list[dict[str, Any]]:
    count = len(next(iter(figures.values())))
    still = dict.fromkeys((*memory.GROWING, *memory.EQUAL), [10**7] * count)
    given = {**still, **figures}
    return [
        {"decisions": 10 * (i + 1), **{name: values[i] for name, values in given.items()}}
        for i in range(count)
    ]


@pytest.mark.parametrize(
    ("figures", "flat"),
    [
        # What happens before a quarter of the decisions is the warm-up.
        ({"worker_heap": [0, 50 * 10**6, 50 * 10**6, 50 * 10**6, 50 * 10**6]}, True),
        ({"worker_heap": [10**7, 10**7, 10**7, 10**7, 10**7 + 1_900_000]}, True),
        ({"worker_heap": [10**7, 10**7, 10**7, 10**7, 10**7 + 2_100_000]}, False),
        # Two per cent of much is more.
        ({"other_buffers": [2 * 10**8] * 4 + [203_900_000]}, True),
        ({"other_buffers": [2 * 10**8] * 4 + [204_100_000]}, False),
        ({"wasm_heap": [10**7, 2 * 10**7, 2 * 10**7, 2 * 10**7, 2 * 10**7]}, True),
        ({"wasm_heap": [10**7, 10**7, 10**7, 10**7, 10**7 + 65536]}, False),
        ({"other_gpu_buffers": [5, 7, 7, 8, 7]}, False),
    ],
)
def test_flat_by_hand(figures: dict[str, list[int]], flat: bool) -> None:
    found = memory.grown(rows(**figures))
    assert all(one["flat"] for one in found.values()) == flat
    (name,) = figures
    assert found[name]["before"] == figures[name][1]
    assert found[name]["change"] == figures[name][-1] - figures[name][1]
