"""Answers as columns of a pandas DataFrame: the same as those of `typedecide batch`."""

from __future__ import annotations

import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import pytest

from typedecide.__main__ import main
from typedecide.errors import UnsupportedError
from typedecide.frames import answered
from typedecide.native import NativeEngine
from typedecide.questions import parse_questions
from typedecide.results import Decided

WIRE = """{
 "team": {"type": "choice", "instructions": "Which team?", "criteria": ["billing", "shipping", "other"]},
 "angry": {"type": "noul", "criteria": "Is the customer angry?"}
}"""


T = TypeVar("T")


def finish(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine gives that never has to wait: whether or not an event loop runs here, as Playwright's does."""
    with pytest.raises(StopIteration) as done:
        work.send(None)
    value: T = done.value.value
    return value


def test_columns_are_those_of_the_command_line(dist_pointer: Path, tmp_path: Path) -> None:
    texts = ["Where is my parcel?", "I was charged twice!", " \u3000\t", "Where is my parcel?"]
    table, questions, out = (tmp_path / name for name in ("in.csv", "questions.json", "out.csv"))
    pd.DataFrame({"message": texts}).to_csv(table, index=False)
    questions.write_text(WIRE, "utf-8")
    options = [
        "--text",
        "message",
        "--questions",
        str(questions),
        "--out",
        str(out),
        "--bundle",
        str(dist_pointer),
    ]
    assert main(["batch", str(table), *options]) == 0
    frame = pd.DataFrame({"message": [*texts, None], "n": range(5)}, index=[7, 3, 9, 2, 1])
    asked = parse_questions(json.loads(WIRE))
    calls = []
    with NativeEngine(dist_pointer) as engine:

        async def decide(text: str) -> Decided:
            calls.append(text)
            return engine.decide(text, asked)

        done = finish(answered(frame, "message", asked, decide))
    assert calls == texts[:2]
    assert list(frame.columns) == ["message", "n"]
    assert list(done.index) == [7, 3, 9, 2, 1]
    wanted = pd.read_csv(out)
    answered_rows = [0, 1, 3]
    names = [name for name in wanted.columns if "." in name]
    assert list(done.columns) == ["message", "n", "fault", *names]
    for name in names:
        found, right = list(done[name].iloc[answered_rows]), list(wanted[name])
        assert found == (pytest.approx(right, abs=1e-12) if wanted[name].dtype == float else right)
    assert done["angry.p.yes"].dtype == float
    assert done["angry.p.yes"].isna().tolist() == [row not in answered_rows for row in range(5)]
    assert done["fault"].isna().tolist() == [row in answered_rows for row in range(5)]
    (rejected,) = map(json.loads, Path(f"{out}.rejects.jsonl").read_text("ascii").splitlines())
    assert done["fault"].iloc[2] == rejected["reason"] == "the text is blank"
    assert done["fault"].iloc[4].startswith("is not a text but ")


def test_a_name_twice_is_refused() -> None:
    frame = pd.DataFrame({"message": ["a"], "angry.answer": ["yes"]})

    async def decide(text: str) -> Decided:
        raise AssertionError("nothing may be asked")

    questions = parse_questions({"angry": {"type": "noul", "criteria": "Is it?"}})
    with pytest.raises(UnsupportedError, match=r"angry\.answer"):
        finish(answered(frame, "message", questions, decide))
