"""How near a shallow model's answers are to those of the whole one, task by task, with the evidence and without it.

A quick look while training; `python -m bench speed` measures built models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich.box import SIMPLE
from rich.table import Table
from torch import Tensor

from pybuild.tune import loop
from pybuild.tune.kept import Cut, Kept
from pybuild.tune.task import divergence


@dataclass(frozen=True)
class Row:
    """One task.

    n: decisions.
    accuracy, hidden: of the shallow model, with the evidence and without it.
    whole, whole_hidden: the same of the whole model.
    agreement: share of decisions for the option that the whole model chooses.
    kl: KL(whole || shallow) of option distributions in nats, the mean over decisions.
    effect_error: squared distance of the evidence's effects on centred option logits, as a share of the squared
        effects in the whole model.
    """

    task: str
    n: int
    accuracy: float
    whole: float
    hidden: float
    whole_hidden: float
    agreement: float
    kl: float
    effect_error: float


def compare(cut: Cut, tasks: Mapping[str, tuple[Sequence[Kept], Sequence[Kept]]]) -> list[Row]:
    """One row for each task, from its samples and from the same ones without evidence."""
    return [_row(cut, task, shown, hidden) for task, (shown, hidden) in tasks.items()]


def mean_kl(rows: Sequence[Row]) -> float:
    """The mean over tasks, by which runs are compared."""
    return sum(row.kl for row in rows) / len(rows)


def table(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows as JSON, rounded for a reader."""
    return [
        {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(row).items()}
        for row in rows
    ]


def beside(before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> Table:
    """Rows as JSON beside those of the untrained shallow model, shares in percent."""
    shares = ("accuracy", "hidden", "agreement")
    found = Table("task", "n", "whole", *shares, "effect error", "KL", box=SIMPLE, padding=0)
    found.caption = "Untrained shallow model → now; shares in percent; whole: accuracy of the whole model."
    for old, new in zip([*before, _mean(before)], [*now, _mean(now)], strict=True):
        changes = (f"{100 * old[name]:.0f}→{100 * new[name]:.0f}" for name in shares)
        error = f"{100 * old['effect_error']:.1f}→{100 * new['effect_error']:.1f}"
        kl = f"{old['kl']:.3f}→{new['kl']:.3f}"
        found.add_row(new["task"], str(new["n"]), f"{100 * new['whole']:.0f}", *changes, error, kl)
    return found


def _mean(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The mean over tasks."""
    figures = {name: sum(row[name] for row in rows) / len(rows) for name in rows[0] if name != "task"}
    return {**figures, "task": "mean", "n": sum(row["n"] for row in rows)}


@torch.inference_mode()
def _row(cut: Cut, task: str, shown: Sequence[Kept], hidden: Sequence[Kept]) -> Row:
    found = [_log_probabilities(cut, samples) for samples in (shown, hidden)]
    whole = [[one for kept in samples for one in kept.teacher] for samples in (shown, hidden)]
    gold = [target for kept in shown for target in kept.encoded.sample.targets]
    n = len(gold)
    kl = sum(float(divergence(t, s)) for t, s in zip(whole[0], found[0], strict=True))
    effects = list(zip(_effects(*found), _effects(*whole), strict=True))
    error = sum(float((mine - theirs).square().sum()) for mine, theirs in effects)
    size = sum(float(theirs.square().sum()) for _, theirs in effects)
    return Row(
        task,
        n,
        accuracy=_accuracy(found[0], gold),
        whole=_accuracy(whole[0], gold),
        hidden=_accuracy(found[1], gold),
        whole_hidden=_accuracy(whole[1], gold),
        agreement=sum(int(t.argmax()) == int(s.argmax()) for t, s in zip(whole[0], found[0], strict=True))
        / n,
        kl=kl / n,
        effect_error=error / size,
    )


def _log_probabilities(cut: Cut, samples: Sequence[Kept]) -> list[Tensor]:
    answers = (logits for batch in loop.passes(samples) for logits in cut.answer(batch))
    return [one.log_softmax(-1) for logits in answers for one in logits]


def _effects(shown: Sequence[Tensor], hidden: Sequence[Tensor]) -> list[Tensor]:
    """What the evidence does to the centred logits of each decision."""
    moved = (a - b for a, b in zip(shown, hidden, strict=True))
    return [one - one.mean() for one in moved]


def _accuracy(found: Sequence[Tensor], gold: Sequence[Sequence[float]]) -> float:
    right = sum(target[int(one.argmax())] == 1 for one, target in zip(found, gold, strict=True))
    return right / len(gold)
