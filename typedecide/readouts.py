"""The readouts as strategies: what a question puts behind a text, and how what is read there becomes its answer.

Each says the same few things of itself, so that an engine has one way of scoring for all of them. Knows prompts and
token ids, no tensors' insides and no caches. `web/readouts.js` is its twin. Needs the `native` extra.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from numpy import float32
from numpy.typing import NDArray

from typedecide.model import Suffix
from typedecide.options import readouts_of
from typedecide.orderings import combine, rotate, unrotate
from typedecide.pointer import PointerPrompt, scores
from typedecide.prompt import Prompt, PromptSpec, Tokenizer, suffix_after
from typedecide.questions import Criterion, Question
from typedecide.readout import read
from typedecide.results import Debiased
from typedecide.text import TextPrompt


def readouts(manifest: Mapping[str, Any], tokenizer: Tokenizer) -> dict[str, Readout]:
    """The readouts that a bundle has, by name; BundleError where its templates are malformed."""
    prompt = Prompt(PromptSpec.from_manifest(manifest))
    found: dict[str, Readout] = {
        "labels": LabelsReadout(prompt, tokenizer),
        "text": TextReadout(TextPrompt.from_manifest(prompt, manifest), tokenizer),
    }
    if "pointer" in readouts_of(manifest):
        found["pointer"] = PointerReadout(PointerPrompt.from_manifest(prompt, manifest), tokenizer)
    return found


class Readout(ABC):
    """One way to ask a question and read its answer.

    A *reading* is one logit for each option, in the question's own order, from one order of the options.
    """

    needs_blank = False
    """Whether a reading is only worth something against the one under blank evidence."""

    @abstractmethod
    def suffixes(self, state: str, prefix: Sequence[int], question: Question, shift: int) -> list[Suffix]:
        """What one order of a question runs behind `prefix`, the first ids of the prompt of the text `state`.

        Without a prefix these are whole prompts.
        """

    @abstractmethod
    def reading(self, question: Question, shift: int, found: Sequence[NDArray[float32]]) -> list[float]:
        """The reading, from what the model gave for each of these suffixes."""

    def answer(self, question: Question, readings: Sequence[Sequence[float]]) -> Debiased:
        """The answer, from the readings of all orders: here, of the only one."""
        (logits,) = readings
        return Debiased(read(question, logits), 1, 0.0)


class LabelsReadout(Readout):
    """The logits of the labels that stand before the listed options."""

    def __init__(self, prompt: Prompt, tokenizer: Tokenizer) -> None:
        self.prompt, self.tokenizer = prompt, tokenizer

    def suffixes(self, state: str, prefix: Sequence[int], question: Question, shift: int) -> list[Suffix]:
        """The question with its options rotated by `shift`."""
        plain = question.criterion()
        criterion = Criterion(plain.text, tuple(rotate(plain.options, shift)))
        ids = suffix_after(prefix, self.prompt.full_ids(self.tokenizer, state, criterion))
        return [Suffix(ids, self.prompt.label_ids(criterion))]

    def reading(self, question: Question, shift: int, found: Sequence[NDArray[float32]]) -> list[float]:
        """The label logits, turned back."""
        (logits,) = found
        return unrotate(logits.tolist(), shift)

    def answer(self, question: Question, readings: Sequence[Sequence[float]]) -> Debiased:
        """All orders, pooled."""
        pooled = combine(readings)
        answer = read(question, pooled.log_probabilities)
        return Debiased(answer, pooled.orderings_used, pooled.flip_rate)


class TextReadout(Readout):
    """The log-probability of each option's own text, against the same under blank evidence."""

    needs_blank = True

    def __init__(self, text: TextPrompt, tokenizer: Tokenizer) -> None:
        self.text, self.tokenizer = text, tokenizer

    def suffixes(self, state: str, prefix: Sequence[int], question: Question, shift: int) -> list[Suffix]:
        """One for each option."""
        branches = self.text.branches(self.tokenizer, state, prefix, question)
        return [Suffix(b.ids, reads=b.reads, targets=b.targets) for b in branches]

    def reading(self, question: Question, shift: int, found: Sequence[NDArray[float32]]) -> list[float]:
        """The sum over each option's tokens."""
        return [sum(log_probabilities.tolist()) for log_probabilities in found]


class PointerReadout(Readout):
    """The trained comparison of options and answer."""

    def __init__(self, prompt: PointerPrompt, tokenizer: Tokenizer) -> None:
        self.prompt, self.tokenizer = prompt, tokenizer

    def suffixes(self, state: str, prefix: Sequence[int], question: Question, shift: int) -> list[Suffix]:
        """One, whose branches are the options."""
        joined = self.prompt.joined(self.tokenizer, state, prefix, question)
        return [Suffix(joined.ids, branches=joined.branches, tail=joined.tail)]

    def reading(self, question: Question, shift: int, found: Sequence[NDArray[float32]]) -> list[float]:
        """The scores of the options."""
        (projections,) = found
        return scores(projections.tolist(), len(question.names))
