"""Shallow prefill: a text's tokens stop below the upper layers, where questions see only the anchor of the prompt.

What a bundle's manifest says of it, and what answers say of it. Knows no tensors and no prompts.
`web/shallow.js` is its twin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from typedecide.errors import BundleError, UnsupportedError

ANCHORS = ("none", "bos", "instruction")
"""Which of the prompt's first tokens all layers see: none, one, or all that stand before every text."""

DEFAULT_ANCHOR = "instruction"
"""Its keys and values are constants of the model, so that it costs nothing for a text."""


@dataclass(frozen=True)
class Shallow:
    """How a model is shallow: all tokens go through its first `k` layers, the anchor and questions through all.

    `agreement` is the share of answers, from 0 to 1, that are those of the whole model on held-out texts; None where
    that was not measured.
    """

    k: int
    anchor: str
    agreement: float | None = None

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> Self | None:
        """What `manifest["model"]["shallow"]` says, None without it; BundleError says what is wrong with it."""
        model = manifest["model"]
        if "shallow" not in model:
            return None
        spec, layers = model["shallow"], model["shape"]["layers"]
        if not isinstance(spec, Mapping):
            raise _malformed("shallow", spec, "is not an object")
        k, anchor, agreement = spec.get("layers"), spec.get("anchor"), spec.get("agreement")
        if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k < layers:
            raise _malformed("shallow.layers", k, f"is not a whole number from 1 and below {layers}")
        if anchor not in ANCHORS:
            raise _malformed("shallow.anchor", anchor, f"is none of {', '.join(ANCHORS)}")
        if agreement is not None and not _is_share(agreement):
            raise _malformed("shallow.agreement", agreement, "is not a number from 0 to 1")
        return cls(k, anchor, None if agreement is None else float(agreement))

    def tokens(self, head: Sequence[int]) -> int:
        """How many of a prompt's first tokens are the anchor, where `head` are the ids before every text."""
        return anchor_tokens(self.anchor, head)

    @property
    def spec(self) -> dict[str, Any]:
        """`manifest["model"]["shallow"]`."""
        measured = {} if self.agreement is None else {"agreement": self.agreement}
        return {"layers": self.k, "anchor": self.anchor, **measured}

    def to_dict(self) -> dict[str, Any]:
        """`x_shallow` of an answer."""
        return {"k": self.k, "anchor": self.anchor, "agreement": self.agreement}

    def facts(self, layers: int) -> dict[str, Any]:
        """What the `info` of an engine says of it, where the model has so many layers."""
        return {"layers": layers, **self.to_dict()}


def words(facts: Mapping[str, Any]) -> str:
    """What people are told, from `info["shallow"]` of an engine.

    >>> words({"layers": 30, "k": 22, "anchor": "bos", "agreement": None})
    'shallow: texts go through 22 of 30 layers (anchor: bos; agreement with the whole model: not measured)'
    """
    agreement = facts["agreement"]
    measured = "not measured" if agreement is None else f"{agreement:.1%}"
    return (
        f"shallow: texts go through {facts['k']} of {facts['layers']} layers (anchor: {facts['anchor']};"
        f" agreement with the whole model: {measured})"
    )


def anchor_tokens(anchor: str, head: Sequence[int]) -> int:
    """How many of a prompt's first tokens an anchor is, where `head` are the ids before every text.

    >>> [anchor_tokens(name, [7, 8, 9]) for name in ANCHORS]
    [0, 1, 3]

    Raises:
        UnsupportedError: there is no such anchor.
    """
    if anchor not in ANCHORS:
        raise UnsupportedError(f"there is no anchor {anchor!r}; known: {', '.join(ANCHORS)}", anchor=anchor)
    return {"none": 0, "bos": 1}.get(anchor, len(head))


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _malformed(field: str, value: object, why: str) -> BundleError:
    where = f"model.{field}"
    return BundleError(f"The manifest's {where} {why}: {value!r}.", field=where, value=value)
