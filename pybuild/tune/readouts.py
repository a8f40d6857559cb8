"""How an answer is read: which tokens a question becomes, and what turns their final states into option logits.

One strategy for each readout and structure. Pointer on a set is what bundles run; the others are there to compare.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from typedecide.orderings import cyclic_shifts, how_many, rotate, unrotate
from typedecide.packing import Suffix
from typedecide.pointer import PointerPrompt
from typedecide.prompt import Prompt, Tokenizer, suffix_after
from typedecide.questions import Criterion, Question
from typedecide.text import TextPrompt


@dataclass(frozen=True)
class Asked:
    """A question as tokens behind the prefix, and how to read it.

    suffixes: what is run.
    logits: the final states of all reads of the suffixes [reads, hidden] -> one logit for each option [options].
    """

    suffixes: Sequence[Suffix]
    logits: Callable[[Tensor], Tensor]


class Readout(Protocol):
    """A way to ask and read."""

    def ask(self, state: str, prefix: Sequence[int], question: Question, rng: random.Random) -> Asked:
        """The question behind the prefix of a state; `rng` decides in which order options are listed, if they are."""
        ...


class Pointer(nn.Module):
    """Query, key and bias of a final state: weight [2 D + 1, hidden]."""

    def __init__(self, hidden: int, size: int, spread: float) -> None:
        """Args: `spread`: standard deviation of a query's values before training, for states as `norm` makes them."""
        super().__init__()
        self.size = size
        self.weight = nn.Parameter(torch.randn(2 * size + 1, hidden) * spread / math.sqrt(hidden))

    def forward(self, states: Tensor) -> Tensor:
        """States of the options' ends and of the answer [options + 1, hidden] -> option logits [options]."""
        query, key, bias = self.weight.split([self.size, self.size, 1])
        options, answer = states[:-1], states[-1]
        compared: Tensor = (options @ key.T) @ (query @ answer) / math.sqrt(self.size)
        return compared + (options @ bias.T)[:, 0]


@dataclass(frozen=True)
class PointerSet:
    """Options as parallel branches: what inference runs."""

    prompt: PointerPrompt
    tokenizer: Tokenizer
    pointer: Pointer
    close: Sequence[int]

    def ask(self, state: str, prefix: Sequence[int], question: Question, rng: random.Random) -> Asked:
        """One joined suffix."""
        joined = self.prompt.joined(self.tokenizer, state, prefix, question)
        suffix = Suffix(joined.ids, branches=joined.branches, tail=[*self.close, *joined.tail])
        return Asked([suffix], self.pointer)


@dataclass(frozen=True)
class PointerList:
    """Options listed one after another, in random order."""

    prompt: PointerPrompt
    tokenizer: Tokenizer
    pointer: Pointer
    close: Sequence[int]

    def ask(self, state: str, prefix: Sequence[int], question: Question, rng: random.Random) -> Asked:
        """One suffix, read at each option's end and at the answer."""
        joined = self.prompt.joined(self.tokenizer, state, prefix, question)
        order = shuffled(len(joined.branches), rng)
        ids, ends = list(joined.ids), []
        for option in order:
            ids += joined.branches[option]
            ends.append(len(ids) - 1)
        ids += [*self.close, *joined.tail]
        # Back in the question's order, so that logits belong to its options.
        reads = [ends[order.index(option)] for option in range(len(order))]
        return Asked([Suffix(ids, reads=[*reads, len(ids) - 1])], self.pointer)


@dataclass(frozen=True)
class Labels:
    """Options listed with letters, in random order; the letters' logits at the answer."""

    prompt: Prompt
    tokenizer: Tokenizer
    table: Tensor

    def ask(self, state: str, prefix: Sequence[int], question: Question, rng: random.Random) -> Asked:
        """One suffix, read at its end."""
        plain = question.criterion()
        order = shuffled(len(plain.options), rng)
        criterion = Criterion(plain.text, tuple(plain.options[option] for option in order))
        ids = suffix_after(prefix, self.prompt.full_ids(self.tokenizer, state, criterion))
        labels = self.prompt.label_ids(criterion)
        columns = torch.tensor([labels[order.index(option)] for option in range(len(order))])
        return Asked([Suffix(ids)], lambda states: states[0] @ self.table[columns].T.float())


@dataclass(frozen=True)
class PooledLabels:
    """Options listed with letters in the orders of inference, and their letters' logits pooled."""

    prompt: Prompt
    tokenizer: Tokenizer
    table: Tensor

    def ask(self, state: str, prefix: Sequence[int], question: Question, rng: random.Random) -> Asked:
        """A suffix for each order."""
        plain = question.criterion()
        suffixes, labels = [], []
        for shift in cyclic_shifts(len(plain.options), how_many(len(plain.options))):
            criterion = Criterion(plain.text, tuple(rotate(plain.options, shift)))
            ids = suffix_after(prefix, self.prompt.full_ids(self.tokenizer, state, criterion))
            suffixes.append(Suffix(ids))
            labels.append(unrotate(self.prompt.label_ids(criterion), shift))
        columns = torch.tensor(labels)

        def logits(states: Tensor) -> Tensor:
            return (self.table[columns].float() @ states[:, :, None])[:, :, 0].mean(0)

        return Asked(suffixes, logits)


@dataclass(frozen=True)
class Text:
    """The log-likelihood of each option's own text as the answer."""

    prompt: TextPrompt
    tokenizer: Tokenizer
    next_tokens: Callable[[Tensor], Tensor]

    def ask(self, state: str, prefix: Sequence[int], question: Question, rng: random.Random) -> Asked:
        """A suffix for each option."""
        branches = self.prompt.branches(self.tokenizer, state, prefix, question)
        targets = torch.tensor([target for branch in branches for target in branch.targets])
        counts = [len(branch.targets) for branch in branches]

        def logits(states: Tensor) -> Tensor:
            words = self.next_tokens(states)
            found = words.gather(1, targets.to(words.device)[:, None])[:, 0]
            return torch.stack([one.sum() for one in found.split(counts)])

        return Asked([Suffix(branch.ids, reads=branch.reads) for branch in branches], logits)


def shuffled(count: int, rng: random.Random) -> list[int]:
    """0 … count - 1 in random order."""
    return rng.sample(range(count), count)
