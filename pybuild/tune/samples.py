"""Labelled records become training samples: what is asked of them, and what should be answered. Knows no tokens."""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from typedecide.questions import Choice, Question
from typedecide.text import BLANK

BLANKS = (BLANK, "", "-", "(no text)")
"""Evidence that says nothing. `BLANK` is what the text readout and the evaluation's control use."""

RECENT = 64
"""How far back unrelated texts are taken from."""

UNKNOWN = re.compile(
    r"((it is |is )?not (stated|mentioned|given|recorded|covered|said|named|clear|described|discussed|addressed"
    r"|revealed|commented on|decided)|un(known|clear|specified)|no information|none (given|mentioned)"
    r"|cannot[ _](be told|tell).*|the \w+ does not say|says nothing about this)",
    re.IGNORECASE,
)
"""Names of options that are right where the evidence says nothing."""


class Labelled(Protocol):
    """What is used of a labelled record (`bench.datasets` has them)."""

    @property
    def state(self) -> str: ...
    @property
    def questions(self) -> Mapping[str, Question]: ...
    @property
    def gold(self) -> Mapping[str, str]: ...
    @property
    def family(self) -> str: ...


@dataclass(frozen=True)
class Sample:
    """A text and questions about it, each with the probability that every option should get."""

    state: str
    questions: tuple[Question, ...]
    targets: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Mix:
    """What is changed of the records.

    questions: most questions of one sample.
    hidden: share of samples whose evidence is taken away.
    unrelated: share of those that get the text of another family instead of none.
    fewer: share of choices of more than two options that lose some of the wrong ones.
    """

    questions: int = 8
    hidden: float = 0.08
    unrelated: float = 0.3
    fewer: float = 0.25


def draw(records: Iterable[Labelled], seed: int, mix: Mix) -> Iterator[Sample]:
    """One sample of each record that asks something. The same records and seed give the same samples."""
    recent: deque[Labelled] = deque(maxlen=RECENT)
    for index, record in enumerate(one for one in records if one.questions):
        rng = random.Random(f"sample {seed} {index}")
        keys = sorted(record.questions)
        keys = rng.sample(keys, min(len(keys), mix.questions))
        asked = [_fewer(record.questions[key], record.gold[key], mix.fewer, rng) for key in keys]
        if rng.random() < mix.hidden:
            state = _nothing(record, recent, mix.unrelated, rng)
            yield Sample(state, tuple(asked), tuple(map(uninformed, asked)))
        else:
            gold = [record.gold[key] for key in keys]
            yield Sample(record.state, tuple(asked), tuple(map(certain, asked, gold)))
        recent.append(record)


def _fewer(question: Question, gold: str, share: float, rng: random.Random) -> Question:
    if not isinstance(question, Choice) or len(question.names) < 3 or rng.random() >= share:
        return question
    wrong = [name for name in question.names if name != gold]
    kept = {gold, *rng.sample(wrong, rng.randint(1, len(wrong) - 1))}
    pairs = zip(question.names, question.descriptions, strict=True)
    return Choice(question.question, {name: text for name, text in pairs if name in kept})


def _nothing(record: Labelled, recent: Iterable[Labelled], unrelated: float, rng: random.Random) -> str:
    """Evidence that does not answer questions about `record`."""
    others = [other.state for other in recent if other.family != record.family]
    if others and rng.random() < unrelated:
        return rng.choice(others)
    return rng.choice(BLANKS)


def certain(question: Question, gold: str) -> tuple[float, ...]:
    """All probability on the true option."""
    return tuple(float(name == gold) for name in question.names)


def uninformed(question: Question) -> tuple[float, ...]:
    """What to answer without evidence: that it is not stated, where that is an option; else all options alike."""
    unknown = [UNKNOWN.fullmatch(name) is not None for name in question.names]
    chosen = unknown if any(unknown) else [True] * len(unknown)
    return tuple(one / sum(chosen) for one in chosen)
