"""The decoder graph: a model's configuration and its stored weights in, an ONNX model out.

One dynamic-shape graph serves prefill and scoring; the variant `batched` runs whole prompts. Reads as the forward pass
it is; knows nothing of prompts, questions or files other than the weight layout it is given.

Inputs (S new tokens, P cached tokens, T = P + S, R rows read, M labels):
    input_ids int64 [1, S], position_ids int64 [1, S], mask float [1, 1, S, T] (0 visible, -1e4 hidden),
    rows int64 [R], label_ids int64 [M], vocabulary_rows int64 [F] (places in `rows`),
    past.{i}.key / past.{i}.value float [1, kv_heads, P, head_dim];
    the `gqa` variant also takes seqlens_k int32 [1] = T - 1 and total_sequence_length int32 [1] = T.
Outputs:
    label_logits float [R, M], normalizers float [F] (log of the sum of exp over the whole vocabulary's logits at
    those rows), present.{i}.key / present.{i}.value float [1, kv_heads, T, head_dim]; where the model has a pointer
    also projections float [R, pointer_width]: the final states of the rows times the pointer's weights.

The `batched` variant runs B prompts without a cache, padded to S tokens: input_ids and position_ids are [B, S], mask is
[B, 1, S, S], `rows` are places among all B * S tokens, and there is neither past nor present.

A *shallow* graph has layers 0 to k - 1 run all S tokens, and the layers above only the U tokens of them that are sent
up: these have a past of their own, of Pu tokens (Tu = Pu + U). It takes further inputs:
    up_rows int64 [U] (places among the S tokens; at least one), up_mask float [1, 1, U, Tu];
    the `gqa` variant also takes up_seqlens_k int32 [1] = Tu - 1 and up_total_sequence_length int32 [1] = Tu.
P and T are Pu and Tu in past.{i} and present.{i} from layer k on, and `rows` are places among the tokens that are sent
up. The `batched` variant sends all tokens up, and takes up_mask [B, 1, S, S] for the layers from k on.

Sliding windows are the graph's own: a layer that has one hides what lies further back by position, whatever the mask
shows, so that neither prefixes nor packed runs need to know of them. Keys of the past have the positions 0 to P - 1.

Where inputs of matrices are rounded, a difference in the last bit can turn a level, and behind some layers it has grown
to that of the rounding itself. A token's result must not depend on what else is in the run, and so sums over keys, the
only ones whose order does, are exact there (`whole_sums`).

The head is the label rows of the (tied or own) output embedding only: logits of the whole vocabulary exist for the F
rows that need a log-probability, and for no others. In the last layer all tokens leave keys and values, and only the
rows that are read go further; in layer k - 1 of a shallow graph, those that are sent up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnxscript import GraphBuilder

from pybuild.layout import Layout, Matrix
from typedecide.errors import TypedecideError

OPSET = 21
"""ai.onnx operator set of the graph; ONNX Runtime Web 1.30 runs it on every device."""

Variant = Literal["gqa", "explicit", "batched"]

HIDDEN = -1e4
"""Additive mask value of a key that must not be seen."""

WEIGHT_STEPS = 65536
"""Steps of an attention weight, where sums over keys are exact: with 8 bits of a value, products are below 2 ** 24."""

SMALLEST = 1e-30
"""Largest value of a row of zeros, which is to be divided by."""

VALUE_STEPS = 127 * 256
"""Steps of the largest value, where sums over keys are exact."""


class UnsupportedModelError(TypedecideError):
    """The model's configuration asks for something this graph does not compute."""

    code = "UNSUPPORTED_MODEL"


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding: base frequency and, optionally, a scaling rule.

    `scaling` holds the Hugging Face parameters of `linear` or `llama3` scaling, or None.
    """

    theta: float
    scaling: Mapping[str, Any] | None

    def inverse_frequencies(self, head_dim: int) -> NDArray[np.float64]:
        """Angle per position of each rotated pair, [head_dim / 2] radians."""
        inverse = self.theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
        if self.scaling is None:
            return inverse
        factor = float(self.scaling["factor"])
        if self.scaling["rope_type"] == "linear":
            return inverse / factor
        # Llama 3.1: long wavelengths are divided by the factor, short ones kept, the band between blended
        # (transformers, modeling_rope_utils._compute_llama3_parameters).
        low, high = float(self.scaling["low_freq_factor"]), float(self.scaling["high_freq_factor"])
        original = float(self.scaling["original_max_position_embeddings"])
        wavelength = 2 * math.pi / inverse
        blend = np.clip((original / wavelength - low) / (high - low), 0.0, 1.0)
        scaled: NDArray[np.float64] = (1 - blend) * inverse / factor + blend * inverse
        return scaled

    def tables(self, head_dim: int, positions: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Cosine and sine tables, each float32 [positions, head_dim / 2]."""
        angles = np.outer(np.arange(positions, dtype=np.float64), self.inverse_frequencies(head_dim))
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


@dataclass(frozen=True)
class Decoder:
    """What the graph needs to know of a model. Sizes are counts of values, not bytes."""

    family: str
    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ff: int
    eps: float
    tied: bool
    qkv_bias: bool
    o_bias: bool
    qk_norm: bool
    rope: Rope
    positions: int
    gelu: bool = False
    sandwich: bool = False
    unit_norms: bool = False
    embedding_scale: float = 1.0
    query_scalar: float | None = None
    window: int | None = None
    local_rope: Rope | None = None
    local_layers: frozenset[int] = frozenset()
    """The last eight are Gemma's: the feed-forward's gate is a GELU (tanh), not a SiLU; each layer's outputs are normed
    as well, before they are added; norms multiply by 1 + weight; embeddings are scaled; queries are divided by the root
    of `query_scalar`, not of `head_dim`; the `local_layers` see the last `window` positions only, and rotate by
    `local_rope`."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Decoder:
        """Read a Hugging Face `config.json`; raises UnsupportedModelError with the offending value."""
        family = config.get("model_type")
        if family not in FAMILIES:
            known = ", ".join(sorted(FAMILIES))
            raise UnsupportedModelError(
                f"model_type {family!r} is not supported; supported families: {known}", value=family
            )
        act = ACTIVATIONS.get(str(family), "silu")
        if config.get("hidden_act", act) != act:
            raise UnsupportedModelError(
                f"hidden_act {config['hidden_act']!r} is not supported ({act} is)", value=config["hidden_act"]
            )
        heads = int(config["num_attention_heads"])
        return cls(
            family=str(family),
            vocab=int(config["vocab_size"]),
            hidden=int(config["hidden_size"]),
            layers=int(config["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or config["hidden_size"] // heads),
            ff=int(config["intermediate_size"]),
            eps=float(config["rms_norm_eps"]),
            tied=bool(config.get("tie_word_embeddings", False)),
            rope=_rope(config),
            positions=int(config["max_position_embeddings"]),
            **FAMILIES[str(family)](config),
        )

    @property
    def parameters(self) -> int:
        """Number of weights, embeddings included once."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        norms = 4 if self.sandwich else 2
        layer = self.hidden * (2 * q + 2 * kv + 3 * self.ff) + norms * self.hidden
        return self.layers * layer + self.hidden * (1 + self.vocab * (1 if self.tied else 2))

    @property
    def score_scale(self) -> float:
        """What queries are multiplied by."""
        return float((self.query_scalar or self.head_dim) ** -0.5)

    @property
    def ropes(self) -> Mapping[str, Rope]:
        """The rotary embeddings by the name of their tables."""
        return {"rope": self.rope, **({} if self.local_rope is None else {LOCAL_ROPE: self.local_rope})}


def _rope(config: Mapping[str, Any]) -> Rope:
    """Rotary parameters from either spelling: transformers 5 (`rope_parameters`) or the older two keys."""
    spec = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    theta = float(spec.get("rope_theta") or config.get("rope_theta") or 10000.0)
    kind = spec.get("rope_type", spec.get("type", "default"))
    if kind == "default":
        return Rope(theta, None)
    if kind not in ("linear", "llama3"):
        raise UnsupportedModelError(f"rope_type {kind!r} is not supported", value=kind)
    return Rope(theta, {**spec, "rope_type": kind})


def _llama(config: Mapping[str, Any]) -> dict[str, Any]:
    if config.get("mlp_bias"):
        raise UnsupportedModelError("mlp_bias = true is not supported", value=True)
    bias = bool(config.get("attention_bias", False))
    return {"qkv_bias": bias, "o_bias": bias, "qk_norm": False}


def _qwen2(config: Mapping[str, Any]) -> dict[str, Any]:
    _no_sliding_window(config)
    return {"qkv_bias": True, "o_bias": False, "qk_norm": False}


def _qwen3(config: Mapping[str, Any]) -> dict[str, Any]:
    _no_sliding_window(config)
    bias = bool(config.get("attention_bias", False))
    return {"qkv_bias": bias, "o_bias": bias, "qk_norm": True}


def _no_sliding_window(config: Mapping[str, Any]) -> None:
    if config.get("use_sliding_window"):
        raise UnsupportedModelError("use_sliding_window = true is not supported", value=True)


def _gemma3(config: Mapping[str, Any]) -> dict[str, Any]:
    for key in ("attn_logit_softcapping", "final_logit_softcapping", "use_bidirectional_attention"):
        if config.get(key):
            raise UnsupportedModelError(f"{key} = {config[key]!r} is not supported", value=config[key])
    bias = bool(config.get("attention_bias", False))
    types = config["layer_types"]
    for kind in types:
        if kind not in ("sliding_attention", "full_attention"):
            raise UnsupportedModelError(f"the layer type {kind!r} is not supported", value=kind)
    return {
        "qkv_bias": bias,
        "o_bias": bias,
        "qk_norm": True,
        "gelu": True,
        "sandwich": True,
        "unit_norms": True,
        "embedding_scale": math.sqrt(config["hidden_size"]),
        "query_scalar": float(config["query_pre_attn_scalar"]),
        "window": int(config["sliding_window"]),
        "local_rope": Rope(float(config["rope_local_base_freq"]), None),
        "local_layers": frozenset(i for i, kind in enumerate(types) if kind == "sliding_attention"),
    }


ACTIVATIONS: Mapping[str, str] = {"gemma3_text": "gelu_pytorch_tanh"}
"""The activation of a family's feed-forward layers, where it is not silu."""

FAMILIES: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "gemma3_text": _gemma3,
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
}
"""What sets a family apart from the plain decoder. A further family is one entry here."""


def weight_names(decoder: Decoder) -> tuple[list[str], list[str], list[str]]:
    """Hugging Face names of the (embedding tables, matrices, vectors) that the graph reads, in file order."""
    tables = ["model.embed_tokens.weight"] + ([] if decoder.tied else ["lm_head.weight"])
    matrices, vectors = [], []
    for i in range(decoder.layers):
        at, mlp = f"model.layers.{i}.self_attn", f"model.layers.{i}.mlp"
        matrices += [f"{at}.{p}_proj.weight" for p in "qkvo"]
        matrices += [f"{mlp}.{p}_proj.weight" for p in ("gate", "up", "down")]
        norms = ["input_layernorm", "post_attention_layernorm"]
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"] if decoder.sandwich else []
        vectors += [f"model.layers.{i}.{norm}.weight" for norm in norms]
        vectors += [f"{at}.{p}_proj.bias" for p in "qkv"] if decoder.qkv_bias else []
        vectors += [f"{at}.o_proj.bias"] if decoder.o_bias else []
        vectors += [f"{at}.{p}_norm.weight" for p in "qk"] if decoder.qk_norm else []
    return tables, matrices, [*vectors, "model.norm.weight"]


LOCAL_ROPE = "rope.local"
"""Name of the rotary tables of layers with a sliding window."""

TURN = "model.turn.weight"
"""What final states are multiplied by before a tied table, [hidden, hidden], where the weights say so (rotate.py)."""

VALUE_STEP = "value_step"
"""Name, behind that of an attention, of the step that its values are rounded to, where sums over keys are exact."""

POINTER = "pointer.weight"
"""The weights of a trained pointer readout, [pointer_width, hidden], where a model has them."""


INPUTS = "inputs."
"""What begins the name of an output that holds the inputs of a matrix, before the matrix's own name."""

SHARED_INPUTS = {"q_proj": "k_proj", "v_proj": "k_proj", "up_proj": "gate_proj"}
"""Matrices that get what another gets, which stands for them."""


def build(
    decoder: Decoder, layout: Layout, variant: Variant, shallow: int | None = None, inputs: bool = False
) -> bytes:
    """The serialised ONNX model; weights stay in the layout's external data files.

    Args:
        decoder: the model.
        layout: where each stored tensor lies.
        variant: `gqa` (GroupQueryAttention, RotaryEmbedding outside), `explicit` (MatMul and Softmax), or `batched`
            (as explicit, for whole prompts in batches).
        shallow: k, the layers that all tokens go through; None, or as many as there are: the plain graph.
        inputs: give out what the matrices of the layers get too, `inputs.{name}` [1, S, in], of all tokens in all
            layers, whichever rows are read.

    Raises:
        UnsupportedModelError: `shallow` is not from 1 to the number of layers.
        ValueError: the layout asks for exact sums over keys, which the kernel of `gqa` does not have.
    """
    if variant == "gqa" and any(matrix.input_bits < 32 for matrix in layout.matrices.values()):
        raise ValueError(
            "inputs are rounded in this layout: sums over keys must be exact, which gqa's are not"
        )
    cut = shallow_layers(decoder, shallow) or decoder.layers
    graph = ir.Graph([], [], nodes=[], opset_imports={"": OPSET, "com.microsoft": 1}, name="decoder")
    _Forward(decoder, layout, variant, cut, GraphBuilder(graph), inputs).run()
    for node in graph:
        node.metadata_props.clear()
        node.meta.clear()
    model = ir.Model(graph, ir_version=10, producer_name="typedecide")
    return ir.serde.serialize_model(model).SerializeToString(deterministic=True)


def shallow_layers(decoder: Decoder, shallow: int | None) -> int | None:
    """The layers that all tokens go through, where these are not all; UnsupportedModelError where there are no such."""
    if shallow is not None and not 1 <= shallow <= decoder.layers:
        raise UnsupportedModelError(
            f"shallow must be from 1 to the model's {decoder.layers} layers, not {shallow}", value=shallow
        )
    return None if shallow == decoder.layers else shallow


Pair = tuple[ir.Value, ir.Value]
"""Keys and values."""

Attended = tuple[ir.Value, Pair]
"""Mixed values, and present keys and values."""


class _Forward:
    """One trace of the forward pass into a graph."""

    def __init__(
        self,
        decoder: Decoder,
        layout: Layout,
        variant: Variant,
        cut: int,
        builder: GraphBuilder,
        inputs: bool,
    ) -> None:
        self.d, self.layout, self.variant, self.cut = decoder, layout, variant, cut
        self.inputs: list[tuple[str, ir.Value]] | None = [] if inputs else None
        self.builder = builder
        self.op, self.ms = builder.op, builder.opset("com.microsoft", 1)
        # A batch's size in a Reshape: 0 keeps the one that is there.
        self.batch = 0 if variant == "batched" else 1
        self.local = False
        self._loaded: dict[str, ir.Value] = {}
        self._sums: dict[str, ir.Value] = {}
        self._levels: dict[tuple[str, int], list[Pair]] = {}

    def run(self) -> None:
        """Inputs, all layers, label head, outputs."""
        d, op = self.d, self.op
        i64, f32, i32 = ir.DataType.INT64, ir.DataType.FLOAT, ir.DataType.INT32
        batched = self.variant == "batched"
        batch = "B" if batched else 1
        ids = self.builder.input("input_ids", i64, [batch, "S"])
        self.positions = self.builder.input("position_ids", i64, [batch, "S"])
        mask = self.builder.input("mask", f32, [batch, 1, "S", "S" if batched else "T"])
        rows = self.builder.input("rows", i64, ["R"])
        label_ids = self.builder.input("label_ids", i64, ["M"])
        vocabulary_rows = self.builder.input("vocabulary_rows", i64, ["F"])
        if self.variant == "gqa":
            self.seqlens = self.builder.input("seqlens_k", i32, [1])
            self.total = self.builder.input("total_sequence_length", i32, [1])
        self.masks = self.masks_of(mask)
        up_rows = self.up_inputs() if self.cut < d.layers else None
        past: list[Pair | None] = [None] * d.layers
        if not batched:
            past = [self.past(i) for i in range(d.layers)]

        hidden, present = self.embedding("model.embed_tokens.weight", ids), []
        if d.embedding_scale != 1:
            hidden = op.Mul(hidden, d.embedding_scale)
        normed = self.norm(hidden, "model.layers.0.input_layernorm.weight")
        for i, old in enumerate(past):
            at, last = f"model.layers.{i}", i + 1 == d.layers
            self.local = i in d.local_layers
            further = rows if last else up_rows if i + 1 == self.cut else None
            if self.inputs is not None:
                further = None
            # A row of a batch sees the tokens of its own prompt only, so that rows are taken out after attention there.
            early = None if batched else further
            attended, kv = self.attention(normed, f"{at}.self_attn", old, early)
            if further is not None:
                hidden = op.Gather(self.flat(hidden), further, axis=1)
                attended = op.Gather(self.flat(attended), further, axis=1) if early is None else attended
            if i + 1 == self.cut and not last:
                self.go_up(up_rows)
            before = "post_attention_layernorm"
            if d.sandwich:
                attended, before = self.norm(attended, f"{at}.{before}.weight"), "pre_feedforward_layernorm"
            hidden, normed = self.add_norm(hidden, attended, f"{at}.{before}.weight")
            fed = self.feed_forward(normed, f"{at}.mlp")
            if d.sandwich:
                fed = self.norm(fed, f"{at}.post_feedforward_layernorm.weight")
            following = "model.norm" if last else f"model.layers.{i + 1}.input_layernorm"
            hidden, normed = self.add_norm(hidden, fed, f"{following}.weight")
            present.append(kv)
        states = op.Reshape(normed, [-1, d.hidden])
        read = op.MatMul(states, self.tensor(TURN)) if TURN in self.layout else states

        outputs: list[tuple[str, ir.Value, list[int | str | None]]] = [
            ("label_logits", self.label_head(read, label_ids), ["R", "M"]),
            ("normalizers", self.normalizers(op.Gather(read, vocabulary_rows, axis=0)), ["F"]),
        ]
        if POINTER in self.layout:
            outputs.append(("projections", self.matmul(states, POINTER), ["R", "W"]))
        outputs += [(f"{INPUTS}{name}", x, [1, "S", "K"]) for name, x in self.inputs or []]
        for name, output, shape in outputs:
            output.dtype, output.shape = f32, ir.Shape(shape)
            self.builder.add_output(output, name)
        for i, pair in enumerate([] if batched else present):
            for part, tensor in zip(("key", "value"), pair, strict=True):
                tokens = "T" if i < self.cut else "Tu"
                tensor.dtype, tensor.shape = f32, ir.Shape([1, d.kv_heads, tokens, d.head_dim])
                self.builder.add_output(tensor, f"present.{i}.{part}")

    def up_inputs(self) -> ir.Value | None:
        """What the layers from the cut on take; the tokens that are sent up, None where all are."""
        i64, f32, i32 = ir.DataType.INT64, ir.DataType.FLOAT, ir.DataType.INT32
        if self.variant == "batched":
            self.up_mask = self.builder.input("up_mask", f32, ["B", 1, "S", "S"])
            return None
        up_rows = self.builder.input("up_rows", i64, ["U"])
        self.up_mask = self.builder.input("up_mask", f32, [1, 1, "U", "Tu"])
        if self.variant == "gqa":
            self.up_seqlens = self.builder.input("up_seqlens_k", i32, [1])
            self.up_total = self.builder.input("up_total_sequence_length", i32, [1])
        return up_rows

    def go_up(self, up_rows: ir.Value | None) -> None:
        """From here on the layers run the tokens that are sent up."""
        if up_rows is not None:
            self.positions = self.op.Gather(self.positions, up_rows, axis=1)
        if self.variant == "gqa":
            self.seqlens, self.total = self.up_seqlens, self.up_total
        self.masks = self.masks_of(self.up_mask)

    def masks_of(self, mask: ir.Value) -> dict[bool, tuple[ir.Value, ir.Value | None]]:
        """The mask of layers without and with a window, each also stacked for the variants that want it so."""
        masks = {False: mask}
        if self.d.local_layers:
            masks[True] = self.windowed(mask)
        return {
            local: (one, None if self.variant == "gqa" else self.stack(one)) for local, one in masks.items()
        }

    def windowed(self, mask: ir.Value) -> ir.Value:
        """A mask [B, 1, S, T] that also hides what is `window` positions or more before a token."""
        op, d = self.op, self.d
        # Floating point, which GPUs have for all of these; exact below 2 ** 24.
        own = op.Cast(self.positions, to=ir.DataType.FLOAT)
        keys = own
        if self.variant != "batched":
            total, new = (op.Shape(mask, start=axis, end=axis + 1) for axis in (3, 2))
            past = op.Range(self.scalar(0), op.Squeeze(op.Sub(total, new)), self.scalar(1))
            keys = op.Concat(op.Cast(op.Unsqueeze(past, [0]), to=ir.DataType.FLOAT), own, axis=1)
        distance = op.Sub(op.Unsqueeze(own, [1, 3]), op.Unsqueeze(keys, [1, 2]))
        return op.Where(op.Less(distance, float(d.window or 0)), mask, HIDDEN)

    def scalar(self, value: int) -> ir.Value:
        """An integer without dimensions."""
        return self.op.Constant(value=ir.tensor(value, dtype=ir.DataType.INT64))

    def past(self, i: int) -> Pair:
        """The inputs that hold a layer's cached keys and values."""
        tokens = "P" if i < self.cut else "Pu"
        shape: list[int | str | None] = [1, self.d.kv_heads, tokens, self.d.head_dim]
        key, value = (
            self.builder.input(f"past.{i}.{part}", ir.DataType.FLOAT, shape) for part in ("key", "value")
        )
        return key, value

    def flat(self, x: ir.Value) -> ir.Value:
        """The tokens of all prompts of a batch as those of one: [B, S, hidden] to [1, B * S, hidden]."""
        return self.op.Reshape(x, [1, -1, self.d.hidden]) if self.variant == "batched" else x

    # -- the layers --------------------------------------------------------------------------------------

    def attention(self, x: ir.Value, at: str, past: Pair | None, rows: ir.Value | None) -> Attended:
        """Self-attention of x [1, S, hidden] over past and new tokens; returns output and present KV.

        With `rows` the output is that of these rows only.
        """
        key = self.rotate(self.project(x, f"{at}.k_proj"), f"{at}.k_norm", self.d.kv_heads, self.positions)
        value = self.project(x, f"{at}.v_proj")
        if self.variant == "gqa" and past is not None:
            mixed, present = self.grouped_query(x, at, (key, value), past, rows)
        else:
            mixed, present = self.explicit(x, at, (key, value), past, rows)
        return self.project(mixed, f"{at}.o_proj"), present

    def query(self, x: ir.Value, at: str, positions: ir.Value) -> ir.Value:
        """Rotated queries of x [1, N, hidden] at N positions: [1, N, heads * head_dim]."""
        return self.rotate(self.project(x, f"{at}.q_proj"), f"{at}.q_norm", self.d.heads, positions)

    def grouped_query(self, x: ir.Value, at: str, new: Pair, past: Pair, rows: ir.Value | None) -> Attended:
        """Attention in one kernel. RoPE stays outside: on WebGPU the kernel ignores `position_ids`.

        The kernel wants as many queries as new keys, so that `rows` are taken out of its result.
        """
        mixed, present_key, present_value = self.ms.GroupQueryAttention(
            *(self.query(x, at, self.positions), *new, *past, self.seqlens, self.total),
            *(None, None, None, self.masks[self.local][0]),
            num_heads=self.d.heads,
            kv_num_heads=self.d.kv_heads,
            scale=self.d.score_scale,
            do_rotary=0,
            _outputs=3,
        )
        read = mixed if rows is None else self.op.Gather(mixed, rows, axis=1)
        return read, (present_key, present_value)

    def explicit(self, x: ir.Value, at: str, new: Pair, past: Pair | None, rows: ir.Value | None) -> Attended:
        """softmax(Q K^T * scale + mask) V, with the G query heads of a key head stacked as rows."""
        op, d = self.op, self.d
        group = d.heads // d.kv_heads
        keys, values = (self.heads_first(one, d.kv_heads) for one in new)
        if past is not None:
            keys, values = op.Concat(past[0], keys, axis=2), op.Concat(past[1], values, axis=2)
        plain, mask = self.masks[self.local]
        positions = self.positions
        if rows is not None:
            x, positions = op.Gather(x, rows, axis=1), op.Gather(positions, rows, axis=1)
            mask = self.stack(op.Gather(plain, rows, axis=2))
        scaled = op.Mul(self.query(x, at, positions), d.score_scale)
        split = op.Transpose(
            op.Reshape(scaled, [self.batch, -1, d.kv_heads, group, d.head_dim]), perm=[0, 2, 3, 1, 4]
        )
        stacked = op.Reshape(split, [self.batch, d.kv_heads, -1, d.head_dim])
        scores = op.Add(op.MatMul(stacked, op.Transpose(keys, perm=[0, 1, 3, 2])), mask)
        if f"{at}.{VALUE_STEP}" in self.layout:
            mixed = self.whole_sums(scores, values, self.tensor(f"{at}.{VALUE_STEP}"))
        else:
            mixed = op.MatMul(op.Softmax(scores, axis=-1), values)
        unstacked = op.Reshape(mixed, [self.batch, d.kv_heads, group, -1, d.head_dim])
        ordered = op.Transpose(unstacked, perm=[0, 3, 1, 2, 4])
        return op.Reshape(ordered, [self.batch, -1, d.heads * d.head_dim]), (keys, values)

    def whole_sums(self, scores: ir.Value, values: ir.Value, step: ir.Value) -> ir.Value:
        """softmax(scores) values, the same to the last bit in whichever order the keys stand.

        Weights are rounded to whole steps, and values too, in halves of 8 bits each, so that all sums of their products
        are whole numbers that float32 holds. What the weights are divided by is summed in float64.
        """
        op = self.op
        raised = op.Exp(op.Sub(scores, op.ReduceMax(scores, [-1], keepdims=1)))
        total = op.ReduceSum(op.Cast(raised, to=ir.DataType.DOUBLE), [-1], keepdims=1)
        share = op.Div(float(WEIGHT_STEPS), op.Cast(total, to=ir.DataType.FLOAT))
        high, low = self.halves(op.Round(op.Div(values, step)))
        sums = op.MatMul(op.Round(op.Mul(raised, share)), op.Concat(high, low, axis=-1))
        high, low = op.Split(sums, num_outputs=2, axis=-1, _outputs=2)
        return op.Mul(op.Add(op.Mul(high, 256.0), low), op.Div(step, float(WEIGHT_STEPS)))

    def halves(self, levels: ir.Value) -> Pair:
        """Whole numbers of 16 bits as (high, low) with levels = 256 high + low, low from -128 to 127."""
        op = self.op
        high = op.Floor(op.Add(op.Mul(levels, 1 / 256), 0.5))
        return high, op.Sub(levels, op.Mul(high, 256.0))

    def stack(self, mask: ir.Value) -> ir.Value:
        """A mask for the query rows of the heads that share a key head, which are stacked head by head."""
        return self.op.Concat(*[mask] * (self.d.heads // self.d.kv_heads), axis=2)

    def feed_forward(self, x: ir.Value, at: str) -> ir.Value:
        """down(act(gate(x)) * up(x)), with the family's activation: SiLU, or GELU by its tanh formula."""
        gate = self.project(x, f"{at}.gate_proj")
        act = self.ms.FastGelu(gate) if self.d.gelu else self.op.Mul(gate, self.op.Sigmoid(gate))
        return self.project(self.op.Mul(act, self.project(x, f"{at}.up_proj")), f"{at}.down_proj")

    def label_head(self, states: ir.Value, label_ids: ir.Value) -> ir.Value:
        """Logits of the labels at final states [R, hidden]: [R, M]."""
        labels = self.op.Transpose(self.embedding(self.head_table, label_ids), perm=[1, 0])
        return self.op.MatMul(states, labels)

    def normalizers(self, states: ir.Value) -> ir.Value:
        """log(sum(exp(logits))) over the whole vocabulary at final states [F, hidden]: [F]."""
        op, matrix = self.op, self.layout.matrices[self.head_table]
        if matrix.bits == 32:
            logits = op.Gemm(states, self.tensor(self.head_table), transB=1)
        else:
            logits = self.multiply_nbits(states, self.head_table, matrix)
        return op.ReduceLogSumExp(logits, [-1], keepdims=0)

    @property
    def head_table(self) -> str:
        """The table whose rows are the output embedding."""
        return "model.embed_tokens.weight" if self.d.tied else "lm_head.weight"

    # -- the pieces --------------------------------------------------------------------------------------

    def rotate(self, x: ir.Value, norm: str, heads: int, positions: ir.Value) -> ir.Value:
        """Per-head norm where the family has one, then RoPE by explicit positions; [1, N, heads * head_dim]."""
        if self.d.qk_norm:
            split = self.op.Reshape(x, [self.batch, -1, heads, self.d.head_dim])
            x = self.op.Reshape(self.norm(split, f"{norm}.weight"), [self.batch, -1, heads * self.d.head_dim])
        tables = LOCAL_ROPE if self.local else "rope"
        cos, sin = self.tensor(f"{tables}.cos"), self.tensor(f"{tables}.sin")
        return self.ms.RotaryEmbedding(x, positions, cos, sin, interleaved=0)

    def heads_first(self, x: ir.Value, heads: int) -> ir.Value:
        """[1, S, heads * head_dim] to [1, heads, S, head_dim]."""
        return self.op.Transpose(
            self.op.Reshape(x, [self.batch, -1, heads, self.d.head_dim]), perm=[0, 2, 1, 3]
        )

    def norm(self, x: ir.Value, weight: str) -> ir.Value:
        """RMSNorm over the last axis."""
        return self.op.SimplifiedLayerNormalization(x, self.tensor(weight), axis=-1, epsilon=self.d.eps)

    def add_norm(self, x: ir.Value, delta: ir.Value, weight: str) -> tuple[ir.Value, ir.Value]:
        """(x + delta, RMSNorm(x + delta)) in one kernel."""
        normed, _, _, total = self.ms.SkipSimplifiedLayerNormalization(
            x, delta, self.tensor(weight), epsilon=self.d.eps, _outputs=4
        )
        return total, normed

    def project(self, x: ir.Value, at: str) -> ir.Value:
        """x W^T (+ bias) in the layout's weight format."""
        if self.inputs is not None and at.rpartition(".")[2] not in SHARED_INPUTS:
            self.inputs.append((f"{at}.weight", x))
        y = self.matmul(x, f"{at}.weight")
        bias = f"{at}.bias"
        return self.op.Add(y, self.tensor(bias)) if bias in self.layout else y

    def matmul(self, x: ir.Value, name: str) -> ir.Value:
        op, matrix = self.op, self.layout.matrices[name]
        if matrix.bits == 32:
            return op.MatMul(x, self.tensor(name))
        if matrix.input_bits < 32:
            return self.multiply_integers(x, name, matrix)
        product = self.multiply_nbits(x, name, matrix)
        if matrix.bits == 8:
            return product
        # int4: the offset of a block multiplies the sum of its inputs.
        return op.Add(product, op.MatMul(self.block_sums(x, matrix), self.tensor(f"{name}.offset")))

    def multiply_nbits(self, x: ir.Value, name: str, matrix: Matrix) -> ir.Value:
        """x times the scaled levels of a quantised matrix, transposed."""
        return self.ms.MatMulNBits(
            *(x, self.tensor(f"{name}.q"), self.tensor(f"{name}.scale")),
            K=matrix.inputs,
            N=matrix.outputs,
            bits=matrix.bits,
            block_size=matrix.block,
        )

    def multiply_integers(self, x: ir.Value, name: str, matrix: Matrix) -> ir.Value:
        """x, each row rounded to whole steps of its own, times a matrix of levels, in exact integer sums."""
        op, zero = self.op, self.op.Constant(value=ir.tensor(np.array(128, np.uint8)))
        parts = []
        for levels, step in self.levels(x, matrix.input_bits):
            product = op.MatMulInteger(levels, self.tensor(f"{name}.q"), zero, zero)
            parts.append(op.Mul(op.Cast(product, to=ir.DataType.FLOAT), step))
        whole = parts[0] if len(parts) == 1 else op.Add(*parts)
        return op.Mul(whole, self.tensor(f"{name}.scale"))

    def levels(self, x: ir.Value, bits: int) -> list[Pair]:
        """x as (uint8 levels with zero point 128, their step [1, S, 1]), one pair for each 8 bits, which add up to x.

        One set of nodes for all users of x.
        """
        key, op = (x.name or "", bits), self.op
        if key not in self._levels:
            largest = op.Max(op.ReduceMax(op.Abs(x), [-1], keepdims=1), SMALLEST)
            step = op.Div(largest, 127.0 if bits == 8 else 127.0 * 256)
            rounded = op.Round(op.Div(x, step))
            pairs = [(rounded, step)]
            if bits == 16:
                high, low = self.halves(rounded)
                pairs = [(high, op.Mul(step, 256.0)), (low, step)]
            self._levels[key] = [
                (op.Cast(op.Add(whole, 128.0), to=ir.DataType.UINT8), its) for whole, its in pairs
            ]
        return self._levels[key]

    def block_sums(self, x: ir.Value, matrix: Matrix) -> ir.Value:
        """Sums of x over the blocks of its last axis, [1, S, in / block]; one node for all users of x."""
        key = x.name or ""
        if key not in self._sums:
            split = self.op.Reshape(x, [self.batch, -1, matrix.inputs // matrix.block, matrix.block])
            self._sums[key] = self.op.ReduceSum(split, [-1], keepdims=0)
        return self._sums[key]

    def embedding(self, name: str, ids: ir.Value) -> ir.Value:
        """Rows of an embedding table, float32 [..., hidden].

        Quantised tables are gathered as bytes and expanded row by row with plain operators:
        GatherBlockQuantized has no CPU kernel in the WebGPU builds.
        """
        op, matrix = self.op, self.layout.matrices[name]
        if matrix.bits == 32:
            return op.Gather(self.tensor(name), ids, axis=0)
        lead = [0] * len(ids.shape or ())
        blocks = op.Cast(op.Gather(self.tensor(f"{name}.q"), ids, axis=0), to=ir.DataType.FLOAT)
        scale = op.Unsqueeze(op.Gather(self.tensor(f"{name}.scale"), ids, axis=0), [-1])
        return op.Reshape(op.Mul(op.Sub(blocks, 128.0), scale), [*lead, self.d.hidden])

    def tensor(self, name: str) -> ir.Value:
        """A stored tensor as an initializer, loaded once."""
        if name not in self._loaded:
            self._loaded[name] = self.builder.initializer(self.layout.external(name), name, qualify=False)
        return self._loaded[name]
