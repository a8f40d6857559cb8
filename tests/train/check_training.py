"""Training: the same seed gives the same adapter, an interrupted run goes on as if it had not been, and it learns.

Needs PyTorch (requirements/train.txt), so `make test` does not collect it: `python -m pytest tests/train/check_*.py`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import torch

from pybuild.adapter import FACTS, TENSORS
from pybuild.sources import load_source
from pybuild.tune.samples import Mix
from pybuild.tune.task import Shape
from pybuild.tune.train import Limits, Recipe, Training
from tests.conftest import FIXTURES
from typedecide.errors import InvalidStateError
from typedecide.labelled import Labelled
from typedecide.questions import Choice, Noul

torch.set_num_threads(1)  # the models are tiny, and threads that wait for one another slow them down

RECIPE = Recipe(
    str(FIXTURES / "llama"),
    Shape(rank=4, alpha=4, pointer=8),
    Mix(hidden=0.1),
    steps=6,
    texts=4,
    rate=5e-3,
    warmup=2,
)


def records(seed: int = 0) -> Iterator[Labelled]:
    """Texts that end in what is asked."""
    rng = random.Random(seed)
    while True:
        word = rng.choice(["parcel", "customer", "message"])
        questions = {"what": Choice("?", ["parcel", "customer", "message"]), "is": Noul("parcel?")}
        gold = {"what": word, "is": "yes" if word == "parcel" else "no"}
        yield Labelled(f"the {word}", questions, gold, "t", "d", rng.choice("fg"), "train", "s")


def interrupted(count: int) -> Iterator[Labelled]:
    """The same, and Ctrl-C after so many."""
    for index, record in enumerate(records()):
        if index == count:
            raise KeyboardInterrupt
        yield record


def training(folder: Path, stream: Iterator[Labelled], recipe: Recipe = RECIPE) -> Training:
    source = records(9)
    held_out = {"t": [next(source) for _ in range(12)]}
    return Training(recipe, Limits(), stream, held_out, folder, "cpu")


def test_an_interrupted_run_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole = training(tmp_path / "whole", records())
    whole.run()
    training(tmp_path / "parts", interrupted(13)).run()
    rest = training(tmp_path / "parts", records())
    rest.resume()
    assert rest.step == 3
    rest.run()
    assert (rest.step, rest.decisions, rest.tokens) == (whole.step, whole.decisions, whole.tokens)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters, rest.parameters, strict=True))


def test_the_same_seed_gives_the_same_adapter(tmp_path: Path) -> None:
    for name in ("first", "second"):
        run = training(tmp_path / name, records())
        run.run()
        run.write(tmp_path / name / "out", {"command": "none"})
    first, second = ((tmp_path / name / "out" / TENSORS).read_bytes() for name in ("first", "second"))
    assert first == second
    facts = json.loads((tmp_path / "first" / "out" / FACTS).read_text())
    assert (facts["rank"], facts["training"]["steps"], facts["command"]) == (4, 6, "none")
    assert load_source(str(tmp_path / "first" / "out")).weights.get("pointer.weight").shape[0] == 17


def test_it_learns(tmp_path: Path) -> None:
    run = training(
        tmp_path, records(), Recipe(RECIPE.base, RECIPE.shape, RECIPE.mix, steps=60, texts=4, rate=5e-3)
    )
    run.run()
    assert run.rows[0].accuracy > 0.9
    assert run.rows[0].hidden < 0.8


def test_a_checkpoint_of_another_recipe(tmp_path: Path) -> None:
    training(tmp_path, interrupted(5)).run()
    other = training(tmp_path, records(), Recipe(RECIPE.base, RECIPE.shape, RECIPE.mix, steps=7))
    with pytest.raises(InvalidStateError, match="another recipe"):
        other.resume()


def test_a_run_can_be_held_near_the_base_model(tmp_path: Path) -> None:
    moved = {}
    for kl in (0.0, 5.0):
        recipe = Recipe(RECIPE.base, RECIPE.shape, RECIPE.mix, steps=30, texts=4, rate=5e-3, kl=kl)
        run = training(tmp_path / str(kl), records(), recipe)
        batch = [run.model.encode(sample, random.Random(0)) for sample in islice(run.samples, 8)]
        with torch.no_grad():
            assert float(run.model.divergence(batch, run.model.states(batch))) == 0
        run.run()
        with torch.no_grad():
            moved[kl] = float(run.model.divergence(batch, run.model.states(batch)))
    assert 0 < moved[5.0] < moved[0.0] / 3
