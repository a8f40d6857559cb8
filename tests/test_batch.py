"""`python -m typedecide batch` in one process: what it writes, what it rejects, and that a kill loses nothing."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from typedecide.batch import Batch, Job, here, journal_of
from typedecide.batch_tables import open_table
from typedecide.inputs import InputError
from typedecide.journal import Journal
from typedecide.native import NativeEngine
from typedecide.questions import parse_questions

ROOT = Path(__file__).resolve().parents[1]

QUESTIONS: dict[str, Any] = {
    "queue": {"type": "choice", "instructions": "Which team?", "criteria": ["billing", 'naïve, "quoted"']},
    "10": {"type": "noul", "criteria": "Is the customer angry?"},
    "mood": {"type": "score", "criteria": ["low", "middle", "high"]},
}
COLUMNS = [
    *("queue.answer", "queue.confidence", "queue.p.billing", 'queue.p.naïve, "quoted"'),
    *("10.answer", "10.confidence", "10.p.yes", "10.p.no"),
    *("mood.answer", "mood.confidence", "mood.p.low", "mood.p.middle", "mood.p.high"),
]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.json"
    path.write_text(json.dumps(QUESTIONS), "utf-8")
    return path


def command(table: Path, questions: Path, out: Path, bundle: Path, *more: str) -> list[str]:
    asked = ["--questions", str(questions), "--out", str(out), "--bundle", str(bundle)]
    return [sys.executable, "-m", "typedecide", "batch", str(table), *asked, "--readout", "pointer", *more]


def run(*arguments: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True, check=False)


def read(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def rejects(out: Path) -> list[dict[str, Any]]:
    lines = out.with_name(f"{out.name}.rejects.jsonl").read_text("ascii").splitlines()
    return [json.loads(line) for line in lines]


def test_a_table_of_answers(dist_pointer: Path, questions: Path, tmp_path: Path) -> None:
    texts = ["Charged twice, 😠!", 'two\nlines; "quoted"', "Charged twice, 😠!"]
    table, out = tmp_path / "in.csv", tmp_path / "deep" / "out.csv"
    with table.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file).writerows(
            [["id", "text", "other"], *([f"{i}é", text, ""] for i, text in enumerate(texts))]
        )
    done = run(table, questions, out, dist_pointer, "--keep", "id")
    assert done.returncode == 0, done.stderr
    assert "3 rows" in done.stdout and "Answering: 2 of 2" in done.stderr
    header, *rows = read(out)
    assert header == ["row", "id", *COLUMNS]
    assert [row[:2] for row in rows] == [["2", "0é"], ["3", "1é"], ["4", "2é"]]
    assert rows[0][2:] == rows[2][2:] != rows[1][2:]
    with NativeEngine(dist_pointer) as engine:
        for text, row in zip(texts, rows, strict=True):
            cells: list[str] = []
            for one in engine.decide(text, parse_questions(QUESTIONS), readout="pointer").answers.values():
                answer = one.answer
                cells += [answer.choice, *map(repr, (answer.confidence, *answer.probabilities))]
            assert row[2:] == cells
    assert not out.with_name("out.csv.rejects.jsonl").exists()


@pytest.mark.parametrize("ending", ("tsv", "csv", "jsonl"))
def test_every_kind_of_table_gives_the_same(
    dist_pointer: Path, questions: Path, tmp_path: Path, ending: str
) -> None:
    texts = ["One.", "Two, two.", "Drei;drei."]
    table, out = tmp_path / f"in.{ending}", tmp_path / "out.csv"
    if ending == "jsonl":
        lines = [json.dumps({"message": text, "n": {"a": number}}) for number, text in enumerate(texts)]
        table.write_text("\ufeff" + "\n\n".join(lines), "utf-8")
    else:
        with table.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="\t" if ending == "tsv" else ";")
            writer.writerows(
                [["message", "n"], *([text, json.dumps({"a": i})] for i, text in enumerate(texts))]
            )
    done = run(table, questions, out, dist_pointer, "--text", "message", "--keep", "n")
    assert done.returncode == 0, done.stderr
    _, *rows = read(out)
    assert [row[0] for row in rows] == (["1", "3", "5"] if ending == "jsonl" else ["2", "3", "4"])
    assert [row[1] for row in rows] == ['{"a": 0}', '{"a": 1}', '{"a": 2}']
    with NativeEngine(dist_pointer) as engine:
        for text, row in zip(texts, rows, strict=True):
            answers = engine.decide(text, parse_questions(QUESTIONS), readout="pointer").answers
            assert row[3] == repr(answers["queue"].answer.confidence)


def test_broken_rows_of_csv(dist_pointer: Path, questions: Path, tmp_path: Path) -> None:
    table, out = tmp_path / "in.csv", tmp_path / "out.csv"
    rows = [b"id,text", b"a,good", b"b", b"c, ", b"d,caf\xe9", b"", b"e," + b"word " * 9000, b"f,fine"]
    table.write_bytes(b"\n".join(rows))
    done = run(table, questions, out, dist_pointer, "--keep", "id")
    assert done.returncode == 0, done.stderr
    assert [row[:2] for row in read(out)] == [["row", "id"], ["2", "a"], ["8", "f"]]
    found = {one["row"]: (one["column"], one["reason"]) for one in rejects(out)}
    assert found.keys() == {3, 4, 5, 7}
    assert found[3] == (None, "has 1 cells, the header has 2")
    assert found[4] == ("text", "the text is blank")
    assert found[5] == ("text", "is not UTF-8: byte 0xe9")
    assert found[7][0] == "text" and "4096" in found[7][1]
    assert rejects(out)[0]["content"] == ["b"] and rejects(out)[1]["content"] == {"id": "c", "text": " "}
    assert (
        "row 5, column 'text': is not UTF-8: byte 0xe9" in done.stderr and "4 rows could not" in done.stderr
    )
    # Put right, the file of rejected rows goes, and only what is new is answered.
    table.write_bytes(b"\n".join([rows[0], rows[1], b"d,caf\xc3\xa9", rows[-1]]))
    done = run(table, questions, out, dist_pointer, "--keep", "id")
    assert "Answering: 1 of 1" in done.stderr and "3 rows" in done.stdout
    assert not out.with_name("out.csv.rejects.jsonl").exists()


def test_broken_rows_of_json_lines(dist_pointer: Path, questions: Path, tmp_path: Path) -> None:
    table, out = tmp_path / "in.jsonl", tmp_path / "out.csv"
    lines = [
        b'{"text": "good"}', b'{"text": 7}', b"{", b"[]", b'{"text": "a", "text": "b"}', b'{"other": ""}',
        b'{"text": "caf\xe9"}', b'{"text": "\\ud800"}', b'{"text": null}',
    ]  # fmt: skip
    table.write_bytes(b"\n".join(lines) + b"\n")
    assert run(table, questions, out, dist_pointer).returncode == 0
    assert [row[0] for row in read(out)] == ["row", "1"]
    reasons = [(one["row"], one["column"], one["reason"]) for one in rejects(out)]
    assert [row for row, _, _ in reasons] == [*range(2, 10)]
    for (_, column, reason), (where, words) in zip(
        reasons,
        [
            ("text", "not a text but 7"), (None, "not JSON"), (None, "not a JSON object"), (None, "twice"),
            ("text", "no such column"), (None, "byte 0xe9"), ("text", "surrogate"), ("text", "null"),
        ],
        strict=True,
    ):  # fmt: skip
        assert column == where and words in reason


def failing(*arguments: Any) -> str:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_what_cannot_be_run(dist_pointer: Path, questions: Path, tmp_path: Path) -> None:
    table, out = tmp_path / "in.csv", tmp_path / "out.csv"
    table.write_text("text,a\nb,c\n", "utf-8")
    assert "absent.csv" in failing(tmp_path / "absent.csv", questions, out, dist_pointer)
    assert ".parquet" in failing(questions, questions, out, dist_pointer)
    assert "out.xlsx" in failing(table, questions, tmp_path / "out.xlsx", dist_pointer)
    assert "take the place" in failing(table, questions, table, dist_pointer)
    message = failing(table, questions, out, dist_pointer, "--text", "body")
    assert "'body'" in message and "'text', 'a'" in message
    assert "'b'" in failing(table, questions, out, dist_pointer, "--keep", "b")
    assert "only --engine ray" in failing(table, questions, out, dist_pointer, "--workers", "2")
    assert "only --engine page" in failing(table, questions, out, dist_pointer, "--device", "wasm")
    many = tmp_path / "many.json"
    many.write_text(json.dumps({"q": {"type": "choice", "criteria": [str(i) for i in range(30)]}}), "utf-8")
    message = failing(table, many, out, dist_pointer, "--readout", "labels")
    assert "many.json" in message
    table.write_text("text,10.answer\nb,c\n", "utf-8")
    assert "'10.answer'" in failing(table, questions, out, dist_pointer, "--keep", "10.answer")
    table.write_text('text,a\n"never closed,c\n', "utf-8")
    assert "row 2" in failing(table, questions, out, dist_pointer)
    journal_of(out).write_text("not a journal\n", "utf-8")
    table.write_text("text,a\nb,c\n", "utf-8")
    assert "line 1" in failing(table, questions, out, dist_pointer)


def test_parquet_needs_its_package(dist_pointer: Path, questions: Path, tmp_path: Path) -> None:
    table = tmp_path / "in.csv"
    table.write_text("text\nb\n", "utf-8")
    out = tmp_path / "out.parquet"
    script = (
        "import sys; sys.modules['pyarrow'] = None; from typedecide.__main__ import main; sys.exit(main())"
    )
    asked = [sys.executable, "-c", script, *command(table, questions, out, dist_pointer)[3:]]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "typedecide[parquet]" in done.stderr
    # Said before any work is done.
    assert not journal_of(out).exists()


def write_texts(path: Path, count: int) -> Path:
    rows = "".join(
        f"Parcel {number} arrived {number % 7} days late; order {number * 37}.\n" for number in range(count)
    )
    path.write_text("text\n" + rows, "utf-8")
    return path


def test_a_killed_run_goes_on(dist_pointer: Path, questions: Path, tmp_path: Path) -> None:
    table = write_texts(tmp_path / "in.csv", 600)
    whole, out = tmp_path / "whole.csv", tmp_path / "out.csv"
    assert run(table, questions, whole, dist_pointer).returncode == 0
    process = subprocess.Popen(
        command(table, questions, out, dist_pointer), cwd=ROOT, stderr=subprocess.DEVNULL
    )
    journal = journal_of(out)
    deadline = time.monotonic() + 60
    while not journal.exists() or journal.read_bytes().count(b"\n") < 30:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = journal.read_bytes().count(b"\n")
    assert 30 <= done < 600 and not out.exists()
    # As if the kill had come in the middle of a line.
    journal.write_bytes(journal.read_bytes()[:-5])
    kept = journal.read_bytes().count(b"\n")
    again = run(table, questions, out, dist_pointer)
    left = 600 - kept
    assert again.returncode == 0 and f"Answering: {left} of {left}" in again.stderr
    assert out.read_bytes() == whole.read_bytes()
    print(f"killed after {done} of 600 rows; {left} were answered in the second run")


def test_other_settings_are_answered_anew(dist_pointer: Path, tmp_path: Path) -> None:
    table = open_table(write_texts(tmp_path / "in.csv", 5), "text")
    out = tmp_path / "out.csv"
    questions = parse_questions(QUESTIONS)
    jobs = [
        Job(dist_pointer, questions, readout="pointer"),
        Job(dist_pointer, questions, readout="labels"),
        Job(dist_pointer, questions, readout="labels", orderings=1),
        Job(dist_pointer, {"10": questions["10"]}, readout="pointer"),
    ]
    with Journal(journal_of(out)) as journal:
        for number, job in enumerate(jobs, start=1):
            batch = Batch(job, job.plan(), table, out, journal)
            assert batch.pending == 5 == len(list(batch.run(here(job))))
            batch.finish()
            assert len(journal) == 5 * number
        again = Batch(jobs[0], jobs[0].plan(), table, out, journal)
        assert again.pending == 0 == len(list(again.run(here(jobs[0]))))


def test_calibrated_answers_say_whether_to_abstain(dist_pointer: Path, tmp_path: Path) -> None:
    from tests.test_calibration import document

    table = open_table(write_texts(tmp_path / "in.csv", 3), "text")
    out = tmp_path / "out.csv"
    job = Job(dist_pointer, parse_questions(QUESTIONS), readout="pointer", calibration=document(dist_pointer))
    with Journal(journal_of(out)) as journal:
        batch = Batch(job, job.plan(), table, out, journal)
        list(batch.run(here(job)))
        batch.finish()
    header, *rows = read(out)
    assert [name for name in header if name.endswith(".abstain")] == ["queue.abstain", "10.abstain"]
    for row in rows:
        cells = dict(zip(header, row, strict=True))
        top = max(float(value) for name, value in cells.items() if name.startswith("10.p."))
        assert cells["10.abstain"] == ("true" if top <= 0.5 else "false")


def test_a_journal_keeps_what_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        journal.add("a", {"x": [0.1, "é"]})
        journal.add("b", None)
        assert "a" in journal and "c" not in journal and journal["a"] == {"x": [0.1, "é"]}
        journal.add("c", 3)
        assert (journal["b"], journal["c"]) == (None, 3)
    path.write_bytes(path.read_bytes()[:-3])
    with Journal(path) as journal:
        assert ("b" in journal, "c" in journal, len(journal)) == (True, False, 2)
        journal.add("c", 4)
    with Journal(path) as journal:
        assert journal["c"] == 4
    with pytest.raises(InputError, match="cannot be written"), Journal(tmp_path / "none" / "journal.jsonl"):
        pass
