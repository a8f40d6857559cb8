"""What a kind of text is made of, and the reader of `data/*.txt`.

A file is lines of `key: text`, in order; blank lines and lines that start with `#` are skipped.

    kind: ticket                      name of the kind; the whole file may be held out from training: `use: held-out`
    opener: / closer: / distractor:   sentences that answer no question
    slot item: kettle; lamp           words for {item} in any sentence of the file
    attribute: remedy                 starts an attribute; `use: held-out` keeps it from training
    title: requested remedy           a noun phrase for it
    scale: yes                        its values are levels, low to high
    ask: What does the writer want?   questions whose answer is one of the values
    stated: Is a wish expressed?      yes/no questions: is the attribute in the text at all?
    value: refund | money back :: the price is to be paid back      names, then what it means
    check: Is the money wanted back?  yes/no questions and statements: true of this value alone
    say: I want my money back.        sentences that say so
    more ask: / more check: / more say:   the same, for training alone: none of them is ever kept from it

`[a|b]` in a sentence is one of the two, `{name}` is filled from a slot (`SLOTS` holds those of all kinds).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeVar

from typedecide.errors import TypedecideError

DATA = Path(__file__).resolve().parent / "data"

HELD_OUT = "held-out"

T = TypeVar("T")


class GrammarError(TypedecideError):
    """A line of a kind's file that does not fit; `data` says file, line and what is wrong."""

    code = "GRAMMAR"


@dataclass
class Value:
    """One value of an attribute: its names (the first is the plain one), meaning, and sentences that say it.

    `more_…` are for training alone, here and in `Attribute`.
    """

    names: tuple[str, ...]
    meaning: str
    checks: list[str] = field(default_factory=list)
    says: list[str] = field(default_factory=list)
    more_checks: list[str] = field(default_factory=list)
    more_says: list[str] = field(default_factory=list)


@dataclass
class Attribute:
    """Something that a text may say in one of several ways; `scale`: the values are levels, low to high."""

    name: str
    title: str = ""
    held_out: bool = False
    scale: bool = False
    asks: list[str] = field(default_factory=list)
    more_asks: list[str] = field(default_factory=list)
    stated: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)


@dataclass
class Kind:
    """One kind of text, such as support tickets; `held_out`: no text of it is trained on."""

    name: str
    held_out: bool = False
    openers: list[str] = field(default_factory=list)
    closers: list[str] = field(default_factory=list)
    distractors: list[str] = field(default_factory=list)
    slots: dict[str, tuple[str, ...]] = field(default_factory=dict)
    attributes: list[Attribute] = field(default_factory=list)


@cache
def kinds() -> dict[str, Kind]:
    """Every kind by name, in order of their files' names."""
    read = [parse(path.read_text(encoding="utf-8"), path.name) for path in sorted(DATA.glob("*.txt"))]
    return {kind.name: kind for kind in read}


def parse(text: str, file: str) -> Kind:
    """The kind that a file's text describes. Raises `GrammarError` with the line at fault."""
    kind = Kind(Path(file).stem)
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.startswith("#"):
            key, found, rest = line.partition(":")
            try:
                if not found:
                    raise ValueError("there is no colon")
                _add(kind, key.strip(), rest.strip())
            except (ValueError, IndexError) as error:
                raise GrammarError(
                    f"{file}, line {number}: {error}: {line!r}", file=file, line=number, text=line
                ) from None
    return kind


def _add(kind: Kind, key: str, text: str) -> None:
    if not text:
        raise ValueError(f"{key} is empty")
    if key == "kind":
        kind.name = text
    elif key in ("opener", "closer", "distractor"):
        getattr(kind, f"{key}s").append(text)
    elif key.startswith("slot "):
        kind.slots[key.removeprefix("slot ")] = tuple(word.strip() for word in text.split(";"))
    elif key == "attribute":
        kind.attributes.append(Attribute(text, title=text.replace("_", " ")))
    elif key == "use":
        if text != HELD_OUT:
            raise ValueError(f"use can only be {HELD_OUT}")
        (kind.attributes[-1] if kind.attributes else kind).held_out = True
    else:
        _add_to_attribute(_last(kind.attributes, "attribute"), key, text)


def _add_to_attribute(attribute: Attribute, key: str, text: str) -> None:
    if key == "title":
        attribute.title = text
    elif key == "scale":
        attribute.scale = True
    elif key in ("ask", "more ask"):
        getattr(attribute, f"{key.replace(' ', '_')}s").append(text)
    elif key == "stated":
        attribute.stated.append(text)
    elif key == "value":
        names, _, meaning = text.partition("::")
        attribute.values.append(Value(tuple(name.strip() for name in names.split("|")), meaning.strip()))
    elif key in ("check", "more check", "say", "more say"):
        getattr(_last(attribute.values, "value"), f"{key.replace(' ', '_')}s").append(text)
    else:
        raise ValueError(f"there is no key {key}")


def _last(items: list[T], what: str) -> T:
    if not items:
        raise ValueError(f"there is no {what} above it")
    return items[-1]
