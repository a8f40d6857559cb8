"""The `pointer` readout: each option is compared with the answer, by two trained projections of their hidden states.

    score_i = query(answer) · key(option_i) / sqrt(D) + bias(option_i)

Options are parallel branches that do not see one another; the answer sees all of them. So they are a set: in which
order they are listed makes no difference, exactly. Knows no tensors. `web/pointer.js` is its twin; both run
tests/vectors/pointer.json.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typedecide.errors import IntegrityError
from typedecide.prompt import Prompt, Tokenizer, fill, read_template, suffix_after
from typedecide.questions import Question


@dataclass(frozen=True)
class Joined:
    """One question behind the cached prefix: a stem, a branch for each option, and a tail that sees them all.

    ids: the stem's tokens.
    branches: each option's tokens, in order. Options that read alike (a colon in a name can make them) have equal
        branches, and so equal scores.
    tail: the tokens from the options' end to the answer.
    """

    ids: tuple[int, ...]
    branches: tuple[tuple[int, ...], ...]
    tail: tuple[int, ...]


class PointerPrompt:
    """Writes the prompts of the pointer readout: the head of `prompt`, and behind it stem, options and answer."""

    def __init__(self, prompt: Prompt, tail: str, option: str, answer: str) -> None:
        self.prompt, self.tail, self.option, self.answer = prompt, tail, option, answer

    @classmethod
    def from_manifest(cls, prompt: Prompt, manifest: Mapping[str, Any]) -> PointerPrompt:
        """The templates in `manifest["prompt"]`; BundleError says what is wrong."""
        spec = manifest["prompt"]
        tail = read_template(spec, "pointer_tail", ("criterion",))
        option = read_template(spec, "pointer_option", ("option",))
        return cls(prompt, tail, option, read_template(spec, "pointer_answer", ()))

    def joined(self, tokenizer: Tokenizer, state: str, prefix: Sequence[int], question: Question) -> Joined:
        """The tokens of a question; options and answer are encoded on their own, so that they never merge.

        Raises:
            PrefixMismatchError: the prefix merges with what follows it.
        """
        criterion = question.criterion()
        text = self.prompt.head_text(state) + fill(self.tail, {"criterion": criterion.text})
        stem = suffix_after(prefix, [*self.prompt.spec.bos_ids, *tokenizer.encode(text)])
        branches = [tokenizer.encode(fill(self.option, {"option": option})) for option in criterion.options]
        return Joined(tuple(stem), tuple(map(tuple, branches)), tuple(tokenizer.encode(self.answer)))


def scores(projections: Sequence[float], options: int) -> list[float]:
    """One logit for each option.

    Args:
        projections: (options + 1) x (2·D + 1) values, row by row: a row for each option, then one for the answer; each
            holds a query of D, a key of D and a bias.
        options: how many there are.

    Raises:
        IntegrityError: another number of values, or one that is not finite.

    >>> scores([0, 1, 0.5,  0, 3, 0,  2, 0, 0], 2)
    [2.5, 6.0]
    """
    values = [float(value) for value in projections]
    width, rest = divmod(len(values), options + 1)
    if rest or width < 3 or width % 2 == 0:
        raise IntegrityError(
            f"{len(values)} projections are not {options + 1} rows of query, key and bias.",
            value=len(values),
            options=options,
        )
    for index, value in enumerate(values):
        if not math.isfinite(value):
            raise IntegrityError(f"Projection {index} is not a finite number.", value=value, index=index)
    size = width // 2
    query = values[-width : size - width]
    rows = [values[start : start + width] for start in range(0, options * width, width)]
    return [_dot(query, row[size : 2 * size]) / math.sqrt(size) + row[-1] for row in rows]


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    total = 0.0
    # Not sum(): from Python 3.12 on it makes up for rounding, and JavaScript and older Pythons do not.
    for a, b in zip(left, right, strict=True):
        total += a * b
    return total
