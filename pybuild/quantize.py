"""Weight formats: how matrices are stored (fp32, int8, int4, int8-fast). Knows arrays, not graphs or prompts.

In all but the last activations are float32, so that a token's result does not depend on its neighbours and the
reuse of a prefix stays exact.

    fp32  matrices transposed, [in, out].
    int8  blocks of 32 along the inputs: w = scale * (q - 128).
    int4  blocks of 32 along the inputs: w = scale * (q - 8) + offset, a float offset per block as in GGUF's
          Q4_1, whose weights it therefore holds without loss. Embedding tables stay int8.
    int8-fast  one scale an output, w = scale * (q - 128), [in, out], and inputs rounded too, so that products are
          integer ones, which WebAssembly computes faster. Levels are chosen by what the model's inputs are like
          (`Rounding`). Each token's inputs have a scale of their own, and sums over
          keys are exact, so that here too nothing depends on neighbours. The weights come rotated (rotate.py);
          the inputs of `down_proj`, which no rotation at build time reaches, are 16-bit. Embedding tables stay int8.

A pointer readout's weights are small and stay float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pybuild.graph import POINTER, SHARED_INPUTS, TURN, VALUE_STEP, VALUE_STEPS, Decoder, weight_names
from pybuild.layout import Layout, Matrix
from pybuild.moments import Moments
from pybuild.weights import Weights

BLOCK = 32
"""Weights that share a scale: the block length of the fast WebGPU MatMulNBits path."""

DAMPING = 0.01
"""What is added to the moments' diagonal, of its mean."""

COLUMNS = 64
"""Columns that are rounded before what they leave is taken to all others in one matrix product."""


@dataclass(frozen=True)
class Format:
    """A weight format: bits of the matrices, of the embedding tables, and of the matrices' inputs where these are
    rounded; `down_bits` are those of `down_proj`."""

    name: str
    matrix_bits: int
    table_bits: int
    about: str
    input_bits: int = 32
    down_bits: int = 32

    @property
    def is_rounded(self) -> bool:
        """Whether inputs are rounded."""
        return self.input_bits < 32


FORMATS: Mapping[str, Format] = {
    f.name: f
    for f in (
        Format("fp32", 32, 32, "weights and activations float32: the reference"),
        Format("int8", 8, 8, "weights int8 in blocks of 32, activations float32"),
        Format("int4", 4, 8, "weights 4-bit with scale and offset in blocks of 32, activations float32"),
        Format(
            "int8-fast", 8, 8, "weights and activations int8, a scale for each output and each token", 8, 16
        ),
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


class Rounding:
    """Rounds matrices to (q uint8 [out, in], scale float32 [out]) with w = scale * (q - 128).

    With the moments of a matrix's inputs what rounding one weight does to the outputs is made up for in those that are
    still to be rounded (GPTQ, Frantar et al., 2022, arXiv 2210.17323); that leaves about half of the drift. Without,
    each weight goes to its nearest level.
    """

    def __init__(self, moments: Moments | None = None) -> None:
        self._moments = moments
        self._known: tuple[str, NDArray[np.float32]] | None = None

    def __call__(
        self, name: str, matrix: NDArray[np.float32]
    ) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """The matrix of that name, [out, in]."""
        scale = _safe(np.abs(matrix).max(axis=-1) / np.float32(127))
        if self._moments is None:
            levels = np.rint(matrix / scale[:, None])
        else:
            levels = _compensated(matrix / scale[:, None], self._factor(name, self._moments))
        return (levels + 128).astype(np.uint8), scale

    def _factor(self, name: str, moments: Moments) -> NDArray[np.float32]:
        """The upper Cholesky factor of the inverse of the moments; that of the last name is kept."""
        at, part = name.removesuffix(".weight").rsplit(".", 1)
        source = f"{at}.{SHARED_INPUTS.get(part, part)}.weight"
        if self._known is None or self._known[0] != source:
            found = moments[source]
            # Inputs that never came up, or always together, leave the moments without an inverse.
            damped = found + np.eye(len(found)) * (
                DAMPING * np.trace(found) / len(found) + np.finfo(float).tiny
            )
            factor = np.linalg.cholesky(np.linalg.inv(damped)).T
            self._known = source, factor.astype(np.float32)
        return self._known[1]


def _compensated(weights: NDArray[np.float32], factor: NDArray[np.float32]) -> NDArray[np.float32]:
    """Weights [out, in] in steps, as whole steps from -127 to 127, column by column."""
    left, levels = weights.copy(), np.empty_like(weights)
    for start in range(0, weights.shape[1], COLUMNS):
        stop = min(start + COLUMNS, weights.shape[1])
        errors = np.empty((len(weights), stop - start), np.float32)
        for column in range(start, stop):
            levels[:, column] = np.clip(np.rint(left[:, column]), -127, 127)
            error = (left[:, column] - levels[:, column]) / factor[column, column]
            left[:, column + 1 : stop] -= np.outer(error, factor[column, column + 1 : stop])
            errors[:, column - start] = error
        left[:, stop:] -= errors @ factor[start:stop, stop:]
    return levels


def store(
    decoder: Decoder,
    weights: Weights,
    format_name: str,
    folder: Path,
    context: int,
    advance: Callable[[str], None] = lambda _: None,
    moments: Moments | None = None,
) -> Layout:
    """Write all weights of the decoder in a format; `advance` is told each tensor's name.

    Args:
        context: positions of the RoPE tables.
        moments: of the matrices' inputs, where the format rounds by them.
    """
    spec, layout = FORMATS[format_name], Layout(folder, f"weights-{format_name}")
    tables, matrices, vectors = weight_names(decoder)
    for name in tables:
        _add_table(layout, name, weights.get(name), spec)
        advance(name)
    rounding = Rounding(moments)
    for name in matrices:
        if spec.is_rounded:
            _add_rounded(layout, name, weights.get(name), spec, rounding)
        else:
            _add_matrix(layout, name, weights.get(name), spec)
        advance(name)
    for name in vectors:
        vector = weights.get(name)
        layout.add(name, vector + np.float32(1) if decoder.unit_norms and "norm" in name else vector)
        advance(name)
    for name in (POINTER, TURN):
        if name in weights.names():
            _add_matrix(layout, name, weights.get(name), FORMATS["fp32"])
    if spec.is_rounded:
        for i in range(decoder.layers):
            step = _value_bound(decoder, weights, i) / np.float32(VALUE_STEPS)
            layout.add(f"model.layers.{i}.self_attn.{VALUE_STEP}", np.asarray(step, np.float32))
    for stem, rope in decoder.ropes.items():
        for part, table in zip(("cos", "sin"), rope.tables(decoder.head_dim, context), strict=True):
            layout.add(f"{stem}.{part}", table)
    layout.close()
    return layout


def _value_bound(decoder: Decoder, weights: Weights, layer: int) -> np.float32:
    """The largest that a value of a layer can be: a normed row, before the norm's weights, is as long as the root of
    its size."""
    at = f"model.layers.{layer}"
    norm = weights.get(f"{at}.input_layernorm.weight") + np.float32(decoder.unit_norms)
    reach = np.linalg.norm(weights.get(f"{at}.self_attn.v_proj.weight") * norm, axis=1) * decoder.hidden**0.5
    if decoder.qkv_bias:
        reach = reach + np.abs(weights.get(f"{at}.self_attn.v_proj.bias"))
    return np.float32(reach.max())


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


def _add_rounded(
    layout: Layout, name: str, matrix: NDArray[np.float32], spec: Format, rounding: Rounding
) -> None:
    """A matrix whose inputs are rounded too."""
    bits = spec.down_bits if ".down_proj." in name else spec.input_bits
    layout.matrices[name] = Matrix(matrix.shape[0], matrix.shape[1], spec.matrix_bits, 0, bits)
    q, scale = rounding(name, matrix)
    layout.add(f"{name}.q", q.T)
    layout.add(f"{name}.scale", scale)
