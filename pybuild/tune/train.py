"""Training on labels: samples in, an adapter of all layers out."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from pybuild.sources import load_source
from pybuild.tune import validate
from pybuild.tune.loop import Gradients, Limits, Loop, Validation, add_up
from pybuild.tune.samples import Labelled, Mix, draw
from pybuild.tune.task import Encoded, Shape, Tuned, loss_of

__all__ = ["Limits", "Recipe", "Training"]


@dataclass(frozen=True)
class Recipe:
    """All that decides the result.

    base: the model.
    steps: 0 for as many as fit in `minutes` at the speed of the first ones; their number is then in the log.
    texts: of one step.
    rate, warmup, clip, decay: see `loop.Recipe`.
    kl: weight of the divergence from the base model's next-token distributions at the answers (`Tuned.divergence`).
    """

    base: str
    shape: Shape = field(default_factory=Shape)
    mix: Mix = field(default_factory=Mix)
    seed: int = 0
    steps: int = 0
    texts: int = 8
    rate: float = 8e-4
    warmup: int = 20
    clip: float = 1.0
    decay: float = 0.0
    kl: float = 0.0


class Training(Loop):
    """One run. What it needs to go on is in `folder`: checkpoint.pt, and the log in log.jsonl."""

    measure = "nll"
    recipe: Recipe

    def __init__(
        self,
        recipe: Recipe,
        limits: Limits,
        records: Iterator[Labelled],
        held_out: Mapping[str, Sequence[Labelled]],
        folder: Path,
        device: str,
    ) -> None:
        torch.manual_seed(recipe.seed)
        model = Tuned(load_source(recipe.base), recipe.shape).to(device)
        super().__init__(recipe, limits, model, folder, recipe.steps)
        self.held_out = held_out
        self.samples = draw(records, recipe.seed, recipe.mix)
        self.rows: list[validate.Row] = []

    def gradients(self) -> Gradients:
        """Of the next samples."""
        rng = random.Random(f"order {self.recipe.seed} {self.step}")
        encoded = [self.model.encode(s, rng) for s in islice(self.samples, self.recipe.texts)]
        questions = sum(len(one.asked) for one in encoded)
        return add_up(encoded, questions, self._loss)

    def _loss(self, batch: Sequence[Encoded]) -> Tensor:
        states = self.model.states(batch)
        answered = zip(self.model.logits(batch, states), batch, strict=True)
        loss = torch.stack([loss_of(logits, one.sample) for logits, one in answered]).sum()
        if self.recipe.kl:
            loss = loss + self.recipe.kl * self.model.divergence(batch, states)
        return loss

    def validation(self) -> Validation:
        """Task by task; the mean negative log-likelihood is what counts."""
        self.rows = validate.validate(self.model, self.held_out)
        table = Table("task", "n", "accuracy", "chance", "hidden", "NLL")
        for row in self.rows:
            numbers = (f"{x:.3f}" for x in (row.accuracy, row.chance, row.hidden, row.nll))
            table.add_row(row.task, str(row.n), *numbers)
        return Validation(validate.mean_nll(self.rows), validate.table(self.rows), table)

    def course(self) -> Mapping[str, Any]:
        """The last validation."""
        return {"last_validation": validate.table(self.rows)}

    def resume(self) -> None:
        """Go on from the checkpoint of the same recipe, with the samples that come next."""
        super().resume()
        for _ in islice(self.samples, self.step * self.recipe.texts):
            pass
