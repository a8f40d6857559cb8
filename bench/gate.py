"""`python -m bench.gate RESULTS.json`: from how many layers on are a model's shallow answers good enough?

Takes what `python -m bench shallow_quality` wrote of held-out texts. A form passes where the unfavourable ends of its
95 % intervals meet every limit; of those that pass, the one with the fewest layers is chosen, and among its anchors the
one with the least effect error. Where none passes, the whole model stays. The decision goes into
`models/NAME/shallow.json`, with the figures that it rests on; `python -m pybuild bundle --shallow auto` follows it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import common
from pybuild.shallow import SCHEMA, path_of
from typedecide.errors import TypedecideError
from typedecide.inputs import read_json

MOST_EFFECT_ERROR = 0.05
MOST_ACCURACY_LOSS = 0.01
LEAST_AGREEMENT = 0.98

LEAST_TEXTS = math.ceil(math.log(0.025) / math.log(LEAST_AGREEMENT))
"""With fewer texts not even an agreement without exception shows `LEAST_AGREEMENT`: where one answer in fifty differs,
more than one sample in forty of so few texts shows no difference, and resampling such a sample never finds one. This is
the exact binomial bound (Clopper and Pearson, 1934) for no difference at all."""

FIGURES = ("effect_error", "accuracy_loss", "agreement")
KEPT = ("k", "anchor", "n", "texts", "kl", "nll", "ece", "accuracy", "hidden_evidence_accuracy", *FIGURES)
"""What the file keeps of each row, besides the intervals of `FIGURES`."""


def faults(row: Mapping[str, Any]) -> list[str]:
    """Which limits a row does not meet, in words; none: it passes."""
    ends = row["intervals"]
    if any(ends[name] is None for name in FIGURES):
        return ["a figure is not defined"]
    found = []
    if row["texts"] < LEAST_TEXTS:
        found.append(f"{row['texts']} texts, at least {LEAST_TEXTS} are needed")
    if (error := ends["effect_error"][1]) > MOST_EFFECT_ERROR:
        found.append(f"effect error up to {error:.1%}")
    if (loss := ends["accuracy_loss"][1]) > MOST_ACCURACY_LOSS:
        found.append(f"accuracy loss up to {100 * loss:.1f} points")
    if (agreement := ends["agreement"][0]) < LEAST_AGREEMENT:
        found.append(f"agreement down to {agreement:.1%}")
    return found


def choose(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The row to take, None where none passes; rows without an anchor are of the whole model."""
    passing = [row for row in rows if row["anchor"] is not None and not faults(row)]
    return min(passing, key=lambda row: (row["k"], row["intervals"]["effect_error"][1]), default=None)


def decide(result: Mapping[str, Any]) -> dict[str, Any]:
    """The document that `shallow.json` is, from a result of `shallow_quality`."""
    if result.get("benchmark") != "shallow_quality" or result.get("suite") != "heldout":
        raise common.ArgumentError(
            "The gate is about held-out texts: it takes what `python -m bench shallow_quality --suite heldout` writes,"
            f" not {result.get('benchmark')} of {result.get('suite')}.",
            benchmark=result.get("benchmark"),
            suite=result.get("suite"),
        )
    rows = [row for row in result["rows"] if row["anchor"] is not None]
    chosen = choose(rows)
    return {
        "schema": SCHEMA,
        "model": {
            "name": result["model"],
            **{name: result[name] for name in ("origin", "layers", "reference", "readout", "format")},
        },
        "data": {name: result[name] for name in ("suite", "limit", "seed")},
        "limits": {
            "effect_error": MOST_EFFECT_ERROR,
            "accuracy_loss": MOST_ACCURACY_LOSS,
            "agreement": LEAST_AGREEMENT,
            "texts": LEAST_TEXTS,
        },
        "chosen": None if chosen is None else {"k": chosen["k"], "anchor": chosen["anchor"]},
        "rows": [
            {
                **{name: row[name] for name in KEPT},
                "intervals": {name: row["intervals"][name] for name in FIGURES},
                "faults": faults(row),
            }
            for row in rows
        ],
        **{name: result[name] for name in ("date", "versions", "command")},
    }


def summarise(document: Mapping[str, Any]) -> str:
    """The decision, and why the others do not pass."""
    layers, chosen = document["model"]["layers"], document["chosen"]
    lines = [
        f"  {row['k']:>3} of {layers} layers, anchor {row['anchor']}: {'; '.join(row['faults']) or 'passes'}"
        for row in document["rows"]
    ]
    if chosen is None:
        decision = f"none passes: the whole model stays, k = {layers}"
    else:
        decision = f"k = {chosen['k']} of {layers} layers, anchor {chosen['anchor']}"
    return "\n".join([f"gate of {document['model']['name']}:", *lines, decision])


def main(arguments: Sequence[str] | None = None) -> int:
    """Decide, print and write; exit status 2 for results that are not the gate's matter."""
    parser = argparse.ArgumentParser(prog="python -m bench.gate", description=__doc__)
    parser.add_argument(
        "results", metavar="RESULTS.json", help="written by `python -m bench shallow_quality`"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="where the decision goes (default: models/NAME/shallow.json)"
    )
    args = parser.parse_args(arguments)
    try:
        document = decide(read_json(args.results))
        out = args.out or path_of(document["model"]["name"])
        if not out.parent.is_dir():
            raise common.ArgumentError(f"{out.parent} is no folder: say --out FILE.", path=str(out.parent))
    except TypedecideError as error:
        print(f"error: {error.code}: {error.message}", file=sys.stderr)
        return 2
    out.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    print(summarise(document))
    print(f"wrote {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
