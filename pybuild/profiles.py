"""What is known of the stock model: the readout that was best when measured, and the examples before every state.

A model without a profile, such as the default one, is read by its pointer, where it has one, or else by letters, and
has no examples.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pybuild.sources import STOCK_MODEL

INSTRUCTION = "Decide from the evidence which option fits the criterion.\n\n"
EVIDENCE = "Evidence:\n{state}"
TEXT_TAIL = "\nCriterion: {criterion}\nAnswer:"
TEXT_OPTION = " {option}"
POINTER_TAIL = "\nCriterion: {criterion}\nOptions:"
POINTER_OPTION = "\n- {option}"
POINTER_ANSWER = "\nAnswer:"


@dataclass(frozen=True)
class Example:
    """A worked example before the evidence: another text, a question about it, and the answer."""

    evidence: str
    criterion: str
    answer: str


@dataclass(frozen=True)
class Profile:
    """How a model is asked: its default readout (`labels`, `text` or `pointer`), and worked examples."""

    readout: str = "labels"
    examples: Sequence[Example] = ()

    @property
    def head(self) -> str:
        """The head template: instruction, examples, evidence.

        It is the same for every state, so its keys and values are computed once per loaded model.
        """
        worked = "".join(
            f"Evidence:\n{e.evidence}{TEXT_TAIL.format(criterion=e.criterion)}{TEXT_OPTION.format(option=e.answer)}\n\n"
            for e in self.examples
        )
        return INSTRUCTION + worked + EVIDENCE


def read_examples(path: Path) -> tuple[Example, ...]:
    """Examples from JSON: a list of `{"evidence", "criterion", "answer"}`."""
    return tuple(Example(**entry) for entry in json.loads(path.read_text("utf-8")))


PROFILES: Mapping[str, Profile] = {
    # Sentiment of 80 texts each (half of them negative), SmolLM2-135M-Instruct, VADER's ground truth: letters in both
    # orders .49 to .56; text readout .76 / .72 / .79 on tweets, Amazon and movie snippets, with these examples
    # .88 / .85 / .81.
    STOCK_MODEL: Profile("text", read_examples(Path(__file__).with_name("examples.json"))),
}


def profile_of(name: str, pointer: bool) -> Profile:
    """The profile of a model by its source's name; `pointer`: whether it has one, and so was tuned to be read by it.

    A cut-down model gets the readout of the whole one, but no examples: it learns nothing from them, and the slow
    devices that it is for would read them for nothing.
    """
    for known, profile in PROFILES.items():
        if name == known:
            return profile
        if name.startswith(f"{known}-"):
            return Profile(profile.readout)
    return Profile("pointer" if pointer else "labels")
