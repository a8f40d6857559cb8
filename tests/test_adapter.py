"""An adapter merged into a base model's weights: the sum, the pointer, what must fit, and the model built from it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pybuild.adapter import FACTS, TENSORS, MergedWeights, read_adapter, write_adapter
from pybuild.graph import POINTER, Decoder
from pybuild.sources import DEFAULT_MODEL, STOCK_MODEL, Source, SourceError, load_source
from tests.conftest import FIXTURES

LAYER = "model.layers.0.mlp.down_proj"
RANK, ALPHA = 4, 6.0


@pytest.fixture(scope="module")
def base() -> Source:
    return load_source(str(FIXTURES / "llama"))


def write(folder: Path, base: Source, rank: int = RANK, outputs: int | None = None) -> Path:
    """An adapter of one layer and a pointer for the fixture."""
    rng = np.random.default_rng(1)
    d = Decoder.from_config(base.config)
    a = rng.normal(size=(rank, d.ff)).astype(np.float32)
    b = rng.normal(size=(outputs or d.hidden, rank)).astype(np.float32)
    pointer = rng.normal(size=(9, d.hidden)).astype(np.float32)
    facts = {"base": str(FIXTURES / "llama"), "rank": RANK, "alpha": ALPHA}
    write_adapter(folder, {LAYER: (a, b)}, pointer, facts)
    return folder


def test_weights_are_those_of_the_base_plus_scaled_b_a(tmp_path: Path, base: Source) -> None:
    adapter = read_adapter(write(tmp_path, base))
    merged = MergedWeights(base.weights, adapter)
    a, b = (adapter.tensors.get(f"{LAYER}.lora_{part}") for part in "AB")
    name = f"{LAYER}.weight"
    np.testing.assert_allclose(merged.get(name), base.weights.get(name) + ALPHA / RANK * (b @ a), rtol=1e-5)
    others = [other for other in base.weights.names() if other != name]
    assert all(np.array_equal(merged.get(other), base.weights.get(other)) for other in others)
    assert merged.get(POINTER).shape == (9, Decoder.from_config(base.config).hidden)
    assert list(merged.names()) == sorted([*base.weights.names(), POINTER])


def test_a_folder_with_an_adapter_is_a_source(tmp_path: Path, base: Source) -> None:
    source = load_source(str(write(tmp_path / "mine", base)))
    assert (source.name, source.config, source.tokenizer) == ("mine", base.config, base.tokenizer)
    assert POINTER in source.weights.names()


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        (None, "MIT, adapter: not stated"),
        ("---\nlicense: apache-2.0\n---\n", "MIT, adapter: Apache-2.0"),
        ("---\nlicense: mit\n---\n", "MIT"),
    ],
)
def test_the_licences_of_base_and_adapter(
    tmp_path: Path, base: Source, card: str | None, licence: str
) -> None:
    folder = write(tmp_path / "adapter", base)
    facts = json.loads((folder / FACTS).read_text())
    stock = Path(shutil.copytree(FIXTURES / "llama", tmp_path / "base"))
    (stock / "README.md").write_text("---\nlicense: mit\n---\n")
    (folder / FACTS).write_text(json.dumps({**facts, "base": str(stock)}))
    if card is not None:
        (folder / "README.md").write_text(card)
    assert load_source(str(folder)).licence == licence


def test_an_adapter_has_its_own_release_date(tmp_path: Path, base: Source) -> None:
    folder = write(tmp_path / "adapter", base)
    assert load_source(str(folder)).released is None
    (folder / "README.md").write_text("---\nrelease_date: 2026-11-30\n---\n")
    assert load_source(str(folder)).released == "2026-11-30"


def test_the_origin_changes_with_either_file(tmp_path: Path, base: Source) -> None:
    folder = write(tmp_path, base)
    first = load_source(str(folder)).origin
    facts = json.loads((folder / FACTS).read_text())
    (folder / FACTS).write_text(json.dumps({**facts, "alpha": 7}))
    second = load_source(str(folder)).origin
    data = bytearray((folder / TENSORS).read_bytes())
    data[-1] ^= 1
    (folder / TENSORS).write_bytes(data)
    assert len({base.origin, first, second, load_source(str(folder)).origin}) == 4


def test_an_adapter_on_an_adapted_model(tmp_path: Path, base: Source) -> None:
    first = write(tmp_path / "first", base)
    factors = [read_adapter(first).tensors.get(f"{LAYER}.lora_{part}") for part in "AB"]
    facts = {"base": str(first), "rank": RANK, "alpha": 2 * ALPHA}
    write_adapter(tmp_path / "second", {LAYER: (factors[0], factors[1])}, None, facts)
    source, adapted = load_source(str(tmp_path / "second")), load_source(str(first))
    name = f"{LAYER}.weight"
    both = base.weights.get(name) + 3 * (adapted.weights.get(name) - base.weights.get(name))
    np.testing.assert_allclose(source.weights.get(name), both, rtol=1e-4, atol=1e-5)
    assert np.array_equal(source.weights.get(POINTER), adapted.weights.get(POINTER))
    assert source.weights.names() == adapted.weights.names()
    assert source.origin.startswith(adapted.origin) and source.name == "second"


def test_a_pointer_replaces_that_of_the_base(tmp_path: Path, base: Source) -> None:
    facts = {"base": str(write(tmp_path / "first", base)), "rank": RANK, "alpha": ALPHA}
    pointer = np.ones((9, Decoder.from_config(base.config).hidden), np.float32)
    write_adapter(tmp_path / "second", {}, pointer, facts)
    assert np.array_equal(load_source(str(tmp_path / "second")).weights.get(POINTER), pointer)


@pytest.mark.parametrize("ring", (1, 3))
def test_adapters_that_are_based_on_themselves(tmp_path: Path, base: Source, ring: int) -> None:
    folders = [write(tmp_path / str(number), base) for number in range(ring)]
    for number, folder in enumerate(folders):
        facts = json.loads((folder / FACTS).read_text())
        (folder / FACTS).write_text(json.dumps({**facts, "base": str(folders[(number + 1) % ring])}))
    with pytest.raises(SourceError, match="based on itself"):
        load_source(str(folders[0]))


@pytest.mark.parametrize(
    "facts",
    [
        "{",
        "[]",
        '{"base": "x", "rank": 4}',
        '{"base": "x", "rank": 0, "alpha": 1}',
        '{"base": 1, "rank": 4, "alpha": 1}',
    ],
)
def test_facts_that_say_too_little(tmp_path: Path, base: Source, facts: str) -> None:
    folder = write(tmp_path, base)
    (folder / FACTS).write_text(facts)
    with pytest.raises(SourceError, match=FACTS):
        read_adapter(folder)


def test_tensors_of_another_rank(tmp_path: Path, base: Source) -> None:
    with pytest.raises(SourceError, match="not of rank 4"):
        read_adapter(write(tmp_path, base, rank=3))


def test_an_adapter_of_another_shape(tmp_path: Path, base: Source) -> None:
    merged = MergedWeights(base.weights, read_adapter(write(tmp_path, base, outputs=5)))
    with pytest.raises(SourceError, match="the adapter is for"):
        merged.get(f"{LAYER}.weight")


def test_an_adapter_for_layers_that_the_base_lacks(tmp_path: Path, base: Source) -> None:
    adapter = read_adapter(write(tmp_path, base))
    other = MergedWeights(base.weights, adapter)
    with pytest.raises(SourceError, match="no tensor"):
        MergedWeights(_Without(base, f"{LAYER}.weight"), adapter)
    assert other.names()


def test_the_tuned_default_is_the_stock_model_with_a_pointer() -> None:
    stock, tuned = load_source(STOCK_MODEL), load_source(DEFAULT_MODEL)
    assert tuned.name == DEFAULT_MODEL and tuned.tokenizer == stock.tokenizer
    assert set(tuned.weights.names()) - set(stock.weights.names()) == {POINTER}
    name = "model.layers.0.self_attn.q_proj.weight"
    assert not np.array_equal(tuned.weights.get(name), stock.weights.get(name))


class _Without:
    """The tensors of a source except one."""

    def __init__(self, source: Source, name: str) -> None:
        self._weights, self._name = source.weights, name

    def names(self) -> list[str]:
        return [name for name in self._weights.names() if name != self._name]

    def get(self, name: str) -> np.ndarray:
        return self._weights.get(name)
