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
    """

    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    visible: NDArray[np.bool_]
    rows: list[list[int]]


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
    size = -(-used // multiple) * multiple
    ids, positions = np.zeros((2, size), np.int64)
    ids[:used] = [*prefix, *run.ids]
    positions[:used] = [*range(past), *(past + depth for depth in run.depths)]
    visible = np.eye(size, dtype=np.bool_)
    visible[:past, :past] = np.tri(past, dtype=np.bool_)
    for row, parent in enumerate(run.parents, past):
        visible[row] |= visible[past + parent]
        for end in run.joins.get(row - past, ()):
            visible[row] |= visible[past + end]
    return Packed(ids, positions, visible, [[past + row for row in reads] for reads in run.rows])
