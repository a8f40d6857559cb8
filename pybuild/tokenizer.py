"""One tokenizer.json that every engine reads alike, and that no text can turn into a control token.

Builds it from the vocabulary of a GGUF file or from a model's own tokenizer.json. Knows nothing about weights.

Three things are done to every tokenizer (`harden`):
- added tokens, post-processor, truncation and padding go, and control tokens leave the vocabulary, with all merges that
  lead to them: what a text says, such as `<|im_end|>`, is text;
- character classes in patterns (`\\p{L}`, `\\s`, …) are written out as ranges, as the Python engine understands them.
  Browsers know newer Unicode versions and count U+FEFF as a space and U+0085 not: left alone, ids differ;
- characters for which a byte-level vocabulary has no bytes become U+FFFD. Engines would drop them, each in its own way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tokenizers import Regex, pre_tokenizers

from pybuild.weights import SourceError

Json = dict[str, Any]


@dataclass(frozen=True)
class Built:
    """A hardened tokenizer.json, the ids before any text, and the ids that no text encodes to."""

    json: Json
    bos_ids: tuple[int, ...]
    control_ids: tuple[int, ...]


# ---- from GGUF

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")

_NORMAL, _USER_DEFINED, _BYTE = 1, 4, 6


@dataclass(frozen=True)
class _Pre:
    """What `tokenizer.ggml.pre` stands for."""

    splits: Sequence[str]
    nfc: bool = False
    ignore_merges: bool = False
    adds_bos: bool = False


_PRE: Mapping[str, _Pre] = {
    "smollm": _Pre([r"\p{N}", _GPT2]),
    "qwen2": _Pre([_QWEN2], nfc=True),
    "llama-bpe": _Pre([_LLAMA3], ignore_merges=True, adds_bos=True),
}


def from_gguf(field: Callable[..., Any]) -> Built:
    """The tokenizer in a GGUF file; `field(key[, default])` reads its metadata."""
    model, pre_name = field("tokenizer.ggml.model"), field("tokenizer.ggml.pre", "absent")
    if model == "llama":
        return _from_sentencepiece(field)
    if model != "gpt2" or pre_name not in _PRE:
        raise SourceError(
            f"The GGUF tokenizer {model!r} with pre-tokenizer {pre_name!r} cannot be built; "
            f"'gpt2' with {', '.join(map(repr, _PRE))} can.",
            tokenizer=model,
            pre=pre_name,
        )
    pre = _PRE[pre_name]
    tokens, types = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    added = [
        {"id": id, "content": token, "special": kind != _USER_DEFINED}
        for id, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind not in (_NORMAL, _BYTE)
    ]
    splits = [_split(pattern) for pattern in pre.splits]
    plain: Json = {
        "added_tokens": added,
        "normalizer": {"type": "NFC"} if pre.nfc else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, _BYTE_LEVEL]},
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "ignore_merges": pre.ignore_merges,
            "vocab": {token: id for id, token in enumerate(tokens)},
            "merges": field("tokenizer.ggml.merges"),
        },
    }
    if len(plain["model"]["vocab"]) != len(tokens):
        raise SourceError("The GGUF vocabulary holds a token twice.", tokens=len(tokens))
    adds_bos = field("tokenizer.ggml.add_bos_token", pre.adds_bos)
    return Built(
        json=harden(plain),
        bos_ids=(int(field("tokenizer.ggml.bos_token_id")),) if adds_bos else (),
        control_ids=control_ids(plain),
    )


def _from_sentencepiece(field: Callable[..., Any]) -> Built:
    """A SentencePiece vocabulary as Gemma has it: no space is put before a text.

    GGUF files hold the score of each piece and no merges. SentencePiece joins the two neighbours whose piece scores
    best, which is BPE with one merge for each way to cut a piece in two, best scores first.
    """
    if field("tokenizer.ggml.add_space_prefix", True):
        raise SourceError(
            "A GGUF tokenizer 'llama' that puts a space before texts cannot be built.", tokenizer="llama"
        )
    tokens, types = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    plain: Json = {
        "added_tokens": [
            {"id": id, "content": token, "special": kind != _USER_DEFINED}
            for id, (token, kind) in enumerate(zip(tokens, types, strict=True))
            if kind not in (_NORMAL, _BYTE)
        ],
        "normalizer": _SPACES,
        "pre_tokenizer": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "BPE",
            "byte_fallback": True,
            "vocab": {token: id for id, token in enumerate(tokens)},
            "merges": _merges_by_score(tokens, field("tokenizer.ggml.scores")),
        },
    }
    adds_bos = field("tokenizer.ggml.add_bos_token", True)
    return Built(
        json=harden(plain),
        bos_ids=(int(field("tokenizer.ggml.bos_token_id")),) if adds_bos else (),
        control_ids=control_ids(plain),
    )


def _merges_by_score(tokens: Sequence[str], scores: Sequence[float]) -> list[list[str]]:
    """All cuts of each piece into two others: by the score of the piece, best first, then by the places of the two.

    >>> _merges_by_score(["a", "b", "ab", "ba", "aba"], [0.0, 0.0, -1.0, -2.0, -3.0])
    [['a', 'b'], ['b', 'a'], ['a', 'ba'], ['ab', 'a']]
    """
    places = {token: place for place, token in enumerate(tokens)}
    merges: list[list[str]] = []
    for place in sorted(range(len(tokens)), key=lambda place: -scores[place]):
        token = tokens[place]
        cuts = [(token[:at], token[at:]) for at in range(1, len(token))]
        known = [cut for cut in cuts if cut[0] in places and cut[1] in places]
        merges += map(list, sorted(known, key=lambda cut: (places[cut[0]], places[cut[1]])))
    return merges


# ---- from a Hugging Face folder


def from_huggingface(tokenizer: Json, config: Mapping[str, Any]) -> Built:
    """The tokenizer of a tokenizer.json, with `config` the tokenizer_config.json beside it."""
    return Built(
        json=harden(tokenizer), bos_ids=_bos_ids(tokenizer, config), control_ids=control_ids(tokenizer)
    )


def _bos_ids(tokenizer: Json, config: Mapping[str, Any]) -> tuple[int, ...]:
    """The ids put before a text: by `add_bos_token` where that is stated, else by the post-processor."""
    adds = config.get("add_bos_token")
    if adds is None:
        return _template_prefix(tokenizer.get("post_processor"))
    if not adds:
        return ()
    token = config.get("bos_token")
    content = token.get("content") if isinstance(token, dict) else token
    ids = {entry["content"]: entry["id"] for entry in tokenizer.get("added_tokens") or []}
    if content not in ids:
        raise SourceError(
            f"tokenizer_config.json adds the BOS token {content!r}, which tokenizer.json lacks.",
            token=content,
        )
    return (int(ids[content]),)


def _template_prefix(processor: Mapping[str, Any] | None) -> tuple[int, ...]:
    """The ids that a post-processor puts before a single text."""
    if not processor:
        return ()
    if processor["type"] == "Sequence":
        return tuple(id for part in processor["processors"] for id in _template_prefix(part))
    if processor["type"] != "TemplateProcessing":
        return ()
    ids: list[int] = []
    for piece in processor["single"]:
        if "SpecialToken" not in piece:
            break
        ids += processor["special_tokens"][piece["SpecialToken"]["id"]]["ids"]
    return tuple(ids)


# ---- hardening

_SPACES: Json = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
"""What SentencePiece's vocabularies have in place of spaces."""

_BYTE_LEVEL: Json = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": False,
    "use_regex": False,
}


def harden(tokenizer: Json) -> Json:
    """The same tokenizer without anything that gives a text special powers; ids of ordinary tokens stay.

    The result depends on the argument alone, keys in a fixed order. SourceError for a kind of tokenizer whose equal
    treatment in Python and in the browser is not known.
    """
    model = tokenizer.get("model") or {}
    if model.get("type", "BPE") != "BPE" or not isinstance(model.get("vocab"), dict) or "merges" not in model:
        raise SourceError(f"A {model.get('type')} tokenizer cannot be used; BPE can.", type=model.get("type"))
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise SourceError(f"A tokenizer with a {key} cannot be used.", key=key, value=model[key])
    removed = _removed_tokens(tokenizer)
    vocab = {token: id for token, id in model["vocab"].items() if token not in removed}
    normalizer = _portable_patterns(tokenizer.get("normalizer"))
    if _has_byte_level(tokenizer.get("pre_tokenizer")):
        normalizer = _with_replacement(normalizer, unencodable(vocab))
    elif not (model.get("byte_fallback") and all(f"<0x{byte:02X}>" in vocab for byte in range(256))):
        raise SourceError("The tokenizer has no tokens for single bytes, so some texts have no ids.")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": normalizer,
        "pre_tokenizer": _portable_pre_tokenizer(_without_idle_split(tokenizer)),
        "post_processor": None,
        "decoder": tokenizer.get("decoder"),
        "model": {
            "type": "BPE",
            "dropout": None,  # noise for training
            "unk_token": None,  # every text has ids, see above
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": bool(model.get("byte_fallback")),
            "ignore_merges": bool(model.get("ignore_merges")),
            "vocab": vocab,
            "merges": [pair for pair in _pairs(model["merges"]) if not removed & {*pair, "".join(pair)}],
        },
    }


def control_ids(tokenizer: Json) -> tuple[int, ...]:
    """The ids of all added tokens that no text encodes to once the tokenizer is hardened."""
    kept = set((tokenizer.get("model") or {}).get("vocab", {})) - _removed_tokens(tokenizer)
    added = tokenizer.get("added_tokens") or []
    return tuple(sorted({int(entry["id"]) for entry in added if entry["content"] not in kept}))


def _pairs(merges: Iterable[str | Sequence[str]]) -> list[list[str]]:
    """Merges as pairs; older files have them as one string with a space between."""
    return [merge.split(" ") if isinstance(merge, str) else list(merge) for merge in merges]


def _removed_tokens(tokenizer: Json) -> set[str]:
    """Added tokens that must leave the vocabulary: the special ones, and those that merging alone never gives."""
    model = tokenizer["model"]
    added = tokenizer.get("added_tokens") or []
    special = {entry["content"] for entry in added if entry.get("special")}
    single = sorted(token for token in special if len(token) == 1 and token in model["vocab"])
    if single:
        raise SourceError(f"The control token {single[0]!r} is a plain character as well.", token=single[0])
    others = {entry["content"] for entry in added if len(entry["content"]) > 1} - special
    return special | (others - {"".join(pair) for pair in _pairs(model["merges"])})


# ---- characters without bytes


def _byte_alphabet() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary (the table of GPT-2)."""
    shown = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(0x100, 0x200))
    return [chr(byte) if byte in shown else chr(next(hidden)) for byte in range(256)]


def unencodable(vocab: Iterable[str]) -> list[tuple[int, int]]:
    """Ranges of code points whose UTF-8 form holds a byte that the byte-level vocabulary lacks.

    SmolLM2 lacks six control characters, and the lead bytes of planes 4 to 11, where no character is assigned.
    """
    tokens = set(vocab)
    missing = [byte for byte, token in enumerate(_byte_alphabet()) if token not in tokens]
    ranges: list[tuple[int, int]] = []
    for byte in missing:
        if 0x80 <= byte < 0xC0 or byte in "\ufffd".encode():
            raise SourceError(f"The vocabulary lacks the byte 0x{byte:02X}, so it cannot be used.", byte=byte)
        ranges += _led_by(byte)
    return ranges


def _led_by(byte: int) -> list[tuple[int, int]]:
    """The code points whose UTF-8 form starts with this byte; none for bytes that UTF-8 does not use."""
    if byte < 0x80:
        return [(byte, byte)]
    for bits, low, high in ((6, 0xC2, 0xDF), (12, 0xE0, 0xEF), (18, 0xF0, 0xF4)):
        if low <= byte <= high:
            start = (byte & (0x1F, 0x0F, 0x07)[bits // 6 - 1]) << bits
            least = (0x80, 0x800, 0x10000)[bits // 6 - 1]  # what is less has a shorter form
            return [(max(start, least), min(start + (1 << bits) - 1, 0x10FFFF))]
    return []


def _with_replacement(normalizer: Json | None, ranges: Sequence[tuple[int, int]]) -> Json | None:
    if not ranges:
        return normalizer
    replace: Json = {
        "type": "Replace",
        "pattern": {"Regex": f"[{_ranges_text(ranges)}]"},
        "content": "\ufffd",
    }
    parts = _flat(normalizer, "normalizers") if normalizer else []
    if replace in parts:  # hardened before
        return normalizer
    return {"type": "Sequence", "normalizers": [*parts, replace]} if parts else replace


# ---- patterns that every engine reads alike


def _split(pattern: str) -> Json:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _has_byte_level(pre: Mapping[str, Any] | None) -> bool:
    if not pre:
        return False
    return pre["type"] == "ByteLevel" or any(map(_has_byte_level, pre.get("pretokenizers", [])))


def _without_idle_split(tokenizer: Json) -> Json | None:
    """The pre-tokenizer; None where it splits at spaces that the normalizer leaves none of, as Gemma's does."""
    pre: Json | None = tokenizer.get("pre_tokenizer")
    idle = pre is not None and pre["type"] == "Split" and pre["pattern"] == {"String": " "}
    return None if idle and tokenizer.get("normalizer") == _SPACES else pre


def _portable_pre_tokenizer(pre: Json | None) -> Json | None:
    """The same pre-tokenizer with nothing left that depends on an engine's idea of letters, digits and spaces."""
    if pre is None:
        return None
    parts = [part for each in _flat(pre, "pretokenizers") for part in _portable_part(each)]
    return parts[0] if len(parts) == 1 else {"type": "Sequence", "pretokenizers": parts}


def _flat(node: Json, key: str) -> list[Json]:
    """The parts of a normalizer or pre-tokenizer, sequences within sequences resolved."""
    if node["type"] != "Sequence":
        return [node]
    return [part for each in node[key] for part in _flat(each, key)]


def _portable_part(part: Json) -> list[Json]:
    kind = part["type"]
    if kind == "ByteLevel":
        if part.get("add_prefix_space"):
            raise SourceError("A ByteLevel pre-tokenizer with add_prefix_space cannot be used.", type=kind)
        return [_split(portable(_GPT2)), _BYTE_LEVEL] if part.get("use_regex", True) else [_BYTE_LEVEL]
    if kind == "Digits":
        return [_split(portable(r"\p{N}" if part.get("individual_digits") else r"\p{N}+"))]
    if kind == "Split" and (part["behavior"], part.get("invert", False)) in (
        ("Isolated", False),
        ("Removed", True),
    ):
        return [{**part, "pattern": _portable_patterns(part["pattern"])}]
    if kind == "Metaspace":
        return [part]
    raise SourceError(f"The pre-tokenizer {kind!r} with {part} cannot be used.", type=kind, part=part)


def _portable_patterns(node: Any) -> Any:
    """A part of a tokenizer.json with every `{"Regex": …}` in it made portable."""
    if isinstance(node, dict):
        return {
            key: portable(value) if key == "Regex" else _portable_patterns(value)
            for key, value in node.items()
        }
    if isinstance(node, list):
        return [_portable_patterns(value) for value in node]
    return node


_CLASS = re.compile(r"\\[pP]\{[^}]+\}|\\[sSdDwW]")
_PLAIN_ESCAPE = re.compile(r"\\[rntfv]|\\[^A-Za-z0-9]")


def portable(pattern: str) -> str:
    r"""The pattern with named classes and case-blind groups written out as ranges of characters.

    >>> portable(r"(?i:'d)|\d?") == "(?:'[Dd])|[" + portable(r"\d")[1:-1] + "]?"
    True
    """
    out: list[str] = []
    folds = [False]  # of each open group: is it case-blind?
    inside = False  # a [class]
    position = 0
    while position < len(pattern):
        text = _next_piece(pattern, position)
        position += len(text)
        if _CLASS.fullmatch(text):
            body = class_ranges(text)
            out.append(body if inside else f"[{body}]")
        elif text == "[" and inside:
            raise SourceError(f"The pattern {pattern!r} has a class within a class.", pattern=pattern)
        elif text in ("[", "]"):
            inside = text == "["
            out.append(text)
        elif text in ("(", "(?i:") and not inside:
            folds.append(folds[-1] or text == "(?i:")
            out.append("(?:" if text == "(?i:" else text)
        elif text == ")" and not inside:
            folds.pop()
            out.append(text)
        elif folds[-1] and text.isascii() and text.isalpha():
            body = class_ranges(f"(?i:{text})")
            out.append(body if inside else f"[{body}]")
        else:
            out.append(text)
    return "".join(out)


def _next_piece(pattern: str, position: int) -> str:
    """The escape, group start or single character at this position."""
    if pattern[position] == "\\":
        found = _CLASS.match(pattern, position) or _PLAIN_ESCAPE.match(pattern, position)
        if not found:
            raise SourceError(
                f"The pattern {pattern!r} has an escape at {position} that cannot be written out.",
                pattern=pattern,
                position=position,
            )
        return found[0]
    return "(?i:" if pattern.startswith("(?i:", position) else pattern[position]


@cache
def class_ranges(pattern: str) -> str:
    """The characters that a one-character pattern matches in the Python engine, as the inside of a [class]."""
    # The case variants of ASCII letters all lie below U+3000; classes are asked for every code point.
    end = 0x3000 if pattern.startswith("(?i:") else 0x110000
    points = [*range(min(end, 0xD800)), *range(0xE000, end)]
    text = "".join(map(chr, points))
    # "removed" leaves what does not match; the gaps between the pieces are what does.
    splitter = pre_tokenizers.Split(Regex(f"(?:{pattern})+"), "removed")
    ranges: list[tuple[int, int]] = []
    before = 0
    for start, stop in [offsets for _, offsets in splitter.pre_tokenize_str(text)] + [(len(text), len(text))]:
        if start > before:
            ranges += _around_surrogates(points[before], points[start - 1])
        before = stop
    return _ranges_text(ranges)


def _around_surrogates(first: int, last: int) -> list[tuple[int, int]]:
    if first < 0xD800 and last > 0xDFFF:
        return [(first, 0xD7FF), (0xE000, last)]
    return [(first, last)]


def _ranges_text(ranges: Iterable[tuple[int, int]]) -> str:
    def shown(point: int) -> str:
        return ("\\" if chr(point) in r"\[]^-" else "") + chr(point)

    return "".join(
        shown(first) if first == last else f"{shown(first)}{'-' if last > first + 1 else ''}{shown(last)}"
        for first, last in ranges
    )
