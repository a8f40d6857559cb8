"""What every engine returns, and the interface that they share: the page's engine, and the native one.

Knows no tensors, no browser and no files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, Unpack

from typedecide.calibration import Applied
from typedecide.options import Options
from typedecide.orderings import Level
from typedecide.prior import Prior
from typedecide.questions import Question
from typedecide.readout import Answer
from typedecide.shallow import Shallow


@dataclass(frozen=True)
class Prefill:
    """A prefilled state: tokens of its cached prefix, milliseconds taken, whether it was kept from before."""

    tokens: int
    ms: float
    kept: bool = False


@dataclass(frozen=True)
class Debiased:
    """An answer pooled over orders of the options; readouts that list no options have one order.

    `flip_rate` is the share of the orders whose own answer differs from the pooled one, before a batch prior is taken
    out. `prior` says what was done about the prior, where that was asked for, and `calibration` what calibration did,
    where there is one for the answer. `shallow` says of what kind of approximation it is, where the model is shallow.
    """

    answer: Answer
    orderings_used: int
    flip_rate: float
    prior: Prior | None = None
    calibration: Applied | None = None
    shallow: Shallow | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, the same as the page's."""
        prior = {"prior": self.prior.to_dict()} if self.prior else {}
        own = {"orderings_used": self.orderings_used, "flip_rate": self.flip_rate}
        calibration = self.calibration.to_dict() if self.calibration else {}
        shallow = {"x_shallow": self.shallow.to_dict()} if self.shallow else {}
        return {**self.answer.to_dict(), **own, **prior, **calibration, **shallow}


@dataclass(frozen=True, kw_only=True)
class Scored(Debiased):
    """One answered question: how many tokens were run for it, and the milliseconds that took."""

    tokens: int
    ms: float


@dataclass(frozen=True)
class Cost:
    """What packed scoring took: tokens run, tokens that sharing saved, packed runs, milliseconds."""

    tokens_run: int
    tokens_saved: int
    runs: int
    ms: float


@dataclass(frozen=True, kw_only=True)
class ScoredAll(Cost):
    """Answers in the order of the questions, and what they took."""

    answers: tuple[Debiased, ...]


@dataclass(frozen=True, kw_only=True)
class Decided(Cost):
    """Answers by the ids of the questions, the prefill, and what the answers took."""

    answers: dict[str, Debiased]
    prefill: Prefill


OnAnswer = Callable[[int, Debiased], None]
"""Receives the index of a question and its answer, as soon as it is there."""

OnDecided = Callable[[str, Debiased], None]
"""Receives the id of a question and its answer, as soon as it is there."""


Aborted = Callable[[], bool]
"""Says whether nobody wants the answers any more; asked before each run of the model."""


class DecisionEngine(Protocol):
    """Prefills a state once and scores questions against it."""

    @property
    def info(self) -> Mapping[str, Any]:
        """The model, device, weight format and whatever else the engine says about itself."""
        ...

    def prefill(self, state: str) -> Prefill:
        """Compute and keep the prefix of `state`; it replaces the one before."""
        ...

    def score(self, question: Question, orderings: Level | None = None, **options: Unpack[Options]) -> Scored:
        """Answer `question` about the prefilled state, as `score_all` does."""
        ...

    def score_all(
        self,
        questions: Sequence[Question],
        orderings: Level | None = None,
        *,
        on_answer: OnAnswer | None = None,
        **options: Unpack[Options],
    ) -> ScoredAll:
        """Answer `questions` about the prefilled state in packed runs.

        Args:
            questions: what to ask.
            orderings: orders of its options in which the `labels` readout reads each question: 1, a number, "all"
                cyclic ones, or (default) "auto": both of two options, and up to a budget of more.
            on_answer: told each answer as soon as it is there.
            options: `typedecide.options.Options`.
        """
        ...

    def decide(
        self,
        state: str,
        questions: Mapping[str, Question],
        orderings: Level | None = None,
        *,
        on_answer: OnDecided | None = None,
        aborted: Aborted | None = None,
        **options: Unpack[Options],
    ) -> Decided:
        """Prefill `state` and answer questions about it, by id; the arguments are those of `score_all`.

        Where `aborted` says so, the work stops with an AbortedError; the engine stays usable.
        """
        ...

    def score_full(self, state: str, question: Question, readout: str = "labels") -> Scored:
        """Answer `question` in the order given from whole prompts, without any cache: what others are compared with.

        Slow. It takes no options: no orders, no prior.
        """
        ...

    def release(self) -> None:
        """Free all kept states; the engine stays usable."""
        ...

    def close(self) -> None:
        """Free the engine."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...
