"""What a question is: Choice, Noul (yes or no) and Score (ordered levels), checked when they are made.

Knows no prompt text, no tokens and no numbers.
`web/questions.js` is its twin; both run tests/vectors/questions.json.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, ClassVar, NamedTuple

from typedecide.errors import InvalidQuestionError

MAX_OPTIONS = 255
MAX_LEVELS = 10

_Loc = tuple[str | int, ...]

# Unicode White_Space, spelled out: str.strip() and JavaScript's trim() each know a different set.
_BLANK = re.compile("[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]*")
_SURROGATE = re.compile("[\ud800-\udfff]")

Options = Sequence[str] | Mapping[str, str | None]
"""Option names, or option names with a description each (None and "" are no description)."""


@dataclass(frozen=True)
class Criterion:
    """All that a prompt sees of a question: its text, and the text of every option in order."""

    text: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Choice:
    """One of 2 to 255 named options.

    >>> Choice("Which team?", {"billing": "payments, refunds", "other": ""}).criterion()
    Criterion(text='Which team?', options=('billing: payments, refunds', 'other'))
    """

    question: str
    options: InitVar[Options]
    names: tuple[str, ...] = field(init=False)
    descriptions: tuple[str, ...] = field(init=False)
    kind: ClassVar[str] = "choice"

    def __post_init__(self, options: Options) -> None:
        check_text(self.question, ("question",))
        _set_options(self, _read_options(options, ("options",), MAX_OPTIONS))

    def criterion(self) -> Criterion:
        """What the prompt shows of this question."""
        return _criterion(self.question, self.names, self.descriptions)


@dataclass(frozen=True)
class Score:
    """A place on a scale of 2 to 10 named levels, low to high.

    >>> Score("How angry?", ["calm", "annoyed", "furious"]).names
    ('calm', 'annoyed', 'furious')
    """

    question: str
    levels: InitVar[Options]
    names: tuple[str, ...] = field(init=False)
    descriptions: tuple[str, ...] = field(init=False)
    kind: ClassVar[str] = "score"

    def __post_init__(self, levels: Options) -> None:
        check_text(self.question, ("question",))
        _set_options(self, _read_options(levels, ("levels",), MAX_LEVELS))

    def criterion(self) -> Criterion:
        """What the prompt shows of this question."""
        return _criterion(self.question, self.names, self.descriptions)


@dataclass(frozen=True)
class Noul:
    """A yes/no question. `yes` and `no` may say what each answer means; then `question` may be empty.

    >>> Noul("Does the customer want a refund?").criterion()
    Criterion(text='Does the customer want a refund?', options=('Yes', 'No'))
    """

    question: str
    yes: str = ""
    no: str = ""
    kind: ClassVar[str] = "noul"
    names: ClassVar[tuple[str, ...]] = ("yes", "no")

    def __post_init__(self) -> None:
        check_text(self.question, ("question",))
        check_text(self.yes, ("yes",))
        check_text(self.no, ("no",))
        if all(map(is_blank, (self.question, self.yes, self.no))):
            raise InvalidQuestionError(
                "A yes/no question needs a text.", value=self.question, loc=("question",)
            )

    def criterion(self) -> Criterion:
        """What the prompt shows of this question."""
        return _criterion(self.question, ("Yes", "No"), (self.yes, self.no))


Question = Choice | Noul | Score


def parse_question(wire: object) -> Question:
    """A question from its System One JSON form `{"type", "instructions"?, "criteria"}`.

    `choice` and `score` criteria: a list of names, of `[name, description]` or of `{"name", "description"}`,
    or an object of name to description. `noul` criteria: absent, null, the question as a string (it follows
    the instructions, if any), or `{"true"?, "false"?}`, which say what each answer means. Unknown fields are
    ignored.

    >>> parse_question({"type": "noul", "instructions": "Is it urgent?"})
    Noul(question='Is it urgent?', yes='', no='')
    """
    if not isinstance(wire, Mapping):
        raise InvalidQuestionError("A question must be an object.", value=wire)
    kind = wire.get("type")
    parser = _PARSERS.get(kind) if isinstance(kind, str) else None
    if parser is None:
        raise InvalidQuestionError(
            "The type of a question must be choice, noul or score.", value=kind, loc=("type",)
        )
    instructions = _optional_text(wire.get("instructions"), ("instructions",))
    return parser(instructions, wire.get("criteria"))


def to_wire(question: Question) -> dict[str, Any]:
    """A question in its System One JSON form; options as a list, whose order JavaScript keeps.

    >>> parse_question(to_wire(Noul("Is it urgent?"))) == Noul("Is it urgent?")
    True
    """
    if isinstance(question, Noul):
        meanings = {"true": question.yes, "false": question.no}
        return {"type": "noul", "instructions": question.question, "criteria": meanings}
    options = [list(pair) for pair in zip(question.names, question.descriptions, strict=True)]
    return {"type": question.kind, "instructions": question.question, "criteria": options}


def parse_questions(wire: object) -> dict[str, Question]:
    """Questions by id, from the System One JSON form `{id: question}`; an error's `loc` starts with the id.

    >>> list(parse_questions({"urgent": {"type": "noul", "criteria": "Is it urgent?"}}))
    ['urgent']
    """
    if not isinstance(wire, Mapping):
        raise InvalidQuestionError("Questions must be an object of id to question.", value=wire)
    return {key: _parse_at(key, wire[key]) for key in check_ids(wire)}


def check_ids(questions: Mapping[str, object]) -> list[str]:
    """The ids of questions, of which there must be one or more; else InvalidQuestionError."""
    if not questions:
        raise InvalidQuestionError("There must be at least one question.", value=dict(questions))
    return [_check_id(key) for key in questions]


def is_blank(text: str) -> bool:
    """True for a text of nothing but white space (Unicode White_Space, the same set in both languages)."""
    return _BLANK.fullmatch(text) is not None


def find_surrogate(text: str) -> int | None:
    """The index of the first lone surrogate, which UTF-8 cannot carry, or None."""
    found = _SURROGATE.search(text)
    return found.start() if found else None


def check_text(value: object, loc: _Loc) -> str:
    """`value`, when it is a string that UTF-8 can carry; else InvalidQuestionError at `loc`."""
    if not isinstance(value, str):
        raise InvalidQuestionError("A text of a question must be a string.", value=value, loc=loc)
    if find_surrogate(value) is not None:
        raise InvalidQuestionError("A text of a question holds a lone surrogate.", value=value, loc=loc)
    return value


class _Option(NamedTuple):
    name: Any
    description: Any
    loc: _Loc


def _criterion(text: str, names: Sequence[str], descriptions: Sequence[str]) -> Criterion:
    pairs = zip(names, descriptions, strict=True)
    return Criterion(text, tuple(f"{name}: {about}" if about else name for name, about in pairs))


def _set_options(question: Choice | Score, pairs: Sequence[tuple[str, str]]) -> None:
    # The class is frozen to its users; its own construction has to go round that.
    object.__setattr__(question, "names", tuple(name for name, _ in pairs))
    object.__setattr__(question, "descriptions", tuple(about for _, about in pairs))


def _read_options(options: object, loc: _Loc, most: int) -> list[tuple[str, str]]:
    listed = _list_options(options, loc)
    if not 2 <= len(listed) <= most:
        raise InvalidQuestionError(f"There must be 2 to {most} options.", value=len(listed), loc=loc)
    seen: set[str] = set()
    return [_check_option(option, seen) for option in listed]


def _list_options(options: object, loc: _Loc) -> list[_Option]:
    if isinstance(options, Mapping):
        return [_Option(name, about, (*loc, name)) for name, about in options.items()]
    if isinstance(options, Sequence) and not isinstance(options, str | bytes | bytearray):
        return [_list_option(item, (*loc, index)) for index, item in enumerate(options)]
    raise InvalidQuestionError("Options must be a list or an object.", value=options, loc=loc)


def _list_option(item: object, loc: _Loc) -> _Option:
    if isinstance(item, Mapping) and "name" in item:
        return _Option(item["name"], item.get("description"), loc)
    if isinstance(item, list | tuple) and len(item) == 2:
        return _Option(item[0], item[1], loc)
    return _Option(item, None, loc)


def _check_option(option: _Option, seen: set[str]) -> tuple[str, str]:
    name = check_text(option.name, option.loc)
    if is_blank(name):
        raise InvalidQuestionError("An option name must not be empty.", value=name, loc=option.loc)
    if name in seen:
        raise InvalidQuestionError("Option names must be unique.", value=name, loc=option.loc)
    seen.add(name)
    return name, _optional_text(option.description, option.loc)


def _optional_text(value: object, loc: _Loc) -> str:
    return "" if value is None else check_text(value, loc)


def _check_id(key: object) -> str:
    if not isinstance(key, str) or not key or find_surrogate(key) is not None:
        raise InvalidQuestionError(
            "A question id must be a non-empty string without lone surrogates.", value=key
        )
    return key


def _parse_at(key: str, wire: object) -> Question:
    try:
        return parse_question(wire)
    except InvalidQuestionError as error:
        raise error.moved((key, *error.loc)) from None


def _parse_choice(instructions: str, criteria: object) -> Choice:
    return Choice(instructions, _read_wire_options(criteria, MAX_OPTIONS))


def _parse_score(instructions: str, criteria: object) -> Score:
    return Score(instructions, _read_wire_options(criteria, MAX_LEVELS))


def _read_wire_options(criteria: object, most: int) -> dict[str, str | None]:
    # Read here, and not in the constructor, so that an error's loc speaks of the field that the sender wrote.
    return dict(_read_options(criteria, ("criteria",), most))


def _parse_noul(instructions: str, criteria: object) -> Noul:
    if isinstance(criteria, Mapping):
        yes = _optional_text(criteria.get("true"), ("criteria", "true"))
        no = _optional_text(criteria.get("false"), ("criteria", "false"))
    else:
        instructions = " ".join(filter(None, (instructions, _optional_text(criteria, ("criteria",)))))
        yes = no = ""
    if all(map(is_blank, (instructions, yes, no))):
        raise InvalidQuestionError("A yes/no question needs a text.", value=instructions, loc=("criteria",))
    return Noul(instructions, yes, no)


_PARSERS: Mapping[str, Callable[[str, object], Question]] = {
    "choice": _parse_choice,
    "noul": _parse_noul,
    "score": _parse_score,
}
