"""Batches on a Ray cluster, and Parquet: not part of `make test`, because the packages are large. To run them, in an
environment with requirements/dev.txt and requirements/ray.txt: `python -m pytest tests/ray/check_*.py`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray

from tests.test_batch import QUESTIONS, ROOT, command, read, run, write_texts
from typedecide.batch import Batch, Job, here, journal_of
from typedecide.batch_ray import on_ray
from typedecide.batch_tables import open_table
from typedecide.errors import DeviceLostError
from typedecide.inputs import InputError
from typedecide.journal import Journal
from typedecide.questions import parse_questions

ROWS = 5_000
WORKERS = 2


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows, some of which come twice or are broken."""
    path = write_texts(tmp_path_factory.mktemp("table") / "in.csv", ROWS - 4)
    with path.open("ab") as file:
        file.write(b"Parcel 1 arrived 1 days late; order 37.\ncaf\xe9\n \nnul \x00\n")
    return path


@pytest.fixture(scope="module")
def job(dist_pointer: Path) -> Job:
    return Job(dist_pointer, parse_questions(QUESTIONS), readout="pointer", threads=1)


@pytest.fixture(scope="module")
def alone(job: Job, table: Path) -> Path:
    """What one process makes of the table."""
    out = table.with_name("alone.csv")
    began = time.perf_counter()
    with Journal(journal_of(out)) as journal:
        batch = Batch(job, job.plan(), open_table(table, "text"), out, journal)
        for _ in batch.run(here(job)):
            pass
        batch.finish()
    print(f"one process: {batch.pending} texts in {time.perf_counter() - began:.1f} s")
    return out


def on_cluster(job: Job, table: Path, out: Path, at: Callable[[int], None] = lambda _: None) -> int:
    """Run on two workers; `at` is told how many texts are answered. Gives how many were left to answer."""
    began = time.perf_counter()
    with Journal(journal_of(out)) as journal:
        batch = Batch(job, job.plan(), open_table(table, "text"), out, journal)
        for done, _ in enumerate(batch.run(on_ray(job, WORKERS)), start=1):
            at(done)
        batch.finish()
        print(f"{WORKERS} workers: {batch.pending} texts in {time.perf_counter() - began:.1f} s")
        return batch.pending


def check_same(out: Path, alone: Path) -> None:
    for name in ("{}", "{}.rejects.jsonl"):
        ours, theirs = (path.with_name(name.format(path.name)) for path in (out, alone))
        assert ours.read_bytes() == theirs.read_bytes()


def worker_processes() -> list[int]:
    """The actors of this process's own cluster."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if title.startswith(b"ray::") and b"Worker" in title and is_ours(int(folder.name)):
            found.append(int(folder.name))
    return found


def is_ours(pid: int) -> bool:
    """Whether a process descends from this one."""
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return False


def test_two_workers_give_what_one_process_gives(job: Job, table: Path, alone: Path) -> None:
    out = table.with_name("workers.csv")
    assert on_cluster(job, table, out) == ROWS - 3
    assert len(read(out)) == 1 + ROWS - 2
    check_same(out, alone)
    assert on_cluster(job, table, out) == 0


def test_a_killed_worker_is_replaced(job: Job, table: Path, alone: Path) -> None:
    out = table.with_name("killed-worker.csv")
    killed: list[int] = []

    def kill(done: int) -> None:
        if done == 200:
            killed.append(worker_processes()[0])
            os.kill(killed[0], signal.SIGKILL)

    on_cluster(job, table, out, kill)
    assert len(killed) == 1
    check_same(out, alone)


def test_a_killed_driver_goes_on(job: Job, table: Path, alone: Path, tmp_path: Path) -> None:
    questions, out = tmp_path / "questions.json", table.with_name("killed-driver.csv")
    questions.write_text(json.dumps(QUESTIONS), "utf-8")
    asked = command(table, questions, out, job.bundle, "--engine", "ray", "--workers", str(WORKERS))
    process = subprocess.Popen(asked, cwd=ROOT, stderr=subprocess.DEVNULL)
    journal = journal_of(out)
    deadline = time.monotonic() + 180
    while not journal.exists() or journal.read_bytes().count(b"\n") < 500:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    kept = journal.read_bytes().count(b"\n")
    assert 500 <= kept < ROWS and not out.exists()
    done = run(table, questions, out, job.bundle, "--engine", "ray", "--workers", str(WORKERS))
    assert done.returncode == 0, done.stderr
    left = ROWS - 3 - kept
    assert f"Answering: {left} of {left}" in done.stderr
    check_same(out, alone)


def test_another_bundle_on_a_worker_is_refused(job: Job, tmp_path: Path) -> None:
    table = open_table(write_texts(tmp_path / "in.csv", 40), "text")
    out = tmp_path / "out.csv"
    with Journal(journal_of(out)) as journal:
        batch = Batch(job, job.plan(), table, out, journal)
        other = Job(job.bundle, parse_questions({"10": QUESTIONS["10"]}), readout="pointer")
        with pytest.MonkeyPatch.context() as patch, pytest.raises(DeviceLostError, match="not the one here"):
            patch.setattr(Job, "plan", lambda self: batch.plan)
            list(batch.run(on_ray(other, 1)))
    assert not ray.is_initialized()


def test_parquet(job: Job, tmp_path: Path) -> None:
    texts = ["One.", None, "Zwei ü.", " "]
    kept = pa.array([{"a": 1}, None, {"a": 3}, None])
    table, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.table({"id": [1.5, 2.5, None, 4.5], "text": texts, "kept": kept}), table)
    columns = ("id", "kept")
    found: dict[str, Any] = {}
    for path in (out, out.with_suffix(".csv")):
        with Journal(journal_of(path)) as journal:
            batch = Batch(job, job.plan(), open_table(table, "text", columns), path, journal)
            list(batch.run(here(job)))
            summary = batch.finish()
            assert [one["row"] for one in summary.rejected] == [2, 4]
    rows = pq.read_table(out).to_pylist()
    assert [row["row"] for row in rows] == [1, 3]
    assert [(row["id"], row["kept"]) for row in rows] == [("1.5", '{"a": 1}'), (None, '{"a": 3}')]
    header, *lines = read(out.with_suffix(".csv"))
    assert list(rows[0]) == header
    for row, line in zip(rows, lines, strict=True):
        found = dict(zip(header, line, strict=True))
        assert all(str(row[name]) == found[name] for name in header[3:])
    # And in again: what was written can be read.
    again = open_table(out, "queue.answer")
    assert [row.values["queue.answer"] for row in again.rows()] == [row["queue.answer"] for row in rows]


def test_parquet_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    path.write_bytes(b"no parquet at all")
    with pytest.raises(InputError, match=r"in\.parquet: is no Parquet file"):
        open_table(path, "text")
