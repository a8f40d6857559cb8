"""A GGUF file as a Hugging Face model: its metadata as a config, its tensors as weights.

Knows llama, qwen2, qwen3 and gemma3 files. Knows nothing about where the file came from; the tokenizer is
`tokenizer.py`'s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, ReaderTensor
from gguf.quants import dequantize
from numpy.typing import NDArray

from pybuild.weights import Float32, SourceError, missing_tensor

_GGUF_NAMES: Mapping[str, str] = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_GGUF_LAYER_NAMES: Mapping[str, str] = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GEMMA3_LAYER_NAMES: Mapping[str, str] = {
    **_GGUF_LAYER_NAMES,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
ROPE_FACTORS = "rope_freqs.weight"
"""The one GGUF tensor that is no weight: the frequency factors of Llama 3's rotary scaling."""


def hf_name(name: str, architecture: str = "llama") -> str:
    """The Hugging Face name of a GGUF tensor.

    >>> hf_name("blk.3.attn_q.weight")
    'model.layers.3.self_attn.q_proj.weight'
    >>> hf_name("blk.3.ffn_norm.weight", "gemma3")
    'model.layers.3.pre_feedforward_layernorm.weight'
    """
    layers = _GEMMA3_LAYER_NAMES if architecture == "gemma3" else _GGUF_LAYER_NAMES
    stem, _, kind = name.rpartition(".")
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    if layer and layer[2] in layers:
        return f"model.layers.{layer[1]}.{layers[layer[2]]}.{kind}"
    if stem in _GGUF_NAMES:
        return f"{_GGUF_NAMES[stem]}.{kind}"
    raise SourceError(f"The GGUF tensor {name!r} belongs to no model that this build knows.", tensor=name)


def unpermute_rope(rows: Float32, heads: int) -> Float32:
    """Undo GGUF's order of the rows of Q and K, in which the two halves of a head are interleaved.

    GGUF stores Llama's rotary pairs side by side (2i, 2i+1); Hugging Face rotates halves (i, i + size/2).
    """
    half = rows.shape[0] // heads // 2
    return np.ascontiguousarray(
        rows.reshape(heads, half, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
    )


class GgufWeights:
    """The tensors of a GGUF file, dequantised.

    Llama files have the rows of Q and K reordered; Gemma files hold 1 + weight of each norm.
    """

    def __init__(self, reader: GGUFReader, architecture: str, *, heads: int, kv_heads: int) -> None:
        self._tensors: dict[str, ReaderTensor] = {
            hf_name(tensor.name, architecture): tensor
            for tensor in reader.tensors
            if tensor.name != ROPE_FACTORS
        }
        self._permuted, self._raised_norms = architecture == "llama", architecture == "gemma3"
        self._heads, self._kv_heads = heads, kv_heads

    def names(self) -> Sequence[str]:
        """All tensor names, sorted."""
        return sorted(self._tensors)

    def get(self, name: str) -> Float32:
        """The tensor of that name, dequantised to float32 as llama.cpp does it."""
        if name not in self._tensors:
            raise missing_tensor(name, list(self._tensors))
        tensor = self._tensors[name]
        try:
            values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        except NotImplementedError as error:
            raise SourceError(
                f"Tensor {name!r} has the number type {tensor.tensor_type.name}, which cannot be read.",
                tensor=name,
                dtype=tensor.tensor_type.name,
            ) from error
        # GGUF gives dimensions innermost first.
        values = values.reshape([int(size) for size in reversed(tensor.shape)])
        if self._raised_norms and "norm" in name:
            return values - np.float32(1)
        if self._permuted and ".q_proj." in name:
            return unpermute_rope(values, self._heads)
        if self._permuted and ".k_proj." in name:
            return unpermute_rope(values, self._kv_heads)
        return values


# ---- metadata

_ARCHITECTURES: Mapping[str, str] = {
    "gemma3": "Gemma3ForCausalLM",
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_REQUIRED = object()


class GgufModel:
    """An open GGUF file: `config` in the terms of config.json, `weights`, and `field()` for any other metadata."""

    def __init__(self, path: Path) -> None:
        try:
            self._reader = GGUFReader(path)
        except (OSError, ValueError, IndexError, KeyError) as error:
            raise SourceError(f"{path.name} is not a readable GGUF file: {error}", file=path.name) from error
        self.architecture = str(self.field("general.architecture"))
        if self.architecture not in _ARCHITECTURES:
            raise SourceError(
                f"{path.name} holds a {self.architecture!r} model; {', '.join(_ARCHITECTURES)} can be read.",
                architecture=self.architecture,
            )
        self.config = self._read_config()
        self.weights = GgufWeights(
            self._reader,
            self.architecture,
            heads=self.config["num_attention_heads"],
            kv_heads=self.config["num_key_value_heads"],
        )

    def field(self, key: str, default: Any = _REQUIRED) -> Any:
        """A metadata value; SourceError when it is absent and no default was given."""
        found = self._reader.get_field(key)
        if found is not None:
            return found.contents()
        if default is _REQUIRED:
            raise SourceError(f"The GGUF file has no {key!r}.", key=key)
        return default

    def _own(self, key: str, default: Any = _REQUIRED) -> Any:
        return self.field(f"{self.architecture}.{key}", default)

    def _read_config(self) -> dict[str, Any]:
        names = {tensor.name for tensor in self._reader.tensors}
        hidden, heads = int(self._own("embedding_length")), int(self._own("attention.head_count"))
        config: dict[str, Any] = {
            "architectures": [_ARCHITECTURES[self.architecture]],
            "model_type": "gemma3_text" if self.architecture == "gemma3" else self.architecture,
            "vocab_size": self._vocab_size(),
            "hidden_size": hidden,
            "intermediate_size": int(self._own("feed_forward_length")),
            "num_hidden_layers": int(self._own("block_count")),
            "num_attention_heads": heads,
            "num_key_value_heads": int(self._own("attention.head_count_kv", heads)),
            "head_dim": int(self._own("attention.key_length", hidden // heads)),
            "hidden_act": "silu",
            "rms_norm_eps": shortest(self._own("attention.layer_norm_rms_epsilon")),
            "max_position_embeddings": int(self._own("context_length")),
            "rope_theta": shortest(self._own("rope.freq_base", 10000.0)),
            "rope_scaling": self._rope_scaling(),
            "tie_word_embeddings": "output.weight" not in names,
        }
        if self.architecture != "qwen2":  # there Q, K and V always have biases, O never
            config["attention_bias"] = "blk.0.attn_q.bias" in names
        if self.architecture == "llama":
            config["mlp_bias"] = "blk.0.ffn_up.bias" in names
        if self.architecture == "gemma3":
            config |= self._gemma3(config)
        return config

    def _gemma3(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """What only Gemma has.

        Files hold neither the pattern of layers nor how queries are scaled: llama.cpp knows both, and scales the 27B
        model (62 layers) in another way.
        """
        layers, pattern = config["num_hidden_layers"], 6
        by_width = config["hidden_size"] // config["num_attention_heads"]
        return {
            "hidden_act": "gelu_pytorch_tanh",
            "sliding_window": int(self._own("attention.sliding_window")),
            "layer_types": [
                "full_attention" if (i + 1) % pattern == 0 else "sliding_attention" for i in range(layers)
            ],
            "rope_local_base_freq": shortest(self._own("rope.freq_base_swa", 10000.0)),
            "query_pre_attn_scalar": by_width if layers == 62 else config["head_dim"],
        }

    def _vocab_size(self) -> int:
        for tensor in self._reader.tensors:
            if tensor.name == "token_embd.weight":
                return int(tensor.shape[1])
        raise SourceError("The GGUF file has no 'token_embd.weight'.", tensor="token_embd.weight")

    def _rope_scaling(self) -> dict[str, Any] | None:
        kind = self._own("rope.scaling.type", "none")
        factors = [tensor for tensor in self._reader.tensors if tensor.name == ROPE_FACTORS]
        if factors:
            return llama3_scaling(
                np.asarray(factors[0].data, dtype=np.float32), shortest(self._own("rope.freq_base", 10000.0))
            )
        if kind == "none":
            return None
        if kind == "linear":
            return {"rope_type": "linear", "factor": shortest(self._own("rope.scaling.factor"))}
        raise SourceError(f"Rotary scaling of type {kind!r} cannot be read from GGUF.", scaling=kind)


def shortest(value: float) -> float:
    """The shortest decimal that is the same float32: what config.json said before GGUF stored it in 32 bits.

    >>> shortest(9.999999747378752e-06)
    1e-05
    """
    return float(str(np.float32(value)))


def llama3_factors(
    theta: float, head_dim: int, factor: float, low: float, high: float, context: int
) -> NDArray[np.float64]:
    """By what Llama 3's rotary scaling divides each frequency."""
    wavelength = 2 * np.pi * theta ** (np.arange(0, head_dim, 2) / head_dim)
    smooth = (context / wavelength - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    return np.where(wavelength < context / high, 1.0, np.where(wavelength > context / low, factor, between))


def llama3_scaling(factors: Float32, theta: float) -> dict[str, Any]:
    """The `rope_scaling` of config.json that gives these GGUF frequency factors.

    GGUF keeps the factors, not the four numbers they came from. All released Llama 3 models share three of the four, so
    the fourth is the largest factor; SourceError when that does not reproduce the file.
    """
    largest = float(factors.max())
    spec: dict[str, Any] = {
        "rope_type": "llama3",
        "factor": largest,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    expected = llama3_factors(theta, 2 * factors.size, largest, 1.0, 4.0, 8192)
    if not np.allclose(factors, expected, rtol=1e-5, atol=0):
        worst = float(np.abs(factors - expected).max())
        raise SourceError(
            f"The file's rotary frequency factors are not those of Llama 3 (off by up to {worst:.3g}).",
            scaling="rope_freqs",
            difference=worst,
        )
    return spec
