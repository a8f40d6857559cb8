"""The decoder in PyTorch: frozen weights, and a low-rank adapter on every linear layer.

The same arithmetic as `pybuild/graph.py`, for sequences of tokens with explicit positions and masks, which run as one:
all that is done token by token is done for all of them at once.
Knows token ids, no prompts and no questions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pybuild.graph import Decoder, UnsupportedModelError
from pybuild.weights import Weights

HIDDEN = -1e4
"""Added to the score of a token that must not be seen."""


class AdaptedProduct(torch.autograd.Function):
    """x W^T + scale (x A^T) B^T for layers that read the same x, stacked; `parts` are their outputs.

    x [S, in], W [sum of parts, in], A [layers * rank, in], B [sum of parts, rank]. Written out because W has no
    gradient and because the small products can be added in place: this is where the time goes.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, a: Tensor, b: Tensor, parts: Sequence[int], scale: float
    ) -> Tensor:
        """The product, [S, sum of parts]."""
        low, y = x @ a.T, x @ w.T
        for out, inner, rows in zip(y.split(parts, 1), low.chunk(len(parts), 1), b.split(parts), strict=True):
            out.addmm_(inner, rows.T, alpha=scale)
        ctx.save_for_backward(x, w, a, b, low)
        ctx.parts, ctx.scale = parts, scale
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of x, A and B."""
        x, w, a, b, low = ctx.saved_tensors
        parts, (dy,) = ctx.parts, grads
        stacked = list(zip(dy.split(parts, 1), low.chunk(len(parts), 1), b.split(parts), strict=True))
        dlow = torch.cat([out @ rows for out, _, rows in stacked], 1).mul_(ctx.scale)
        db = torch.cat([out.T @ inner for out, inner, _ in stacked]).mul_(ctx.scale)
        dx = (dy @ w).addmm_(dlow, a) if ctx.needs_input_grad[0] else None
        return dx, None, dlow.T @ x, db, None, None


class Linear(nn.Module):
    """Linear layers that read the same input, stacked, each with an adapter of its own."""

    def __init__(
        self, weights: Weights, names: Sequence[str], rank: int, scale: float, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.names, self.rank, self.scale, self.enabled = tuple(names), rank, scale, True
        tables = [_tensor(weights, f"{name}.weight") for name in names]
        self.parts = [len(table) for table in tables]
        self.weight = nn.Buffer(torch.cat(tables).to(dtype))
        have = set(weights.names())
        biases = [_tensor(weights, f"{name}.bias") for name in names if f"{name}.bias" in have]
        self.bias = nn.Buffer(torch.cat(biases).to(dtype)) if biases else None
        width = tables[0].shape[1]
        self.a = nn.Parameter(torch.randn(len(names) * rank, width) / math.sqrt(width))
        self.b = nn.Parameter(torch.zeros(sum(self.parts), rank))

    def forward(self, x: Tensor) -> Tensor:
        """[S, in] -> [S, sum of parts]."""
        if self.enabled:
            a, b = self.a.to(x.dtype), self.b.to(x.dtype)
            y: Tensor = AdaptedProduct.apply(x, self.weight, a, b, self.parts, self.scale)
        else:
            y = x @ self.weight.T
        return y if self.bias is None else y + self.bias

    def adapters(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """(name, A [rank, in], B [out, rank]) of each layer."""
        yield from zip(self.names, self.a.split(self.rank), self.b.split(self.parts), strict=True)


class Norm(nn.Module):
    """RMSNorm over the last axis, computed in float32 and given in `dtype`."""

    def __init__(self, weights: Weights, name: str, eps: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Buffer(_tensor(weights, f"{name}.weight"))
        self.eps, self.dtype = eps, dtype

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape whose last axis the weight has."""
        x = x.float()
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        return (x * scale * self.weight).to(self.dtype)


class Layer(nn.Module):
    """Attention and feed-forward, each behind a norm and added to the residual stream."""

    def __init__(
        self, d: Decoder, weights: Weights, index: int, rank: int, scale: float, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.d = d
        at = f"model.layers.{index}"

        def linear(*names: str) -> Linear:
            return Linear(weights, [f"{at}.{name}_proj" for name in names], rank, scale, dtype)

        def norm(name: str) -> Norm:
            return Norm(weights, f"{at}.{name}", d.eps, dtype)

        self.input_norm, self.post_norm = norm("input_layernorm"), norm("post_attention_layernorm")
        self.qkv, self.o = linear("self_attn.q", "self_attn.k", "self_attn.v"), linear("self_attn.o")
        self.qk_norms = nn.ModuleList(norm(f"self_attn.{p}_norm") for p in "qk") if d.qk_norm else None
        self.gate_up, self.down = linear("mlp.gate", "mlp.up"), linear("mlp.down")

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], masks: Sequence[Tensor]) -> Tensor:
        """The residual stream x, float32 [S, hidden], behind this layer."""
        x = x + self.attention(self.input_norm(x), turn, masks)
        gate, up = self.gate_up(self.post_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)

    def attention(self, x: Tensor, turn: tuple[Tensor, Tensor], masks: Sequence[Tensor]) -> Tensor:
        """Attention within each sequence; `masks` has one [kv_heads, G * length, length] for each of them."""
        d = self.d
        q, k, v = (part.view(len(x), -1, d.head_dim) for part in self.qkv(x).split(self.qkv.parts, -1))
        if self.qk_norms is not None:
            q, k = self.qk_norms[0](q), self.qk_norms[1](k)
        lengths = [mask.shape[-1] for mask in masks]
        split = (part.transpose(0, 1).split(lengths, 1) for part in (_rotate(q, *turn), _rotate(k, *turn), v))
        mixed = [self.mix(*one) for one in zip(*split, masks, strict=True)]
        output: Tensor = self.o(torch.cat(mixed, 1).transpose(0, 1).reshape(len(x), -1))
        return output

    def mix(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """softmax(Q K^T / sqrt(head_dim) + mask) V of one sequence, [heads, length, head_dim].

        Written out: with a mask, PyTorch's own kernel takes several times as long on a processor. Query rows of the
        heads that share a key head are stacked.
        """
        stacked = q.reshape(self.d.kv_heads, -1, self.d.head_dim)
        scores = torch.baddbmm(mask, stacked, k.transpose(1, 2), alpha=self.d.head_dim**-0.5)
        return torch.bmm(scores.softmax(-1), v).view(q.shape)


class TorchDecoder(nn.Module):
    """All layers. Adapters are float32 parameters that start as no change; all else is frozen in `dtype`."""

    def __init__(
        self, d: Decoder, weights: Weights, rank: int, alpha: float, dtype: torch.dtype = torch.bfloat16
    ) -> None:
        super().__init__()
        if d.sandwich:
            raise UnsupportedModelError(f"{d.family} models cannot be trained yet", value=d.family)
        self.d, self.dtype = d, dtype
        self.embedding = nn.Buffer(_tensor(weights, "model.embed_tokens.weight").to(dtype))
        self.head = self.embedding if d.tied else nn.Buffer(_tensor(weights, "lm_head.weight").to(dtype))
        self.layers = nn.ModuleList(Layer(d, weights, i, rank, alpha / rank, dtype) for i in range(d.layers))
        self.norm = Norm(weights, "model.norm", d.eps, torch.float32)
        self.frequencies = nn.Buffer(torch.from_numpy(d.rope.inverse_frequencies(d.head_dim)))

    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        visible: Sequence[Tensor],
        rows: Tensor,
        shallow: int | None = None,
        upper: Sequence[Tensor] = (),
    ) -> Tensor:
        """Final-norm states, float32 [R, hidden].

        Args:
            ids, positions: int64 [S], of all sequences one after another.
            visible: bool [length, length] for each sequence; row t says which of its tokens token t sees.
            rows: int64 [R], the tokens that are read.
            shallow, upper: of a shallow model, as `visible` for the layers from number `shallow` on.
        """
        layers = len(self.layers)
        x = self.through(self.embed(ids), positions, visible, range(layers if shallow is None else shallow))
        if shallow is not None:
            x = self.through(x, positions, upper, range(shallow, layers))
        return self.read(x, rows)

    def embed(self, ids: Tensor) -> Tensor:
        """The residual stream before the first layer, float32 [S, hidden]."""
        return self.embedding[ids].float()

    def through(self, x: Tensor, positions: Tensor, visible: Sequence[Tensor], layers: range) -> Tensor:
        """The residual stream x, float32 [S, hidden], behind these layers; see `forward`."""
        angles = positions[:, None, None] * self.frequencies
        turn = angles.cos().to(self.dtype), angles.sin().to(self.dtype)
        masks = [self._mask(one) for one in visible]
        for layer in layers:
            x = self.layers[layer](x, turn, masks)
        return x

    def read(self, x: Tensor, rows: Tensor) -> Tensor:
        """Final-norm states of the tokens that are read, float32 [R, hidden]."""
        states: Tensor = self.norm(x[rows])
        return states

    def _mask(self, visible: Tensor) -> Tensor:
        """What is added to the scores, for every stacked query row: [kv_heads, G * length, length]."""
        mask = torch.zeros(visible.shape, dtype=self.dtype, device=visible.device)
        mask.masked_fill_(~visible, HIDDEN)
        return mask.repeat(self.d.heads // self.d.kv_heads, 1).expand(self.d.kv_heads, -1, -1)

    def next_tokens(self, states: Tensor) -> Tensor:
        """Log-probabilities of the next token after each state: [R, hidden] -> float32 [R, vocabulary]."""
        return (states.to(self.head.dtype) @ self.head.T).float().log_softmax(-1)

    @contextmanager
    def unadapted(self) -> Iterator[None]:
        """Without the adapters: the base model."""
        adapted = [linear for linear in self.linears() if linear.enabled]
        for linear in adapted:
            linear.enabled = False
        try:
            yield
        finally:
            for linear in adapted:
                linear.enabled = True

    def linears(self) -> list[Linear]:
        """All adapted layers."""
        return [module for module in self.modules() if isinstance(module, Linear)]


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of x [S, heads, head_dim]; cos and sin are [S, 1, head_dim / 2]."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def _tensor(weights: Weights, name: str) -> Tensor:
    return torch.from_numpy(weights.get(name).copy())
