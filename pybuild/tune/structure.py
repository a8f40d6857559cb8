"""A text and all its questions as one sequence of tokens, with the positions and the mask that inference has.

Knows token ids; no questions, and no PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from typedecide import packing


@dataclass(frozen=True)
class Packed:
    """One sequence of S tokens.

    ids: int64 [S].
    positions: int64 [S].
    visible: bool [S, S]; row t says which tokens token t sees.
    rows: for each suffix, the places of its reads.
    past: how many of the tokens are the prefix.
    used: how many are the prefix and the suffixes; those behind them fill up.
    """

    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    visible: NDArray[np.bool_]
    rows: list[list[int]]
    past: int
    used: int


def pack(prefix: Sequence[int], suffixes: Sequence[packing.Suffix], multiple: int = 1) -> Packed:
    """The prefix, and behind it all suffixes as a tree, as `NativeModel.score` runs them.

    Args:
        prefix: the tokens that all suffixes follow.
        suffixes: what follows them.
        multiple: fill up with tokens that nothing sees to a multiple of this many.
    """
    tokens = sum(suffix.length for suffix in suffixes)
    (run,) = packing.plan_runs(suffixes, tokens)
    past, used = len(prefix), len(prefix) + len(run.ids)
    ids, positions, visible = _blank(used, multiple)
    ids[:used] = [*prefix, *run.ids]
    positions[:used] = [*range(past), *(past + depth for depth in run.depths)]
    visible[:past, :past] = np.tri(past, dtype=np.bool_)
    for row, parent in enumerate(run.parents, past):
        visible[row] |= visible[past + parent]
        for end in run.joins.get(row - past, ()):
            visible[row] |= visible[past + end]
    rows = [[past + row for row in reads] for reads in run.rows]
    return Packed(ids, positions, visible, rows, past, used)


def above(packed: Packed, anchor: int, multiple: int = 1) -> tuple[NDArray[np.int64], Packed]:
    """What the upper layers of a shallow model see: the first `anchor` tokens of the prefix, and all suffixes.

    Returns:
        The places of these tokens in `packed`, and the sequence that they are, at their own positions.

    Raises:
        ValueError: the prefix is shorter than the anchor.
    """
    if not 0 <= anchor <= packed.past:
        raise ValueError(f"An anchor of {anchor} tokens is not within a prefix of {packed.past}.")
    places = np.r_[:anchor, packed.past : packed.used]
    used = len(places)
    ids, positions, visible = _blank(used, multiple)
    ids[:used], positions[:used] = packed.ids[places], packed.positions[places]
    visible[:used, :used] = packed.visible[np.ix_(places, places)]
    rows = [[row - packed.past + anchor for row in reads] for reads in packed.rows]
    return places, Packed(ids, positions, visible, rows, anchor, used)


def _blank(used: int, multiple: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Ids, positions and mask of tokens that see themselves only, at least `used` of them."""
    size = -(-used // multiple) * multiple
    return np.zeros(size, np.int64), np.zeros(size, np.int64), np.eye(size, dtype=np.bool_)
