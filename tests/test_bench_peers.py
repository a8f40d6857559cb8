"""The benchmark of peers: the rows it has, one run of ours beside wllama, and figures by hand."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from bench import common, peers
from bench.__main__ import main
from bench.peers import export
from bench.peers.subjects import Subject, subjects
from tests.test_bench import check_result
from typedecide.questions import Choice, Noul

ROW = {
    "name", "setting", "threads", "first_answer_ms", "all_answers_ms", "second_round_ms", "peak_bytes",
    "download_bytes", "debiased", "probabilities", "flip_rate", "drift", "reason",
}  # fmt: skip


@pytest.mark.browser
def test_ours_beside_wllama(
    dist_stock: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "OUT", tmp_path)
    chosen = ["fp32, letters, one order", "with prompt cache", "q8, whole"]
    journal = tmp_path / "journal"
    arguments = [
        "peers",
        "--quick",
        "--threads",
        "1",
        "--bundle",
        str(dist_stock),
        "--format",
        "fp32",
        "--only",
        *chosen,
    ]
    assert main([*arguments, "--resume", str(journal), "--json", "-"]) == 0
    result = json.loads(capsys.readouterr().out)
    with capsys.disabled():
        print(f"\n{peers.summarise(result)}")
    check_result(result)
    ours, wllama, absent, *left_out = result["rows"]
    assert all(set(row) >= ROW for row in result["rows"])
    for row in (ours, wllama):
        assert row["reason"] is None and row["answered"] == 1 and row["probabilities"]
        assert row["first_answer_ms"] > row["open_ms"] > 0 and row["all_answers_ms"] > 0
        assert row["download_bytes"] > 50e6 > row["second_visit_bytes"]
        assert row["each_ms"][-1] <= row["all_answers_ms"]
    assert ours["drift"]["max"] == 0
    # Its weights are the same; its activations have eight bits.
    assert wllama["drift"]["max"] < 0.2 and wllama["drift"]["same_choice"] > 0.5
    assert export.COMMAND in absent["reason"] and absent["all_answers_ms"] is None
    assert [row["name"] for row in left_out] == [*peers.LEFT_OUT] and left_out[0]["reason"]
    # What is in the journal is not done again.
    before = journal.read_bytes()
    assert main([*arguments, "--resume", str(journal), "--json", "-"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["rows"] == result["rows"] and journal.read_bytes() == before


def test_every_row_has_a_name_of_its_own() -> None:
    rows = subjects(("fp32", "int8"), "int8", (1, 2))
    assert len({row.key for row in rows}) == len(rows) == 2 * (4 + 1 + 2 + 6)
    assert {row.name for row in rows} == {"typedecide", "wllama", "transformers.js"}


def test_rows_are_chosen_by_name() -> None:
    args = argparse.Namespace(threads=2, quick=False, only=["wllama"])
    assert {row.module for row in peers.choose(args, ("int8",))} == {"wllama"}
    with pytest.raises(common.ArgumentError, match="nobody"):
        peers.choose(argparse.Namespace(threads=2, quick=False, only=["nobody"]), ("int8",))


def turn(given: list[Any], backwards: list[Any], ms: float) -> dict[str, Any]:
    return {
        **dict.fromkeys(("open_ms", "first_answer_ms", "all_answers_ms", "second_round_ms"), ms),
        **{"reason": None, "each_ms": [ms / 2, ms], "peak_bytes": int(ms), "download_bytes": 7},
        **{"second_visit_bytes": 1, "answers": given, "reversed": backwards, "note": None},
    }


def test_figures_by_hand() -> None:
    (mine, _, _, peer, *_) = rows = [
        row for row in subjects(("fp32",), "fp32", (1,)) if row.module != "transformers"
    ]
    sure, unsure = [[0.9, 0.1], [0.2, 0.8]], [[0.9, 0.1], [0.6, 0.4]]
    found = {row.key: [turn(sure, sure, 10), turn(sure, sure, 30)] for row in rows}
    found[peer.key] = [turn(unsure, sure, 10), turn(unsure, sure, 20)]
    table = [peers.summary(row, found[row.key]) for row in rows]
    peers.compare(rows, table, found)
    lines = {row.key: line for row, line in zip(rows, table, strict=True)}
    assert lines[mine.key]["all_answers_ms"] == 20 and lines[mine.key]["peak_bytes"] == 30
    assert lines[mine.key]["flip_rate"] == 0 and lines[peer.key]["flip_rate"] == 0.5
    drift = lines[peer.key]["drift"]
    assert drift["max"] == pytest.approx(0.4) and drift["mean"] == pytest.approx(0.2)
    assert drift["same_choice"] == 0.5 and drift["to"] == mine.key
    assert all(lines[row.key]["drift"] is None for row in rows if row.debiased)


def test_what_could_not_be_read_is_no_answer() -> None:
    row = Subject("transformers.js", "json", 1, "transformers", "export q8", probabilities=False)
    line = peers.summary(row, [turn([None, [1, 0]], [None, None], 5)])
    assert line["answered"] == 0.5 and line["flip_rate"] is None and line["reason"] is None
    line = peers.summary(row, [turn([None, None], [None, None], 5)])
    assert line["answered"] == 0 and line["reason"]


def test_a_reason_stands_in_for_figures() -> None:
    row = Subject("wllama", "GGUF", 1, "wllama", "gguf")
    line = peers.summary(row, [turn([[1, 0]], [[1, 0]], 5), {"reason": "out of memory"}])
    assert line["reason"] == "out of memory" and line["all_answers_ms"] is None
    assert "—" in peers.summarise(
        {"criteria": 1, "rounds": 1, "prompt_characters": 1, "processor": "x", "rows": [line]}
    )


def test_each_text_differs_from_its_beginning(dist_stock: Path) -> None:
    state, _ = common.read_sample(dist_stock)
    prompt = peers.Prompt(peers.PromptSpec.from_manifest(peers.Bundle.open(dist_stock).manifest))
    plan = peers.Plan(state, [Noul("Is it urgent?"), Choice("Who?", ["a", "b", "c"])], prompt, 3)
    assert len({plan.text(number)[:14] for number in range(6)}) == 6
    given, back = (plan.ask(0, backwards) for backwards in (False, True))
    assert [case["names"] for case in given["questions"]] == [("Yes", "No"), ("a", "b", "c")]
    assert [case["names"] for case in back["questions"]] == [("No", "Yes"), ("c", "b", "a")]
    for case in (*given["questions"], *back["questions"]):
        assert case["text"].startswith(case["head"]) and case["text"].endswith("Answer:")
        assert len(case["labels"]) == len(case["names"])
