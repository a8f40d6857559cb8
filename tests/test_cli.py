"""`python -m typedecide`: the same answers from the page and natively, and clear ends for bad input."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pybuild.sources import DEFAULT_MODEL, STOCK_MODEL
from typedecide import __version__
from typedecide.__main__ import parser
from typedecide.native import NativeEngine
from typedecide.questions import parse_questions

ROOT = Path(__file__).resolve().parents[1]

STATE = (
    "My card was charged twice for order 48-20391.\r\nNobody answers my mails, and I want my money back. 😠\n"
)
QUESTIONS: dict[str, Any] = {
    "queue": {
        "type": "choice",
        "instructions": "Which team should handle this?",
        "criteria": {"billing": "charges and refunds", "accounts": "sign-in and access", "Verkauf": None},
    },
    "10": {"type": "noul", "criteria": "Does the customer want money back?"},
    "2": {"type": "score", "instructions": "How urgent is it?", "criteria": ["low", "medium", "high"]},
}


def run(*arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "typedecide", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, input=stdin, capture_output=True, check=False)


def run_json(*arguments: str | Path, stdin: bytes = b"") -> Any:
    done = run(*arguments, "--json", stdin=stdin)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A state file and a questions file."""
    state, questions = tmp_path / "state.txt", tmp_path / "questions.json"
    state.write_bytes(STATE.encode())
    questions.write_text(json.dumps(QUESTIONS), encoding="utf-8")
    return state, questions


def largest_gap(one: Any, other: Any) -> float:
    gaps: list[float] = [
        abs(p - q)
        for key in one["answers"]
        for p, q in zip(
            one["answers"][key]["probabilities"], other["answers"][key]["probabilities"], strict=True
        )
    ]
    return max(gaps)


@pytest.mark.browser
@pytest.mark.parametrize(
    ("bundle", "readout", "model"),
    [("dist_fp32", "pointer", DEFAULT_MODEL), ("dist_stock", "text", STOCK_MODEL)],
)
def test_wasm_and_native_agree_in_fp32(
    request: pytest.FixtureRequest, files: tuple[Path, Path], bundle: str, readout: str, model: str
) -> None:
    """Each model in its own readout."""
    state, questions = files
    folder = request.getfixturevalue(bundle)
    common = ("decide", "--state", state, "--questions", questions, "--bundle", folder)
    native = run_json(*common, "--device", "native")
    wasm = run_json(*common, "--device", "wasm")
    assert (native["device"], wasm["device"]) == ("native", "wasm")
    assert (native["format"], wasm["format"]) == ("fp32", "fp32")
    assert native["prefix_tokens"] == wasm["prefix_tokens"] > 20
    for result in (native, wasm):
        assert result["model"] == model
        check_shape(result, readout)
    gap = largest_gap(native, wasm)
    print(f"native against wasm, fp32, {readout}: largest probability difference {gap:.2e}")
    assert gap <= 1e-4


def check_shape(result: Any, readout: str) -> None:
    """The JSON form is complete, in order, and consistent with itself."""
    assert min(result["prefill_ms"], result["score_ms"]) > 0
    # Options of one question share its text in the text readout; otherwise questions share how they begin.
    assert result["tokens_run"] > 50 and result["tokens_saved"] > (10 if readout == "text" else 3)
    # The text readout asks each question once more, under blank evidence.
    assert result["runs"] == (1 + len(result["answers"]) if readout == "text" else 1)
    assert list(result["answers"]) == ["queue", "10", "2"]
    for key, kind in (("queue", "choice"), ("10", "noul"), ("2", "score")):
        answer = result["answers"][key]
        assert answer["kind"] == kind
        assert len(answer["names"]) == len(answer["logits"]) == len(answer["probabilities"])
        assert math.isclose(sum(answer["probabilities"]), 1, abs_tol=1e-12)
        top = answer["probabilities"].index(max(answer["probabilities"]))
        assert answer["choice"] == answer["names"][top]
        assert 0 <= answer["flip_rate"] < 1
    used = [answer["orderings_used"] for answer in result["answers"].values()]
    assert (result["readout"], used) == (readout, [1, 1, 1])
    assert result["answers"]["queue"]["names"] == ["billing", "accounts", "Verkauf"]
    assert result["answers"]["10"]["value"] == result["answers"]["10"]["probabilities"][0]


def test_graph_variants_agree_natively(dist_fp32: Path, files: tuple[Path, Path]) -> None:
    state, questions = files
    common = ("decide", "--state", state, "--questions", questions, "--bundle", dist_fp32)
    explicit, grouped = (
        run_json(*common, "--device", "native", "--variant", variant, "--threads", "2")
        for variant in ("explicit", "gqa")
    )
    assert (explicit["candidate"], grouped["candidate"]) == ("native-explicit", "native-gqa")
    assert largest_gap(explicit, grouped) <= 1e-5


def test_state_from_standard_input_keeps_its_bytes(dist: Path, files: tuple[Path, Path]) -> None:
    state, questions = files
    common = ("decide", "--questions", questions, "--bundle", dist, "--device", "native")
    from_file = run_json(*common, "--state", state)
    from_pipe = run_json(*common, "--state", "-", stdin=STATE.encode())
    other_line_ends = run_json(*common, "--state", "-", stdin=STATE.replace("\r\n", "\n").encode())
    assert largest_gap(from_file, from_pipe) == 0
    assert from_pipe["prefix_tokens"] == other_line_ends["prefix_tokens"] + 1


def test_orderings_and_budget(dist_fp32_4l: Path, files: tuple[Path, Path]) -> None:
    state, questions = files
    common = decide(state, questions, "--bundle", dist_fp32_4l, "--readout", "labels")

    def used(*more: str) -> list[int]:
        answers = run_json(*common, *more)["answers"]
        return [answer["orderings_used"] for answer in answers.values()]

    assert used() == used("--orderings", "auto") == used("--orderings", "all") == [3, 2, 3]
    assert used("--orderings", "2") == [2, 2, 2]
    assert used("--budget", "2") == [2, 2, 2]
    plain = run_json(*common, "--orderings", "1")
    assert [(a["orderings_used"], a["flip_rate"]) for a in plain["answers"].values()] == [(1, 0)] * 3
    # One order is what score() reads, to the rounding of another matrix shape.
    with NativeEngine(dist_fp32_4l) as engine:
        engine.prefill(STATE)
        for answer, question in zip(
            plain["answers"].values(), parse_questions(QUESTIONS).values(), strict=True
        ):
            assert answer["probabilities"] == pytest.approx(
                engine.score(question, 1, readout="labels").answer.probabilities, abs=1e-5
            )


def test_every_readout_and_the_prior(dist_pointer: Path, files: tuple[Path, Path]) -> None:
    state, questions = files
    common = decide(state, questions, "--bundle", dist_pointer)
    for readout in ("labels", "text", "pointer"):
        check_readout(run_json(*common, "--readout", readout), readout)
    done = run_json(*common, "--readout", "labels", "--prior", "content-free", "--early-stop")
    for answer in done["answers"].values():
        assert answer["prior"] == {"kind": "content-free", "count": 1, "applied": True}


def check_readout(result: Any, readout: str) -> None:
    """The answers are those of this readout, and nothing was done about a prior."""
    used = [answer["orderings_used"] for answer in result["answers"].values()]
    assert (result["readout"], used) == (readout, [3, 2, 3] if readout == "labels" else [1, 1, 1])
    assert all("prior" not in answer for answer in result["answers"].values())


@pytest.mark.browser
def test_demo_answers_the_sample_in_the_page(dist: Path) -> None:
    done = run("demo", "--bundle", dist, "--device", "wasm")
    assert done.returncode == 0, done.stderr.decode()
    table = done.stdout.decode()
    print(table)
    sample = json.loads((dist / "app" / "decide" / "samples" / "support.json").read_text(encoding="utf-8"))
    assert len(sample["questions"]) >= 11
    assert table.count("│") >= 7 * 11 and "on wasm" in table
    assert re.search(
        r"\d+ tokens read once in \d+ ms; answers in \d+ ms: \d+ tokens run, \d+ saved, \d+ runs", table
    )


def test_info(dist: Path) -> None:
    facts = run_json("info", "--bundle", dist)
    assert facts["model"]["licence"] == "Apache-2.0" and facts["default_format"] == "int8"
    assert facts["formats"]["int8"]["drift"]["prompts"] >= 50
    assert (facts["readout"], facts["readouts"]) == ("pointer", ["labels", "text", "pointer"])
    shown = run("info", "--bundle", dist).stdout.decode()
    assert DEFAULT_MODEL in shown and "int8" in shown and "Apache-2.0" in shown


def test_help_and_version() -> None:
    assert "examples:" in parser().format_help()
    done = run("decide", "--help")
    assert done.returncode == 0 and b"--device" in done.stdout and b"examples:" in done.stdout
    assert run("--version").stdout.decode().strip() == __version__


def failing(*arguments: str | Path, stdin: bytes = b"") -> str:
    """The message of a run that must end with status 2 and say nothing on standard output."""
    done = run(*arguments, stdin=stdin)
    assert (done.returncode, done.stdout) == (2, b""), done.stderr.decode()
    message = done.stderr.decode()
    assert "Traceback" not in message
    return message


def decide(state: str | Path, questions: str | Path, *more: str | Path) -> tuple[str | Path, ...]:
    return ("decide", "--state", state, "--questions", questions, "--device", "native", *more)


def test_arguments_that_are_wrong(files: tuple[Path, Path], dist: Path, dist_stock: Path) -> None:
    state, questions = files
    assert "command" in failing()
    assert "--questions" in failing("decide", "--state", state)
    assert "abacus" in failing("decide", "--state", state, "--questions", questions, "--device", "abacus")
    assert "'0'" in failing(*decide(state, questions, "--threads", "0", "--bundle", dist))
    for value in ("0", "most", "1.5"):
        message = failing(*decide(state, questions, "--orderings", value, "--bundle", dist))
        assert repr(value) in message and "auto" in message
    labels = ("--readout", "labels", "--bundle", dist)
    message = failing(*decide(state, questions, "--orderings", "3", *labels))
    assert "--orderings 3" in message and "'10'" in message and "2 options" in message
    assert "from 2: '1'" in failing(*decide(state, questions, "--budget", "1", "--bundle", dist))
    message = failing(*decide(state, questions, "--budget", "3", "--orderings", "all", *labels))
    assert "--budget 3" in message and "all" in message
    for option, value in (("--orderings", "auto"), ("--budget", "3")):
        message = failing(*decide(state, questions, option, value, "--readout", "text", "--bundle", dist))
        assert f"{option} {value}" in message and "--readout labels" in message
    message = failing(*decide(state, questions, "--early-stop", "--readout", "text", "--bundle", dist))
    assert "--early-stop: the text readout" in message
    message = failing(*decide(state, questions, "--readout", "pointer", "--bundle", dist_stock))
    assert "--readout pointer: this bundle has labels, text." in message
    assert "'batch'" in failing(*decide(state, questions, "--prior", "batch", *labels))
    message = failing(
        "decide", "--state", state, "--questions", questions, "--variant", "gqa", "--device", "wasm", "--bundle", dist
    )  # fmt: skip
    assert "--variant gqa" in message and "native" in message


def test_bundles_that_are_wrong(files: tuple[Path, Path], dist: Path, tmp_path: Path) -> None:
    state, questions = files
    assert str(tmp_path / "none") in failing(*decide(state, questions, "--bundle", tmp_path / "none"))
    message = failing(*decide(state, questions, "--bundle", dist, "--format", "int3"))
    assert "'int3'" in message and "int8" in message


def test_states_that_are_wrong(files: tuple[Path, Path], dist: Path, tmp_path: Path) -> None:
    _, questions = files
    assert "absent.txt" in failing(*decide("absent.txt", questions, "--bundle", dist))
    message = failing(*decide("-", questions, "--bundle", dist), stdin=b"caf\xe9 au lait")
    assert "standard input" in message and "0xe9" in message and "offset 3" in message
    long = tmp_path / "long.txt"
    long.write_text("word " * 9000, encoding="utf-8")
    message = failing(*decide(long, questions, "--bundle", dist))
    assert "long.txt" in message and "8192" in message and re.search(r"\b9\d{3} tokens", message)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{", ["not JSON"]),
        ('{"a": 1, "a": 2}', ["'a'", "twice"]),
        ("[]", ["object"]),
        ("{}", ["at least one question"]),
        ('{"q": {"type": "essay"}}', ["q.type", "'essay'"]),
        ('{"q": {"type": "choice", "criteria": ["only one"]}}', ["q.criteria", "2 to 255", "1"]),
        ('{"q": {"type": "choice", "criteria": ["same", "same"]}}', ["q.criteria.1", "unique", "'same'"]),
        ('{"q": {"type": "noul", "criteria": "\\ud800"}}', ["q.criteria", "surrogate", "\\ud800"]),
        ('{"q": {"type": "score", "instructions": 7, "criteria": ["a", "b"]}}', ["q.instructions", "7"]),
    ],
)
def test_questions_that_are_wrong(
    files: tuple[Path, Path], dist: Path, tmp_path: Path, text: str, wanted: list[str]
) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(text, encoding="utf-8")
    message = failing(*decide(files[0], bad, "--bundle", dist))
    assert "bad.json" in message
    for words in wanted:
        assert words in message
