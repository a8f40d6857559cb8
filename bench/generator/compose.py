"""A text of a kind: which attributes it states with which values, and the sentences that say so.

Knows no questions.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from bench.generator.kinds import Attribute, Kind, Value

FEWEST, MOST = 3, 6
"""How many attributes a text states."""

_ALTERNATIVES = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{(\w+)\}")

FIRST_NAMES = (
    "Amina", "Bruno", "Chidi", "Dana", "Elif", "Farid", "Greta", "Hiro", "Ines", "Jakub", "Kavya", "Liam", "Mei",
    "Nils", "Olga", "Pedro", "Quinn", "Rosa", "Sanjay", "Tess", "Umar", "Vera", "Wei", "Ximena", "Yusuf", "Zoe",
    "Aoife", "Bjorn", "Carmen", "Dmitri", "Esther", "Femi", "Gwen", "Hamid", "Ivy", "Joao", "Keiko", "Lars",
)  # fmt: skip
LAST_NAMES = (
    "Okafor", "Lindqvist", "Moreau", "Tanaka", "Silva", "Novak", "Haddad", "Murphy", "Kaur", "Petrov", "Schmidt",
    "Osei", "Ferrari", "Nguyen", "Walker", "Yilmaz", "Costa", "Iyer", "Brandt", "Adeyemi", "Ross", "Kim", "Duarte",
)  # fmt: skip
SLOTS: dict[str, tuple[str, ...]] = {
    "first": FIRST_NAMES,
    "last": LAST_NAMES,
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "month": ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October"),
    "city": (
        "Lagos", "Leeds", "Porto", "Osaka", "Tampere", "Quito", "Pune", "Gdansk", "Cork", "Izmir", "Lyon", "Denver",
        "Hobart", "Bergen", "Nairobi", "Graz", "Ghent", "Malmo", "Tucson", "Perth", "Kigali", "Turin",
    ),
    "street": ("Mill Lane", "Harbour Road", "Oak Street", "Station Road", "Elm Close", "Queen Street", "Park View"),
}  # fmt: skip


@dataclass(frozen=True)
class Text:
    """A composed text and what is true of it: the value of each attribute that it states."""

    state: str
    values: Mapping[str, Value]


def compose(
    kind: Kind,
    rng: Random,
    told: Sequence[Attribute] = (),
    untold: Sequence[Attribute] = (),
    *,
    reserved: bool,
) -> Text:
    """Draw a text that states the attributes in `told`, none of those in `untold`, and some of the others.

    Every attribute's value is drawn on its own. `reserved`: it is said in the sentences that training never sees;
    otherwise in the others.
    """
    free = [attribute for attribute in kind.attributes if attribute not in told and attribute not in untold]
    more = min(max(0, rng.randint(FEWEST, MOST) - len(told)), len(free))
    values = {attribute.name: rng.choice(attribute.values) for attribute in [*told, *rng.sample(free, more)]}
    said = [rng.choice(portion(value.says, value.more_says, reserved)) for value in values.values()]
    said += rng.sample(kind.distractors, rng.choice((0, 1, 1, 2)))
    rng.shuffle(said)
    opener = [rng.choice(kind.openers)] if rng.random() < 0.6 else []
    closer = [rng.choice(kind.closers)] if rng.random() < 0.5 else []
    opener, said, closer = (
        [fill(sentence, kind, rng) for sentence in part] for part in (opener, said, closer)
    )
    return Text(_lay_out(opener, said, closer, rng), values)


def portion(lines: Sequence[str], more: Sequence[str], reserved: bool) -> Sequence[str]:
    """The line that is kept from training (a hash picks it), or all the others, and those that are `more`."""
    kept = zlib.crc32(lines[0].encode()) % len(lines)
    return [lines[kept]] if reserved else [*lines[:kept], *lines[kept + 1 :], *more]


def fill(sentence: str, kind: Kind, rng: Random) -> str:
    """`sentence` with one of each `[a|b]` chosen and each `{slot}` filled."""
    while _ALTERNATIVES.search(sentence):
        sentence = _ALTERNATIVES.sub(lambda found: rng.choice(found[1].split("|")), sentence)
    filled = _SLOT.sub(lambda found: _word(found[1], kind, rng), sentence)
    return re.sub(r" {2,}", " ", filled).strip()


def _word(slot: str, kind: Kind, rng: Random) -> str:
    if slot in kind.slots:
        return rng.choice(kind.slots[slot])
    if slot in SLOTS:
        return rng.choice(SLOTS[slot])
    return _NUMBERS[slot](rng)


_NUMBERS = {
    "name": lambda rng: f"{rng.choice(FIRST_NAMES)} {rng.choice(LAST_NAMES)}",
    "n": lambda rng: str(rng.randint(2, 9)),
    "nn": lambda rng: str(rng.randint(11, 98)),
    "nnn": lambda rng: str(rng.randint(101, 980)),
    "id": lambda rng: f"{rng.choice('ABCDEFGHKLMNPRSTVXZ')}{rng.choice(('', '-'))}{rng.randint(1000, 99999)}",
    "time": lambda rng: f"{rng.randint(6, 22)}:{rng.choice(('00', '05', '15', '20', '30', '45', '50'))}",
    "money": lambda rng: f"{rng.choice('$€£')}{rng.randint(12, 940)}",
    "date": lambda rng: f"{rng.randint(1, 28)} {rng.choice(SLOTS['month'])}",
}


def _lay_out(opener: list[str], sentences: list[str], closer: list[str], rng: Random) -> str:
    """One text of the sentences, in one of several layouts and ways to write."""
    layout = rng.random()
    if layout < 0.65:
        state = " ".join([*opener, *sentences, *closer])
    elif layout < 0.8:
        middle = rng.randint(1, len(sentences))
        paragraphs = [opener, sentences[:middle], sentences[middle:], closer]
        state = "\n\n".join(" ".join(paragraph) for paragraph in paragraphs if paragraph)
    elif layout < 0.9:
        bullet = rng.choice(("- ", "* ", "• "))
        state = "\n".join([*opener, *(bullet + sentence for sentence in sentences), *closer])
    else:
        state = "\n".join([*opener, *sentences, *closer])
    return _write(state, rng)


def _write(state: str, rng: Random) -> str:
    way = rng.random()
    if way < 0.06:
        return state.lower()
    if way < 0.1:
        return state.replace(". ", " ... ")
    if way < 0.13:
        return state.replace("'", "").replace(",", "")
    return state
