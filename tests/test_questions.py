"""typedecide.questions and typedecide.errors: what a Python caller can build, and how it fails."""

from __future__ import annotations

import dataclasses
import doctest
import json
import random
from typing import Any

import pytest

import typedecide
from typedecide import (
    Choice,
    Criterion,
    InvalidQuestionError,
    Noul,
    Question,
    Score,
    errors,
    parse_question,
    parse_questions,
    questions,
)


def fault(build: Any, *inputs: Any) -> tuple[Any, tuple[str | int, ...]]:
    with pytest.raises(InvalidQuestionError) as caught:
        build(*inputs)
    assert caught.value.code == "INVALID_QUESTION"
    assert caught.value.data == {"value": caught.value.value, "loc": list(caught.value.loc)}
    return caught.value.value, caught.value.loc


def test_examples_in_docstrings() -> None:
    for module in (questions, errors):
        assert doctest.testmod(module).attempted > 0
        assert doctest.testmod(module).failed == 0


def test_criteria() -> None:
    assert Choice("Which?", ["a", "b"]).criterion() == Criterion("Which?", ("a", "b"))
    assert Score("How?", {"low": "calm", "high": None}).criterion() == Criterion(
        "How?", ("low: calm", "high")
    )
    assert Noul("Is it?", yes="today").criterion() == Criterion("Is it?", ("Yes: today", "No"))


def test_names_and_kinds() -> None:
    made: list[Question] = [Choice("?", ["b", "a"]), Noul("?"), Score("?", ("10", "2"))]
    assert [(question.kind, question.names) for question in made] == [
        ("choice", ("b", "a")),
        ("noul", ("yes", "no")),
        ("score", ("10", "2")),
    ]


def test_questions_are_values() -> None:
    assert Choice("?", ["a", "b"]) == Choice("?", {"a": "", "b": None})
    assert len({Choice("?", ["a", "b"]), Choice("?", ("a", "b")), Score("?", ["a", "b"])}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        Choice("?", ["a", "b"]).question = "!"  # type: ignore[misc]
    options = ["a", "b"]
    choice = Choice("?", options)
    options.append("c")
    assert choice.names == ("a", "b")


def test_faults_of_constructors_name_their_argument() -> None:
    assert fault(Choice, "?", ["a", " "]) == (" ", ("options", 1))
    assert fault(Choice, "?", {"a": None, "b": 3}) == (3, ("options", "b"))
    assert fault(Score, "?", ["a", "b", "a"]) == ("a", ("levels", 2))
    assert fault(Score, "?", [str(i) for i in range(11)]) == (11, ("levels",))
    assert fault(Choice, "?", "ab") == ("ab", ("options",))
    assert fault(Choice, "?", {"a", "b"})[1] == ("options",)
    assert fault(Choice, None, ["a", "b"]) == (None, ("question",))
    assert fault(Noul, "") == ("", ("question",))
    assert fault(Noul, "?", "\ud800") == ("\ud800", ("yes",))
    assert fault(Noul, "?", "", 1) == (1, ("no",))
    assert fault(Choice, "?", {1: "a", 2: "b"}) == (1, ("options", 1))


@pytest.mark.parametrize(("make", "most"), [(Choice, 255), (Score, 10)])
def test_limits(make: Any, most: int) -> None:
    names = [f"name {index}" for index in range(most)]
    assert make("?", names).names == tuple(names)
    assert make("?", names[:2]).names == tuple(names[:2])
    for wrong in ([], names[:1], [*names, "one more"]):
        assert fault(make, "?", wrong)[0] == len(wrong)


def test_any_unicode_is_returned_byte_for_byte() -> None:
    rng = random.Random(7)
    scalars = [
        *range(0x500),
        *range(0x2000, 0x2100),
        *range(0xFE00, 0x10000),
        *range(0x1F300, 0x1F700),
        0x10FFFF,
    ]
    for _ in range(300):
        names = {"".join(map(chr, rng.choices(scalars, k=rng.randrange(1, 9)))) + "x" for _ in range(9)}
        wire = json.loads(json.dumps({"type": "choice", "criteria": dict.fromkeys(names, None)}))
        assert parse_question(wire).names == tuple(names)


def test_parse_gives_the_classes() -> None:
    wire = json.loads(
        """{"team": {"type": "choice", "instructions": "Which?", "criteria": {"10": "ten", "2": null}},
            "anger": {"type": "score", "criteria": ["calm", ["furious", "shouts"]]},
            "urgent": {"type": "noul", "instructions": "Look.", "criteria": "Is it?"}}"""
    )
    assert list(parse_questions(wire).items()) == [
        ("team", Choice("Which?", {"10": "ten", "2": ""})),
        ("anger", Score("", {"calm": "", "furious": "shouts"})),
        ("urgent", Noul("Look. Is it?")),
    ]


def test_faults_of_the_wire_name_the_field() -> None:
    wire = {"team": {"type": "choice", "criteria": [["a", "b"], ["c", 3]]}}
    assert fault(parse_questions, wire) == (3, ("team", "criteria", 1))
    assert fault(parse_question, {"type": "score", "criteria": {"a": "", "b": ["c"]}}) == (
        ["c"],
        ("criteria", "b"),
    )
    assert fault(parse_questions, {3: {"type": "noul", "criteria": "?"}}) == (3, ())


def test_a_fault_prints_where_it_is_and_what_was_there() -> None:
    error = InvalidQuestionError("No.", value="\ud800" * 99, loc=("team", "criteria", 1))
    assert str(error).startswith("No. (at 'team.criteria.1': '\\ud800")
    str(error).encode("utf-8")
    assert error.message == "No."


@pytest.mark.parametrize("known", errors.ERRORS.values(), ids=lambda known: known.code)
def test_errors_survive_json(known: type[errors.TypedecideError]) -> None:
    data: dict[str, Any] = {"value": 3}
    if known is errors.TooLongError:
        data |= {"tokens": 9, "limit": 8}
    if known is errors.QuotaError:
        data |= {"needed": 9, "available": None}
    if known is errors.PrefixMismatchError:
        data |= {"position": 2, "prefix_token": 5, "full_token": None}
    if known is errors.InvalidQuestionError:
        data |= {"loc": ["a", 0]}
    error = known("message", **data)
    revived = errors.revive_error(json.loads(json.dumps(error.to_dict())))
    assert type(revived) is known
    assert revived.to_dict() == {"code": known.code, "message": "message", "data": data}


def test_an_error_of_an_unknown_code_keeps_it() -> None:
    revived = errors.revive_error({"code": "NEWER", "message": "message", "data": {"value": 1}})
    assert type(revived) is errors.TypedecideError
    assert (revived.code, revived.data) == ("NEWER", {"value": 1})


def test_public_names() -> None:
    assert all(hasattr(typedecide, name) for name in typedecide.__all__)
    assert typedecide.__version__ == "0.1.0"
