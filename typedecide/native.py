"""A bundle answered by Python's onnxruntime: the same graph, prompt and readout as in the page.

Needs the `native` extra (numpy, onnxruntime, tokenizers).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from tokenizers import Tokenizer as HuggingFaceTokenizer

from typedecide.bundle import Bundle
from typedecide.calibration import Calibrator, Given
from typedecide.errors import (
    AbortedError,
    IntegrityError,
    InvalidQuestionError,
    InvalidStateError,
    UnsupportedError,
)
from typedecide.model import Cache, NativeModel, Shape, Suffix, Totals
from typedecide.options import Asking, Options, readouts_of, resolve
from typedecide.orderings import Level, certified, rounds
from typedecide.prior import BatchPrior, Prior
from typedecide.prompt import Prompt, PromptSpec
from typedecide.questions import Question, check_ids
from typedecide.readout import read
from typedecide.readouts import Readout, readouts
from typedecide.recent import KEPT_QUESTIONS, Recent
from typedecide.results import Aborted, Debiased, Decided, OnAnswer, OnDecided, Prefill, Scored, ScoredAll
from typedecide.states import DEFAULT_BYTES, States
from typedecide.stock import StockModel
from typedecide.text import BLANK, gain

VARIANTS = ("gqa", "explicit")

_ASK_S = 0.1
"""Seconds after which a caller that waits for its turn asks again whether its answers are still wanted."""


class TextTokenizer:
    """A bundle's tokenizer.json as prompt.py's Tokenizer: plain text in, ids out, no control tokens."""

    def __init__(self, text: str) -> None:
        """Args: the content of tokenizer.json."""
        self._tokenizer = HuggingFaceTokenizer.from_str(text)

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """The tokenizer in a file."""
        return cls(path.read_text("utf-8"))

    def encode(self, text: str, /) -> list[int]:
        """The token ids of `text`."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


@dataclass(frozen=True)
class _State:
    """A prefilled text."""

    text: str
    ids: list[int]
    cache: Cache

    @property
    def bytes(self) -> int:
        return self.cache.bytes


@dataclass
class _Open:
    """A question under way: the orders to read in the first round and in the second, and what was read."""

    index: int
    question: Question
    rounds: tuple[list[int], list[int]]
    readings: list[list[float]]

    @property
    def orders(self) -> int:
        """Orders planned."""
        return sum(map(len, self.rounds))

    @property
    def done(self) -> bool:
        """Whether all orders are read, or the first round decides."""
        count = len(self.readings)
        return count == self.orders or (
            count == len(self.rounds[0]) and certified(self.readings, self.orders)
        )


class NativeEngine:
    """`prefill()` and `score()` on this machine's processor.

    Threads may share one: their calls run one after another. `score` and `score_all` are about the text that was read
    last, whoever read it, so callers that share an engine ask by `decide`.

    >>> with NativeEngine("dist") as engine:                              # doctest: +SKIP
    ...     engine.prefill("My card was charged twice.")
    ...     engine.score(Noul("Is the customer angry?")).answer.value
    """

    def __init__(
        self,
        bundle: Path | str,
        format: str | None = None,
        variant: str | None = None,
        threads: int | None = None,
        state_bytes: int = DEFAULT_BYTES,
        calibration: Given = None,
    ) -> None:
        """Load a bundle.

        Args:
            bundle: the folder.
            format: weight format; None takes the bundle's default.
            variant: graph variant, `gqa` or `explicit`; None takes the second, where the bundle has it.
            threads: None takes all cores.
            state_bytes: memory for the caches of prefilled texts.
            calibration: a file, a document, False for none; None takes the bundle's own, where it has one.
        """
        began = time.perf_counter()
        if variant not in (None, *VARIANTS):
            raise UnsupportedError(
                f"there is no graph variant {variant!r}; known: {', '.join(VARIANTS)}", variant=variant
            )
        opened = Bundle.open(bundle)
        chosen = opened.format(format)
        variant = variant or chosen.processor_variant
        graph = opened.graph_path(chosen.name, variant)
        self._calibrator = Calibrator(calibration, opened.manifest, chosen.name)
        paths = [shard for data in chosen.data for shard in data.shards]
        opened.check([*paths, chosen.graphs[variant], str(opened.manifest["tokenizer"])])
        self.bundle = opened
        self.prompt = Prompt(PromptSpec.from_manifest(opened.manifest))
        self.tokenizer = TextTokenizer.from_file(opened.tokenizer_path)
        self._readouts = readouts(opened.manifest, self.tokenizer)
        parts = (graph.read_bytes(), dict(opened.weights(chosen.name)), Shape.of(opened.model))
        self.model = (
            StockModel(*parts, opened.model["vocab"], threads)
            if opened.stock
            else NativeModel(*parts, threads)
        )
        self.states: States[_State] = States(state_bytes)
        self._blank_evidence: _State | None = None
        self._blank_readings: Recent[tuple[str, Question], dict[int, list[float]]] = Recent(
            KEPT_QUESTIONS, dict
        )
        self._priors: Recent[tuple[Question, int], BatchPrior] = Recent(KEPT_QUESTIONS, BatchPrior)
        self._state: _State | None = None
        # The text that is read again when it is asked about, where what was computed of it was not to be trusted.
        self._dropped: str | None = None
        self._turns = threading.RLock()
        self._head_ids = self.prompt.head_ids(self.tokenizer)
        self._shallow = opened.shallow
        self._anchor = self._shallow.tokens(self._head_ids) if self._shallow else 0
        self._head_cache: Cache | None = None
        self._head()
        self.info: dict[str, Any] = {
            "model": dict(opened.model),
            "format": chosen.name,
            "device": "native",
            "candidate": f"native-{variant}",
            "reason": "asked for",
            "selfTest": [],
            "threads": threads,
            "adapter": None,
            "ort": {"version": ort.__version__, "build": "native"},
            "context": opened.limits["context"],
            "readout": opened.manifest["readout"],
            "readouts": [*readouts_of(opened.manifest)],
            "calibration": self._calibrator.facts(),
            "shallow": self._shallow and self._shallow.facts(self.model.shape.layers),
            "tokenBytes": self.model.shape.token_bytes,
            "loadMs": (time.perf_counter() - began) * 1e3,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the model."""
        self.model.close()

    @contextmanager
    def _turn(self, aborted: Aborted | None = None) -> Iterator[None]:
        """Inside, no other thread uses the engine; AbortedError where `aborted` says so before the turn comes."""
        while not self._turns.acquire(timeout=-1 if aborted is None else _ASK_S):
            if aborted is not None and aborted():
                raise AbortedError("the caller gave up before its turn came")
        try:
            with self.model.stopping(aborted):
                yield
        finally:
            self._turns.release()

    def prefill(self, state: str) -> Prefill:
        """Compute the KV cache of a text, unless it is kept from before; `score` is about it from now on."""
        with self._turn():
            return self._prefill(state)

    def _prefill(self, state: str) -> Prefill:
        began = time.perf_counter()
        kept = self.states.get(state)
        if kept is None:
            self._state = self._prefilled(state)
            self.states.add(self._state)
        else:
            self._state = kept
        self._dropped = None
        ms = (time.perf_counter() - began) * 1e3
        return Prefill(tokens=self._state.cache.length, ms=ms, kept=kept is not None)

    def release(self) -> None:
        """Free all kept texts, what is known of blank evidence, and batch priors; the engine stays usable."""
        with self._turn():
            self.states.clear()
            self._blank_readings.clear()
            self._priors.clear()
            self._state = self._blank_evidence = self._dropped = None

    def score(self, question: Question, orderings: Level | None = None, **options: Unpack[Options]) -> Scored:
        """Answer one question about the prefilled text; the arguments are those of `score_all`."""
        # It is the only one: nobody counts.
        with _located(lambda error: error.moved(error.loc[1:])):
            how, asked = self._plan([question], orderings, options)
        with self._turn():
            done = self._score(asked, how, None)
        return Scored(**vars(done.answers[0]), tokens=done.tokens_run, ms=done.ms)

    def score_all(
        self,
        questions: Sequence[Question],
        orderings: Level | None = None,
        *,
        on_answer: OnAnswer | None = None,
        **options: Unpack[Options],
    ) -> ScoredAll:
        """Answer many questions about the prefilled text, in packed runs.

        Args:
            questions: what to ask.
            orderings: orders of its options in which the `labels` readout reads each question: 1, a number, "all"
                cyclic ones, or (default) "auto": both of two options, and up to a budget of more.
            on_answer: told each answer as soon as its last order is read.
            options: `typedecide.options.Options`.

        Raises:
            InvalidQuestionError: its `loc` starts with the question's place in the list.
        """
        with _located(lambda error: error.moved(error.loc, f"Question {error.loc[0]}: {error.message}")):
            how, asked = self._plan(questions, orderings, options)
        with self._turn():
            return self._score(asked, how, on_answer)

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
        """Prefill a text and answer questions about it, by id; the arguments are those of `score_all`.

        Where `aborted` says so, the work stops before its next run with an AbortedError; the engine stays usable.
        After an error `score` is about the text that it was about before. An InvalidQuestionError's `loc` starts with
        the question's id.
        """
        ids = check_ids(questions)
        with _located(lambda error: error.moved((ids[int(error.loc[0])], *error.loc[1:]))):
            how, asked = self._plan([*questions.values()], orderings, options)
        tell = None if on_answer is None else lambda index, answer: on_answer(ids[index], answer)
        with self._turn(aborted):
            before = self._text
            try:
                prefill = self._prefill(state)
                done = self._score(asked, how, tell)
            except BaseException:
                self._return_to(before)
                raise
        answers = dict(zip(ids, done.answers, strict=True))
        return Decided(**{**vars(done), "answers": answers}, prefill=prefill)

    @property
    def _text(self) -> str | None:
        """The text that `score` is about."""
        return self._state.text if self._state else self._dropped

    def _return_to(self, text: str | None) -> None:
        """Have `score` be about a text, which is read again when it is asked about, if it is not kept."""
        self._state = None if text is None else self.states.get(text)
        self._dropped = None if self._state else text

    def _plan(
        self, questions: Sequence[Question], orderings: Level | None, options: Options
    ) -> tuple[Asking, list[_Open]]:
        """How to ask, and what to read; the errors of wrong options come from here.

        Raises:
            InvalidQuestionError: its `loc` starts with the question's index.
        """
        how = resolve(self.bundle.manifest, "native", orderings, options)
        self._calibrator.require(how)
        asked = []
        for index, question in enumerate(questions):
            self._check_labels(question, how, [index])
            shifts = how.shifts(question, index)
            plan = rounds(shifts) if how.stops_early(question) else (shifts, [])
            asked.append(_Open(index, question, plan, []))
        return how, asked

    def _check_labels(self, question: Question, how: Asking, loc: list[str | int]) -> None:
        """InvalidQuestionError where a question, at `loc`, has more options than this bundle can list."""
        if how.readout == "labels":
            with _located(lambda error: error.moved([*loc, "criteria"])):
                self.prompt.label_ids(question.criterion())

    def _score(self, asked: Sequence[_Open], how: Asking, on_answer: OnAnswer | None) -> ScoredAll:
        """Answer what was planned."""
        began = time.perf_counter()
        state = self._current()
        answers: dict[int, Debiased] = {}

        def take(one: _Open, reading: list[float]) -> None:
            one.readings.append(reading)
            if one.done:
                answers[one.index] = self._answer(state, one, how)
                if on_answer:
                    on_answer(one.index, answers[one.index])

        first = self._round(state, asked, 0, how, take)
        totals = _sum([first, self._round(state, [one for one in asked if not one.done], 1, how, take)])
        return ScoredAll(
            tokens_run=totals.tokens,
            tokens_saved=totals.saved,
            runs=totals.runs,
            ms=(time.perf_counter() - began) * 1e3,
            answers=tuple(answers[i] for i in range(len(asked))),
        )

    def score_full(self, state: str, question: Question, readout: str = "labels") -> Scored:
        """Answer one question in the order given from whole prompts, without any cache: the plain path."""
        began = time.perf_counter()
        orderings: Level | None = 1 if readout == "labels" else None
        how = resolve(self.bundle.manifest, "native", orderings, {"readout": readout})
        self._check_labels(question, how, [])
        used = self._readouts[how.readout]
        with self._turn():
            reading, tokens = self._full_reading(used, state, question)
            if used.needs_blank:
                blank, more = self._full_reading(used, BLANK, question)
                reading, tokens = gain(reading, blank), tokens + more
        answer = self._calibrated(how, question, self._pooled(used, question, [reading]))
        return Scored(**vars(answer), tokens=tokens, ms=(time.perf_counter() - began) * 1e3)

    def _full_reading(self, readout: Readout, state: str, question: Question) -> tuple[list[float], int]:
        """A question's reading from whole prompts, and the tokens that took."""
        prompts = readout.suffixes(state, (), question, 0)
        hidden = (self._anchor, len(self.prompt.state_prefix_ids(self.tokenizer, state)))
        found = [self.model.score_full(replace(prompt, hidden=hidden)) for prompt in prompts]
        return readout.reading(question, 0, found), sum(prompt.packed.length for prompt in prompts)

    def _round(
        self,
        state: _State,
        asked: Sequence[_Open],
        number: int,
        how: Asking,
        take: Callable[[_Open, list[float]], None],
    ) -> Totals:
        """Read one round of the orders of some questions, against blank evidence where that is wanted."""
        readout = self._readouts[how.readout]
        units = [(one, shift) for one in asked for shift in one.rounds[number]]
        pairs = [(one.question, shift) for one, shift in units]
        wanted = readout.needs_blank or how.prior == "content-free"
        blank, cost = self._blank(readout, pairs, how) if wanted else ({}, NOTHING)

        def compare(index: int, reading: list[float]) -> None:
            take(units[index][0], gain(reading, blank[pairs[index]]) if wanted else reading)

        _, totals = self._read(state, readout, pairs, how, compare)
        return _sum([cost, totals])

    def _blank(
        self, readout: Readout, pairs: Sequence[tuple[Question, int]], how: Asking
    ) -> tuple[dict[tuple[Question, int], list[float]], Totals]:
        """The readings of questions and orders under blank evidence; those that are not kept are computed now."""
        found = {}
        totals = []
        for question, shift in pairs:
            kept = self._blank_readings[how.readout, question]
            if shift not in kept:
                # In a run of its own: what is kept must not depend on what was asked along with it, not by one bit.
                state = self._blank_state()
                (kept[shift],), one = self._read(state, readout, [(question, shift)], how)
                totals.append(one)
            found[question, shift] = kept[shift]
        return found, _sum(totals)

    def _read(
        self,
        state: _State,
        readout: Readout,
        pairs: Sequence[tuple[Question, int]],
        how: Asking,
        take: Callable[[int, list[float]], None] = lambda *_: None,
    ) -> tuple[list[list[float]], Totals]:
        """The readings of questions, each in one order, after a state; `take` is told each one as its run ends."""
        owners: list[int] = []
        suffixes: list[Suffix] = []
        for index, (question, shift) in enumerate(pairs):
            self.model.check_wanted()
            own = readout.suffixes(state.text, state.ids, question, shift)
            owners += [index] * len(own)
            suffixes += own
        wanted = Counter(owners)
        found: list[list[NDArray[np.float32]]] = [[] for _ in pairs]
        readings: list[list[float]] = []

        def gather(suffix: int, values: NDArray[np.float32]) -> None:
            if not np.isfinite(values).all():
                raise self._distrust(state, values)
            # Results come in the order of the suffixes, so readings do in that of the pairs.
            index = owners[suffix]
            found[index].append(values)
            if len(found[index]) == wanted[index]:
                question, shift = pairs[index]
                readings.append(readout.reading(question, shift, found[index]))
                take(index, readings[-1])

        _, totals = self.model.score(state.cache, suffixes, how.run_tokens, gather)
        return readings, totals

    def _distrust(self, state: _State, values: NDArray[np.float32]) -> IntegrityError:
        """The error for numbers that are none. What they were computed from may be as wrong: it is computed again."""
        for one in self.states.list():
            if one is state or not one.cache.finite:
                self.states.remove(one)
        self._blank_evidence = self._head_cache = None
        self._return_to(self._text)
        value = float(values[~np.isfinite(values)][0])
        return IntegrityError(f"the runtime gave {value} where a number was due", value=value)

    def _answer(self, state: _State, one: _Open, how: Asking) -> Debiased:
        """The answer of a question that is read, and what was done about its prior."""
        answer = self._pooled(self._readouts[how.readout], one.question, one.readings)
        if how.prior is None:
            return self._calibrated(how, one.question, answer)
        if how.prior == "content-free":
            return replace(answer, prior=Prior("content-free", 1, True))
        # By the number of orders too: what a place adds is part of the prior.
        batch = self._priors[one.question, one.orders]
        batch.add(state.text, answer.answer.logits)
        corrected = read(one.question, batch.correct(answer.answer.logits))
        return replace(answer, answer=corrected, prior=Prior("batch", batch.count, batch.applies))

    def _pooled(self, readout: Readout, question: Question, readings: Sequence[Sequence[float]]) -> Debiased:
        """The answer from the readings of all orders, which says where it is an approximation."""
        return replace(readout.answer(question, readings), shallow=self._shallow)

    def _calibrated(self, how: Asking, question: Question, answer: Debiased) -> Debiased:
        """The answer, calibrated where there is a calibration for it."""
        done = self._calibrator.apply(how, question, answer.answer.logits)
        return answer if done is None else replace(answer, answer=done[0], calibration=done[1])

    def _blank_state(self) -> _State:
        if self._blank_evidence is None:
            self._blank_evidence = self._prefilled(BLANK)
        return self._blank_evidence

    def _prefilled(self, text: str) -> _State:
        """The state of a text, computed behind the constant head where it starts with that."""
        ids = self.prompt.state_prefix_ids(self.tokenizer, text)
        head = self._head_ids
        shared = self._head() if head and ids[: len(head)] == head else None
        return _State(text, ids, self.model.prefill(ids, shared, self._anchor))

    def _head(self) -> Cache:
        """The cache of the constant head, which texts are computed behind."""
        if self._head_cache is None:
            self._head_cache = self.model.prefill(self._head_ids, anchor=self._anchor)
        return self._head_cache

    def _current(self) -> _State:
        if self._state is None and self._dropped is not None:
            self._prefill(self._dropped)
        if self._state is None:
            raise InvalidStateError("nothing is prefilled: call prefill(state) first", value=None)
        return self._state


@contextmanager
def _located(change: Callable[[InvalidQuestionError], InvalidQuestionError]) -> Iterator[None]:
    """An invalid question's error that is raised inside says where it is by another path, or in other words."""
    try:
        yield
    except InvalidQuestionError as error:
        raise change(error) from None


NOTHING = Totals(0, 0, 0)


def _sum(parts: Sequence[Totals]) -> Totals:
    return Totals(sum(p.tokens for p in parts), sum(p.saved for p in parts), sum(p.runs for p in parts))
