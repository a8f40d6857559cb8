"""The label alphabet: which single tokens of a model's own vocabulary name the options.

Letters first (A-Z, a-z), then pairs of letters, until 255. Never digits: as labels they pull small models
to "0".
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from typedecide.prompt import Tokenizer
from typedecide.questions import MAX_OPTIONS

ANSWER = "Answer:"


def find_labels(tokenizer: Tokenizer, wanted: int = MAX_OPTIONS) -> list[dict[str, Any]]:
    """Up to `wanted` labels as the manifest holds them: `{"text": "A", "id": id of " A" after "Answer:"}`.

    A label counts only where the tokenizer writes it as one token right behind the answer's colon, and leaves the
    tokens before it alone.
    """
    before = tokenizer.encode(ANSWER)
    labels: list[dict[str, Any]] = []
    seen: set[int] = set()
    for text in _candidates():
        ids = tokenizer.encode(f"{ANSWER} {text}")
        if ids[:-1] == before and ids[-1] not in seen:
            seen.add(ids[-1])
            labels.append({"text": text, "id": ids[-1]})
        if len(labels) == wanted:
            break
    return labels


def _candidates() -> Iterator[str]:
    yield from ascii_uppercase
    yield from ascii_lowercase
    for first, second in (
        (ascii_uppercase, ascii_uppercase),
        (ascii_uppercase, ascii_lowercase),
        (ascii_lowercase, ascii_lowercase),
    ):
        for pair in product(first, second):
            yield "".join(pair)
