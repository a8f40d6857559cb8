"""A bounded store by key: what was used longest ago goes first.

Knows nothing of what it holds. `web/recent.js` is its twin.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

KEPT_QUESTIONS = 1024
"""How many questions an engine remembers something of: scores under blank evidence, priors."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """At most `limit` values, by key.

    >>> recent: Recent[str, list[str]] = Recent(2, list)
    >>> recent["a"].append("kept"); recent["b"], recent["a"], recent["c"]
    ([], ['kept'], [])
    >>> recent["a"], len(recent)
    (['kept'], 2)
    """

    def __init__(self, limit: int, make: Callable[[], V]) -> None:
        """Args: how many values are kept, and what makes the value of a key that is not here."""
        self.limit, self.make = limit, make
        self._kept: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, key: K) -> V:
        """The value of a key, made where there is none; it counts as used now."""
        if key not in self._kept:
            self._kept[key] = self.make()
        self._kept.move_to_end(key)
        if len(self._kept) > self.limit:
            self._kept.popitem(last=False)
        return self._kept[key]

    def clear(self) -> None:
        """Drop all."""
        self._kept.clear()
