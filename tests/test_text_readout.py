"""The `text` readout: log-probabilities of the options' own texts, in page and native, against full prompts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pybuild.graph import Decoder, Variant, build
from pybuild.quantize import store
from pybuild.sources import load_source
from tests.conftest import FIXTURES, ROOT
from typedecide.errors import UnsupportedError
from typedecide.model import NativeModel, Shape, Suffix
from typedecide.native import NativeEngine
from typedecide.page import PageEngine
from typedecide.questions import Choice, Noul, Question, parse_questions
from typedecide.text import BLANK, answer_texts, gain

SAMPLE = json.loads((ROOT / "web" / "app" / "decide" / "samples" / "support.json").read_text("utf-8"))
QUESTIONS: list[Question] = list(parse_questions(SAMPLE["questions"]).values())
STATE = "My card was charged twice for order 4412, and nobody has answered me for four days."


@pytest.fixture(scope="module")
def engine(dist_fp32_4l: Path) -> Iterator[NativeEngine]:
    """The cut-down model natively."""
    with NativeEngine(dist_fp32_4l) as engine:
        engine.prefill(STATE)
        yield engine


@pytest.mark.parametrize("variant", ("gqa", "explicit"))
@pytest.mark.parametrize("name", ("llama-untied", "qwen3"))
def test_log_probabilities_agree_with_transformers(tmp_path: Path, name: str, variant: Variant) -> None:
    source = load_source(str(FIXTURES / name))
    decoder = Decoder.from_config(source.config)
    layout = store(decoder, source.weights, "fp32", tmp_path, decoder.positions)
    data = {file: (tmp_path / file).read_bytes() for file, _ in layout.files()}
    shape = Shape(decoder.layers, decoder.kv_heads, decoder.head_dim, decoder.positions)
    with np.load(FIXTURES / name / "golden.npz") as golden:
        ids, logits = golden["ids_40"].tolist(), golden["logits_40"].astype(np.float64)
    right = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    targets = [7, 200, 13]
    with NativeModel(build(decoder, layout, variant), data, shape) as model:
        cache = model.prefill(ids[:30])
        suffixes = [Suffix(ids[30:], reads=[7, 8, 9], targets=targets), Suffix(ids[30:], label_ids=[7, 13])]
        (found, labels), _ = model.score(cache, suffixes)
    assert np.abs(found - right[[0, 1, 2], targets]).max() <= 1e-4
    assert np.abs(labels - logits[2, [7, 13]]).max() <= 1e-4


def plain_scores(engine: NativeEngine, state: str, question: Question) -> list[float]:
    """Summed log-probabilities from one full prompt for each option and token: the plain path."""
    prompt, tokenizer = engine.prompt, engine.tokenizer
    text = prompt.head_text(state) + f"\nCriterion: {question.criterion().text}\nAnswer:"
    stem = tokenizer.encode(text)
    vocabulary = list(range(49152))
    scores = []
    for answer in answer_texts(question):
        full = tokenizer.encode(f"{text} {answer}")
        assert full[: len(stem)] == stem
        score = 0.0
        for end in range(len(stem), len(full)):
            logits = engine.model.score_full(Suffix(full[:end], vocabulary)).astype(np.float64)
            score += float(logits[full[end]] - np.log(np.exp(logits - logits.max()).sum()) - logits.max())
        scores.append(score)
    return scores


def test_scores_are_those_of_full_prompts(engine: NativeEngine) -> None:
    questions = [
        Choice("Which team?", {"billing": "money", "technical support": ""}),
        Noul("Is the writer angry?"),
    ]
    for question, found in zip(questions, engine.score_all(questions, readout="text").answers, strict=True):
        right = gain(plain_scores(engine, STATE, question), plain_scores(engine, BLANK, question))
        worst = max(abs(a - b) for a, b in zip(found.answer.logits, right, strict=True))
        print(f"text readout against full prompts: {worst:.1e}")
        assert worst <= 1e-4
        assert (found.orderings_used, found.flip_rate) == (1, 0.0)


def test_order_of_options_does_not_matter(engine: NativeEngine) -> None:
    forward = Choice("Which team?", ["billing", "shipping", "sales"])
    backward = Choice("Which team?", ["sales", "shipping", "billing"])
    one, other = (d.answer for d in engine.score_all([forward, backward], readout="text").answers)
    assert one.choice == other.choice
    assert one.probabilities == pytest.approx(other.probabilities[::-1], abs=1e-6)


def test_blank_evidence_is_scored_once(dist_fp32_4l: Path) -> None:
    with NativeEngine(dist_fp32_4l) as engine:
        engine.prefill(STATE)
        first = engine.score_all(QUESTIONS, readout="text")
        again = engine.score_all(QUESTIONS, readout="text")
        # What is kept of blank evidence does not depend on what else was asked, nor in which order.
        engine.release()
        engine.prefill(STATE)
        engine.score_all(QUESTIONS[::-2], readout="text")
        mixed = engine.score_all(QUESTIONS, readout="text")
    assert again.answers == first.answers == mixed.answers
    assert again.tokens_run < first.tokens_run and again.runs < first.runs


def test_unknown_readout_is_named(engine: NativeEngine) -> None:
    with pytest.raises(UnsupportedError, match=r"'vibes'; it has labels, text, pointer$"):
        engine.score_all(QUESTIONS, readout="vibes")


def test_orders_of_options_that_are_not_listed_are_refused(engine: NativeEngine) -> None:
    with pytest.raises(UnsupportedError, match="neither orders of options nor a prior") as caught:
        engine.score_all(QUESTIONS, "all", readout="text")
    assert caught.value.data["orderings"] == "all"


@pytest.mark.browser
def test_page_agrees_with_native(dist_fp32_4l: Path) -> None:
    with PageEngine(dist_fp32_4l, "wasm") as page, NativeEngine(dist_fp32_4l) as native:
        page.prefill(SAMPLE["state"])
        native.prefill(SAMPLE["state"])
        found, right = (e.score_all(QUESTIONS, readout="text", run_tokens=100) for e in (page, native))
        again = page.score_all(QUESTIONS, readout="text", run_tokens=100)
        with pytest.raises(UnsupportedError, match="vibes"):
            page.score_all(QUESTIONS, readout="vibes")
        with pytest.raises(UnsupportedError, match="neither orders of options nor a prior"):
            page.score_all(QUESTIONS, "all", readout="text")
    pairs = zip(found.answers, right.answers, strict=True)
    worst = max(
        abs(a - b)
        for f, r in pairs
        for a, b in zip(f.answer.probabilities, r.answer.probabilities, strict=True)
    )
    print(
        f"text readout, page against native: {worst:.1e}; {found.tokens_run} tokens, then {again.tokens_run}"
    )
    assert worst <= 1e-5
    assert again.answers == found.answers and again.tokens_run < found.tokens_run


@pytest.mark.browser
def test_software_webgpu_agrees_with_native(dist_fp32_4l: Path) -> None:
    candidates = ["webgpu-gqa-nosubgroups"]
    with (
        PageEngine(dist_fp32_4l, "webgpu", candidates=candidates) as page,
        NativeEngine(dist_fp32_4l) as native,
    ):
        for engine in (page, native):
            engine.prefill(STATE)
        question = Choice("Which team?", ["billing", "technical support"])
        found, right = (e.score_all([question], readout="text").answers[0].answer for e in (page, native))
        plain = page.score_all([question], 1, readout="labels").answers[0].answer
        plain_right = native.score_all([question], 1, readout="labels").answers[0].answer
    assert found.probabilities == pytest.approx(right.probabilities, abs=1e-5)
    assert plain.probabilities == pytest.approx(plain_right.probabilities, abs=1e-5)
