"""A journal of finished pieces of work, so that a run that was killed goes on: JSON lines, only ever appended to.

Knows nothing of what it holds. A line that was cut off by the end of a process is dropped and done again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, BinaryIO, Self

from typedecide.inputs import InputError


class Journal:
    """Values by key in a file; only their places are kept in memory.

    >>> with Journal(Path("run.journal.jsonl")) as journal:              # doctest: +SKIP
    ...     journal.add("piece 1", {"answer": 42})
    ...     "piece 1" in journal, journal["piece 1"]
    (True, {'answer': 42})
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._places: dict[str, int] = {}

    def __enter__(self) -> Self:
        try:
            self._file: BinaryIO = self.path.open("a+b")
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be written: {error.strerror}.", path=str(self.path)
            ) from error
        try:
            self._read()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, key: str) -> Any:
        """The value of a key that is there."""
        self._file.seek(self._places[key])
        return json.loads(self._file.readline())["found"]

    def add(self, key: str, found: Any) -> None:
        """Append a value, which is JSON; it is in the file's system buffers when this returns."""
        line = json.dumps({"key": key, "found": found}, allow_nan=False).encode("ascii") + b"\n"
        self._places[key] = self._file.seek(0, 2)
        self._file.write(line)
        self._file.flush()

    def _read(self) -> None:
        self._file.seek(0)
        place = 0
        for number, line in enumerate(self._file, start=1):
            if not line.endswith(b"\n"):
                self._file.truncate(place)
                return
            try:
                self._places[json.loads(line)["key"]] = place
            except (ValueError, TypeError, KeyError) as error:
                raise InputError(
                    f"{self.path}: line {number} is no entry of a journal; move that file away.",
                    path=str(self.path),
                    line=number,
                ) from error
            place += len(line)
