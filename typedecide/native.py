"""A bundle answered by Python's onnxruntime: the same graph, prompt and readout as in the page.

Needs the `native` extra (numpy, onnxruntime, tokenizers).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from tokenizers import Tokenizer as HuggingFaceTokenizer

from typedecide.bundle import Bundle
from typedecide.errors import InvalidQuestionError, InvalidStateError, UnsupportedError
from typedecide.model import Cache, NativeModel, Shape, Suffix, Totals
from typedecide.orderings import Level, combine, cyclic_shifts, how_many, rotate, unrotate
from typedecide.prompt import Prompt, PromptSpec, suffix_after
from typedecide.questions import Criterion, Question
from typedecide.readout import read
from typedecide.results import Debiased, OnAnswer, Prefill, Scored, ScoredAll
from typedecide.states import DEFAULT_BYTES, States
from typedecide.text import BLANK, TextPrompt, gain

VARIANTS = ("gqa", "explicit")


READOUTS = ("labels", "text")


def check_readout(readout: str, orderings: Level | None, budget: int | None) -> None:
    """UnsupportedError for an unknown readout, and for orders of options where none are listed."""
    if readout not in READOUTS:
        raise UnsupportedError(
            f"there is no readout {readout!r}; known: {', '.join(READOUTS)}", readout=readout
        )
    if readout == "text" and (orderings, budget) != (None, None):
        raise UnsupportedError(
            "the text readout lists no options, so orderings and budget do not apply: leave them out, or use the"
            " labels readout",
            readout=readout,
            orderings=orderings,
            budget=budget,
        )


def orders_of(n: int, index: int, orderings: Level, budget: int) -> int:
    """How many orders of a question's `n` options are read; its index goes into the error."""
    try:
        return how_many(n, orderings, budget)
    except ValueError as error:
        raise InvalidQuestionError(
            f"Question {index}: {error}", value=orderings, budget=budget, loc=[index]
        ) from None


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


class NativeEngine:
    """`prefill()` and `score()` on this machine's processor.

    >>> with NativeEngine("dist") as engine:                              # doctest: +SKIP
    ...     engine.prefill("My card was charged twice.")
    ...     engine.score(Noul("Is the customer angry?")).answer.value
    """

    def __init__(
        self,
        bundle: Path | str,
        format: str | None = None,
        variant: str = "explicit",
        threads: int | None = None,
        state_bytes: int = DEFAULT_BYTES,
    ) -> None:
        """Load a bundle.

        Args:
            bundle: the folder.
            format: weight format; None takes the bundle's default.
            variant: graph variant, `gqa` or `explicit`.
            threads: None takes all cores.
            state_bytes: memory for the caches of prefilled texts.
        """
        began = time.perf_counter()
        if variant not in VARIANTS:
            raise UnsupportedError(
                f"there is no graph variant {variant!r}; known: {', '.join(VARIANTS)}", variant=variant
            )
        opened = Bundle.open(bundle)
        chosen = opened.format(format)
        paths = [shard for data in chosen.data for shard in data.shards]
        opened.check([*paths, chosen.graphs[variant], str(opened.manifest["tokenizer"])])
        self.bundle = opened
        self.prompt = Prompt(PromptSpec.from_manifest(opened.manifest))
        self.tokenizer = TextTokenizer.from_file(opened.tokenizer_path)
        self.model = NativeModel(
            opened.graph_path(chosen.name, variant).read_bytes(),
            dict(opened.weights(chosen.name)),
            Shape(**opened.model["shape"]),
            threads,
        )
        self.text = TextPrompt.from_manifest(self.prompt, opened.manifest)
        self.states: States[_State] = States(state_bytes)
        self._blank: _State | None = None
        self._blank_scores: dict[Question, list[float]] = {}
        self._state: _State | None = None
        head = self.prompt.head_ids(self.tokenizer)
        self._head = (head, self.model.prefill(head))
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
            "loadMs": (time.perf_counter() - began) * 1e3,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the model."""
        self.model.close()

    def prefill(self, state: str) -> Prefill:
        """Compute the KV cache of a text, unless it is kept from before; `score` is about it from now on."""
        began = time.perf_counter()
        kept = self.states.get(state)
        if kept is None:
            self._state = self._prefilled(state)
            self.states.add(self._state)
        else:
            self._state = kept
        ms = (time.perf_counter() - began) * 1e3
        return Prefill(tokens=self._state.cache.length, ms=ms, kept=kept is not None)

    def release(self) -> None:
        """Free all kept texts and what is known of blank evidence; the engine stays usable."""
        self.states.clear()
        self._blank_scores.clear()
        self._state = self._blank = None

    def score(self, question: Question) -> Scored:
        """Answer one question about the prefilled text."""
        began = time.perf_counter()
        suffix = self._suffix(question, 0)
        (logits,), _ = self.model.score(self._current().cache, [suffix])
        answer = read(question, logits.tolist())
        return Scored(answer, len(suffix.ids), (time.perf_counter() - began) * 1e3)

    def score_all(
        self,
        questions: Sequence[Question],
        orderings: Level | None = None,
        budget: int | None = None,
        run_tokens: int | None = None,
        on_answer: OnAnswer | None = None,
        readout: str | None = None,
    ) -> ScoredAll:
        """Answer many questions about the prefilled text, each in several orders of its options, in packed runs.

        Args:
            questions: what to ask.
            orderings: orders read of each question: 1, a number, "all" cyclic ones, or (default) "auto": both of
                two options, and up to `budget` of more. For the `labels` readout only.
            budget: the rotation budget of "auto"; None takes the bundle's.
            run_tokens: tokens of one packed run; None takes the bundle's.
            on_answer: told each answer as soon as its last order is read.
            readout: `labels` (letters of the listed options) or `text` (the options' own texts, which need no
                orders); None takes the bundle's.
        """
        chosen = readout or self.bundle.manifest["readout"]
        check_readout(chosen, orderings, budget)
        if chosen == "text":
            return self._score_texts(questions, run_tokens, on_answer)
        began = time.perf_counter()
        limits = self.bundle.limits
        orders: list[tuple[int, int]] = []
        counts = []
        for index, question in enumerate(questions):
            n = len(question.names)
            counts.append(orders_of(n, index, orderings or "auto", budget or limits["rotation_budget"]))
            orders += [(index, shift) for shift in cyclic_shifts(n, counts[-1])]
        found: list[list[list[float]]] = [[] for _ in questions]
        answers: dict[int, Debiased] = {}

        def take(suffix: int, logits: NDArray[np.float32]) -> None:
            index, shift = orders[suffix]
            found[index].append(unrotate(logits.tolist(), shift))
            if len(found[index]) == counts[index]:
                pooled = combine(found[index])
                answer = read(questions[index], pooled.log_probabilities)
                answers[index] = Debiased(answer, pooled.orderings_used, pooled.flip_rate)
                if on_answer:
                    on_answer(index, answers[index])

        suffixes = [self._suffix(questions[index], shift) for index, shift in orders]
        _, totals = self.model.score(
            self._current().cache, suffixes, run_tokens or limits["run_tokens"], take
        )
        return ScoredAll(
            tuple(answers[i] for i in range(len(questions))),
            totals.tokens,
            totals.saved,
            totals.runs,
            (time.perf_counter() - began) * 1e3,
        )

    def _score_texts(
        self, questions: Sequence[Question], run_tokens: int | None, on_answer: OnAnswer | None
    ) -> ScoredAll:
        """The `text` readout: every option's own text, under the evidence and (kept) under blank evidence."""
        began = time.perf_counter()
        budget = run_tokens or self.bundle.limits["run_tokens"]
        state = self._current()
        new = [q for q in dict.fromkeys(questions) if q not in self._blank_scores]
        cost = Totals(0, 0, 0)
        for question in new:
            # In a run of its own: what is kept must not depend on what was asked along with it, not by the last bit.
            (scores,), one = self._text_scores(self._blank_state(), [question], budget, lambda *_: None)
            self._blank_scores[question] = scores
            cost = Totals(cost.tokens + one.tokens, cost.saved + one.saved, cost.runs + one.runs)
        answers: dict[int, Debiased] = {}

        def take(index: int, scores: list[float]) -> None:
            question = questions[index]
            answer = read(question, gain(scores, self._blank_scores[question]))
            answers[index] = Debiased(answer, 1, 0.0)
            if on_answer:
                on_answer(index, answers[index])

        _, totals = self._text_scores(state, questions, budget, take)
        return ScoredAll(
            tuple(answers[i] for i in range(len(questions))),
            totals.tokens + cost.tokens,
            totals.saved + cost.saved,
            totals.runs + cost.runs,
            (time.perf_counter() - began) * 1e3,
        )

    def _text_scores(
        self,
        state: _State,
        questions: Sequence[Question],
        budget: int,
        take: Callable[[int, list[float]], None],
    ) -> tuple[list[list[float]], Totals]:
        """Summed log-probability of each option's text after a state; `take` is told each question's as they come."""
        owners: list[int] = []
        suffixes: list[Suffix] = []
        for index, question in enumerate(questions):
            branches = self.text.branches(self.tokenizer, state.text, state.ids, question)
            owners += [index] * len(branches)
            suffixes += [Suffix(b.ids, reads=b.reads, targets=b.targets) for b in branches]
        scores: list[list[float]] = [[] for _ in questions]

        def sum_up(suffix: int, found: NDArray[np.float32]) -> None:
            index = owners[suffix]
            scores[index].append(float(found.sum(dtype=np.float64)))
            if len(scores[index]) == len(questions[index].names):
                take(index, scores[index])

        _, totals = self.model.score(state.cache, suffixes, budget, sum_up)
        return scores, totals

    def _blank_state(self) -> _State:
        if self._blank is None:
            self._blank = self._prefilled(BLANK)
        return self._blank

    def _prefilled(self, text: str) -> _State:
        """The state of a text, computed behind the constant head where it starts with that."""
        ids = self.prompt.state_prefix_ids(self.tokenizer, text)
        head, base = self._head
        shared = base if head and ids[: len(head)] == head else None
        return _State(text, ids, self.model.prefill(ids, shared))

    def _suffix(self, question: Question, shift: int) -> Suffix:
        """The suffix that asks a question with its options rotated by `shift`."""
        state = self._current()
        plain = question.criterion()
        criterion = Criterion(plain.text, tuple(rotate(plain.options, shift)))
        ids = suffix_after(state.ids, self.prompt.full_ids(self.tokenizer, state.text, criterion))
        return Suffix(ids, self.prompt.label_ids(criterion))

    def _current(self) -> _State:
        if self._state is None:
            raise InvalidStateError("nothing is prefilled: call prefill(state) first", value=None)
        return self._state

    def score_full(self, state: str, question: Question) -> Scored:
        """Answer one question from the whole prompt, without the cache: the plain path."""
        began = time.perf_counter()
        criterion = question.criterion()
        ids = self.prompt.full_ids(self.tokenizer, state, criterion)
        logits = self.model.score_full(Suffix(ids, self.prompt.label_ids(criterion)))
        return Scored(read(question, logits.tolist()), len(ids), (time.perf_counter() - began) * 1e3)
