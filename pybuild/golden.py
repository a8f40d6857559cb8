"""Golden logits for the start-up self-test: short token sequences in every shape class.

The page compares what its device computes with these; several devices are wrong without any error. Computed with
float32 activations on this machine's processor, in the weight format they are for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy import float32
from numpy.typing import NDArray

from typedecide.model import NativeModel, Suffix
from typedecide.pointer import scores
from typedecide.prompt import Tokenizer

TOLERANCE = 5e-3
"""Largest allowed difference of a logit. Right kernels differ by about 1e-4, wrong ones by more than 0.1."""

ROUNDED_TOLERANCE = 0.5
"""The same, where activations are rounded: there the last bit, in which right kernels differ, can turn a level, and
what comes of that is as large as the drift of the format."""

LABELS = 8
"""Label logits that each case reads."""

Score = Callable[[Sequence[int], Sequence[Suffix], int], Sequence[NDArray[float32]]]
"""What is read of each suffix behind a prefix whose first so many tokens are the anchor."""

_TEXT = (
    "The parcel that I ordered three weeks ago has still not arrived, although your site says it was handed over "
    "last Monday. I called twice, waited half an hour each time, and nobody could tell me where it is. Please send "
    "it again or give me my money back before Friday, because I need the lamp for my daughter's birthday party on "
    "Saturday afternoon and cannot find another one in any shop near our town."
)


def golden_cases(
    model: NativeModel, tokenizer: Tokenizer, label_ids: Sequence[int], pointer: bool, shallow: bool
) -> list[dict[str, Any]]:
    """The cases, hardest first: sequences below and above 32 tokens, with a past, packed; options as a set.

    `S >= 32` is where grouped-query kernels go wrong on adapters with subgroups of 4. `pointer`: whether the model has
    a pointer, which the last case reads. Of a `shallow` one the cases also name the tokens of the anchor: none, many,
    and one, so that a text is prefilled with nothing to send to the upper layers.
    """
    ids = tokenizer.encode(_TEXT)
    if len(ids) < 82:
        raise ValueError(f"the golden text has only {len(ids)} tokens with this tokenizer; 82 are needed")
    options = {"ids": ids[21:30], "branches": [ids[30:35], ids[35:38], ids[38:46]], "tail": ids[46:49]}
    cases: list[dict[str, Any]] = [
        {
            "name": "41 cached, 21 and 20 packed",
            "prefix": ids[:41],
            "suffixes": [{"ids": ids[41:62]}, {"ids": ids[62:82]}],
        },
        {"name": "21 cached, 21 scored", "prefix": ids[:21], "suffixes": [{"ids": ids[21:42]}]},
        {"name": "21 cached, a set of 3 options", "prefix": ids[:21], "suffixes": [options]},
    ]
    if shallow:
        cases[0]["anchor"] = 0
        cases[1] = {**cases[1], "name": "41 cached, 36 above, 21 scored", "prefix": ids[:41], "anchor": 36}
        cases[1]["suffixes"] = [{"ids": ids[41:62]}]
        cases[2]["anchor"] = 1
    score = behind_cache(model)
    found = [{**case, "label_ids": list(label_ids[:LABELS])} for case in cases[: 3 if pointer else 2]]
    return [{**case, "logits": logits_of(score, case)} for case in found]


def behind_cache(model: NativeModel) -> Score:
    """Suffixes packed behind a prefilled prefix, as the engines run them: the anchor is computed before the rest."""

    def score(prefix: Sequence[int], suffixes: Sequence[Suffix], anchor: int) -> Sequence[NDArray[float32]]:
        base = model.prefill(prefix[:anchor], anchor=anchor)
        return model.score(model.prefill(prefix, base, anchor), suffixes)[0]

    return score


def logits_of(score: Score, case: Mapping[str, Any]) -> list[list[float]]:
    """What a model gives for each suffix of a case: logits of the labels, or of the options of a set."""
    suffixes = [
        Suffix(one["ids"], branches=one["branches"], tail=one["tail"])
        if "branches" in one
        else Suffix(one["ids"], case["label_ids"])
        for one in case["suffixes"]
    ]
    return [
        scores(row.tolist(), len(suffix.branches)) if suffix.branches else row.tolist()
        for suffix, row in zip(suffixes, score(case["prefix"], suffixes, case.get("anchor", 0)), strict=True)
    ]
