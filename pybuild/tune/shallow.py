"""Self-distillation of a shallow model: its upper layers learn to answer as the whole model does, without the text.

The lower layers stay as they are, so that what reaches the upper ones is computed once (`kept.py`) and trained on
without the text.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from pybuild.graph import POINTER
from pybuild.sources import Source, load_source
from pybuild.tune import agreement
from pybuild.tune.kept import Cut, Keeper, Kept
from pybuild.tune.loop import Gradients, Limits, Loop, Validation, add_up
from pybuild.tune.samples import Labelled, Mix, draw
from pybuild.tune.task import Shape, Tuned, divergence, loss_of
from pybuild.tune.validate import sample_of
from typedecide.errors import UnsupportedError
from typedecide.shallow import DEFAULT_ANCHOR, Shallow
from typedecide.text import BLANK

TRAIN_POINTER = True
"""Whether the pointer is trained with the upper layers."""


@dataclass(frozen=True)
class ShallowRecipe:
    """All that decides the result.

    base: the model; it is the teacher too.
    layers, anchor: of the shallow model; see `typedecide.shallow`.
    samples: texts that are kept.
    epochs: how often each is trained on.
    texts: of one step.
    rank, alpha: of the adapters.
    labels: weight of the cross-entropy with the true options, beside the divergence from the teacher.
    rate, warmup, clip, decay: see `loop.Recipe`.
    """

    base: str
    layers: int
    anchor: str = DEFAULT_ANCHOR
    mix: Mix = field(default_factory=Mix)
    seed: int = 0
    samples: int = 2000
    epochs: int = 4
    texts: int = 8
    rank: int = 16
    alpha: float = 16
    labels: float = 0.1
    rate: float = 8e-4
    warmup: int = 20
    clip: float = 1.0
    decay: float = 0.0


@dataclass(frozen=True)
class Material:
    """A model that is to be trained, and all that it is trained and validated on.

    held_out: by task, samples with their evidence and without it.
    """

    cut: Cut
    train: Sequence[Kept]
    held_out: Mapping[str, tuple[Sequence[Kept], Sequence[Kept]]]


def prepare(
    recipe: ShallowRecipe,
    records: Iterator[Labelled],
    held_out: Mapping[str, Sequence[Labelled]],
    folder: Path,
    device: str,
    dtype: torch.dtype = torch.bfloat16,
) -> Material:
    """Load the model and run it over all texts.

    Args:
        recipe: what is to be trained.
        records: to train on.
        held_out: to validate on, by task.
        folder: where what is computed is kept.
        device: `cpu` or `cuda`.
        dtype: of the frozen weights, and of what is computed with them and kept.
    """
    torch.manual_seed(recipe.seed)
    source = load_source(recipe.base)
    model = student(source, recipe, dtype).to(device)
    cut = Cut.of(model, recipe.layers, recipe.anchor)
    keeper = Keeper(cut, source.origin, folder / "kept", Console(stderr=True))
    tasks = {task: [sample_of(one) for one in found if one.questions] for task, found in held_out.items()}
    all_shown = [sample for samples in tasks.values() for sample in samples]
    all_hidden = [replace(sample, state=BLANK) for sample in all_shown]
    shown = iter(keeper.keep("valid", all_shown, len(all_shown)))
    hidden = iter(keeper.keep("hidden", all_hidden, len(all_hidden)))
    kept = {
        task: ([next(shown) for _ in samples], [next(hidden) for _ in samples])
        for task, samples in tasks.items()
    }
    samples = islice(draw(records, recipe.seed, recipe.mix), recipe.samples)
    return Material(cut, keeper.keep("train", samples, recipe.samples), kept)


def student(source: Source, recipe: ShallowRecipe, dtype: torch.dtype) -> Tuned:
    """The model with its own pointer, where it has one, and parameters in its upper layers only."""
    has_pointer = POINTER in source.weights.names()
    shape = Shape("labels", "orders", rank=recipe.rank, alpha=recipe.alpha)
    if has_pointer:
        pointer = torch.from_numpy(source.weights.get(POINTER).copy())
        shape = replace(shape, readout="pointer", structure="set", pointer=len(pointer) // 2)
    model = Tuned(source, shape, dtype)
    layers = model.decoder.layers
    if not 1 <= recipe.layers < len(layers):
        raise UnsupportedError(
            f"The model has {len(layers)} layers: a shallow one has from 1 to {len(layers) - 1}, not {recipe.layers}.",
            layers=recipe.layers,
            have=len(layers),
        )
    layers[: recipe.layers].requires_grad_(False)
    if model.pointer is not None:
        with torch.no_grad():
            model.pointer.weight.copy_(pointer)
        model.pointer.requires_grad_(TRAIN_POINTER)
    return model


class Distillation(Loop):
    """One run over what was prepared."""

    measure = "kl"
    counts = (*Loop.counts, "untrained", "best_rows")
    recipe: ShallowRecipe

    def __init__(self, recipe: ShallowRecipe, limits: Limits, material: Material, folder: Path) -> None:
        self.per_epoch = -(-len(material.train) // recipe.texts)
        super().__init__(recipe, limits, material.cut.model, folder, recipe.epochs * self.per_epoch)
        self.material = material
        self.untrained: list[dict[str, Any]] = []
        self.best_rows: list[dict[str, Any]] = []

    def run(self) -> None:
        """Measure the untrained shallow model, which is the first best, and train to the end; see `Loop.run`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.untrained:
            self.validate()
        super().run()

    def gradients(self) -> Gradients:
        """Of the next texts of the epoch's own order."""
        epoch, step = divmod(self.step, self.per_epoch)
        train, texts = self.material.train, self.recipe.texts
        order = random.Random(f"epoch {self.recipe.seed} {epoch}").sample(range(len(train)), len(train))
        chosen = [train[index] for index in order[step * texts : (step + 1) * texts]]
        questions = sum(len(one.teacher) for one in chosen)
        return add_up(chosen, questions, self._loss)

    def _loss(self, batch: Sequence[Kept]) -> Tensor:
        losses = []
        for one, logits in zip(batch, self.material.cut.answer(batch), strict=True):
            answers = zip(one.teacher, logits, strict=True)
            losses += [divergence(t, found.log_softmax(-1)) for t, found in answers]
            if self.recipe.labels:
                losses.append(self.recipe.labels * loss_of(logits, one.encoded.sample))
        return torch.stack(losses).sum()

    def validation(self) -> Validation:
        """Task by task, beside the untrained model; the mean divergence from the whole model is what counts."""
        found = agreement.compare(self.material.cut, self.material.held_out)
        value, rows = agreement.mean_kl(found), agreement.table(found)
        self.untrained = self.untrained or rows
        if value < self.best:
            self.best_rows = rows
        return Validation(value, rows, agreement.beside(self.untrained, rows))

    def facts(self) -> Mapping[str, Any]:
        """For which shallow model the adapter is."""
        return {"shallow": Shallow(self.recipe.layers, self.recipe.anchor).spec}

    def course(self) -> Mapping[str, Any]:
        """Validations: of the untrained shallow model, and of the weights that were kept."""
        return {"untrained": self.untrained, "best_validation": self.best_rows}
