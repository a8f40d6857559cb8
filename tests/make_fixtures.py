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
    gemma3         seven layers, the sixth sees all and the others the last 16 tokens; a vocabulary as SentencePiece's,
                   with byte fallback and a BOS token; float16, the same weights in gemma3.gguf
"""

from __future__ import annotations

import json
from collections import Counter
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
    Gemma3ForCausalLM,
    Gemma3TextConfig,
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


_GEMMA = {
    **_COMMON,
    "vocab_size": 512,
    "intermediate_size": 64,
    "num_hidden_layers": 7,
    "num_key_value_heads": 1,
    "bos_token_id": 2,
    "eos_token_id": 1,
}


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
        "gemma3": (
            Gemma3TextConfig(
                **_GEMMA,
                head_dim=16,
                query_pre_attn_scalar=16,
                sliding_window=16,
                rms_norm_eps=1e-6,
                rope_parameters={
                    "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1000000.0},
                    "sliding_attention": _rope(10000.0),
                },
            ),
            torch.float16,
        ),
    }


_ARCHITECTURES: dict[str, Callable[[Any], torch.nn.Module]] = {
    "gemma3_text": Gemma3ForCausalLM,
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
            if "norm" in name and config.model_type != "gemma3_text":
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
        ids = rng.integers(len(CONTROL), model.config.vocab_size - len(CONTROL), length)
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


GEMMA_CONTROL = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]


def gemma_pieces() -> list[str]:
    """A vocabulary in Gemma's order: control tokens, runs of newlines and spaces, bytes, then pieces, best first."""
    words = Counter(
        word for line in _CORPUS for word in line.replace(" ", " ▁").replace("\n", " ").split(" ")
    )
    letters = sorted({*"▁", *"".join(words), *"ABCDEFGHabcdefghijklmnopqrstuvwxyz.,:?!'éß"})
    fixed = [
        *GEMMA_CONTROL,
        "\n",
        "\n\n",
        "\n\n\n",
        "▁▁",
        "▁▁▁▁",
        *(f"<0x{byte:02X}>" for byte in range(256)),
    ]
    room = _GEMMA["vocab_size"] - len(fixed) - len(letters)
    parts: dict[str, None] = {f"▁{letter}": None for letter in "ABCDEFGH"}
    for word, _ in words.most_common():
        parts.update((word[:end], None) for end in range(2, len(word) + 1))
        parts.update((word[start:], None) for start in range(len(word) - 2, 0, -1))
    pieces = [*fixed, *list(parts)[:room], *letters]
    assert len(pieces) == _GEMMA["vocab_size"] == len(set(pieces))
    return pieces


def gemma_scores() -> list[float]:
    """The scores of the pieces as SentencePiece gives them: the earlier the better."""
    return [-float(place) for place in range(_GEMMA["vocab_size"])]


def gemma_tokenizer() -> Tokenizer:
    """SentencePiece's BPE as transformers writes it: spaces as U+2581, byte fallback, a BOS token."""
    pieces = gemma_pieces()
    vocab = {piece: place for place, piece in enumerate(pieces)}
    merges = [
        (piece[:cut], piece[cut:])
        for piece in pieces
        for cut in range(1, len(piece))
        if piece[:cut] in vocab and piece[cut:] in vocab
    ]
    merges.sort(key=lambda pair: (vocab["".join(pair)], vocab[pair[0]], vocab[pair[1]]))
    tokenizer = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos> $B:1", special_tokens=[("<bos>", vocab["<bos>"])]
    )
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in GEMMA_CONTROL])
    tokenizer.add_tokens([AddedToken(run, normalized=False) for run in ("\n\n", "▁▁")])
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
    "gemma3": gemma_tokenizer,
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
_GEMMA_LAYER_NAMES = {
    **_GGUF_LAYER_NAMES,
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def _gguf_name(name: str, layers: Mapping[str, str] = _GGUF_LAYER_NAMES) -> str:
    if name.startswith("model.layers."):
        _, _, layer, rest = name.split(".", 3)
        stem, _, kind = rest.rpartition(".")
        return f"blk.{layer}.{layers[stem]}.{kind}"
    return {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}[name]


def write_llama_gguf(path: Path, model: torch.nn.Module, config: PreTrainedConfig) -> None:
    """The llama fixture as a GGUF file: norms in F32, all else in Q8_0, Q and K rows in GGUF's order."""
    writer = _gguf_writer(path, "llama", config)
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
    _write(writer)


def write_gemma_gguf(path: Path, model: torch.nn.Module, config: PreTrainedConfig) -> None:
    """The Gemma fixture as a GGUF file: norms raised by 1 in F32, all else in F16."""
    writer = _gguf_writer(path, "gemma3", config)
    full = config.rope_parameters["full_attention"]
    writer.add_rope_freq_base(full["rope_theta"])
    writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(full["factor"])
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_sliding_window(config.sliding_window)
    kinds = {
        **dict.fromkeys(GEMMA_CONTROL, gguf.TokenType.CONTROL),
        **{f"<0x{byte:02X}>": gguf.TokenType.BYTE for byte in range(256)},
        **dict.fromkeys(("\n\n", "▁▁"), gguf.TokenType.USER_DEFINED),
    }
    pieces = gemma_pieces()
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(pieces)
    writer.add_token_scores(gemma_scores())
    writer.add_token_types([kinds.get(piece, gguf.TokenType.NORMAL) for piece in pieces])
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_eos_token_id(config.eos_token_id)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    for name, parameter in model.named_parameters():
        values = parameter.detach().numpy()
        stored = values + np.float32(1) if "norm" in name else values.astype(np.float16)
        writer.add_tensor(_gguf_name(name, _GEMMA_LAYER_NAMES), stored)
    _write(writer)


def _gguf_writer(path: Path, architecture: str, config: PreTrainedConfig) -> gguf.GGUFWriter:
    """A writer that has said what all architectures say."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(f"{architecture} fixture")
    writer.add_license("apache-2.0")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    return writer


def _write(writer: gguf.GGUFWriter) -> None:
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
        if name == "gemma3":
            write_gemma_gguf(FIXTURES / "gemma3.gguf", model, config)
        spread = float(np.load(FIXTURES / name / "golden.npz")["logits_40"].std())
        print(f"{name}: logits spread {spread:.2f}")
    files = [path for path in FIXTURES.rglob("*") if path.is_file()]
    print(f"{len(files)} files, {sum(path.stat().st_size for path in files):,} bytes")


if __name__ == "__main__":
    main()
