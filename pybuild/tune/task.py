"""What is trained: the decoder and a readout on one model, and samples as tensors for them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pybuild.artifacts import PROMPT
from pybuild.graph import Decoder
from pybuild.labels import find_labels
from pybuild.profiles import Profile
from pybuild.sources import Source
from pybuild.tune import readouts
from pybuild.tune.decoder import TorchDecoder
from pybuild.tune.samples import Sample
from pybuild.tune.structure import Packed, pack
from typedecide.errors import UnsupportedError
from typedecide.native import TextTokenizer
from typedecide.pointer import PointerPrompt
from typedecide.prompt import Prompt, PromptSpec
from typedecide.text import TextPrompt

MULTIPLE = 16
"""Sequences are filled up to a multiple of this: each new length costs the kernels' preparation anew."""

SPREAD = 0.5
"""Standard deviation of the pointer's queries and keys before training."""


@dataclass(frozen=True)
class Shape:
    """What is trained, and how it is asked.

    readout: `pointer`, `labels` or `text`.
    structure: options as a `set`, as a `list` in random order, or in all `orders` of inference.
    template: the prompt `plain`, or as a turn of a `chat`.
    rank, alpha: of the adapters; B A is multiplied with alpha / rank.
    pointer: D, the size of the pointer's queries and keys.
    """

    readout: str = "pointer"
    structure: str = "set"
    template: str = "plain"
    rank: int = 16
    alpha: float = 16
    pointer: int = 256


@dataclass(frozen=True)
class Encoded:
    """A sample as tokens, and how its questions are read."""

    sample: Sample
    asked: Sequence[readouts.Asked]
    packed: Packed

    @property
    def tokens(self) -> int:
        """Tokens of its sequence."""
        return len(self.packed.ids)

    @property
    def reads(self) -> int:
        """How many tokens are read."""
        return sum(map(len, self.packed.rows))

    def logits(self, states: Tensor) -> list[Tensor]:
        """The option logits of each question from the final states of all reads."""
        reads = iter(self.packed.rows)
        counts = [sum(len(next(reads)) for _ in one.suffixes) for one in self.asked]
        return [one.logits(found) for one, found in zip(self.asked, states.split(counts), strict=True)]

    def answers(self) -> list[int]:
        """The places among the reads at which suffixes end: where an answer would be said."""
        return [end - 1 for end in accumulate(map(len, self.packed.rows))]


class Joined(NamedTuple):
    """Sequences one after another, as `TorchDecoder.forward` takes them."""

    ids: Tensor
    positions: Tensor
    visible: Sequence[Tensor]
    rows: Tensor


class Tuned(nn.Module):
    """A model that is being tuned."""

    def __init__(self, source: Source, shape: Shape, dtype: torch.dtype = torch.bfloat16) -> None:
        """Args: `dtype`: of the frozen weights and of what is computed with them."""
        super().__init__()
        self.shape = shape
        decoder = Decoder.from_config(source.config)
        self.decoder = TorchDecoder(decoder, source.weights, shape.rank, shape.alpha, dtype)
        self.tokenizer = TextTokenizer(json.dumps(source.tokenizer))
        template = _template(shape.template, source, self.tokenizer)
        spec = {"bos_ids": list(template.bos_ids), "head": Profile().head, **PROMPT}
        manifest = {"prompt": spec, "labels": find_labels(self.tokenizer)}
        self.prompt = Prompt(PromptSpec.from_manifest(manifest))
        self.pointer: readouts.Pointer | None = None
        if shape.readout == "pointer":
            spread = SPREAD / float(self.decoder.norm.weight.square().mean().sqrt())
            self.pointer = readouts.Pointer(decoder.hidden, shape.pointer, spread)
        make = _READOUTS.get((shape.readout, shape.structure))
        if make is None or (shape.template == "chat" and shape.readout != "pointer"):
            raise UnsupportedError(
                f"There is no readout {shape.readout!r} on a {shape.structure!r} in a {shape.template!r} prompt.",
                readout=shape.readout,
                structure=shape.structure,
                template=shape.template,
            )
        self.readout = make(self, manifest, template)

    def encode(self, sample: Sample, rng: random.Random) -> Encoded:
        """The tokens of a sample; `rng` decides the order of options that are listed."""
        prefix = self.prompt.state_prefix_ids(self.tokenizer, sample.state)
        asked = [self.readout.ask(sample.state, prefix, question, rng) for question in sample.questions]
        packed = pack(prefix, [suffix for one in asked for suffix in one.suffixes], MULTIPLE)
        return Encoded(sample, asked, packed)

    def forward(self, batch: Sequence[Encoded]) -> list[list[Tensor]]:
        """The option logits of each question of each sample, float32 [options]."""
        return self.logits(batch, self.states(batch))

    def logits(self, batch: Sequence[Encoded], states: Tensor) -> list[list[Tensor]]:
        """The same, from the `states` of the batch."""
        of_sample = states.split([one.reads for one in batch])
        return [one.logits(found) for one, found in zip(batch, of_sample, strict=True)]

    def divergence(self, batch: Sequence[Encoded], states: Tensor) -> Tensor:
        """How far the next-token distributions at the answers moved from those of the base model.

        KL(base || tuned) over the vocabulary, in nats, summed over questions; where a question has several suffixes,
        their mean.
        """
        starts = accumulate((one.reads for one in batch), initial=0)
        rows = [at + row for at, one in zip(starts, batch, strict=False) for row in one.answers()]
        counts = [len(asked.suffixes) for one in batch for asked in one.asked]
        weights = torch.tensor([1 / count for count in counts for _ in range(count)], device=states.device)
        with torch.no_grad(), self.decoder.unadapted():
            base = self.decoder.next_tokens(self.states(batch)[rows])
        tuned = self.decoder.next_tokens(states[rows])
        return weights @ divergence(base, tuned)

    def states(self, batch: Sequence[Encoded]) -> Tensor:
        """The final states of all that is read, one sample after another, float32 [reads, hidden]."""
        return self.decoder(*self.joined(batch))

    def joined(self, batch: Sequence[Encoded]) -> Joined:
        """The sequences of a batch one after another, where the weights are."""
        device = self.decoder.embedding.device
        starts = accumulate((len(one.packed.ids) for one in batch), initial=0)
        rows = [
            at + row
            for at, one in zip(starts, batch, strict=False)
            for reads in one.packed.rows
            for row in reads
        ]
        return Joined(
            torch.from_numpy(np.concatenate([one.packed.ids for one in batch])).to(device),
            torch.from_numpy(np.concatenate([one.packed.positions for one in batch])).to(device),
            [torch.from_numpy(one.packed.visible).to(device) for one in batch],
            torch.tensor(rows, device=device),
        )


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q) over the last axis, in nats, of log-probabilities."""
    return (p.exp() * (p - q)).sum(-1)


def loss_of(logits: Sequence[Tensor], sample: Sample) -> Tensor:
    """Sum over the questions of the cross-entropy with their targets."""
    losses = [
        -(torch.tensor(target, device=found.device) * found.log_softmax(-1)).sum()
        for found, target in zip(logits, sample.targets, strict=True)
    ]
    return torch.stack(losses).sum()


@dataclass(frozen=True)
class _Template:
    """Ids before every text, and ids between the question and what begins its answer."""

    bos_ids: Sequence[int]
    close: Sequence[int]


def _template(name: str, source: Source, tokenizer: TextTokenizer) -> _Template:
    if name == "plain":
        return _Template(source.bos_ids, ())
    vocabulary = source.tokenizer["model"]["vocab"]
    start, end = (vocabulary.get(token) for token in ("<|im_start|>", "<|im_end|>"))
    if start is None or end is None:
        raise UnsupportedError(
            f"{source.name} has no chat turns of <|im_start|> and <|im_end|>.", template=name
        )
    user, assistant = tokenizer.encode("user\n"), tokenizer.encode("assistant")
    return _Template([start, *user], [end, *tokenizer.encode("\n"), start, *assistant])


_Make = Callable[[Tuned, Mapping[str, Any], _Template], readouts.Readout]


def _pointer(kind: type[readouts.PointerSet] | type[readouts.PointerList]) -> _Make:
    def make(task: Tuned, manifest: Mapping[str, Any], template: _Template) -> readouts.Readout:
        assert task.pointer is not None
        prompt = PointerPrompt.from_manifest(task.prompt, manifest)
        return kind(prompt, task.tokenizer, task.pointer, template.close)

    return make


def _labels(task: Tuned, manifest: Mapping[str, Any], template: _Template) -> readouts.Readout:
    return readouts.Labels(task.prompt, task.tokenizer, task.decoder.head)


def _pooled(task: Tuned, manifest: Mapping[str, Any], template: _Template) -> readouts.Readout:
    return readouts.PooledLabels(task.prompt, task.tokenizer, task.decoder.head)


def _text(task: Tuned, manifest: Mapping[str, Any], template: _Template) -> readouts.Readout:
    prompt = TextPrompt.from_manifest(task.prompt, manifest)
    return readouts.Text(prompt, task.tokenizer, task.decoder.next_tokens)


_READOUTS: Mapping[tuple[str, str], _Make] = {
    ("pointer", "set"): _pointer(readouts.PointerSet),
    ("pointer", "list"): _pointer(readouts.PointerList),
    ("labels", "list"): _labels,
    ("labels", "orders"): _pooled,
    ("text", "set"): _text,
}
