"""Malformed questions of each kind, seeded: what an engine has to refuse by name, whatever is wrong with them."""

from __future__ import annotations

import random
from typing import Any

from typedecide.errors import InvalidQuestionError
from typedecide.questions import parse_question

_NOT_TEXTS: tuple[Any, ...] = (0, -1.5, True, False, [], ["x"], {}, {"x": 1}, [None], [[]])
_BROKEN_TEXTS = ("\ud800", "a\udfffb", "\udc00\ud800", "tail \ud83d")
_BLANKS = ("", " ", "\t\n", "\u00a0", "\u2003\u3000")
_TEXT = "Is the customer angry?"


def malformed(kind: str, count: int, seed: int = 1) -> list[Any]:
    """`count` different questions of `kind` that `parse_question` refuses."""
    draw = random.Random(f"{seed} {kind}")
    candidates = [_faulty(kind, draw) for _ in range(count * 20)]
    found = {repr(one): one for one in candidates if _is_refused(one)}
    if len(found) < count:
        raise ValueError(f"only {len(found)} malformed questions of kind {kind}, not {count}")
    return list(found.values())[:count]


def _is_refused(question: object) -> bool:
    try:
        parse_question(question)
    except InvalidQuestionError:
        return True
    return False


def _faulty(kind: str, draw: random.Random) -> Any:
    """A question of `kind` with one fault; few of them may be none."""
    question: dict[str, Any] = {"type": kind, "instructions": _TEXT, "criteria": _criteria(kind, draw)}
    match draw.randrange(4):
        case 0:
            question["type"] = draw.choice(
                (
                    kind.upper(),
                    f" {kind}",
                    f"{kind}s",
                    "",
                    None,
                    3,
                    [kind],
                    {"type": kind},
                    f"{kind}\0",
                    kind[::-1],
                )
            )
        case 1:
            question["instructions"] = draw.choice((*_NOT_TEXTS, *_BROKEN_TEXTS))
        case 2 if kind == "noul":
            question |= {
                "instructions": draw.choice((*_BLANKS, None)),
                "criteria": draw.choice((*_BLANKS, None, {})),
            }
        case _:
            question["criteria"] = _wrong_noul(draw) if kind == "noul" else _wrong_options(draw)
    return question


def _criteria(kind: str, draw: random.Random) -> Any:
    return None if kind == "noul" else [f"option {n}" for n in range(draw.randint(2, 6))]


def _wrong_noul(draw: random.Random) -> Any:
    wrong = draw.choice((*_NOT_TEXTS, *_BROKEN_TEXTS))
    return draw.choice((wrong, {"true": wrong}, {"false": wrong}, {"true": "yes it is", "false": wrong}))


def _wrong_options(draw: random.Random) -> Any:
    names: list[Any] = [f"option {n}" for n in range(draw.randint(2, 6))]
    place = draw.randrange(len(names))
    match draw.randrange(6):
        case 0:
            return draw.choice((None, 7, "billing", True, {}, [], names[:1], {"one": ""}))
        case 1:
            return [f"option {n}" for n in range(draw.randint(256, 300))]
        case 2:
            names[place] = draw.choice((*_BLANKS, *_BROKEN_TEXTS, *_NOT_TEXTS, None))
        case 3:
            names.insert(place, draw.choice(names))
        case 4:
            names[place] = [names[place], draw.choice((*_NOT_TEXTS, *_BROKEN_TEXTS))]
        case _:
            return {**dict.fromkeys(names, ""), names[place]: draw.choice((*_NOT_TEXTS, *_BROKEN_TEXTS))}
    return names
