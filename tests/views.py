"""What Python says of a vector's inputs, for the script that writes tests/vectors and for the checks of them.

Standard library and typedecide only: the checks run in Pyodide too.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typedecide import batch_tables, metrics, systemone, wire_json
from typedecide.batch import reject
from typedecide.calibration import Calibration
from typedecide.errors import TypedecideError
from typedecide.inputs import InputError
from typedecide.orderings import combine, rotate, unrotate
from typedecide.packing import Suffix, ancestors, plan_runs
from typedecide.pointer import PointerPrompt
from typedecide.prior import MIN_STATES, BatchPrior
from typedecide.prompt import Prompt, PromptSpec, Tokenizer
from typedecide.questions import Criterion, Question, parse_question, parse_questions
from typedecide.readout import read
from typedecide.text import TextPrompt

TOLERANCE = 1e-12

Case = dict[str, Any]

MANIFEST: dict[str, Any] = {
    "prompt": {
        "bos_ids": [7, 0],
        "head": "Decide from the evidence which option fits the criterion.\n\nEvidence:\n{state}",
        "tail": "\nCriterion: {criterion}\nOptions:\n{options}Answer:",
        "option": "{label}. {option}\n",
    },
    "labels": [{"text": chr(ord("A") + i), "id": 500 + 3 * i} for i in range(26)],
}

CRITERION = Criterion("Which team?", ("billing: payments, refunds", "other"))

TEXT_TEMPLATES = {"text_tail": "\nCriterion: {criterion}\nAnswer:", "text_option": " {option}"}

POINTER_TEMPLATES = {
    "pointer_tail": "\nCriterion: {criterion}\nOptions:",
    "pointer_option": "\n- {option}",
    "pointer_answer": "\nAnswer:",
}

COST: Case = {
    "tokens_run": 40,
    "tokens_saved": 9,
    "runs": 2,
    "ms": 12.5,
    "prefill": {"tokens": 31, "ms": 7.25},
}


def outcome(compute: Callable[..., Any], *inputs: object) -> Case:
    """What `compute` makes of `inputs`, or the error that it raises, as JSON."""
    try:
        return {"expect": to_json(compute(*inputs))}
    except TypedecideError as error:
        return {"error": describe_error(error)}


def describe_error(error: TypedecideError) -> Case:
    return {"code": error.code, "message": error.message, "data": to_json(error.data)}


def to_json(value: object) -> Any:
    """`value` for a JSON file; the numbers that JSON lacks as their JavaScript names."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value


def same(left: object, right: object) -> bool:
    """Equal, key order included; floats to TOLERANCE: the last bit of exp() may differ between machines."""
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return abs(left - right) <= TOLERANCE * max(1.0, abs(left))
    return type(left) is type(right) and left == right


def question_view(wire: object) -> Case:
    return view(parse_question(wire))


def view(question: Question) -> Case:
    """What both languages know of a question."""
    criterion = question.criterion()
    return {
        "kind": question.kind,
        "names": question.names,
        "criterion": {"text": criterion.text, "options": criterion.options},
    }


def batch_view(wire: object) -> list[list[Any]]:
    return [[key, view(question)] for key, question in parse_questions(wire).items()]


def prompt_view(encoder: Tokenizer, state: Any, criterion: Criterion) -> Case:
    prompt = Prompt(PromptSpec.from_manifest(MANIFEST))
    return {
        "head_text": prompt.head_text(state),
        "tail_text": prompt.tail_text(criterion),
        "label_ids": prompt.label_ids(criterion),
        "head_ids": prompt.head_ids(encoder),
        "state_prefix_ids": prompt.state_prefix_ids(encoder, state),
        "full_ids": prompt.full_ids(encoder, state, criterion),
        "suffix_ids": prompt.suffix_ids(encoder, state, criterion),
    }


def spec_view(manifest: Case) -> Case:
    spec = PromptSpec.from_manifest(manifest)
    prompt = Prompt(spec)
    return {
        "bos_ids": spec.bos_ids,
        "labels": [{"text": label.text, "id": label.id} for label in spec.labels],
        "head_text": prompt.head_text("{state} {x}"),
        "tail_text": prompt.tail_text(CRITERION),
    }


def text_view(encoder: Tokenizer, state: str, wire: Case) -> list[Case]:
    prompt = Prompt(PromptSpec.from_manifest(MANIFEST))
    text = TextPrompt(prompt, TEXT_TEMPLATES["text_tail"], TEXT_TEMPLATES["text_option"])
    prefix = prompt.state_prefix_ids(encoder, state)
    return [dataclasses.asdict(b) for b in text.branches(encoder, state, prefix, parse_question(wire))]


def pointer_view(encoder: Tokenizer, state: str, wire: Case) -> Case:
    manifest = {**MANIFEST, "prompt": {**MANIFEST["prompt"], **POINTER_TEMPLATES}}
    prompt = Prompt(PromptSpec.from_manifest(manifest))
    pointer = PointerPrompt.from_manifest(prompt, manifest)
    prefix = prompt.state_prefix_ids(encoder, state)
    return dataclasses.asdict(pointer.joined(encoder, state, prefix, parse_question(wire)))


def pointer_template_view(templates: Case) -> Case:
    pointer = PointerPrompt.from_manifest(Prompt(PromptSpec.from_manifest(MANIFEST)), {"prompt": templates})
    return {"tail": pointer.tail, "option": pointer.option, "answer": pointer.answer}


def readout_view(wire: Case, logits: list[float]) -> Case:
    return read(parse_question(wire), logits).to_dict()


def plan_view(suffixes: list[Case], budget: int) -> Case:
    """The plan, or what is wrong; joins as pairs, because an object's keys are texts."""
    try:
        runs = plan_runs([Suffix(**suffix) for suffix in suffixes], budget)
    except ValueError as error:
        return {"range_error": str(error)}
    return {
        "expect": [
            {**dataclasses.asdict(run), "joins": [list(pair) for pair in run.joins.items()]} for run in runs
        ]
    }


def ancestors_view(parents: list[int], joins: list[tuple[int, list[int]]]) -> Case:
    try:
        return {"expect": ancestors(parents, dict(joins))}
    except ValueError as error:
        return {"range_error": str(error)}


def ordering_outcome(compute: Callable[..., Any], *inputs: object) -> Case:
    try:
        return outcome(compute, *inputs)
    except ValueError as error:
        return {"range_error": str(error)}


def turn_view(items: list[Any], shift: int) -> Case:
    return {"rotated": rotate(items, shift), "unrotated": unrotate(items, shift)}


def combination_view(orderings: list[list[float]]) -> Case:
    return dataclasses.asdict(combine(orderings))


def session_view(answers: list[tuple[str, list[float]]]) -> list[Case]:
    """The corrected answers, the last ones of a long session."""
    prior = BatchPrior()
    found = []
    for state, logits in answers:
        prior.add(state, logits)
        found.append({"count": prior.count, "applies": prior.applies, "corrected": prior.correct(logits)})
    return found[-2 * MIN_STATES :]


def metric_view(function: str, arguments: list[Any]) -> Any:
    """A figure; of bins also the calibration error that they give."""
    if function in ("widest", "at_threshold"):
        confidences, credits, limit = arguments
        one = getattr(metrics, function)(metrics.thresholds(confidences, credits), limit)
        return one and vars(one)
    found = getattr(metrics, function)(*arguments)
    if function == "thresholds":
        return [vars(one) for one in found]
    if function != "reliability":
        return to_json(found)
    return {"bins": [vars(one) for one in found], "calibration_error": metrics.calibration_error(found)}


def table_view(name: str, content: bytes, text: str, keep: list[str]) -> Case:
    """The rows of a file: number, text, what is copied; and the lines that rejected ones are told in."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        rows: list[Any] = []
        rejects: list[str] = []
        try:
            for row in batch_tables.open_table(path, text, keep).rows():
                if row.fault:
                    rejects.append(batch_tables.to_json(reject(row)))
                else:
                    copied = (batch_tables.as_text(row.values.get(one)) or "" for one in keep)
                    rows.append([row.number, row.values[text], *copied])
        except InputError as error:
            return {"refused": error.message.replace(f"{folder}/", "")}
    return {"expect": {"rows": rows, "rejects": rejects}}


def written(cells: list[str]) -> str:
    """A line of CSV as results are written."""
    file = io.StringIO(newline="")
    csv.writer(file).writerow(cells)
    return file.getvalue()


def calibration_answer_view(document: Case, wire: Case, logits: list[float]) -> Case | None:
    done = Calibration.parse(document).apply(parse_question(wire), logits)
    return None if done is None else {**done[0].to_dict(), **done[1].to_dict()}


def request_view(body: str) -> Case:
    request = systemone.parse_request(body.encode("utf-8"))
    return {
        "model": request.model,
        "state": request.state,
        "questions": [[id, view(question)] for id, question in request.questions.items()],
        "legends": [[id, wire_json.dump(levels)] for id, levels in request.legends.items()],
    }


def request_outcome(body: str) -> Case:
    """As `outcome`, without what a language's own parser says of a fault."""
    done = outcome(request_view, body)
    for fault in done.get("error", {}).get("data", {}).get("faults", []):
        fault.pop("ctx", None)
    return done


def answered_view(body: str, answers: Case) -> Case:
    request = systemone.parse_request(body.encode("utf-8"))
    reply = systemone.answered(request, "tiny", {**COST, "answers": answers})
    plain = json.loads(wire_json.dump(reply.body))
    keys = [[id, list(one.get("probabilities", []))] for id, one in plain["answers"].items()]
    return {**reply_view(reply), "body": plain, "keys": keys}


def reply_view(reply: systemone.Reply) -> Case:
    return {"status": reply.status, "body": reply.body, "headers": dict(reply.headers)}


def model_check_view(model: str | None) -> None:
    systemone.check_model(systemone.Request(model, "", {}, {}), "tiny")
