"""The training loop: samples in, an adapter out."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from torch import Tensor

from pybuild.adapter import write_adapter
from pybuild.sources import load_source
from pybuild.tune import validate
from pybuild.tune.samples import Labelled, Mix, draw
from pybuild.tune.task import Encoded, Shape, Tuned, loss_of
from typedecide.errors import InvalidStateError

PASS_TOKENS = 2000
"""Most tokens of one pass forward and backward: bounds memory, changes no result."""


@dataclass(frozen=True)
class Recipe:
    """All that decides the result.

    base: the model.
    steps: 0 for as many as fit in `minutes` at the speed of the first ones; their number is then in the log.
    texts: of one step.
    warmup: steps until the full learning rate, which then falls linearly to 0.
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


@dataclass(frozen=True)
class Limits:
    """What bounds a run without deciding what it learns.

    minutes: sets `steps` where the recipe does not.
    validate_minutes, checkpoint_minutes: how often.
    patience: validations without a better one before the run ends; 0 for never.
    """

    minutes: float = 60
    validate_minutes: float = 10
    checkpoint_minutes: float = 5
    patience: int = 0


class Training:
    """One run. What it needs to go on is in `folder`: checkpoint.pt, and the log in log.jsonl."""

    def __init__(
        self,
        recipe: Recipe,
        limits: Limits,
        records: Iterator[Labelled],
        held_out: Mapping[str, Sequence[Labelled]],
        folder: Path,
        device: str,
    ) -> None:
        self.recipe, self.limits, self.held_out, self.folder = recipe, limits, held_out, folder
        torch.manual_seed(recipe.seed)
        self.model = Tuned(load_source(recipe.base), recipe.shape).to(device)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters, recipe.rate, betas=(0.9, 0.99), weight_decay=recipe.decay, fused=True
        )
        self.samples = draw(records, recipe.seed, recipe.mix)
        self.step, self.steps, self.best, self.waited = 0, recipe.steps, float("inf"), 0
        self.seconds, self.decisions, self.tokens = 0.0, 0, 0
        self.best_weights: list[Tensor] = []
        self.rows: list[validate.Row] = []
        self.console = Console(file=sys.stderr)

    # -- running ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Train to the end, or until Ctrl-C: then too the best weights so far are kept."""
        self.folder.mkdir(parents=True, exist_ok=True)
        saved = validated = time.monotonic()
        with self._progress() as progress:
            bar = progress.add_task("", total=self.steps or None, completed=self.step)
            try:
                while not self.steps or self.step < self.steps:
                    facts = self._one_step()
                    progress.update(
                        bar, total=self.steps or None, completed=self.step, description=_line(facts)
                    )
                    if not progress.console.is_terminal and self.step % 20 == 0:
                        self.console.print(f"{self.step}/{self.steps or '?'} {_line(facts)}", highlight=False)
                    now = time.monotonic()
                    if now - validated > 60 * self.limits.validate_minutes:
                        self._validate()
                        validated = time.monotonic()
                        if 0 < self.limits.patience <= self.waited:
                            break
                    if now - saved > 60 * self.limits.checkpoint_minutes:
                        self.save()
                        saved = time.monotonic()
            except KeyboardInterrupt:
                self.console.print(f"Stopped after {self.step} steps.")
        self._validate()
        self.save()

    def _one_step(self) -> dict[str, Any]:
        began = time.monotonic()
        rng = random.Random(f"order {self.recipe.seed} {self.step}")
        encoded = [self.model.encode(s, rng) for s in islice(self.samples, self.recipe.texts)]
        questions = sum(len(one.asked) for one in encoded)
        loss = 0.0
        for batch in _passes(encoded):
            part = self._loss(batch) / questions
            part.backward()
            loss += float(part.detach())
        rate = self._rate()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, self.recipe.clip))
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        seconds = time.monotonic() - began
        tokens = sum(len(one.packed.ids) for one in encoded)
        self.seconds, self.decisions, self.tokens = (
            self.seconds + seconds,
            self.decisions + questions,
            self.tokens + tokens,
        )
        if not self.steps and self.step == self.recipe.warmup:
            self.steps = max(self.step, int(60 * self.limits.minutes / (self.seconds / self.step)))
            self._log({"steps": self.steps})
        facts = {
            "step": self.step,
            "loss": loss,
            "rate": rate,
            "norm": norm,
            "decisions": questions,
            "tokens": tokens,
            "seconds": seconds,
        }
        self._log(facts)
        return facts

    def _loss(self, batch: Sequence[Encoded]) -> Tensor:
        states = self.model.states(batch)
        answered = zip(self.model.logits(batch, states), batch, strict=True)
        loss = torch.stack([loss_of(logits, one.sample) for logits, one in answered]).sum()
        if self.recipe.kl:
            loss = loss + self.recipe.kl * self.model.divergence(batch, states)
        return loss

    def _rate(self) -> float:
        """Up in the warm-up, then linearly down to 0 at the last step."""
        risen = min(1.0, (self.step + 1) / self.recipe.warmup)
        left = 1 - self.step / self.steps if self.steps else 1.0
        return self.recipe.rate * min(risen, left)

    def _validate(self) -> None:
        began = time.monotonic()
        self.rows = validate.validate(self.model, self.held_out)
        nll = validate.mean_nll(self.rows)
        better = nll < self.best
        self.waited = 0 if better else self.waited + 1
        if better:
            self.best = nll
            self.best_weights = [p.detach().clone() for p in self.parameters]
        self._log({"step": self.step, "nll": nll, "validation": validate.table(self.rows)})
        title = f"step {self.step}: mean NLL {nll:.3f}{' (best)' if better else ''}, {time.monotonic() - began:.0f} s"
        shown = Table("task", "n", "accuracy", "chance", "hidden", "NLL", title=title)
        for row in self.rows:
            numbers = (f"{x:.3f}" for x in (row.accuracy, row.chance, row.hidden, row.nll))
            shown.add_row(row.task, str(row.n), *numbers)
        self.console.print(shown)

    # -- files -----------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the checkpoint; the last one stays until this one is whole."""
        state = {
            "recipe": asdict(self.recipe),
            "weights": [p.detach() for p in self.parameters],
            "optimizer": self.optimizer.state_dict(),
            "best_weights": self.best_weights,
            **{name: getattr(self, name) for name in _COUNTS},
        }
        torch.save(state, self.folder / "checkpoint.partial")
        (self.folder / "checkpoint.partial").replace(self.folder / "checkpoint.pt")

    def resume(self) -> None:
        """Go on from the checkpoint of the same recipe, with the samples that come next."""
        state = torch.load(self.folder / "checkpoint.pt", weights_only=True)
        if state["recipe"] != asdict(self.recipe):
            raise InvalidStateError(
                f"{self.folder / 'checkpoint.pt'} is of another recipe: {state['recipe']}",
                value=state["recipe"],
            )
        with torch.no_grad():
            for parameter, saved in zip(self.parameters, state["weights"], strict=True):
                parameter.copy_(saved)
        self.optimizer.load_state_dict(state["optimizer"])
        self.best_weights = state["best_weights"]
        for name in _COUNTS:
            setattr(self, name, state[name])
        for _ in islice(self.samples, self.step * self.recipe.texts):
            pass

    def write(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """Write the adapter of the best weights; `facts` are added to adapter.json."""
        with torch.no_grad():
            for parameter, best in zip(self.parameters, self.best_weights, strict=True):
                parameter.copy_(best)
        layers = {
            name: (a.detach().cpu().numpy(), b.detach().cpu().numpy())
            for linear in self.model.decoder.linears()
            for name, a, b in linear.adapters()
        }
        pointer = None if self.model.pointer is None else self.model.pointer.weight.detach().cpu().numpy()
        shape = self.recipe.shape
        training = {
            "steps": self.step,
            "of_steps": self.steps,
            "decisions": self.decisions,
            "tokens": self.tokens,
            "minutes": round(self.seconds / 60, 1),
            "best_nll": round(self.best, 4),
            "last_validation": validate.table(self.rows),
        }
        about = {
            "base": self.recipe.base,
            "rank": shape.rank,
            "alpha": shape.alpha,
            "recipe": asdict(self.recipe),
        }
        write_adapter(folder, layers, pointer, {**about, "training": training, **facts})

    def _log(self, facts: Mapping[str, Any]) -> None:
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(facts) + "\n")

    def _progress(self) -> Progress:
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        terminal = self.console.is_terminal
        return Progress(
            *columns, TextColumn("{task.description}"), console=self.console, disable=not terminal
        )


_COUNTS = ("step", "steps", "best", "waited", "seconds", "decisions", "tokens")


def _passes(encoded: Sequence[Encoded]) -> Iterator[list[Encoded]]:
    """The samples of a step in passes of at most PASS_TOKENS tokens."""
    batch: list[Encoded] = []
    size = 0
    for one in encoded:
        length = len(one.packed.ids)
        if batch and size + length > PASS_TOKENS:
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += length
    yield batch


def _line(facts: Mapping[str, Any]) -> str:
    seconds = facts["seconds"]
    return (
        f"loss {facts['loss']:.3f}  {facts['tokens'] / seconds:.0f} tokens/s"
        f"  {facts['decisions'] / seconds:.1f} decisions/s"
    )
