"""The benchmark of the limit: on tiny models its counts are the runtime's own, and its products are products."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from bench import limit, ort_profile
from bench.__main__ import main
from bench.cost_model import CostModel, Product
from bench.ort_profile import Node
from tests.test_bench import check_result

COST = CostModel(hidden=6, queries=8, keys=4, ff=10, layers=3)


def run(bundle: Path, folder: Path, *arguments: str) -> Any:
    path = folder / "limit.json"
    command = ["limit", "--quick", "--bundle", str(bundle), "--format", "fp32", "--json", str(path)]
    assert main([*command, *arguments]) == 0
    assert path.with_suffix(".svg").read_bytes().startswith(b"<?xml")
    result = json.loads(path.read_text("utf-8"))
    print(limit.summarise(result))
    check_result(result)
    return result


@pytest.mark.browser
@pytest.mark.parametrize("fixture", ["dist_pointer", "dist_pointer_shallow"])
def test_counts_are_the_runtimes_own(fixture: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    result = run(request.getfixturevalue(fixture), tmp_path)
    one, two = result["measured"]
    assert (one["threads"], two["threads"], result["profile"]["threads"]) == (1, 2, 2)
    for counted, again, found in zip(one["phases"], two["phases"], result["profile"]["phases"], strict=True):
        # What the bench counts from sizes, and what the shapes say that the runtime's profile names.
        for key in ("layer_flops", "attention_flops"):
            assert counted[key] == again[key] == found[key] > 0
        assert counted["rows"] == again["rows"]
        assert counted["gflops"] == pytest.approx(counted["layer_flops"] / counted["ms"] / 1e6)
        assert 0 < counted["share"] < counted["share_with_attention"]
        assert sum(found["parts"].values()) == pytest.approx(found["ms"])
        assert set(found["parts"]) >= {
            "layer products",
            "attention products",
            "norms",
            "softmax and mask",
            "readout",
        }
        assert found["parts"]["layer products"] > 0
    assert [phase["phase"] for phase in one["phases"]] == list(limit.PHASES)
    prefill, packed, suffix = (phase["rows"] for phase in one["phases"])
    assert len(prefill) == len(suffix) == 1 and sum(suffix) < sum(packed)


@pytest.mark.browser
def test_on_a_gpu_bytes_are_measured_too(dist_pointer: Path, tmp_path: Path) -> None:
    result = run(dist_pointer, tmp_path, "--device", "webgpu")
    assert result["profile"] is None and result["adapter"]
    (measured,) = result["measured"]
    single = [rate for rate in measured["rates"] if rate["rows"] == 1]
    assert {(rate["inner"], rate["columns"]) for rate in single} == {
        (rate["inner"], rate["columns"]) for rate in measured["rates"]
    }
    assert all(rate["weights_gb_per_s"] > 0 for rate in single)
    assert "GB/s" in limit.summarise(result)


def test_operations_by_hand() -> None:
    # Two tokens into the first layer and on to the second, one of them read.
    products = COST.products([2, 2, 2, 1])
    assert set(products) >= {
        Product(2, 6, 4, 6),
        Product(2, 6, 10, 4),
        Product(1, 6, 10, 2),
        Product(1, 8, 6, 1),
    }
    all_tokens = 2 * 2 * COST.layer_weights * 3
    one_less = 2 * (COST.layer_weights - 2 * 6 * 4)
    assert sum(product.flops for product in products) == all_tokens - one_less
    assert COST.attention([2, 2, 2, 1], [5, 5, 5]) == 4 * 8 * 5 * (2 + 2 + 1)
    run = {"tokens": 7, "keys": 9, "up": 2, "up_keys": 3, "read": 1}
    found = limit.operations_of(COST, {"shallow": {"layers": 2}}, [run, run])
    assert found["layers"] == 2 * sum(product.flops for product in COST.products([7, 7, 2, 1]))
    assert found["attention"] == 2 * 4 * 8 * (7 * 9 + 2 * 9 + 1 * 3)
    assert set(found["shapes"]) == set(COST.shapes()) == {(6, 4), (6, 8), (8, 6), (6, 10), (10, 6)}


def test_the_limit_by_hand() -> None:
    # Four rows of the first shape take 2 ms plain, so that eight would take 4.
    times = {(6, 4): 2.0, (6, 10): 10.0}
    flops = {(6, 4): 2 * 8 * 6 * 4, (6, 10): 2 * 4 * 6 * 10}
    assert limit.limit_ms(flops, 4, times) == pytest.approx(4 + 10)


def event(name: str, us: int, cat: str = "Node", **args: Any) -> str:
    return json.dumps({"cat": cat, "name": name, "dur": us, "ts": 0, "args": args}) + ",\n"


def test_profiles_by_hand() -> None:
    def shapes(*dims: int) -> list[dict[str, list[int]]]:
        return [{"float": [*dims]}]

    layer = {"op_name": "MatMul", "input_type_shape": shapes(1, 5, 6), "output_type_shape": shapes(1, 5, 4)}
    scores = {
        "op_name": "FusedMatMul",
        "input_type_shape": shapes(1, 2, 9, 3),
        "output_type_shape": shapes(1, 2, 9, 7),
    }
    printed = [
        "[\n",
        event("model_loading_array", 9000, "Session"),
        event("a_kernel_time", 300, **layer),
        event("b_kernel_time", 500, **scores),
        event("c_kernel_time", 100, op_name="Softmax"),
        event("d_kernel_time", 40, op_name="Unheard"),
        event("SequentialExecutor::Execute", 1900, "Session"),
        event("model_run", 2000, "Session"),
        # The end of the last run is still in the runtime's buffer.
        event("a_kernel_time", 300, **layer),
    ]
    (done,) = ort_profile.read(printed)
    assert done.nodes[:2] == [
        Node("MatMul", (1, 5, 6), (1, 5, 4), 300),
        Node("FusedMatMul", (1, 2, 9, 3), (1, 2, 9, 7), 500),
    ]
    assert [node.flops for node in done.nodes[:2]] == [2 * 5 * 6 * 4, 2 * 2 * 9 * 3 * 7]
    assert done.parts() == pytest.approx(
        {
            "layer products": 0.3,
            "attention products": 0.5,
            "softmax and mask": 0.1,
            ort_profile.OTHER: 0.04,
            "between nodes": 1.06,
        }
    )


def test_plain_products_are_products(tmp_path: Path) -> None:
    inner, columns, copies = 5, 3, 4
    weights = np.random.default_rng(1).normal(size=(copies, inner, columns)).astype(np.float32)
    (tmp_path / "weights.bin").write_bytes(weights.tobytes())
    (tmp_path / "product.onnx").write_bytes(limit.product_graph(inner, columns, copies))
    session = onnxruntime.InferenceSession(tmp_path / "product.onnx", providers=["CPUExecutionProvider"])
    x = np.random.default_rng(2).normal(size=(7, inner)).astype(np.float32)
    (first_rows,) = session.run(None, {"x": x})
    np.testing.assert_allclose(first_rows, x[0] @ weights, rtol=1e-5)
