"""Labelled decisions: a text, questions about it, and their true answers; read from JSON lines and from tables.

Knows no model and no data set. A file with faults is refused as a whole, and the error says where each of them is:
nothing is guessed and nothing is left out but what has no label.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typedecide.errors import InvalidQuestionError
from typedecide.inputs import InputError, decode, parse_json, read_bytes
from typedecide.questions import Question, find_surrogate, is_blank, parse_question, parse_questions, to_wire

TABLES = (".csv", ".tsv")
"""Endings of files that are tables; all others hold JSON lines."""

MOST_FAULTS = 20
"""So many faults of a file are told, and the number of those beyond."""

_LABELS = ("task", "domain", "family", "split", "source")

_YES_NO = {"yes": "yes", "true": "yes", "1": "yes", "no": "no", "false": "no", "0": "no"}


@dataclass(frozen=True)
class Labelled:
    """A text (`state`), questions about it by id, and the name of each one's true option (`gold`, the same ids).

    `task` names the row of a table that its decisions count in; where it is empty, the id of the question does.
    `family` is the kind of task, `domain` what the text is, `split` which part of the data it is in, or what training
    has seen of it. `source` says where it comes from: a data set, or a file and its row.
    """

    state: str
    questions: Mapping[str, Question]
    gold: Mapping[str, str]
    task: str = ""
    domain: str = ""
    family: str = ""
    split: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if set(self.questions) != set(self.gold):
            raise InputError("Questions and true answers must have the same ids.", gold=dict(self.gold))
        for key, question in self.questions.items():
            if self.gold[key] not in question.names:
                raise InputError(
                    f"The true answer {self.gold[key]!r} of {key!r} is none of its options.",
                    gold=self.gold[key],
                    options=list(question.names),
                )

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: questions as System One objects."""
        labels = {name: getattr(self, name) for name in _LABELS if getattr(self, name)}
        questions = {key: to_wire(question) for key, question in self.questions.items()}
        return {"state": self.state, "questions": questions, "gold": dict(self.gold), **labels}


@dataclass
class Read:
    """What a file holds: its records, and how many questions of them had no true answer and were left out."""

    records: list[Labelled] = field(default_factory=list)
    unlabelled: int = 0


def read_file(path: Path, text: str | None = None, questions: Mapping[str, Question] | None = None) -> Read:
    """The records of a file: a table where its name ends in .csv or .tsv, else JSON lines.

    Args:
        path: the file, UTF-8.
        text: the column of a table that holds the texts.
        questions: what is asked about each text of a table. The column named like a question's id holds its true
            answers; where it is blank, the question has none.
    """
    if path.suffix.lower() not in TABLES:
        return read_lines(path)
    if text is None or questions is None:
        raise InputError(
            f"{path}: a table needs --text COLUMN, which names its texts, and --questions FILE.json, which says what"
            " is asked about them.",
            file=str(path),
        )
    return read_table(path, text, questions)


def read_lines(path: Path, **defaults: str) -> Read:
    """The records of a file of JSON lines; `defaults` stand in for labels that a line leaves out.

    A line is `{"state", "questions": {id: question}, "gold": {id: name}}`, or for one question `{"state", "question",
    "gold"}`; a question is a System One object. Optional: "task", "family", "domain", "split", "source". A true
    answer that is null or absent leaves the question out.
    """
    read, faults = Read(), _Faults(path)
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if is_blank(line):
            continue
        place = _Line(path, number, faults)
        record = place.read(line, defaults, read)
        if record is not None:
            read.records.append(record)
    return _checked(path, read, faults)


def read_table(path: Path, text: str, questions: Mapping[str, Question]) -> Read:
    """The records of a table with a header, separated by commas, semicolons or tabs: the first of these under which the
    header holds the column `text`.

    Rows are counted as a spreadsheet counts them: the header is row 1.
    """
    content = _text(path)
    read, faults = Read(), _Faults(path)
    rows = _rows(path, content, text)
    header = next(rows, [])
    _check_header(path, header, text, questions)
    for number, cells in enumerate(rows, start=2):
        if not cells:
            continue
        if len(cells) != len(header):
            faults.add(f"row {number}", None, f"has {len(cells)} cells, the header has {len(header)}")
            continue
        row = dict(zip(header, cells, strict=True))
        state = row[text]
        if is_blank(state):
            faults.add(f"row {number}", text, "the text is blank")
        gold: dict[str, str] = {}
        for key, question in questions.items():
            if is_blank(row[key]):
                read.unlabelled += 1
                continue
            name = true_option(question, row[key])
            if name is None:
                faults.add(f"row {number}", key, _no_option(row[key], question))
            else:
                gold[key] = name
        if gold and not is_blank(state):
            asked = {key: questions[key] for key in gold}
            read.records.append(Labelled(state, asked, gold, source=f"{path.name}, row {number}"))
    return _checked(path, read, faults)


class _Faults:
    """What is wrong with a file, in its order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.told: list[dict[str, str | None]] = []
        self.count = 0

    def add(self, place: str, column: str | None, reason: str) -> None:
        """One fault: in which row or line, in which column or field, and why."""
        self.count += 1
        if len(self.told) < MOST_FAULTS:
            self.told.append({"place": place, "column": column, "reason": reason})

    def error(self) -> InputError:
        """All of them."""
        lines = []
        for one in self.told:
            column = "" if one["column"] is None else f", column {one['column']!r}"
            lines.append(f"{self.path}: {one['place']}{column}: {one['reason']}.")
        beyond = self.count - len(self.told)
        if beyond:
            lines.append(f"{self.path}: {beyond} more.")
        return InputError("\n".join(lines), file=str(self.path), count=self.count, faults=self.told)


class _Line:
    """One line of a file of JSON lines, and where its faults go."""

    def __init__(self, path: Path, number: int, faults: _Faults) -> None:
        self.source = f"{path.name}, line {number}"
        self.place = f"line {number}"
        self.faults = faults

    def fault(self, column: str | None, reason: str) -> None:
        self.faults.add(self.place, column, reason)

    def read(self, line: str, defaults: Mapping[str, str], read: Read) -> Labelled | None:
        """The record, unless it has a fault or no true answer."""
        before = self.faults.count
        try:
            found = parse_json(line)
        except json.JSONDecodeError as error:
            self.fault(None, f"not JSON: {error.msg} at character {error.pos + 1}")
            return None
        except InputError as error:
            self.fault(None, error.message.rstrip("."))
            return None
        if not isinstance(found, dict):
            self.fault(None, "not a JSON object")
            return None
        state = found.get("state")
        if not isinstance(state, str):
            self.fault("state", f"is not a text: {_short(state)}")
        elif find_surrogate(state) is not None:
            self.fault("state", "holds a lone surrogate")
        labels = {"source": self.source, **defaults}
        for name in _LABELS:
            if found.get(name) is not None:
                labels[name] = found[name]
                if not isinstance(found[name], str):
                    self.fault(name, f"is not a text: {_short(found[name])}")
        questions, true = self._asked(found)
        gold: dict[str, str] = {}
        for key, question in questions.items():
            value = true.get(key)
            if value is None:
                read.unlabelled += 1
                continue
            option = true_option(question, value)
            if option is None:
                self.fault("gold" if "question" in found else f"gold.{key}", _no_option(value, question))
            else:
                gold[key] = option
        if self.faults.count > before or not gold:
            return None
        return Labelled(str(state), {key: questions[key] for key in gold}, gold, **labels)

    def _asked(self, found: Mapping[str, Any]) -> tuple[dict[str, Question], dict[str, Any]]:
        """The questions and their true answers; nothing where these are malformed."""
        try:
            if "question" in found:
                key = str(found.get("task") or "question")
                return {key: parse_question(found["question"])}, {key: found.get("gold")}
            questions = parse_questions(found.get("questions"))
        except InvalidQuestionError as error:
            column = ".".join(map(str, ("question" if "question" in found else "questions", *error.loc)))
            self.fault(column, f"{error.message} Found {_short(error.value)}")
            return {}, {}
        gold = found.get("gold")
        if not isinstance(gold, dict):
            self.fault("gold", f"is not an object of question id to true answer: {_short(gold)}")
            return {}, {}
        for key in gold:
            if key not in questions:
                self.fault(f"gold.{key}", "there is no such question")
        return questions, gold


def _checked(path: Path, read: Read, faults: _Faults) -> Read:
    if faults.count:
        raise faults.error()
    if not read.records:
        raise InputError(
            f"{path}: holds no labelled decision ({read.unlabelled} questions without a true answer).",
            file=str(path),
            unlabelled=read.unlabelled,
        )
    return read


def _text(path: Path) -> str:
    return decode(str(path), read_bytes(str(path))).removeprefix("\ufeff")  # spreadsheets write one


def _rows(path: Path, content: str, text: str) -> Iterator[list[str]]:
    """The table's rows, by the first separator under which its header holds the column `text`, else by commas."""
    for separator in (",", ";", "\t"):
        # Quotes that are wrong under one separator may be right under another.
        with suppress(InputError):
            if text in next(_split(path, content, separator), []):
                return _split(path, content, separator)
    return _split(path, content, ",")


def _split(path: Path, content: str, separator: str) -> Iterator[list[str]]:
    # strict: a quote that is never closed is a fault, and not a cell that swallows the rest of the file.
    reader = csv.reader(io.StringIO(content, newline=""), delimiter=separator, strict=True)
    number = 0
    while True:
        number += 1
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(f"{path}: row {number}: {error}.", file=str(path), row=number) from error


def _check_header(path: Path, header: Sequence[str], text: str, questions: Mapping[str, Question]) -> None:
    faults = _Faults(path)
    for column in dict.fromkeys((text, *questions)):
        count = header.count(column)
        if count != 1:
            known = ", ".join(map(repr, header)) or "none"
            wanted = "the texts" if column == text else f"the true answers of the question {column!r}"
            reason = "there is no such column" if count == 0 else f"there are {count} such columns"
            faults.add("row 1", column, f"{reason}, for {wanted}; the columns are {known}")
    if text in questions:
        faults.add("row 1", text, "is the column of the texts and the id of a question")
    if faults.count:
        raise faults.error()


def true_option(question: Question, value: object) -> str | None:
    """The name of the option that a cell or a JSON value means: itself, or without white space around it; of yes/no
    questions also true, false, 1 and 0, in any case."""
    if question.kind == "noul":
        return _YES_NO.get(str(value).strip().lower()) if isinstance(value, str | bool | int) else None
    if not isinstance(value, str):
        return None
    return next((name for name in (value, value.strip()) if name in question.names), None)


def _no_option(value: object, question: Question) -> str:
    names = ", ".join(map(_short, question.names[:12])) + (", …" if len(question.names) > 12 else "")
    return f"{_short(value)} is none of the options: {names}"


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "…"
