"""What tuning does without PyTorch: samples from records, and the tokens, positions and masks of a sample.

The decoder and the training itself are checked by tests/train, which need PyTorch.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from pybuild.__main__ import main
from pybuild.tune.samples import BLANKS, Mix, draw, uninformed
from pybuild.tune.structure import above, pack
from typedecide import packing
from typedecide.labelled import Labelled
from typedecide.model import tree_mask
from typedecide.questions import Choice, Noul, Score

PREFIX = [9, 8, 7]
JOINED = packing.Suffix([1, 2], branches=[[3, 4], [3, 5, 6], [7]], tail=[8, 9])
PLAIN = packing.Suffix([1, 3, 3], reads=[0, 2])


def test_a_packed_sample_has_the_tokens_of_inference() -> None:
    packed = pack(PREFIX, [JOINED, PLAIN])
    (run,) = packing.plan_runs([JOINED, PLAIN], 99)
    past = len(PREFIX)
    assert packed.ids.tolist() == [*PREFIX, *run.ids]
    assert packed.positions.tolist() == [0, 1, 2, *(past + depth for depth in run.depths)]
    assert packed.rows == [[past + row for row in reads] for reads in run.rows]
    expected = tree_mask(past, run.parents, run.joins)[0, 0] == 0
    assert np.array_equal(packed.visible[past:], expected)
    assert np.array_equal(packed.visible[:past, :past], np.tri(past, dtype=bool))
    assert not packed.visible[:past, past:].any()


def test_filling_tokens_are_seen_by_nothing() -> None:
    plain, filled = pack(PREFIX, [JOINED]), pack(PREFIX, [JOINED], 8)
    size = len(plain.ids)
    assert len(filled.ids) == -(-size // 8) * 8
    assert np.array_equal(filled.visible[:size, :size], plain.visible)
    assert not filled.visible[:size, size:].any()
    assert np.array_equal(filled.visible[size:, size:], np.eye(len(filled.ids) - size, dtype=bool))
    assert filled.rows == plain.rows


@pytest.mark.parametrize("anchor", (0, 1, 3))
def test_what_is_seen_above_the_cut_is_the_anchor_and_the_suffixes(anchor: int) -> None:
    packed = pack(PREFIX, [JOINED, PLAIN], 8)
    places, upper = above(packed, anchor, 8)
    assert places.tolist() == [*range(anchor), *range(3, packed.used)]
    used = len(places)
    assert (upper.past, upper.used, len(upper.ids)) == (anchor, used, -(-used // 8) * 8)
    assert upper.ids[:used].tolist() == packed.ids[places].tolist()
    assert upper.positions[:used].tolist() == packed.positions[places].tolist()
    assert [[places[row] for row in reads] for reads in upper.rows] == packed.rows
    assert np.array_equal(upper.visible[:used, :used], packed.visible[places][:, places])
    assert not upper.visible[:used, used:].any()


def test_an_anchor_beyond_the_prefix_is_refused() -> None:
    with pytest.raises(ValueError, match="anchor of 4 tokens"):
        above(pack(PREFIX, [PLAIN]), 4)


COLOUR = Choice("Which colour?", ["red", "green", "blue", "not stated"])
RECORD = Labelled(
    state="It is green.",
    questions={"colour": COLOUR, "big": Noul("Is it big?"), "size": Score("How big?", ["small", "large"])},
    gold={"colour": "green", "big": "no", "size": "small"},
    task="t",
    domain="d",
    family="f",
    split="train",
    source="s",
)
OTHER = replace(RECORD, state="Something else.", family="g")


def test_a_sample_asks_all_questions_with_their_answers() -> None:
    (sample,) = draw([RECORD], 0, Mix(hidden=0, fewer=0))
    assert sample.state == RECORD.state
    assert Counter(sample.questions) == Counter(RECORD.questions.values())
    gold = {RECORD.questions[key]: name for key, name in RECORD.gold.items()}
    for question, target in zip(sample.questions, sample.targets, strict=True):
        assert target == tuple(float(name == gold[question]) for name in question.names)


def test_the_same_seed_draws_the_same_samples() -> None:
    records = [RECORD, OTHER] * 20
    first, second, third = (list(draw(records, seed, Mix(hidden=0.3))) for seed in (1, 1, 2))
    assert first == second != third


def test_a_sample_asks_at_most_so_many_questions() -> None:
    assert {len(sample.questions) for sample in draw([RECORD] * 9, 0, Mix(questions=2))} == {2}


def test_fewer_options_keep_the_true_one_and_two_at_least() -> None:
    record = replace(RECORD, questions={"colour": COLOUR}, gold={"colour": "green"})
    found = [sample.questions[0].names for sample in draw([record] * 200, 0, Mix(hidden=0, fewer=1))]
    assert {len(names) for names in found} == {2, 3}
    assert all("green" in names for names in found)
    assert {name for names in found for name in names} == set(COLOUR.names)


def test_hidden_evidence_is_blank_or_of_another_family() -> None:
    found = list(draw([RECORD, OTHER] * 100, 0, Mix(hidden=1, unrelated=0.5)))
    states = Counter(sample.state for sample in found)
    assert set(states) == {*BLANKS, RECORD.state, OTHER.state}
    for sample in found:
        assert sample.targets == tuple(map(uninformed, sample.questions))


def test_without_evidence_all_options_are_alike_unless_one_says_so() -> None:
    assert uninformed(COLOUR) == (0, 0, 0, 1)
    assert uninformed(Choice("?", ["a", "b", "c", "d"])) == (0.25, 0.25, 0.25, 0.25)
    assert uninformed(Noul("?")) == (0.5, 0.5)


@pytest.mark.parametrize(
    "name",
    (
        "Not stated",
        "unknown",
        "it is not said",
        "The text does not say",
        "cannot be told from the text",
        "none given",
    ),
)
def test_names_of_the_unknown(name: str) -> None:
    assert uninformed(Choice("?", ["red", name])) == (0, 1)


@pytest.mark.parametrize(
    "name", ("not satisfied", "none of these", "no", "not a statement", "an unknown sender")
)
def test_names_that_only_look_like_it(name: str) -> None:
    assert uninformed(Choice("?", ["red", name])) == (0.5, 0.5)


def test_without_pytorch_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["tune", "--minutes", "1"]) == 2
    assert "requirements/train.txt" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "wrong"),
    (
        (["--shallow", "2", "--steps", "3"], "--steps is there not with"),
        (["--shallow", "2", "--readout", "labels"], "--readout"),
        (["--anchor", "bos"], "--anchor is there with --shallow only"),
        (["--label-weight", "0.5"], "--label-weight"),
    ),
)
def test_options_of_the_other_kind_of_training(
    options: list[str], wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", *options]) == 2
    assert wrong in capsys.readouterr().err
