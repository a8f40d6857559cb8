"""What commands are given: files, and arguments that stand for something; faults of both are an InputError.

Knows no engine and no command.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from typedecide.errors import InvalidQuestionError, TypedecideError
from typedecide.options import READOUTS
from typedecide.orderings import Level
from typedecide.questions import Question, parse_questions


class InputError(TypedecideError):
    """A file or argument that cannot be used; the message names it and the value at fault."""

    code = "INPUT"


def display(path: str) -> str:
    """How people are told of a path: `-` is standard input."""
    return "standard input" if path == "-" else path


def read_bytes(path: str) -> bytes:
    """The content of a file; `-` is standard input."""
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.", path=path) from error


def decode(path: str, data: bytes) -> str:
    """The text that a file's bytes spell in UTF-8, line ends as they are."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{display(path)}: not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}, line {line}.",
            path=path,
            offset=error.start,
            line=line,
        ) from error


def parse_json(text: str) -> Any:
    """The value that `text` spells; InputError for a key that is there twice, of which JSON would keep the last."""
    return json.loads(text, object_pairs_hook=_unique_keys)


def read_json(path: str) -> Any:
    """The value in a file of JSON."""
    text = decode(path, read_bytes(path))
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: not JSON: {error}.", path=path) from error
    except InputError as error:
        raise InputError(f"{path}: {error.message}", path=path, **error.data) from None


def parse_asked(path: str, wire: object) -> dict[str, Question]:
    """The questions by id that a file's JSON spells."""
    try:
        return parse_questions(wire)
    except InvalidQuestionError as error:
        raise InputError(f"{path}: {explain(error)}", **error.data) from error


def explain(error: TypedecideError) -> str:
    """The error's message, with where it is and what was found there."""
    if not isinstance(error, InvalidQuestionError):
        return error.message
    place = ".".join(map(str, error.loc))
    return f"{place + ': ' if place else ''}{error.message} Found {error.value!r}."


def whole(least: int) -> Callable[[str], int]:
    """A parser of whole numbers from `least`."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or int(text) < least:
            raise argparse.ArgumentTypeError(f"not a whole number from {least}: {text!r}")
        return int(text)

    return parse


def ordering_level(text: str) -> Level:
    """The orderings that an argument names."""
    named: Mapping[str, Level] = {"auto": "auto", "all": "all"}
    if text in named:
        return named[text]
    try:
        return whole(1)(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"neither auto, all nor a whole number from 1: {text!r}") from None


def add_asking_arguments(arguments: argparse._ActionsContainer) -> None:
    """Readout and orderings, for commands that ask every question the same way."""
    arguments.add_argument("--readout", choices=READOUTS, help="default: the bundle's own")
    arguments.add_argument(
        "--orderings",
        type=ordering_level,
        metavar="auto|all|K",
        help="for labels: in how many orders of its options each question is read (default: auto)",
    )


def add_calibration_argument(arguments: argparse._ActionsContainer) -> None:
    """A calibration to use, for commands whose answers may have one; see `cli_calibrate.given`."""
    arguments.add_argument(
        "--calibration",
        metavar="FILE|none",
        help="temperatures and a threshold for abstaining, by calibrate (default: the bundle's own)",
    )


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InputError(f"the key {key!r} is there twice.", key=key)
        found[key] = value
    return found
