"""What every engine returns, and the interface that they share: the page's engine, and the native one.

Knows no tensors, no browser and no files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from typedecide.questions import Question
from typedecide.readout import Answer


@dataclass(frozen=True)
class Prefill:
    """A prefilled state: how many tokens its cached prefix has, and the milliseconds it took."""

    tokens: int
    ms: float


@dataclass(frozen=True)
class Scored:
    """An answered question: how many tokens were run for it, and the milliseconds that took."""

    answer: Answer
    tokens: int
    ms: float


class DecisionEngine(Protocol):
    """Prefills a state once and scores questions against it."""

    @property
    def info(self) -> Mapping[str, Any]:
        """The model, device, weight format and whatever else the engine says about itself."""
        ...

    def prefill(self, state: str) -> Prefill:
        """Compute and keep the prefix of `state`; it replaces the one before."""
        ...

    def score(self, question: Question) -> Scored:
        """Answer `question` about the prefilled state."""
        ...

    def score_full(self, state: str, question: Question) -> Scored:
        """Answer `question` from the whole prompt, without the kept prefix."""
        ...

    def close(self) -> None:
        """Free the engine."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
