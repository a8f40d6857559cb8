"""Questions about a composed text, with the answer that follows from its values.

Wording, kind of question, which options are offered, under which names and in which order are all drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from bench.generator.compose import Text, portion
from bench.generator.kinds import Attribute, Value
from typedecide.questions import Choice, Noul, Question, Score

NOT_STATED = (
    "Not stated", "not stated", "Not mentioned", "The text does not say", "unknown", "it is not said", "No information",
    "cannot be told from the text", "Unspecified", "says nothing about this",
)  # fmt: skip
NONE_OF_THESE = (
    "None of these",
    "none of the above",
    "Something else",
    "other",
    "another answer",
    "Neither fits",
)

_TITLES = (
    "{Title}?",
    "{Title}",
    "Which {title} does the text give?",
    "Pick the {title} that the text supports.",
    "Sort by {title}.",
    "According to the text, the {title} is",
    "Choose the right label for the {title}.",
    "Field to fill in: {title}",
    "{Title}: select one",
    "What can be said about the {title}?",
)
_HINTS = (
    "Choose one.",
    "Go by the text alone.",
    "Select the best match.",
    "Answer from the text.",
    "Pick exactly one option.",
    "Do not guess.",
)
_MEANINGS = (
    ("the text says so", "the text does not say so"),
    ("it is true of the text", "it is not true of the text"),
    ("this is the case", "this is not the case"),
    ("supported by the text", "not supported by the text"),
)


@dataclass(frozen=True)
class Asked:
    """A question about a text, the name of its true option, and the attribute that it asks for."""

    question: Question
    gold: str
    attribute: Attribute


def ask(text: Text, attribute: Attribute, rng: Random, *, reserved: bool) -> Asked:
    """Draw a question about `attribute`. `reserved`: worded as training never sees it."""
    value = text.values.get(attribute.name)
    if value is None:
        return _ask_unstated(attribute, rng, reserved)
    draw = rng.random()
    if draw < 0.3:
        return _check(attribute, value, rng, reserved)
    if draw < 0.4 and attribute.stated:
        return Asked(_noul(rng.choice(attribute.stated), rng), "yes", attribute)
    if attribute.scale and draw < 0.75:
        return _score(attribute, value, rng, reserved)
    return _choice(attribute, value, rng, reserved)


def _ask_unstated(attribute: Attribute, rng: Random, reserved: bool) -> Asked:
    if attribute.stated and rng.random() < 0.35:
        return Asked(_noul(rng.choice(attribute.stated), rng), "no", attribute)
    count = rng.randint(1, len(attribute.values))
    return _offer(attribute, rng.sample(attribute.values, count), None, rng.choice(NOT_STATED), rng, reserved)


def _check(attribute: Attribute, value: Value, rng: Random, reserved: bool) -> Asked:
    others = [other for other in attribute.values if other is not value]
    true = rng.random() < 0.5
    asked = value if true else rng.choice(others)
    checks = asked.checks if reserved else [*asked.checks, *asked.more_checks]
    return Asked(_noul(rng.choice(checks), rng), "yes" if true else "no", attribute)


def _noul(question: str, rng: Random) -> Noul:
    if rng.random() < 0.12:
        yes, no = rng.choice(_MEANINGS)
        return Noul(question, yes, no)
    return Noul(question)


def _score(attribute: Attribute, value: Value, rng: Random, reserved: bool) -> Asked:
    levels = _with_others(attribute, value, rng.choice((len(attribute.values), 2, 3)), rng)
    names = _names(levels, rng)
    described = dict(zip(names, _descriptions(levels, rng), strict=True))
    question = Score(_wording(attribute, rng, reserved), described)
    return Asked(question, names[levels.index(value)], attribute)


def _choice(attribute: Attribute, value: Value, rng: Random, reserved: bool) -> Asked:
    draw = rng.random()
    others = [other for other in attribute.values if other is not value]
    if draw < 0.08 and len(others) >= 2:
        offered = rng.sample(others, rng.randint(2, len(others)))
        return _offer(attribute, offered, None, rng.choice(NONE_OF_THESE), rng, reserved)
    count = rng.randint(2, len(attribute.values))
    extra = rng.choice(NOT_STATED) if draw < 0.35 else rng.choice(NONE_OF_THESE) if draw < 0.43 else None
    return _offer(attribute, _with_others(attribute, value, count, rng), value, extra, rng, reserved)


def _with_others(attribute: Attribute, value: Value, count: int, rng: Random) -> list[Value]:
    """`value` and others, `count` in all or as many as there are, in the attribute's order."""
    others = [other for other in attribute.values if other is not value]
    kept = [value, *rng.sample(others, min(count - 1, len(others)))]
    return [one for one in attribute.values if one in kept]


def _offer(
    attribute: Attribute,
    values: Sequence[Value],
    gold: Value | None,
    extra: str | None,
    rng: Random,
    reserved: bool,
) -> Asked:
    """A choice among `values`, and `extra` (the truth where `gold` is None), in random order."""
    names = _names(values, rng)
    options = list(zip(names, _descriptions(values, rng), strict=True))
    true = names[values.index(gold)] if gold is not None else str(extra)
    if extra is not None:
        options.append((extra, ""))
    rng.shuffle(options)
    return Asked(Choice(_wording(attribute, rng, reserved), dict(options)), true, attribute)


def _wording(attribute: Attribute, rng: Random, reserved: bool) -> str:
    if not reserved and rng.random() < 0.25:
        title = attribute.title
        return rng.choice(_TITLES).format(title=title, Title=title[:1].upper() + title[1:])
    question = rng.choice(portion(attribute.asks, attribute.more_asks, reserved))
    if rng.random() >= 0.15:
        return question
    return f"{question}{'' if question[-1] in '?.!' else '.'} {rng.choice(_HINTS)}"


def _names(values: Sequence[Value], rng: Random) -> list[str]:
    """One name for each value: all of them the plain ones, or a mixture, in one way to write them."""
    mixed = rng.random() < 0.6
    write = rng.choice(_WRITINGS)
    return [write(rng.choice(value.names) if mixed else value.names[0]) for value in values]


def _descriptions(values: Sequence[Value], rng: Random) -> list[str]:
    described = rng.random() < 0.2
    return [value.meaning if described else "" for value in values]


def _same(name: str) -> str:
    return name


def _capitalised(name: str) -> str:
    return name[:1].upper() + name[1:]


def _label(name: str) -> str:
    return name.replace(" ", "_").upper()


def _with_stop(name: str) -> str:
    return _capitalised(name) + "."


_WRITINGS: tuple[Callable[[str], str], ...] = (
    _same,
    _same,
    _same,
    _capitalised,
    _capitalised,
    _label,
    _with_stop,
)
