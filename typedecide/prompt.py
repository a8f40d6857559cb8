"""A state and a criterion become prompt text and token ids: a head to keep, and a tail for each question.

Knows no tensors and no model: every template string and label comes from the bundle's manifest.
`web/prompt.js` is its twin; both run tests/vectors/prompt.json.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from typedecide.errors import BundleError, InvalidQuestionError, InvalidStateError, PrefixMismatchError
from typedecide.questions import Criterion, check_text, find_surrogate


class Tokenizer(Protocol):
    """Text to token ids, with no special token added and none recognised in the text."""

    def encode(self, text: str, /) -> list[int]:
        """The token ids of `text`."""
        ...


@dataclass(frozen=True)
class Label:
    """An option label: its text as the prompt shows it, and the id of the token read at the answer."""

    text: str
    id: int


@dataclass(frozen=True)
class PromptSpec:
    """The pieces a prompt is made of, as a bundle's manifest states them."""

    bos_ids: tuple[int, ...]
    head: str
    tail: str
    option: str
    labels: tuple[Label, ...]

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> PromptSpec:
        """The spec in `manifest["prompt"]` and `manifest["labels"]`; BundleError says what is wrong."""
        prompt = manifest.get("prompt")
        if not isinstance(prompt, Mapping):
            raise BundleError("The manifest has no prompt.", value=prompt, loc=["prompt"])
        return cls(
            bos_ids=_read_bos_ids(prompt.get("bos_ids")),
            head=read_template(prompt, "head", ("state",)),
            tail=read_template(prompt, "tail", ("criterion", "options")),
            option=read_template(prompt, "option", ("label", "option")),
            labels=_read_labels(manifest.get("labels")),
        )


class Prompt:
    """Writes prompts from one spec."""

    def __init__(self, spec: PromptSpec) -> None:
        self.spec = spec

    def head_text(self, state: str) -> str:
        """The part that every question about `state` shares."""
        return fill(self.spec.head, {"state": check_state(state)})

    def tail_text(self, criterion: Criterion) -> str:
        """The part that belongs to one question."""
        labels = self.spec.labels[: len(self.label_ids(criterion))]
        pairs = zip(labels, criterion.options, strict=True)
        lines = [fill(self.spec.option, {"label": label.text, "option": option}) for label, option in pairs]
        return fill(self.spec.tail, {"criterion": criterion.text, "options": "".join(lines)})

    def label_ids(self, criterion: Criterion) -> tuple[int, ...]:
        """The token ids whose logits answer `criterion`, one for each option in order."""
        _check_criterion(criterion, len(self.spec.labels))
        return tuple(label.id for label in self.spec.labels[: len(criterion.options)])

    def full_ids(self, tokenizer: Tokenizer, state: str, criterion: Criterion) -> list[int]:
        """The ids of the whole prompt, head and tail encoded as one text."""
        text = self.head_text(state) + self.tail_text(criterion)
        return [*self.spec.bos_ids, *tokenizer.encode(text)]

    def state_prefix_ids(self, tokenizer: Tokenizer, state: str) -> list[int]:
        """The ids to compute once for `state`: the head's minus the last, which the tail may merge with."""
        return [*self.spec.bos_ids, *tokenizer.encode(self.head_text(state))[:-1]]

    def head_ids(self, tokenizer: Tokenizer) -> list[int]:
        """The ids before every state: those of the head's text up to the state, minus the last.

        The last one is left out because a state may merge with it.
        """
        before = self.spec.head[: self.spec.head.index("{state}")]
        return [*self.spec.bos_ids, *tokenizer.encode(before)[:-1]]

    def suffix_ids(self, tokenizer: Tokenizer, state: str, criterion: Criterion) -> list[int]:
        """The full prompt's ids after the state's prefix; PrefixMismatchError where that is no prefix."""
        prefix = self.state_prefix_ids(tokenizer, state)
        return suffix_after(prefix, self.full_ids(tokenizer, state, criterion))


def suffix_after(prefix: Sequence[int], full: Sequence[int]) -> list[int]:
    """What follows `prefix` in `full`, at least one id; PrefixMismatchError where they first differ.

    >>> suffix_after([1, 2], [1, 2, 3])
    [3]
    """
    position = next(
        (at for at, (a, b) in enumerate(zip(prefix, full, strict=False)) if a != b),
        min(len(prefix), len(full)),
    )
    if position == len(prefix) < len(full):
        return list(full[position:])
    raise PrefixMismatchError(
        f"The cached prefix is not a prefix of the full prompt: they differ at token {position}.",
        position=position,
        prefix_token=_id_at(prefix, position),
        full_token=_id_at(full, position),
    )


def _id_at(ids: Sequence[int], position: int) -> int | None:
    return ids[position] if position < len(ids) else None


def fill(template: str, values: Mapping[str, str]) -> str:
    """A template with its `{slots}` filled in."""
    # One pass, so that braces inside a value stay text.
    return re.sub(r"\{([a-z]+)\}", lambda found: values.get(found[1], found[0]), template)


def check_state(state: object) -> str:
    """`state`, when it is a string that UTF-8 can carry; else InvalidStateError."""
    if not isinstance(state, str):
        raise InvalidStateError("The state must be a string.", value=state)
    position = find_surrogate(state)
    if position is not None:
        raise InvalidStateError(
            f"The state holds a lone surrogate at character {position}.",
            value=state[position],
            position=position,
        )
    return state


def _check_criterion(criterion: Criterion, most: int) -> None:
    if len(criterion.options) > most:
        raise InvalidQuestionError(
            f"This bundle has labels for {most} options.", value=len(criterion.options), loc=("options",)
        )
    check_text(criterion.text, ("text",))
    for at, option in enumerate(criterion.options):
        check_text(option, ("options", at))


def read_template(prompt: Mapping[str, Any], key: str, fields: Sequence[str]) -> str:
    """The template in `prompt[key]`, which must have each of the fields once; BundleError says what is wrong."""
    template = prompt.get(key)
    slots = [f"{{{name}}}" for name in fields]
    if not isinstance(template, str) or not template or any(template.count(slot) != 1 for slot in slots):
        wanted = f"a text with one {' and '.join(slots)}" if slots else "a text"
        raise BundleError(f"The prompt's {key} must be {wanted}.", value=template, loc=["prompt", key])
    return template


def _read_bos_ids(ids: object) -> tuple[int, ...]:
    if not isinstance(ids, list | tuple) or not all(_is_id(one) for one in ids):
        raise BundleError("The prompt's bos_ids must be token ids.", value=ids, loc=["prompt", "bos_ids"])
    return tuple(ids)


def _read_labels(labels: object) -> tuple[Label, ...]:
    if not isinstance(labels, list | tuple) or len(labels) < 2:
        raise BundleError("The manifest must have at least two labels.", value=labels, loc=["labels"])
    read = tuple(_read_label(label, at) for at, label in enumerate(labels))
    for part in ({label.text for label in read}, {label.id for label in read}):
        if len(part) != len(read):
            raise BundleError("The texts and ids of labels must be unique.", value=labels, loc=["labels"])
    return read


def _read_label(label: object, at: int) -> Label:
    if isinstance(label, Mapping):
        text, token = label.get("text"), label.get("id")
        if isinstance(text, str) and text and isinstance(token, int) and _is_id(token):
            return Label(text, token)
    raise BundleError("A label must have a text and a token id.", value=label, loc=["labels", at])


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
