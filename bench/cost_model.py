"""What shallow prefill should save: floating-point operations and cache bytes of a decoder, counted by hand.

A multiplication with an addition counts as two operations, and of the layers only matrix products count, as in Kaplan
et al., "Scaling Laws for Neural Language Models" (2020), section 2.1; attention is causal, so that token i sees i keys.
Which layer sees which tokens is SPEED's policy (Oh et al., 2026, arXiv 2605.06105). Knows no engine and no clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

FLOAT_BYTES = 4
"""Of a value in a cache: activations are float32 in every weight format."""


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
