"""Gemma 3: sliding windows through prefixes, packing, sets of options, batches and shallow models; its tokenizer; a
page.

Its logits against transformers' are in test_graph.py. The fixture's window is 16 tokens, so most prompts here are
longer.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.tiny import build_tiny
from pybuild import graph, verify
from pybuild.graph import POINTER, Decoder, UnsupportedModelError, Variant, build
from pybuild.quantize import FORMATS, quantize_int8, store
from pybuild.sources import Source, load_source
from tests.conftest import FIXTURES
from tests.test_graph import TOLERANCE, VARIANTS, golden
from typedecide import model as engine_module
from typedecide.bundle import Bundle
from typedecide.model import BatchedModel, NativeModel, Shape, Suffix
from typedecide.native import NativeEngine, TextTokenizer
from typedecide.page import PageEngine
from typedecide.questions import Choice, Noul, Question, Score

WINDOW = 16
LIMIT = 1e-5
IDS = [int(i) for i in np.random.default_rng(8).integers(10, 500, 90)]
PREFIX, STEM = IDS[:45], IDS[45:50]
SUFFIXES = (
    Suffix([*STEM, 20, 9], [7, 8, 300]),
    Suffix([*STEM, *IDS[50:80]], [7, 8, 300]),
    Suffix([*STEM, 30, 14, 17], reads=[1, 3, 5], targets=[15, 16, 9]),
    Suffix(STEM, branches=[IDS[60:63], IDS[63:81], IDS[81:83]], tail=[11, 12]),
)

Array = NDArray[np.float32]


class WithPointer:
    """The fixture's weights and a random pointer, for sets of options."""

    def __init__(self, source: Source) -> None:
        self._weights = source.weights
        hidden = int(source.config["hidden_size"])
        self._pointer = np.random.default_rng(4).normal(0, 0.1, (17, hidden)).astype(np.float32)

    def names(self) -> list[str]:
        return sorted([*self._weights.names(), POINTER])

    def get(self, name: str) -> Array:
        return self._pointer if name == POINTER else self._weights.get(name)


class Files:
    """The fixture in a weight format: its graphs and data."""

    def __init__(
        self,
        folder: Path,
        format_name: str = "fp32",
        window: int = WINDOW,
        weights: type[WithPointer] = WithPointer,
    ) -> None:
        source = load_source(str(FIXTURES / "gemma3"))
        self.decoder = dataclasses.replace(Decoder.from_config(source.config), window=window)
        folder.mkdir(parents=True, exist_ok=True)
        positions = self.decoder.positions
        self.layout = store(self.decoder, weights(source), format_name, folder, positions)
        self.data = {file: (folder / file).read_bytes() for file, _ in self.layout.files()}

    def shape(self, shallow: int | None = None) -> Shape:
        d = self.decoder
        return Shape(d.layers, d.kv_heads, d.head_dim, d.positions, shallow)

    def model(self, variant: Variant = "explicit", shallow: int | None = None) -> NativeModel:
        return NativeModel(build(self.decoder, self.layout, variant, shallow), self.data, self.shape(shallow))

    def batched(self, shallow: int | None = None) -> BatchedModel:
        return BatchedModel(
            build(self.decoder, self.layout, "batched", shallow), self.data, self.shape(shallow)
        )


def whole(suffix: Suffix, anchor: int = 0) -> Suffix:
    reads = None if suffix.reads is None else [len(PREFIX) + read for read in suffix.reads]
    hidden = (anchor, len(PREFIX))
    return dataclasses.replace(suffix, ids=[*PREFIX, *suffix.ids], reads=reads, hidden=hidden)


def furthest(one: list[Array], other: list[Array]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("format_name", "variant"),
    [
        (name, one)
        for name in FORMATS
        for one in VARIANTS
        if one == "explicit" or not FORMATS[name].is_rounded
    ],
)
def test_windows_hold_behind_prefixes_and_in_packed_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: Variant, format_name: str
) -> None:
    monkeypatch.setattr(engine_module, "CHUNK", 7)
    files = Files(tmp_path, format_name)
    with files.model(variant) as model:
        cache = model.prefill(PREFIX, base=model.prefill(PREFIX[:20]))
        packed, totals = model.score(cache, SUFFIXES)
        single = [model.score(cache, [one])[0][0] for one in SUFFIXES]
        full = [model.score_full(whole(one)) for one in SUFFIXES]
    with files.batched() as many:
        batched = many.score([whole(one) for one in SUFFIXES], 4096)
    gaps = [furthest(found, full) for found in (packed, single, batched)]
    print(f"{variant} {format_name}: packed, single and batched against full prompts {gaps}")
    assert totals.runs == 1 and totals.saved > 0
    assert max(gaps) <= LIMIT


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("cut", (3, 6))
@pytest.mark.parametrize("anchor", (0, 9))
def test_shallow_is_exact_for_its_own_policy(tmp_path: Path, variant: Variant, cut: int, anchor: int) -> None:
    files = Files(tmp_path)
    with files.model(variant, cut) as model:
        packed, _ = model.score(model.prefill(PREFIX, anchor=anchor), SUFFIXES)
        full = [model.score_full(whole(one, anchor)) for one in SUFFIXES]
        deep = [model.score_full(whole(one, len(PREFIX))) for one in SUFFIXES]
    with files.batched(cut) as many:
        batched = many.score([whole(one, anchor) for one in SUFFIXES], 4096)
    assert max(furthest(packed, full), furthest(batched, full)) <= LIMIT
    assert furthest(full, deep) > 0.01


class Rounded(WithPointer):
    """The same with all matrices rounded to int8 and back."""

    def get(self, name: str) -> Array:
        weight = super().get(name)
        if weight.ndim == 1 or name == POINTER:
            return weight
        q, scale = quantize_int8(weight)
        levels = q.astype(np.float32) - np.float32(128)
        return (levels * scale[..., None]).reshape(len(weight), -1)[:, : weight.shape[1]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_int8_computes_what_its_rounded_weights_give(tmp_path: Path, variant: Variant) -> None:
    files, plain = Files(tmp_path / "int8", "int8"), Files(tmp_path / "fp32", weights=Rounded)
    ids, vocabulary = golden("gemma3")["ids_70"].tolist(), list(range(512))
    with files.model(variant) as model, plain.model(variant) as rounded:
        found, right = (one.score_full(Suffix(ids, vocabulary)) for one in (model, rounded))
    print(f"int8 {variant}: {float(np.abs(found - right).max()):.1e}")
    assert float(np.abs(found - right).max()) <= TOLERANCE


def test_a_window_of_another_size_shows(tmp_path: Path) -> None:
    expected = golden("gemma3")
    ids, right = expected["ids_40"].tolist(), expected["logits_40"][-1]
    errors = {}
    for window in (WINDOW - 1, WINDOW, WINDOW + 1):
        with Files(tmp_path / str(window), window=window).model() as model:
            errors[window] = float(
                np.abs(model.score_full(Suffix(ids, list(range(len(right))))) - right).max()
            )
    print(errors)
    assert errors[WINDOW] <= TOLERANCE and min(errors[WINDOW - 1], errors[WINDOW + 1]) > 100 * TOLERANCE


def test_windows_by_place_instead_of_position_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A packed run puts suffixes one behind another: a window over places would hide a later one's prefix."""
    right = graph._Forward.windowed

    def by_place(self: graph._Forward, mask: object) -> object:
        kept, op = self.positions, self.op
        total, new = (op.Shape(mask, start=axis, end=axis + 1) for axis in (3, 2))
        end = op.Squeeze(total)
        places = op.Range(op.Sub(end, op.Squeeze(new)), end, self.scalar(1))
        self.positions = op.Unsqueeze(places, [0])
        try:
            return right(self, mask)  # type: ignore[arg-type]
        finally:
            self.positions = kept

    monkeypatch.setattr(graph._Forward, "windowed", by_place)
    with Files(tmp_path).model() as model:
        packed, _ = model.score(model.prefill(PREFIX), SUFFIXES[:2])
        full = [model.score_full(whole(one)) for one in SUFFIXES[:2]]
    assert furthest(packed, full) > 0.01


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ({"hidden_act": "silu"}, "silu"),
        ({"final_logit_softcapping": 30.0}, 30.0),
        ({"use_bidirectional_attention": True}, True),
        ({"layer_types": ["chunked_attention"] * 7}, "chunked_attention"),
    ],
)
def test_what_no_gemma_3_has_is_refused(change: dict[str, object], value: object) -> None:
    config = {**load_source(str(FIXTURES / "gemma3")).config, **change}
    with pytest.raises(UnsupportedModelError) as caught:
        Decoder.from_config(config)
    assert caught.value.data["value"] == value


def test_older_configs_and_gguf_mean_the_same(tmp_path: Path) -> None:
    new = load_source(str(FIXTURES / "gemma3"))
    config = json.loads((FIXTURES / "gemma3" / "config.json").read_text("utf-8"))
    for key in ("rope_parameters", "layer_types", "tie_word_embeddings"):
        del config[key]
    config |= {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 6}
    config["rope_scaling"] = {"rope_type": "linear", "factor": 2.0}
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).symlink_to(FIXTURES / "gemma3" / name)
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    decoder = Decoder.from_config(new.config)
    assert Decoder.from_config(load_source(str(tmp_path)).config) == decoder
    file = load_source(str(FIXTURES / "gemma3.gguf"))
    assert Decoder.from_config(file.config) == decoder
    assert decoder.local_layers == {0, 1, 2, 3, 4, 6} and decoder.window == WINDOW
    for name in ("model.norm.weight", "model.layers.5.post_feedforward_layernorm.weight"):
        assert float(np.abs(file.weights.get(name) - new.weights.get(name)).max()) <= 1e-7
    # The same merges from pieces' scores as from the file that lists them.
    assert file.bos_ids == new.bos_ids == (2,) and file.control_ids == new.control_ids
    assert file.tokenizer["model"] == new.tokenizer["model"]
    text = "  a customer\n\n\nwrites <bos> <end_of_turn>\tabout ▁ 返金 \u00e9\U0001f600"
    ids = [TextTokenizer(json.dumps(one.tokenizer)).encode(text) for one in (file, new)]
    assert ids[0] == ids[1] and not {*ids[0]} & {*new.control_ids}


# -- a bundle -------------------------------------------------------------------------------------------------------

STATE = "The parcel arrived late and nobody answered. " * 4
QUESTIONS: tuple[Question, ...] = (
    Choice("Which team?", ["billing", "shipping", "technical support"]),
    Noul("Is the customer angry?"),
    Score("How urgent is it?", ["low", "medium", "high"]),
)


@pytest.fixture(scope="module")
def dist_gemma() -> Path:
    """The fixture with a random pointer, as a bundle in fp32 and int8."""
    return build_tiny(fixture="gemma3", formats=("fp32", "int8"))


def test_verify_finds_nothing(dist_gemma: Path) -> None:
    checks = verify.verify(Bundle.open(dist_gemma), states=300, texts=1000)
    assert [(check.name, check.failures[:3]) for check in checks if check.failures] == []


@pytest.fixture(scope="module")
def native(dist_gemma: Path) -> Iterator[NativeEngine]:
    with NativeEngine(dist_gemma, "fp32") as engine:
        yield engine


@pytest.mark.browser
def test_page_answers_as_python_does(dist_gemma: Path, native: NativeEngine) -> None:
    with PageEngine(dist_gemma, "wasm", "fp32") as page:
        worst = 0.0
        for readout in ("labels", "pointer"):
            found, right = (
                engine.decide(STATE, dict(zip("abc", QUESTIONS, strict=True)), readout=readout)
                for engine in (page, native)
            )
            for name, answer in found.answers.items():
                pairs = zip(
                    answer.answer.probabilities, right.answers[name].answer.probabilities, strict=True
                )
                worst = max(worst, *(abs(a - b) for a, b in pairs))
        full = page.score_full(STATE, QUESTIONS[0]).answer.probabilities
        page.prefill(STATE)
        cached = page.score(QUESTIONS[0], 1, readout="labels").answer.probabilities
        reuse = max(abs(a - b) for a, b in zip(full, cached, strict=True))
    print(f"{worst:.1e} from native, prefix reuse {reuse:.1e}")
    assert max(worst, reuse) <= TOLERANCE
