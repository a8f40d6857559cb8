"""The generator: texts state what they should, and nothing but the text tells the answer."""

from __future__ import annotations

import re
from collections import Counter
from random import Random

import pytest

from bench.generator import Asked, Kind, ask, compose, kinds
from bench.generator.compose import fill, portion
from bench.generator.kinds import GrammarError, parse
from typedecide.questions import Choice, Noul, Score

KINDS = list(kinds().values())


def draws(count: int, *, reserved: bool = False) -> list[tuple[Kind, Asked, str]]:
    """Kind, question and text of `count` random draws over all kinds."""
    rng = Random(7)
    drawn = []
    for _ in range(count):
        kind = rng.choice(KINDS)
        attribute = rng.choice(kind.attributes)
        told, untold = ([attribute], []) if rng.random() < 0.8 else ([], [attribute])
        text = compose(kind, rng, told, untold, reserved=reserved)
        drawn.append((kind, ask(text, attribute, rng, reserved=reserved), text.state))
    return drawn


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_each_kind_is_varied_enough(kind: Kind) -> None:
    assert len(kind.attributes) >= 8
    assert len(kind.distractors) >= 5
    for attribute in kind.attributes:
        assert len(set(attribute.asks)) >= 4, attribute.name
        assert len(attribute.values) >= 3, attribute.name
        for value in attribute.values:
            assert len(set(value.says)) >= 6, value.names
            assert len(set(value.checks)) >= 2, value.names
            assert len(set(value.names)) >= 2, value.names
            assert value.meaning


def test_attributes_and_one_kind_are_held_out() -> None:
    assert sum(kind.held_out for kind in KINDS) == 1
    for kind in KINDS:
        held_out = [one for one in kind.attributes if one.held_out]
        assert kind.held_out or 2 <= len(held_out) <= len(kind.attributes) - 5, kind.name


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_sentence_or_option_stands_for_two_values(kind: Kind) -> None:
    says = Counter(s for a in kind.attributes for v in a.values for s in [*v.says, *v.more_says])
    assert [line for line, count in says.items() if count > 1] == []
    for attribute in kind.attributes:
        names = Counter(name.lower() for value in attribute.values for name in value.names)
        assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_sentence_can_be_filled(kind: Kind) -> None:
    rng = Random(1)
    lines = [*kind.openers, *kind.closers, *kind.distractors]
    lines += [line for a in kind.attributes for v in a.values for line in [*v.says, *v.more_says]]
    for line in lines:
        for _ in range(5):
            filled = fill(line, kind, rng)
            assert filled and not set("{}[]|") & set(filled), line


def test_a_text_states_what_it_was_told_to() -> None:
    rng = Random(3)
    for kind in KINDS:
        told, untold = kind.attributes[:2], kind.attributes[2:4]
        text = compose(kind, rng, told, untold, reserved=False)
        assert {one.name for one in told} <= set(text.values)
        assert not {one.name for one in untold} & set(text.values)


def test_values_are_drawn_independently() -> None:
    kind, rng = kinds()["support tickets"], Random(5)
    one, two = kind.attributes[:2]
    pairs = Counter()
    for _ in range(3000):
        values = compose(kind, rng, [one, two], reserved=False).values
        pairs[values[one.name].names[0], values[two.name].names[0]] += 1
    expected = 3000 / (len(one.values) * len(two.values))
    assert len(pairs) == len(one.values) * len(two.values)
    assert all(0.75 * expected < count < 1.25 * expected for count in pairs.values())


ALIKE = 0.75
"""Sentences that share more of their words say the same in the same way."""


def likeness(one: str, other: str) -> float:
    """Words in both over words in either."""
    first, second = (set(re.findall(r"[a-z']+", line.lower())) for line in (one, other))
    return len(first & second) / len(first | second)


def test_what_is_kept_from_training_is_never_in_it() -> None:
    for kind in KINDS:
        for attribute in kind.attributes:
            pairs = [(attribute.asks, attribute.more_asks)]
            pairs += [(value.says, value.more_says) for value in attribute.values]
            for lines, more in pairs:
                (kept,), trained = portion(lines, more, True), portion(lines, more, False)
                assert len(trained) == len(lines) + len(more) - 1
                # Nor in other words that are nearly the same.
                alike = [line for line in trained if likeness(line, kept) > ALIKE]
                assert alike == [], kept


def test_the_same_seed_gives_the_same_draws() -> None:
    assert [(a.question, a.gold, s) for _, a, s in draws(50)] == [
        (a.question, a.gold, s) for _, a, s in draws(50)
    ]


def test_draws_differ() -> None:
    drawn = draws(2000)
    assert len({state for _, _, state in drawn}) > 1980
    assert len({asked.question for _, asked, _ in drawn}) > 1500


def test_every_kind_of_question_is_asked_and_gold_is_an_option() -> None:
    drawn = draws(3000)
    counts = Counter(type(asked.question) for _, asked, _ in drawn)
    assert min(counts[kind] for kind in (Choice, Noul, Score)) > 150
    for _, asked, _ in drawn:
        assert asked.gold in asked.question.names


@pytest.mark.parametrize("reserved", [False, True])
def test_neither_place_nor_yes_tells_the_answer(reserved: bool) -> None:
    drawn = draws(6000, reserved=reserved)
    yes = Counter(asked.gold for _, asked, _ in drawn if isinstance(asked.question, Noul))
    assert 0.45 < yes["yes"] / yes.total() < 0.55
    for size in (2, 3, 4):
        places = Counter(
            asked.question.names.index(asked.gold)
            for _, asked, _ in drawn
            if isinstance(asked.question, Choice) and len(asked.question.names) == size
        )
        assert all(0.8 / size < places[place] / places.total() < 1.2 / size for place in range(size))


def test_levels_keep_their_order() -> None:
    for kind, asked, _ in draws(1500):
        if isinstance(asked.question, Score):
            order = [v.names for v in asked.attribute.values]
            plain = [name.lower().replace("_", " ").rstrip(".") for name in asked.question.names]
            found = [next(i for i, names in enumerate(order) if p in map(str.lower, names)) for p in plain]
            assert found == sorted(found), kind.name


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("kind: x\nno colon here", 2, "there is no colon"),
        ("say: I want it.", 1, "there is no attribute above it"),
        ("attribute: a\nsay: I want it.", 2, "there is no value above it"),
        ("attribute: a\nsays: I want it.", 2, "there is no key says"),
        ("attribute: a\nask:", 2, "ask is empty"),
        ("kind: x\nuse: never", 2, "use can only be held-out"),
    ],
)
def test_a_faulty_file_names_the_line(text: str, line: int, why: str) -> None:
    with pytest.raises(GrammarError) as caught:
        parse(text, "x.txt")
    assert caught.value.data["line"] == line
    assert why in str(caught.value)
