"""The benchmark of reversed options, natively on the cut-down model: averaged over both orders, nothing changes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bench import flips
from bench.__main__ import main
from bench.flips import BEFORE, Pair, Way
from tests.test_bench import check_result
from typedecide.questions import Choice, Noul, Question, Score
from typedecide.readout import read
from typedecide.results import Debiased

ROW = {
    "readout", "orderings", "options", "questions", "flips", "flip_rate", "between_orders", "max_change", "flipped",
}  # fmt: skip


@pytest.fixture(scope="module")
def result(dist_fp32_4l: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("flips") / "flips.json"
    arguments = ["flips", "--quick", "--bundle", str(dist_fp32_4l), "--format", "fp32", "--json", str(path)]
    assert main(arguments) == 0
    found = json.loads(path.read_text("utf-8"))
    drawing = path.with_suffix(".svg")
    first = drawing.read_bytes()
    assert first.startswith(b"<?xml")
    flips.plot(found, drawing)
    assert drawing.read_bytes() == first
    return found


def test_two_options_never_change_when_both_orders_are_read(result: Any) -> None:
    print(flips.summarise(result))
    check_result(result)
    assert (result["device"], result["layers"], result["criteria"]) == ("native", 4, 20)
    two = [row for row in result["rows"] if row["options"] == 2]
    before, *after = two
    # The model decides by place: what is averaged away is there.
    assert (before["readout"], before["orderings"], before["questions"]) == ("labels", 1, 12)
    assert before["flips"] > 0 and before["max_change"] > 0.1
    assert len(after) >= 2 and all(row["flips"] == 0 and row["max_change"] < 1e-4 for row in after)
    assert result["two_options"] == {"before": before["flips"], "after": 0}


def test_readouts_that_list_no_options_never_change(result: Any) -> None:
    own = [row for row in result["rows"] if row["orderings"] is None]
    assert {row["readout"] for row in own} == {result["readout"]} != {"labels"}
    assert all(row["flips"] == 0 and row["max_change"] < 1e-4 for row in own)


def test_rows_add_up(result: Any) -> None:
    assert all(set(row) == ROW and row["flips"] == len(row["flipped"]) for row in result["rows"])
    for total in result["totals"]:
        way = (total["readout"], total["orderings"])
        rows = [row for row in result["rows"] if (row["readout"], row["orderings"]) == way]
        assert total["questions"] == sum(row["questions"] for row in rows) == result["criteria"]
        assert total["flips"] == sum(row["flips"] for row in rows)
        assert total["flip_rate"] == total["flips"] / total["questions"]


def test_the_questions_are_a_hundred_and_varied() -> None:
    texts = flips.read_texts()
    questions = [question for text in texts for question in text.questions.values()]
    counts = Counter(len(question.names) for question in questions)
    assert len(questions) == 100 and counts[2] >= 60 and max(counts) >= 8
    assert len({text.domain for text in texts}) == len({text.state for text in texts}) == len(texts) >= 8
    assert len({question.question for question in questions}) > 90
    assert {question.kind for question in questions} == {"choice", "noul", "score"}


@pytest.mark.parametrize(
    "question",
    [
        Noul("Late?"),
        Noul("Late?", yes="over a day", no=""),
        Choice("Who?", {"billing": "charges", "sales": "", "other": "the rest"}),
        Score("How?", ["bad", "fair", "good"]),
    ],
)
def test_the_prompt_is_the_same_but_for_the_order(question: Question) -> None:
    plain = question.criterion()
    assert flips.in_order(question, False).criterion() == plain
    backwards = flips.in_order(question, True).criterion()
    assert (backwards.text, backwards.options) == (plain.text, plain.options[::-1])


def pair(given: list[float], reversed_: list[float]) -> Pair:
    names = ["a", "b", "c"][: len(given)]
    answers = (
        Debiased(read(Choice("?", options), logits), 1, 0.0)
        for options, logits in ((names, given), (names[::-1], reversed_))
    )
    return Pair("q", len(given), *answers)


def test_flips_by_hand() -> None:
    same, place = pair([2.0, 1.0], [1.0, 2.0]), pair([2.0, 1.0], [2.0, 1.0])
    assert not same.flipped and same.change == pytest.approx(0)
    assert place.flipped and place.change == pytest.approx(0.4621, abs=1e-4)
    found = flips.row(BEFORE, 2, [same, place, place, same])
    assert (found["flips"], found["flip_rate"], found["flipped"]) == (2, 0.5, ["q", "q"])


def test_a_bundle_that_reads_letters_has_no_other_way() -> None:
    assert flips.ways("labels") == flips.LETTERS
    assert flips.ways("pointer") == (*flips.LETTERS, Way("pointer", None))
