"""The same decoder in other coordinates, in which no channel stands out. Knows weights, no formats and no graphs.

A few channels of a decoder's hidden states are many times larger than the rest, and where a row of inputs shares one
scale the others are rounded away. An orthogonal matrix R spreads them: the residual stream is h R instead of h, which
costs nothing at run time, because R and the weights of the norms go into the matrices before and after it (QuaRot,
Ashkboos et al., 2024, arXiv 2404.00456). Each head's values are turned likewise, between `v_proj` and `o_proj`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pybuild.graph import TURN, Decoder
from pybuild.weights import Float32, Weights


def mixer(size: int) -> NDArray[np.float32]:
    """An orthogonal matrix [size, size] whose entries are alike in size: random signs, then a cosine transform."""
    row, column = np.arange(size)[:, None], np.arange(size)[None, :]
    cosines = np.sqrt(2 / size) * np.cos(np.pi * (2 * column + 1) * row / (2 * size))
    cosines[0] /= np.sqrt(2)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size)
    mixed: NDArray[np.float32] = (signs[:, None] * cosines).astype(np.float32)
    return mixed


def can_rotate(decoder: Decoder) -> bool:
    """Whether norms stand before matrices only: the weights of one behind a layer could go into none."""
    return not decoder.sandwich


class Rotated:
    """A decoder's weights in the other coordinates; `names` has TURN besides, where the output embedding is tied.

    Norms are left without weights. A tied table takes the rotation of the inputs, and so TURN, [hidden, hidden], does
    to the final states what the last norm's weights did: diag(norm) between R and its inverse.
    """

    def __init__(self, decoder: Decoder, weights: Weights) -> None:
        self._decoder, self._weights = decoder, weights
        self._mixer, self._head_mixer = mixer(decoder.hidden), mixer(decoder.head_dim)

    def names(self) -> Sequence[str]:
        """All tensor names, sorted."""
        return sorted([*self._weights.names(), *([TURN] if self._decoder.tied else [])])

    def get(self, name: str) -> Float32:
        """The tensor of that name as float32."""
        last = "model.norm.weight"
        if name == TURN and self._decoder.tied:
            return _product(self._mixer.T * self._weights.get(last), self._mixer)
        found, part = self._weights.get(name), name.split(".")[-2]
        match part:
            case "norm" | "input_layernorm" | "post_attention_layernorm":
                return np.ones_like(found)
            case "embed_tokens":
                return _product(found, self._mixer)
            case "lm_head" | "pointer":
                return _product(found * self._weights.get(last), self._mixer)
            case "q_proj" | "k_proj" | "v_proj" | "gate_proj" | "up_proj" if found.ndim == 2:
                found = self._after_norm(name, found)
            case "down_proj" | "o_proj":
                found = _product(self._mixer.T, found)
        if part == "v_proj":
            return self._turn_heads(found)
        return self._turn_heads(found.T).T if part == "o_proj" and found.ndim == 2 else found

    def _after_norm(self, name: str, matrix: Float32) -> Float32:
        """A matrix with the weights of the norm before it, and with the inputs' rotation taken back."""
        layer = name.split(".self_attn.")[0] if ".self_attn." in name else name.split(".mlp.")[0]
        norm = "input_layernorm" if ".self_attn." in name else "post_attention_layernorm"
        return _product(matrix * self._weights.get(f"{layer}.{norm}.weight"), self._mixer)

    def _turn_heads(self, values: Float32) -> Float32:
        """Rows [heads * head_dim, …] with those of each head mixed."""
        heads = values.reshape(-1, self._decoder.head_dim, *values.shape[1:])
        mixed: Float32 = np.einsum("hd...,de->he...", heads, self._head_mixer).reshape(values.shape)
        return mixed


def _product(left: Float32, right: Float32) -> Float32:
    """Their matrix product."""
    product: Float32 = left @ right
    return product
