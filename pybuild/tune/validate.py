"""How well a model in training answers, task by task, with the evidence and without it.

A quick look while training; `python -m typedecide evaluate` measures a built model.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from pybuild.tune.samples import Labelled, Sample, certain
from pybuild.tune.task import Tuned, loss_of
from typedecide.text import BLANK

TOGETHER = 8
"""Texts of one pass."""


@dataclass(frozen=True)
class Row:
    """One task: decisions, accuracy, mean negative log-likelihood, chance, and accuracy without the evidence."""

    task: str
    n: int
    accuracy: float
    nll: float
    chance: float
    hidden: float


def validate(model: Tuned, tasks: Mapping[str, Sequence[Labelled]]) -> list[Row]:
    """One row for each task."""
    return [_row(model, task, records) for task, records in tasks.items()]


def mean_nll(rows: Sequence[Row]) -> float:
    """The mean over tasks, by which runs are compared."""
    return sum(row.nll for row in rows) / len(rows)


def table(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows as JSON, rounded for a reader."""
    return [
        {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(row).items()}
        for row in rows
    ]


def _row(model: Tuned, task: str, records: Sequence[Labelled]) -> Row:
    samples = [sample_of(record) for record in records if record.questions]
    right, nll = _answers(model, samples)
    hidden, _ = _answers(model, [replace(sample, state=BLANK) for sample in samples])
    options = [len(question.names) for sample in samples for question in sample.questions]
    n = len(options)
    return Row(task, n, right / n, nll / n, sum(1 / count for count in options) / n, hidden / n)


def sample_of(record: Labelled) -> Sample:
    """A record with all its questions, and certainty about their answers."""
    keys = sorted(record.questions)
    questions = tuple(record.questions[key] for key in keys)
    return Sample(
        record.state, questions, tuple(certain(record.questions[key], record.gold[key]) for key in keys)
    )


@torch.inference_mode()
def _answers(model: Tuned, samples: Sequence[Sample]) -> tuple[int, float]:
    """How many answers are right, and the sum of their negative log-likelihoods."""
    right, nll = 0, 0.0
    for start in range(0, len(samples), TOGETHER):
        rng = random.Random(start)
        batch = [model.encode(sample, rng) for sample in samples[start : start + TOGETHER]]
        for logits, one in zip(model(batch), batch, strict=True):
            nll += float(loss_of(logits, one.sample))
            right += sum(
                target[int(found.argmax())] == 1
                for found, target in zip(logits, one.sample.targets, strict=True)
            )
    return right, nll
