"""The packing benchmark's short form in headless Chromium: exact, and it prints its figures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import common, packing
from bench.__main__ import main, parser
from tests.test_bench import check_result, run, run_json
from typedecide.page import PageEngine
from typedecide.questions import Choice, Noul, Question, Score

ROW = {
    "questions", "orders", "suffixes", "tokens_full", "tokens_sequential", "tokens_run", "tokens_saved", "runs",
    "full_ms", "full_ms_extrapolated", "full_prompts_timed", "sequential_ms", "packed_ms", "max_drift", "compared",
    "ms",
}  # fmt: skip
WAYS = ("full", "sequential", "packed")


def check_rows(result: Any) -> None:
    """What holds of every row: its counts, its times, and that packing is exact."""
    for row in result["rows"]:
        assert set(row) == ROW
        assert row["tokens_run"] + row["tokens_saved"] == row["tokens_sequential"]
        assert row["tokens_full"] == row["tokens_sequential"] + row["suffixes"] * result["prefix_tokens"]
        assert all(len(row["ms"][way]) == result["repeats"] and row[f"{way}_ms"] > 0 for way in WAYS)
        assert row["full_ms_extrapolated"] == (
            row["full_prompts_timed"] < row["suffixes"] * result["repeats"]
        )
        assert 0 <= row["max_drift"] <= 1e-5
    assert result["max_drift"] == max(row["max_drift"] for row in result["rows"])


@pytest.mark.browser
@pytest.mark.usefixtures("dist_fp32_4l")
def test_wasm() -> None:
    result = run_json("packing", "--device", "wasm", "--format", "fp32", "--layers", "4")
    print(packing.summarise(result))
    check_result(result)
    check_rows(result)
    assert (result["device"], result["layers"]) == ("wasm", 4) and 280 <= result["prefix_tokens"] <= 350
    one, every = result["rows"]
    assert [(row["questions"], row["orders"], row["suffixes"]) for row in (one, every)] == [
        (4, 1, 4),
        (4, "all", 14),
    ]
    assert one["compared"] == {"questions": 4, "suffixes": 4} and not one["full_ms_extrapolated"]
    assert every["full_ms_extrapolated"]
    assert every["tokens_saved"] > 100
    assert result["summary"]["scoring"]["full_over_packed"] > 3


@pytest.fixture(scope="module")
def webgpu(dist_fp32_4l: Path) -> Iterator[PageEngine]:
    with PageEngine(dist_fp32_4l, "webgpu", "fp32") as engine:
        yield engine


@pytest.mark.browser
def test_webgpu(webgpu: PageEngine) -> None:
    # Few and short: the software adapter runs some 20 tokens a second.
    questions: list[Question] = [
        Noul("Was it charged twice?"),
        Choice("How to reply?", ["by phone", "by mail"]),
    ]
    cases = [packing.make_case(questions, orders, repeats=1) for orders in packing.QUICK_ORDERS]
    result = packing.measure(webgpu, "I was charged twice, and I am angry.", cases, repeats=1)
    print(packing.summarise(result))
    check_rows(result)
    assert (result["device"], result["layers"]) == ("webgpu", 4) and result["adapter"]
    assert [row["suffixes"] for row in result["rows"]] == [2, 4]
    assert [row["compared"]["suffixes"] for row in result["rows"]] == [2, 4]


@pytest.mark.browser
def test_figures_are_printed_and_the_plot_is_drawn(
    dist_fp32_4l: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results" / "packing.json"
    arguments = ["--quick", "--short", "--questions", "1", "3", "--format", "fp32", "--json", str(path)]
    assert main(["packing", "--bundle", str(dist_fp32_4l), *arguments]) == 0
    printed = capsys.readouterr().out
    assert "largest drift" in printed and "3 questions, scoring alone" in printed and str(path) in printed
    result = json.loads(path.read_text(encoding="utf-8"))
    check_result(result)
    check_rows(result)
    assert [row["questions"] for row in result["rows"]] == [1, 1, 3, 3] and result["prefix_tokens"] < 100
    drawing = path.with_suffix(".svg")
    first = drawing.read_bytes()
    assert first.startswith(b"<?xml")
    packing.plot(result, drawing)
    assert drawing.read_bytes() == first


def test_the_questions_are_many_and_different(dist_fp32_4l: Path) -> None:
    _, sample = common.read_sample(dist_fp32_4l)
    questions = [*sample.values(), *packing.MORE_QUESTIONS]
    assert len(questions) == max(packing.COUNTS)
    assert len({question.question for question in questions}) == len(questions)
    assert {question.kind for question in questions} == {"choice", "noul", "score"}


@pytest.mark.parametrize("repeats", [1, 3])
def test_full_prompts_cover_what_is_compared(repeats: int) -> None:
    questions = [*packing.MORE_QUESTIONS, *packing.MORE_QUESTIONS]
    for count in (1, 2, 7, 42):
        for orders in packing.ORDERS:
            case = packing.make_case(questions[:count], orders, repeats)
            prompts = case.prompts(case.compared)
            assert 1 <= len(prompts) <= repeats * packing.FULL_PROMPTS
            shares = [packing.share(prompts, repeat) for repeat in range(repeats)]
            assert {prompt for share in shares for prompt in share} == set(prompts)
            assert all(len(share) == (packing.FULL_PROMPTS if len(prompts) > 3 else 3) for share in shares)


def test_an_ordering_asks_the_same_with_other_labels() -> None:
    question = Score("How angry?", {"calm": "", "annoyed": "a little", "furious": "very"})
    assert packing.in_order(question, 0).criterion() == question.criterion()
    assert packing.in_order(question, 1).criterion().options == ("annoyed: a little", "furious: very", "calm")


def test_drift_by_hand() -> None:
    assert packing.drift([0.5, 0.5], [[2.0, 0.0], [1.0, 3.0]]) == pytest.approx(0)
    assert packing.drift([0.75, 0.25], [[0.0, 0.0]]) == pytest.approx(0.25)
    assert packing.drift([0.5, 0.5], [[math.log(3), 0.0]]) == pytest.approx(0.25)


def test_ratios_by_hand() -> None:
    def row(questions: int, orders: object, *packed: float) -> dict[str, Any]:
        ways = {"packed": packed, "sequential": [2 * ms for ms in packed], "full": [6 * ms for ms in packed]}
        return {"questions": questions, "orders": orders, "tokens_run": packed[0], "ms": ways}

    rows = [
        row(11, 1, 100, 500, 100),
        row(11, "all", 150, 1000, 140),
        row(32, 1, 9, 9, 9),
        row(32, "all", 9, 9, 9),
    ]
    found = packing.ratios(rows, [100, 500, 100])
    assert found["questions"] == 11 and found["tokens_all_orders_over_one"] == 1.5
    assert found["scoring"] == pytest.approx(
        {"full_over_packed": 6, "sequential_over_packed": 2, "all_orders_over_one": 1.5}
    )
    assert found["prefill_and_scoring"] == pytest.approx(
        {"full_over_packed": 3, "sequential_over_packed": 1.5, "all_orders_over_one": 1.25}
    )
    assert packing.ratios(rows[2:], [1, 1, 1])["questions"] == 32


@pytest.mark.parametrize("count", ["0", "33"])
def test_a_number_of_questions_that_there_is_not(dist_fp32_4l: Path, count: str) -> None:
    done = run("packing", "--bundle", str(dist_fp32_4l), "--format", "fp32", "--questions", "4", count)
    assert done.returncode == 2 and done.stdout == ""
    assert f"--questions {count}" in done.stderr


def test_where_results_go() -> None:
    args = parser().parse_args(["packing", "--format", "fp32"])
    assert common.results_path(args, packing.NAME) == common.RESULTS / "packing-wasm-fp32.json"
