"""Writes tests/fixtures: tiny random models of each family, their tokenizers, and the logits that transformers gives.

Run once, by hand, in an environment of its own; what it writes is committed:

    python -m venv /tmp/torchvenv
    /tmp/torchvenv/bin/pip install torch==2.13.0 transformers==5.24.0 gguf==0.19.0
    /tmp/torchvenv/bin/python tests/make_fixtures.py

Each folder tests/fixtures/NAME is a Hugging Face model folder with `golden.npz` next to the weights: for each length n
in LENGTHS, `ids_n` holds the token ids and `logits_n` the float32 logits of the last three positions (eager attention).

    llama          tied, float32; the same weights as Q8_0 in llama.gguf (exact: they were rounded to Q8_0 first)
    llama-untied   own lm_head, float16, Llama 3 rotary scaling, config.json in the older style, a BOS token
    qwen2          biases on Q, K and V, bfloat16
    qwen3          norms on Q and K, head size 32 (not hidden / heads), bfloat16
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

FIXTURES = Path(__file__).parent / "fixtures"
LENGTHS = (1, 7, 40, 70)
VOCAB = 320
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3_SPLIT = _QWEN2_SPLIT.replace(r"|\p{N}|", r"|\p{N}{1,3}|")

# Enough of each for the trainer to make " A" to " H" single tokens and some ordinary merges.
_CORPUS = [
    f"Options:\n {letter}. the parcel {letter} {letter} arrived late and nobody answered\n"
    for letter in "ABCDEFGH"
] + ["Evidence: a customer writes about a refund\nCriterion: which team should handle this message?\n"]


def _rope(theta: float, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": theta, **(extra or {})}


def _configs() -> dict[str, tuple[PreTrainedConfig, torch.dtype]]:
    return {
        "llama": (
            LlamaConfig(
                **_COMMON, tie_word_embeddings=True, rms_norm_eps=1e-5, rope_parameters=_rope(100000.0)
            ),
            torch.float32,
        ),
        "llama-untied": (
            LlamaConfig(
                **_COMMON,
                tie_word_embeddings=False,
                rms_norm_eps=1e-5,
                rope_parameters=_rope(10000.0, _LLAMA3_ROPE),
            ),
            torch.float16,
        ),
        "qwen2": (
            Qwen2Config(
                **_COMMON, tie_word_embeddings=True, rms_norm_eps=1e-6, rope_parameters=_rope(1000000.0)
            ),
            torch.bfloat16,
        ),
        "qwen3": (
            Qwen3Config(
                **_COMMON,
                head_dim=32,
                tie_word_embeddings=True,
                rms_norm_eps=1e-6,
                rope_parameters=_rope(500000.0),
            ),
            torch.bfloat16,
        ),
    }


_ARCHITECTURES: dict[str, Callable[[Any], torch.nn.Module]] = {
    "llama": LlamaForCausalLM,
    "qwen2": Qwen2ForCausalLM,
    "qwen3": Qwen3ForCausalLM,
}


def _q8_0_exact(weight: torch.Tensor) -> torch.Tensor:
    """The nearest weights that Q8_0 stores without loss."""
    kind = gguf.GGMLQuantizationType.Q8_0
    blocks = gguf.quants.quantize(weight.numpy(), kind)
    return torch.from_numpy(gguf.quants.dequantize(blocks, kind).astype(np.float32))


def random_model(config: PreTrainedConfig, dtype: torch.dtype, seed: int, q8_0: bool) -> torch.nn.Module:
    """A model with random weights that `dtype` (and Q8_0, if asked) can store exactly, computing in float32."""
    generator = torch.Generator().manual_seed(seed)
    config._attn_implementation = "eager"
    model = _ARCHITECTURES[config.model_type](config).to(torch.float32).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=generator) * 0.2
            if "norm" in name:
                values = values + 1
            elif q8_0:
                values = _q8_0_exact(values)
            parameter.copy_(values.to(dtype).to(torch.float32))
    return model


def goldens(model: torch.nn.Module, seed: int) -> dict[str, np.ndarray]:
    """Token ids and the logits of the last three positions, for each of LENGTHS."""
    rng = np.random.default_rng(seed)
    out: dict[str, np.ndarray] = {}
    for length in LENGTHS:
        ids = rng.integers(len(CONTROL), VOCAB - len(CONTROL), length)
        with torch.no_grad():
            logits = model(torch.from_numpy(ids)[None], use_cache=False).logits[0, -3:]
        out[f"ids_{length}"] = ids.astype(np.int64)
        out[f"logits_{length}"] = logits.numpy()
    return out


def smollm_tokenizer() -> Tokenizer:
    """Control tokens inside the vocabulary, digits one by one, as SmolLM2 has them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return _train(tokenizer, VOCAB, CONTROL)


def qwen_tokenizer() -> Tokenizer:
    """Control tokens behind the vocabulary, NFC, as Qwen has them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _split(_QWEN2_SPLIT)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return _train(tokenizer, VOCAB - len(CONTROL), [])


def llama3_tokenizer() -> Tokenizer:
    """Control tokens behind the vocabulary, whole words first, and a BOS token from the post-processor."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = _split(_LLAMA3_SPLIT)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer = _train(tokenizer, VOCAB - len(CONTROL), [])
    bos = CONTROL[1]
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single=f"{bos} $A",
                pair=f"{bos} $A {bos} $B:1",
                special_tokens=[(bos, tokenizer.token_to_id(bos))],
            ),
        ]
    )
    return tokenizer


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _train(tokenizer: Tokenizer, size: int, control: Sequence[str]) -> Tokenizer:
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[AddedToken(token, special=True) for token in control],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in CONTROL])
    assert tokenizer.get_vocab_size() == VOCAB
    for letter in "ABCDEFGH":
        assert len(tokenizer.encode(f" {letter}", add_special_tokens=False).ids) == 1
    return tokenizer


TOKENIZERS = {
    "llama": smollm_tokenizer,
    "llama-untied": llama3_tokenizer,
    "qwen2": qwen_tokenizer,
    "qwen3": qwen_tokenizer,
}


def older_style(config: dict[str, Any]) -> dict[str, Any]:
    """config.json as transformers 4 wrote it."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope
    return config


def write_folder(
    name: str, model: torch.nn.Module, config: PreTrainedConfig, dtype: torch.dtype, seed: int
) -> None:
    """The Hugging Face folder of one fixture, with its goldens."""
    folder = FIXTURES / name
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        key: value.to(dtype).contiguous()
        for key, value in model.state_dict().items()
        if not (config.tie_word_embeddings and key == "lm_head.weight")
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    plain = json.loads(config.to_json_string(use_diff=False))
    plain["dtype"] = str(dtype).removeprefix("torch.")
    plain["architectures"] = [type(model).__name__]
    if name == "llama-untied":
        plain = older_style(plain)
    (folder / "config.json").write_text(json.dumps(plain, indent=1, sort_keys=True) + "\n")
    (folder / "tokenizer.json").write_text(TOKENIZERS[name]().to_str() + "\n")
    arrays: dict[str, Any] = goldens(model, seed)
    np.savez_compressed(folder / "golden.npz", **arrays)


def permute_rope(rows: np.ndarray, heads: int) -> np.ndarray:
    """GGUF's order of the rows of Q and K: the two halves of each head interleaved."""
    half = rows.shape[0] // heads // 2
    return np.ascontiguousarray(rows.reshape(heads, 2, half, -1).swapaxes(1, 2).reshape(rows.shape))


_GGUF_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def _gguf_name(name: str) -> str:
    if name.startswith("model.layers."):
        _, _, layer, rest = name.split(".", 3)
        stem, _, kind = rest.rpartition(".")
        return f"blk.{layer}.{_GGUF_LAYER_NAMES[stem]}.{kind}"
    return {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}[name]


def write_llama_gguf(path: Path, model: torch.nn.Module, config: PreTrainedConfig) -> None:
    """The llama fixture as a GGUF file: norms in F32, all else in Q8_0, Q and K rows in GGUF's order."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("llama fixture")
    writer.add_license("apache-2.0")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    _add_vocabulary(writer, smollm_tokenizer())
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, parameter in model.named_parameters():
        values = parameter.detach().numpy()
        if "norm" in name:
            writer.add_tensor(_gguf_name(name), values)
            continue
        part = name.split(".")[-2]
        if part in heads:
            values = permute_rope(values, heads[part])
        kind = gguf.GGMLQuantizationType.Q8_0
        blocks = gguf.quants.quantize(values, kind)
        assert np.array_equal(gguf.quants.dequantize(blocks, kind), values)
        writer.add_tensor(_gguf_name(name), blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_vocabulary(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    vocab = tokenizer.get_vocab()
    tokens = sorted(vocab, key=vocab.__getitem__)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(
        [gguf.TokenType.CONTROL if token in CONTROL else gguf.TokenType.NORMAL for token in tokens]
    )
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)


def main() -> None:
    """Write all fixtures and say how large they are."""
    torch.set_num_threads(1)
    for seed, (name, (config, dtype)) in enumerate(_configs().items(), start=1):
        model = random_model(config, dtype, seed, q8_0=name == "llama")
        write_folder(name, model, config, dtype, seed)
        if name == "llama":
            write_llama_gguf(FIXTURES / "llama.gguf", model, config)
        spread = float(np.load(FIXTURES / name / "golden.npz")["logits_40"].std())
        print(f"{name}: logits spread {spread:.2f}")
    files = [path for path in FIXTURES.rglob("*") if path.is_file()]
    print(f"{len(files)} files, {sum(path.stat().st_size for path in files):,} bytes")


if __name__ == "__main__":
    main()
