"""What shallow prefill should save: floating-point operations and cache bytes of a decoder, counted by hand.

A multiplication with an addition counts as two operations, and of the layers only matrix products count, as in Kaplan
et al., "Scaling Laws for Neural Language Models" (2020), section 2.1; attention is causal, so that token i sees i keys.
Which layer sees which tokens is SPEED's policy (Oh et al., 2026, arXiv 2605.06105). Knows no engine and no clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

FLOAT_BYTES = 4
"""Of a value in a cache: activations are float32 in every weight format."""


@dataclass(frozen=True)
class Product:
    """So many products of a matrix `rows` x `inner` with weights `inner` x `columns`."""

    rows: int
    inner: int
    columns: int
    count: int

    @property
    def flops(self) -> int:
        """Operations of all of them."""
        return 2 * self.rows * self.inner * self.columns * self.count


@dataclass(frozen=True)
class CostModel:
    """The sizes that costs follow from: of the residual stream, of all queries and of all keys of a token, of the
    feed-forward layer, and the number of layers."""

    hidden: int
    queries: int
    keys: int
    ff: int
    layers: int

    @classmethod
    def of(cls, model: Mapping[str, Any]) -> Self:
        """That of `manifest["model"]`."""
        shape = model["shape"]
        size = shape["head_dim"]
        return cls(
            model["hidden"], model["heads"] * size, shape["kv_heads"] * size, model["ff"], shape["layers"]
        )

    @property
    def layer_weights(self) -> int:
        """W, weights of one layer's matrices: queries and output, keys and values, a gated feed-forward layer."""
        return self.hidden * (2 * self.queries + 2 * self.keys + 3 * self.ff)

    def prefill(self, tokens: int, k: int, base: int = 0) -> int:
        """Operations to prefill a text of so many tokens through k layers, the first `base` of them known already.

        k·(2·W·P + 2·d_q·P·(P + 1)), without what the base's own tokens would take.
        """
        pairs = tokens * (tokens + 1) - base * (base + 1)
        return k * (2 * self.layer_weights * (tokens - base) + 2 * self.queries * pairs)

    def suffixes(self, lengths: Sequence[float], prefix: int, k: int, anchor: int) -> float:
        """Operations of suffixes, which go through all layers; those from k on see the prefix's anchor alone.

        L·(2·W·S + 2·d_q·S·(S + 1)) + 4·d_q·S·(k·P + (L - k)·A) for each.
        """
        seen = k * prefix + (self.layers - k) * anchor
        return sum(
            self.layers * (2 * self.layer_weights * own + 2 * self.queries * own * (own + 1))
            + 4 * self.queries * own * seen
            for own in lengths
        )

    def cache_bytes(self, prefix: int, k: int, anchor: int) -> int:
        """Bytes that a text's keys and values take: 2·d_kv·b·(k·P + (L - k)·A), b bytes a value."""
        return 2 * self.keys * FLOAT_BYTES * (k * prefix + (self.layers - k) * anchor)

    def shapes(self) -> list[tuple[int, int]]:
        """The distinct shapes of the layers' weights, (inputs, outputs)."""
        found = [*self._inward(), *self._onward()]
        return list(dict.fromkeys((inner, columns) for inner, columns, _ in found))

    def products(self, rows: Sequence[int]) -> list[Product]:
        """The layers' matrix products in one run of the explicit graph.

        Args:
            rows: tokens that go into each layer, and last those that are read. Keys and values are made of all tokens
                that go into a layer, everything else of those that go into the next one only.
        """
        sizes: Counter[tuple[int, int, int]] = Counter()
        for entering, leaving in pairwise(rows):
            for tokens, weights in ((entering, self._inward()), (leaving, self._onward())):
                for inner, columns, count in weights:
                    sizes[tokens, inner, columns] += count
        return [Product(*size, count) for size, count in sizes.items()]

    def attention(self, rows: Sequence[int], keys: Sequence[int]) -> int:
        """Operations of one run's attention, hidden pairs among them: 4·d_q for each query and key.

        `rows` are those of `products`; `keys` are what each layer's tokens look at, the prefix among them.
        """
        return sum(4 * self.queries * own * seen for own, seen in zip(rows[1:], keys, strict=True))

    def _inward(self) -> list[tuple[int, int, int]]:
        """Weights that make keys and values: inputs, outputs, and how many such matrices a layer has."""
        return [(self.hidden, self.keys, 2)]

    def _onward(self) -> list[tuple[int, int, int]]:
        """The other weights of a layer: queries and output, and the feed-forward layer."""
        return [
            (self.hidden, self.queries, 1),
            (self.queries, self.hidden, 1),
            (self.hidden, self.ff, 2),
            (self.ff, self.hidden, 1),
        ]
