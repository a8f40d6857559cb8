"""Labelled decisions from files: what is read, and that a malformed file names row, column and reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from typedecide.inputs import InputError
from typedecide.labelled import Labelled, read_file, read_lines, read_table
from typedecide.questions import Choice, Noul, Question, Score

QUESTIONS: dict[str, Question] = {
    "queue": Choice("Which team?", ["billing", "accounts"]),
    "refund": Noul("Money back?"),
    "mood": Score("How angry?", ["calm", "angry"]),
}
NOUL = {"type": "noul", "criteria": "Money back?"}


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def lines(folder: Path, *records: Any) -> Path:
    return write(folder, "data.jsonl", "".join(json.dumps(record) + "\n" for record in records))


def faults(read: Any, *arguments: Any) -> list[str]:
    """The lines of the error that reading gives, without the path."""
    with pytest.raises(InputError) as caught:
        read(*arguments)
    return [line.removeprefix(f"{arguments[0]}: ") for line in caught.value.message.split("\n")]


@pytest.mark.parametrize("separator", (",", ";", "\t"))
@pytest.mark.parametrize("mark", ("", "\ufeff"))
def test_table(tmp_path: Path, separator: str, mark: str) -> None:
    rows = [
        ["note", "text", "queue", "refund", "mood"],
        ["", '"Twice!\nGive it ""back""\u2028, now; please\t."', "billing", "Yes", " angry "],
        ["x", "locked out", "accounts", "0", ""],
    ]
    path = write(tmp_path, "t.csv", mark + "\r\n".join(separator.join(row) for row in rows) + "\r\n\r\n")
    read = read_table(path, "text", QUESTIONS)
    assert [one.state for one in read.records] == [
        'Twice!\nGive it "back"\u2028, now; please\t.',
        "locked out",
    ]
    assert read.records[0].gold == {"queue": "billing", "refund": "yes", "mood": "angry"}
    assert read.records[1].gold == {"queue": "accounts", "refund": "no"}
    assert list(read.records[1].questions) == ["queue", "refund"]
    assert read.records[1].source == "t.csv, row 3"
    assert read.unlabelled == 1


def test_faults_of_a_table_name_row_column_and_reason(tmp_path: Path) -> None:
    path = write(
        tmp_path, "t.csv", "text,queue,refund,mood\na,bilng,maybe,calm\n ,billing,yes,calm\nb,billing\n"
    )
    assert faults(read_table, path, "text", QUESTIONS) == [
        "row 2, column 'queue': 'bilng' is none of the options: 'billing', 'accounts'.",
        "row 2, column 'refund': 'maybe' is none of the options: 'yes', 'no'.",
        "row 3, column 'text': the text is blank.",
        "row 4: has 2 cells, the header has 4.",
    ]


def test_many_faults_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", "text,queue,refund,mood\n" + "a,x,yes,calm\n" * 50)
    found = faults(read_table, path, "text", QUESTIONS)
    assert len(found) == 21
    assert found[19:] == [
        "row 21, column 'queue': 'x' is none of the options: 'billing', 'accounts'.",
        "30 more.",
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    (
        ("", "row 1, column 'text': there is no such column, for the texts; the columns are none."),
        (
            "text,queue,refund\n",
            "row 1, column 'mood': there is no such column, for the true answers of the question",
        ),
        ("text,queue,queue,refund,mood\n", "row 1, column 'queue': there are 2 such columns"),
        ("text,queue,refund,mood\n", "holds no labelled decision"),
        ('text,queue,refund,mood\n"a,billing,yes,calm\n', "row 2: unexpected end of data"),
        ("text,queue,refund,mood\na,,,\n", "holds no labelled decision (3 questions without a true answer)"),
    ),
)
def test_unusable_table(tmp_path: Path, content: str, reason: str) -> None:
    assert faults(read_table, write(tmp_path, "t.csv", content), "text", QUESTIONS)[0].startswith(reason)


def test_text_column_that_is_a_question(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", "queue\nbilling\n")
    found = faults(read_table, path, "queue", {"queue": QUESTIONS["queue"]})
    assert found == ["row 1, column 'queue': is the column of the texts and the id of a question."]


def test_a_file_that_is_not_utf8_names_line_and_byte(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("text,queue\nok,billing\ncaf\xe9,billing\n".encode("latin-1"))
    assert faults(read_table, path, "text", QUESTIONS) == ["not UTF-8: byte 0xe9 at offset 25, line 3."]


def test_a_table_needs_its_arguments(tmp_path: Path) -> None:
    path = write(tmp_path, "T.TSV", "text\n")
    assert "needs --text COLUMN" in faults(read_file, path)[0]


def test_missing_file(tmp_path: Path) -> None:
    assert faults(read_file, tmp_path / "none.jsonl") == ["cannot be read: No such file or directory."]


def test_json_lines(tmp_path: Path) -> None:
    path = lines(
        tmp_path,
        {"state": "a", "questions": {"refund": NOUL, "other": NOUL}, "gold": {"refund": True}, "family": "f"},
        {
            "state": "b\u2028",
            "question": {"type": "choice", "criteria": ["x", "y"]},
            "gold": "y",
            "task": "t",
        },
        {"state": "c", "question": NOUL, "gold": None},
    )
    read = read_file(path)
    assert [one.gold for one in read.records] == [{"refund": "yes"}, {"t": "y"}]
    assert [one.task for one in read.records] == ["", "t"]
    assert [one.family for one in read.records] == ["f", ""]
    assert [one.source for one in read.records] == ["data.jsonl, line 1", "data.jsonl, line 2"]
    assert read.unlabelled == 2


def test_a_record_survives_a_file(tmp_path: Path) -> None:
    gold = {"queue": "billing", "refund": "no", "mood": "calm"}
    record = Labelled("a", QUESTIONS, gold, "task", "domain", "family", "test", "source")
    assert read_lines(lines(tmp_path, record.to_dict())).records == [record]


@pytest.mark.parametrize(
    ("record", "fault"),
    (
        ([], "line 1: not a JSON object."),
        ({"state": 1, "question": NOUL, "gold": "yes"}, "line 1, column 'state': is not a text: 1."),
        (
            {"state": "\ud800", "question": NOUL, "gold": "yes"},
            "line 1, column 'state': holds a lone surrogate.",
        ),
        ({"state": "a", "question": NOUL, "gold": "perhaps"}, "line 1, column 'gold': 'perhaps' is none of"),
        ({"state": "a", "question": NOUL, "gold": 0.5}, "line 1, column 'gold': 0.5 is none of the options"),
        (
            {"state": "a", "question": {"type": "x"}, "gold": "yes"},
            "line 1, column 'question.type': The type of a",
        ),
        (
            {"state": "a", "gold": {}},
            "line 1, column 'questions': Questions must be an object of id to question.",
        ),
        (
            {"state": "a", "questions": {"q": NOUL}, "gold": "yes"},
            "line 1, column 'gold': is not an object of",
        ),
        (
            {"state": "a", "questions": {"q": NOUL}, "gold": {"r": "yes"}},
            "line 1, column 'gold.r': there is no",
        ),
        (
            {"state": "a", "question": NOUL, "gold": "yes", "task": 1},
            "line 1, column 'task': is not a text: 1.",
        ),
    ),
)
def test_faults_of_json_lines(tmp_path: Path, record: Any, fault: str) -> None:
    found = faults(read_lines, lines(tmp_path, record))
    assert len(found) == 1
    assert found[0].startswith(fault)


def test_lines_that_are_no_json(tmp_path: Path) -> None:
    path = write(tmp_path, "data.jsonl", '{"state": "a"\n\n{"state": "a", "state": "b"}\n')
    assert faults(read_lines, path) == [
        "line 1: not JSON: Expecting ',' delimiter at character 14.",
        "line 3: the key 'state' is there twice.",
    ]


def test_a_record_checks_itself() -> None:
    with pytest.raises(InputError, match="the same ids"):
        Labelled("a", {"refund": QUESTIONS["refund"]}, {})
    with pytest.raises(InputError, match="'maybe' of 'refund' is none of its options"):
        Labelled("a", {"refund": QUESTIONS["refund"]}, {"refund": "maybe"})
