"""typedecide.orderings: shifts, pooled answers and the early stop; the shared vectors, in both languages."""

from __future__ import annotations

import doctest
import itertools
import json
import math
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pybuild import npm
from tests import make_vectors
from typedecide import Choice, IntegrityError, orderings, read, softmax
from typedecide.orderings import (
    DEFAULT_BUDGET,
    certified,
    combine,
    cyclic_shifts,
    how_many,
    log_softmax,
    rotate,
    rounds,
    unrotate,
)

ROOT = Path(__file__).parent.parent
VECTORS = json.loads((make_vectors.FOLDER / "orderings.json").read_text("ascii"))


def near(value: object) -> object:
    return pytest.approx(value, abs=1e-12, rel=0)


def random_orderings(rng: random.Random, n: int, count: int, scale: float = 4) -> list[list[float]]:
    return [[rng.gauss(0, scale) for _ in range(n)] for _ in range(count)]


def biased_by_place(strength: list[float], places: list[float], shifts: list[int]) -> list[list[float]]:
    """Logits in option order, of a model that adds places[p] to whatever option stands at place p."""
    shown = [[s + p for s, p in zip(rotate(strength, shift), places, strict=True)] for shift in shifts]
    return [unrotate(logits, shift) for logits, shift in zip(shown, shifts, strict=True)]


def test_examples_in_docstrings() -> None:
    assert doctest.testmod(orderings) == (0, 8)


def test_rounds_begin_with_more_than_half() -> None:
    for case in VECTORS["rounds"]:
        first, rest = rounds(case["shifts"])
        assert sorted(first + rest) == case["shifts"] and len(first) > len(rest)


def test_javascript_agrees() -> None:
    command = [str(npm.node()), "--test", "--test-reporter=tap", "tests/js/orderings.test.js"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # The file has to run to its end: no test at all would pass as well.
    assert re.search(r"^# pass 8$", done.stdout, re.M), done.stdout
    assert re.search(r"^# skipped 0$", done.stdout, re.M), done.stdout


# ------------------------------------------------------------------------------------- counts and shifts


@pytest.mark.parametrize("level", ["some", "1", "", None, True, 1.0, ["all"]])
def test_a_level_that_is_none(level: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"from 1 to 3, the number of options, not {level!r}.")):
        how_many(3, level)


@pytest.mark.parametrize("bad", [True, "2", None, 2.0])
def test_numbers_that_are_not_whole(bad: Any) -> None:
    for call in (
        lambda: how_many(bad),
        lambda: how_many(3, "auto", bad),
        lambda: cyclic_shifts(bad, 1),
        lambda: cyclic_shifts(3, bad),
        lambda: rotate("abc", bad),
        lambda: unrotate("abc", bad),
        lambda: certified([], bad),
    ):
        with pytest.raises(ValueError, match=re.escape(f"not {bad!r}.")):
            call()


def test_two_options_always_come_in_both_orders() -> None:
    for budget in range(2, 10):
        assert cyclic_shifts(2, how_many(2, "auto", budget)) == [0, 1]


def test_the_default_budget_bounds_the_cost() -> None:
    assert max(how_many(n) for n in range(2, 256)) == DEFAULT_BUDGET


def test_shifts_are_even_distinct_and_start_with_none() -> None:
    for n in [*range(1, 40), 255]:
        for count in range(1, n + 1):
            shifts = cyclic_shifts(n, count)
            steps = {after - before for before, after in itertools.pairwise([*shifts, n])}
            assert shifts[0] == 0 and len(shifts) == count
            assert steps <= {n // count, -(-n // count)}


def test_rotate() -> None:
    for n in range(1, 30):
        items = list(range(n))
        for shift in range(n):
            assert rotate(items, shift) == [(place + shift) % n for place in range(n)]
            assert unrotate(rotate(items, shift), shift) == items == rotate(unrotate(items, shift), shift)


# -------------------------------------------------------------------------------------------- log_softmax


def test_log_softmax() -> None:
    rng = random.Random(11)
    for _ in range(200):
        logits = [rng.gauss(0, 5) for _ in range(rng.randrange(1, 40))]
        logs = log_softmax(logits)
        assert [math.exp(log) for log in logs] == near(list(softmax(logits)))
        assert logs == near(log_softmax([logit + 1000 for logit in logits]))


def test_log_softmax_keeps_what_a_probability_cannot_hold() -> None:
    assert log_softmax([0.0, -5000.0]) == (0.0, -5000.0)


# ------------------------------------------------------------------------------------------------ combine


def test_combine_is_the_normalised_geometric_mean() -> None:
    rng = random.Random(12)
    for _ in range(200):
        n, count = rng.randrange(2, 12), rng.randrange(1, 12)
        logits = random_orderings(rng, n, count)
        products = [math.prod(column) ** (1 / count) for column in zip(*map(softmax, logits), strict=True)]
        combined = combine(logits)
        assert combined.probabilities == near(tuple(p / sum(products) for p in products))
        assert combined.log_probabilities == near(tuple(map(math.log, combined.probabilities)))
        assert combined.orderings_used == count


def test_one_ordering_stays_as_it_is() -> None:
    logits = random_orderings(random.Random(13), 7, 1)
    combined = combine(logits)
    assert combined.log_probabilities == log_softmax(logits[0])
    assert combined.probabilities == near(softmax(logits[0]))
    assert (combined.flip_rate, combined.orderings_used) == (0.0, 1)


def test_what_a_place_adds_falls_out_of_all_orders() -> None:
    rng = random.Random(14)
    for n in [*range(2, 12), 60]:
        [strength, places] = random_orderings(rng, n, 2)
        combined = combine(biased_by_place(strength, places, cyclic_shifts(n, n)))
        assert combined.probabilities == near(softmax(strength))


def test_the_mean_of_the_probabilities_would_keep_it() -> None:
    """Why the mean is one of logarithms: this test would fail if `combine` used the other."""
    answers = [softmax(logits) for logits in biased_by_place([1.0, 0.0], [5.0, 0.0], [0, 1])]
    assert (answers[0][0] + answers[1][0]) / 2 != pytest.approx(softmax([1.0, 0.0])[0], abs=0.1)
    assert combine(biased_by_place([1.0, 0.0], [5.0, 0.0], [0, 1])).flip_rate == 0.5


def test_place_alone_makes_an_exact_tie() -> None:
    rng = random.Random(15)
    for n in [*range(2, 30), 255]:
        places = [rng.gauss(0, 3) for _ in range(n)]
        combined = combine(biased_by_place([0.0] * n, places, cyclic_shifts(n, n)))
        assert set(combined.probabilities) == {max(combined.probabilities)}
        assert combined.flip_rate == near((n - 1) / n)


def test_no_bit_depends_on_the_sequence_of_the_orderings() -> None:
    rng = random.Random(16)
    for _ in range(100):
        logits = random_orderings(rng, rng.randrange(2, 9), rng.randrange(2, 9))
        expected = combine(logits)
        rng.shuffle(logits)
        assert combine(logits) == expected


def test_reversed_options_give_reversed_answers() -> None:
    """For two options both orders run, so reversing them runs the same two prompts."""
    rng = random.Random(17)
    for _ in range(200):
        n = rng.randrange(2, 9)
        logits = random_orderings(rng, n, rng.randrange(1, 9))
        combined = combine(logits)
        reverse = combine([ordering[::-1] for ordering in logits])
        assert reverse.log_probabilities == combined.log_probabilities[::-1]
        assert reverse.flip_rate == combined.flip_rate


def test_the_flip_rate_counts_what_read_answers() -> None:
    rng = random.Random(18)
    for _ in range(200):
        n, count = rng.randrange(2, 6), rng.randrange(1, 8)
        question = Choice("?", [f"option {i}" for i in range(n)])
        # Halves, so that ties are many.
        logits = [[rng.randrange(4) / 2 for _ in range(n)] for _ in range(count)]
        combined = combine(logits)
        answer = read(question, combined.log_probabilities)
        assert answer.probabilities == combined.probabilities
        flips = sum(read(question, ordering).choice != answer.choice for ordering in logits)
        assert combined.flip_rate == flips / count


def test_far_apart_logits_stay_numbers() -> None:
    """As far as 32-bit logits can be."""
    combined = combine([[3.4e38, -3.4e38, 0.0], [0.0, -3.4e38, 3.4e38]])
    assert combined.probabilities == (0.5, 0.0, 0.5)
    assert all(map(math.isfinite, combined.log_probabilities))


@pytest.mark.parametrize("bad", [[[1e308, -1e308]], [[1e308, -7e307]] * 2 + [[-7e307, 1e308]] * 2])
def test_a_distance_that_is_no_number(bad: list[list[float]]) -> None:
    with pytest.raises(IntegrityError) as caught:
        combine(bad)
    assert caught.value.data["value"] in (-1e308, -math.inf)


# ------------------------------------------------------------------------------------------------ certified


def test_a_certified_answer_stays() -> None:
    """As long as the orderings to come keep to the widest swing so far: the assumption that it states."""
    rng = random.Random(19)
    stopped = 0
    for _ in range(3000):
        n, total = rng.randrange(2, 6), rng.randrange(2, 8)
        strength = [rng.gauss(0, 4) for _ in range(n)]
        logits = [[s + rng.gauss(0, 2) for s in strength] for _ in range(total)]
        done = next(m for m in range(total + 1) if certified(logits[:m], total))
        stopped += done < total
        widest = max(max(ordering) - min(ordering) for ordering in logits[:done])
        early = winner(logits[:done])
        # The worst that may come: the widest swing seen, each time against the answer and for one rival.
        for rival in set(range(n)) - {early}:
            against = [0.0 if i == rival else -widest for i in range(n)]
            assert winner(logits[:done] + [against] * (total - done)) == early
    assert stopped > 300


def winner(logits: list[list[float]]) -> int:
    probabilities = combine(logits).probabilities
    return probabilities.index(max(probabilities))


def test_a_swing_beyond_the_assumption_can_change_the_answer() -> None:
    done = [[0.0, -3.0]] * 3
    assert certified(done, 4)
    assert winner(done) != winner([*done, [-10.0, 0.0]])


def test_it_never_stops_before_more_than_half_is_done() -> None:
    rng = random.Random(20)
    for _ in range(500):
        n, total = rng.randrange(2, 6), rng.randrange(2, 12)
        ordering = random_orderings(rng, n, 1, 50)[0]
        for done in range(total // 2 + 1):
            assert not certified([ordering] * done, total)


def test_logits_and_log_probabilities_certify_alike() -> None:
    rng = random.Random(21)
    for _ in range(500):
        total = rng.randrange(1, 8)
        logits = random_orderings(rng, rng.randrange(2, 6), rng.randrange(1, total + 1))
        assert certified(logits, total) == certified(list(map(log_softmax, logits)), total)


def test_more_done_than_planned() -> None:
    with pytest.raises(ValueError, match=r"3 orderings are done, of 2\."):
        certified([[0.0, 1.0]] * 3, 2)
