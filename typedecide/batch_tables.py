"""The tables of a batch: rows of CSV, TSV, JSON lines or Parquet in, CSV or Parquet out.

Knows no engine and no question. A row that cannot be used says why and stops nothing; a file that cannot be read at all
is an InputError. Parquet needs the `parquet` extra (pyarrow). The page reads and writes the same tables, but Parquet:
`web/app/table` has the twins, and both run tests/vectors/tables.json.
"""

from __future__ import annotations

import codecs
import csv
import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from typedecide import wire_json
from typedecide.columns import Type
from typedecide.errors import InvalidRequestError, UnsupportedError
from typedecide.inputs import InputError
from typedecide.questions import find_surrogate, is_blank

INPUTS, OUTPUTS = (".csv", ".tsv", ".jsonl", ".parquet"), (".csv", ".parquet")

FIELD_CHARACTERS = 1 << 30
"""A text too long for the model is for the model to refuse: csv would give up the file at 131 072 characters."""

GROUP = 10_000
"""Rows that are written to Parquet at a time."""


@dataclass(frozen=True)
class Fault:
    """Why a row cannot be used, and which column is at fault, where it is one."""

    column: str | None
    reason: str


@dataclass(frozen=True)
class Row:
    """A row as it was read: its number, its values by column (what else there was, where it has none), its fault.

    Rows of a table are counted as a spreadsheet counts them, the header being row 1; of JSON lines by line; of Parquet
    from 1.
    """

    number: int
    values: Mapping[str, Any]
    fault: Fault | None = None
    raw: Any = None


class Table(ABC):
    """A table whose texts are in the column `text`, of which the columns `keep` go into the result as well."""

    escaped = False
    """Whether bytes that are not UTF-8 are lone surrogates in its values."""

    def __init__(self, path: Path, text: str, keep: Sequence[str]) -> None:
        self.path, self.text, self.keep = path, text, tuple(keep)
        self.used = tuple(dict.fromkeys((text, *keep)))

    @abstractmethod
    def read(self) -> Iterator[Row]:
        """The rows, as they are."""

    def rows(self) -> Iterator[Row]:
        """The rows, those that cannot be used with their fault."""
        for row in self.read():
            yield row if row.fault else Row(row.number, row.values, self._fault(row), row.raw)

    def _fault(self, row: Row) -> Fault | None:
        if self.text not in row.values:
            return Fault(self.text, "there is no such column")
        for column in self.used:
            value = row.values.get(column)
            if isinstance(value, str) and (at := find_surrogate(value)) is not None:
                byte = f"is not UTF-8: byte 0x{ord(value[at]) & 0xFF:02x}"
                return Fault(column, byte if self.escaped else "holds a lone surrogate")
        state = row.values[self.text]
        if not isinstance(state, str):
            return Fault(self.text, f"is not a text but {to_json(state)[:60]}")
        return Fault(self.text, "the text is blank") if is_blank(state) else None

    def _check_columns(self, columns: Sequence[str]) -> None:
        for column in self.used:
            if (count := columns.count(column)) != 1:
                known = ", ".join(map(repr, columns)) or "none"
                problem = "there is no such column" if count == 0 else f"there are {count} such columns"
                raise InputError(
                    f"{self.path}: column {column!r}: {problem}; the columns are {known}.",
                    path=str(self.path),
                    column=column,
                    columns=[*columns],
                )


def open_table(path: Path, text: str, keep: Sequence[str] = ()) -> Table:
    """The table in a file, by the ending of its name."""
    kinds: Mapping[str, Callable[[Path, str, Sequence[str]], Table]]
    kinds = {".csv": _Separated, ".tsv": _Separated, ".jsonl": _Lines, ".parquet": _Parquet}
    if (kind := kinds.get(path.suffix.lower())) is None:
        raise InputError(f"{path}: its name must end in {', '.join(INPUTS)}.", path=str(path))
    try:
        return kind(path, text, keep)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}.", path=str(path)) from error


_BEHIND = "text follows a closing quote"

_QUOTES = {
    "unexpected end of data": "a quote is never closed",
    **{f"'{separator}' expected after '\"'": _BEHIND for separator in ",;\t"},
}
"""What csv says, in words that do not depend on who reads."""


class _Separated(Table):
    """CSV or TSV, with a header.

    A row in which text follows a closing quote is rejected, where it is one line whose quotes come in pairs: the next
    row begins behind it. Any other fault of quotes hides where that is, so it is one of the file.
    """

    escaped = True

    def __init__(self, path: Path, text: str, keep: Sequence[str]) -> None:
        super().__init__(path, text, keep)
        csv.field_size_limit(FIELD_CHARACTERS)
        self._separator = self._find_separator("\t" if path.suffix.lower() == ".tsv" else ",;\t")
        self._header = self._read_header(self._separator)
        self._check_columns(self._header)

    def read(self) -> Iterator[Row]:
        """The rows but the header and empty lines."""
        rows = self._cells(self._separator)
        next(rows)
        for number, cells in enumerate(rows, start=2):
            if isinstance(cells, str):
                yield Row(number, {}, Fault(None, _BEHIND), cells)
            elif len(cells) == len(self._header):
                yield Row(number, dict(zip(self._header, cells, strict=True)))
            elif cells:
                reason = f"has {len(cells)} cells, the header has {len(self._header)}"
                yield Row(number, {}, Fault(None, reason), cells)

    def _find_separator(self, separators: str) -> str:
        """The first under which the header holds the column of the texts, or else several columns."""
        headers = {}
        for separator in separators:
            # Quotes that are wrong under one separator may be right under another.
            with suppress(InputError):
                headers[separator] = self._read_header(separator)
        named = [separator for separator, header in headers.items() if self.text in header]
        several = [separator for separator, header in headers.items() if len(header) > 1]
        return next(iter((*named, *several)), separators[0])

    def _read_header(self, separator: str) -> list[str]:
        header = next(self._cells(separator), [])
        assert not isinstance(header, str)
        return header

    def _cells(self, separator: str) -> Iterator[list[str] | str]:
        """The cells of each row, the header being the first; of one that is to be rejected its line."""
        # A byte that is not UTF-8 is the fault of its row, and not of the file.
        with self.path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            lines = _Remembering(file)
            # strict: a quote that is never closed is a fault, and not a cell that swallows the rest of the file.
            reader = csv.reader(lines, delimiter=separator, strict=True)
            number = 0
            while True:
                number += 1
                before = reader.line_num
                try:
                    cells = next(reader, None)
                except csv.Error as error:
                    reason = _QUOTES.get(str(error), str(error))
                    one_line = reader.line_num == before + 1 and lines.last.count('"') % 2 == 0
                    if number == 1 or reason != _BEHIND or not one_line:
                        raise InputError(
                            f"{self.path}: row {number}: {reason}.", path=str(self.path), row=number
                        ) from error
                    yield re.sub(r"\r?\n$|\r$", "", lines.last)
                else:
                    if cells is None:
                        return
                    yield cells


class _Remembering:
    """Lines, of which the last one is still known."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self.last = ""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.last = next(self._lines)
        return self.last


class _Lines(Table):
    """JSON lines: an object each."""

    def __init__(self, path: Path, text: str, keep: Sequence[str]) -> None:
        super().__init__(path, text, keep)
        path.open("rb").close()

    def read(self) -> Iterator[Row]:
        """The lines but empty ones."""
        with self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _line(number, line)


def _line(number: int, line: bytes) -> Row:
    line = line.removesuffix(b"\n")
    if number == 1:
        line = line.removeprefix(codecs.BOM_UTF8)  # Windows programs write one.
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        shown = line.decode("utf-8", "backslashreplace")
        return Row(number, {}, Fault(None, f"is not UTF-8: byte 0x{line[error.start]:02x}"), shown)
    try:
        # Not json: what is copied, or rejected, is to stay as it is written.
        found = wire_json.parse(line)
    except InvalidRequestError as error:
        reason = (error.message[0].lower() + error.message[1:]).replace("body", "line").removesuffix(".")
        return Row(number, {}, Fault(None, reason), text)
    if not isinstance(found, dict):
        return Row(number, {}, Fault(None, "not a JSON object"), text)
    return Row(number, found)


class _Parquet(Table):
    """Parquet, of which only the used columns are read."""

    def __init__(self, path: Path, text: str, keep: Sequence[str]) -> None:
        super().__init__(path, text, keep)
        with self._open() as file:
            self._check_columns(file.schema_arrow.names)

    def read(self) -> Iterator[Row]:
        """The rows."""
        with self._open() as file:
            groups = (group.to_pylist() for group in file.iter_batches(columns=[*self.used]))
            for number, values in enumerate(chain.from_iterable(groups), start=1):
                yield Row(number, values)

    @contextmanager
    def _open(self) -> Iterator[Any]:
        pyarrow = arrow()
        try:
            with pyarrow.parquet.ParquetFile(self.path) as file:
                yield file
        except pyarrow.ArrowInvalid as error:
            raise InputError(f"{self.path}: is no Parquet file: {error}.", path=str(self.path)) from error


def arrow() -> Any:
    """The `pyarrow` package with its Parquet part; only Parquet needs it, so it is imported late."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise UnsupportedError(
            "Parquet needs `pip install typedecide[parquet]`.", package="pyarrow"
        ) from error
    return pyarrow


def write_table(path: Path, columns: Mapping[str, Type], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows as CSV or Parquet, by the ending of the name; the file appears when it is complete.

    In CSV numbers are written in full, and what is missing is empty.
    """
    with replacing(path) as fresh:
        if path.suffix.lower() == ".parquet":
            _write_parquet(fresh, columns, rows)
            return
        with fresh.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows([_cell(value) for value in row] for row in rows)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` that takes its place once all went well."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield fresh
        fresh.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}.", path=str(path)) from error
    finally:
        fresh.unlink(missing_ok=True)


def _write_parquet(path: Path, columns: Mapping[str, Type], rows: Iterable[Sequence[Any]]) -> None:
    pyarrow = arrow()
    types = {
        "int": pyarrow.int64(),
        "text": pyarrow.string(),
        "float": pyarrow.float64(),
        "bool": pyarrow.bool_(),
    }
    schema = pyarrow.schema([(name, types[kind]) for name, kind in columns.items()])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        left = iter(rows)
        while group := list(islice(left, GROUP)):
            arrays = [
                pyarrow.array(values, field.type)
                for values, field in zip(zip(*group, strict=True), schema, strict=True)
            ]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))


def _cell(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def as_text(value: Any) -> str | None:
    """A value that is kept: a text as it is, what is missing as nothing, and others as JSON, or as they are shown.

    >>> as_text("a"), as_text(None), as_text([1.5, True])
    ('a', None, '[1.5, true]')
    """
    if value is None or isinstance(value, str):
        return value
    plain = _plain(value)
    return plain if isinstance(plain, str) else wire_json.dump(plain)


def to_json(value: Any) -> str:
    """The JSON text of a value that was read, in ASCII; what JSON has no form for, such as a date, as it is shown.

    >>> to_json({"é": [1.5, None]})
    '{"\\\\u00e9": [1.5, null]}'
    """
    return re.sub(r"[^ -~]", _escape, wire_json.dump(_plain(value)))


def _escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True))


def _plain(value: Any) -> Any:
    """A value with all that JSON has no form for as text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    known = value is None or isinstance(value, str | int | wire_json.Number)
    return value if known or (isinstance(value, float) and math.isfinite(value)) else str(value)
