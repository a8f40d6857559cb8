"""typedecide.packing and web/packing.js: shared tokens, runs, and what each token sees."""

from __future__ import annotations

import dataclasses
import doctest
import itertools
import json
import random
import re
import subprocess
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
    """The token ids from the root to `row`."""
    path: list[int] = []
    while row != -1:
        path.append(run.ids[row])
        row = run.parents[row]
    return tuple(reversed(path))


def reference(suffixes: list[list[int]]) -> list[Start]:
    """The tree's tokens in pre-order, as starts, by plain recursion over nested dicts."""
    tree: dict[int, Any] = {}
    for ids in suffixes:
        node = tree
        for token in ids:
            node = node.setdefault(token, {})

    def walk(node: dict[int, Any], path: Start) -> list[Start]:
        return [
            item for token, below in node.items() for item in [(*path, token), *walk(below, (*path, token))]
        ]

    return walk(tree, ())


def assert_plan(suffixes: list[Suffix], budget: int, runs: list[Run]) -> None:
    """All that a plan promises, from its definition."""
    assert [index for run in runs for index in run.suffixes] == list(range(len(suffixes)))
    for run in runs:
        group = [suffixes[index] for index in run.suffixes]
        assert len(run.ids) <= budget or len(group) == 1
        assert [path_to(run, row) for row in range(len(run.ids))] == reference([list(s.ids) for s in group])
        assert run.depths == [len(path_to(run, row)) - 1 for row in range(len(run.ids))]
        assert len(run.rows) == len(group)
        for suffix, rows in zip(group, run.rows, strict=True):
            reads = [len(suffix.ids) - 1] if suffix.reads is None else suffix.reads
            assert [path_to(run, row) for row in rows] == [tuple(suffix.ids[: read + 1]) for read in reads]
    assert sum(run.saved + len(run.ids) for run in runs) == sum(len(suffix.ids) for suffix in suffixes)
    for run, following in itertools.pairwise(runs):
        joined = [suffixes[index] for index in [*run.suffixes, following.suffixes[0]]]
        nodes = {start for suffix in joined for start in starts(list(suffix.ids))}
        assert len(nodes) > budget, "a run ends only where the next suffix does not fit"


def random_case(rng: random.Random) -> tuple[list[Suffix], int]:
    ids = make_vectors.random_suffixes(rng)
    suffixes = [Suffix(**make_vectors.with_reads(rng, item)) for item in ids]
    return suffixes, rng.choice([1, 3, 8, 20, 50, 10_000])


def test_examples_in_docstrings() -> None:
    assert doctest.testmod(packing) == (0, 2)


@pytest.mark.parametrize("case", VECTORS["plans"], ids=lambda case: case["name"])
def test_plan(case: dict[str, Any]) -> None:
    wanted = {key: case[key] for key in ("expect", "range_error") if key in case}
    assert make_vectors.plan_view(case["suffixes"], case["budget"]) == wanted


@pytest.mark.parametrize("case", VECTORS["trees"], ids=lambda case: case["name"])
def test_ancestors(case: dict[str, Any]) -> None:
    wanted = {key: case[key] for key in ("expect", "range_error") if key in case}
    assert make_vectors.ancestors_view(case["parents"]) == wanted


def test_plans_by_hand() -> None:
    a, b, c = Suffix([5, 6, 7]), Suffix([8]), Suffix([5, 6, 9], reads=[1, 2])
    assert plan_runs([a, b, c], 5) == [
        Run([5, 6, 7, 9, 8], [-1, 0, 1, 1, -1], [0, 1, 2, 2, 0], [[2], [4], [1, 3]], [0, 1, 2], 2)
    ]
    assert plan_runs([a, b, c], 4) == [
        Run([5, 6, 7, 8], [-1, 0, 1, -1], [0, 1, 2, 0], [[2], [3]], [0, 1], 0),
        Run([5, 6, 9], [-1, 0, 1], [0, 1, 2], [[1, 2]], [2], 0),
    ]


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
    suffixes = [Suffix([5, 6, 7]), Suffix([5, 6, 8]), Suffix([9]), Suffix([9, 9, 9, 9])]
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
        plan_runs(suffixes, 8),
        plan_runs(suffixes, 4),
    ]
    for runs in faults:
        with pytest.raises(AssertionError):
            assert_plan(suffixes, 6, runs)


def test_ancestors_are_the_path_from_the_root() -> None:
    rng = random.Random(32)
    for _ in range(50):
        for run in plan_runs(*random_case(rng)):
            for row, seen in enumerate(ancestors(run.parents)):
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
    assert re.search(r"^# pass 9$", done.stdout, re.M), done.stdout
    assert re.search(r"^# skipped 0$", done.stdout, re.M), done.stdout
