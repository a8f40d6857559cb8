"""Plans which suffixes of a cached prefix run together, and which of their tokens they share.

Knows token ids, no tensors and no questions. `web/packing.js` is its twin; both run tests/vectors/packing.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Suffix:
    """One continuation of the prefix: its token ids, and the places in `ids` that are read (None: the last)."""

    ids: Sequence[int]
    reads: Sequence[int] | None = None


@dataclass(frozen=True)
class Run:
    """Suffixes that run in one pass, as a tree of tokens in pre-order: what they share from their start is once.

    ids: the tokens.
    parents: the index of each token's parent; -1 for a root, which follows the prefix itself.
    depths: 0 for a root; a token's position is the length of the prefix plus its depth.
    rows: for each suffix of the run, the index in `ids` of each of its reads.
    suffixes: the suffixes of the run, as indices into the list that was planned.
    saved: how many tokens sharing leaves out.
    """

    ids: list[int]
    parents: list[int]
    depths: list[int]
    rows: list[list[int]]
    suffixes: list[int]
    saved: int


def plan_runs(suffixes: Sequence[Suffix], budget: int) -> list[Run]:
    """Split `suffixes`, in order, into runs of at most `budget` tokens, shared tokens counted once.

    A suffix joins the current run while the tokens that it adds fit; otherwise it starts the next one. A suffix
    that is longer than the budget has a run of its own.

    >>> plan_runs([Suffix([5, 6, 7]), Suffix([5, 6, 8])], 4)
    [Run(ids=[5, 6, 7, 8], parents=[-1, 0, 1, 1], depths=[0, 1, 2, 2], rows=[[2], [3]], suffixes=[0, 1], saved=2)]

    Raises:
        ValueError: a budget below 1, a suffix without ids or reads, or a read outside of its suffix.
    """
    _check_plan(suffixes, budget)
    runs: list[Run] = []
    tree = _Tree()
    for index, suffix in enumerate(suffixes):
        path = tree.match(suffix.ids)
        if tree.suffixes and tree.size + len(suffix.ids) - len(path) > budget:
            runs.append(tree.run())
            tree, path = _Tree(), []
        tree.add(index, suffix, path)
    return [*runs, tree.run()] if tree.suffixes else runs


def ancestors(parents: Sequence[int]) -> list[list[int]]:
    """The ancestors of each token, the root first: what it sees besides the prefix and itself.

    >>> ancestors([-1, 0, 1, 1])
    [[], [0], [0, 1], [0, 1]]

    Raises:
        ValueError: a parent that does not stand before its child.
    """
    _check_parents(parents)
    seen: list[list[int]] = []
    for parent in parents:
        seen.append([] if parent == -1 else [*seen[parent], parent])
    return seen


class _Tree:
    """The tokens of one run. Nodes are numbered as they come; node 0 is the prefix and holds no token."""

    def __init__(self) -> None:
        self.ids = [-1]
        self.parents = [-1]
        # Nearly every token has one child: only those that branch pay for a dict. 0 is no child.
        self.first_child = [0]
        self.more_children: dict[int, dict[int, int]] = {}
        self.suffixes: list[int] = []
        self.reads: list[list[int]] = []
        self.tokens = 0

    @property
    def size(self) -> int:
        """Tokens to run."""
        return len(self.ids) - 1

    def match(self, ids: Sequence[int]) -> list[int]:
        """The nodes of the longest start of `ids` that is here."""
        path: list[int] = []
        node = 0
        for token in ids:
            node = self._child(node, token)
            if node == 0:
                break
            path.append(node)
        return path

    def add(self, index: int, suffix: Suffix, path: list[int]) -> None:
        """Add suffix number `index`, of which `path` is here already."""
        node = path[-1] if path else 0
        for token in suffix.ids[len(path) :]:
            node = self._grow(node, token)
            path.append(node)
        self.suffixes.append(index)
        self.reads.append([path[read] for read in _reads(suffix)])
        self.tokens += len(suffix.ids)

    def run(self) -> Run:
        """The finished run: nodes become rows, in pre-order."""
        order = self._preorder()
        row_of = [-1] * len(order)
        depth_of = [-1] * len(order)
        for row, node in enumerate(order[1:]):
            row_of[node] = row
            depth_of[node] = depth_of[self.parents[node]] + 1
        nodes = order[1:]
        return Run(
            ids=[self.ids[node] for node in nodes],
            parents=[row_of[self.parents[node]] for node in nodes],
            depths=[depth_of[node] for node in nodes],
            rows=[[row_of[node] for node in reads] for reads in self.reads],
            suffixes=self.suffixes,
            saved=self.tokens - self.size,
        )

    def _child(self, node: int, token: int) -> int:
        first = self.first_child[node]
        if first == 0 or self.ids[first] == token:
            return first
        more = self.more_children.get(node)
        return 0 if more is None else more.get(token, 0)

    def _grow(self, parent: int, token: int) -> int:
        node = len(self.ids)
        self.ids.append(token)
        self.parents.append(parent)
        self.first_child.append(0)
        if self.first_child[parent] == 0:
            self.first_child[parent] = node
        else:
            self.more_children.setdefault(parent, {})[token] = node
        return node

    def _preorder(self) -> list[int]:
        """All nodes, each before its children; children in the order in which they came."""
        order: list[int] = []
        stack = [0]
        while stack:
            node = stack.pop()
            order.append(node)
            if node in self.more_children:
                stack.extend(reversed(self.more_children[node].values()))
            if self.first_child[node] != 0:
                stack.append(self.first_child[node])
        return order


def _reads(suffix: Suffix) -> Sequence[int]:
    return [len(suffix.ids) - 1] if suffix.reads is None else suffix.reads


def _check_plan(suffixes: Sequence[Suffix], budget: int) -> None:
    if not isinstance(budget, int) or budget < 1:
        raise ValueError(f"The budget must be a whole number from 1, not {budget}.")
    for index, suffix in enumerate(suffixes):
        count = len(suffix.ids)
        if count == 0:
            raise ValueError(f"Suffix {index} has no ids.")
        reads = _reads(suffix)
        if len(reads) == 0:
            raise ValueError(f"Suffix {index} has no reads.")
        for read in reads:
            if not 0 <= read < count:
                raise ValueError(f"Suffix {index} has {count} ids, none at its read {read}.")


def _check_parents(parents: Sequence[int]) -> None:
    for index, parent in enumerate(parents):
        if not -1 <= parent < index:
            raise ValueError(f"The parent of token {index} must be -1 or a token before it, not {parent}.")
