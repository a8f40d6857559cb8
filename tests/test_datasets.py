"""The data: what is trained on and what is held out never meet, and nothing but the text tells the answer.

Fetches the packages that carry the data, once.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
import zipfile
from collections import Counter
from itertools import islice, pairwise
from pathlib import Path

import pytest

from bench import generator
from bench.datasets import (
    HELD_OUT,
    WEIGHTS,
    describe,
    load,
    mixes,
    names,
    suite,
    training,
)
from bench.datasets.__main__ import main
from bench.datasets.fetch import Package, fetch, file, files
from bench.datasets.mixes import TRAINING_LICENCES, VALID
from bench.datasets.sets import BANDS, CLEAR, DATA_SETS, MOST_CHARACTERS, cut, key
from typedecide.errors import IntegrityError, UnsupportedError
from typedecide.inputs import InputError
from typedecide.labelled import Labelled, read_lines
from typedecide.questions import Choice, Noul

HELD_OUT_TASKS = re.compile(
    r"what is (?:this|the) (?:text|post|story|article) about|\b(?:which|main|general) (?:topic|subject)\b|newsgroup"
    r"|plot summary|synopsis|review or\b|(?:written|meant) for (?:children|adults)|\breaders is the book\b"
    r"|\bthis critic\b|\bthe film\b.*\b(?:ticket|reputation|verdict)\b",
    re.IGNORECASE,
)
"""How the held-out tasks are asked: no question in training may ask so."""


@pytest.fixture(scope="module")
def trained() -> list[Labelled]:
    return list(islice(training(seed=1), 4000))


@pytest.fixture(scope="module")
def held_out() -> dict[str, list[Labelled]]:
    return suite("heldout", limit=300)


def test_every_row_has_300_decisions(held_out: dict[str, list[Labelled]]) -> None:
    assert {task: len(records) for task, records in held_out.items()} == dict.fromkeys(HELD_OUT, 300)
    assert all(len(record.questions) == 1 for records in held_out.values() for record in records)


def test_training_takes_trained_sets_only(trained: list[Labelled]) -> None:
    assert {record.source for record in trained} <= set(WEIGHTS)
    assert {record.split for record in trained} == {"train"}
    unseen = [task for task, seen in HELD_OUT.items() if seen != "seen"]
    assert not set(unseen) & set(WEIGHTS)
    # What could be trained on is nothing but what is: an unseen set has no training part at all.
    for name in unseen:
        if name in DATA_SETS:
            assert DATA_SETS[name].use == "evaluate"
            assert not [item for item in DATA_SETS[name].items() if item.split == "train"]


def test_training_takes_free_data_only() -> None:
    rows = {row["name"]: row for row in describe()}
    assert set(rows) == set(names())
    for name in WEIGHTS:
        assert rows[name]["use"] == "train"
        assert rows[name]["licence"] in TRAINING_LICENCES


def test_no_held_out_attribute_or_kind_is_trained_on(trained: list[Labelled]) -> None:
    kinds = generator.kinds()
    asked = {
        (record.domain, key) for record in trained if record.source == "generated" for key in record.questions
    }
    everything = {(kind.name, one.name) for kind in kinds.values() for one in kind.attributes}
    forbidden = {
        (k.name, one.name) for k in kinds.values() for one in k.attributes if one.held_out or k.held_out
    }
    assert asked == everything - forbidden


def test_that_guard_sees_a_planted_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mixes._GENERATED, "generated", lambda kind, _: kind.attributes)
    with pytest.raises(AssertionError):
        test_no_held_out_attribute_or_kind_is_trained_on(list(islice(training(seed=1), 4000)))


def test_unseen_generated_tasks_ask_held_out_attributes_only(held_out: dict[str, list[Labelled]]) -> None:
    kinds = generator.kinds()
    tested = _attributes(held_out["generated-attributes"])
    assert all(one.held_out and not kind.held_out for kind, one in tested)
    assert {kind.name for kind, _ in tested} == {kind.name for kind in kinds.values() if not kind.held_out}
    assert all(kind.held_out for kind, _ in _attributes(held_out["generated-kind"]))
    # What a run may be stopped by says nothing about the attributes of the last table.
    valid = _attributes(load("generated-attributes", "valid", limit=200))
    assert not {(kind.name, one.name) for kind, one in valid} & {
        (kind.name, one.name) for kind, one in tested
    }


def _attributes(records: list[Labelled]) -> list[tuple[generator.Kind, generator.Attribute]]:
    kinds = generator.kinds()
    return [
        (kinds[record.domain], one)
        for record in records
        for one in kinds[record.domain].attributes
        if one.name in record.questions
    ]


def test_no_training_text_is_a_held_out_text(
    trained: list[Labelled], held_out: dict[str, list[Labelled]]
) -> None:
    seen = {key(record.state) for record in trained}
    seen |= {key(item.text) for one in DATA_SETS.values() for item in one.items() if item.split == "train"}
    for one in DATA_SETS.values():
        kept = {key(item.text) for item in one.items() if item.split != "train"}
        assert not kept & seen, one.name
    for task, records in held_out.items():
        assert not {key(record.state) for record in records} & seen, task


def test_no_valid_text_is_a_held_out_text() -> None:
    real = {name: DATA_SETS[name].items() for name in HELD_OUT if name in DATA_SETS}
    tested = {key(item.text) for items in real.values() for item in items if item.split == "test"}
    for name in set(VALID) & set(real):
        valid = {key(item.text) for item in real[name] if item.split == "valid"}
        assert valid
        assert not valid & tested, name


def test_training_never_asks_what_is_held_out(
    trained: list[Labelled], held_out: dict[str, list[Labelled]]
) -> None:
    asked = {question.criterion().text for record in trained for question in record.questions.values()}
    assert [text for text in asked if HELD_OUT_TASKS.search(text)] == []
    for task in ("newsgroups", "review-or-plot", "book-audience", "rotten-tomatoes"):
        assert not asked & {
            q.criterion().text for record in held_out[task] for q in record.questions.values()
        }, task


def test_labels_are_balanced(held_out: dict[str, list[Labelled]]) -> None:
    for task in ("tweets", "amazon", "editorials", "movies", "spam", "rotten-tomatoes"):
        one = DATA_SETS[task]
        label = {item.text: item.label for item in one.items()}
        counts = Counter(label[record.state] for record in held_out[task])
        assert set(counts.values()) == {150}, task


def test_neither_place_nor_yes_tells_the_answer(trained: list[Labelled]) -> None:
    pairs = [(q, record.gold[id]) for record in trained for id, q in record.questions.items()]
    yes = Counter(gold for question, gold in pairs if isinstance(question, Noul))
    assert 0.44 < yes["yes"] / yes.total() < 0.56
    for size in (2, 3, 4):
        chosen = [(q, gold) for q, gold in pairs if isinstance(q, Choice) and len(q.names) == size]
        places = Counter(question.names.index(gold) for question, gold in chosen)
        assert all(0.85 / size < places[place] / places.total() < 1.15 / size for place in range(size)), (
            places
        )


def test_two_way_sentiment_is_clear_cut_and_bands_do_not_touch() -> None:
    assert CLEAR >= 1
    for bands in BANDS.values():
        assert all(low[1] < high[0] for low, high in pairwise(bands))


def test_mails_hold_no_header_but_the_subject() -> None:
    for item in DATA_SETS["spam"].items():
        assert item.text.startswith("Subject:")
        assert len(item.text) <= MOST_CHARACTERS
        assert not re.search(
            r"spamassassin|taint\.org|netnoteinc|^X-Keywords", item.text, re.IGNORECASE | re.MULTILINE
        )


def test_a_seed_decides_everything() -> None:
    assert load("tweets", "test", 20, seed=3) == load("tweets", "test", 20, seed=3)
    assert load("tweets", "test", 20, seed=3) != load("tweets", "test", 20, seed=4)
    assert list(islice(training(5), 100)) == list(islice(training(5), 100))


def test_what_there_is_not_is_an_error() -> None:
    with pytest.raises(UnsupportedError, match="no data set 'nothing'"):
        load("nothing", "test", 1)
    with pytest.raises(UnsupportedError, match="give a limit"):
        load("generated", "test")
    with pytest.raises(UnsupportedError, match="no suite 'nothing'"):
        suite("nothing", 1)


def test_records_survive_a_file_and_a_faulty_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    assert main(["export", "train", str(path), "--limit", "5"]) == 0
    expected = [record for records in suite("train", 5).values() for record in records]
    assert read_lines(path).records == expected
    faulty = json.loads(path.read_text("utf-8").splitlines()[0])
    faulty["gold"] = dict.fromkeys(faulty["gold"], "no such option")
    path.write_text(json.dumps(faulty) + "\n", "utf-8")
    with pytest.raises(InputError, match=r"records\.jsonl: line 1, column 'gold[^']*': 'no such option'"):
        read_lines(path)


def test_list_and_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert all(name in capsys.readouterr().out.replace("\n", " ") for name in ("tweets",))
    assert main(["show", "amazon", "--limit", "2"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["source"] for one in shown] == ["amazon", "amazon"]


def test_cut_ends_at_a_word() -> None:
    assert cut("one two three", 9) == "one two"
    assert cut("one two three", 7) == "one two"
    assert cut("one", 3) == "one"
    assert cut("onetwothree", 6) == "onetwo"


@pytest.fixture
def local_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """A wheel in a folder, and pip set up to look nowhere else."""
    name = "tinydata-1.0-py3-none-any.whl"
    with zipfile.ZipFile(tmp_path / name, "w") as wheel:
        wheel.writestr("tinydata/data.txt", "hello")
        wheel.writestr(
            "tinydata-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tinydata\nVersion: 1.0\n"
        )
        wheel.writestr("tinydata-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("tinydata-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    digest = hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
    return Package("pypi", "tinydata", "1.0", name, digest, megabytes=0)


def test_a_package_is_fetched_once_and_kept(local_wheel: Package, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    kept = fetch(local_wheel, cache, quiet=True)
    assert file(kept, "/data.txt") == b"hello"
    (tmp_path / local_wheel.file).unlink()
    assert fetch(local_wheel, cache, quiet=True) == kept
    assert list(cache.iterdir()) == [kept]


def test_another_hash_is_refused_also_in_the_cache(local_wheel: Package, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    wrong = Package("pypi", "tinydata", "1.0", local_wheel.file, "0" * 64, megabytes=0)
    with pytest.raises(UnsupportedError, match=r"PyPI tinydata 1\.0 could not be fetched"):
        fetch(wrong, cache, quiet=True)
    fetch(local_wheel, cache, quiet=True).write_bytes(b"spoilt")
    assert fetch(local_wheel, cache, quiet=True).read_bytes() != b"spoilt"


def test_an_archive_writes_nothing_to_disk(tmp_path: Path) -> None:
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:gz") as tar:
        _add(tar, "deep/a.txt", b"inner")
    archive = tmp_path / "x.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        _add(tar, "../evil.txt", b"evil")
        _add(tar, "x/in.tar.gz", inner.getvalue())
    assert dict(files(archive, lambda name: name.endswith(".txt"))) == {"../evil.txt": b"evil"}
    assert file(archive, "in.tar.gz!/a.txt") == b"inner"
    with pytest.raises(IntegrityError, match=r"holds no /b\.txt"):
        file(archive, "/b.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["x.tar.gz"]


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
