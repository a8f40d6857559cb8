"""Prefilled states, kept while memory allows: a second round of questions on the same text pays no prefill.

Knows texts and how much memory each takes, not what is kept. The least recently used state goes first.
`web/states.js` is its twin.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

DEFAULT_BYTES = 256 * 2**20
"""Memory for kept states where the caller names none."""


class Kept(Protocol):
    """What a state needs to say of itself."""

    @property
    def text(self) -> str:
        """The text that it is the state of."""
        ...

    @property
    def bytes(self) -> int:
        """Memory that it takes."""
        ...


S = TypeVar("S", bound=Kept)


class States(Generic[S]):
    """States by text, at most `limit` bytes together; the one added last always stays."""

    def __init__(self, limit: int = DEFAULT_BYTES) -> None:
        self.limit = limit
        self._kept: OrderedDict[str, S] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def bytes(self) -> int:
        """Memory taken by all."""
        return sum(state.bytes for state in self._kept.values())

    def get(self, text: str) -> S | None:
        """The state of a text, which counts as used now."""
        if text in self._kept:
            self._kept.move_to_end(text)
        return self._kept.get(text)

    def add(self, state: S) -> None:
        """Keep a state, and drop others until all fit."""
        self._kept[state.text] = state
        while self.bytes > self.limit and len(self._kept) > 1:
            self._kept.popitem(last=False)

    def remove(self, state: S) -> None:
        """Drop one, where it is kept."""
        if self._kept.get(state.text) is state:
            del self._kept[state.text]

    def list(self) -> list[S]:
        """All states, the least recently used one first."""
        return [*self._kept.values()]

    def clear(self) -> None:
        """Drop all."""
        self._kept.clear()
