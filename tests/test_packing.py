"""typedecide.packing and web/packing.js: shared tokens, runs, and what each token sees."""

from __future__ import annotations

import dataclasses
import doctest
import itertools
import json
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pybuild import npm
from tests import make_vectors
from typedecide import packing
from typedecide.packing import Run, Suffix, ancestors, plan_runs

ROOT = Path(__file__).parent.parent
VECTORS = json.loads((make_vectors.FOLDER / "packing.json").read_text("ascii"))

Start = tuple[int, ...]


def starts(ids: list[int]) -> list[Start]:
    """Every start of `ids`: the tokens of a tree are the different starts of its suffixes."""
    return [tuple(ids[:end]) for end in range(1, len(ids) + 1)]


def path_to(run: Run, row: int) -> Start:
    """The token ids from the root to `row`; a tail's go through its stem."""
    path: list[int] = []
    while row != -1:
        path.append(run.ids[row])
        row = run.parents[row]
    return tuple(reversed(path))


def tree_starts(suffix: Suffix) -> set[Start]:
    """The starts of a suffix that others may share: all but those of a tail."""
    paths = [[*suffix.ids, *branch] for branch in suffix.branches] or [list(suffix.ids)]
    return {start for path in paths for start in starts(path)}


def reference(suffixes: list[Suffix]) -> list[tuple[Start, int | None]]:
    """The tree's tokens in pre-order, as starts, each with the suffix (of those given) whose tail it belongs to.

    By plain recursion over nested dicts. Branches are a set; this one is in the order of their ids.
    """
    tree: dict[int, Any] = {}
    for suffix in suffixes:
        for branch in sorted(map(list, suffix.branches)) or [[]]:
            node = tree
            for token in [*suffix.ids, *branch]:
                node = node.setdefault(token, {})

    def walk(node: dict[int, Any], path: Start) -> list[tuple[Start, int | None]]:
        found: list[tuple[Start, int | None]] = []
        for token, below in node.items():
            found += [((*path, token), None), *walk(below, (*path, token))]
        for owner, suffix in enumerate(suffixes):
            if suffix.branches and tuple(suffix.ids) == path:
                found += [((*path, *start), owner) for start in starts(list(suffix.tail))]
        return found

    return walk(tree, ())


def visible(suffixes: list[Suffix]) -> list[list[bool]]:
    """What each token of the reference tree sees, by asking for each pair what the two are to each other."""
    tokens = reference(suffixes)

    def sees(token: tuple[Start, int | None], other: tuple[Start, int | None]) -> bool:
        (path, owner), (seen, others) = token, other
        before = path[: len(seen)] == seen
        if owner is None:
            return others is None and before
        suffix = suffixes[owner]
        if others is None:
            return seen in tree_starts(suffix)
        return others == owner and before

    return [[sees(token, other) for other in tokens] for token in tokens]


def position(suffixes: list[Suffix], token: tuple[Start, int | None]) -> int:
    """The place of a token behind the prefix."""
    path, owner = token
    if owner is None:
        return len(path) - 1
    return len(path) - 1 + max(len(branch) for branch in suffixes[owner].branches)


def assert_plan(suffixes: list[Suffix], budget: int, runs: list[Run]) -> None:
    """All that a plan promises, from its definition."""
    assert [index for run in runs for index in run.suffixes] == list(range(len(suffixes)))
    for run in runs:
        group = [suffixes[index] for index in run.suffixes]
        tokens = reference(group)
        assert len(run.ids) <= budget or len(group) == 1
        assert [path_to(run, row) for row in range(len(run.ids))] == [path for path, _ in tokens]
        assert run.depths == [position(group, token) for token in tokens]
        assert len(run.rows) == len(group)
        for owner, (suffix, rows) in enumerate(zip(group, run.rows, strict=True)):
            assert [tokens[row] for row in rows] == list(wanted_reads(owner, suffix))
    assert sum(run.saved + len(run.ids) for run in runs) == sum(suffix.length for suffix in suffixes)
    for run, following in itertools.pairwise(runs):
        assert (
            len(reference([suffixes[index] for index in [run.suffixes[-1], *following.suffixes]])) > budget
        ), "a run starts only where the suffix before does not fit"


def assert_visibility(suffixes: list[Suffix], runs: list[Run]) -> None:
    """Every token sees what it should, asked pair by pair."""
    for run in runs:
        own = [[*seen, row] for row, seen in enumerate(ancestors(run.parents, run.joins))]
        wanted = visible([suffixes[index] for index in run.suffixes])
        assert own == [[i for i, seen in enumerate(row) if seen] for row in wanted]


def wanted_reads(owner: int, suffix: Suffix) -> Iterator[tuple[Start, int | None]]:
    """The tokens that are read of a suffix, as the reference has them."""
    if suffix.branches:
        yield from ((tuple([*suffix.ids, *branch]), None) for branch in suffix.branches)
        yield (tuple([*suffix.ids, *suffix.tail]), owner)
    else:
        reads = [len(suffix.ids) - 1] if suffix.reads is None else suffix.reads
        yield from ((tuple(suffix.ids[: read + 1]), None) for read in reads)


def random_case(rng: random.Random) -> tuple[list[Suffix], int]:
    ids = make_vectors.random_suffixes(rng)
    suffixes = [Suffix(**make_vectors.with_reads(rng, item)) for item in ids]
    suffixes += [Suffix(**make_vectors.random_joined(rng)) for _ in range(rng.randrange(4))]
    rng.shuffle(suffixes)
    return suffixes, rng.choice([1, 3, 8, 20, 50, 10_000])


def test_examples_in_docstrings() -> None:
    assert doctest.testmod(packing) == (0, 4)


def test_plans_by_hand() -> None:
    a, b, c = Suffix([5, 6, 7]), Suffix([8]), Suffix([5, 6, 9], reads=[1, 2])
    assert plan_runs([a, b, c], 5) == [
        Run([5, 6, 7, 9, 8], [-1, 0, 1, 1, -1], [0, 1, 2, 2, 0], [[2], [4], [1, 3]], [0, 1, 2], 2)
    ]
    assert plan_runs([a, b, c], 4) == [
        Run([5, 6, 7], [-1, 0, 1], [0, 1, 2], [[2]], [0], 0),
        Run([8, 5, 6, 9], [-1, -1, 1, 2], [0, 0, 1, 2], [[0], [2, 3]], [1, 2], 0),
    ]


def test_a_joined_suffix_by_hand() -> None:
    joined = Suffix([5], branches=[[6, 7], [6, 8, 9]], tail=[4, 4])
    (run,) = plan_runs([joined, Suffix([5, 6])], 9)
    assert run == Run(
        [5, 6, 7, 8, 9, 4, 4],
        [-1, 0, 1, 1, 3, 0, 5],
        [0, 1, 2, 2, 3, 4, 5],
        [[2, 4, 6], [1]],
        [0, 1],
        3,
        {5: [2, 4]},
    )
    assert ancestors(run.parents, run.joins)[5:] == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5]]


def test_the_order_of_branches_changes_only_the_order_of_reads() -> None:
    rng = random.Random(33)
    for _ in range(100):
        joined = Suffix(**make_vectors.random_joined(rng))
        order = rng.sample(range(len(joined.branches)), len(joined.branches))
        moved = dataclasses.replace(joined, branches=[joined.branches[i] for i in order])
        (run,), (again,) = plan_runs([joined], 99), plan_runs([moved], 99)
        *ends, last = run.rows[0]
        assert again == dataclasses.replace(run, rows=[[*(ends[i] for i in order), last]])


def test_a_suffix_longer_than_the_budget_runs_alone() -> None:
    short, long = Suffix([5]), Suffix([5, 6, 7])
    assert [run.suffixes for run in plan_runs([short, long, long, short, short], 2)] == [
        [0],
        [1],
        [2],
        [3, 4],
    ]


def test_plans_keep_every_promise() -> None:
    rng = random.Random(31)
    several = shared = 0
    for _ in range(400):
        suffixes, budget = random_case(rng)
        runs = plan_runs(suffixes, budget)
        assert_plan(suffixes, budget, runs)
        assert_visibility(suffixes, runs)
        several += len(runs) > 1
        shared += any(run.saved > 0 for run in runs)
    assert several > 100 and shared > 100


@pytest.mark.parametrize("count", [2, 3, 7, 26, 60])
def test_all_cyclic_orders_of_a_question(count: int) -> None:
    rng = random.Random(count)
    options = [rng.choices(range(1000, 1100), k=rng.randrange(1, 6)) for _ in range(count)]
    suffixes = [Suffix(ids) for ids in make_vectors.shift_suffixes([7, 8, 9], options, [10])]
    for budget in (50, 500, 10_000_000):
        runs = plan_runs(suffixes, budget)
        assert_plan(suffixes, budget, runs)
    assert len(runs) == 1 and runs[0].saved >= 4 * (count - 1)


def test_planted_faults_are_caught() -> None:
    suffixes = [Suffix([5, 6, 7]), Suffix([5, 6, 8]), Suffix([9]), Suffix([4] * 6)]
    first, second = plan_runs(suffixes, 6)
    assert_plan(suffixes, 6, [first, second])
    faults: list[list[Run]] = [
        [dataclasses.replace(first, parents=[-1, 0, 1, 2, -1]), second],
        [dataclasses.replace(first, ids=[5, 6, 7, 7, 9]), second],
        [dataclasses.replace(first, depths=[0, 1, 2, 3, 0]), second],
        [dataclasses.replace(first, rows=[[3], [2], [4]]), second],
        [dataclasses.replace(first, rows=[[2], [3]]), second],
        [dataclasses.replace(first, saved=3), second],
        [first],
        [second, first],
        plan_runs(suffixes, 11),
        plan_runs(suffixes, 4),
    ]
    for runs in faults:
        with pytest.raises(AssertionError):
            assert_plan(suffixes, 6, runs)


def test_planted_faults_in_joins_are_caught() -> None:
    joined = Suffix([5], branches=[[6, 7], [6, 8, 9]], tail=[4, 4])
    suffixes = [joined, Suffix([5, 3])]
    (run,) = plan_runs(suffixes, 99)
    assert_plan(suffixes, 99, [run])
    assert_visibility(suffixes, [run])
    assert (run.ids, run.joins) == ([5, 6, 7, 8, 9, 3, 4, 4], {6: [2, 4]})
    faults: list[dict[str, Any]] = [
        {"joins": {}},
        {"joins": {6: [2]}},
        {"joins": {6: [2, 3]}},
        {"joins": {6: [2, 4, 5]}},
        {"joins": {**run.joins, 5: [2]}},
        {"parents": [*run.parents[:6], -1, 6]},
        {"depths": [*run.depths[:6], 1, 2]},
        {"depths": [*run.depths[:6], 5, 6]},
        {"rows": [[4, 2, 7], [5]]},
        {"rows": [[2, 4, 6], [5]]},
    ]
    for fault in faults:
        with pytest.raises(AssertionError):
            assert_plan(suffixes, 99, [dataclasses.replace(run, **fault)])
            assert_visibility(suffixes, [dataclasses.replace(run, **fault)])


def test_ancestors_are_the_path_from_the_root() -> None:
    rng = random.Random(32)
    for _ in range(50):
        for run in plan_runs(*random_case(rng)):
            for row, seen in enumerate(ancestors(run.parents)):  # without what tails join
                assert tuple(run.ids[index] for index in [*seen, row]) == path_to(run, row)


@pytest.mark.parametrize("budget", [1.5, float("inf"), float("nan")])
def test_a_budget_is_a_whole_number(budget: Any) -> None:
    with pytest.raises(ValueError, match=f"whole number from 1, not {budget}"):
        plan_runs([Suffix([1])], budget)


def test_javascript_agrees() -> None:
    command = [str(npm.node()), "--test", "--test-reporter=tap", "tests/js/packing.test.js"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # The file has to run to its end: no test at all would pass as well.
    assert re.search(r"^# pass 11$", done.stdout, re.M), done.stdout
    assert re.search(r"^# skipped 0$", done.stdout, re.M), done.stdout
