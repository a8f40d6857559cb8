"""A labelled decision: a text, questions about it, and their true answers; and the JSON lines that hold them.

Knows no data set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typedecide.errors import TypedecideError
from typedecide.page import to_wire
from typedecide.questions import Question, parse_questions


class RecordError(TypedecideError):
    """A line that is no labelled decision; `data` says file, line and what is wrong."""

    code = "RECORD"


@dataclass(frozen=True)
class Record:
    """A text (`state`), questions about it by id, and the name of each one's true option (`gold`, the same ids).

    `task` names the row of a table that it counts in, `family` the kind of task, `domain` what the text is,
    `split` train, valid or test, `source` the data set.
    """

    state: str
    questions: Mapping[str, Question]
    gold: Mapping[str, str]
    task: str
    domain: str
    family: str
    split: str
    source: str

    def __post_init__(self) -> None:
        if set(self.questions) != set(self.gold):
            raise RecordError("Questions and true answers must have the same ids.", gold=dict(self.gold))
        for key, question in self.questions.items():
            if self.gold[key] not in question.names:
                raise RecordError(
                    f"The true answer {self.gold[key]!r} of {key!r} is none of its options.",
                    gold=self.gold[key],
                    options=question.names,
                )

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: questions as System One objects."""
        return {
            "state": self.state,
            "questions": {key: to_wire(question) for key, question in self.questions.items()},
            "gold": dict(self.gold),
            "task": self.task,
            "domain": self.domain,
            "family": self.family,
            "split": self.split,
            "source": self.source,
        }


def read_records(path: Path, **defaults: str) -> Iterator[Record]:
    """The records of a JSON Lines file; `defaults` stand in for fields that a line leaves out."""
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                found = json.loads(line)
                labels = {key: str(found.get(key, defaults.get(key, ""))) for key in _LABELS}
                yield Record(found["state"], parse_questions(found["questions"]), found["gold"], **labels)
            except (ValueError, KeyError, TypeError, AttributeError, TypedecideError) as error:
                raise RecordError(
                    f"{path.name}, line {number}: {error}", file=str(path), line=number
                ) from error


_LABELS = ("task", "domain", "family", "split", "source")
