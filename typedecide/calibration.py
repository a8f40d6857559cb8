"""Calibrated answers: a temperature for each kind of question, and a threshold below which it is better to abstain.

A calibration is a JSON document that `python -m typedecide calibrate` makes from labelled answers (`fitting.py`). It
serves the one model, weight format, prompt and readout that it was made with, and says so. Knows no tensors and no
files but that one. `web/calibration.js` is its twin; both run tests/vectors/calibration.json.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from typedecide.errors import UnsupportedError
from typedecide.inputs import read_json
from typedecide.options import Asking
from typedecide.orderings import Level
from typedecide.questions import Question
from typedecide.readout import Answer, read

SCHEMA = 1
"""The schema of the document that this version reads and writes."""

KINDS = ("choice", "noul", "score")

Given: TypeAlias = Path | str | Mapping[str, Any] | Literal[False] | None
"""What an engine takes: a file, a document, False for none, or None for the bundle's own, where it has one."""


@dataclass(frozen=True)
class Applied:
    """What calibration did to an answer: its logits were divided by `temperature`, and `abstain` says whether its
    highest probability is too low to trust at the error rate that the threshold was set for."""

    temperature: float
    abstain: bool

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, the same as the page's."""
        return {"calibration": {"temperature": self.temperature}, "abstain": self.abstain}


@dataclass(frozen=True)
class Calibration:
    """A document that was checked, and what of it is used.

    name, origin, shallow, format, prompt: the model that it was made with, as that bundle's manifest says it; `shallow`
        is None where it was not.
    readout: what was read; of the `labels` readout in which `orderings` with which `budget` (None: another readout).
    temperatures: by kind of question; kinds that are missing are not calibrated.
    alpha, threshold: an answer abstains where its highest probability is not above `threshold`, which was set for the
        error rate `alpha`: 0 never abstains, 1 always does.
    document: all of it.
    """

    name: str
    origin: str
    shallow: Mapping[str, Any] | None
    format: str
    prompt: Mapping[str, Any]
    readout: str
    orderings: Level | None
    budget: int | None
    temperatures: Mapping[str, float]
    alpha: float
    threshold: float
    document: Mapping[str, Any]

    @classmethod
    def parse(cls, document: object) -> Self:
        """Check a document; UnsupportedError names the field at fault and its value."""
        top = _Fields(document, "")
        schema = top.take("schema", _is_whole, "a whole number")
        if schema != SCHEMA:
            raise top.error("schema", f"is not {SCHEMA}, the schema that this version reads")
        model, abstain = top.child("model"), top.child("abstain")
        readout = top.take("readout", _is_text, "a text")
        labels = readout == "labels"
        kinds = top.child("kinds")
        for kind in kinds.value:
            if kind not in KINDS:
                raise kinds.error(kind, "is no kind of question")
        return cls(
            name=model.take("name", _is_text, "a text"),
            origin=model.take("origin", _is_text, "a text"),
            shallow=model.child("shallow").value if "shallow" in model.value else None,
            format=top.take("format", _is_text, "a text"),
            prompt=top.child("prompt").value,
            readout=readout,
            orderings=top.take("orderings", _is_level, "auto, all or a whole number from 1")
            if labels
            else None,
            budget=top.take("budget", _is_count, "a whole number from 1") if labels else None,
            temperatures={
                kind: float(kinds.child(kind).take("temperature", _is_positive, "a number above 0"))
                for kind in kinds.value
            },
            alpha=float(abstain.take("alpha", _is_share, "a number from 0 to 1")),
            threshold=float(abstain.take("threshold", _is_share, "a number from 0 to 1")),
            document=top.value,
        )

    def check(self, manifest: Mapping[str, Any], format: str) -> None:
        """UnsupportedError where it was made with another model, weight format or prompt than a bundle has."""
        model, prompt = manifest["model"], manifest["prompt"]
        pairs = [
            ("model.name", self.name, model["name"]),
            ("model.origin", self.origin, model["origin"]),
            *((f"model.shallow.{key}", *pair) for key, pair in self._shallow_pairs(model)),
            ("format", self.format, format),
            *((f"prompt.{key}", self.prompt.get(key), prompt.get(key)) for key in {**prompt, **self.prompt}),
        ]
        for field, made_with, here in pairs:
            if made_with != here:
                raise UnsupportedError(
                    f"This calibration was made with another {field.partition('.')[0]} than the one here ({field}):"
                    " make one for this, or do without.",
                    field=field,
                    value=made_with,
                    expected=here,
                )

    def _shallow_pairs(self, model: Mapping[str, Any]) -> list[tuple[str, tuple[Any, Any]]]:
        """What must agree of how the model is shallow: made with, and here."""
        one, other = self.shallow or {}, model.get("shallow", {})
        return [(key, (one.get(key), other.get(key))) for key in ("layers", "anchor")]

    def serves(self, how: Asking) -> bool:
        """Whether answers that are asked for in this way are those that it was made with."""
        if how.readout != self.readout:
            return False
        orders = (how.orderings, how.budget) == (self.orderings, self.budget)
        return how.readout != "labels" or (orders and how.prior is None and not how.early_stop)

    def apply(self, question: Question, logits: Sequence[float]) -> tuple[Answer, Applied] | None:
        """The calibrated answer, and what was done; None where the question's kind is not calibrated.

        The answer's own logits are those divided by the temperature.
        """
        temperature = self.temperatures.get(question.kind)
        if temperature is None:
            return None
        answer = read(question, [logit / temperature for logit in logits])
        return answer, Applied(temperature, max(answer.probabilities) <= self.threshold)

    def facts(self) -> dict[str, Any]:
        """What an engine's `info` says of it."""
        return {
            "readout": self.readout,
            "temperatures": dict(self.temperatures),
            "alpha": self.alpha,
            "threshold": self.threshold,
        }


class Calibrator:
    """The calibration that an engine uses, if any.

    One that its user gave must serve whatever is asked; the bundle's own, like its readout, is a default: answers that
    it was not made for come without.
    """

    def __init__(self, given: Given, manifest: Mapping[str, Any], format: str) -> None:
        """Find it and check it against a bundle's manifest and the weight format in use.

        Raises:
            InputError: the file cannot be read, or is not JSON.
            UnsupportedError: the document is malformed, or not for this bundle.
        """
        self.required = given is not None and given is not False
        self.calibration = self._find(given, manifest, format)

    @staticmethod
    def _find(given: Given, manifest: Mapping[str, Any], format: str) -> Calibration | None:
        if given is False:
            return None
        document = read_json(str(given)) if isinstance(given, Path | str) else given
        if given is None:
            document = manifest.get("calibration")
            if document is None or document["format"] != format:
                return None
        found = Calibration.parse(document)
        found.check(manifest, format)
        return found

    def require(self, how: Asking) -> None:
        """UnsupportedError where a calibration was given that does not serve what is asked."""
        one = self.calibration
        if self.required and one is not None and not one.serves(how):
            labels = (
                ""
                if one.readout != "labels"
                else ", its orderings and its budget, without early stop or prior"
            )
            raise UnsupportedError(
                f"The calibration is for the {one.readout} readout{labels}: ask in that way, or leave it out.",
                readout=how.readout,
                calibrated=one.readout,
            )

    def apply(
        self, how: Asking, question: Question, logits: Sequence[float]
    ) -> tuple[Answer, Applied] | None:
        """The calibrated answer, and what was done; None where nothing is."""
        one = self.calibration
        return one.apply(question, logits) if one is not None and one.serves(how) else None

    def facts(self) -> dict[str, Any] | None:
        """What an engine's `info` says of it."""
        return None if self.calibration is None else self.calibration.facts()


class _Fields:
    """Takes checked fields from a JSON object, and names field and value where one is wrong."""

    def __init__(self, value: object, at: str) -> None:
        if not isinstance(value, Mapping):
            raise _malformed(at.rstrip(".") or "it", "is not an object", value)
        self.value: Mapping[str, Any] = value
        self.at = at

    def take(self, key: str, valid: Any, wanted: str) -> Any:
        if key not in self.value or not valid(self.value[key]):
            raise self.error(key, f"is not {wanted}")
        return self.value[key]

    def child(self, key: str) -> _Fields:
        return _Fields(self.value.get(key), f"{self.at}{key}.")

    def error(self, key: str, why: str) -> UnsupportedError:
        return _malformed(f"{self.at}{key}", why, self.value.get(key))


def _malformed(field: str, why: str, value: object) -> UnsupportedError:
    return UnsupportedError(f"This is no calibration: {field} {why}.", field=field, value=value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_whole(value) and value >= 1


def _is_level(value: object) -> bool:
    return value in ("auto", "all") or _is_count(value)
