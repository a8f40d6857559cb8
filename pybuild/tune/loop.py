"""The loop of every training run: steps down a gradient, validations of which the best one counts, checkpoints, and the
adapter at the end. Knows no samples and no losses.
"""

from __future__ import annotations

import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

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
from pybuild.tune.task import Tuned
from typedecide.errors import InvalidStateError

PASS_TOKENS = 2000
"""Most tokens of one pass forward and backward: bounds memory, changes no result."""

CHECKPOINT = "checkpoint.pt"


class Recipe(Protocol):
    """What the loop reads of a recipe: a dataclass of all that decides the result.

    base: the model.
    rate: highest learning rate.
    warmup: steps until the full learning rate, which then falls linearly to 0.
    clip: longest gradient.
    decay: of weights.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def base(self) -> str: ...
    @property
    def rate(self) -> float: ...
    @property
    def warmup(self) -> int: ...
    @property
    def clip(self) -> float: ...
    @property
    def decay(self) -> float: ...


@dataclass(frozen=True)
class Limits:
    """What bounds a run without deciding what it learns.

    minutes: sets the number of steps where the recipe does not.
    validate_minutes, checkpoint_minutes: how often.
    patience: validations without a better one before the run ends; 0 for never.
    """

    minutes: float = 60
    validate_minutes: float = 10
    checkpoint_minutes: float = 5
    patience: int = 0


@dataclass(frozen=True)
class Gradients:
    """What one step's gradients were computed from."""

    loss: float
    decisions: int
    tokens: int


@dataclass(frozen=True)
class Validation:
    """A validation: what is compared between runs, lower is better; JSON for the log; a table for the reader."""

    value: float
    rows: Sequence[Mapping[str, Any]]
    table: Table


class Loop(ABC):
    """One run. What it needs to go on is in `folder`: checkpoint.pt, and the log in log.jsonl."""

    measure: ClassVar[str]
    """Name of what validations compare."""

    counts: ClassVar[tuple[str, ...]] = (
        *("step", "steps", "best", "waited", "seconds", "decisions", "tokens"),
    )
    """Attributes that a checkpoint keeps."""

    def __init__(self, recipe: Recipe, limits: Limits, model: Tuned, folder: Path, steps: int) -> None:
        """Args: `steps`: 0 for as many as fit in `limits.minutes` at the speed of the first ones."""
        self.recipe, self.limits, self.model, self.folder = recipe, limits, model, folder
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters, recipe.rate, betas=(0.9, 0.99), weight_decay=recipe.decay, fused=True
        )
        self.step, self.steps, self.best, self.waited = 0, steps, float("inf"), 0
        self.seconds, self.decisions, self.tokens = 0.0, 0, 0
        self.best_weights: list[Tensor] = []
        self.console = Console(file=sys.stderr)

    # -- what a run does ---------------------------------------------------------------------------------------

    @abstractmethod
    def gradients(self) -> Gradients:
        """Add up the gradients of step number `self.step`."""

    @abstractmethod
    def validation(self) -> Validation:
        """Measure the model as it is now."""

    def facts(self) -> Mapping[str, Any]:
        """What adapter.json says besides base, recipe and course of the training."""
        return {}

    @abstractmethod
    def course(self) -> Mapping[str, Any]:
        """What adapter.json says of the training's course besides its counts."""

    # -- running ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Train to the end, or until Ctrl-C: then too the best weights so far are kept."""
        self.folder.mkdir(parents=True, exist_ok=True)
        saved = validated = time.monotonic()
        with bars(self.console) as progress:
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
                        self.validate()
                        validated = time.monotonic()
                        if 0 < self.limits.patience <= self.waited:
                            break
                    if now - saved > 60 * self.limits.checkpoint_minutes:
                        self.save()
                        saved = time.monotonic()
            except KeyboardInterrupt:
                self.console.print(f"Stopped after {self.step} steps.")
        self.validate()
        self.save()

    def validate(self) -> None:
        """Measure, show and log; the best weights are kept."""
        began = time.monotonic()
        found = self.validation()
        better = found.value < self.best
        self.waited = 0 if better else self.waited + 1
        if better:
            self.best = found.value
            self.best_weights = [p.detach().clone() for p in self.parameters]
        self._log({"step": self.step, self.measure: found.value, "validation": found.rows})
        mean = f"mean {self.measure.upper()} {found.value:.3f}{' (best)' if better else ''}"
        found.table.title = f"step {self.step}: {mean}, {time.monotonic() - began:.0f} s"
        self.console.print(found.table)

    def _one_step(self) -> dict[str, Any]:
        began = time.monotonic()
        done = self.gradients()
        rate = self._rate()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, self.recipe.clip))
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        seconds = time.monotonic() - began
        self.seconds, self.decisions, self.tokens = (
            self.seconds + seconds,
            self.decisions + done.decisions,
            self.tokens + done.tokens,
        )
        if not self.steps and self.step == self.recipe.warmup:
            self.steps = max(self.step, int(60 * self.limits.minutes / (self.seconds / self.step)))
            self._log({"steps": self.steps})
        facts = {
            "step": self.step,
            "loss": done.loss,
            "rate": rate,
            "norm": norm,
            "decisions": done.decisions,
            "tokens": done.tokens,
            "seconds": seconds,
        }
        self._log(facts)
        return facts

    def _rate(self) -> float:
        """Up in the warm-up, then linearly down to 0 at the last step."""
        risen = min(1.0, (self.step + 1) / self.recipe.warmup)
        left = 1 - self.step / self.steps if self.steps else 1.0
        return self.recipe.rate * min(risen, left)

    # -- files -----------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the checkpoint; the last one stays until this one is whole."""
        state = {
            "recipe": asdict(self.recipe),
            "weights": [p.detach() for p in self.parameters],
            "optimizer": self.optimizer.state_dict(),
            "best_weights": self.best_weights,
            **{name: getattr(self, name) for name in self.counts},
        }
        write_whole(self.folder / CHECKPOINT, state)

    def resume(self) -> None:
        """Go on from the checkpoint of the same recipe."""
        state = torch.load(self.folder / CHECKPOINT, weights_only=True)
        if state["recipe"] != asdict(self.recipe):
            raise InvalidStateError(
                f"{self.folder / CHECKPOINT} is of another recipe: {state['recipe']}", value=state["recipe"]
            )
        with torch.no_grad():
            for parameter, saved in zip(self.parameters, state["weights"], strict=True):
                parameter.copy_(saved)
        self.optimizer.load_state_dict(state["optimizer"])
        self.best_weights = state["best_weights"]
        for name in self.counts:
            setattr(self, name, state[name])

    def write(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """Write the adapter of the best weights; `facts` are added to adapter.json."""
        with torch.no_grad():
            for parameter, best in zip(self.parameters, self.best_weights, strict=True):
                parameter.copy_(best)
        layers = {
            name: (a.detach().cpu().numpy(), b.detach().cpu().numpy())
            for linear in self.model.decoder.linears()
            if linear.a.requires_grad
            for name, a, b in linear.adapters()
        }
        pointer = None if self.model.pointer is None else self.model.pointer.weight
        training = {
            "steps": self.step,
            "of_steps": self.steps,
            "decisions": self.decisions,
            "tokens": self.tokens,
            "minutes": round(self.seconds / 60, 1),
            f"best_{self.measure}": round(self.best, 4),
            **self.course(),
        }
        about = {
            "base": self.recipe.base,
            "rank": self.model.shape.rank,
            "alpha": self.model.shape.alpha,
            **self.facts(),
            "recipe": asdict(self.recipe),
        }
        trained = None if pointer is None or not pointer.requires_grad else pointer.detach().cpu().numpy()
        write_adapter(folder, layers, trained, {**about, "training": training, **facts})

    def _log(self, facts: Mapping[str, Any]) -> None:
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(facts) + "\n")


def write_whole(path: Path, content: Any) -> None:
    """Save with PyTorch; what was there stays until the new file is whole."""
    partial = path.with_suffix(".partial")
    torch.save(content, partial)
    partial.replace(path)


def bars(console: Console) -> Progress:
    """Progress on a terminal; nothing elsewhere."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(
        *columns, TextColumn("{task.description}"), console=console, disable=not console.is_terminal
    )


class Sized(Protocol):
    """What takes up tokens."""

    @property
    def tokens(self) -> int: ...


One = TypeVar("One", bound=Sized)


def add_up(samples: Sequence[One], decisions: int, loss: Callable[[Sequence[One]], Tensor]) -> Gradients:
    """Add the gradients of `loss`, which sums over the decisions of some samples, of all samples; per decision."""
    total = 0.0
    for batch in passes(samples):
        part = loss(batch) / decisions
        part.backward()
        total += float(part.detach())
    return Gradients(total, decisions, sum(one.tokens for one in samples))


def passes(samples: Iterable[One]) -> Iterator[list[One]]:
    """The samples, in order, in passes of at most PASS_TOKENS tokens; a longer one has a pass of its own."""
    batch: list[One] = []
    size = 0
    for one in samples:
        if batch and size + one.tokens > PASS_TOKENS:
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += one.tokens
    if batch:
        yield batch


def _line(facts: Mapping[str, Any]) -> str:
    seconds = facts["seconds"]
    return (
        f"loss {facts['loss']:.3f}  {facts['tokens'] / seconds:.0f} tokens/s"
        f"  {facts['decisions'] / seconds:.1f} decisions/s"
    )
