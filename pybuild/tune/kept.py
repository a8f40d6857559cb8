"""What a shallow model's upper layers are trained on: states at the cut and the whole model's answers, computed once.

The lower layers are frozen, so both are constants of a text and its questions. They stay in memory, and in files, so
that a run that was interrupted does not compute them again.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor
from torch.nn import functional as F

from pybuild.tune import loop
from pybuild.tune.samples import Sample
from pybuild.tune.structure import above
from pybuild.tune.task import MULTIPLE, Encoded, Tuned
from typedecide.shallow import anchor_tokens

FILE_SAMPLES = 64
"""Samples of one file: what an interruption can cost."""


@dataclass(frozen=True)
class Kept:
    """A sample at the cut.

    encoded: the sample, as the sequence of tokens that upper layers see.
    states: of the residual stream of these tokens, [used, hidden].
    teacher: the whole model's log-probabilities of each question's options.
    """

    encoded: Encoded
    states: Tensor
    teacher: Sequence[Tensor]

    @property
    def tokens(self) -> int:
        """Tokens of its sequence."""
        return self.encoded.tokens


@dataclass(frozen=True)
class Cut:
    """A model as a shallow one.

    layers: texts go through so many of its first layers.
    anchor: tokens at the start of every prompt that go through all of them.
    """

    model: Tuned
    layers: int
    anchor: int

    @classmethod
    def of(cls, model: Tuned, layers: int, anchor: str) -> Cut:
        """Args: `anchor`: its name; see `typedecide.shallow`."""
        return cls(model, layers, anchor_tokens(anchor, model.prompt.head_ids(model.tokenizer)))

    @property
    def upper(self) -> range:
        """The layers that see the anchor and the questions only."""
        return range(self.layers, len(self.model.decoder.layers))

    @torch.no_grad()
    def keep(self, batch: Sequence[Encoded]) -> list[Kept]:
        """Run whole prompts through the model as it is without adapters."""
        model, decoder = self.model, self.model.decoder
        joined = model.joined(batch)
        with decoder.unadapted():
            x = decoder.through(
                decoder.embed(joined.ids), joined.positions, joined.visible, range(self.layers)
            )
            top = decoder.through(x, joined.positions, joined.visible, self.upper)
        answers = model.logits(batch, decoder.read(top, joined.rows))
        kept = []
        streams = x.split([one.tokens for one in batch])
        for one, stream, logits in zip(batch, streams, answers, strict=True):
            places, packed = above(one.packed, self.anchor, MULTIPLE)
            states = stream[torch.from_numpy(places).to(stream.device)].to(decoder.dtype)
            teacher = [found.log_softmax(-1) for found in logits]
            kept.append(Kept(replace(one, packed=packed), states, teacher))
        return kept

    def answer(self, batch: Sequence[Kept]) -> list[list[Tensor]]:
        """The shallow model's option logits of each question of each sample, float32 [options]."""
        model, decoder = self.model, self.model.decoder
        encoded = [one.encoded for one in batch]
        joined = model.joined(encoded)
        filled = [F.pad(one.states, (0, 0, 0, one.tokens - len(one.states))) for one in batch]
        x = torch.cat(filled).float()
        x = decoder.through(x, joined.positions, joined.visible, self.upper)
        return model.logits(encoded, decoder.read(x, joined.rows))


@dataclass(frozen=True)
class Keeper:
    """Keeps samples, in `folder` too.

    origin: of the model's weights.
    """

    cut: Cut
    origin: str
    folder: Path
    console: Console

    def keep(self, name: str, samples: Iterable[Sample], total: int) -> list[Kept]:
        """All samples at the cut: from the files of that name where these are of the same, computed anew elsewhere.

        Args:
            name: of the files.
            samples: computed in this order, so that Ctrl-C loses few.
            total: how many they are.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        stream = iter(samples)
        kept: list[Kept] = []
        computed, tokens, seconds = 0, 0, 0.0
        with loop.bars(self.console) as progress:
            bar = progress.add_task(name, total=total)
            while encoded := self._encoded(islice(stream, FILE_SAMPLES)):
                path = self.folder / f"{name}-{len(kept):06}.pt"
                digest = self._digest(encoded)
                began = time.monotonic()
                if (found := self._load(path, digest, encoded)) is None:
                    found = [one for batch in loop.passes(encoded) for one in self.cut.keep(batch)]
                    self._save(path, digest, found)
                    computed += len(encoded)
                    tokens += sum(one.tokens for one in encoded)
                    seconds += time.monotonic() - began
                kept += found
                speed = f"{name}: {tokens / seconds:.0f} tokens/s" if computed else name
                progress.update(bar, completed=len(kept), description=speed)
                if not self.console.is_terminal:
                    self.console.print(f"{len(kept)}/{total} {speed}", highlight=False)
        if computed:
            self.console.print(
                f"{name}: {computed} of {len(kept)} texts computed, {seconds / computed:.2f} s each,"
                f" {tokens / seconds:.0f} tokens/s",
                highlight=False,
            )
        return kept

    def _encoded(self, samples: Iterator[Sample]) -> list[Encoded]:
        # No readout that can be kept lists options in random order.
        return [self.cut.model.encode(sample, random.Random(0)) for sample in samples]

    def _digest(self, encoded: Sequence[Encoded]) -> str:
        """Of all that decides what is kept of these samples."""
        model = self.cut.model
        about = [self.origin, self.cut.layers, self.cut.anchor, str(model.decoder.dtype), model.shape.readout]
        digest = hashlib.sha256(json.dumps(about).encode())
        for one in encoded:
            digest.update(one.packed.ids.tobytes() + one.packed.positions.tobytes())
            digest.update(json.dumps(one.packed.rows).encode())
        return digest.hexdigest()

    def _load(self, path: Path, digest: str, encoded: Sequence[Encoded]) -> list[Kept] | None:
        """What is kept in a file; None where it is not there or of other samples."""
        if not path.is_file():
            return None
        content: dict[str, Any] = torch.load(
            path, map_location=self.cut.model.decoder.embedding.device, weights_only=True
        )
        if content["digest"] != digest:
            return None
        stored = zip(encoded, content["states"], content["teacher"], strict=True)
        return [
            Kept(replace(one, packed=above(one.packed, self.cut.anchor, MULTIPLE)[1]), states, teacher)
            for one, states, teacher in stored
        ]

    def _save(self, path: Path, digest: str, kept: Sequence[Kept]) -> None:
        content = {
            "digest": digest,
            "states": [one.states for one in kept],
            "teacher": [list(one.teacher) for one in kept],
        }
        loop.write_whole(path, content)
