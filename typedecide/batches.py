"""Questions answered from complete prompts in left-padded batches: no cache, no packing, nothing shared.

What the prefix-sharing engine is compared with. Needs the `native` extra.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, Self

from numpy import float32
from numpy.typing import NDArray

from typedecide.bundle import Bundle
from typedecide.errors import BundleError, UnsupportedError
from typedecide.model import BatchedModel, Shape, Suffix
from typedecide.native import TextTokenizer
from typedecide.options import Options, resolve
from typedecide.orderings import Level
from typedecide.prompt import Prompt, PromptSpec
from typedecide.questions import Question
from typedecide.readouts import readouts
from typedecide.results import Debiased
from typedecide.text import BLANK, gain

GRAPH = "batched"

BUDGET = 2048
"""Tokens of one batch, with its padding."""


class Batched(Protocol):
    """Runs whole prompts."""

    def score(self, prompts: Sequence[Suffix], budget: int) -> list[NDArray[float32]]:
        """What is read of each prompt, in batches of at most `budget` tokens."""
        ...

    def close(self) -> None:
        """Free the model."""
        ...


def open_batched(bundle: Bundle, format: str | None, threads: int | None = None) -> BatchedModel:
    """A bundle's model for whole prompts; BundleError where the bundle has no graph for that."""
    chosen = bundle.format(format)
    if bundle.stock:
        raise UnsupportedError(
            f"{bundle.root} is a stock export: it has no graph for batches of whole prompts",
            format=chosen.name,
        )
    if GRAPH not in chosen.graphs:
        raise BundleError(f"{bundle.root} has no graph {GRAPH!r}: build it anew.", graphs=[*chosen.graphs])
    bundle.check([chosen.graphs[GRAPH]])
    return BatchedModel(
        bundle.graph_path(chosen.name, GRAPH).read_bytes(),
        dict(bundle.weights(chosen.name)),
        Shape.of(bundle.model),
        threads,
    )


class WholePrompts:
    """A bundle's model, asked with complete prompts; frees it at the end of a `with`.

    `tokens` counts those of all prompts so far, without padding.
    """

    def __init__(
        self,
        bundle: Bundle,
        format: str | None = None,
        readout: str | None = None,
        orderings: Level | None = None,
        threads: int | None = None,
        budget: int = BUDGET,
        model: Batched | None = None,
    ) -> None:
        """Open the model.

        Args:
            bundle: says how it is asked.
            format, threads: as in `NativeEngine`.
            readout, orderings: as in its `score_all`.
            budget: tokens of a batch.
            model: what runs the prompts; None takes the bundle's own graph in onnxruntime.
        """
        self.how = resolve(bundle.manifest, "native", orderings, Options(readout=readout))
        self.budget = budget
        self.tokens = 0
        self._prompt = Prompt(PromptSpec.from_manifest(bundle.manifest))
        self._tokenizer = TextTokenizer.from_file(bundle.tokenizer_path)
        self._readout = readouts(bundle.manifest, self._tokenizer)[self.how.readout]
        self._shallow = bundle.shallow
        self._anchor = self._shallow.tokens(self._prompt.head_ids(self._tokenizer)) if self._shallow else 0
        self._model = model or open_batched(bundle, format, threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._model.close()

    def logits(self, asked: Sequence[tuple[str, Question]]) -> list[tuple[float, ...]]:
        """The pooled logits of questions, each about its text."""
        return [one.answer.logits for one in self.answers(asked)]

    def answers(self, asked: Sequence[tuple[str, Question]]) -> list[Debiased]:
        """The answers to questions, each about its text: every order of the options is a prompt of its own."""
        units = [
            (index, state, question, shift)
            for index, (state, question) in enumerate(asked)
            for shift in self.how.shifts(question, index)
        ]
        needed = [(state, question, shift) for _, state, question, shift in units]
        if self._readout.needs_blank:
            needed += [(BLANK, question, shift) for _, _, question, shift in units]
        found = self._readings(needed)
        readings: list[list[list[float]]] = [[] for _ in asked]
        for number, (index, *_) in enumerate(units):
            reading = found[number]
            if self._readout.needs_blank:
                reading = gain(reading, found[len(units) + number])
            readings[index].append(reading)
        return [
            replace(self._readout.answer(question, own), shallow=self._shallow)
            for (_, question), own in zip(asked, readings, strict=True)
        ]

    def _readings(self, needed: Sequence[tuple[str, Question, int]]) -> list[list[float]]:
        """The readings of questions about texts, each in one order."""
        prompts: list[Suffix] = []
        ends = []
        for state, question, shift in needed:
            hidden = (self._anchor, len(self._prompt.state_prefix_ids(self._tokenizer, state)))
            whole = self._readout.suffixes(state, (), question, shift)
            prompts += [replace(one, hidden=hidden) for one in whole]
            ends.append(len(prompts))
        self.tokens += sum(prompt.packed.length for prompt in prompts)
        found = self._model.score(prompts, self.budget)
        starts = [0, *ends]
        return [
            self._readout.reading(question, shift, found[start:end])
            for (_, question, shift), start, end in zip(needed, starts, ends, strict=False)
        ]
