"""Where each stored tensor of a bundle lies: named arrays in a few external data files.

Knows bytes and offsets, not what the tensors mean. All graph variants of a weight format share one layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

ALIGNMENT = 64
"""Byte alignment of each tensor; a cache line, and enough for every kernel."""

FILE_LIMIT = 1 << 30
"""Bytes in one data file: a page assembles each in one ArrayBuffer, and browsers cap those near 2 GiB."""

_DTYPES = {"float32": ir.DataType.FLOAT, "uint8": ir.DataType.UINT8}


@dataclass(frozen=True)
class Matrix:
    """How a weight matrix [outputs, inputs] is stored: bits a weight, block length along the inputs (0: no blocks).

    `input_bits` is what each row of its inputs is rounded to, 8 or 16; 32: not at all.
    """

    outputs: int
    inputs: int
    bits: int
    block: int
    input_bits: int = 32

    @property
    def padded_inputs(self) -> int:
        """Inputs rounded up to whole blocks."""
        return -(-self.inputs // self.block) * self.block if self.block else self.inputs


@dataclass(frozen=True)
class Stored:
    """One tensor: data file index, byte offset and length, element type and shape."""

    file: int
    offset: int
    length: int
    dtype: str
    shape: tuple[int, ...]


class Layout:
    """Writes tensors one after another into `{stem}-{n}.bin` files and remembers where they are."""

    def __init__(self, folder: Path, stem: str) -> None:
        self.folder, self.stem = folder, stem
        self.matrices: dict[str, Matrix] = {}
        self._tensors: dict[str, Stored] = {}
        self._sizes: list[int] = []
        self._handle: BinaryIO | None = None

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def files(self) -> Iterator[tuple[str, int]]:
        """(file name, bytes) of each data file."""
        for n, size in enumerate(self._sizes):
            yield self.file_name(n), size

    def file_name(self, n: int) -> str:
        """Name of the n-th data file, as the graphs refer to it."""
        return f"{self.stem}-{n}.bin"

    @property
    def bytes(self) -> int:
        """Size of all data files together."""
        return sum(self._sizes)

    def add(self, name: str, array: NDArray[Any]) -> None:
        """Append a float32 or uint8 array."""
        if name in self._tensors:
            raise ValueError(f"tensor {name!r} is stored twice")
        data = np.ascontiguousarray(array)
        if not self._sizes or self._sizes[-1] + data.nbytes > FILE_LIMIT:
            self._next_file()
        assert self._handle is not None
        offset = -(-self._sizes[-1] // ALIGNMENT) * ALIGNMENT
        self._handle.write(b"\0" * (offset - self._sizes[-1]))
        self._handle.write(data.data)
        self._sizes[-1] = offset + data.nbytes
        file = len(self._sizes) - 1
        self._tensors[name] = Stored(file, offset, data.nbytes, data.dtype.name, data.shape)

    def close(self) -> None:
        """Finish writing."""
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    def external(self, name: str) -> ir.ExternalTensor:
        """The tensor as an ONNX external-data reference."""
        stored = self._tensors[name]
        return ir.ExternalTensor(
            location=self.file_name(stored.file),
            offset=stored.offset,
            length=stored.length,
            dtype=_DTYPES[stored.dtype],
            shape=ir.Shape(stored.shape),
            name=name,
            base_dir=self.folder,
        )

    def _next_file(self) -> None:
        self.close()
        self._sizes.append(0)
        self._handle = (self.folder / self.file_name(len(self._sizes) - 1)).open("wb")
