"""The same questions about every row of a table: what is asked, how it goes on after a kill, and the result.

Every distinct text is answered once; finished ones go into a journal next to the result, by the hash of all that its
answers depend on. So it does not matter who answers, or in which order: the result is put together in the end, row by
row, from table and journal. Knows no terminal and no cluster: `batch_ray.py` spreads the answering over one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from typedecide import __version__
from typedecide.batch_tables import Fault, Row, Table, as_text, replacing, to_json, write_table
from typedecide.bundle import Bundle
from typedecide.calibration import Calibrator, Given
from typedecide.columns import Type, answer_columns
from typedecide.errors import TEXT_FAULTS
from typedecide.inputs import InputError
from typedecide.journal import Journal
from typedecide.options import Asking, Options, resolve
from typedecide.orderings import Level
from typedecide.questions import Question, to_wire
from typedecide.results import DecisionEngine

Pending = Iterable[tuple[str, str]]
"""Texts that are still to be answered, each with its key."""

Finished = Iterator[tuple[str, Any]]
"""What was found for a key: an entry of the journal."""

Answerer = Callable[[Pending], Finished]


@dataclass(frozen=True)
class Job:
    """What is asked, and by what: all that the answers depend on, and how many threads give them.

    `device` is `native`, or one of the page's engine: what it answers is to the bit what the page answers.
    """

    bundle: Path
    questions: Mapping[str, Question]
    format: str | None = None
    readout: str | None = None
    orderings: Level | None = None
    calibration: Given = None
    threads: int | None = None
    device: str = "native"

    def plan(self) -> Plan:
        """What follows from it, without loading the model; the errors of questions and options come from here."""
        return Plan.of(self)

    def open(self) -> DecisionEngine:
        """The engine that answers it."""
        if self.device != "native":
            from typedecide.page import PageEngine

            return PageEngine(
                self.bundle,
                self.device,
                self.format,
                threads=self.threads,
                calibration=self.calibration,
            )
        from typedecide.native import NativeEngine

        return NativeEngine(self.bundle, self.format, threads=self.threads, calibration=self.calibration)

    def answer(self, engine: DecisionEngine, text: str) -> dict[str, Any]:
        """What goes into the journal for a text: an answer for each question, or why there is none."""
        try:
            done = engine.decide(text, self.questions, self.orderings, readout=self.readout)
        except TEXT_FAULTS as error:
            return {"fault": error.message}
        return {
            "answers": [
                {
                    "answer": one.answer.choice,
                    "confidence": one.answer.confidence,
                    "probabilities": one.answer.probabilities,
                    **({} if one.calibration is None else {"abstain": one.calibration.abstain}),
                    **({} if one.shallow is None else {"x_shallow": json.dumps(one.shallow.to_dict())}),
                }
                for one in done.answers.values()
            ]
        }


@dataclass(frozen=True)
class Plan:
    """A job checked against its bundle: the hash of all that its answers depend on, and the columns of the result."""

    identity: str
    columns: Mapping[str, Type]

    @classmethod
    def of(cls, job: Job) -> Plan:
        """Check a job."""
        bundle = Bundle.open(job.bundle)
        # How long packed runs are does not change what they find: "auto" may be either of the page's devices.
        runs_on = "wasm" if job.device == "auto" else job.device
        how = resolve(bundle.manifest, runs_on, job.orderings, Options(readout=job.readout))
        format = bundle.format(job.format).name
        calibrator = Calibrator(job.calibration, bundle.manifest, format)
        calibrator.require(how)
        _check_questions(bundle, how, job.questions)
        columns = _columns(job, bundle, how, calibrator)
        return cls(_identity(job, bundle, how, format, calibrator), columns)

    def key(self, text: str) -> str:
        """The journal's key of a text."""
        return hashlib.sha256(f"{self.identity}\n{text}".encode()).hexdigest()


def _check_questions(bundle: Bundle, how: Asking, questions: Mapping[str, Question]) -> None:
    """InvalidQuestionError for what no text could be asked, such as more options than the bundle has labels."""
    from typedecide.native import TextTokenizer
    from typedecide.readouts import readouts

    readout = readouts(bundle.manifest, TextTokenizer.from_file(bundle.tokenizer_path))[how.readout]
    for index, question in enumerate(questions.values()):
        for shift in how.shifts(question, index):
            readout.suffixes("", (), question, shift)


def _identity(job: Job, bundle: Bundle, how: Asking, format: str, calibrator: Calibrator) -> str:
    entry = bundle.format(format)
    native = job.device == "native"
    graphs = [entry.graphs[entry.processor_variant]] if native else sorted(entry.graphs.values())
    files = [*graphs, str(bundle.manifest["tokenizer"])]
    files += [shard for data in entry.data for shard in data.shards]
    calibration = calibrator.calibration
    parts = {
        "typedecide": __version__,
        "model": dict(bundle.model),
        "prompt": dict(bundle.prompt),
        "labels": [*bundle.labels],
        "files": [bundle.files[file].sha256 for file in files],
        "asking": asdict(how),
        "questions": [[id, to_wire(question)] for id, question in job.questions.items()],
        "calibration": None if calibration is None else dict(calibration.document),
        "device": job.device,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("ascii")).hexdigest()


def _columns(job: Job, bundle: Bundle, how: Asking, calibrator: Calibrator) -> dict[str, Type]:
    found: list[tuple[str, Type]] = []
    for id, question in job.questions.items():
        found += answer_columns(id, question)
        if calibrator.apply(how, question, [0.0] * len(question.names)) is not None:
            found.append((f"{id}.abstain", "bool"))
        if bundle.shallow is not None:
            found.append((f"{id}.x_shallow", "text"))
    return _unique(found)


def _unique(columns: Iterable[tuple[str, Type]]) -> dict[str, Type]:
    found: dict[str, Type] = {}
    for name, kind in columns:
        if name in found:
            raise InputError(
                f"Two columns of the result would have the name {name!r}: choose other ids, or keep other columns.",
                column=name,
            )
        found[name] = kind
    return found


@dataclass(frozen=True)
class Summary:
    """What came of a batch: how many rows were written to `out`, and which were rejected, into `rejects`.

    A rejected row is `{"row", "column", "reason", "content"}`.
    """

    written: int
    out: Path
    rejected: Sequence[Mapping[str, Any]]
    rejects: Path


class Batch:
    """A job over a table, its journal open.

    >>> with Journal(journal_of(out)) as journal:                        # doctest: +SKIP
    ...     batch = Batch(job, job.plan(), open_table(path, "text"), out, journal)
    ...     for _ in batch.run(here(job)): ...
    ...     batch.finish()
    """

    def __init__(self, job: Job, plan: Plan, table: Table, out: Path, journal: Journal) -> None:
        self.job, self.plan, self.table, self.out, self.journal = job, plan, table, out, journal
        kept: list[tuple[str, Type]] = [("row", "int"), *((column, "text") for column in table.keep)]
        self.columns = _unique([*kept, *plan.columns.items()])
        self.rows = 0
        wanted = set()
        for row in table.rows():
            self.rows += 1
            if row.fault is None and (key := self._key(row)) not in journal:
                wanted.add(key)
        self.pending = len(wanted)

    def run(self, answer: Answerer) -> Iterator[None]:
        """Answer what is still to be answered; yields after each of the `pending` texts."""
        if self.pending:
            for key, found in answer(self._pending()):
                self.journal.add(key, found)
                yield

    def finish(self) -> Summary:
        """Write the result, and the rejected rows into a file beside it, where there are any."""
        rejected: list[dict[str, Any]] = []
        write_table(self.out, self.columns, self._results(rejected))
        rejects = self.out.with_name(f"{self.out.name}.rejects.jsonl")
        if rejected:
            with replacing(rejects) as fresh:
                lines = (to_json(one) + "\n" for one in rejected)
                fresh.write_text("".join(lines), "ascii")
        else:
            rejects.unlink(missing_ok=True)
        return Summary(self.rows - len(rejected), self.out, rejected, rejects)

    def _key(self, row: Row) -> str:
        return self.plan.key(row.values[self.table.text])

    def _pending(self) -> Iterator[tuple[str, str]]:
        seen = set()
        for row in self.table.rows():
            if row.fault is None and (key := self._key(row)) not in self.journal and key not in seen:
                seen.add(key)
                yield key, row.values[self.table.text]

    def _results(self, rejected: list[dict[str, Any]]) -> Iterator[list[Any]]:
        for row in self.table.rows():
            found = None if row.fault else self.journal[self._key(row)]
            if found is not None and "fault" in found:
                row = replace(row, fault=Fault(self.table.text, found["fault"]))
            if found is None or row.fault is not None:
                rejected.append(reject(row))
                continue
            cells: list[Any] = [row.number, *(as_text(row.values.get(column)) for column in self.table.keep)]
            for one in found["answers"]:
                cells += [one["answer"], one["confidence"], *one["probabilities"]]
                cells += [one[extra] for extra in ("abstain", "x_shallow") if extra in one]
            yield cells


def reject(row: Row) -> dict[str, Any]:
    """What the file of rejected rows says of a row with a fault."""
    assert row.fault is not None
    content = row.values if row.raw is None else row.raw
    return {"row": row.number, "column": row.fault.column, "reason": row.fault.reason, "content": content}


def journal_of(out: Path) -> Path:
    """Where the journal of a result is."""
    return out.with_name(f"{out.name}.journal.jsonl")


def here(job: Job) -> Answerer:
    """Answers in this process."""

    def answer(pending: Pending) -> Finished:
        with job.open() as engine:
            for key, text in pending:
                yield key, job.answer(engine, text)

    return answer
