"""The engine in PyTorch against the graph in onnxruntime: complete prompts, every readout.

Needs PyTorch (requirements/train.txt), so `make test` does not collect it: `python -m pytest tests/train/check_*.py`.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from pybuild.graph import Decoder
from pybuild.sources import load_source
from pybuild.torch_engine import TorchEngine, TorchModel
from tests.conftest import BUNDLES, FIXTURES
from tests.test_batches import EXACT, FAMILIES, QUESTIONS, TEXTS, open_both, prompts
from typedecide.errors import UnsupportedError
from typedecide.native import NativeEngine
from typedecide.orderings import Level

torch.set_num_threads(1)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_batch_gives_what_onnxruntime_gives(tmp_path: Path, name: str) -> None:
    asked = prompts(3)
    source = load_source(str(FIXTURES / name))
    found = TorchModel(Decoder.from_config(source.config), source.weights, "cpu").score(asked, 200)
    one, many = open_both(tmp_path, name, "fp32")
    with one, many:
        expected = [one.score_full(prompt) for prompt in asked]
    assert (
        max(float(np.abs(a - b).max()) for a, b in zip(found, expected, strict=True)) <= 10 * EXACT
    )  # logits, not probabilities


@pytest.mark.parametrize(
    ("readout", "orderings"), (("labels", 1), ("labels", "auto"), ("text", None), ("pointer", None))
)
def test_decisions_are_those_of_the_native_engine(
    dist_pointer: Path, readout: str, orderings: Level | None
) -> None:
    questions = {str(number): question for number, question in enumerate(QUESTIONS)}
    model = str(BUNDLES / "tiny-pointer-model")
    with NativeEngine(dist_pointer) as native, TorchEngine(dist_pointer, model) as engine:
        for text in TEXTS:
            ours, theirs = (
                one.decide(text, questions, orderings, readout=readout).answers for one in (engine, native)
            )
            for key in questions:
                gap = math.dist(ours[key].answer.probabilities, theirs[key].answer.probabilities)
                assert gap <= EXACT
                assert ours[key].orderings_used == theirs[key].orderings_used


def test_shallow_decisions_are_those_of_the_native_engine(dist_pointer_shallow: Path) -> None:
    questions = {str(number): question for number, question in enumerate(QUESTIONS)}
    model = str(BUNDLES / "tiny-pointer-model")
    with NativeEngine(dist_pointer_shallow) as native, TorchEngine(dist_pointer_shallow, model) as engine:
        ours, theirs = (one.decide(TEXTS[0], questions).answers for one in (engine, native))
    for key in questions:
        assert math.dist(ours[key].answer.probabilities, theirs[key].answer.probabilities) <= EXACT
        assert ours[key].shallow == theirs[key].shallow is not None


def test_a_bundle_of_another_model_is_refused(dist_pointer: Path) -> None:
    with pytest.raises(UnsupportedError, match="is a bundle of another model"):
        TorchEngine(dist_pointer, str(FIXTURES / "qwen3"))
