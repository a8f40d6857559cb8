"""The decoder graph against transformers: tiny random models of each family, every variant and kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pybuild.graph import Decoder, UnsupportedModelError, Variant, build
from pybuild.quantize import store
from pybuild.sources import load_source
from tests.conftest import FIXTURES
from typedecide.model import HIDDEN, NativeModel, Shape, Suffix, tree_mask

FAMILIES = ("gemma3", "gemma3.gguf", "llama", "llama-untied", "llama.gguf", "qwen2", "qwen3")
VARIANTS: tuple[Variant, ...] = ("gqa", "explicit")
LENGTHS = (1, 7, 40, 70)
TOLERANCE = 1e-4


def open_model(tmp_path: Path, name: str, variant: Variant, format_name: str = "fp32") -> NativeModel:
    """A fixture model through the build path, in onnxruntime."""
    source = load_source(str(FIXTURES / name))
    decoder = Decoder.from_config(source.config)
    layout = store(decoder, source.weights, format_name, tmp_path, decoder.positions)
    data = {file: (tmp_path / file).read_bytes() for file, _ in layout.files()}
    shape = Shape(decoder.layers, decoder.kv_heads, decoder.head_dim, decoder.positions)
    return NativeModel(build(decoder, layout, variant), data, shape)


def golden(name: str) -> dict[str, NDArray[Any]]:
    """Token ids and transformers' logits of a fixture; the GGUF holds the llama fixture's weights."""
    with np.load(FIXTURES / name.removesuffix(".gguf") / "golden.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", FAMILIES)
def test_logits_agree_with_transformers(tmp_path: Path, name: str, variant: Variant) -> None:
    expected, worst = golden(name), 0.0
    vocabulary = list(range(expected["logits_1"].shape[-1]))
    with open_model(tmp_path, name, variant) as model:
        for length in LENGTHS:
            ids, logits = expected[f"ids_{length}"].tolist(), expected[f"logits_{length}"]
            for back in range(len(logits)):
                prompt = ids[: length - back]
                found = model.score_full(Suffix(prompt, vocabulary))
                worst = max(worst, float(np.abs(found - logits[len(logits) - 1 - back]).max()))
    print(f"{name} {variant}: largest logit difference {worst:.1e}")
    assert worst <= TOLERANCE


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("format_name", ("fp32", "int8", "int4"))
def test_prefix_reuse_and_packing_are_exact(tmp_path: Path, variant: Variant, format_name: str) -> None:
    ids = golden("qwen3")["ids_70"].tolist()
    prefix, tails = ids[:40], [ids[40:70], ids[10:21], ids[55:56]]
    labels = [5, 9, 200, 3]
    with open_model(tmp_path, "qwen3", variant, format_name) as model:
        cache = model.prefill(prefix)
        packed, _ = model.score(cache, [Suffix(t, labels) for t in tails])
        (again,), _ = model.score(cache, [Suffix(tails[1], labels)])
        full = [model.score_full(Suffix(prefix + t, labels)) for t in tails]
    worst = max(float(np.abs(a - b).max()) for a, b in zip(packed, full, strict=True))
    print(f"{format_name} {variant}: packed against full prompts {worst:.1e}")
    assert worst <= 1e-5
    assert float(np.abs(again - full[1]).max()) <= 1e-5


def test_long_prefix_in_chunks_is_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = golden("llama")["ids_70"].tolist()
    monkeypatch.setattr("typedecide.model.CHUNK", 16)
    with open_model(tmp_path, "llama", "explicit") as model:
        cache = model.prefill(ids[:60], base=model.prefill(ids[:7]))
        (found,), _ = model.score(cache, [Suffix(ids[60:], [1, 2, 3])])
        full = model.score_full(Suffix(ids, [1, 2, 3]))
    assert float(np.abs(found - full).max()) <= 1e-5


def test_mask_of_packed_suffixes() -> None:
    mask = tree_mask(2, [-1, 0, -1])[0, 0]
    h = HIDDEN
    assert mask.tolist() == [[0, 0, 0, h, h], [0, 0, 0, 0, h], [0, 0, h, h, 0]]


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ({"model_type": "mamba"}, "mamba"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "yarn"),
        ({"mlp_bias": True}, True),
    ],
)
def test_what_the_graph_does_not_compute_is_refused(change: dict[str, Any], value: object) -> None:
    config = {**load_source(str(FIXTURES / "llama")).config, **change}
    with pytest.raises(UnsupportedModelError) as caught:
        Decoder.from_config(config)
    assert caught.value.data["value"] == value


def test_sliding_windows_are_refused() -> None:
    config = {**load_source(str(FIXTURES / "qwen2")).config, "use_sliding_window": True}
    with pytest.raises(UnsupportedModelError):
        Decoder.from_config(config)
