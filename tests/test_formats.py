"""Weight formats: what is stored is what was meant, and its cost is measured."""

from __future__ import annotations

import numpy as np
import pytest

from pybuild.drift import drift
from pybuild.quantize import BLOCK, quantize_int4, quantize_int8

RNG = np.random.default_rng(7)


def expand_int4(q: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """The weights that a MatMulNBits with zero point 8, and the offsets, stand for."""
    levels = np.stack([q & 15, q >> 4], axis=-1).reshape(*q.shape[:2], BLOCK).astype(np.float32)
    return ((levels - 8) * scale[..., None] + offset[..., None]).reshape(q.shape[0], -1)


def test_int8_is_within_half_a_step() -> None:
    matrix = RNG.normal(size=(48, 96)).astype(np.float32)
    q, scale = quantize_int8(matrix)
    assert q.dtype == np.uint8 and q.shape == (48, 3, BLOCK) and scale.shape == (48, 3)
    found = ((q.astype(np.float32) - 128) * scale[..., None]).reshape(48, 96)
    largest = np.abs(matrix.reshape(48, 3, BLOCK)).max(-1)
    assert (np.abs(found - matrix).reshape(48, 3, BLOCK).max(-1) <= largest / 112 / 2 * 1.001).all()


def test_int8_takes_the_scale_with_the_least_error() -> None:
    grid = RNG.integers(-8, 8, size=(64, 32)).astype(np.float32) * np.float32(0.1)
    q, scale = quantize_int8(grid)
    found = ((q.astype(np.float32) - 128) * scale[..., None]).reshape(64, 32)
    plain_scale = np.abs(grid).max(-1, keepdims=True) / 127
    plain = np.rint(grid / plain_scale) * plain_scale
    assert np.square(found - grid).sum() < 0.5 * np.square(plain - grid).sum()


def test_int8_table_of_q8_0_is_lossless() -> None:
    scale = np.float32(0.0123)
    levels = RNG.integers(-127, 128, size=(10, 64)).astype(np.float32)
    levels[:, 0] = levels[:, 32] = 127
    q, found = quantize_int8(levels * scale)
    expanded = ((q.astype(np.float32) - 128) * found[..., None]).reshape(10, 64)
    assert np.abs(expanded - levels * scale).max() <= 1e-6


def test_int4_holds_q4_1_without_loss() -> None:
    levels = RNG.integers(0, 16, size=(40, 3, BLOCK))
    levels[..., 3], levels[..., 9] = 0, 15
    d, m = RNG.uniform(0.01, 0.2, (40, 3, 1)), RNG.uniform(-1, 0, (40, 3, 1))
    matrix = (levels * d + m).reshape(40, 96).astype(np.float32)
    found = expand_int4(*quantize_int4(matrix))
    assert np.abs(found - matrix).max() <= 1e-6


@pytest.mark.parametrize("value", (0.0, 0.25))
def test_constant_blocks(value: float) -> None:
    matrix = np.full((4, 64), value, np.float32)
    q, scale = quantize_int8(matrix)
    assert np.allclose((q.astype(np.float32) - 128) * scale[..., None], value)
    assert np.allclose(expand_int4(*quantize_int4(matrix)), value)


def test_drift_counts_what_changes() -> None:
    found = drift([[0.6, 0.4], [0.9, 0.1]], [[0.45, 0.55], [0.9, 0.1]])
    assert found == {"prompts": 2, "max": 0.15, "mean": 0.075, "flips": 1, "large": True}
