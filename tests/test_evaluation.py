"""The evaluation tool: it measures what the engine says, goes on after a kill, and tells what is wrong."""

from __future__ import annotations

import doctest
import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from typedecide import evaluation, metrics, tables
from typedecide.__main__ import main
from typedecide.batches import WholePrompts
from typedecide.evaluation import Decision, Evaluation, Evaluator, Log, Settings, WholeByOne, listed
from typedecide.inputs import InputError
from typedecide.labelled import Labelled
from typedecide.native import NativeEngine
from typedecide.orderings import Level
from typedecide.questions import Choice, Noul, Question, Score
from typedecide.readout import softmax
from typedecide.text import BLANK

ROOT = Path(__file__).resolve().parents[1]

QUESTIONS: dict[str, Question] = {
    "queue": Choice("Which team?", ["billing", "accounts", "other"]),
    "refund": Noul("Does the customer ask for money back?"),
    "mood": Score("How angry is the customer?", ["calm", "annoyed", "angry"]),
}
WIRE = {
    "queue": {"type": "choice", "instructions": "Which team?", "criteria": ["billing", "accounts", "other"]},
    "refund": {"type": "noul", "criteria": "Does the customer ask for money back?"},
    "mood": {
        "type": "score",
        "instructions": "How angry is the customer?",
        "criteria": ["calm", "annoyed", "angry"],
    },
}
TABLE = """message,queue,refund,mood
My card was charged twice.,billing,yes,angry
I cannot sign in.,accounts,no,annoyed
All works; thanks!,other,no,
Wrong address on the bill.,billing,no,calm
"""
ROW = (
    *("model", "task", "split", "n", "accuracy", "ci", "chance", "majority", "hidden_evidence_accuracy"),
    *(
        "margin_over_hidden",
        "margin_ci",
        "flip_rate",
        "macro_f1",
        "nll",
        "brier",
        "ece",
        "kendall_tau",
        "baselines",
    ),
)
"""What every row of the result holds."""


def records(count: int = 6) -> list[Labelled]:
    golds = (
        {"queue": "billing", "refund": "yes", "mood": "angry"},
        {"queue": "other", "refund": "no", "mood": "calm"},
    )
    return [
        Labelled(f"Order {number} is late.", QUESTIONS, golds[number % 2], source=f"row {number}")
        for number in range(count)
    ]


def evaluate(folder: Path, data: Sequence[Labelled], settings: Settings, log: Log) -> Evaluation:
    with (
        NativeEngine(folder) as engine,
        WholePrompts(engine.bundle, None, settings.readout, settings.orderings) as whole,
    ):
        evaluator = Evaluator(engine, data, settings, log, {}, whole)
        assert sum(1 for _ in evaluator.run()) == evaluator.pieces
        return evaluator.result


@pytest.fixture
def table(tmp_path: Path) -> list[str]:
    """Arguments that name a table with three questions."""
    (tmp_path / "t.csv").write_text(TABLE, "utf-8")
    (tmp_path / "q.json").write_text(json.dumps(WIRE), "utf-8")
    return [str(tmp_path / "t.csv"), "--text", "message", "--questions", str(tmp_path / "q.json")]


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["evaluate", *arguments, "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


# -- the command ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("readout", ("labels", "text", "pointer"))
def test_a_table_becomes_rows(
    dist_pointer: Path, table: list[str], capsys: pytest.CaptureFixture[str], readout: str
) -> None:
    result = run_json(
        capsys, *table, "--bundle", str(dist_pointer), "--readout", readout, "--baselines", "none", "--full"
    )
    assert [(row["task"], row["n"]) for row in result["rows"]] == [("queue", 4), ("refund", 4), ("mood", 3)]
    assert all(key in row for row in result["rows"] for key in ROW)
    assert [row["n"] for row in result["totals"]] == [11]
    assert [row["kind"] for row in result["groups"]["kind"]] == ["choice", "noul", "score"]
    assert [row["options"] for row in result["groups"]["options"]] == [2, 3]
    assert result["groups"]["family"] == []
    assert result["data"] | {"files": []} == {
        "texts": 4, "decisions": 11, "unlabelled": 1, "files": [], "suite": None
    }  # fmt: skip
    agreement = result["models"][0]["agreement"]
    assert agreement["decisions"] == 11
    assert agreement["agree"] is True
    assert agreement["max_difference"] <= 1e-5
    if readout != "labels":
        assert all(row["flip_rate"] == 0 for row in result["rows"])
    for row in result["rows"]:
        assert row["ci"][0] <= row["accuracy"] <= row["ci"][1]
        assert math.isclose(
            row["margin_over_hidden"], row["accuracy"] - row["hidden_evidence_accuracy"], abs_tol=1e-12
        )


def test_report_and_table(
    dist_pointer: Path, table: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, out = tmp_path / "new" / "report.html", tmp_path / "new" / "result.json"
    common = [*table, "--bundle", str(dist_pointer), "--baselines", "none"]
    assert main(["evaluate", *common, "--report", str(page), "--json", str(out)]) == 0
    shown = capsys.readouterr().out
    assert all(
        word in shown for word in ("queue", "refund", "mood", "prefix-sharing engine agree", str(page))
    )
    html = page.read_text("utf-8")
    assert html.count("<svg ") == html.count('role="img"') == 3
    assert not re.search(r"""(src|href)=["'](?!#)|@import|url\((?!#)""", html)  # nothing comes from elsewhere
    assert "#0102" not in html  # every colour is the theme's
    assert "prefers-color-scheme: dark" in html
    rows = json.loads(out.read_text("utf-8"))["rows"]
    assert f"{rows[0]['accuracy']:.3f}" in html


def test_names_are_escaped(dist_pointer: Path, tmp_path: Path) -> None:
    data, page = tmp_path / "d.jsonl", tmp_path / "r.html"
    question = {"type": "noul", "criteria": "Is it?"}
    lines = [{"state": "a", "question": question, "gold": gold, "task": "<b>&$x$"} for gold in ("yes", "no")]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    arguments = [str(data), "--bundle", str(dist_pointer), "--baselines", "none", "--report", str(page)]
    assert main(["evaluate", *arguments]) == 0
    html = page.read_text("utf-8")
    assert "<b>" not in html
    assert "&lt;b&gt;&amp;$x$" in html


def test_suite_says_what_training_has_seen(dist_pointer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--suite", "heldout", "--limit", "1", "--bundle", str(dist_pointer), "--readout", "pointer"]
    result = run_json(capsys, *arguments, "--baselines", "none")
    assert {row["split"] for row in result["rows"]} == {"seen", "unseen_domain", "unseen_task"}
    assert [row["split"] for row in result["totals"]] == ["seen", "unseen_domain", "unseen_task", ""]
    assert len(result["groups"]["domain"]) > 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        ([], "There is nothing to evaluate on"),
        (["none.jsonl"], "none.jsonl: cannot be read"),
        (["t.csv"], "t.csv: a table needs --text COLUMN"),
        (["t.csv", "--questions", "q.json"], "--questions: a table's texts need --text COLUMN too"),
        (["--suite", "nothing"], "--suite nothing: there is no such thing; known: heldout, valid"),
        (
            ["t.jsonl", "--baselines", "nothing"],
            "--baselines nothing: there is no such thing; known: minilm, sparrow",
        ),
        (["t.jsonl", "--baselines", "none", "--resume", "t.csv"], "t.csv: line 1 is no entry of a journal"),
        (["t.jsonl", "--baselines", "none", "--bundle", "nowhere"], "nowhere is no bundle"),
    ),
)
def test_what_cannot_be_used_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(TABLE, "utf-8")
    Path("q.json").write_text(json.dumps(WIRE), "utf-8")
    line = {"state": "a", "question": WIRE["refund"], "gold": "yes"}
    Path("t.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
    assert main(["evaluate", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


def test_away_from_the_source_tree_the_error_says_where_to_run(
    dist_pointer: Path, table: list[str], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "typedecide", "evaluate", "--bundle", str(dist_pointer)]
    done = subprocess.run([*command, "--suite", "heldout"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "--suite heldout: No module named 'bench'. It comes with the source tree" in done.stderr
    done = subprocess.run([*command, *table], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0
    assert "Baseline minilm is missing: --baselines minilm: No module named 'bench'" in done.stdout


def test_a_malformed_table_names_row_column_and_reason(
    table: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path(table[0]).write_text(TABLE.replace("accounts,no", "acounts,perhaps"), "utf-8")
    assert main(["evaluate", *table]) == 2
    told = capsys.readouterr().err
    assert "row 3, column 'queue': 'acounts' is none of the options: 'billing', 'accounts', 'other'." in told
    assert "row 3, column 'refund': 'perhaps' is none of the options: 'yes', 'no'." in told


def test_a_killed_run_goes_on(dist_pointer: Path, tmp_path: Path) -> None:
    data, log, out = tmp_path / "d.jsonl", tmp_path / "log.jsonl", tmp_path / "out.json"
    data.write_text("".join(json.dumps(one.to_dict()) + "\n" for one in records(120)), "utf-8")
    common = ["evaluate", str(data), "--bundle", str(dist_pointer), "--baselines", "none", "--json"]
    command = [sys.executable, "-m", "typedecide", *common, str(out), "--resume", str(log)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not (log.exists() and log.read_bytes().count(b"\n") > 5):
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    assert not out.exists()
    finished = log.read_bytes().count(b"\n")
    assert main([*common, str(out), "--resume", str(log)]) == 0
    kept = log.read_text("ascii").splitlines()[:finished]
    assert len(kept) == finished
    assert main([*common, str(tmp_path / "fresh.json")]) == 0
    first, fresh = (json.loads((tmp_path / name).read_text("utf-8")) for name in ("out.json", "fresh.json"))
    assert first["rows"] == fresh["rows"]


@pytest.mark.browser
def test_the_page_gives_the_same_rows(
    dist_pointer: Path, table: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    common = [*table, "--bundle", str(dist_pointer), "--baselines", "none"]
    native, page = (run_json(capsys, *common, "--engine", engine) for engine in ("native", "page"))
    for one, other in zip(native["rows"], page["rows"], strict=True):
        assert one["accuracy"] == other["accuracy"]
        assert math.isclose(one["nll"], other["nll"], abs_tol=1e-4)
    assert page["models"][0]["agreement"]["agree"] is True


# -- what is measured -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("orderings", (1, "auto"))
def test_decisions_are_what_the_engine_says(dist_pointer: Path, orderings: Level) -> None:
    data = records(2)
    with Log(None) as log:
        found = evaluate(dist_pointer, data, Settings("labels", orderings, full=True), log)
    with NativeEngine(dist_pointer) as engine:
        for decision in found.decisions:
            state, question = data[decision.text].state, QUESTIONS[decision.task]
            engine.prefill(state)
            answer = engine.score(question, orderings, readout="labels").answer
            assert near(softmax(decision.logits), answer.probabilities)
            order = [*reversed(range(len(question.names)))]
            turned = engine.score(listed(question, order), orderings, readout="labels").answer
            assert decision.backwards is not None
            assert near(softmax(decision.backwards), turned.probabilities[::-1])
            engine.prefill(BLANK)
            hidden = engine.score(question, orderings, readout="labels").answer
            assert near(softmax(decision.hidden), hidden.probabilities)
            assert decision.gold == question.names.index(data[decision.text].gold[decision.task])


def near(left: Sequence[float], right: Sequence[float]) -> bool:
    return math.dist(left, right) < 1e-6


def test_whole_prompts_one_by_one_and_in_batches_agree(dist_pointer: Path) -> None:
    asked = [(one.state, question) for one in records(2) for question in QUESTIONS.values()]
    with NativeEngine(dist_pointer) as engine:
        for readout, orderings in (("labels", "all"), ("labels", 1), ("text", None), ("pointer", None)):
            settings = Settings(readout, orderings)  # type: ignore[arg-type]
            by_one = WholeByOne(engine, engine.bundle, settings).logits(asked)
            with WholePrompts(engine.bundle, None, readout, settings.orderings) as whole:
                together = whole.logits(asked)
            assert all(near(softmax(a), softmax(b)) for a, b in zip(by_one, together, strict=True))


def test_a_path_that_lies_does_not_agree(dist_pointer: Path) -> None:
    class Lying:
        def logits(self, asked: Sequence[tuple[str, Question]]) -> list[tuple[float, ...]]:
            return [(0.001, *[0.0] * (len(question.names) - 1)) for _, question in asked]

    with NativeEngine(dist_pointer) as engine, Log(None) as log:
        evaluator = Evaluator(engine, records(2), Settings(), log, {}, Lying())
        assert list(evaluator.run())
    assert tables.agreement(evaluator.result)["agree"] is False


def test_what_cannot_be_answered_is_named_and_the_rest_goes_on(dist_pointer: Path) -> None:
    many = Choice("Which?", [f"option {i}" for i in range(40)])  # more than this model has labels
    data = [
        Labelled(
            "word " * 5000,
            QUESTIONS,
            dict.fromkeys(QUESTIONS, "") | records(1)[0].gold,
            source="the long one",
        ),
        Labelled(
            "short",
            {"many": many, "refund": QUESTIONS["refund"]},
            {"many": "option 3", "refund": "no"},
            source="b",
        ),
        *records(1),
    ]
    with Log(None) as log:
        found = evaluate(dist_pointer, data, Settings("labels"), log)
    assert [(one.source, one.question) for one in found.failures] == [
        *(("the long one", key) for key in QUESTIONS),
        ("b", "many"),
    ]
    assert [one.task for one in found.decisions] == ["refund", *QUESTIONS]


# -- the log --------------------------------------------------------------------------------------------------------


def test_a_run_that_is_broken_off_goes_on_and_comes_out_the_same(dist_pointer: Path, tmp_path: Path) -> None:
    path, data, settings = tmp_path / "log.jsonl", records(), Settings("labels")
    with NativeEngine(dist_pointer) as engine, WholePrompts(engine.bundle, None, "labels") as whole:
        with Log(path) as log:
            evaluator = Evaluator(engine, data, settings, log, {}, whole)
            for _ in zip(range(5), evaluator.run(), strict=False):
                pass
        with path.open("a", encoding="ascii") as stream:
            stream.write('{"key": "cut in the mid')
        kept = path.read_text("ascii").splitlines()[:-1]
        finished = len(kept)
        assert finished >= 5
        with Log(path) as log:
            again = evaluate(dist_pointer, data, settings, log)
        assert path.read_text("ascii").splitlines()[:finished] == kept
    with Log(None) as log:
        fresh = evaluate(dist_pointer, data, settings, log)
    assert again.decisions == fresh.decisions
    assert '{"key": "cut in the mid' not in path.read_text("ascii")
    with Log(path) as log:
        assert evaluate(dist_pointer, data, settings, log).timings == again.timings
    before = path.read_bytes()
    with Log(path) as log:
        evaluate(dist_pointer, data, Settings("labels", 1), log)
    assert len(path.read_bytes()) > len(before)  # other settings, other answers


def test_the_sample_has_some_of_every_task() -> None:
    data = [*records(500), *(Labelled("a", QUESTIONS, records(1)[0].gold, task="rare") for _ in range(3))]
    drawn = evaluation.sample(data, seed=1)
    assert drawn == evaluation.sample(data, seed=1)
    assert len(drawn) == evaluation.SAMPLE // 2 + 3
    assert {500, 501, 502} <= drawn


def test_a_log_that_is_none_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"key": "a", "found": 1}\n[]\n', "ascii")
    with pytest.raises(InputError, match="line 2 is no entry of a journal"), Log(path):
        pass


# -- the figures ----------------------------------------------------------------------------------------------------


def decision(text: int, gold: int, logits: Sequence[float], **other: Any) -> Decision:
    names = tuple("abcdefgh"[: len(logits)])
    given: dict[str, Any] = {
        "task": "t", "family": "", "domain": "", "split": "", "kind": "choice", "hidden": (0.0,) * len(logits),
        "backwards": None, "whole": None, "between_orders": 0.0, "baselines": {},
    }  # fmt: skip
    return Decision(text=text, names=names, gold=gold, logits=tuple(logits), **{**given, **other})


def test_a_row_by_hand() -> None:
    found = tables.row(
        [
            decision(0, 0, [2.0, 0.0], backwards=(2.0, 0.0), baselines={"guess": (0.0, 1.0)}),
            decision(0, 1, [1.0, 0.0], backwards=(0.0, 3.0), baselines={"guess": (0.0, 1.0)}),
            decision(1, 1, [0.0, 1.0, 0.0], hidden=(0.0, 9.0, 0.0), baselines={"guess": (1.0, 1.0, 1.0)}),
        ]
    )
    assert found["n"] == 3
    assert found["texts"] == 2
    assert math.isclose(found["accuracy"], 2 / 3)
    assert math.isclose(found["chance"], (1 / 2 + 1 / 2 + 1 / 3) / 3)
    assert math.isclose(found["hidden_evidence_accuracy"], (0.5 + 0.5 + 1) / 3)  # a tie of two earns a half
    assert found["flip_rate"] == 0.5
    assert found["flip_n"] == 2
    assert found["kendall_tau"] is None
    assert found["intervals"]["kendall_tau"] is None
    assert math.isclose(found["baselines"]["guess"]["accuracy"], (0 + 1 + 1 / 3) / 3)
    assert found["ci"] == (0.5, 1.0)
    assert found["position"] == {"first": 2 / 3, "last": 0.0, "true_first": 1 / 3, "true_last": 1 / 3}


def test_scores_are_ranked_by_their_expected_level() -> None:
    levels = [[9.0, 0, 0], [0, 9.0, 0], [0, 0, 9.0]]
    found = tables.row([decision(i, i, logits, kind="score") for i, logits in enumerate(levels)])
    assert found["kendall_tau"] == 1
    assert found["accuracy"] == 1


def test_curves_hold_what_the_metrics_say() -> None:
    decisions = [decision(i, i % 2, [i / 100, 0.0]) for i in range(500)]
    found = tables.curves(decisions)
    assert len(found["risk_coverage"]) <= 250
    assert found["risk_coverage"][-1]["coverage"] == 1
    assert sum(one["count"] for one in found["reliability"]["equal_mass"]) == 500
    assert len(found["reliability"]["equal_mass"]) == metrics.BINS


def test_examples() -> None:
    assert doctest.testmod(evaluation).failed == 0
