"""The columns that answers become in a table, the same on the command line and in a notebook.

Knows no table and no engine.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from typedecide.questions import Question
from typedecide.results import Debiased

Type = Literal["int", "text", "float", "bool"]


def answer_columns(id: str, question: Question) -> list[tuple[str, Type]]:
    """The columns of a question that every answer to it fills.

    >>> from typedecide.questions import Noul
    >>> [name for name, _ in answer_columns("angry", Noul("Is the customer angry?"))]
    ['angry.answer', 'angry.confidence', 'angry.p.yes', 'angry.p.no']
    """
    own: list[tuple[str, Type]] = [(f"{id}.answer", "text"), (f"{id}.confidence", "float")]
    return own + [(f"{id}.p.{name}", "float") for name in question.names]


def answer_cells(id: str, done: Debiased) -> dict[str, Any]:
    """An answer by its columns: those that every one has, and those of a calibration and of a shallow model."""
    answer = done.answer
    cells: dict[str, Any] = {f"{id}.answer": answer.choice, f"{id}.confidence": answer.confidence}
    pairs = zip(answer.names, answer.probabilities, strict=True)
    cells |= {f"{id}.p.{name}": probability for name, probability in pairs}
    if done.calibration is not None:
        cells[f"{id}.abstain"] = done.calibration.abstain
    if done.shallow is not None:
        cells[f"{id}.x_shallow"] = json.dumps(done.shallow.to_dict())
    return cells
