"""How questions are asked: the options that every engine takes, checked and filled in from the bundle's manifest.

Knows no tensors and no prompts. `web/options.js` is its twin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from typedecide.errors import InvalidQuestionError, UnsupportedError
from typedecide.orderings import Level, cyclic_shifts, how_many
from typedecide.prior import KINDS, Kind
from typedecide.questions import Question

READOUTS = ("labels", "text", "pointer")
"""What an answer is read from: letters of the listed options, the options' own texts, or a trained pointer."""

_POINTER = ("pointer_tail", "pointer_option", "pointer_answer")


class Options(TypedDict, total=False):
    """How to ask; None is the default.

    readout: `labels` (the letters of listed options), `text` (the options' own texts) or `pointer` (a trained
        comparison of options and answer, for models that have it); default: the bundle's.
    budget: the most orders of its options that "auto" reads of a question; default: the bundle's. Like all below but
        the last one it is for the `labels` readout only: the other readouts have no order of options.
    early_stop: of a question with three options or more that is no score, read only more than half of the orders where
        the answer is `certified` then (`typedecide.orderings`). Probabilities are then pooled over fewer orders. What
        is left of the orders is run on its own and shares nothing with the first half, so this pays only where most
        questions are certified: for models that judge the same in all orders. With "auto", which leaves out one order
        of four, it hardly ever does; SmolLM2-135M-Instruct as it comes runs 6 % more tokens with it, for "all" too.
    prior: take out what the model answers whatever the evidence is: `content-free` or `batch` (`typedecide.prior`).
    run_tokens: tokens of one packed run; default: the bundle's for the device.
    """

    readout: str | None
    budget: int | None
    early_stop: bool | None
    prior: Kind | None
    run_tokens: int | None


@dataclass(frozen=True)
class Asking:
    """How to ask, nothing left open."""

    readout: str
    orderings: Level
    budget: int
    early_stop: bool
    prior: Kind | None
    run_tokens: int

    def shifts(self, question: Question, index: int) -> list[int]:
        """In which orders a question's options are read; its index is the InvalidQuestionError's `loc`."""
        if self.readout != "labels":
            return [0]
        n = len(question.names)
        try:
            return cyclic_shifts(n, how_many(n, self.orderings, self.budget))
        except ValueError as error:
            raise InvalidQuestionError(
                str(error), value=self.orderings, budget=self.budget, loc=[index]
            ) from None

    def stops_early(self, question: Question) -> bool:
        """Whether fewer orders may do: a score's expected level would move with those left out."""
        return self.early_stop and question.kind != "score"


def readouts_of(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """The readouts that a bundle has: `pointer` only where its model was trained for it."""
    width = manifest["model"].get("pointer_width")
    has_width = isinstance(width, int) and not isinstance(width, bool)
    pointer = has_width and all(key in manifest["prompt"] for key in _POINTER)
    return READOUTS if pointer else READOUTS[:2]


def resolve(manifest: Mapping[str, Any], device: str, orderings: Level | None, options: Options) -> Asking:
    """The options, with the bundle's defaults (those for `device`) where none is given.

    Raises:
        UnsupportedError: the bundle has no such readout, or an option does not go with it, or is none.
    """
    limits, known = manifest["limits"], readouts_of(manifest)
    every: dict[str, Any] = {"orderings": orderings, **options}
    given = {name: value for name, value in every.items() if value is not None}
    if given.get("early_stop") is False:
        del given["early_stop"]
    readout = given.pop("readout", manifest["readout"])
    if readout not in known:
        raise UnsupportedError(
            f"this bundle has no readout {readout!r}; it has {', '.join(known)}",
            readout=readout,
            known=[*known],
        )
    run_tokens = given.pop("run_tokens", limits["run_tokens"][device])
    if readout != "labels" and given:
        raise UnsupportedError(
            f"the {readout} readout has neither orders of options nor a prior, so it takes no {', '.join(given)}:"
            " leave that out, or use the labels readout",
            readout=readout,
            **given,
        )
    _check("run_tokens", run_tokens, _is_count(run_tokens), "a whole number from 1")
    early_stop, prior = given.get("early_stop", False), given.get("prior")
    _check("early_stop", early_stop, isinstance(early_stop, bool), "true or false")
    _check("prior", prior, prior is None or prior in KINDS, f"one of {', '.join(KINDS)}")
    return Asking(
        readout=readout,
        orderings=given.get("orderings", "auto"),
        budget=given.get("budget", limits["rotation_budget"]),
        early_stop=early_stop,
        prior=prior,
        run_tokens=run_tokens,
    )


def _check(name: str, value: Any, valid: bool, wanted: str) -> None:
    if not valid:
        raise UnsupportedError(f"{name} must be {wanted}, not {value!r}", **{name: value})


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
