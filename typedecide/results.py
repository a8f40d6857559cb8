"""What every engine returns, and the interface that they share: the page's engine, and the native one.

Knows no tensors, no browser and no files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from typedecide.orderings import Level
from typedecide.questions import Question
from typedecide.readout import Answer


@dataclass(frozen=True)
class Prefill:
    """A prefilled state: tokens of its cached prefix, milliseconds taken, whether it was kept from before."""

    tokens: int
    ms: float
    kept: bool = False


@dataclass(frozen=True)
class Scored:
    """An answered question: how many tokens were run for it, and the milliseconds that took."""

    answer: Answer
    tokens: int
    ms: float


@dataclass(frozen=True)
class Debiased:
    """An answer pooled over orders of the options.

    `flip_rate` is the share of the orders whose own answer differs from the pooled one.
    """

    answer: Answer
    orderings_used: int
    flip_rate: float


@dataclass(frozen=True)
class ScoredAll:
    """Answers in the order of the questions; tokens run, tokens that sharing saved, packed runs, milliseconds."""

    answers: tuple[Debiased, ...]
    tokens_run: int
    tokens_saved: int
    runs: int
    ms: float


OnAnswer = Callable[[int, Debiased], None]
"""Receives the index of a question and its answer, as soon as it is there."""


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

    def score_all(
        self,
        questions: Sequence[Question],
        orderings: Level | None = None,
        budget: int | None = None,
        run_tokens: int | None = None,
        on_answer: OnAnswer | None = None,
        readout: str | None = None,
    ) -> ScoredAll:
        """Answer `questions` about the prefilled state in packed runs, each in several orders of its options."""
        ...

    def score_full(self, state: str, question: Question) -> Scored:
        """Answer `question` from the whole prompt, without the kept prefix."""
        ...

    def release(self) -> None:
        """Free all kept states; the engine stays usable."""
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
