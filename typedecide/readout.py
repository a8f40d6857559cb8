"""The label logits of a question become probabilities, an answer and a confidence.

Knows no tensors, tokens or prompts. `web/readout.js` is its twin; both run tests/vectors/readout.json.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from typedecide.errors import IntegrityError
from typedecide.questions import Question


@dataclass(frozen=True)
class Answer:
    """The answer to one question; names, logits and probabilities are in the question's option order.

    `value` is the name of the option (choice), P(yes) (noul) or the expected level Σ i·p (score). `choice`
    is the most probable name, the first one in a tie.
    """

    kind: str
    names: tuple[str, ...]
    logits: tuple[float, ...]
    probabilities: tuple[float, ...]
    value: str | float
    choice: str
    confidence: float

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, the same as the page's."""
        return {
            "kind": self.kind,
            "names": list(self.names),
            "logits": list(self.logits),
            "probabilities": list(self.probabilities),
            "value": self.value,
            "choice": self.choice,
            "confidence": self.confidence,
        }


def softmax(logits: Sequence[float]) -> tuple[float, ...]:
    """Probabilities from logits; IntegrityError where a logit is not a finite number.

    >>> softmax([1000.0, 1000.0])
    (0.5, 0.5)
    """
    finite = _check_logits(logits)
    top = max(finite)
    weights = [math.exp(logit - top) for logit in finite]
    total = sum(weights)
    return tuple(weight / total for weight in weights)


def read(question: Question, logits: Sequence[float]) -> Answer:
    """The answer to `question` from the logits of its labels, one for each option in order.

    >>> from typedecide.questions import Noul
    >>> read(Noul("Is it urgent?"), [2.0, 2.0]).to_dict()["value"]
    0.5
    """
    names = question.names
    if len(logits) != len(names):
        raise IntegrityError(
            "There must be one logit for each option.", value=len(logits), expected=len(names)
        )
    probabilities = softmax(logits)
    choice = names[_mode(probabilities)]
    return Answer(
        kind=question.kind,
        names=names,
        logits=_check_logits(logits),
        probabilities=probabilities,
        value=_value(question.kind, choice, probabilities),
        choice=choice,
        confidence=_confidence(question.kind, probabilities),
    )


def _check_logits(logits: Sequence[float]) -> tuple[float, ...]:
    if len(logits) == 0:
        raise IntegrityError("There are no logits.", value=0)
    for index, logit in enumerate(logits):
        number = isinstance(logit, numbers.Real) and not isinstance(logit, bool)
        if not number or not math.isfinite(logit):
            raise IntegrityError(f"Logit {index} is not a finite number.", value=logit, index=index)
    return tuple(float(logit) for logit in logits)


def _mode(probabilities: Sequence[float]) -> int:
    return probabilities.index(max(probabilities))


def _value(kind: str, choice: str, probabilities: Sequence[float]) -> str | float:
    if kind == "choice":
        return choice
    if kind == "noul":
        return probabilities[0]
    return sum(level * p for level, p in enumerate(probabilities))


def _confidence(kind: str, probabilities: Sequence[float]) -> float:
    n = len(probabilities)
    if kind != "score":
        # max: equal probabilities can fall short of 1/n by the last bit.
        return max(0.0, (max(probabilities) - 1 / n) / (1 - 1 / n))
    mode = _mode(probabilities)
    spread = sum(p * abs(level - mode) for level, p in enumerate(probabilities))
    uniform = sum(abs(level - (n - 1) / 2) for level in range(n)) / n
    return max(0.0, 1 - spread / uniform)
