"""What was measured of a model's shallow forms: `shallow.json` beside the model, which `python -m bench.gate` writes.

Knows no model and no measurement: which forms there are, how often each answers like the whole model, and which one the
gate let through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pybuild.sources import MODELS, Source
from typedecide.errors import UnsupportedError
from typedecide.inputs import read_json

FILE = "shallow.json"
SCHEMA = 1

_KEPT = ("limits", "chosen", "rows")


@dataclass(frozen=True)
class Measured:
    """A document that was checked, and what of it is used.

    origin: the model's, as its source says it.
    chosen: layers and anchor that the gate let through; None: it let none through.
    agreements: by layers and anchor, the share of answers that are the whole model's.
    gate: what the gate found, as the manifest keeps it: the suite measured on, its limits, what it chose (None:
        nothing), and the rows of all forms.
    """

    origin: str
    chosen: tuple[int, str] | None
    agreements: Mapping[tuple[int, str], float]
    gate: Mapping[str, Any]

    @classmethod
    def parse(cls, document: Any, path: Path) -> Self:
        """Check a document; UnsupportedError says what is wrong."""
        try:
            schema, one = document["schema"], document["chosen"]
            forms = {(form["k"], form["anchor"]): float(form["agreement"]) for form in document["rows"]}
            chosen = None if one is None else (one["k"], one["anchor"])
            origin = document["model"]["origin"]
            gate = {"suite": document["data"]["suite"], **{name: document[name] for name in _KEPT}}
        except (LookupError, TypeError, ValueError) as error:
            raise UnsupportedError(
                f"{path} is not what `python -m bench.gate` writes: {error!r}.", path=str(path)
            ) from error
        if schema != SCHEMA or (chosen is not None and chosen not in forms):
            raise UnsupportedError(
                f"{path} has schema {schema!r} and chose {chosen}; this version reads schema {SCHEMA}, and the choice"
                " must be one of its rows.",
                path=str(path),
                schema=schema,
                chosen=chosen,
            )
        return cls(origin, chosen, forms, gate)

    @classmethod
    def find(cls, source: Source) -> Self | None:
        """That of a model; None where nobody has measured it, or an earlier model of its name."""
        path = path_of(source.name)
        if not path.is_file():
            return None
        found = cls.parse(read_json(str(path)), path)
        return found if found.origin == source.origin else None


def path_of(name: str) -> Path:
    """Where the file of a model lies."""
    return MODELS / name / FILE
