"""The decoder graph in Python's onnxruntime: token ids in, label logits out; owns the KV cache.

Knows tensors and token ids, not questions. The same arithmetic as `web/engine.js`. Needs the `native` extra
(numpy, onnxruntime).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from typedecide.errors import TooLongError

HIDDEN = np.float32(-1e4)
"""Additive mask value of a position that must not be seen: exact in float32, and safe in float16."""

CHUNK = 512
"""Tokens of one prefill run: bounds the score matrix of a long text without changing any result."""


@dataclass(frozen=True)
class Suffix:
    """One continuation of the cached prefix: its token ids, and the label ids read at its last token."""

    ids: Sequence[int]
    label_ids: Sequence[int]


@dataclass(frozen=True)
class Shape:
    """The sizes that the KV cache needs."""

    layers: int
    kv_heads: int
    head_dim: int
    context: int


class NativeModel:
    """One session over one graph.

    >>> model.prefill(prefix_ids)                                        # doctest: +SKIP
    >>> logits, = model.score([Suffix(suffix_ids, label_ids)])           # doctest: +SKIP
    """

    def __init__(
        self,
        graph: bytes,
        data: Mapping[str, bytes | memoryview],
        shape: Shape,
        threads: int | None = None,
    ) -> None:
        """Args: the ONNX graph, its external data files by name, sizes, intra-op threads (None: all cores)."""
        options = ort.SessionOptions()
        options.log_severity_level = 3
        if threads is not None:
            options.intra_op_num_threads = threads
        # The runtime keeps pointers into these buffers until the session exists: they must outlive its creation.
        buffers = {name: bytes(view) for name, view in data.items()}
        if buffers:
            options.add_external_initializers_from_files_in_memory(
                list(buffers), list(buffers.values()), [len(b) for b in buffers.values()]
            )
        self._session: Any = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self._inputs = {i.name for i in self._session.get_inputs()}
        self.shape = shape
        self._cache = self._empty()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the session and the cache."""
        self._session, self._cache = None, {}

    @property
    def prefix_tokens(self) -> int:
        """Tokens in the KV cache."""
        length: int = next(iter(self._cache.values())).shape[2]
        return length

    def prefill(self, ids: Sequence[int]) -> None:
        """Replace the KV cache by that of `ids`."""
        self._fits(len(ids))
        cache = self._empty()
        for start in range(0, len(ids), CHUNK):
            chunk = ids[start : start + CHUNK]
            mask = causal_mask(start, [len(chunk)])
            _, cache = self._run(cache, chunk, range(start, start + len(chunk)), mask, [0], [0], True)
        self._cache = cache

    def score(self, suffixes: Sequence[Suffix]) -> list[NDArray[np.float32]]:
        """Label logits of each suffix after the cached prefix, all in one packed run; the cache stays."""
        return self._packed(self._cache, suffixes)

    def score_full(self, suffix: Suffix) -> NDArray[np.float32]:
        """Label logits of a whole prompt, without the cache: the plain path that others are compared with."""
        return self._packed(self._empty(), [suffix])[0]

    def _packed(
        self, cache: dict[str, NDArray[np.float32]], suffixes: Sequence[Suffix]
    ) -> list[NDArray[np.float32]]:
        past = next(iter(cache.values())).shape[2]
        lengths = [len(s.ids) for s in suffixes]
        self._fits(past + max(lengths))
        ids = [i for s in suffixes for i in s.ids]
        positions = [past + i for n in lengths for i in range(n)]
        rows = np.cumsum(lengths) - 1
        labels = list(dict.fromkeys(i for s in suffixes for i in s.label_ids))
        logits, _ = self._run(cache, ids, positions, causal_mask(past, lengths), rows, labels, False)
        column = {label: c for c, label in enumerate(labels)}
        return [logits[row, [column[i] for i in suffix.label_ids]] for row, suffix in enumerate(suffixes)]

    def _run(
        self,
        cache: dict[str, NDArray[np.float32]],
        ids: Sequence[int],
        positions: Sequence[int],
        mask: NDArray[np.float32],
        rows: Sequence[int] | NDArray[np.int64],
        labels: Sequence[int],
        keep: bool,
    ) -> tuple[NDArray[np.float32], dict[str, NDArray[np.float32]]]:
        """One session run: (label logits [rows, labels], present KV when `keep`)."""
        total = mask.shape[-1]
        feeds: dict[str, Any] = {
            "input_ids": np.asarray([ids], np.int64),
            "position_ids": np.asarray([positions], np.int64),
            "mask": mask,
            "rows": np.asarray(rows, np.int64),
            "label_ids": np.asarray(labels, np.int64),
            **cache,
        }
        if "seqlens_k" in self._inputs:
            feeds["seqlens_k"] = np.asarray([total - 1], np.int32)
            feeds["total_sequence_length"] = np.asarray([total], np.int32)
        wanted = ["label_logits"]
        if keep:
            wanted += [name.replace("past.", "present.", 1) for name in cache]
        logits, *present = self._session.run(wanted, feeds)
        return logits, dict(zip(cache, present, strict=False))

    def _empty(self) -> dict[str, NDArray[np.float32]]:
        shape = (1, self.shape.kv_heads, 0, self.shape.head_dim)
        return {
            f"past.{i}.{part}": np.zeros(shape, np.float32)
            for i in range(self.shape.layers)
            for part in ("key", "value")
        }

    def _fits(self, tokens: int) -> None:
        if tokens > self.shape.context:
            raise TooLongError(
                f"the text has {tokens} tokens, the context holds {self.shape.context}",
                tokens=tokens,
                limit=self.shape.context,
            )


def causal_mask(past: int, lengths: Sequence[int]) -> NDArray[np.float32]:
    """Additive mask [1, 1, S, past + S] of suffixes packed side by side.

    Each token sees the whole prefix and the earlier tokens of its own suffix (and itself).
    """
    total = sum(lengths)
    mask = np.full((1, 1, total, past + total), HIDDEN, np.float32)
    mask[..., :past] = 0
    start = 0
    for length in lengths:
        end = start + length
        triangle = np.where(np.tri(length, dtype=bool), np.float32(0), HIDDEN)
        mask[0, 0, start:end, past + start : past + end] = triangle
        start = end
    return mask
