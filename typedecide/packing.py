"""Plans which suffixes of a cached prefix run together, and which of their tokens they share.

Knows token ids, no tensors and no questions. `web/packing.js` is its twin; both run tests/vectors/packing.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Joins = Mapping[int, Sequence[int]]
"""For a token, the tokens that it sees besides its parent, with all that they see."""

NO_JOINS: Joins = {}


@dataclass(frozen=True)
class Suffix:
    """One continuation of the prefix: its token ids, and the places in `ids` that are read (None: the last).

    With `branches` it is a joined one: `ids` is the stem, each branch follows the stem and sees no other branch, and
    `tail` follows them all and sees them all. Read are the last token of each branch, and that of the tail. Branches
    are a set: what they share from their start is there once, and their order changes nothing.
    """

    ids: Sequence[int]
    reads: Sequence[int] | None = None
    branches: Sequence[Sequence[int]] = ()
    tail: Sequence[int] = ()

    @property
    def length(self) -> int:
        """Tokens, where nothing is shared."""
        return len(self.ids) + sum(map(len, self.branches)) + len(self.tail)

    @property
    def depth(self) -> int:
        """Positions that it takes up behind the prefix."""
        return len(self.ids) + max(map(len, self.branches), default=0) + len(self.tail)


@dataclass(frozen=True)
class Run:
    """Suffixes that run in one pass, as a tree of tokens in pre-order: what they share from their start is once.

    ids: the tokens.
    parents: the index of each token's parent; -1 for a root, which follows the prefix itself.
    depths: 0 for a root; a token's position is the length of the prefix plus its depth.
    rows: for each suffix of the run, the index in `ids` of each of its reads.
    suffixes: the suffixes of the run, as indices into the list that was planned.
    saved: how many tokens sharing leaves out.
    joins: for the first token of each tail, the last tokens of the branches that it sees besides its parent, the
        stem's last token. All of them stand before it.
    """

    ids: list[int]
    parents: list[int]
    depths: list[int]
    rows: list[list[int]]
    suffixes: list[int]
    saved: int
    joins: dict[int, list[int]] = field(default_factory=dict)


def plan_runs(suffixes: Sequence[Suffix], budget: int) -> list[Run]:
    """Split `suffixes`, in order, into runs of at most `budget` tokens, shared tokens counted once.

    Runs are filled from the last suffix back: a suffix joins the run of those behind it while the tokens that it adds
    fit; otherwise it ends the run before. So the first run is what is left over, and its results are there early. A
    suffix that is longer than the budget has a run of its own. Tails are never shared.

    >>> plan_runs([Suffix([5, 6, 7]), Suffix([5, 6, 8])], 4)
    [Run(ids=[5, 6, 7, 8], parents=[-1, 0, 1, 1], depths=[0, 1, 2, 2], rows=[[2], [3]], suffixes=[0, 1], saved=2, \
joins={})]
    >>> plan_runs([Suffix([5], branches=[[6, 7], [6, 8, 9]], tail=[4])], 9)
    [Run(ids=[5, 6, 7, 8, 9, 4], parents=[-1, 0, 1, 1, 3, 0], depths=[0, 1, 2, 2, 3, 4], rows=[[2, 4, 5]], \
suffixes=[0], saved=1, joins={5: [2, 4]})]

    Raises:
        ValueError: a budget below 1, a suffix without ids or reads, a read outside of its suffix, an empty branch,
            branches with reads or without a tail, or a tail without branches.
    """
    _check_plan(suffixes, budget)
    starts = _starts(suffixes, budget)
    return [_tree_of(suffixes, range(*ends)).run() for ends in pairwise([*starts, len(suffixes)])]


def _starts(suffixes: Sequence[Suffix], budget: int) -> list[int]:
    """The first suffix of each run."""
    if sum(suffix.length for suffix in suffixes) <= budget:
        return [0][: len(suffixes)]
    starts = [0]
    tree = _Tree()
    for index in reversed(range(len(suffixes))):
        tree.add(index, suffixes[index])
        if tree.size > budget and len(tree.suffixes) > 1:
            starts.insert(1, index + 1)
            tree = _tree_of(suffixes, range(index, index + 1))
    return starts


def _tree_of(suffixes: Sequence[Suffix], indices: range) -> _Tree:
    tree = _Tree()
    for index in indices:
        tree.add(index, suffixes[index])
    return tree


def ancestors(parents: Sequence[int], joins: Joins = NO_JOINS) -> list[list[int]]:
    """What each token sees besides the prefix and itself, in ascending order: its ancestors, and what it joins.

    >>> ancestors([-1, 0, 1, 1])
    [[], [0], [0, 1], [0, 1]]
    >>> ancestors([-1, 0, 0, 0], {3: [1, 2]})
    [[], [0], [0], [0, 1, 2]]

    Raises:
        ValueError: a parent, or a token that is joined, that does not stand before the token.
    """
    check_tree(parents, joins)
    seen: list[list[int]] = []
    for index, parent in enumerate(parents):
        own = [] if parent == -1 else [*seen[parent], parent]
        joined = {row for end in joins.get(index, ()) for row in (*seen[end], end)}
        seen.append(sorted(joined.union(own)) if joined else own)
    return seen


class _Tree:
    """The tokens of one run. Nodes are numbered as they come; node 0 is the prefix and holds no token."""

    def __init__(self) -> None:
        self.ids = [-1]
        self.parents = [-1]
        # Nearly every token has one child: only those that branch pay for a dict. 0 is no child.
        self.first_child = [0]
        self.more_children: dict[int, dict[int, int]] = {}
        # Tails hang at the ends of their stems, where no suffix can find them to share them.
        self.tails: dict[int, list[int]] = {}
        self.joins: dict[int, list[int]] = {}
        self.suffixes: list[Suffix] = []
        self.indices: list[int] = []
        self.reads: list[list[int]] = []

    @property
    def size(self) -> int:
        """Tokens to run."""
        return len(self.ids) - 1

    def add(self, index: int, suffix: Suffix) -> None:
        """Add suffix number `index`."""
        path = self._walk(0, suffix.ids)
        reads = [path[read] for read in _reads(suffix)]
        if suffix.branches:
            reads = self._join(path[-1], suffix)
        self.suffixes.append(suffix)
        self.indices.append(index)
        self.reads.append(reads)

    def run(self) -> Run:
        """The finished run: nodes become rows, in pre-order."""
        nodes = self._preorder()[1:]
        row_of = {0: -1}
        depth_of = {0: -1}
        joins = {}
        for row, node in enumerate(nodes):
            row_of[node] = row
            before = [self.parents[node], *self.joins.get(node, ())]
            depth_of[node] = max(depth_of[one] for one in before) + 1
            if len(before) > 1:
                joins[row] = [row_of[end] for end in before[1:]]
        return Run(
            ids=[self.ids[node] for node in nodes],
            parents=[row_of[self.parents[node]] for node in nodes],
            depths=[depth_of[node] for node in nodes],
            rows=[[row_of[node] for node in reads] for reads in self.reads],
            suffixes=self.indices,
            saved=sum(suffix.length for suffix in self.suffixes) - self.size,
            joins=joins,
        )

    def _join(self, stem: int, suffix: Suffix) -> list[int]:
        """Add the branches and the tail of a suffix behind its stem's last node; the nodes that are read."""
        # In the order of their ids: then the order in which they are given changes nothing, not even the last bit.
        end_of = {ids: self._walk(stem, ids)[-1] for ids in sorted(map(tuple, suffix.branches))}
        first = self._add(stem, suffix.tail[0])
        self.tails.setdefault(stem, []).append(first)
        self.joins[first] = list(end_of.values())
        last = [first, *self._walk(first, suffix.tail[1:])][-1]
        return [*(end_of[tuple(ids)] for ids in suffix.branches), last]

    def _walk(self, node: int, ids: Sequence[int]) -> list[int]:
        """The nodes of `ids` behind a node; those that are not here yet are added."""
        path = []
        for token in ids:
            node = self._child(node, token) or self._grow(node, token)
            path.append(node)
        return path

    def _child(self, node: int, token: int) -> int:
        first = self.first_child[node]
        if first == 0 or self.ids[first] == token:
            return first
        more = self.more_children.get(node)
        return 0 if more is None else more.get(token, 0)

    def _grow(self, parent: int, token: int) -> int:
        node = self._add(parent, token)
        if self.first_child[parent] == 0:
            self.first_child[parent] = node
        else:
            self.more_children.setdefault(parent, {})[token] = node
        return node

    def _add(self, parent: int, token: int) -> int:
        self.ids.append(token)
        self.parents.append(parent)
        self.first_child.append(0)
        return len(self.ids) - 1

    def _preorder(self) -> list[int]:
        """All nodes, each before its children; children in the order in which they came, tails after them."""
        order: list[int] = []
        stack = [0]
        while stack:
            node = stack.pop()
            if node >= len(self.ids):
                continue
            order.append(node)
            if node in self.tails:
                stack.extend(reversed(self.tails[node]))
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
        _check_joined(index, suffix)


def _check_joined(index: int, suffix: Suffix) -> None:
    if len(suffix.branches) == 0 and len(suffix.tail) == 0:
        return
    if len(suffix.branches) == 0:
        raise ValueError(f"Suffix {index} has a tail but no branches.")
    if len(suffix.tail) == 0:
        raise ValueError(f"Suffix {index} has branches but no tail.")
    if suffix.reads is not None:
        raise ValueError(f"Suffix {index} has branches, which say what is read, and reads.")
    for at, branch in enumerate(suffix.branches):
        if len(branch) == 0:
            raise ValueError(f"Branch {at} of suffix {index} has no ids.")


def check_tree(parents: Sequence[int], joins: Joins) -> None:
    """ValueError for a parent, or a token that is joined, that does not stand before the token."""
    for index, parent in enumerate(parents):
        if not -1 <= parent < index:
            raise ValueError(f"The parent of token {index} must be -1 or a token before it, not {parent}.")
    for index, ends in joins.items():
        for end in ends:
            if not 0 <= end < index < len(parents):
                raise ValueError(
                    f"Token {index} of {len(parents)} can join tokens before it only, not {end}."
                )
