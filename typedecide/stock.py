"""A community export in Python's onnxruntime, as it is: attention by a 1-D mask, logits of the whole vocabulary.

Such a graph takes input_ids, attention_mask, past_key_values.{i}.key and .value and, where its rotary embedding is a
node of its own, position_ids; it gives logits and present.{i}.key and .value, in float32 or float16. Its mask knows no
branches, so every suffix is a run of its own. Knows tensors and token ids, not questions. The twin of `web/stock.js`.
Needs the `native` extra.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from typedecide.model import CHUNK, LANES, Cache, NativeModel, Shape, Suffix, Totals

ALONE = 1
"""The budget of a run that holds one suffix."""

LOGIT_BYTES = 64 << 20
"""Most memory for the logits that a run of a prefill makes, although nobody reads them."""

_DTYPES: Mapping[str, np.dtype[Any]] = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(float16)": np.dtype(np.float16),
}

PAST = "past_key_values."


def chunk_tokens(vocabulary: int) -> int:
    """Tokens of one prefill run.

    >>> chunk_tokens(320), chunk_tokens(151_936)
    (512, 108)
    """
    fitting = LOGIT_BYTES // (vocabulary * np.dtype(np.float32).itemsize)
    return max(LANES, min(CHUNK, fitting // LANES * LANES))


class StockModel(NativeModel):
    """One session over a stock graph."""

    def __init__(
        self,
        graph: bytes,
        data: Mapping[str, bytes | memoryview],
        shape: Shape,
        vocabulary: int,
        threads: int | None = None,
    ) -> None:
        """Args: as of `NativeModel`, and the number of tokens that logits are of."""
        super().__init__(graph, data, shape, threads)
        self.chunk = chunk_tokens(vocabulary)
        types = {i.name: i.type for i in self._session.get_inputs()}
        self._dtype = _DTYPES[types[f"{PAST}0.key"]]
        self.shape = replace(shape, value_bytes=self._dtype.itemsize)

    def score(
        self,
        cache: Cache,
        suffixes: Sequence[Suffix],
        budget: int | None = None,
        on_logits: Callable[[int, NDArray[np.float32]], None] = lambda *_: None,
    ) -> tuple[list[NDArray[np.float32]], Totals]:
        """As of `NativeModel`, each suffix in a run of its own, whatever the budget."""
        return super().score(cache, suffixes, ALONE, on_logits)

    def _run(
        self,
        cache: Cache,
        ids: Sequence[int],
        positions: Sequence[int],
        mask: NDArray[np.float32],
        reads: Any,
        keep: bool,
        up: Any = None,
    ) -> tuple[dict[str, NDArray[np.float32]], Cache]:
        """One session run; the ids are a plain sequence, which is all that the graph's own mask can say."""
        self.check_wanted()
        feeds: dict[str, Any] = {
            "input_ids": np.asarray([ids], np.int64),
            "attention_mask": np.ones((1, mask.shape[-1]), np.int64),
            **cache.past,
        }
        if "position_ids" in self._inputs:
            feeds["position_ids"] = np.asarray([positions], np.int64)
        if keep:
            present = [name.replace(PAST, "present.", 1) for name in cache.past]
            return {}, Cache(dict(zip(cache.past, self._session.run(present, feeds), strict=True)))
        logits = self._session.run(["logits"], feeds)[0][0, list(reads.rows)].astype(np.float32)
        found = {
            "label_logits": logits[:, list(reads.labels)],
            "normalizers": np.asarray([_log_sum_exp(logits[row]) for row in reads.whole], np.float32),
        }
        return found, cache

    def _empty(self) -> Cache:
        shape = (1, self.shape.kv_heads, 0, self.shape.head_dim)
        names = [f"{PAST}{i}.{part}" for i in range(self.shape.layers) for part in ("key", "value")]
        return Cache({name: np.zeros(shape, self._dtype) for name in names})


def _log_sum_exp(logits: NDArray[np.float32]) -> float:
    most = float(logits.max())
    return most + math.log(float(np.exp(logits.astype(np.float64) - most).sum()))
