"""Labelled decisions put to an engine, with what tells an answer from a lucky guess: controls and baselines.

Each decision is answered by the prefix-sharing engine, again with its evidence hidden, again with its options listed
backwards, and again from complete prompts. What is finished goes into a log, so that a run that was killed goes on.
Knows no tensors, no terminal and no figures: `tables.py` makes those of the decisions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol, Self, TypeVar

from typedecide.bundle import Bundle
from typedecide.errors import InvalidQuestionError, PrefixMismatchError, TooLongError, TypedecideError
from typedecide.journal import Journal
from typedecide.labelled import Labelled
from typedecide.options import Options, resolve
from typedecide.orderings import Level, combine, rotate, unrotate
from typedecide.questions import Choice, Noul, Question, to_wire
from typedecide.results import Debiased, Decided, DecisionEngine
from typedecide.text import BLANK

Item = TypeVar("Item")

SAMPLE = 64
"""Texts that the slow checks take, unless all are wanted: complete prompts, and of readouts without an order of the
options that the order makes no difference."""

TOGETHER = 8
"""Texts whose complete prompts may run in the same batches."""

EXACT = 1e-5
"""How far probabilities of two paths may lie apart in fp32."""

QUANTISED = 1e-3
"""The same in other weight formats, whose kernels round by what runs together."""

UNANSWERABLE = (InvalidQuestionError, PrefixMismatchError, TooLongError)
"""What is wrong with one decision, and no reason to give up the others."""


class Engine(Protocol):
    """What is evaluated: an engine that decides, and says which bundle it runs."""

    @property
    def bundle(self) -> Bundle:
        """The bundle."""
        ...

    @property
    def info(self) -> Mapping[str, Any]:
        """As in `DecisionEngine`."""
        ...

    def decide(
        self,
        state: str,
        questions: Mapping[str, Question],
        orderings: Level | None = None,
        *,
        readout: str | None = None,
    ) -> Decided:
        """As in `DecisionEngine`."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Baseline(Protocol):
    """Something simple that models are compared with."""

    @property
    def about(self) -> str:
        """What it is, in a line."""
        ...

    @property
    def identity(self) -> str:
        """Changes when its answers may."""
        ...

    def scores(self, state: str, question: Question) -> Sequence[float]:
        """A score for each option, the highest for the answer."""
        ...


@dataclass(frozen=True)
class Settings:
    """How decisions are put to an engine.

    readout: None is the bundle's own.
    orderings: as in `DecisionEngine.decide`.
    full: the slow checks on every text, and not on a sample.
    seed: of that sample.
    """

    readout: str | None = None
    orderings: Level | None = None
    full: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Decision:
    """A labelled decision and all answers to it; logits are in the question's option order.

    text: the number of its text; decisions about one text are not independent.
    gold: the place of the true option.
    hidden: logits under blank evidence.
    backwards, whole: logits with the options listed backwards, and from complete prompts, where these were asked for.
    between_orders: share of its own orders that disagree with its answer.
    baselines: scores by the name of the baseline.
    """

    text: int
    task: str
    family: str
    domain: str
    split: str
    kind: str
    names: tuple[str, ...]
    gold: int
    logits: tuple[float, ...]
    hidden: tuple[float, ...]
    backwards: tuple[float, ...] | None
    whole: tuple[float, ...] | None
    between_orders: float
    baselines: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class Timing:
    """What one text cost: milliseconds to read it and to answer its questions, how many these were, tokens run."""

    prefill_ms: float
    score_ms: float
    decisions: int
    tokens: int


@dataclass(frozen=True)
class Failure:
    """A decision that could not be made: where it is from, the question's id, the error."""

    source: str
    question: str
    error: TypedecideError


@dataclass
class Evaluation:
    """What came out: `info` is the engine's, `readout` the one used."""

    info: Mapping[str, Any]
    readout: str
    tolerance: float
    decisions: list[Decision] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)


# -- the log --------------------------------------------------------------------------------------------------------


class Log:
    """Finished pieces of work by the hash of what they are the answer to; in a journal where a path is given.

    >>> with Log(None) as log:
    ...     log.get(["what", 1], lambda: [2.5]), log.get(["what", 1], lambda: [0.0])
    ([2.5], [2.5])
    """

    def __init__(self, path: Path | None) -> None:
        self._journal = None if path is None else Journal(path)
        self._found: dict[str, Any] = {}

    def __enter__(self) -> Self:
        if self._journal is not None:
            with suppress(
                OSError
            ):  # where there can be no folder, the journal says that there can be no file
                self._journal.path.parent.mkdir(parents=True, exist_ok=True)
            self._journal.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._journal is not None:
            self._journal.__exit__()

    def __contains__(self, asked: Any) -> bool:
        return _hash(asked) in self._known

    def get(self, asked: Any, compute: Callable[[], Any]) -> Any:
        """What is known about `asked`, or what `compute` finds out now; both are JSON."""
        key = _hash(asked)
        if key not in self._known:
            found = compute()
            if self._journal is not None:
                self._journal.add(key, found)
            else:
                # Through JSON as well, so that a run that was resumed sees the very same values.
                self._found[key] = json.loads(json.dumps(found, allow_nan=False))
        return self._known[key]

    @property
    def _known(self) -> Journal | dict[str, Any]:
        return self._found if self._journal is None else self._journal


def _hash(asked: Any) -> str:
    text = json.dumps(asked, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


# -- questions in other orders --------------------------------------------------------------------------------------


def listed(question: Question, order: Sequence[int]) -> Choice:
    """The question as a choice among the same options, listed in another order: the same prompt but for that.

    >>> listed(Noul("Is it urgent?"), [1, 0]).names
    ('No', 'Yes')
    """
    if isinstance(question, Noul):
        options = [("Yes", question.yes), ("No", question.no)]
    else:
        options = list(zip(question.names, question.descriptions, strict=True))
    return Choice(question.question, dict(options[place] for place in order))


def _backwards(items: Sequence[Item]) -> list[Item]:
    return [*reversed(items)]


# -- an engine's work -----------------------------------------------------------------------------------------------


class Whole(Protocol):
    """The other path, which is compared with the engine: answers from complete prompts, without any cache."""

    def logits(self, asked: Sequence[tuple[str, Question]]) -> list[tuple[float, ...]]:
        """The pooled logits of questions, each about its text, not calibrated."""
        ...


def _plain(answer: Debiased) -> tuple[float, ...]:
    """An answer's logits as they were before calibration."""
    temperature = answer.calibration.temperature if answer.calibration else 1.0
    return tuple(logit * temperature for logit in answer.answer.logits)


class WholeByOne:
    """Complete prompts through an engine's `score_full`, one after the other."""

    def __init__(self, engine: DecisionEngine, bundle: Bundle, settings: Settings) -> None:
        self._engine = engine
        self._how = resolve(bundle.manifest, "native", settings.orderings, Options(readout=settings.readout))

    def logits(self, asked: Sequence[tuple[str, Question]]) -> list[tuple[float, ...]]:
        """The pooled logits of questions, each about its text."""
        return [self._one(state, question) for state, question in asked]

    def _one(self, state: str, question: Question) -> tuple[float, ...]:
        places = range(len(question.names))
        readings = []
        for shift in self._how.shifts(question, 0):
            turned = listed(question, rotate(places, shift)) if shift else question
            answer = self._engine.score_full(state, turned, self._how.readout)
            readings.append(unrotate(_plain(answer), shift))
        return combine(readings).log_probabilities


@dataclass
class _Known:
    """What is known about a record so far: by the id of the question, answers, and logits from other ways to ask."""

    record: Labelled
    answers: Mapping[str, Any]
    backwards: Mapping[str, Sequence[float]] = field(default_factory=dict)
    whole: Mapping[str, Sequence[float]] = field(default_factory=dict)
    guesses: dict[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)

    @property
    def questions(self) -> dict[str, Question]:
        """Those that could be answered."""
        return {key: self.record.questions[key] for key in self.answers}


class Shared:
    """The prefix-sharing engine, to compare with one that answers from complete prompts itself."""

    def __init__(self, engine: DecisionEngine, settings: Settings) -> None:
        self._engine, self._settings = engine, settings

    def logits(self, asked: Sequence[tuple[str, Question]]) -> list[tuple[float, ...]]:
        """The pooled logits of questions, each about its text."""
        return [self._one(state, question) for state, question in asked]

    def _one(self, state: str, question: Question) -> tuple[float, ...]:
        how = self._settings
        done = self._engine.decide(state, {"asked": question}, how.orderings, readout=how.readout)
        return _plain(done.answers["asked"])


def sample(records: Sequence[Labelled], seed: int) -> set[int]:
    """About `SAMPLE` of the records, as many of each task, and of each at least two where it has them."""
    tasks: dict[object, list[int]] = {}
    for number, record in enumerate(records):
        tasks.setdefault(record.task or tuple(record.questions), []).append(number)
    rng, share = Random(seed), max(2, SAMPLE // max(1, len(tasks)))
    return {number for one in tasks.values() for number in rng.sample(one, min(share, len(one)))}


class Evaluator:
    """Puts records to one engine; without `whole`, the path to compare with, it leaves out all that is slow.

    `run` yields after each piece of work, so that its caller can say how far it is; `pieces` says how many there are.
    """

    def __init__(
        self,
        engine: Engine,
        records: Sequence[Labelled],
        settings: Settings,
        log: Log,
        baselines: Mapping[str, Baseline],
        whole: Whole | None,
    ) -> None:
        manifest = engine.bundle.manifest
        how = resolve(manifest, "native", settings.orderings, Options(readout=settings.readout))
        tolerance = EXACT if engine.info["format"] == "fp32" else QUANTISED
        self.result = Evaluation(engine.info, how.readout, tolerance)
        self._engine, self._records, self._settings = engine, records, settings
        self._log, self._baselines = log, baselines
        self._whole = whole
        digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
        self._model = [
            digest,
            engine.info["format"],
            engine.info["candidate"],
            engine.info["calibration"],
            how.readout,
            settings.orderings,
        ]
        every = {*range(len(records))}
        self._checked = every if settings.full else sample(records, settings.seed)
        self._turned = every if how.readout == "labels" else self._checked
        if whole is None:
            self._checked, self._turned = set(), set()

    @property
    def pieces(self) -> int:
        """How often `run` yields."""
        return len(self._records) * (1 + len(self._baselines)) + len(self._checked) + len(self._turned)

    def run(self) -> Iterator[None]:
        """Do the work; `result` holds what came out."""
        known = []
        for number, record in enumerate(self._records):
            one = _Known(record, self._answers(record))
            known.append(one)
            for question in one.questions.values():
                self._hidden(question)
            yield
            if number in self._turned:
                one.backwards = self._backwards(one)
                yield
            for name, baseline in self._baselines.items():
                one.guesses[name] = self._guess(baseline, one)
                yield
        checked = sorted(self._checked)
        for start in range(0, len(checked), TOGETHER):
            together = [known[number] for number in checked[start : start + TOGETHER]]
            self._from_whole(together)
            yield from (None for _ in together)
        for number, one in enumerate(known):
            self.result.decisions += [self._decision(number, one, key) for key in one.answers]

    def _decision(self, number: int, known: _Known, key: str) -> Decision:
        record, question = known.record, known.record.questions[key]
        answer, backwards, whole = known.answers[key], known.backwards.get(key), known.whole.get(key)
        return Decision(
            text=number,
            task=record.task or key,
            family=record.family,
            domain=record.domain,
            split=record.split,
            kind=question.kind,
            names=question.names,
            gold=question.names.index(record.gold[key]),
            logits=tuple(answer["logits"]),
            hidden=tuple(self._hidden(question)),
            backwards=None if backwards is None else tuple(backwards),
            whole=None if whole is None else tuple(logit / answer["temperature"] for logit in whole),
            between_orders=answer["flip_rate"],
            baselines={name: tuple(scores[key]) for name, scores in known.guesses.items()},
        )

    def _answers(self, record: Labelled) -> dict[str, Any]:
        """The answers that can be given; failures and timings go into the result."""
        try:
            found = self._decide(record.state, record.questions)
        except UNANSWERABLE as error:
            if len(record.questions) == 1:
                (key,) = record.questions
                self.result.failures.append(Failure(record.source, key, error))
                return {}
            # One by one, to tell which it is.
            alone = [
                Labelled(record.state, {key: question}, {key: record.gold[key]}, source=record.source)
                for key, question in record.questions.items()
            ]
            return {key: answer for one in alone for key, answer in self._answers(one).items()}
        cost = found["cost"]
        self.result.timings.append(Timing(**cost, decisions=len(record.questions)))
        answers: dict[str, Any] = found["answers"]
        return answers

    def _decide(self, state: str, questions: Mapping[str, Question]) -> Any:
        def compute() -> Any:
            done = self._engine.decide(
                state, questions, self._settings.orderings, readout=self._settings.readout
            )
            answers = {
                key: {
                    "logits": one.answer.logits,
                    "flip_rate": one.flip_rate,
                    "temperature": one.calibration.temperature if one.calibration else 1.0,
                }
                for key, one in done.answers.items()
            }
            cost = {"prefill_ms": done.prefill.ms, "score_ms": done.ms, "tokens": done.tokens_run}
            return {"answers": answers, "cost": cost}

        return self._log.get(self._key("answers", state, questions), compute)

    def _key(self, what: str, state: str, questions: Mapping[str, Question]) -> list[Any]:
        return [*self._model, what, state, [[key, to_wire(question)] for key, question in questions.items()]]

    def _hidden(self, question: Question) -> list[float]:
        """The logits of a question whose evidence is hidden: what it, and not the text, gives away."""
        found = self._decide(BLANK, {"asked": question})
        logits: list[float] = found["answers"]["asked"]["logits"]
        return logits

    def _backwards(self, known: _Known) -> dict[str, list[float]]:
        turned = {
            key: listed(question, _backwards(range(len(question.names))))
            for key, question in known.questions.items()
        }
        if not turned:
            return {}
        found = self._decide(known.record.state, turned)["answers"]
        return {key: _backwards(one["logits"]) for key, one in found.items()}

    def _from_whole(self, known: Sequence[_Known]) -> None:
        """Answer the questions of some texts from complete prompts, all that the log lacks together."""
        assert self._whole is not None, "nothing is checked without it"
        keys = [self._key("whole", one.record.state, one.questions) for one in known]
        lacking = [one for one, key in zip(known, keys, strict=True) if key not in self._log]
        asked = [(one.record.state, question) for one in lacking for question in one.questions.values()]
        try:
            answered = iter(self._whole.logits(asked))
        except UNANSWERABLE:
            # A complete prompt can be too long where a packed run is not: then that text is not compared.
            for one in known if len(known) > 1 else ():
                self._from_whole([one])
            return
        for one, key in zip(known, keys, strict=True):
            one.whole = self._log.get(key, lambda one=one: {q: next(answered) for q in one.questions})  # type: ignore[misc]

    def _guess(self, baseline: Baseline, known: _Known) -> dict[str, list[float]]:
        state = known.record.state
        return {
            key: self._log.get(
                [baseline.identity, state, to_wire(question)],
                lambda question=question: list(map(float, baseline.scores(state, question))),  # type: ignore[misc]
            )
            for key, question in known.questions.items()
        }
