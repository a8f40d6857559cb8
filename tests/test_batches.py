"""Complete prompts in left-padded batches: the same as one by one, and as the prefix-sharing engine."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pybuild.graph import Decoder, Variant, build
from pybuild.quantize import store
from pybuild.sources import load_source
from tests.conftest import FIXTURES
from typedecide import batches, model
from typedecide.batches import WholePrompts
from typedecide.bundle import Bundle
from typedecide.errors import TooLongError
from typedecide.model import BatchedModel, NativeModel, Shape, Suffix
from typedecide.native import NativeEngine
from typedecide.questions import Choice, Noul, Question, Score
from typedecide.readout import softmax

EXACT = 1e-5
FAMILIES = ("llama", "llama-untied", "qwen2", "qwen3")

TEXTS = ("My card was charged twice.", "Hi", "A longer text, " * 20, "")
QUESTIONS: tuple[Question, ...] = (
    Choice("Which team?", {"billing": "charges and refunds", "accounts": "", "Verkauf": None, "other": ""}),
    Noul("Does the customer want money back?"),
    Score("How urgent is it?", ["low", "medium", "high"]),
)


def open_both(folder: Path, name: str, format_name: str) -> tuple[NativeModel, BatchedModel]:
    """A fixture model, to be run prompt by prompt and in batches."""
    source = load_source(str(FIXTURES / name))
    decoder = Decoder.from_config(source.config)
    layout = store(decoder, source.weights, format_name, folder, decoder.positions)
    data = {file: (folder / file).read_bytes() for file, _ in layout.files()}
    shape = Shape(decoder.layers, decoder.kv_heads, decoder.head_dim, decoder.positions)
    variants: tuple[Variant, Variant] = ("explicit", "batched")
    one, many = (build(decoder, layout, variant) for variant in variants)
    return NativeModel(one, data, shape), BatchedModel(many, data, shape)


def prompts(seed: int) -> list[Suffix]:
    """Prompts of several lengths, some of which read labels and some the probabilities of tokens."""
    rng = random.Random(seed)
    found = []
    for length in (1, 2, 17, 40, 41, 70):
        ids = [rng.randrange(3, 320) for _ in range(length)]
        found.append(Suffix(ids, rng.sample(range(320), 5)))
        reads = sorted(rng.sample(range(length), min(length, 3)))
        found.append(Suffix(ids, reads=reads, targets=[rng.randrange(320) for _ in reads]))
    return found


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("format_name", ("fp32", "int8", "int4"))
def test_a_batch_gives_what_single_prompts_give(tmp_path: Path, name: str, format_name: str) -> None:
    asked = prompts(3)
    one, many = open_both(tmp_path, name, format_name)
    with one, many:
        expected = [one.score_full(prompt) for prompt in asked]
        for budget in (1, 100, 4096):
            found = many.score(asked, budget)
            worst = max(float(np.abs(a - b).max()) for a, b in zip(found, expected, strict=True))
            assert worst <= EXACT, budget


def test_a_fault_in_the_padding_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = prompts(3)
    one, many = open_both(tmp_path, "llama", "fp32")
    monkeypatch.setattr(model, "HIDDEN", np.float32(0))  # tokens see the padding, and what comes after them
    with one, many:
        found = many.score(asked[:1] + asked[-2:-1], 4096)
        monkeypatch.undo()
        assert float(np.abs(found[0] - one.score_full(asked[0])).max()) > EXACT


def test_too_long(tmp_path: Path) -> None:
    one, many = open_both(tmp_path, "llama", "fp32")
    with one, many, pytest.raises(TooLongError):
        many.score([Suffix([5] * (one.shape.context + 1), [1, 2])], 64)


@pytest.mark.parametrize("orders", (1, "auto", "all"))
def test_labels_agree_with_the_prefix_sharing_engine(dist_pointer: Path, orders: Any) -> None:
    assert compare(dist_pointer, "labels", orders) <= EXACT


@pytest.mark.parametrize("readout", ("text", "pointer"))
def test_other_readouts_agree_with_the_prefix_sharing_engine(dist_pointer: Path, readout: str) -> None:
    assert compare(dist_pointer, readout, None) <= EXACT


def test_the_default_model_agrees_with_itself(dist_fp32_4l: Path) -> None:
    assert compare(dist_fp32_4l, "labels", "auto") <= EXACT
    assert compare(dist_fp32_4l, "text", None) <= EXACT


def compare(folder: Path, readout: str, orders: Any) -> float:
    """The largest difference of two probabilities, over all texts and questions, in batches small and large."""
    asked = [(text, question) for text in TEXTS for question in QUESTIONS]
    packed = []
    with NativeEngine(folder, calibration=False) as engine:
        for text in TEXTS:
            questions = {str(i): question for i, question in enumerate(QUESTIONS)}
            done = engine.decide(text, questions, orders, readout=readout)
            packed += [one.answer.probabilities for one in done.answers.values()]
    worst = 0.0
    for budget in (300, batches.BUDGET):
        with WholePrompts(Bundle.open(folder), None, readout, orders, budget=budget) as whole:
            found = [softmax(logits) for logits in whole.logits(asked)]
        pairs = zip(packed, found, strict=True)
        worst = max(worst, *(math.dist(a, b) for a, b in pairs))
    print(f"{readout}, {orders}: {worst:.1e}")
    return worst
