"""The format int8-fast: rotated weights, levels chosen by moments, and results that do not depend on the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.packing import in_order
from bench.tiny import build_tiny
from pybuild import moments
from pybuild.graph import SHARED_INPUTS, VALUE_STEP, Decoder, build, weight_names
from pybuild.quantize import FORMATS, Rounding, store
from pybuild.rotate import Rotated, can_rotate, mixer
from pybuild.sources import load_source
from tests.conftest import FIXTURES
from tests.test_graph import LENGTHS, TOLERANCE, golden
from typedecide import Choice, Noul, Score, UnsupportedError
from typedecide.batches import open_batched
from typedecide.bundle import Bundle
from typedecide.model import NativeModel, Shape, Suffix
from typedecide.native import NativeEngine
from typedecide.page import PageEngine
from typedecide.questions import Question

NAME = "int8-fast"
POSITIONS = 1024
FAMILIES = ("gemma3", "llama", "llama-untied", "qwen2", "qwen3")
STATE = "I was charged twice for order 4412 and nobody has answered for four days."
QUESTIONS: list[Question] = [
    Choice("Which team should read this?", ["billing", "technical support", "legal", "nobody", "sales"]),
    Noul("Does the writer want money back?"),
    Score("How urgent is it?", ["not at all", "a little", "very"]),
    Choice("Which team should answer?", ["technical support", "billing", "sales"]),
]


def parts(name: str) -> tuple[Decoder, moments.Weights, Shape]:
    """A fixture's decoder, its weights as the format takes them, and the shape of its caches."""
    source = load_source(str(FIXTURES / name))
    decoder = replace(Decoder.from_config(source.config), positions=POSITIONS)
    weights = Rotated(decoder, source.weights) if can_rotate(decoder) else source.weights
    return decoder, weights, Shape(decoder.layers, decoder.kv_heads, decoder.head_dim, decoder.positions)


def open_model(folder: Path, name: str, format_name: str = NAME, plain_sums: bool = False) -> NativeModel:
    """A fixture, rotated, in onnxruntime; `plain_sums`: over keys as other formats have them."""
    decoder, weights, shape = parts(name)
    layout = store(decoder, weights, format_name, folder, decoder.positions)
    data = {file: (folder / file).read_bytes() for file, _ in layout.files()}
    if plain_sums:
        layout._tensors = {n: one for n, one in layout._tensors.items() if not n.endswith(VALUE_STEP)}
    return NativeModel(build(decoder, layout, "explicit"), data, shape)


@pytest.mark.parametrize("size", (1, 2, 12, 64, 576))
def test_the_mixer_is_orthogonal_and_even(size: int) -> None:
    found = mixer(size)
    assert np.allclose(found @ found.T, np.eye(size), atol=1e-5)
    assert np.abs(found).max() <= np.sqrt(2 / size) + 1e-6


@pytest.mark.parametrize("name", ("llama", "llama-untied", "qwen2", "qwen3"))
def test_rotated_weights_give_what_the_model_gives(tmp_path: Path, name: str) -> None:
    expected, worst = golden(name), 0.0
    vocabulary = list(range(expected["logits_1"].shape[-1]))
    with open_model(tmp_path, name, "fp32") as model:
        for length in LENGTHS:
            ids, logits = expected[f"ids_{length}"].tolist(), expected[f"logits_{length}"]
            found = model.score_full(Suffix(ids, vocabulary))
            worst = max(worst, float(np.abs(found - logits[-1]).max()))
    print(f"{name}: largest logit difference {worst:.1e}")
    assert worst <= TOLERANCE


def gaps(model: NativeModel, seed: int = 0) -> tuple[float, float]:
    """The largest logit difference between suffixes packed and alone, and between packed and whole prompts."""
    rng, labels = np.random.default_rng(seed), [5, 9, 100, 3]
    prefix = rng.integers(10, 200, 301).tolist()
    tails = [rng.integers(10, 200, length).tolist() for length in rng.integers(5, 30, 24)]
    cache = model.prefill(prefix)
    packed, _ = model.score(cache, [Suffix(tail, labels) for tail in tails])
    alone = [model.score(cache, [Suffix(tail, labels)])[0][0] for tail in tails]
    whole = [model.score_full(Suffix(prefix + tail, labels)) for tail in tails]
    apart = [
        max(float(np.abs(a - b).max()) for a, b in zip(packed, other, strict=True))
        for other in (alone, whole)
    ]
    return apart[0], apart[1]


@pytest.mark.parametrize("name", FAMILIES)
def test_packed_is_alone_is_whole(tmp_path: Path, name: str) -> None:
    with open_model(tmp_path, name) as model:
        found = gaps(model)
    print(f"{name}: packed against alone {found[0]:.1e}, against whole prompts {found[1]:.1e}")
    assert max(found) <= 1e-5


def test_sums_in_float32_would_not_do(tmp_path: Path) -> None:
    """What exact sums are for: without them the last bit turns levels, and grows."""
    with open_model(tmp_path, "gemma3", plain_sums=True) as model:
        worst = max(max(gaps(model, seed)) for seed in range(4))
    print(f"with plain sums: {worst:.1e}")
    assert worst > 1e-4


def test_the_grouped_kernel_is_refused(tmp_path: Path) -> None:
    decoder, weights, _ = parts("llama")
    layout = store(decoder, weights, NAME, tmp_path, decoder.positions)
    with pytest.raises(ValueError, match="gqa"):
        build(decoder, layout, "gqa")


def test_rounding_by_moments_changes_outputs_less() -> None:
    rng = np.random.default_rng(3)
    inputs = rng.normal(size=(500, 16)) @ rng.normal(size=(16, 96)) + 0.1 * rng.normal(size=(500, 96))
    matrix = rng.normal(size=(40, 96)).astype(np.float32)
    name = "model.layers.0.self_attn.v_proj.weight"
    source = name.replace("v_proj", SHARED_INPUTS["v_proj"])
    errors = []
    for known in (None, {source: inputs.T @ inputs}):
        q, scale = Rounding(known)(name, matrix)
        assert q.dtype == np.uint8 and q.min() >= 1
        rounded = (q.astype(np.float32) - 128) * scale[:, None]
        assert np.abs(rounded - matrix).max() <= 20 * scale.max()
        errors.append(float(np.abs(inputs @ (rounded - matrix).T).mean()))
    print(f"mean output error: nearest {errors[0]:.4f}, by moments {errors[1]:.4f}")
    assert errors[1] < 0.6 * errors[0]


def test_moments_are_those_of_all_tokens(tmp_path: Path) -> None:
    decoder, weights, shape = parts("llama")
    runs = [([1, 2, 3], [[4, 5], [6]]), ([7, 8], [[9]])]
    found = moments.measure(
        decoder, lambda folder: store(decoder, weights, "fp32", folder, decoder.positions), shape, runs
    )
    wanted = {n for n in weight_names(decoder)[1] if n.split(".")[-2] not in SHARED_INPUTS}
    assert set(found) == wanted
    # What layer 0 gets is the normed embeddings; tokens of a prefix are run once.
    rows = weights.get("model.embed_tokens.weight")[[1, 2, 3, 4, 5, 6, 7, 8, 9]]
    rows = rows / np.sqrt(np.square(rows).mean(-1, keepdims=True) + decoder.eps)
    assert np.allclose(found["model.layers.0.self_attn.k_proj.weight"], rows.T @ rows, atol=1e-3)
    last = f"model.layers.{decoder.layers - 1}.mlp.down_proj.weight"
    assert np.linalg.matrix_rank(found[last].astype(np.float32)) == len(rows)


def test_texts_are_none_that_drift_is_measured_on() -> None:
    from pybuild.drift import PROMPTS

    found = list(moments.texts())
    assert len(found) == moments.TEXTS * len(list(moments.CORPUS.glob("*.jsonl"))) > 0
    assert not any(text["state"] in PROMPTS.read_text("utf-8") for text in found)


@pytest.fixture(scope="module")
def bundle() -> Path:
    """The tiny model with a pointer."""
    return build_tiny("-fast", formats=(NAME, "fp32"))


@pytest.fixture(scope="module")
def native(bundle: Path) -> Iterator[NativeEngine]:
    """The format in Python's onnxruntime."""
    with NativeEngine(bundle, NAME) as engine:
        yield engine


def probabilities(engine: NativeEngine | PageEngine, questions: list[Question]) -> list[dict[str, float]]:
    """By option, of all questions in one packed run."""
    found = engine.score_all(questions, readout="pointer").answers
    return [dict(zip(one.answer.names, one.answer.probabilities, strict=True)) for one in found]


def worst_gap(engine: NativeEngine | PageEngine) -> float:
    """Of probabilities: packed against one by one, and against all options the other way round."""
    engine.prefill(STATE)
    packed = probabilities(engine, QUESTIONS)
    others = [
        [probabilities(engine, [question])[0] for question in QUESTIONS],
        probabilities(engine, [_reversed(question) for question in QUESTIONS]),
    ]
    return max(
        abs(one[option] - another[option])
        for other in others
        for one, another in zip(packed, other, strict=True)
        for option in one
    )


def _reversed(question: Question) -> Question:
    """With its options the other way round, where their order is not its meaning."""
    if not isinstance(question, Choice):
        return question
    for shift in range(1, len(question.names)):
        question = in_order(question, shift)
    return question


def test_manifest(bundle: Path) -> None:
    entry = Bundle.open(bundle).manifest["formats"][NAME]
    assert entry["devices"] == ["wasm"] and entry["tolerance"] > Bundle.open(bundle).tolerance
    assert set(entry["graphs"]) == {"explicit", "batched"} and entry["drift"]["prompts"] >= 50
    assert FORMATS[NAME].is_rounded and not FORMATS["int8"].is_rounded


def test_native_answers_depend_on_neither_neighbours_nor_order(native: NativeEngine) -> None:
    found = worst_gap(native)
    print(f"native: {found:.1e}")
    assert found <= 1e-5


def test_batches_give_what_the_cache_gives(bundle: Path, native: NativeEngine) -> None:
    ids = native.tokenizer.encode(STATE)
    labels = [label["id"] for label in Bundle.open(bundle).labels[:6]]
    prompts = [Suffix(ids[:9], labels), Suffix(ids, labels)]
    with open_batched(Bundle.open(bundle), NAME) as model:
        batched = model.score(prompts, 4096)
    for prompt, found in zip(prompts, batched, strict=True):
        cache = native.model.prefill(prompt.ids[:5])
        (one,), _ = native.model.score(cache, [Suffix(prompt.ids[5:], labels)])
        assert float(np.abs(found - one).max()) <= 1e-5


@pytest.mark.browser
def test_page_answers_depend_on_neither_neighbours_nor_order(bundle: Path) -> None:
    with PageEngine(bundle, "wasm", NAME) as engine:
        assert [trial["verdict"] for trial in engine.info["selfTest"]] == ["chosen"]
        found = worst_gap(engine)
    print(f"page: {found:.1e}")
    assert found <= 1e-5


@pytest.mark.browser
def test_a_gpu_is_left_to_other_formats(bundle: Path) -> None:
    with pytest.raises(UnsupportedError, match="int8-fast is for wasm"):
        PageEngine(bundle, "webgpu", NAME)
