"""typedecide/page.py: the page's engine from Python, its errors, and what is left behind (nothing)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from typedecide import (
    AbortedError,
    BundleError,
    Choice,
    DeviceLostError,
    InvalidStateError,
    Noul,
    PrefixMismatchError,
    Score,
    TooLongError,
    TypedecideError,
    UnsupportedError,
    parse_question,
)
from typedecide.page import PageEngine
from typedecide.questions import to_wire

pytestmark = pytest.mark.browser

STATE = "I was charged twice and want my money back."
REFUND = Noul("Does the customer want money back?")


@pytest.fixture(scope="module")
def events() -> list[Mapping[str, Any]]:
    """What the page reported while the engine loaded."""
    return []


@pytest.fixture(scope="module")
def engine(dist_fp32_4l: Path, events: list[Mapping[str, Any]]) -> Iterator[PageEngine]:
    """One engine for the tests that do not end it."""
    with PageEngine(dist_fp32_4l, "wasm", threads=1, on_progress=events.append) as engine:
        yield engine


def test_info_and_progress(engine: PageEngine, events: list[Mapping[str, Any]]) -> None:
    info = engine.info
    assert (info["device"], info["candidate"], info["format"], info["threads"]) == ("wasm", "wasm", "fp32", 1)
    assert info["model"]["shape"]["layers"] == 4
    assert [trial["verdict"] for trial in info["selfTest"]] == ["chosen"]
    phases = [event["phase"] for event in events]
    assert phases[0] == "manifest" and phases[-1] == "ready" and "download" in phases and "selftest" in phases
    assert any(event.get("totalBytes") for event in events)
    steps = info["timings"]
    assert set(steps) == {"manifest", "tokenizer", "runtime", "compile", "weights", "session", "selftest"}
    assert all(0 <= span["from"] <= span["to"] <= info["loadMs"] for span in steps.values())
    # The runtime starts while the weights come; the session waits for both.
    assert (
        steps["compile"]["from"] < steps["weights"]["to"]
        and steps["weights"]["from"] < steps["compile"]["to"]
    )
    assert max(steps["compile"]["to"], steps["weights"]["to"]) <= steps["session"]["from"]
    assert steps["session"]["to"] <= steps["selftest"]["from"]
    assert engine.browser_version.split(".")[0].isdecimal()


def test_answers_have_python_types_and_the_names_that_were_given(engine: PageEngine) -> None:
    names = ("10", "2", "naïve 😀", " padded ", "line\nbreak", "\u202eright to left")
    prefill = engine.prefill(STATE)
    assert prefill.tokens > 10 and prefill.ms > 0
    choice = engine.score(Choice("Which?", {name: "" for name in names}))
    assert choice.answer.names == names and choice.answer.choice in names and choice.tokens > 10
    noul = engine.score(REFUND, 1, readout="labels").answer
    assert isinstance(noul.value, float) and noul.value == noul.probabilities[0]
    score = engine.score(Score("How angry?", ["calm", "annoyed", "furious"])).answer
    assert isinstance(score.value, float) and isinstance(score.confidence, float)
    for answer in (choice.answer, noul, score):
        assert all(type(number) is float for number in (*answer.logits, *answer.probabilities))


@pytest.mark.parametrize("words", range(4))
def test_kept_prefix_and_whole_prompt_agree(engine: PageEngine, words: int) -> None:
    # Four lengths in a row, because the kernels add up in groups of four.
    state = STATE + " please" * words
    engine.prefill(state)
    shared, full = engine.score(REFUND, 1, readout="labels"), engine.score_full(state, REFUND)
    assert full.tokens > shared.tokens
    for one, other in zip(shared.answer.probabilities, full.answer.probabilities, strict=True):
        assert abs(one - other) <= 1e-6


@pytest.mark.parametrize(
    "question",
    [
        Choice("Which?", {"b": "second", "a": "", "10": "ten", "2": "two"}),
        Score("How much?", {"0": "none", "1": "some"}),
        Noul("Is it?"),
        Noul("Is it {odd}?", yes="it is", no="it is not"),
        Noul("", yes="it is"),
    ],
)
def test_wire_form_gives_the_question_back(question: Choice | Score | Noul) -> None:
    assert parse_question(to_wire(question)) == question


def test_errors_of_the_page_arrive_with_class_and_data(engine: PageEngine) -> None:
    with pytest.raises(TooLongError) as too_long:
        engine.prefill("word " * 9000)
    assert too_long.value.limit == 8192 and too_long.value.tokens > 9000
    with pytest.raises(InvalidStateError):
        engine.prefill("lone \ud800 surrogate")
    with pytest.raises(InvalidStateError):
        engine.evaluate("(engine) => engine.prefill(7)")
    engine.prefill(STATE)  # and it goes on working
    assert engine.score(REFUND, 1, readout="labels").tokens > 0


def test_work_that_nobody_wants_stops(engine: PageEngine) -> None:
    many = {f"q{i}": Choice(f"Which of {i}?", [f"{i} {j}" for j in range(9)]) for i in range(40)}
    with pytest.raises(AbortedError):
        engine.decide(STATE, many, aborted=lambda: True)
    done = engine.decide(STATE, {"a": REFUND}, aborted=lambda: False)
    assert done.answers["a"].answer.names == ("yes", "no")


def test_threads_share_an_engine(engine: PageEngine) -> None:
    texts = [f"{STATE} Order {number}." for number in range(4)]
    questions = {f"q{i}": Choice(f"Which of {i}?", [f"{i} {j}" for j in range(3)]) for i in range(3)}
    heard: list[dict[str, Any]] = [{} for _ in texts]

    def ask(index: int, aborted: bool) -> Any:
        try:
            return engine.decide(
                texts[index % 4], questions, on_answer=heard[index % 4].__setitem__, aborted=lambda: aborted
            ).answers
        except AbortedError:
            return "aborted"

    alone = [ask(index, False) for index in range(4)]
    heard = [{} for _ in texts]
    with ThreadPoolExecutor(8) as threads:
        given_up = [False] * 4 + [True] * 4
        found = [*threads.map(ask, range(8), given_up)]
    assert found[:4] == alone and heard == alone
    assert [one for one in found[4:] if one != "aborted"] == [
        one for one, other in zip(alone, found[4:], strict=True) if other != "aborted"
    ]


def test_errors_without_a_code_keep_name_and_message(engine: PageEngine) -> None:
    with pytest.raises(TypedecideError, match=r"RangeError: planted") as caught:
        engine.evaluate("() => { throw new RangeError('planted'); }")
    assert type(caught.value) is TypedecideError
    assert caught.value.data["name"] == "RangeError" and "RangeError" in caught.value.data["stack"]
    with pytest.raises(TypedecideError, match="just a string"):
        engine.evaluate("() => Promise.reject('just a string')")


def test_a_position_that_differs_arrives_as_it_is(engine: PageEngine) -> None:
    thrown = (
        "async () => { const { PrefixMismatchError } = await import('/index.js');"
        " throw new PrefixMismatchError('planted', { position: 3, prefix_token: 1, full_token: null }); }"
    )
    with pytest.raises(PrefixMismatchError) as caught:
        engine.evaluate(thrown)
    assert (caught.value.position, caught.value.full_token) == (3, None)


def test_evaluate_passes_values_through_unchanged(engine: PageEngine) -> None:
    value: dict[str, Any] = {
        "text": 'é😀"\\\n\u2028',
        "numbers": [0.1, 1e300, -0.5, 3],
        "none": None,
        "10": 1,
        "2": {},
    }
    back = engine.evaluate("(engine, value) => value", value)
    assert back == value
    assert engine.evaluate("(engine, text) => text.charCodeAt(0)", "\ud800") == 0xD800
    assert engine.evaluate("() => undefined") is None


def test_the_page_may_run_threads(engine: PageEngine) -> None:
    assert engine.evaluate("() => crossOriginIsolated") is True


def test_bad_arguments_start_no_browser(dist_fp32_4l: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="abacus"):
        PageEngine(dist_fp32_4l, "abacus")
    with pytest.raises(BundleError, match="int3"):
        PageEngine(dist_fp32_4l, format="int3")
    with pytest.raises(BundleError):
        PageEngine(tmp_path)


def test_no_candidate_left_is_an_error_that_says_why(dist_fp32_4l: Path) -> None:
    # Chromium without its WebGPU switches, on a device that is WebGPU only.
    with pytest.raises(UnsupportedError) as caught:
        PageEngine(dist_fp32_4l, "wasm", candidates=["webgpu-gqa"])
    assert caught.value.data["missing"] in (["WebGPU"], ["a WebGPU adapter"])


def test_works_inside_a_running_event_loop(dist_fp32_4l: Path) -> None:
    async def notebook_cell() -> int:
        with PageEngine(dist_fp32_4l, "wasm", threads=1) as engine:
            return engine.prefill(STATE).tokens

    # On a thread of its own: where other tests have a browser open, this one has a loop that runs already.
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(asyncio.run, notebook_cell()).result() > 10


def test_a_browser_that_dies_is_an_error(dist_fp32_4l: Path) -> None:
    with PageEngine(dist_fp32_4l, "wasm", threads=1) as engine:
        engine.prefill(STATE)
        before = engine.score(REFUND, 1, readout="labels").answer
        engine._call(lambda: engine._page.close())
        with pytest.raises(DeviceLostError, match="browser failed"):
            engine.score(REFUND, 1, readout="labels")
        # The next call has another browser, to which the text is new.
        with pytest.raises(InvalidStateError):
            engine.score(REFUND, 1, readout="labels")
        assert not engine.prefill(STATE).kept
        assert engine.score(REFUND, 1, readout="labels").answer == before


def test_nothing_is_left_running(dist_fp32_4l: Path) -> None:
    script = (
        "import os, sys\n"
        "from typedecide.page import PageEngine\n"
        f"with PageEngine({str(dist_fp32_4l)!r}, 'wasm', threads=1) as engine:\n"
        "    sys.stdout.write('ready\\n'); sys.stdout.flush(); sys.stdin.readline()\n"
        "sys.stdout.write('closed\\n'); sys.stdout.flush(); sys.stdin.readline()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin and child.stdout
        assert child.stdout.readline() == "ready\n"
        assert descendants(child.pid)
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "closed\n"
        assert descendants(child.pid) == []
        child.stdin.write("\n")
    assert child.returncode == 0


def descendants(pid: int) -> list[int]:
    """All living processes below `pid`."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                stat = Path("/proc", entry, "stat").read_text(encoding="utf-8")
            except OSError:
                continue
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state != "Z":
                children.setdefault(int(parent), []).append(int(entry))
    found, queue = [], [pid]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found
