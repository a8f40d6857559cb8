"""Writes tests/vectors/decide.json: whole decisions, from text to answers, that page and Python engines repeat.

`python -m tests.make_decide_vectors` writes it. The expected values are what the native engine computes today with the
tiny model of tests/conftest.py, which has every readout: review a change in them as a change in behaviour.
"""

from __future__ import annotations

import sys
from typing import Any

from bench.tiny import build_tiny
from tests.make_vectors import FOLDER, render
from typedecide.native import NativeEngine
from typedecide.options import Options
from typedecide.orderings import Level
from typedecide.prior import MIN_STATES
from typedecide.questions import parse_questions
from typedecide.results import Decided, DecisionEngine

NAME = "decide.json"

Case = dict[str, Any]

STATES = [
    "My card was charged twice for order 4412, and nobody has answered me for four days.",
    "",
    "Der Anschluß läuft wieder 😀 — vielen Dank!\r\n\r\n{state}\n",
    *(f"Parcel {number} arrived {number} days late." for number in range(MIN_STATES)),
]

QUESTIONS: Case = {
    "queue": {
        "type": "choice",
        "instructions": "Which team should handle this?",
        "criteria": {
            "billing": "charges and refunds",
            "shipping": None,
            "accounts": "",
            "technical support": None,
        },
    },
    "10": {"type": "noul", "criteria": "Does the customer ask for money back?"},
    "2": {"type": "noul", "instructions": "Angry?", "criteria": {"true": "it sounds so", "false": ""}},
    "__proto__": {"type": "choice", "criteria": [["2", "two"], ["10", ""], ["naïve 😀", None]]},
    "alike": {"type": "choice", "criteria": [["a", "b: c"], ["a: b", "c"], ["d", ""]]},
    "certain": {
        "type": "choice",
        "instructions": "refund help never?",
        "criteria": ["again", "late", "refund"],
    },
    "mood": {
        "type": "score",
        "instructions": "How satisfied?",
        "criteria": ["furious", "annoyed", "neutral", "pleased", "delighted"],
    },
}

ASKED: list[tuple[str, list[int], Level | None, Options]] = [
    ("the bundle's defaults", [0], None, {}),
    ("one order", [1], 1, {"readout": "labels"}),
    ("both readings of a text", [0, 2, 0], 2, {"readout": "labels"}),
    ("a larger budget", [2], "auto", {"readout": "labels", "budget": 5}),
    ("all orders, in short runs", [0], "all", {"readout": "labels", "run_tokens": 100}),
    ("stopped early", [0], "all", {"readout": "labels", "early_stop": True}),
    ("option texts", [0], None, {"readout": "text"}),
    ("option texts, no text, short runs", [1], None, {"readout": "text", "run_tokens": 60}),
    ("a pointer", [0], None, {"readout": "pointer"}),
    ("a pointer, in short runs", [2], None, {"readout": "pointer", "run_tokens": 50}),
    ("less the content-free prior", [0], None, {"readout": "labels", "prior": "content-free"}),
    ("too few states for a batch prior", [0, 1, 2], None, {"readout": "labels", "prior": "batch"}),
    ("less the batch prior", [*range(MIN_STATES), 3, 0], None, {"readout": "labels", "prior": "batch"}),
]


REFUSED: list[Case] = [
    {
        "name": "more orders than options",
        "labels": None,
        "questions": [["mood", QUESTIONS["mood"]], ["10", QUESTIONS["10"]]],
        "options": {"readout": "labels", "orderings": 4},
        "error": {
            "loc": ["10"],
            "message": 'The orderings must be "auto", "all" or a whole number from 1 to 2,'
            " the number of options, not 4.",
        },
    },
    {
        "name": "more options than labels",
        "labels": 3,
        "questions": [["10", QUESTIONS["10"]], ["queue", QUESTIONS["queue"]]],
        "options": {"readout": "labels"},
        "error": {"loc": ["queue", "criteria"], "message": "This bundle has labels for 3 options."},
    },
    {
        "name": "no question",
        "labels": None,
        "questions": [],
        "options": {},
        "error": {"loc": [], "message": "There must be at least one question."},
    },
]
"""What `decide` refuses as an InvalidQuestionError, before anything runs, in a bundle that is left with `labels`."""


def ask(engine: DecisionEngine, states: list[str], orderings: Level | None, options: Options) -> Decided:
    """Decide about some states from scratch, one after another; what came of the last one."""
    engine.release()
    questions = parse_questions(QUESTIONS)
    for state in states[:-1]:
        engine.decide(state, questions, orderings, **options)
    return engine.decide(states[-1], questions, orderings, **options)


def view(done: Decided) -> Case:
    """What every engine must agree on. The answers are a list: as an object, JavaScript would put "10" first."""
    return {
        "prefix_tokens": done.prefill.tokens,
        "tokens_run": done.tokens_run,
        "tokens_saved": done.tokens_saved,
        "runs": done.runs,
        "answers": [[key, answer.to_dict()] for key, answer in done.answers.items()],
    }


def build(engine: DecisionEngine) -> Case:
    """The content of the file, by `engine`."""
    cases = []
    for name, states, orderings, options in ASKED:
        done = ask(engine, [STATES[i] for i in states], orderings, options)
        asked: Case = {"orderings": orderings, **options} if orderings is not None else {**options}
        cases.append({"name": name, "states": states, "options": asked, "expect": view(done)})
    return {
        "states": STATES,
        "questions": [*map(list, QUESTIONS.items())],
        "cases": cases,
        "refused": REFUSED,
    }


def main() -> int:
    """Writes the file."""
    with NativeEngine(build_tiny()) as engine:
        (FOLDER / NAME).write_text(render(build(engine)), "ascii")
    print(f"wrote {FOLDER.name}/{NAME}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
