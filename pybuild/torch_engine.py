"""A model answered by PyTorch from complete prompts in batches: what a machine with a GPU evaluates with.

The weights are those of the model, in fp32; how it is asked is a bundle's. There is no cache and nothing is shared, so
that it is also a second opinion on the engines that share. Needs PyTorch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from pybuild.graph import POINTER, Decoder
from pybuild.sources import load_source
from pybuild.tune.decoder import TorchDecoder
from pybuild.weights import Weights
from typedecide.batches import WholePrompts
from typedecide.bundle import Bundle
from typedecide.errors import UnsupportedError
from typedecide.model import Suffix, Wanted, hide, score_batches, tree_mask
from typedecide.orderings import Level
from typedecide.packing import Run
from typedecide.questions import Question
from typedecide.results import Decided, Prefill

FORMAT = "fp32"

BUDGET = 8192
"""Tokens of one batch."""


class TorchModel:
    """Whole prompts through the decoder that is also trained, without an adapter.

    `shallow`: of a shallow model, the layers that see a prompt's `hidden` tokens.
    """

    def __init__(self, decoder: Decoder, weights: Weights, device: str, shallow: int | None = None) -> None:
        self.device, self._shallow = device, shallow
        self._decoder = TorchDecoder(decoder, weights, rank=1, alpha=1, dtype=torch.float32).to(device).eval()
        for linear in self._decoder.linears():
            linear.enabled = False
        self._pointer = None
        if POINTER in weights.names():
            self._pointer = torch.from_numpy(weights.get(POINTER).copy()).to(device)

    def score(self, prompts: Sequence[Suffix], budget: int) -> list[NDArray[np.float32]]:
        """What is read of each prompt; see `BatchedModel.score`."""
        return score_batches(prompts, budget, self._batch)

    def close(self) -> None:
        """Free the weights."""
        del self._decoder, self._pointer

    def _batch(self, prompts: Sequence[Suffix], runs: Sequence[Run]) -> list[NDArray[np.float32]]:
        with torch.inference_mode():
            return self._read(prompts, runs)

    def _read(self, prompts: Sequence[Suffix], runs: Sequence[Run]) -> list[NDArray[np.float32]]:
        starts = accumulate((len(run.ids) for run in runs), initial=0)
        wanted = Wanted(
            prompts, [[start + row for row in run.rows[0]] for start, run in zip(starts, runs, strict=False)]
        )
        masks = [tree_mask(0, run.parents, run.joins) for run in runs]
        upper = []
        if self._shallow is not None:
            upper = [hide(mask, *prompt.hidden) for mask, prompt in zip(masks, prompts, strict=True)]
        reads = wanted.reads
        states = self._decoder(
            self._long([token for run in runs for token in run.ids]),
            self._long([depth for run in runs for depth in run.depths]),
            self._visible(masks),
            self._long(reads.rows),
            self._shallow,
            self._visible(upper),
        )
        head = self._decoder.head
        found = {
            "label_logits": states @ head[self._long(reads.labels)].T,
            "normalizers": torch.logsumexp(states[self._long(reads.whole)] @ head.T, -1),
        }
        if self._pointer is not None:
            found["projections"] = states @ self._pointer.T
        return wanted.of({name: one.cpu().numpy() for name, one in found.items()})

    def _visible(self, masks: Sequence[NDArray[np.float32]]) -> list[torch.Tensor]:
        return [torch.from_numpy(mask[0, 0] == 0).to(self.device) for mask in masks]

    def _long(self, values: Sequence[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)


class TorchEngine:
    """Answers questions about texts as the other engines do, on a GPU where there is one."""

    def __init__(self, bundle: Path, model: str) -> None:
        """Load a model.

        Args:
            bundle: a bundle of that model, which says how it is asked.
            model: its name, as `pybuild bundle` takes it.
        """
        self.bundle = Bundle.open(bundle)
        source = load_source(model)
        if source.origin != self.bundle.model["origin"]:
            raise UnsupportedError(
                f"{bundle} is a bundle of another model than {model}.",
                origin=self.bundle.model["origin"],
                expected=source.origin,
            )
        device = "cuda" if torch.cuda.is_available() else "cpu"
        shallow = self.bundle.shallow
        self._model = TorchModel(
            Decoder.from_config(source.config), source.weights, device, shallow.k if shallow else None
        )
        self._ways: dict[tuple[str | None, Level | None], WholePrompts] = {}
        self.info: Mapping[str, Any] = {
            "model": dict(self.bundle.model),
            "format": FORMAT,
            "device": device,
            "candidate": f"torch-{device}",
            "threads": None,
            "calibration": None,
            "shallow": shallow and shallow.facts(self.bundle.model["shape"]["layers"]),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the model."""
        self._model.close()

    def decide(
        self,
        state: str,
        questions: Mapping[str, Question],
        orderings: Level | None = None,
        *,
        readout: str | None = None,
    ) -> Decided:
        """Answer questions about a text, by id; see `DecisionEngine.decide`. Nothing is prefilled."""
        way = (readout, orderings)
        if way not in self._ways:
            self._ways[way] = WholePrompts(
                self.bundle, readout=readout, orderings=orderings, budget=BUDGET, model=self._model
            )
        whole = self._ways[way]
        began, before = time.perf_counter(), whole.tokens
        answers = whole.answers([(state, question) for question in questions.values()])
        return Decided(
            tokens_run=whole.tokens - before,
            tokens_saved=0,
            runs=1,
            ms=(time.perf_counter() - began) * 1e3,
            answers=dict(zip(questions, answers, strict=True)),
            prefill=Prefill(0, 0.0),
        )
