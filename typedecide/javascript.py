"""What the page's engine takes and gives, in Python's words: options by their JavaScript names, answers as results.

Knows the shapes of `web/types.js`; neither how they cross, nor from where.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from typedecide.calibration import Applied
from typedecide.options import Options
from typedecide.orderings import Level
from typedecide.prior import Prior
from typedecide.readout import Answer
from typedecide.results import Debiased, Decided, Prefill, Scored
from typedecide.shallow import Shallow

_OPTION_NAMES = {"run_tokens": "runTokens", "early_stop": "earlyStop"}
"""Options whose names differ in JavaScript."""


def options(orderings: Level | None, given: Options) -> dict[str, Any]:
    """Options as the page names them, without those that are left to it."""
    every: dict[str, Any] = {"orderings": orderings, **given}
    return {_OPTION_NAMES.get(name, name): value for name, value in every.items() if value is not None}


def prefill(done: Mapping[str, Any]) -> Prefill:
    """What `engine.prefill` gave."""
    return Prefill(tokens=done["tokens"], ms=float(done["ms"]), kept=done["kept"])


def cost(done: Mapping[str, Any]) -> dict[str, Any]:
    """What packed scoring took, as the fields of `Cost`."""
    counts = {name: done[name] for name in ("tokens_run", "tokens_saved", "runs")}
    return {**counts, "ms": float(done["ms"])}


def scored(done: Mapping[str, Any]) -> Scored:
    """What `engine.score` gave."""
    return Scored(**vars(debiased(done)), tokens=done["tokens"], ms=float(done["ms"]))


def decided(done: Mapping[str, Any], ids: Iterable[str], answers: Iterable[Mapping[str, Any]]) -> Decided:
    """What `engine.decide` gave, with its answers in the order of their questions' ids."""
    found = dict(zip(ids, map(debiased, answers), strict=True))
    return Decided(**cost(done), answers=found, prefill=prefill(done["prefill"]))


def debiased(done: Mapping[str, Any]) -> Debiased:
    """One answer."""
    prior = Prior(**done["prior"]) if "prior" in done else None
    calibration = None
    if "calibration" in done:
        calibration = Applied(float(done["calibration"]["temperature"]), done["abstain"])
    shallow = Shallow(**done["x_shallow"]) if "x_shallow" in done else None
    flip_rate = float(done["flip_rate"])
    return Debiased(_answer(done), done["orderings_used"], flip_rate, prior, calibration, shallow)


def _answer(done: Mapping[str, Any]) -> Answer:
    value = done["value"]
    return Answer(
        kind=done["kind"],
        names=tuple(done["names"]),
        # A whole number arrives from JavaScript as int.
        logits=tuple(map(float, done["logits"])),
        probabilities=tuple(map(float, done["probabilities"])),
        value=value if isinstance(value, str) else float(value),
        choice=done["choice"],
        confidence=float(done["confidence"]),
    )
