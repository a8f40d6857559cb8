"""What is trained on, what is held out, and the streams and tables of records made of both.

The one place that says which tasks, domains and texts training sees; tests/test_datasets.py guards it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import Literal

from bench import generator
from bench.datasets.sets import DATA_SETS, Split, Use, hashed, key
from bench.datasets.wording import shuffled
from bench.generator import Attribute, Kind
from typedecide.errors import UnsupportedError
from typedecide.labelled import Labelled, read_lines
from typedecide.questions import Question

CORPUS = Path(__file__).resolve().parents[2] / "pybuild" / "corpus"

CORPUS_SHARES: Mapping[Split, int] = {"train": 95, "valid": 5}
"""Shares of the hand-written corpus, in percent: it is not evaluated on."""

Seen = Literal["seen", "unseen_domain", "unseen_task"]

SEEN_TASKS = ("generated", "tweets", "tweets-level", "amazon", "editorials", "spam")
"""Tasks that are trained on; their test texts are not (and the generator says things there in words of their own)."""

UNSEEN_DOMAINS = ("movies", "movies-level", "rotten-tomatoes")
"""Trained tasks on texts of a kind that training never sees."""

UNSEEN_TASKS = (
    "newsgroups",
    "newsgroups-all",
    "reuters-r8",
    "reuters-r52",
    "review-or-plot",
    "book-audience",
    "generated-attributes",
    "generated-kind",
)
"""Tasks that training never asks."""

HELD_OUT: Mapping[str, Seen] = {
    **dict.fromkeys(SEEN_TASKS, "seen"),
    **dict.fromkeys(UNSEEN_DOMAINS, "unseen_domain"),
    **dict.fromkeys(UNSEEN_TASKS, "unseen_task"),
}
"""The rows of the suite `heldout`, and what training has seen of each."""

VALID = (*SEEN_TASKS, "movies", "reuters-r52", "generated-attributes")
"""The rows of the suite `valid`, by which a run may be stopped: none of its texts is in `heldout`, and of the unseen
tasks most are in no way looked at before the end."""

WEIGHTS: Mapping[str, float] = {
    "corpus": 0.30,
    "generated": 0.32,
    "tweets": 0.09,
    "tweets-level": 0.04,
    "amazon": 0.09,
    "amazon-level": 0.03,
    "editorials": 0.05,
    "editorials-level": 0.02,
    "spam": 0.06,
}
"""The training mix: shares of texts. Without the hand-written corpus the others keep their proportions."""

QUESTIONS = 6
"""Questions about one generated text in training; in evaluation there is one."""

WORDINGS = 4
"""Ways in which the one question about a text of a real set is asked in training; in evaluation there is one. Each
costs a suffix, and a text that asks once among texts that ask seven times hardly counts in the loss."""


def load(name: str, split: Split, limit: int | None = None, seed: int = 0) -> list[Labelled]:
    """Up to `limit` records of a set, balanced by label, in an order and wording that `seed` decides.

    Names are those of `names()`. A generated set has no end, so it needs a limit.
    """
    if limit is None and name in _GENERATED:
        raise UnsupportedError(f"{name} is generated without end: give a limit.", name=name)
    return list(islice(_records(name, split, Random(f"{seed} {name} {split}")), limit))


def suite(name: str, limit: int, seed: int = 0) -> dict[str, list[Labelled]]:
    """Records by task, up to `limit` of each: `heldout`, `valid` or `train`. A record asks one question, except that
    those of `train` ask several."""
    if name not in SUITES:
        raise UnsupportedError(f"There is no suite {name!r}; there are {', '.join(SUITES)}.", name=name)
    split, tasks = SUITES[name]
    return {task: load(task, split, limit, seed) for task in tasks() if _has(task)}


SUITES: Mapping[str, tuple[Split, Callable[[], tuple[str, ...]]]] = {
    "heldout": ("test", lambda: tuple(HELD_OUT)),
    "valid": ("valid", lambda: VALID),
    "train": ("train", lambda: tuple(WEIGHTS)),
}


def training(seed: int = 0) -> Iterator[Labelled]:
    """An endless stream of records of the training mix; the same seed gives the same stream.

    A set is passed through again and again, each time in another order and with other questions.
    """
    rng = Random(f"training {seed}")
    names = [name for name in WEIGHTS if _has(name)]
    weights = [WEIGHTS[name] for name in names]
    streams = {name: _endless(name, Random(f"{seed} training {name}")) for name in names}
    while True:
        yield next(streams[rng.choices(names, weights)[0]])


def names() -> tuple[str, ...]:
    """Every set that `load` knows."""
    return (*_GENERATED, *DATA_SETS, "corpus")


def describe() -> list[dict[str, str]]:
    """One row for each set: name, task, domain, use, what the suite `heldout` calls it, licence, source, about."""
    real = [
        _row(one.name, one.family, one.domain, one.use, one.licence, one.package.label, one.about)
        for one in DATA_SETS.values()
    ]
    made = [
        _row(name, "many", "many", use, GENERATED_LICENCE, "bench/generator", about)
        for name, (use, about) in _ABOUT_GENERATED.items()
    ]
    about = "texts and questions, written by a language model"
    corpus = _row("corpus", "many", "many", "train", CORPUS_LICENCE, "pybuild/corpus", about)
    return [*made, *real, corpus]


def _row(
    name: str, family: str, domain: str, use: str, licence: str, source: str, about: str
) -> dict[str, str]:
    held_out = HELD_OUT.get(name, "-")
    return {
        "name": name,
        "task": family,
        "domain": domain,
        "use": use,
        "held out": held_out,
        "licence": licence,
        "source": source,
        "about": about,
    }


GENERATED_LICENCE = "Apache-2.0 (generated)"
CORPUS_LICENCE = "Apache-2.0 (hand-written)"
TRAINING_LICENCES = ("MIT", "CC0-1.0", GENERATED_LICENCE, CORPUS_LICENCE)
"""Only sets under these may be trained on."""

_ABOUT_GENERATED: Mapping[str, tuple[Use, str]] = {
    "generated": ("train", "texts of several kinds, questions on trained attributes"),
    "generated-attributes": (
        "evaluate",
        "the same kinds, questions on attributes that training never asks for",
    ),
    "generated-kind": ("evaluate", "texts of a kind that training never sees"),
}


def _endless(name: str, rng: Random) -> Iterator[Labelled]:
    while True:
        yield from _records(name, "train", rng)


def _records(name: str, split: Split, rng: Random) -> Iterator[Labelled]:
    if name in _GENERATED:
        return _generated(name, split, rng)
    if name == "corpus":
        return _corpus(split, rng)
    if name in DATA_SETS:
        return _real(name, split, rng)
    raise UnsupportedError(f"There is no data set {name!r}; there are {', '.join(names())}.", name=name)


def _has(name: str) -> bool:
    return name != "corpus" or any(CORPUS.glob("*.jsonl"))


def _real(name: str, split: Split, rng: Random) -> Iterator[Labelled]:
    one = DATA_SETS[name]
    for item in one.draw(split, rng):
        wordings = [one.ask(item.label, rng) for _ in range(WORDINGS if split == "train" else 1)]
        asked = {f"{name} {index}" if index else name: wording for index, wording in enumerate(wordings)}
        questions = {key: wording.question for key, wording in asked.items()}
        gold = {key: wording.gold for key, wording in asked.items()}
        yield _record(item.text, questions, gold, name, one.domain, one.family, split)


def _record(
    state: str,
    questions: Mapping[str, Question],
    gold: Mapping[str, str],
    task: str,
    domain: str,
    family: str,
    split: Split,
) -> Labelled:
    return Labelled(state, questions, gold, task=task, domain=domain, family=family, split=split, source=task)


@cache
def _corpus_records() -> tuple[Labelled, ...]:
    defaults = {"task": "corpus", "domain": "hand-written", "family": "hand-written"}
    return tuple(
        replace(record, split=hashed(key(record.state), CORPUS_SHARES), source="corpus")
        for path in sorted(CORPUS.glob("*.jsonl"))
        for record in read_lines(path, **defaults).records
    )


def _corpus(split: Split, rng: Random) -> Iterator[Labelled]:
    """The hand-written records in random order, their options too: an author's order may tell the answer."""
    kept = [record for record in _corpus_records() if record.split == split]
    for record in rng.sample(kept, len(kept)):
        yield replace(record, questions={name: shuffled(q, rng) for name, q in record.questions.items()})


def _generated(name: str, split: Split, rng: Random) -> Iterator[Labelled]:
    trained = split == "train"
    wanted = [kind for kind in generator.kinds().values() if kind.held_out == (name == "generated-kind")]
    while True:
        for kind in rng.sample(wanted, len(wanted)):
            attributes = _GENERATED[name](kind, split)
            chosen = rng.sample(attributes, min(len(attributes), QUESTIONS if trained else 1))
            told = [one for one in chosen if rng.random() >= UNSTATED]
            untold = [one for one in chosen if one not in told]
            text = generator.compose(kind, rng, told, untold, reserved=not trained)
            asked = {one.name: generator.ask(text, one, rng, reserved=not trained) for one in chosen}
            questions = {name: one.question for name, one in asked.items()}
            gold = {name: one.gold for name, one in asked.items()}
            yield _record(text.state, questions, gold, name, kind.name, kind.name, split)


UNSTATED = 0.2
"""How often a question is about what the text does not say."""


def _trained_attributes(kind: Kind, _: Split) -> list[Attribute]:
    return [one for one in kind.attributes if not one.held_out]


def _held_out_attributes(kind: Kind, split: Split) -> list[Attribute]:
    """A kind's first held-out attribute is for `valid`, the others for `test`, so that one never tells of the other."""
    held_out = [one for one in kind.attributes if one.held_out]
    return held_out[:1] if split == "valid" else held_out[1:]


_GENERATED: dict[str, Callable[[Kind, Split], list[Attribute]]] = {
    "generated": _trained_attributes,
    "generated-attributes": _held_out_attributes,
    "generated-kind": lambda kind, _: kind.attributes,
}
