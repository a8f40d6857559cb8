"""The shared vectors as checks: each says by an AssertionError that Python does not meet a case.

Standard library and typedecide only, because Pyodide runs them too: the tokenizers of the vectors come from outside.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests import views
from typedecide import pointer, prior, systemone, text
from typedecide.calibration import Calibration
from typedecide.errors import revive_error
from typedecide.labelled import true_option
from typedecide.options import Asking
from typedecide.orderings import certified, cyclic_shifts, how_many, rounds
from typedecide.prompt import Tokenizer
from typedecide.questions import Criterion, parse_question

FOLDER = Path(__file__).parent / "vectors"
NAMED = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
TOKENIZERS = ("plain", "crossing")

Case = dict[str, Any]
Check = Callable[[], None]
Encoders = Mapping[str, Tokenizer]


def load(name: str) -> Any:
    """A vector file's content."""
    return json.loads((FOLDER / name).read_text("ascii"))


def numbers(values: list[Any]) -> list[Any]:
    """Numbers from a vector file, in which those that JSON lacks stand by name."""
    return [NAMED.get(value, value) if isinstance(value, str) else value for value in values]


def met(case: Case, outcome: Case) -> bool:
    """Whether an outcome is what a case expects, or the error that it does."""
    wanted = {key: case[key] for key in ("expect", "error", "range_error", "refused") if key in case}
    return views.same(wanted, json.loads(json.dumps(outcome)))


def checks(encoders: Encoders) -> Iterator[tuple[str, Check]]:
    """Every check with its name; `encoders` are the tokenizers of tests/vectors, by name."""
    for file, groups in _outcomes(encoders).items():
        document = load(file)
        for group, outcome in groups.items():
            for index, case in enumerate(document[group]):
                yield f"{file} {group} {case.get('name', index)}", _check(case, outcome)


def _check(case: Case, outcome: Callable[[Case], Case]) -> Check:
    def check() -> None:
        found = outcome(case)
        assert met(case, found), found

    return check


def _outcomes(encoders: Encoders) -> dict[str, dict[str, Callable[[Case], Case]]]:
    """What comes of a case, by file and by the list that it is in."""
    of, ordered = views.outcome, views.ordering_outcome

    def criterion(case: Case) -> Criterion:
        return Criterion(case["criterion"]["text"], tuple(case["criterion"]["options"]))

    def rows(case: Case) -> list[list[Any]]:
        return [numbers(logits) for logits in case["orderings"]]

    return {
        "questions.json": {
            "questions": lambda c: of(views.question_view, c["input"]),
            "batches": lambda c: of(views.batch_view, c["input"]),
        },
        "prompt.json": {
            "prompts": lambda c: of(views.prompt_view, encoders[c["tokenizer"]], c["state"], criterion(c)),
            "manifests": lambda c: of(views.spec_view, c["manifest"]),
        },
        "text.json": {
            "branches": lambda c: of(views.text_view, encoders[c["tokenizer"]], c["state"], c["question"]),
            "gains": lambda c: of(text.gain, c["evidence"], c["blank"]),
        },
        "pointer.json": {
            "questions": lambda c: of(
                views.pointer_view, encoders[c["tokenizer"]], c["state"], c["question"]
            ),
            "manifests": lambda c: of(views.pointer_template_view, c["templates"]),
            "scores": lambda c: of(pointer.scores, numbers(c["projections"]), c["options"]),
        },
        "prior.json": {
            "corrections": lambda c: of(prior.without, numbers(c["logits"]), numbers(c["prior"])),
            "sessions": lambda c: of(views.session_view, c["answers"]),
        },
        "readout.json": {
            "readouts": lambda c: of(views.readout_view, c["question"], numbers(c["logits"])),
        },
        "orderings.json": {
            "levels": lambda c: ordered(how_many, c["n"], c["level"], c["budget"]),
            "shifts": lambda c: ordered(cyclic_shifts, c["n"], c["count"]),
            "rotations": lambda c: ordered(views.turn_view, c["items"], c["shift"]),
            "rounds": lambda c: ordered(rounds, c["shifts"]),
            "combinations": lambda c: ordered(views.combination_view, rows(c)),
            "stops": lambda c: ordered(certified, rows(c), c["total"]),
        },
        "packing.json": {
            "plans": lambda c: views.plan_view(c["suffixes"], c["budget"]),
            "trees": lambda c: views.ancestors_view(c["parents"], c["joins"]),
        },
        "metrics.json": {
            "metrics": lambda c: of(views.metric_view, c["function"], c["arguments"]),
        },
        "tables.json": {
            "numbers": lambda c: {"expect": repr(c["value"])},
            "lines": lambda c: {"expect": views.written(c["cells"])},
            "tables": lambda c: views.table_view(
                c["file"], c["content"].encode("latin-1"), c["text"], c["keep"]
            ),
            "labels": lambda c: {"expect": true_option(parse_question(c["question"]), c["cell"])},
        },
        "calibration.json": {
            "documents": lambda c: of(lambda one: Calibration.parse(one).facts(), c["document"]),
            "checks": lambda c: of(Calibration.parse(c["document"]).check, c["manifest"], c["format"]),
            "askings": lambda c: of(Calibration.parse(c["document"]).serves, Asking(**c["how"])),
            "answers": lambda c: of(
                views.calibration_answer_view, c["document"], c["question"], numbers(c["logits"])
            ),
        },
        "systemone.json": {
            "requests": lambda c: views.request_outcome(c["body"]),
            "answers": lambda c: of(views.answered_view, c["body"], c["answers"]),
            "refusals": lambda c: {"expect": views.reply_view(systemone.refused(revive_error(c["plain"])))},
            "models": lambda c: {"expect": views.reply_view(systemone.models(c["info"]))},
            "checks": lambda c: of(views.model_check_view, c["model"]),
        },
    }
