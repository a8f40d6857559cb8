"""Writes the files of tests/vectors on which Python and JavaScript must agree (`build` names them).

`python -m tests.make_vectors` writes them, `--check` only says whether they are up to date. The expected values
are what `typedecide` computes today: review a change in them as a change in behaviour. Inputs are built here,
from fixed seeds; the two tokenizers are small but real byte-level BPE models.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Regex
from tokenizers import Tokenizer as BPE
from tokenizers.models import BPE as BPEModel
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

from tests.views import (
    COST,
    CRITERION,
    MANIFEST,
    POINTER_TEMPLATES,
    TEXT_TEMPLATES,
    Case,
    ancestors_view,
    answered_view,
    batch_view,
    calibration_answer_view,
    combination_view,
    metric_view,
    model_check_view,
    ordering_outcome,
    outcome,
    plan_view,
    pointer_template_view,
    pointer_view,
    prompt_view,
    question_view,
    readout_view,
    reply_view,
    request_outcome,
    same,
    session_view,
    spec_view,
    table_view,
    text_view,
    to_json,
    turn_view,
    written,
)
from typedecide import systemone
from typedecide.calibration import Calibration
from typedecide.errors import revive_error
from typedecide.labelled import true_option
from typedecide.options import Asking
from typedecide.orderings import (
    certified,
    cyclic_shifts,
    how_many,
    log_softmax,
    rotate,
    rounds,
)
from typedecide.pointer import scores
from typedecide.prior import MAX_STATES, MIN_STATES, without
from typedecide.questions import Criterion, parse_question
from typedecide.readout import read
from typedecide.text import gain

FOLDER = Path(__file__).parent / "vectors"
EXOTIC = [
    "cafe\u0301 / caf\u00e9",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "\U0001f3f3\ufe0f\u200d\U0001f308 flag",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd",
    "\u202ertl override\u202c",
    "nul\x00inside",
    "\x00",
    "\ufeffbyte order mark",
    "zero\u200bwidth",
    "Z\u0351\u036b\u0343\u036a\u0302a\u0363\u036cl\u0350g\u0352o",
    "\u4f60\u597d\uff0c\u4e16\u754c",
    "\ud55c\uad6d\uc5b4",
    "\U00020000\U0010ffff",
    "\u2028line\u2029paragraph",
    "tab\tand\r\nlines\n",
    '"quotes" \\ back\\slash',
    "{state} {criterion} {options} {label} {option} {{}} {",
    "$& $1 $$ \\1 \\g<0>",
    "<|im_end|><|endoftext|>",
    "__proto__",
    "constructor",
    "10",
    "2",
    "-1",
    "007",
    "4294967296",
]

# ------------------------------------------------------------------------------------------------ tokenizers

TEXT = (
    "Decide from the evidence which option fits criterion Evidence Criterion Options Answer Yes No "
    "The customer asks for a refund and is very angry today because of the late order"
)
WORDS = TEXT.split()


# White space is spelled out: the two languages' own `\s` differ, in U+FEFF for one.
_SPACE = "\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
GPT2_SPLIT = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+"
    rf"| ?[^{_SPACE}\p{{L}}\p{{N}}]+|[{_SPACE}]+(?![^{_SPACE}])|[{_SPACE}]+"
)


def make_tokenizer(merges: list[tuple[str, str]], split: bool) -> Case:
    """A byte-level BPE of the 256 byte characters and `merges`, as tokenizer.json holds it."""
    symbols = [*sorted(ByteLevel.alphabet()), *dict.fromkeys(left + right for left, right in merges)]
    vocabulary = {symbol: index for index, symbol in enumerate(symbols)}
    tokenizer = BPE(BPEModel(vocabulary, merges))
    byte_level = ByteLevel(add_prefix_space=False, use_regex=False)
    splitter = Split(Regex(GPT2_SPLIT), "isolated")
    tokenizer.pre_tokenizer = Sequence([splitter, byte_level]) if split else byte_level
    document: Case = json.loads(tokenizer.to_str())
    return document


def spell(word: str) -> list[tuple[str, str]]:
    """The merges that build `word` from left to right, plain and after a space (byte-level: Ġ)."""
    spellings = [word, "\u0120" + word]
    return [(text[:at], text[at]) for text in spellings for at in range(1, len(text))]


def plain_tokenizer() -> Case:
    """Splits as GPT-2 does, so a token crosses from the head into the tail only inside white space."""
    merges = [pair for word in WORDS for pair in spell(word)]
    merges += [("\u010a", "\u010a"), ("\u0120", "\u0120"), (".", "."), ("\u010d", "\u010a")]
    return make_tokenizer(list(dict.fromkeys(merges)), split=True)


def crossing_tokenizer() -> Case:
    """Does not split before merging, so that `.`, `!.` and `yes` at the state's end merge with the line feed (Ċ).

    A state that ends in `.` is saved by trimming one token; one that ends in `!.` or `yes` is not.
    """
    merges = [(".", "\u010a"), ("!", ".\u010a"), ("s", "\u010a"), ("e", "s\u010a"), ("y", "es\u010a")]
    return make_tokenizer(merges, split=False)


class Encoder:
    """A tokenizer.json, as typedecide's Tokenizer protocol wants it."""

    def __init__(self, document: Case) -> None:
        self.bpe = BPE.from_str(json.dumps(document))

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, no special token added."""
        ids: list[int] = self.bpe.encode(text, add_special_tokens=False).ids
        return ids


# ------------------------------------------------------------------------------------------------ questions


def choice(criteria: object, instructions: object = "Which team?") -> Case:
    return {"type": "choice", "instructions": instructions, "criteria": criteria}


def score(criteria: object) -> Case:
    return {"type": "score", "instructions": "How angry?", "criteria": criteria}


def valid_questions() -> Iterator[tuple[str, object]]:
    listed = list(range(2, 12))
    yield "names in a list", choice(["billing", "technical", "other"])
    yield "names in an object", choice({"billing": "payments", "technical": None, "other": ""})
    yield "pairs", choice([["10", "ten"], ["2", "two"], ["1", None]])
    yield "pairs of the same text", choice([["a", "a"], ["b", "b"]])
    yield (
        "named records",
        choice([{"name": "10", "description": "ten"}, {"name": "2"}, {"name": "x", "z": 1}]),
    )
    yield "a mix of forms", choice(["a", ["b", "bee"], {"name": "c", "description": None}])
    yield "integer-like names in a list", choice(["10", "2", "1", "0", "-1", "007", "4294967296"])
    yield (
        "almost integer-like names in an object",
        choice({"b": "", "-1": "", "007": "", "1.0": "", "1e3": ""}),
    )
    yield "names of Object.prototype", choice({"constructor": "c", "__proto__": "p", "toString": None})
    yield "exotic names", choice(EXOTIC)
    yield "exotic names and descriptions", choice([[name, name[::-1]] for name in EXOTIC])
    yield (
        "names that differ in normal form, case or space only",
        choice(["\u00e9", "e\u0301", "\u00c9", " \u00e9"]),
    )
    yield "a space and a control character", choice(["\x1c", "\ufeff", "\u200b", " a "])
    yield "no instructions", {"type": "choice", "criteria": ["a", "b"]}
    yield "null instructions", choice(["a", "b"], None)
    yield "two options", choice(["a", "b"])
    yield "255 options", choice([f"option {i}" for i in range(255)])
    yield "255 options in an object", choice({f"option {i}": f"the {i}th" for i in range(255)})
    yield "unknown fields", {**choice(["a", "b"]), "x_hint": [1], "weight": None}
    yield "levels in a list", score(["calm", "annoyed", "furious"])
    yield "levels in an object", score({"calm": "polite words", "furious": None})
    yield "ten integer-like levels", score([str(i) for i in reversed(range(10))])
    yield "two levels", score(["low", "high"])
    yield "ten levels", score([f"level {i}" for i in listed])
    yield "noul, instructions only", {"type": "noul", "instructions": "Is it urgent?"}
    yield "noul, criteria only", {"type": "noul", "criteria": "Is it urgent?"}
    yield "noul, both", {"type": "noul", "instructions": "Read closely.", "criteria": "Is it urgent?"}
    yield "noul, null criteria", {"type": "noul", "instructions": "Is it urgent?", "criteria": None}
    yield "noul, empty criteria", {"type": "noul", "instructions": "Is it urgent?", "criteria": ""}
    yield (
        "noul, two-sided",
        {"type": "noul", "instructions": "Urgent?", "criteria": {"true": "today", "false": "later"}},
    )
    yield "noul, true only", {"type": "noul", "instructions": "Urgent?", "criteria": {"true": "today"}}
    yield (
        "noul, false only",
        {"type": "noul", "instructions": "Urgent?", "criteria": {"false": "later", "true": None}},
    )
    yield "noul, no side", {"type": "noul", "instructions": "Urgent?", "criteria": {}}
    yield (
        "noul, no instructions, two-sided",
        {"type": "noul", "criteria": {"true": "a threat", "false": "none"}},
    )
    for text in EXOTIC:
        yield f"noul, exotic {text!a}", {"type": "noul", "criteria": text}


def invalid_questions() -> Iterator[tuple[str, object]]:
    value: object
    for value in (None, True, 3, "choice", [], ["a"]):
        yield f"question is {value!r}", value
    yield "no type", {"criteria": ["a", "b"]}
    for value in (None, "boolean", "Choice", "toString", 1, ["noul"]):
        yield f"type is {value!r}", {"type": value, "criteria": ["a", "b"]}
    for value in (3, False, ["Route it."], {"task": "route"}, "\ud800", "a\udfffb"):
        yield f"instructions are {value!r}", choice(["a", "b"], value)
    yield "no criteria", {"type": "choice", "instructions": "Which team?"}
    for value in (None, "a, b", 2, False, [], {}, ["a"], {"a": ""}):
        yield f"choice criteria are {value!r}", choice(value)
        yield f"score criteria are {value!r}", score(value)
    yield "256 options", choice([f"option {i}" for i in range(256)])
    yield "11 levels", score([f"level {i}" for i in range(11)])
    for name in ("", " ", "\t\r\n", "\u00a0\u2003\u3000", "\u0085", "\u2028\u1680\u205f\u202f"):
        yield f"blank name {name!a}", choice(["a", name])
        yield f"blank name {name!a} in an object", choice({"a": "", name: "nothing"})
    for value in (
        None,
        1,
        True,
        ["a"],
        ["a", "b", "c"],
        {"label": "a"},
        {"name": None},
        [None, "b"],
        {"name": 2},
    ):
        yield f"name is {value!r}", choice(["a", value])
    for value in (3, False, ["bugs"], {"owns": "bugs"}, "\udc00"):
        yield f"description is {value!r}", choice({"a": "", "b": value})
        yield f"description is {value!r} in a list", score(["a", ["b", value]])
    yield "same name twice", choice(["a", "b", "a"])
    yield "same name twice, described differently", choice([["a", "1"], ["b", None], {"name": "a"}])
    yield "same level twice", score(["low", "low"])
    yield "lone surrogate in a name", choice(["a", "b\ud83d"])
    yield "swapped surrogates", choice(["a", "\ude00\ud83d"])
    yield "lone surrogate in a name in an object", choice({"a": "", "\udc00": ""})
    for value in (1, True, ["Urgent?"], "\ud800", {"true": 1}, {"false": ["no"]}, {"true": "\udfff"}):
        yield f"noul criteria are {value!r}", {"type": "noul", "instructions": "Urgent?", "criteria": value}
    for value in (None, "", " \n", {}, {"true": None, "false": ""}, {"true": " "}):
        yield f"noul without a text: {value!r}", {"type": "noul", "criteria": value}


ORDER_LOST = "JavaScript does not keep the order of integer-like option names in an object: use a list."


def reordered_questions() -> list[Case]:
    """Objects with integer-like keys: Python keeps their order, JavaScript must refuse them."""
    inputs = [
        (choice({"10": "ten", "2": "two"}), "2"),
        (score({"b": None, "0": "zero"}), "0"),
        (choice({"x": "", "4294967294": ""}), "4294967294"),
    ]
    return [
        {
            "name": f"integer-like name {key} in an object",
            "input": wire,
            **outcome(question_view, wire),
            "js_error": {
                "code": "INVALID_QUESTION",
                "message": ORDER_LOST,
                "data": {"value": key, "loc": ["criteria", key]},
            },
        }
        for wire, key in inputs
    ]


def batches() -> Iterator[tuple[str, object]]:
    noul: Case = {"type": "noul", "criteria": "Urgent?"}
    yield "three kinds", {"team": choice(["a", "b"]), "anger": score(["low", "high"]), "urgent": noul}
    yield "exotic ids", {text: noul for text in EXOTIC}
    yield "blank id", {" ": noul}
    yield "no questions", {}
    yield "empty id", {"a": noul, "": noul}
    yield "lone surrogate in an id", {"\ud800": noul}
    yield "a bad question", {"a": noul, "team": choice(["a", ""])}
    yield "a question that is no object", {"team": None}
    for value in (None, [noul], "questions", 1):
        yield f"questions are {value!r}", value


def question_vectors() -> Case:
    cases = [
        {"name": name, "input": wire, **outcome(question_view, wire)}
        for make in (valid_questions, invalid_questions)
        for name, wire in make()
    ]
    grouped = [{"name": name, "input": wire, **outcome(batch_view, wire)} for name, wire in batches()]
    return {"questions": [*cases, *reordered_questions()], "batches": grouped}


# ------------------------------------------------------------------------------------------------ prompts

PIECES = [
    *EXOTIC,
    *WORDS,
    "\n",
    "\n\n",
    " ",
    "  ",
    ".",
    "!.",
    "yes",
    "\r\n",
    "\t",
    "1",
    "42",
    "def f(x):\n    return x",
]


def prompt_inputs() -> Iterator[tuple[str, str, object, Criterion]]:
    """(name, tokenizer, state, criterion)"""
    state: object
    for state in [
        "The customer asks for a refund.",
        "",
        " ",
        "\n",
        "ends with lines\n\n\n",
        "spaces   ",
        *EXOTIC,
    ]:
        yield f"state {state!a}", "plain", state, CRITERION
    for text in EXOTIC:
        yield f"criterion {text!a}", "plain", "It is late.", Criterion(text, (text, f"{text}: {text}"))
    options = tuple(f"option {i}" for i in range(26))
    yield "as many options as labels", "plain", "It is late.", Criterion("Which?", options)
    yield "more options than labels", "plain", "It is late.", Criterion("Which?", (*options, "one more"))
    yield "no text", "plain", "It is late.", Criterion("", ("a", "b"))
    for state in ("one token crosses.", "two tokens cross!.", "many cross: yes", "y", "no crossing"):
        yield f"crossing, {state!r}", "crossing", state, CRITERION
    for state in ("\ud800", "a\udc00", "\U0001f600\udfff!", None, 3, ["text"], {"text": "a"}):
        yield f"state {state!a}", "plain", state, CRITERION
    yield "lone surrogate in the text", "plain", "a", Criterion("\ud800", ("a", "b"))
    yield "lone surrogate in an option", "plain", "a", Criterion("a", ("a", "b\udfff"))
    rng = random.Random(2)
    for number in range(200):
        state = "".join(rng.choices(PIECES, k=rng.randrange(12)))
        texts = ["".join(rng.choices(PIECES, k=rng.randrange(1, 5))) for _ in range(rng.randrange(3, 8))]
        tokenizer = "crossing" if number % 4 == 0 else "plain"
        yield f"random {number}", tokenizer, state, Criterion(texts[0], tuple(texts[1:]))


def manifests() -> Iterator[tuple[str, Case]]:
    prompt, labels = MANIFEST["prompt"], MANIFEST["labels"]
    value: object
    yield "good", MANIFEST
    yield "no bos", {**MANIFEST, "prompt": {**prompt, "bos_ids": []}}
    yield "unknown braces", {**MANIFEST, "prompt": {**prompt, "head": "{x} {state} {constructor} {} {{"}}
    yield "no prompt", {"labels": labels}
    yield "prompt is a list", {**MANIFEST, "prompt": []}
    for key, value in (
        ("bos_ids", None),
        ("bos_ids", [1, -1]),
        ("bos_ids", ["1"]),
        ("bos_ids", [True]),
        ("bos_ids", 1),
        ("head", None),
        ("head", "no slot"),
        ("head", "{state}{state}"),
        ("tail", "{criterion}"),
        ("tail", 3),
        ("option", "{label}"),
        ("option", "{label} {option} {option}"),
    ):
        yield f"{key} is {value!r}", {**MANIFEST, "prompt": {**prompt, key: value}}
    for value in (
        None,
        {},
        [],
        [labels[0]],
        [labels[0], labels[0]],
        [labels[0], {"text": "A", "id": 1}],
        [labels[0], {"text": "Z", "id": 500}],
        [labels[0], {"text": "", "id": 1}],
        [labels[0], {"text": "B"}],
        [labels[0], {"text": "B", "id": 1.5}],
        [labels[0], {"text": "B", "id": False}],
        [labels[0], None],
    ):
        yield f"labels are {value!r}", {**MANIFEST, "labels": value}


def prompt_vectors(encoders: dict[str, Encoder]) -> Case:
    cases = [
        {
            "name": name,
            "tokenizer": tokenizer,
            "state": state,
            "criterion": {"text": criterion.text, "options": criterion.options},
            **outcome(prompt_view, encoders[tokenizer], state, criterion),
        }
        for name, tokenizer, state, criterion in prompt_inputs()
    ]
    specs = [
        {"name": name, "manifest": manifest, **outcome(spec_view, manifest)} for name, manifest in manifests()
    ]
    return {"manifest": MANIFEST, "prompts": cases, "manifests": specs}


# --------------------------------------------------------------------------------------------------- text


def text_inputs() -> Iterator[tuple[str, str, str, Case]]:
    """(name, tokenizer, state, question)"""
    noul: Case = {"type": "noul", "criteria": "Urgent?"}
    yield "noul: Yes and No", "plain", "It is late.", noul
    yield (
        "a choice: names, no descriptions",
        "plain",
        "It is late.",
        choice({"billing": "money", "other": ""}),
    )
    yield "names that share their start", "plain", "It is late.", choice(["the one", "the other", "the"])
    yield "levels", "plain", "", score(["low", "middle", "high"])
    for number, text in enumerate(EXOTIC):
        yield f"exotic text {number}", "plain", text, choice([text, f"{text} {{option}}"], text)
    yield "a state that the trim saves", "crossing", "It is late.", noul
    yield "a state that merges too far", "crossing", "It is late!.", noul


def text_vectors(encoders: dict[str, Encoder]) -> Case:
    cases = [
        {
            "name": name,
            "tokenizer": tokenizer,
            "state": state,
            "question": wire,
            **outcome(text_view, encoders[tokenizer], state, wire),
        }
        for name, tokenizer, state, wire in text_inputs()
    ]
    gains = [
        {"evidence": evidence, "blank": blank, "expect": gain(evidence, blank)}
        for evidence, blank in (([-3.0, -5.0], [-4.0, -5.5]), ([-0.1, -0.2, -0.3], [0.0, -7.5, -1e-3]))
    ]
    return {"manifest": MANIFEST, "templates": TEXT_TEMPLATES, "branches": cases, "gains": gains}


# ------------------------------------------------------------------------------------------------ pointer


def pointer_inputs() -> Iterator[tuple[str, str, str, Case]]:
    """(name, tokenizer, state, question)"""
    noul: Case = {"type": "noul", "criteria": "Urgent?"}
    yield "noul: Yes and No", "plain", "It is late.", noul
    yield "a choice: descriptions too", "plain", "It is late.", choice({"billing": "money", "other": ""})
    yield "options that share their start", "plain", "It is late.", choice(["the one", "the other", "the"])
    yield "options that read alike", "plain", "It is late.", choice({"a": "b: c", "a: b": "c"})
    yield "levels", "plain", "", score(["low", "middle", "high"])
    for number, text in enumerate(EXOTIC):
        yield f"exotic text {number}", "plain", text, choice([text, f"{text} {{option}}"], text)
    yield "a state that the trim saves", "crossing", "It is late.", noul
    yield "a state that merges too far", "crossing", "It is late!.", noul


def pointer_template_inputs() -> Iterator[tuple[str, Case]]:
    """(name, templates)"""
    bad: object
    yield "as they are", POINTER_TEMPLATES
    for key in POINTER_TEMPLATES:
        yield f"no {key}", {other: text for other, text in POINTER_TEMPLATES.items() if other != key}
        for bad in (3, ""):
            yield f"{key} is {bad!r}", {**POINTER_TEMPLATES, key: bad}
    yield "a tail without its slot", {**POINTER_TEMPLATES, "pointer_tail": "\nOptions:"}
    yield "an option with two", {**POINTER_TEMPLATES, "pointer_option": "{option} {option}"}
    yield "braces in the answer are text", {**POINTER_TEMPLATES, "pointer_answer": "{option}:"}


def projection_inputs() -> Iterator[tuple[str, list[Any], int]]:
    """(name, projections, options)"""
    rng = random.Random(8)
    row = [0.5, -1.0, 2.0, 0.25, 0.125]
    yield "D = 1", [0.0, 1.0, 0.5, 0.0, 3.0, 0.0, 2.0, 0.0, 0.0], 2
    yield "D = 2, options alike", [*row, *row, *row], 2
    yield (
        "sums that cancel",
        [0.0] * 3 + [1e30, 1.0, -1e30] + [0.0] + [0.0] * 7 + [1.0, 1.0, 1.0] + [0.0] * 4,
        2,
    )
    yield "a row too few", [*row, *row], 2
    yield "a value too many", [*row, *row, *row, 1.0], 2
    yield "an even width", [1.0] * 12, 2
    yield "a width of 1", [1.0] * 3, 2
    yield "no values", [], 2
    for at in (0, 7, 14):
        for bad in (math.nan, math.inf, -math.inf):
            values = [*row, *row, *row]
            values[at] = bad
            yield f"value {at} is {bad}", values, 2
    for number in range(40):
        options, size = rng.choice([2, 3, 11, 255]), rng.choice([1, 2, 5, 32])
        if options * size <= 400:
            count = (options + 1) * (2 * size + 1)
            yield f"random {number}", [rng.gauss(0, 10 ** rng.uniform(-3, 2)) for _ in range(count)], options


def pointer_vectors(encoders: dict[str, Encoder]) -> Case:
    questions = [
        {
            "name": name,
            "tokenizer": tokenizer,
            "state": state,
            "question": wire,
            **outcome(pointer_view, encoders[tokenizer], state, wire),
        }
        for name, tokenizer, state, wire in pointer_inputs()
    ]
    templates = [
        {"name": name, "templates": templates, **outcome(pointer_template_view, templates)}
        for name, templates in pointer_template_inputs()
    ]
    projections = [
        {
            "name": name,
            "projections": to_json(values),
            "options": options,
            **outcome(scores, values, options),
        }
        for name, values, options in projection_inputs()
    ]
    return {
        "manifest": MANIFEST,
        "templates": POINTER_TEMPLATES,
        "questions": questions,
        "manifests": templates,
        "scores": projections,
    }


# ------------------------------------------------------------------------------------------------ readout


def readout_inputs() -> Iterator[tuple[str, Case, list[Any]]]:
    """(name, question, logits)"""
    bad: object
    noul: Case = {"type": "noul", "criteria": "Urgent?"}
    three = ["low", "middle", "high"]
    yield "noul", noul, [1.25, -0.5]
    yield "noul, a tie", noul, [3, 3]
    yield "noul, far apart", noul, [-800.0, 800.0]
    yield "huge logits", choice(three), [1e308, -1e308, 1e308]
    yield "tiny differences", choice(three), [1e-300, 0, -1e-300]
    yield "a late tie", choice(three), [0.0, 2.0, 2.0]
    yield "all equal", choice([str(i) for i in range(49)]), [0.1] * 49
    yield "score, all equal", score(three), [5.0, 5.0, 5.0]
    yield "score, both ends", score(three), [9.0, -9.0, 9.0]
    yield "score, certain", score(three), [-100, 100, -100]
    yield "255 options", choice([f"option {i}" for i in range(255)]), [math.sin(i) * 9 for i in range(255)]
    for bad in (math.nan, math.inf, -math.inf):
        yield f"a logit is {bad}", choice(three), [0.0, bad, 1.0]
    yield "too few logits", choice(three), [0.0, 1.0]
    yield "too many logits", noul, [0.0, 1.0, 2.0]
    yield "no logits", noul, []
    for bad in ("1", None, True):
        yield f"a logit is {bad!r}", noul, [0.0, bad]
    rng = random.Random(3)
    for number in range(60):
        n = rng.randrange(2, 11)
        logits = [rng.uniform(-1, 1) * 10 ** rng.uniform(-3, 2) for _ in range(n)]
        make = (choice, score)[number % 2]
        yield f"random {number}", make([f"name {i}" for i in range(n)]), logits


def readout_vectors() -> Case:
    cases = [
        {
            "name": name,
            "question": wire,
            "logits": to_json(logits),
            **outcome(readout_view, wire, logits),
        }
        for name, wire, logits in readout_inputs()
    ]
    return {"readouts": cases}


# ------------------------------------------------------------------------------------------------ packing


def shift_suffixes(criterion: list[int], options: list[list[int]], end: list[int]) -> list[list[int]]:
    """The token ids of one question in every cyclic order: the labels (1, 2, …) keep their places, options move."""
    count = len(options)
    orders = [[options[(place + shift) % count] for place in range(count)] for shift in range(count)]
    return [
        [*criterion, *(token for label, option in enumerate(order, 1) for token in [label, *option]), *end]
        for order in orders
    ]


def random_suffixes(rng: random.Random) -> list[list[int]]:
    """Random ids from few tokens, so that much is shared, and questions in all orders, mixed."""
    suffixes = [rng.choices(range(3), k=rng.randrange(1, 9)) for _ in range(rng.randrange(6))]
    for _ in range(rng.randrange(3)):
        options = [rng.choices(range(20, 24), k=rng.randrange(1, 4)) for _ in range(rng.randrange(2, 6))]
        suffixes += shift_suffixes(rng.choices(range(10, 12), k=rng.randrange(4)), options, [30, 31])
    suffixes += rng.sample(suffixes, min(2, len(suffixes)))
    rng.shuffle(suffixes)
    return suffixes


def with_reads(rng: random.Random, ids: list[int]) -> Case:
    reads = rng.choice([None, rng.choices(range(len(ids)), k=rng.randrange(1, 4))])
    return {"ids": ids} if reads is None else {"ids": ids, "reads": reads}


def random_joined(rng: random.Random) -> Case:
    """A joined suffix of few different tokens, so that stems and branches share their starts."""
    branches = [[20, *rng.choices(range(20, 23), k=rng.randrange(4))] for _ in range(rng.randrange(1, 5))]
    tail = rng.choices(range(30, 32), k=rng.randrange(1, 4))
    return {"ids": [8, *rng.choices(range(2), k=rng.randrange(3))], "branches": branches, "tail": tail}


def packing_inputs() -> Iterator[tuple[str, list[Case], int]]:
    """(name, suffixes, budget)"""
    question = shift_suffixes([8, 9], [[20], [21, 22], [23]], [30])
    abc = [{"ids": [5, 6, 7]}, {"ids": [8]}, {"ids": [5, 6, 9]}]
    yield "no suffixes", [], 1
    yield "one token", [{"ids": [5]}], 1
    yield "children of an early token come before a later root", abc, 9
    yield "exactly the budget", abc, 5
    yield "one token less", abc, 4
    yield "a budget of 1", abc, 1
    yield "the same suffix again", [{"ids": [5, 6]}, {"ids": [5, 6]}, {"ids": [5, 6]}], 2
    yield "a suffix that starts another, after it", [{"ids": [5, 6, 7]}, {"ids": [5]}], 3
    yield "a suffix that starts another, before it", [{"ids": [5]}, {"ids": [5, 6, 7]}], 3
    yield "longer than the budget, between others", [{"ids": [5]}, {"ids": [5, 6, 7]}, {"ids": [5]}], 2
    yield "longer than the budget, twice", [{"ids": [5, 6, 7]}, {"ids": [5, 6, 7]}], 2
    yield "reads in any order, twice the same", [{"ids": [5, 6, 7], "reads": [2, 0, 2]}, {"ids": [5, 6]}], 9
    for budget in (100, 20, 14):
        yield f"three orders, budget {budget}", [{"ids": ids} for ids in question], budget
    yield "a budget of 0", abc, 0
    yield "a budget below 0, no suffixes", [], -3
    yield "no ids", [*abc, {"ids": []}], 9
    yield "no reads", [*abc, {"ids": [5], "reads": []}], 9
    for bad in (2, -1):
        yield f"a read at {bad} of 2", [{"ids": [5, 6], "reads": [1, bad]}], 9
    stem, tail = {"ids": [8, 9]}, {"tail": [30, 31]}
    joined: Case = {**stem, "branches": [[20, 22], [20, 21, 21], [25]], **tail}
    yield "joined: branches that share a start", [joined], 99
    yield "joined: branches in another order", [{**joined, "branches": joined["branches"][::-1]}], 99
    yield "joined: the same suffix twice, tails apart", [joined, joined], 99
    yield "joined: one branch starts another", [{**stem, "branches": [[20, 21], [20]], **tail}], 99
    yield "joined: equal branches", [{**stem, "branches": [[20], [21], [20]], **tail}], 99
    yield "joined: one branch", [{**stem, "branches": [[20]], "tail": [30]}], 99
    yield "joined: the tail's tokens are a branch of another suffix", [joined, {"ids": [8, 9, 30, 31]}], 99
    yield "joined: exactly the budget", [{"ids": [8]}, joined], 9
    yield "joined: one token less", [{"ids": [8]}, joined], 8
    yield "joined: counted, then in a run of its own", [joined, {**joined, "ids": [8]}, joined], 12
    yield "joined: an empty branch", [{**stem, "branches": [[20], []], **tail}], 99
    yield "joined: no tail", [{"ids": [5]}, {**stem, "branches": [[20]]}], 99
    yield "joined: no branches", [{**stem, **tail}], 99
    yield "joined: with reads", [{**joined, "reads": [0]}], 99
    yield "joined: no stem", [{**joined, "ids": []}], 99
    rng = random.Random(4)
    for number in range(60):
        suffixes = [with_reads(rng, ids) for ids in random_suffixes(rng)]
        yield f"random {number}", suffixes, rng.choice([1, 6, 12, 25, 60, 1000])
    for number in range(40):
        suffixes = [random_joined(rng) for _ in range(rng.randrange(1, 4))]
        suffixes += [with_reads(rng, ids) for ids in random_suffixes(rng)]
        rng.shuffle(suffixes)
        yield f"random, joined {number}", suffixes, rng.choice([1, 6, 12, 25, 60, 1000])


def tree_inputs() -> Iterator[tuple[str, list[int], list[tuple[int, list[int]]]]]:
    """(name, parents, joins as pairs)"""
    yield "no tokens", [], []
    yield "a chain", [-1, 0, 1, 2], []
    yield "roots", [-1, -1, -1], []
    yield "branches", [-1, 0, 1, 1, 0, 4, -1, 6], []
    yield "a tree that is not in pre-order", [-1, -1, 0, 1, 0], []
    yield "its own parent", [-1, 1], []
    yield "a parent that comes later", [-1, 0, 3, 2], []
    yield "below -1", [-2], []
    yield "a join", [-1, 0, 1, 0, 0, 4], [(4, [2, 3])]
    yield "a root that joins", [-1, 0, -1], [(2, [1])]
    yield "joins of what joins", [-1, -1, -1, -1], [(2, [0]), (3, [2])]
    yield "a join of itself", [-1, 0], [(1, [1])]
    yield "a join of a later token", [-1, 0, 0], [(1, [2])]
    yield "a join below 0", [-1, 0], [(1, [-1])]
    yield "a join of no token", [-1, 0], [(2, [1])]
    rng = random.Random(5)
    for number in range(20):
        yield f"random {number}", [rng.randrange(-1, i) for i in range(rng.randrange(1, 16))], []
    for number in range(20):
        parents = [rng.randrange(-1, i) for i in range(rng.randrange(2, 16))]
        tokens = sorted(rng.sample(range(1, len(parents)), rng.randrange(1, len(parents))))
        joins = [(i, sorted(rng.sample(range(i), rng.randrange(1, i + 1)))) for i in tokens[:4]]
        yield f"random, joined {number}", parents, joins


def packing_vectors() -> Case:
    plans = [
        {"name": name, "suffixes": suffixes, "budget": budget, **plan_view(suffixes, budget)}
        for name, suffixes, budget in packing_inputs()
    ]
    trees = [
        {"name": name, "parents": parents, "joins": joins, **ancestors_view(parents, joins)}
        for name, parents, joins in tree_inputs()
    ]
    return {"plans": plans, "trees": trees}


# ---------------------------------------------------------------------------------------------- orderings


def level_inputs() -> Iterator[tuple[int, Any, Any]]:
    """(options, level, budget)"""
    for n in (1, 2, 3, 4, 5, 26, 255):
        for level in ("auto", "all", 1, 2, 4, n):
            yield n, level, 4
    for budget in (2, 3, 255, 1000):
        yield from ((n, "auto", budget) for n in (2, 3, 255))
    yield from ((3, level, 4) for level in (0, -1, 2.5, 100))
    yield from ((n, "all", 4) for n in (0, -2, 2.5))
    yield from ((3, level, budget) for level in ("auto", "all", 1) for budget in (1, 0, 2.5))


def shift_inputs() -> Iterator[tuple[Any, Any]]:
    """(options, count)"""
    yield from ((n, count) for n in range(1, 13) for count in range(1, n + 1))
    yield from ((255, count) for count in (1, 2, 4, 7, 16, 254, 255))
    yield from ((26, count) for count in (27, 0, -1, 1.5))
    yield from ((n, 1) for n in (0, -1, 2.5))


def rotation_inputs() -> Iterator[tuple[list[Any], Any]]:
    """(items, shift)"""
    yield from ((list(EXOTIC[:n]), shift) for n in range(1, 6) for shift in range(n))
    yield [0.5, None, "a", 3, 3], 4
    yield from ((["a", "b"], shift) for shift in (2, -1, 0.5))
    yield [], 0


def combination_inputs() -> Iterator[tuple[str, list[list[Any]]]]:
    """(name, logits by ordering)"""
    bad: Any
    yield "one ordering", [[1.25, -0.5, 3.0]]
    yield "one ordering, a tie", [[1.0, 2.0, 2.0]]
    yield "two that agree", [[2.0, 0.0], [3.0, 0.5]]
    yield "two that disagree", [[2.0, 0.0], [1.0, 4.0]]
    yield "two that cancel", [[0.1, 0.7], [0.7, 0.1]]
    yield "a constant added to an ordering", [[2.0, 0.0], [1001.0, 1004.0]]
    yield "place alone", [rotate([0.1, 0.7, 1.3], shift) for shift in range(3)]
    yield (
        "place alone, 255 options",
        [rotate([math.sin(i) for i in range(255)], shift) for shift in (0, 1, 99)],
    )
    yield "the combined answer is in no ordering", [[3.0, 0.0, 2.9], [0.0, 3.0, 2.9]]
    yield "far apart", [[-800.0, 800.0, 0.0], [700.0, -700.0, 1.0]]
    yield "small differences", [[1e-300, 0.0, -1e-300], [0.0, 1e-9, 0.0]]
    yield "one option", [[4.0], [-3.0]]
    yield "too far apart", [[0.0, 1.0], [1e308, -1e308]]
    yield "no orderings", []
    yield "no logits", [[], []]
    yield "one logit too few", [[0.0, 1.0, 2.0], [0.0, 1.0]]
    yield "one logit too many", [[0.0, 1.0], [0.0, 1.0, 2.0]]
    for bad in (math.nan, math.inf, -math.inf, "1", None, True):
        yield f"a logit is {bad!r}", [[0.0, 1.0, 2.0], [0.0, bad, 1.0]]
    rng = random.Random(6)
    for number in range(60):
        n, scale = rng.randrange(2, 12), 10 ** rng.uniform(-2, 2)
        orderings = [[rng.gauss(0, scale) for _ in range(n)] for _ in range(rng.randrange(1, n + 1))]
        yield f"random {number}", orderings


def stop_inputs() -> Iterator[tuple[str, list[list[Any]], Any]]:
    """(name, log-probabilities so far, orderings planned)"""
    clear, close = [0.0, -8.0, -9.0], [-0.5, -1.0, -1.5]
    yield "none done", [], 4
    yield "all done", [clear, close, close], 3
    yield "all done, a tie", [[-1.0, -1.0]], 1
    yield "one of two", [[0.0, -700.0]], 2
    yield "one of four", [clear], 4
    yield "two of four", [clear, clear], 4
    yield "three of four", [clear, clear, clear], 4
    yield "three of four, the last one close", [clear, clear, close], 4
    yield "three of four, the lead is exactly what one can swing", [[0.0, -4.0], [0.0, -2.0], [-2.0, 0.0]], 4
    yield "three of four, a little more than that", [[0.0, -4.0], [0.0, -2.5], [-2.0, 0.0]], 4
    yield "three of four, one against", [clear, clear, [-9.0, -8.0, 0.0]], 4
    yield "a far third widens the swing", [[0.0, -2.0, -99.0], [0.0, -2.0, -3.0], [0.0, -2.0, -3.0]], 4
    yield "a tie for the lead", [[0.0, 0.0, -5.0]] * 3, 4
    yield "no difference at all", [[-0.5, -0.5]] * 3, 4
    yield "logits serve alike", [[100.0, 92.0, 91.0], [3.0, -5.0, -6.0], clear], 4
    yield "more done than planned", [clear, clear], 1
    yield "none planned", [], 0
    yield "planned 2.5", [clear], 2.5
    yield "one value too few", [clear, [0.0, -1.0]], 4
    yield "a value is -inf", [[0.0, -math.inf]], 4
    rng = random.Random(7)
    for number in range(60):
        n, total = rng.randrange(2, 8), rng.randrange(2, 9)
        strength = [rng.gauss(0, 4) for _ in range(n)]
        done = [[value + rng.gauss(0, 1) for value in strength] for _ in range(rng.randrange(1, total + 1))]
        yield f"random {number}", [list(log_softmax(logits)) for logits in done], total


def ordering_vectors() -> Case:
    return {
        "levels": [
            {"n": n, "level": level, "budget": budget, **ordering_outcome(how_many, n, level, budget)}
            for n, level, budget in level_inputs()
        ],
        "shifts": [
            {"n": n, "count": count, **ordering_outcome(cyclic_shifts, n, count)}
            for n, count in shift_inputs()
        ],
        "rotations": [
            {"items": items, "shift": shift, **ordering_outcome(turn_view, items, shift)}
            for items, shift in rotation_inputs()
        ],
        "combinations": [
            {"name": name, "orderings": to_json(orderings), **ordering_outcome(combination_view, orderings)}
            for name, orderings in combination_inputs()
        ],
        "stops": [
            {
                "name": name,
                "orderings": to_json(orderings),
                "total": total,
                **ordering_outcome(certified, orderings, total),
            }
            for name, orderings, total in stop_inputs()
        ],
        "rounds": [
            {"shifts": shifts, **ordering_outcome(rounds, shifts)}
            for shifts in [*(list(range(n)) for n in range(1, 12)), cyclic_shifts(255, 7)]
        ],
    }


# -------------------------------------------------------------------------------------------------- prior


def without_inputs() -> Iterator[tuple[str, list[Any], list[Any]]]:
    """(name, logits, logits of the prior)"""
    yield "all of it", [3.0, 1.0, -2.0], [3.0, 1.0, -2.0]
    yield "a flat prior", [3.0, 1.0], [7.0, 7.0]
    yield "the other way round", [1.0, 0.5], [4.0, -4.0]
    yield "far apart", [-800.0, 800.0], [700.0, -700.0]
    yield "too far apart", [0.0, 1.0], [1e308, -1e308]
    yield "no logits", [], []
    for bad in (math.nan, math.inf):
        yield f"a logit is {bad}", [0.0, bad], [0.0, 1.0]
        yield f"a logit of the prior is {bad}", [0.0, 1.0], [0.0, bad]
    rng = random.Random(9)
    for number in range(30):
        n, scale = rng.randrange(2, 12), 10 ** rng.uniform(-2, 2)
        yield f"random {number}", *([rng.gauss(0, scale) for _ in range(n)] for _ in range(2))


def session_inputs() -> Iterator[tuple[str, list[tuple[str, list[float]]]]]:
    """(name, answers: state and logits)"""
    rng = random.Random(10)
    answers = [
        (f"state {i}", [rng.gauss(1, 2), rng.gauss(0, 2), rng.gauss(-1, 2)]) for i in range(MIN_STATES + 3)
    ]
    yield "different states", answers
    yield "states that come again", [answers[i // 2] for i in range(2 * MIN_STATES + 2)]
    yield "another answer to a state that was counted", [*answers[:MIN_STATES], ("state 0", [9.0, 0.0, 0.0])]
    yield (
        "more states than count",
        [(f"state {i % (MAX_STATES + 2)}", [float(i % 3), float(i % 5)]) for i in range(MAX_STATES + 4)],
    )


def prior_vectors() -> Case:
    corrections = [
        {"name": name, "logits": to_json(logits), "prior": to_json(prior), **outcome(without, logits, prior)}
        for name, logits, prior in without_inputs()
    ]
    sessions = [
        {"name": name, "answers": to_json(answers), **outcome(session_view, answers)}
        for name, answers in session_inputs()
    ]
    return {"corrections": corrections, "sessions": sessions}


# ------------------------------------------------------------------------------------------------ metrics


def metric_inputs() -> Iterator[tuple[str, str, list[Any]]]:
    """(name, function of typedecide.metrics, its arguments)"""
    yield "no items", "mean", [[]]
    yield "no item counts", "mean", [[1.0, 0.0], [0, 0]]
    yield "right", "credit", [[0.2, 0.5, 0.3], 1]
    yield "a tie of two", "credit", [[0.4, 0.4, 0.2], 1]
    yield "all tie", "credit", [[0.25] * 4, 3]
    yield "certain and right", "brier", [[1.0, 0.0], 0]
    yield "certain and wrong", "brier", [[1.0, 0.0], 1]
    yield "two and four options", "chance", [[2, 4, 4]]
    yield "three names", "majority", [["a", "b", "b", "c"]]
    yield "an answer that is never true", "macro_f1", [["a", "b", "b"], ["a", "c", "b"]]
    yield "confidences that tie", "reliability", [[0.5] * 6, [1, 0, 1, 0, 0, 1], "mass", 2]
    yield "a confidence of 1", "reliability", [[0.05, 1.0, 0.999], [0, 1, 1], "width", 10]
    yield "errors that tie", "risk_coverage", [[0.9, 0.5, 0.5], [1, 0, 1]]
    yield "all levels tie", "kendall_tau", [[0.1, 0.2], [1, 1]]
    yield "ties on both sides", "kendall_tau", [[1.0, 1.0, 2.0, 3.0], [0, 1, 1, 2]]
    yield "no counts", "confusion", [[], [], 2]
    yield "three options", "confusion", [[0, 2, 2, 1], [0, 1, 2, 1], 3]
    yield "nothing to keep", "thresholds", [[], []]
    yield "confidences that tie, and one of 0", "thresholds", [[0.5, 0.9, 0.5, 0.0], [1, 1, 0.5, 0]]
    yield "one value", "interval", [[0.5]]
    yield "a half", "interval", [[0.0, 0.1, 0.4, 0.9], 0.5]
    rng = random.Random(11)
    for number in range(4):
        n = 40 + 30 * number
        confidences = [round(rng.uniform(0.3, 1), 2) for _ in range(n)]
        credits = [float(rng.random() < confidence) for confidence in confidences]
        names = [rng.choice("abcd") for _ in range(n)]
        chosen = [name if rng.random() < 0.6 else rng.choice("abcde") for name in names]
        levels = [rng.randrange(5) for _ in range(n)]
        expected = [round(level + rng.uniform(-2, 2), 1) for level in levels]
        for weights in (None, [rng.randrange(4) for _ in range(n)]):
            which = f"random {number}{', weighted' if weights else ''}"
            for binning in ("mass", "width"):
                bins = [confidences, credits, binning, 15, weights]
                yield f"{which}, {binning}", "reliability", bins
            yield which, "mean", [credits, weights]
            yield which, "macro_f1", [names, chosen, weights]
            yield which, "aurc", [confidences, credits, weights]
            yield which, "kendall_tau", [expected, levels, weights]
        yield f"random {number}", "risk_coverage", [confidences, credits]
        yield f"random {number}", "interval", [expected]
        yield f"random {number}", "quantile", [expected, rng.random()]
        yield f"random {number}", "thresholds", [confidences, credits]
        for error in (0.0, 0.05, 0.3):
            yield f"random {number}, {error}", "widest", [confidences, credits, error]
        yield f"random {number}", "at_threshold", [confidences, credits, rng.random()]


def metric_vectors() -> Case:
    return {
        "metrics": [
            {
                "name": name,
                "function": function,
                "arguments": arguments,
                "expect": metric_view(function, arguments),
            }
            for name, function, arguments in metric_inputs()
        ]
    }


# ------------------------------------------------------------------------------------------------- tables

TABLES: list[tuple[str, str, bytes, str, list[str]]] = [
    ("commas", "a.csv", b"id,text\r\n1,one\r\n2,two\r\n", "text", ["id"]),
    ("semicolons", "a.csv", "id;text\n1;eins, zwei\n2;drei 😠\n".encode(), "text", ["id"]),
    ("tabs", "a.csv", b"id\ttext\n1\tone\n", "text", ["id"]),
    ("tabs only", "a.tsv", b"id,text\tmore\n1,2\t3\n", "id,text", ["more"]),
    ("a byte order mark", "A.CSV", "\ufefftext\ncafé\n".encode(), "text", []),
    ("quotes", "a.csv", b'text,id\n"two\nlines; ""quoted""",1\n5" pipe,"2"\n"",3\n', "text", ["id"]),
    ("line ends of two kinds", "a.csv", b'id,text\r\n1,one\n2,"two\r\nlines"\r\n3,"x"\n4,y', "text", ["id"]),
    ("carriage returns only", "a.csv", b'id,text\r1,one\r2,"two"\r', "text", ["id"]),
    ("carriage returns within", "a.csv", b'text\n"a\rb"\n', "text", []),
    ("empty lines count", "a.csv", b"id,text\n\n1,one\n\r\n\n2,two\n\n", "text", ["id"]),
    ("one column, an empty text", "a.csv", b'text\n""\none\n\n', "text", []),
    ("blank texts", "a.csv", "id,text\n1, \n2,\u2003\n3,\n".encode(), "text", []),
    ("too few and too many cells", "a.csv", b"id,text\n1\n2,two,\xc3\xa9\n3,three\n", "text", []),
    (
        "bytes that are not UTF-8",
        "a.csv",
        b"id,text,x\nb\xe9,one,\n2,\xe2\x82,\n3,three,\xff\n",
        "text",
        ["id"],
    ),
    ("surrogates as UTF-8", "a.csv", b"text\n\xed\xa0\x80\n\xf0\x9f\x98\xa0\n\xc0\xaf\n", "text", []),
    ("names twice, not used", "a.csv", b"x,text,x\n1,one,2\n1, ,2\n", "text", []),
    ("a header alone", "a.csv", b"id,text", "text", ["id"]),
    ("quoted names", "a.csv", b'"id","text"\n"1","one"\n', "text", ["id"]),
    ("quoted names, semicolons", "a.csv", b'"id";"text, all"\n"1";"one, two"\n', "text, all", ["id"]),
    ("quoted names, tabs", "a.csv", b'"id"\t"text"\n"1"\t"one"\n', "text", ["id"]),
    ("text behind a quote", "a.csv", b'text,id\none,1\n"two"x,2\nthree,3\n', "text", ["id"]),
    ("a space behind a quote", "a.csv", b'text,id\r\n"two" ,2\r\n"three",3\r\n', "text", ["id"]),
    (
        "quotes within quotes",
        "a.csv",
        b'text,id\n"a "b" c",1\n"d ""e""",2\n"f "g"",3\n"two\nlines",4\n"h"i"j"k,"5"\n6" pipe,6\n',
        "text",
        [],
    ),
    ("quotes within quotes, then rows", "a.tsv", b'text\tid\n"a "b" c"\t1\nd\t2\n', "text", ["id"]),
    ("text behind a quote in the last line", "a.csv", b'text,id\none,1\n"two"x,2', "text", ["id"]),
    ("text behind a quote, carriage returns", "a.csv", b'text,id\r"two"x,2\rthree,3\r', "text", ["id"]),
    ("text behind a quote, no UTF-8", "a.csv", b'text,id\n"\xe9"x,2\n\xef\xbb\xbfthree,3\n', "text", ["id"]),
    ("text behind a quote in the names", "a.csv", b'"text"x,id\none,1\n', "text", []),
    ("an odd quote", "a.csv", b'text,id\n"5" pipe",1\ntwo,2\n', "text", []),
    ("an odd quote without quotes", "a.csv", b'text,id\n5" pipe,"1"x\ntwo,2\n', "text", []),
    ("a quote closed lines later", "a.csv", b'text,id\n"two,2\nthree,3" pipe\nfour,4\n', "text", []),
    ("two faults", "a.csv", b'text,id\n"two"x,2\n"three,3\nfour,4\n', "text", []),
    ("a quote never closed", "a.csv", b'text,id\none,1\n"two,2\nthree,3\n', "text", []),
    ("separators and quotes as text", "a.csv", b'text,id\n" , ",1\n"""",2\n'.replace(b"\\", b""), "text", []),
    (
        "JSON lines",
        "a.jsonl",
        '\ufeff{"text": "one", "n": 1.50}\n\n{"n": {"é": [true, null]}, "text": "two"}\r\n{"text": "3"}'.encode(),
        "text",
        ["n"],
    ),
    (
        "JSON lines with faults",
        "a.jsonl",
        b'{"text": 7}\n{\n[]\nnull\n{"text": "a", "text": "b"}\n{"other": ""}\n{"text": "caf\xe9"}\n'
        b'{"text": "\\ud800"}\n{"text": null}\n{"text": " "}\n{"text": NaN}\n{"text": "x", "n": 1e999}\n \t\n'
        b'{"text": {"long": "'
        + b"0123456789" * 8
        + b'", "\xc3\xa9\x7f": 1}}\n{"text": '
        + b"[" * 101
        + b"]" * 101
        + b"}\n"
        b'{"text": "good", "n": "\\ud83d\\ude20"}\n',
        "text",
        ["n"],
    ),
]
"""Name, file name, content, the column of the texts, the columns to copy."""


def random_tables() -> Iterator[tuple[str, str, bytes, str, list[str]]]:
    """As TABLES: quotes, separators and line ends in any order."""
    rng = random.Random(4)
    pieces, weights = ["a", "b", ",", '"', "\n", " ", '""', "é"], [5, 3, 4, 4, 3, 1, 1, 1]
    for number in range(120):
        end = rng.choice(["\n", "\r\n"])
        body = "".join(rng.choices(pieces, weights, k=rng.randint(5, 40))).replace("\n", end)
        yield f"random {number}", "a.csv", f"text,id{end}{body}".encode(), "text", ["id"]


def table_vectors() -> Case:
    rng = random.Random(3)
    floats = [
        0.0,
        -0.0,
        1.0,
        0.1,
        1 / 3,
        1e-4,
        1.5e-5,
        1e-5,
        5e-324,
        123456789.0,
        1e15,
        1e16,
        1.5e16,
        1e22,
        1e100,
    ]
    floats += [math.exp(-rng.uniform(0, 40)) for _ in range(40)] + [2**53 + 2.0, -1.25e-7, 12345.678]
    cells = [[], ["a", ""], ["a,b", 'c"d', "e;f", " g "], ["two\nlines", "\r", "\t", "é😠"]]
    tables = []
    for name, file, content, text, keep in [*TABLES, *random_tables()]:
        given = {"name": name, "file": file, "content": content.decode("latin-1"), "text": text, "keep": keep}
        tables.append({**given, **table_view(file, content, text, keep)})
    return {
        "numbers": [{"value": value, "expect": repr(value)} for value in floats],
        "lines": [{"cells": ["row", *one], "expect": written(["row", *one])} for one in cells],
        "tables": tables,
        "labels": [
            {"question": question, "cell": cell, "expect": true_option(parse_question(question), cell)}
            for question, cells in LABELS
            for cell in cells
        ],
    }


LABELS: list[tuple[Case, list[str]]] = [
    ({"type": "noul", "criteria": "Angry?"}, ["yes", " NO ", "True", "0", "1", "y", "", "2"]),
    ({"type": "choice", "criteria": ["a", " b", "C"]}, ["a", " a ", " b", "b", "c", "C\n", "", "A"]),
    ({"type": "score", "criteria": ["1", "2", "10"]}, ["1", "10", "1.0", " 2"]),
]
"""Questions, and cells that may hold their true answers."""


# -------------------------------------------------------------------------------------------- calibration

CALIBRATED: Case = {
    "model": {"name": "tiny", "origin": "folder tiny, model.safetensors sha256 12", "licence": "MIT"},
    "prompt": {"bos_ids": [7, 0], "head": "Evidence:\n{state}", "tail": "\nCriterion: {criterion}"},
}
"""What a calibration looks at in a manifest."""

CALIBRATION: Case = {
    "schema": 1,
    "model": {"name": "tiny", "origin": "folder tiny, model.safetensors sha256 12"},
    "format": "int8",
    "readout": "pointer",
    "orderings": None,
    "budget": None,
    "prompt": CALIBRATED["prompt"],
    "kinds": {"choice": {"temperature": 1.75, "n": 300}, "noul": {"temperature": 1, "n": 60}},
    "abstain": {"alpha": 0.1, "threshold": 0.6},
}


def changed(document: Case, path: str, value: Any) -> Case:
    """A document with another value at a dotted path, or none there."""
    copy: Case = json.loads(json.dumps(document))
    *parents, last = path.split(".")
    at = copy
    for key in parents:
        at = at[key]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return copy


LABELS_CALIBRATION: Case = {**CALIBRATION, "readout": "labels", "orderings": "auto", "budget": 4}


def calibration_documents() -> Iterator[tuple[str, Any]]:
    """(name, document)"""
    yield "a pointer", CALIBRATION
    yield "labels", LABELS_CALIBRATION
    for value in ("all", 3):
        yield f"labels in orderings {value}", changed(LABELS_CALIBRATION, "orderings", value)
    yield "orderings that do not matter", changed(CALIBRATION, "orderings", "some")
    yield "no kind", changed(CALIBRATION, "kinds", {})
    yield "a threshold of 0", changed(CALIBRATION, "abstain.threshold", 0)
    for document in (None, [], "text", 1):
        yield f"{json.dumps(document)} as the document", document
    wrong: dict[str, list[Any]] = {
        "schema": [..., 2, "1", True],
        "model": [..., []],
        "model.name": [..., 1],
        "model.origin": [None],
        "format": [..., 8],
        "readout": [..., None],
        "prompt": [..., "Evidence"],
        "kinds": [..., []],
        "kinds.essay": [{"temperature": 1}],
        "kinds.choice": [None, 1.5],
        "kinds.choice.temperature": [..., 0, -1, "1", True, None],
        "abstain": [..., 0.6],
        "abstain.alpha": [..., 1.5, "0.1"],
        "abstain.threshold": [..., None, -0.1, 1.01, False],
    }
    for path, values in wrong.items():
        for value in values:
            shown = "nothing" if value is ... else json.dumps(value)
            yield f"{shown} as {path}", changed(CALIBRATION, path, value)
    for path, values in {"orderings": [..., None, 0, "two"], "budget": [..., None, 0, 1.5]}.items():
        for value in values:
            shown = "nothing" if value is ... else json.dumps(value)
            yield f"{shown} as {path} of labels", changed(LABELS_CALIBRATION, path, value)


def calibration_checks() -> Iterator[tuple[str, Case, str]]:
    """(name, manifest, format)"""
    yield "its own", CALIBRATED, "int8"
    yield "another licence", changed(CALIBRATED, "model.licence", "Apache-2.0"), "int8"
    yield "another name", changed(CALIBRATED, "model.name", "small"), "int8"
    yield "other weights", changed(CALIBRATED, "model.origin", "folder tiny, sha256 13"), "int8"
    yield "another format", CALIBRATED, "fp32"
    yield "another head", changed(CALIBRATED, "prompt.head", "Text:\n{state}"), "int8"
    yield "other first ids", changed(CALIBRATED, "prompt.bos_ids", [7]), "int8"
    yield "one more template", changed(CALIBRATED, "prompt.option", "{option}"), "int8"
    yield "one template less", changed(CALIBRATED, "prompt.tail", ...), "int8"


def calibration_askings() -> Iterator[tuple[str, Case, Case]]:
    """(name, document, how it is asked)"""
    plain = {"orderings": "auto", "budget": 4, "early_stop": False, "prior": None, "run_tokens": 256}
    for readout in ("labels", "text", "pointer"):
        yield f"{readout} of a pointer", CALIBRATION, {"readout": readout, **plain}
        yield f"{readout} of labels", LABELS_CALIBRATION, {"readout": readout, **plain}
    for key, value in {
        "orderings": 1,
        "budget": 5,
        "early_stop": True,
        "prior": "batch",
        "run_tokens": 9,
    }.items():
        asked = {"readout": "labels", **plain, key: value}
        yield f"another {key}", LABELS_CALIBRATION, asked
        yield f"another {key} of a pointer", CALIBRATION, {**asked, "readout": "pointer"}
    one = changed(LABELS_CALIBRATION, "orderings", 1)
    yield "one ordering", one, {"readout": "labels", **plain, "orderings": 1}


def calibration_answers() -> Iterator[tuple[str, Case, Case, list[Any]]]:
    """(name, document, question, logits)"""
    choice = {"type": "choice", "criteria": ["a", "b", "c"]}
    noul = {"type": "noul", "criteria": "Is it?"}
    score = {"type": "score", "criteria": ["low", "middle", "high"]}
    yield "a choice that is sure", CALIBRATION, choice, [6.0, 1.0, -2.0]
    yield "a choice that abstains", CALIBRATION, choice, [1.0, 0.5, 0.0]
    yield "a kind that no temperature helped", CALIBRATION, noul, [0.3, -1.25]
    yield "a kind that is not calibrated", CALIBRATION, score, [0.0, 2.0, 1.0]
    yield "at the threshold", changed(CALIBRATION, "abstain.threshold", 0.5), noul, [0.5, 0.5]
    yield "nothing abstains", changed(CALIBRATION, "abstain.threshold", 0), noul, [0.5, 0.5]
    yield "all abstain", changed(CALIBRATION, "abstain.threshold", 1), noul, [999.0, 0.0]
    yield "a logit that is none", CALIBRATION, noul, [0.0, math.inf]
    yield "one logit too many", CALIBRATION, noul, [0.0, 1.0, 2.0]
    scores = changed(CALIBRATION, "kinds.score", {"temperature": 0.5})
    yield "a score", scores, score, [0.0, 2.0, 1.0]
    rng = random.Random(12)
    for number in range(20):
        document = changed(CALIBRATION, "kinds.choice.temperature", 10 ** rng.uniform(-1, 1))
        yield f"random {number}", document, choice, [rng.gauss(0, 3) for _ in range(3)]


def calibration_vectors() -> Case:
    parsed = Calibration.parse(CALIBRATION)
    return {
        "documents": [
            {"name": name, "document": document, **outcome(lambda d: Calibration.parse(d).facts(), document)}
            for name, document in calibration_documents()
        ],
        "checks": [
            {
                "name": name,
                "document": CALIBRATION,
                "manifest": manifest,
                "format": format,
                **outcome(parsed.check, manifest, format),
            }
            for name, manifest, format in calibration_checks()
        ],
        "askings": [
            {
                "name": name,
                "document": document,
                "how": how,
                "expect": Calibration.parse(document).serves(Asking(**how)),
            }
            for name, document, how in calibration_askings()
        ],
        "answers": [
            {
                "name": name,
                "document": document,
                "question": question,
                "logits": to_json(logits),
                **outcome(calibration_answer_view, document, question, logits),
            }
            for name, document, question, logits in calibration_answers()
        ],
    }


# ------------------------------------------------------------------------------------------------ System One


def request_body(questions: object, state: object = "I was charged twice.", **more: object) -> str:
    return json.dumps(
        {"model": "jev-latest", "state": state, "questions": questions, **more}, ensure_ascii=False
    )


def valid_requests() -> Iterator[tuple[str, str]]:
    noul: Case = {"type": "noul", "instructions": "Urgent?"}
    ask = request_body({"a": noul})
    yield "one question", ask
    yield (
        "three kinds",
        request_body({"a": noul, "team": choice(["a", "b"]), "anger": score(["low", "high"])}),
    )
    yield "no model", ask.replace('"model": "jev-latest", ', "")
    yield "null model", ask.replace('"jev-latest"', "null")
    yield "another model", ask.replace("jev-latest", "tiny")
    yield "unknown fields", request_body({"a": {**noul, "weight": 1}}, seed=7, x_trace={"deep": [1]})
    yield "empty state", request_body({"a": noul}, "")
    for value in (None, {}):
        yield f"assets are {value!r}", request_body({"a": noul}, assets=value)
    for text in EXOTIC:
        yield f"exotic {text!a}", request_body({text: choice({text: text, "other": None})}, text)
    yield (
        "escapes in strings",
        r'{"state": "a\u00e9\ud83d\ude00\n\/\"", "questions": {"\u0061": {"type": "noul", "criteria": "?"}}}',
    )
    yield (
        "white space",
        ' \t\r\n{ "state" : "x" , "questions" : { "a" : { "type" : "noul" , "criteria" : "?" } } } ',
    )
    structured = {
        "subject": "Charged twice",
        "lines": ["one", ["two", []], {}, {"é": "\U0001f600"}],
        "escaped": 'quote " slash \\ / line \n tab \t bell \x07 delete \x7f separators \u2028\u2029',
        "words": [True, False, None],
    }
    yield "state is an object", request_body({"a": noul}, structured)
    yield (
        "state is an array",
        request_body({"a": noul}, ["Charged twice.", {"10": "ten", "2": "two", "b": ""}]),
    )
    yield "state is empty", request_body({"a": noul}, [])
    numbers = "[0, -0, 1.0, 1e5, 1E+2, -2.50e-3, 123456789012345678901234567890, 0.1000, 1e-400]"
    yield "numbers as written", ask.replace('"I was charged twice."', numbers)
    yield (
        "keys in their order",
        request_body({"10": choice({"10": "ten", "2": None, "b": "", "1": "one"}), "2": noul}),
    )
    yield (
        "names of Object.prototype",
        request_body({"__proto__": choice({"constructor": None, "__proto__": "p"})}),
    )
    yield (
        "structured texts",
        request_body(
            {
                "noul": {
                    "type": "noul",
                    "instructions": {"task": "Decide", "include": ["refunds"]},
                    "criteria": {"true": {"examples": ["refund me"]}, "false": ["questions"]},
                },
                "choice": choice(
                    {"billing": {"owns": ["refunds"]}, "bugs": ["bugs"]}, ["Route.", "One team."]
                ),
                "score": score([{"label": "calm"}, ["a", "b"], "angry", {"name": "furious"}]),
                "listed": choice([["10", {"is": "ten"}], {"name": "2", "description": ["two"]}, "x"]),
            }
        ),
    )
    yield "numbers in levels", request_body({"a": score([[0], [1]])}).replace("[0]", "[0.50]")
    yield "one-sided noul", request_body({"a": {"type": "noul", "criteria": {"false": "later", "other": 1}}})
    yield "many options", request_body({"a": choice({f"{i}": None for i in reversed(range(255))})})
    yield "many levels of arrays", ask.replace('"I was charged twice."', "[" * 99 + "]" * 99)


def invalid_requests() -> Iterator[tuple[str, str]]:
    noul: Case = {"type": "noul", "instructions": "Urgent?"}
    ask = request_body({"a": noul})
    for text in (
        "",
        "{",
        "nul",
        "{'a': 1}",
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 01}',
        '{"a": 1,}',
        '"a\tb"',
    ):
        yield f"not JSON: {text}", text
    yield "byte order mark", f"\ufeff{ask}"
    yield "a key twice", ask.replace('"state"', '"model": "x", "state"')
    yield "a number that is too large", ask.replace('"I was charged twice."', "[1e999]")
    yield "an integer that is too large", ask.replace('"I was charged twice."', f"[-{'9' * 400}]")
    yield "too many levels", ask.replace('"I was charged twice."', "[" * 100 + "]" * 100)
    for text in ("[]", "null", "3", '"state"', "true"):
        yield f"the body is {text}", text
    yield "nothing", "{}"
    for value in (None, 3, True, 1.5):
        yield f"state is {value!r}", request_body({"a": noul}, value)
    for value in (3, False, ["jev-latest"], {}):
        yield f"model is {value!r}", request_body({"a": noul}, model=value)
    for value in (None, [noul], "questions", 3, {}):
        yield f"questions are {value!r}", request_body(value)
    for value in (None, 3, "noul", [], {}, {"type": "boolean"}, {"type": 3}, {"type": ["noul"]}):
        yield f"question is {value!r}", request_body({"a": value})
    for value in (3, True):
        yield f"instructions are {value!r}", request_body({"a": choice(["a", "b"], value)})
    for value in (
        None,
        3,
        "a",
        {},
        [],
        ["a"],
        {"a": None},
        ["a", 3],
        ["a", None],
        {"a": 3, "b": None},
        ["a", "a"],
    ):
        yield f"choice criteria are {value!r}", request_body({"a": choice(value)})
        yield f"score criteria are {value!r}", request_body({"a": score(value)})
    yield "a map of levels", request_body({"a": score({"0": "calm", "1": "angry"})})
    yield "levels of the same text", request_body({"a": score([["a"], '["a"]'])})
    for value in (None, 3, ["a"], {"true": 3}, {"false": True}, {"true": " "}):
        yield f"noul criteria are {value!r}", request_body({"a": {"type": "noul", "criteria": value}})
    for value in ({"x": {"type": "image"}}, [1], 3, "x"):
        yield f"assets are {value!r}", request_body({"a": noul}, assets=value)
    yield "empty id", request_body({"": noul})
    yield "256 options", request_body({"a": choice({f"{i}": None for i in range(256)})})
    yield "11 levels", request_body({"a": score([f"{i}" for i in range(11)])})
    yield (
        "many faults",
        request_body({"a": {"type": "x"}, "b": noul, "c": choice({"a": None, "": None})}, 3, model=3),
    )
    lone = "\\ud800"
    yield "lone surrogate in the state", ask.replace("I was", lone)
    yield (
        "lone surrogate in a structured state",
        ask.replace('"I was charged twice."', f'[{{"a": "{lone}"}}]'),
    )
    yield "lone surrogate in an id", ask.replace('"a"', f'"{lone}"')
    yield "lone surrogate in instructions", ask.replace("Urgent?", lone)
    yield "lone surrogate in structured instructions", ask.replace('"Urgent?"', f'["{lone}"]')
    yield "lone surrogate in a name", request_body({"a": choice({"x": "", "y": ""})}).replace("x", lone)


def wire_answers() -> Iterator[tuple[str, Case, str]]:
    """(name, request, the engine's answers and cost)"""
    debiased = {"orderings_used": 4, "flip_rate": 0.25}
    applied = {"calibration": {"temperature": 1.5}, "abstain": True}
    prior = {"prior": {"kind": "batch", "count": 9, "applied": True}}
    shallow = {"x_shallow": {"k": 22, "anchor": "instruction", "agreement": None}}
    teams = choice({"10": "ten", "2": None, "x": ""})
    noul: Case = {"type": "noul", "criteria": "Urgent?"}
    levels = score([["a", 1], {"label": "b"}, "c"])
    for name, question, logits, more in (
        ("choice", teams, [0.5, 2.0, -1.0], debiased),
        ("calibrated choice", teams, [0.5, 2.0, -1.0], {**debiased, **applied}),
        ("shallow choice", teams, [0.5, 2.0, -1.0], {**debiased, **shallow}),
        ("corrected choice", teams, [0.0, 0.0, 0.0], {**debiased, **prior}),
        ("noul", noul, [1.0, -1.0], debiased),
        ("calibrated noul", noul, [1.0, -1.0], {**debiased, **applied}),
        ("score", levels, [0.1, 0.2, 3.0], debiased),
        ("score of one-hot levels", levels, [0.0, 900.0, 0.0], debiased),
    ):
        answer = read(
            systemone.parse_request(request_body({"10": question}).encode()).questions["10"], logits
        )
        yield name, {"10": {**answer.to_dict(), **more}}, request_body({"10": question})
    both = {"b": {**read(parse_question(noul), [0.5, 0.0]).to_dict(), **debiased}}
    both["1"] = {**both["b"], "value": 0.25}
    yield "ids in their order", both, request_body({"b": noul, "1": noul})


def plain_errors() -> Iterator[tuple[str, Case]]:
    """(name, an error's JSON form)"""
    faults = [{"loc": ["body", "state"], "msg": "The state is missing.", "type": "missing"}]
    for code, data in (
        ("INVALID_REQUEST", {"faults": faults}),
        ("INVALID_QUESTION", {"value": 13, "loc": ["options"]}),
        ("INVALID_STATE", {"value": 3}),
        ("TOO_LONG", {"tokens": 9000, "limit": 8192, "prefix": 3}),
        ("UNSUPPORTED", {"model": "other", "known": ["tiny"]}),
        ("UNSUPPORTED", {"selfTest": []}),
        ("PREFIX_MISMATCH", {"position": 3, "prefix_token": 4, "full_token": None}),
        ("INTEGRITY", {"value": "NaN"}),
        ("DEVICE_LOST", {}),
        ("ABORTED", {}),
        ("NEWER", {"value": 1}),
    ):
        yield (
            f"{code} of {', '.join(data) or 'nothing'}",
            {"code": code, "message": f"What {code} means.", "data": data},
        )


def model_infos() -> Iterator[tuple[str, Case]]:
    info: Case = {"format": "int8", "candidate": "wasm", "context": 8192, "model": {"name": "tiny"}}
    yield "no date", info
    yield "a date", {**info, "model": {"name": "tiny", "released": "2024-11-01"}}


def systemone_vectors() -> Case:
    return {
        "requests": [
            {"name": name, "body": body, **request_outcome(body)}
            for make in (valid_requests, invalid_requests)
            for name, body in make()
        ],
        "answers": [
            {"name": name, "answers": answers, "body": body, "expect": to_json(answered_view(body, answers))}
            for name, answers, body in wire_answers()
        ],
        "cost": COST,
        "refusals": [
            {"name": name, "plain": plain, "expect": reply_view(systemone.refused(revive_error(plain)))}
            for name, plain in plain_errors()
        ],
        "models": [
            {"name": name, "info": info, "expect": reply_view(systemone.models(info))}
            for name, info in model_infos()
        ],
        "checks": [
            {"name": f"model {model!r}", "model": model, **outcome(model_check_view, model)}
            for model in (None, "tiny", "jev-latest", "jev", "", "über")
        ],
        "other": {
            "not found": reply_view(systemone.not_found("/v1/other")),
            "not allowed": reply_view(systemone.not_allowed("PUT", "POST")),
        },
    }


# ------------------------------------------------------------------------------------------------ files


def build() -> dict[str, Case]:
    """Every vector file's content, by file name."""
    documents = {"plain": plain_tokenizer(), "crossing": crossing_tokenizer()}
    encoders = {name: Encoder(document) for name, document in documents.items()}
    return {
        "questions.json": question_vectors(),
        "prompt.json": prompt_vectors(encoders),
        "readout.json": readout_vectors(),
        "orderings.json": ordering_vectors(),
        "packing.json": packing_vectors(),
        "text.json": text_vectors(encoders),
        "pointer.json": pointer_vectors(encoders),
        "prior.json": prior_vectors(),
        "metrics.json": metric_vectors(),
        "tables.json": table_vectors(),
        "calibration.json": calibration_vectors(),
        "systemone.json": systemone_vectors(),
        **{f"tokenizer-{name}.json": document for name, document in documents.items()},
    }


def render(document: Case) -> str:
    """JSON in ASCII, so that exotic characters survive every editor, one case a line, to be read as a diff."""
    lines = [f"  {json.dumps(key)}: {_render_value(value)}" for key, value in document.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _render_value(value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(f"    {json.dumps(item, allow_nan=False)}" for item in value) + "\n  ]"
    return json.dumps(value, allow_nan=False)


def stale_files(folder: Path) -> list[str]:
    """The names of this script's files that are missing in `folder`, or not as built today."""
    return [name for name, document in build().items() if not _is_current(folder / name, document)]


def _is_current(path: Path, document: Case) -> bool:
    return path.is_file() and same(json.loads(path.read_text("ascii")), json.loads(render(document)))


def main() -> int:
    """Writes the vectors, or with --check says which are stale."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is stale")
    if parser.parse_args().check:
        stale = stale_files(FOLDER)
        print("stale: " + ", ".join(stale) if stale else f"{FOLDER.name}: up to date")
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for name, document in build().items():
        (FOLDER / name).write_text(render(document), "ascii")
        print(f"wrote {FOLDER.name}/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
