"""The `text` readout: how likely each option's own text is as the answer, against the same under blank evidence.

    score_i = log p(text_i | evidence, criterion) - log p(text_i | blank evidence, criterion)

which is the pointwise mutual information of evidence and answer (Holtzman et al., "Surface Form Competition", 2021;
domain-conditional PMI). No options are listed, so their order does not exist. Knows no tensors. `web/text.js` is its
twin; both run tests/vectors/text.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typedecide.prompt import Prompt, Tokenizer, fill, read_template, suffix_after
from typedecide.questions import Question

BLANK = "N/A"
"""The evidence that says nothing."""


@dataclass(frozen=True)
class Branch:
    """One option behind the cached prefix: its suffix, and which token is read at which place of it.

    ids: the tokens to run. The option's last token is only predicted, never run.
    reads: places in `ids`; `targets[j]` is predicted at `reads[j]`.
    targets: the option's tokens.
    """

    ids: tuple[int, ...]
    reads: tuple[int, ...]
    targets: tuple[int, ...]


class TextPrompt:
    """Writes the prompts of the text readout: the head of `prompt`, and a tail without options."""

    def __init__(self, prompt: Prompt, tail: str, option: str) -> None:
        self.prompt, self.tail, self.option = prompt, tail, option

    @classmethod
    def from_manifest(cls, prompt: Prompt, manifest: Mapping[str, Any]) -> TextPrompt:
        """The templates in `manifest["prompt"]`; BundleError says what is wrong."""
        spec = manifest["prompt"]
        tail = read_template(spec, "text_tail", ("criterion",))
        return cls(prompt, tail, read_template(spec, "text_option", ("option",)))

    def branches(
        self, tokenizer: Tokenizer, state: str, prefix: Sequence[int], question: Question
    ) -> list[Branch]:
        """One branch for each option, in order; they share everything before the option.

        Raises:
            PrefixMismatchError: the prefix, or the prompt up to the answer, merges with what follows it.
        """
        text = self.prompt.head_text(state) + fill(self.tail, {"criterion": question.criterion().text})
        bos = self.prompt.spec.bos_ids
        stem = [*bos, *tokenizer.encode(text)]
        before = suffix_after(prefix, stem)
        found = []
        for answer in answer_texts(question):
            full = [*bos, *tokenizer.encode(text + fill(self.option, {"option": answer}))]
            targets = suffix_after(stem, full)
            ids = [*before, *targets[:-1]]
            reads = range(len(before) - 1, len(ids))
            found.append(Branch(tuple(ids), tuple(reads), tuple(targets)))
        return found


def answer_texts(question: Question) -> tuple[str, ...]:
    """What each option reads as an answer: its name, and Yes or No."""
    return ("Yes", "No") if question.kind == "noul" else tuple(question.names)


def gain(evidence: Sequence[float], blank: Sequence[float]) -> list[float]:
    """score_i: the options' summed log-probabilities under the evidence, minus those under blank evidence.

    >>> gain([-3.0, -5.0], [-4.0, -5.5])
    [1.0, 0.5]
    """
    return [a - b for a, b in zip(evidence, blank, strict=True)]
