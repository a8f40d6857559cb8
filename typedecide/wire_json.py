"""JSON text as values that keep what is written: the order of keys, and the digits of numbers.

Knows no requests. `web/wire_json.js` is its twin; both run tests/vectors/systemone.json.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, NoReturn

from typedecide.errors import InvalidRequestError

MAX_DEPTH = 100
"""Levels of arrays and objects in each other."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it is written: 1.0 stays 1.0, whatever the language."""

    text: str


def parse(data: bytes) -> Any:
    """The value that UTF-8 bytes spell: dict, list, str, `Number`, bool or None.

    >>> parse(b'{"10": 1.0, "2": null}')
    {'10': Number(text='1.0'), '2': None}

    Raises:
        InvalidRequestError: no JSON, a key that is there twice, a number beyond double precision, or more than
            `MAX_DEPTH` levels.
    """
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique_keys,
            parse_int=_number,
            parse_float=_number,
            parse_constant=_no_number,
        )
    except UnicodeDecodeError as error:
        raise _invalid("The body is not UTF-8.", error=str(error)) from None
    except json.JSONDecodeError as error:
        raise _invalid("The body is not JSON.", error=str(error)) from None
    except RecursionError:
        raise _too_deep() from None
    _check_depth(value)
    return value


def dump(value: object) -> str:
    """The JSON text of a value on one line, its numbers as they were written.

    >>> dump({"total": Number("1.50"), "paid": False, "é": ["a", None]})
    '{"total": 1.50, "paid": false, "é": ["a", null]}'
    """
    if isinstance(value, Number):
        return value.text
    if isinstance(value, dict):
        return "{" + ", ".join(f"{dump(key)}: {dump(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(dump, value)) + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _number(text: str) -> Number:
    # The other language, and whoever reads the legend of an answer, has doubles only.
    if not math.isfinite(float(text)):
        raise _invalid("A number of the body does not fit double precision.")
    return Number(text)


def _no_number(text: str) -> NoReturn:
    raise _invalid("The body is not JSON.", error=f"{text} is no JSON number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _invalid("A key of the body is there twice.")
    return found


def _check_depth(value: object) -> None:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [one for one in level if isinstance(one, dict | list)]
        if not level:
            return
        level = [item for one in level for item in (one.values() if isinstance(one, dict) else one)]
    raise _too_deep()


def _too_deep() -> InvalidRequestError:
    return _invalid(f"The body has more than {MAX_DEPTH} levels.")


def _invalid(message: str, **context: str) -> InvalidRequestError:
    fault: dict[str, Any] = {"loc": ["body"], "msg": message, "type": "json_invalid"}
    return InvalidRequestError(message, faults=[{**fault, "ctx": context} if context else fault])
