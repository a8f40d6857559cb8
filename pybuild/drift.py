"""What a weight format costs: option probabilities against fp32 on a fixed set of prompts.

The prompts are data (`drift_prompts.json`): states, and questions asked about each of them, in one order of their
options.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from typedecide.model import NativeModel
from typedecide.prompt import Prompt, Tokenizer
from typedecide.questions import parse_questions
from typedecide.readout import softmax
from typedecide.readouts import Readout

LARGE = 0.05
"""Probability drift from which a format counts as lossy and says so."""

PROMPTS = Path(__file__).with_name("drift_prompts.json")

Probabilities = Sequence[Sequence[float]]


def probabilities(
    model: NativeModel,
    prompt: Prompt,
    readout: Readout,
    tokenizer: Tokenizer,
    anchor: int,
    advance: Callable[[], None] = lambda: None,
) -> Probabilities:
    """Option probabilities of every (state, question), states outermost, by a readout of one suffix a question.

    `anchor`: tokens of a shallow model's anchor.
    """
    fixed = json.loads(PROMPTS.read_text("utf-8"))
    questions = list(parse_questions(fixed["questions"]).values())
    result: list[Sequence[float]] = []
    for state in fixed["states"]:
        prefix = prompt.state_prefix_ids(tokenizer, state)
        cache = model.prefill(prefix, anchor=anchor)
        suffixes = [one for question in questions for one in readout.suffixes(state, prefix, question, 0)]
        found, _ = model.score(cache, suffixes)
        for question, one in zip(questions, found, strict=True):
            result.append(softmax(readout.reading(question, 0, [one])))
        advance()
    return result


def states() -> int:
    """How many states `probabilities` goes through."""
    return len(json.loads(PROMPTS.read_text("utf-8"))["states"])


def drift(reference: Probabilities, found: Probabilities) -> dict[str, Any]:
    """Largest and mean |difference| over all options, and how many answers change.

    >>> drift([[0.6, 0.4]], [[0.45, 0.55]])
    {'prompts': 1, 'max': 0.15, 'mean': 0.15, 'flips': 1, 'large': True}
    """
    pairs = list(zip(reference, found, strict=True))
    gaps = [abs(a - b) for p, q in pairs for a, b in zip(p, q, strict=True)]
    worst = max(gaps)
    return {
        "prompts": len(pairs),
        "max": round(worst, 9),
        "mean": round(sum(gaps) / len(gaps), 9),
        "flips": sum(_argmax(p) != _argmax(q) for p, q in pairs),
        "large": worst > LARGE,
    }


def _argmax(values: Sequence[float]) -> int:
    return values.index(max(values))
