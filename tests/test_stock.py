"""Community exports as they are: built, checked, and answered by Python and the page, with prefixes reused exactly.

The fixture is a tiny random Qwen3 in the layout of onnx-community/Qwen3-0.6B-ONNX, by ONNX Runtime GenAI's exporter.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from bench.common import BUNDLES
from pybuild import npm, verify
from pybuild.bundle import build
from pybuild.graph import UnsupportedModelError
from pybuild.sources import SourceError
from tests.conftest import FIXTURES, ROOT
from typedecide.bundle import Bundle
from typedecide.errors import UnsupportedError
from typedecide.model import Shape, Suffix
from typedecide.native import NativeEngine
from typedecide.page import PageEngine
from typedecide.questions import Choice, Noul, Question, Score
from typedecide.stock import StockModel

EXPORT = FIXTURES / "qwen3-onnx"
LIMIT = 1e-4
HALF = 5e-3
"""Of probabilities, where caches are in float16."""

SHAPE = Shape(layers=3, kv_heads=2, head_dim=32, context=512)
STATE = "My card was charged twice for order 4412, and nobody has answered me."
QUESTIONS: dict[str, Question] = {
    "team": Choice("Which team?", ["billing", "shipping", "other"]),
    "angry": Noul("Is the customer angry?"),
    "urgency": Score("How urgent is it?", ["low", "medium", "high"]),
}


@pytest.fixture(scope="module")
def dist_export() -> Path:
    """The export as a bundle, in the formats that it has."""
    return build(BUNDLES / "tiny-export", from_onnx=EXPORT, quiet=True)


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def open_export(name: str = "model", folder: Path = EXPORT) -> StockModel:
    graph = folder / "onnx" / f"{name}.onnx"
    data = {path.name: path.read_bytes() for path in graph.parent.glob(f"{graph.name}_data")}
    return StockModel(graph.read_bytes(), data, SHAPE, 320)


# -- the graph ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "limit"), [("model", LIMIT), ("model_fp16", 0.1)])
def test_logits_agree_with_transformers(name: str, limit: float) -> None:
    with np.load(FIXTURES / "qwen3" / "golden.npz") as golden, open_export(name) as model:
        for length in (1, 7, 40, 70):
            ids, right = golden[f"ids_{length}"].tolist(), golden[f"logits_{length}"][-1]
            found = model.score_full(Suffix(ids, range(320)))
            assert float(np.abs(found - right).max()) <= limit


@pytest.mark.parametrize(("name", "limit"), [("model", LIMIT), ("model_fp16", 0.1)])
def test_prefix_reuse_is_exact(monkeypatch: pytest.MonkeyPatch, name: str, limit: float) -> None:
    ids = np.random.default_rng(5).integers(3, 300, 90).tolist()
    prefix, suffixes = (
        ids[:50],
        [Suffix(ids[50:], [5, 9, 300]), Suffix(ids[60:70], reads=[3, 9], targets=[8, 7])],
    )
    with open_export(name) as model:
        monkeypatch.setattr(model, "chunk", 16)
        cache = model.prefill(prefix, base=model.prefill(prefix[:7]))
        found, totals = model.score(cache, suffixes, 10_000)
        full = [
            model.score_full(Suffix([*prefix, *ids[50:]], [5, 9, 300])),
            model.score_full(Suffix([*prefix, *ids[60:70]], reads=[53, 59], targets=[8, 7])),
        ]
        short, _ = model.score(model.prefill(prefix[:-1]), suffixes)
        assert cache.bytes == 50 * model.shape.token_bytes
    gaps = [float(np.abs(a - b).max()) for a, b in zip(found, full, strict=True)]
    print(f"{name}: {gaps}")
    assert max(gaps) <= limit
    # A prefix without its last token shows.
    assert min(float(np.abs(a - b).max()) for a, b in zip(short, full, strict=True)) > 2 * limit
    # One by one, whatever the budget: the graph's mask knows no branches.
    assert (totals.runs, totals.saved, totals.tokens) == (2, 0, 50)


def test_javascript_reads_the_same_of_logits() -> None:
    command = [str(npm.node()), "--test", "tests/js/stock.test.js"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


# -- the build ------------------------------------------------------------------------------------------------------


def test_manifest_says_what_it_is(dist_export: Path) -> None:
    bundle = Bundle.open(dist_export)
    assert bundle.stock and [*bundle.formats] == ["fp32", "fp16"] and bundle.default_format == "fp32"
    assert bundle.manifest["readout"] == "labels" and bundle.model["family"] == "qwen3"
    assert [dict(one.graphs) for one in bundle.formats.values()] == [
        {"gqa": "model/model.onnx"},
        {"gqa": "model/model_fp16.onnx"},
    ]
    for name in ("model.onnx", "model_fp16.onnx"):
        assert (dist_export / "model" / name).read_bytes() == (EXPORT / "onnx" / name).read_bytes()
    checks = verify.verify(bundle, states=100, texts=300)
    assert [(check.name, check.failures[:3]) for check in checks if check.failures] == []


def test_formats_that_are_not_wanted_are_not_looked_at(tmp_path: Path) -> None:
    export = tmp_path / "export"
    shutil.copytree(EXPORT, export)
    (export / "onnx" / "model_bad.onnx").write_bytes(b"no graph")
    out = build(tmp_path / "out", formats=("fp16",), from_onnx=export, quiet=True)
    bundle = Bundle.open(out)
    assert [*bundle.formats] == ["fp16"]
    # Against float32, which is there.
    assert 0 < bundle.format().drift["max"] < HALF


def renamed(model: onnx.ModelProto) -> None:
    model.graph.input[0].name = "inputs_embeds"


def with_branch(model: onnx.ModelProto) -> None:
    model.graph.input.append(onnx.helper.make_tensor_value_info("use_cache_branch", 9, [1]))


def of_other_heads(model: onnx.ModelProto) -> None:
    (cache,) = (one for one in model.graph.input if one.name == "past_key_values.0.key")
    cache.type.tensor_type.shape.dim[1].dim_value = 5


@pytest.mark.parametrize(
    ("change", "value"),
    [
        (renamed, ["input_ids"]),
        (with_branch, ["use_cache_branch"]),
        (of_other_heads, [0, 5, 0, 0]),
    ],
)
def test_other_graphs_are_refused(
    tmp_path: Path, change: Callable[[onnx.ModelProto], None], value: object
) -> None:
    export = tmp_path / "export"
    shutil.copytree(EXPORT, export)
    path = export / "onnx" / "model.onnx"
    model = onnx.load(path, load_external_data=False)
    change(model)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(UnsupportedModelError) as caught:
        build(tmp_path / "out", from_onnx=export, quiet=True)
    assert caught.value.data["value"] == value


def test_a_graph_that_the_runtime_refuses_is_named(tmp_path: Path) -> None:
    export = tmp_path / "export"
    shutil.copytree(EXPORT, export)
    path = export / "onnx" / "model.onnx"
    model = onnx.load(path, load_external_data=False)
    next(node for node in model.graph.node if node.op_type == "RotaryEmbedding").input[0] = ""
    path.write_bytes(model.SerializeToString())
    with pytest.raises(SourceError, match=r"ONNX Runtime cannot load model\.onnx: .*RotaryEmbedding"):
        build(tmp_path / "out", from_onnx=export, quiet=True)


def test_missing_weights_and_graphs_are_named(tmp_path: Path) -> None:
    export = tmp_path / "export"
    shutil.copytree(EXPORT, export)
    (export / "onnx" / "model.onnx_data").unlink()
    with pytest.raises(SourceError, match=r"model\.onnx_data"):
        build(tmp_path / "out", from_onnx=export, quiet=True)
    shutil.rmtree(export / "onnx")
    with pytest.raises(SourceError, match="onnx/model"):
        build(tmp_path / "out", from_onnx=export, quiet=True)


@pytest.mark.parametrize(
    "options", [{"shallow": 2}, {"layers": 2}, {"anchor": "bos"}, {"formats": ("int4",)}]
)
def test_what_exports_cannot_do_is_refused(tmp_path: Path, options: dict[str, object]) -> None:
    with pytest.raises(UnsupportedError):
        build(tmp_path / "out", from_onnx=EXPORT, quiet=True, **options)  # type: ignore[arg-type]


# -- the engines ----------------------------------------------------------------------------------------------------


def gap_to_full(engine: NativeEngine | PageEngine, readout: str) -> float:
    """The largest difference of a probability between cached and whole prompts."""
    engine.prefill(STATE)
    worst = 0.0
    for question in QUESTIONS.values():
        found = engine.score(question, 1 if readout == "labels" else None, readout=readout)
        full = engine.score_full(STATE, question, readout)
        worst = max(worst, distance(found.answer.probabilities, full.answer.probabilities))
    return worst


@pytest.mark.parametrize(("name", "limit"), [("fp32", LIMIT), ("fp16", HALF)])
@pytest.mark.parametrize("readout", ("labels", "text"))
def test_native(dist_export: Path, name: str, limit: float, readout: str) -> None:
    with NativeEngine(dist_export, name) as engine:
        assert engine.info["candidate"] == "native-gqa"
        gap = gap_to_full(engine, readout)
        told: list[str] = []
        done = engine.decide(STATE, QUESTIONS, readout=readout, on_answer=lambda id, _: told.append(id))
        assert told == [*QUESTIONS] and done.tokens_saved == 0
        with pytest.raises(UnsupportedError, match="pointer"):
            engine.score(QUESTIONS["angry"], readout="pointer")
    print(f"{name} {readout}: {gap:.1e}")
    assert gap <= limit
    with pytest.raises(Exception, match="explicit"):
        NativeEngine(dist_export, variant="explicit")


def page_gap(page: PageEngine, native: NativeEngine) -> float:
    """The same between the page and Python."""
    found, right = (engine.decide(STATE, QUESTIONS, 2) for engine in (page, native))
    return max(
        distance(found.answers[id].answer.probabilities, right.answers[id].answer.probabilities)
        for id in QUESTIONS
    )


@pytest.mark.browser
@pytest.mark.parametrize(
    ("candidate", "name", "limit"),
    [("wasm", "fp32", LIMIT), ("wasm", "fp16", HALF), ("webgpu-gqa-nosubgroups", "fp32", LIMIT)],
)
def test_page(dist_export: Path, candidate: str, name: str, limit: float) -> None:
    device = candidate.partition("-")[0]
    with (
        PageEngine(dist_export, device, name, candidates=[candidate]) as page,
        NativeEngine(dist_export, name) as native,
    ):
        print(json.dumps(page.info["selfTest"]))
        reuse, apart = gap_to_full(page, "labels"), page_gap(page, native)
        assert page.info["tokenBytes"] == native.info["tokenBytes"]
    print(f"{candidate} {name}: prefix reuse {reuse:.1e}, from native {apart:.1e}")
    assert max(reuse, apart) <= limit
