"""Weight formats: how matrices are stored (fp32, int8, int4). Knows arrays, not graphs or prompts.

Activations are float32 in every format, so that a token's result does not depend on its neighbours and the
reuse of a prefix stays exact.

    fp32  matrices transposed, [in, out].
    int8  blocks of 32 along the inputs: w = scale * (q - 128).
    int4  blocks of 32 along the inputs: w = scale * (q - 8) + offset, a float offset per block as in GGUF's
          Q4_1, whose weights it therefore holds without loss. Embedding tables stay int8.

A pointer readout's weights are small and stay float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pybuild.graph import POINTER, Decoder, weight_names
from pybuild.layout import Layout, Matrix
from pybuild.weights import Weights

BLOCK = 32
"""Weights that share a scale: the block length of the fast WebGPU MatMulNBits path."""


@dataclass(frozen=True)
class Format:
    """A weight format: bits of the matrices and of the embedding tables."""

    name: str
    matrix_bits: int
    table_bits: int
    about: str


FORMATS: Mapping[str, Format] = {
    f.name: f
    for f in (
        Format("fp32", 32, 32, "weights and activations float32: the reference"),
        Format("int8", 8, 8, "weights int8 in blocks of 32, activations float32"),
        Format("int4", 4, 8, "weights 4-bit with scale and offset in blocks of 32, activations float32"),
    )
}
DEFAULT_FORMAT = "int8"


def blocks(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """[out, in] as [out, blocks, 32]; the last block is filled up with zeros."""
    outputs, inputs = matrix.shape
    padded = np.zeros((outputs, -(-inputs // BLOCK) * BLOCK), np.float32)
    padded[:, :inputs] = matrix
    return padded.reshape(outputs, -1, BLOCK)


def quantize_int8(matrix: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """(q uint8 [out, blocks, 32], scale float32 [out, blocks]) with w = scale * (q - 128).

    Of 16 scales, from the block's largest value / 127 to / 112, the one with the least squared error is taken: on
    weights that were on a coarse grid before (Q4_1), that halves the drift.
    """
    grouped = blocks(matrix)
    largest = np.abs(grouped).max(axis=-1)
    scale = _safe(largest / np.float32(127))
    best_q = np.rint(grouped / scale[..., None])
    best_error = np.square(best_q * scale[..., None] - grouped).sum(axis=-1)
    for level in range(126, 111, -1):
        other = _safe(largest / np.float32(level))
        q = np.rint(grouped / other[..., None])
        error = np.square(q * other[..., None] - grouped).sum(axis=-1)
        better = error < best_error
        scale, best_error = np.where(better, other, scale), np.where(better, error, best_error)
        best_q = np.where(better[..., None], q, best_q)
    return (best_q + 128).astype(np.uint8), scale


def _safe(scale: NDArray[np.float32]) -> NDArray[np.float32]:
    """1 in place of 0: a block of zeros."""
    return np.where(scale == 0, np.float32(1), scale)


def quantize_int4(
    matrix: NDArray[np.float32],
) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.float32]]:
    """(q uint8 [out, blocks, 16], scale, offset float32 [out, blocks]) with w = scale * (q - 8) + offset.

    Two weights a byte, the earlier one in the low half.
    """
    grouped = blocks(matrix)
    low = grouped.min(axis=-1)
    scale = (grouped.max(axis=-1) - low) / np.float32(15)
    q = np.clip(np.rint((grouped - low[..., None]) / _safe(scale)[..., None]), 0, 15).astype(np.uint8)
    return q[..., 0::2] | (q[..., 1::2] << 4), scale, low + np.float32(8) * scale


def store(
    decoder: Decoder,
    weights: Weights,
    format_name: str,
    folder: Path,
    context: int,
    advance: Callable[[str], None] = lambda _: None,
) -> Layout:
    """Write all weights of the decoder in a format; `advance` is told each tensor's name.

    Args:
        context: positions of the RoPE tables.
    """
    spec, layout = FORMATS[format_name], Layout(folder, f"weights-{format_name}")
    tables, matrices, vectors = weight_names(decoder)
    for names, add in ((tables, _add_table), (matrices, _add_matrix)):
        for name in names:
            add(layout, name, weights.get(name), spec)
            advance(name)
    for name in vectors:
        vector = weights.get(name)
        layout.add(name, vector + np.float32(1) if decoder.unit_norms and "norm" in name else vector)
        advance(name)
    if POINTER in weights.names():
        _add_matrix(layout, POINTER, weights.get(POINTER), FORMATS["fp32"])
    for stem, rope in decoder.ropes.items():
        for part, table in zip(("cos", "sin"), rope.tables(decoder.head_dim, context), strict=True):
            layout.add(f"{stem}.{part}", table)
    layout.close()
    return layout


def _add_table(layout: Layout, name: str, table: NDArray[np.float32], spec: Format) -> None:
    """An embedding table, gathered by rows."""
    layout.matrices[name] = Matrix(
        table.shape[0], table.shape[1], spec.table_bits, BLOCK if spec.table_bits < 32 else 0
    )
    if spec.table_bits == 32:
        layout.add(name, table)
        return
    if table.shape[1] % BLOCK:
        raise ValueError(f"{name}: {table.shape[1]} columns are no whole number of blocks of {BLOCK}")
    q, scale = quantize_int8(table)
    layout.add(f"{name}.q", q)
    layout.add(f"{name}.scale", scale)


def _add_matrix(layout: Layout, name: str, matrix: NDArray[np.float32], spec: Format) -> None:
    layout.matrices[name] = Matrix(
        matrix.shape[0], matrix.shape[1], spec.matrix_bits, BLOCK if spec.matrix_bits < 32 else 0
    )
    if spec.matrix_bits == 32:
        layout.add(name, matrix.T)
    elif spec.matrix_bits == 8:
        q, scale = quantize_int8(matrix)
        layout.add(f"{name}.q", q)
        layout.add(f"{name}.scale", scale.reshape(-1))
    else:
        if matrix.shape[1] % BLOCK:
            raise ValueError(f"{name}: {matrix.shape[1]} inputs are no whole number of blocks of {BLOCK}")
        q, scale, offset = quantize_int4(matrix)
        layout.add(f"{name}.q", q)
        layout.add(f"{name}.scale", scale.reshape(-1))
        layout.add(f"{name}.offset", offset.T)
