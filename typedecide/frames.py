"""Answers about every row of a pandas DataFrame, as new columns. Knows no engine: what decides is handed in.

pandas is not imported: a frame is what has columns, `frame[column]` and `assign`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from typedecide.columns import answer_cells, answer_columns
from typedecide.errors import TEXT_FAULTS, UnsupportedError
from typedecide.questions import Question, is_blank
from typedecide.results import Decided

Decide = Callable[[str], Awaitable[Decided]]
"""Answers the questions about a text."""

OnRow = Callable[[int, int], None]
"""Receives how many rows are answered, and how many there are."""

FAULT = "fault"
"""The column that says why a row has no answers."""


async def answered(
    frame: Any,
    column: str,
    questions: Mapping[str, Question],
    decide: Decide,
    on_row: OnRow | None = None,
) -> Any:
    """A copy of `frame` with the answers about each text of `column`, in the columns of `typedecide batch`.

    A row that cannot be answered has none, and its `fault` says why. Equal texts are asked about once.
    """
    texts = list(frame[column])
    names = [name for id, question in questions.items() for name, _ in answer_columns(id, question)]
    _check_names([*frame.columns, FAULT, *names])
    known: dict[str, dict[str, Any]] = {}
    rows: list[dict[str, Any]] = []
    for text in texts:
        if not isinstance(text, str):
            rows.append({FAULT: f"is not a text but {text!r}"[:80]})
        elif is_blank(text):
            rows.append({FAULT: "the text is blank"})
        else:
            if text not in known:
                known[text] = await _cells(text, decide)
            rows.append(known[text])
        if on_row is not None:
            on_row(len(rows), len(texts))
    # Calibrations and shallow models add columns that only the answers tell of.
    found = dict.fromkeys([FAULT, *names, *(name for row in rows for name in row)])
    _check_names([*frame.columns, *found])
    return frame.assign(**{name: [row.get(name) for row in rows] for name in found})


async def _cells(text: str, decide: Decide) -> dict[str, Any]:
    try:
        done = await decide(text)
    except TEXT_FAULTS as error:
        return {FAULT: error.message}
    return {name: cell for id, one in done.answers.items() for name, cell in answer_cells(id, one).items()}


def _check_names(names: Iterable[object]) -> None:
    seen: set[object] = set()
    for name in names:
        if name in seen:
            raise UnsupportedError(
                f"Two columns of the result would have the name {name!r}: rename the frame's, or choose other ids.",
                column=name,
            )
        seen.add(name)
