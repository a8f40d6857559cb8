"""Golden label logits for the start-up self-test: short token sequences in every shape class.

The page compares what its device computes with these; several devices are wrong without any error. Computed with
float32 activations on this machine's processor, in the weight format they are for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typedecide.model import NativeModel, Suffix
from typedecide.prompt import Tokenizer

TOLERANCE = 5e-3
"""Largest allowed difference of a label logit. Right kernels differ by about 1e-4, wrong ones by more than 0.1."""

LABELS = 8
"""Label logits that each case reads."""

_TEXT = (
    "The parcel that I ordered three weeks ago has still not arrived, although your site says it was handed over "
    "last Monday. I called twice, waited half an hour each time, and nobody could tell me where it is. Please send "
    "it again or give me my money back before Friday, because I need the lamp for my daughter's birthday party on "
    "Saturday afternoon and cannot find another one in any shop near our town."
)


def golden_cases(model: NativeModel, tokenizer: Tokenizer, label_ids: Sequence[int]) -> list[dict[str, Any]]:
    """The cases, hardest first: sequences below and above 32 tokens, with a past, and packed.

    `S >= 32` is where grouped-query kernels go wrong on adapters with subgroups of 4.
    """
    ids = tokenizer.encode(_TEXT)
    if len(ids) < 82:
        raise ValueError(f"the golden text has only {len(ids)} tokens with this tokenizer; 82 are needed")
    labels = list(label_ids[:LABELS])
    return [
        _case(model, "41 cached, 21 and 20 packed", ids[:41], [ids[41:62], ids[62:82]], labels),
        _case(model, "21 cached, 21 scored", ids[:21], [ids[21:42]], labels),
    ]


def _case(
    model: NativeModel, name: str, prefix: list[int], suffixes: list[list[int]], labels: list[int]
) -> dict[str, Any]:
    cache = model.prefill(prefix)
    logits, _ = model.score(cache, [Suffix(ids, labels) for ids in suffixes])
    return {
        "name": name,
        "prefix": prefix,
        "suffixes": suffixes,
        "label_ids": labels,
        "logits": [[float(v) for v in row] for row in logits],
    }
