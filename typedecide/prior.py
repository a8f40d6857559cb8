"""Prior correction: what a model answers whatever the evidence is, taken out of its answers.

Two ways to learn that prior. `content-free`: the model's answer under blank evidence (Zhao et al., "Calibrate Before
Use", 2021). `batch`: the mean of its answers to the question over the texts of a session (Zhou et al., "Batch
Calibration", 2023). Both are taken out of log-probabilities. Knows no text, no tensors and no questions. `web/prior.js`
is its twin; both run tests/vectors/prior.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from typedecide.orderings import log_softmax

Kind = Literal["content-free", "batch"]

KINDS: tuple[Kind, ...] = ("content-free", "batch")

MIN_STATES = 16
"""From how many different states on a batch prior is applied."""

MAX_STATES = 1024
"""How many different states a batch prior is the mean of; those that come later leave it as it is."""


@dataclass(frozen=True)
class Prior:
    """What was done about the prior of an answer: its kind, from how many states it is known, and whether it was
    taken out. A batch prior of fewer than `MIN_STATES` states is not."""

    kind: Kind
    count: int
    applied: bool

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, the same as the page's."""
        return {"kind": self.kind, "count": self.count, "applied": self.applied}


def without(logits: Sequence[float], prior: Sequence[float]) -> tuple[float, ...]:
    """Log-probabilities from logits, less those of the prior's logits, normalised again.

    >>> without([3.0, 1.0], [3.0, 1.0]) == log_softmax([0.0, 0.0])
    True

    Raises:
        IntegrityError: a logit, or the distance of two, is not a finite number.
    """
    pairs = zip(log_softmax(logits), log_softmax(prior), strict=True)
    return log_softmax([logit - mean for logit, mean in pairs])


class BatchPrior:
    """The mean of a question's log-probabilities over different states."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._totals: list[float] = []

    @property
    def count(self) -> int:
        """States so far."""
        return len(self._seen)

    @property
    def applies(self) -> bool:
        """Whether that is enough."""
        return self.count >= MIN_STATES

    def add(self, state: str, logits: Sequence[float]) -> None:
        """Count a state's answer, unless the state was counted before, or `MAX_STATES` were."""
        log_probabilities = log_softmax(logits)
        if state in self._seen or self.count == MAX_STATES:
            return
        self._seen.add(state)
        before = self._totals or [0.0] * len(log_probabilities)
        self._totals = [a + b for a, b in zip(before, log_probabilities, strict=True)]

    def correct(self, logits: Sequence[float]) -> tuple[float, ...]:
        """Log-probabilities, less the prior where it applies."""
        if not self.applies:
            return log_softmax(logits)
        return without(logits, [total / self.count for total in self._totals])
