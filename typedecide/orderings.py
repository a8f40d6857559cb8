"""In which orders a question's options are shown, and how the answers of several orders become one.

A small model answers partly by place: it favours a label, whatever that label stands for. Showing the options
again, turned round by some places, and pooling the answers takes that out. Knows option counts and logits; no
text, no tensors. `web/orderings.js` is its twin; both run tests/vectors/orderings.json.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeGuard, TypeVar

from typedecide.errors import IntegrityError
from typedecide.readout import softmax

Item = TypeVar("Item")
Level = int | Literal["auto", "all"]

DEFAULT_BUDGET = 4
"""The most orderings that "auto" gives a question."""


@dataclass(frozen=True)
class Combined:
    """What several orderings say together, in the question's own option order.

    `flip_rate` is the share of the orderings whose most probable option is not the combined one. `read` makes
    the `Answer` from `log_probabilities`, with these very probabilities.
    """

    probabilities: tuple[float, ...]
    log_probabilities: tuple[float, ...]
    flip_rate: float
    orderings_used: int


def how_many(n: int, level: Level = "auto", budget: int = DEFAULT_BUDGET) -> int:
    """The number of orderings for `n` options: `level` itself, all n, or what the rotation budget allows.

    "auto" is min(n, budget); as a budget is 2 at the least, two options are always shown in both orders. A number
    above n is a ValueError, not cut to n.

    >>> [how_many(2), how_many(3), how_many(255), how_many(255, "all"), how_many(255, 1)]
    [2, 3, 4, 255, 1]
    """
    _check_whole("The number of options", n, 1)
    _check_whole("The rotation budget", budget, 2)
    if level == "auto":
        return min(n, budget)
    if level == "all":
        return n
    if not _is_whole(level) or not 1 <= level <= n:
        raise ValueError(
            f'The orderings must be "auto", "all" or a whole number from 1 to {n}, the number of options, '
            f"not {level!r}."
        )
    return level


def cyclic_shifts(n: int, count: int) -> list[int]:
    """`count` shifts spread evenly over 0 to n - 1, the first one 0: shift j is floor(j·n / count).

    >>> cyclic_shifts(10, 4)
    [0, 2, 5, 7]
    """
    _check_whole("The number of options", n, 1)
    if not _is_whole(count) or not 1 <= count <= n:
        raise ValueError(
            f"The shifts must be a whole number from 1 to {n}, the number of options, not {count!r}."
        )
    return [j * n // count for j in range(count)]


def rounds(shifts: Sequence[int]) -> tuple[list[int], list[int]]:
    """The shifts that an early stop reads first, and those that it reads where the answer is not `certified` then.

    The first round is the least that can be certified: more than half of the shifts, spread over all of them. So one
    and two options have no second round.

    >>> rounds([0, 1, 2, 3, 4, 5]), rounds([0, 1])
    (([0, 2, 4, 1], [3, 5]), ([0, 1], []))
    """
    spread = [*shifts[::2], *shifts[1::2]]
    first = len(spread) // 2 + 1
    return spread[:first], spread[first:]


def rotate(items: Sequence[Item], shift: int) -> list[Item]:
    """The items as an ordering shows them: at place p stands item (p + shift) mod n.

    >>> rotate(["a", "b", "c"], 1)
    ['b', 'c', 'a']
    """
    _check_shift(len(items), shift)
    return [*items[shift:], *items[:shift]]


def unrotate(values: Sequence[Item], shift: int) -> list[Item]:
    """The values of the places of an ordering, given back in the items' own order: undoes `rotate`.

    >>> unrotate(["b", "c", "a"], 1)
    ['a', 'b', 'c']
    """
    _check_shift(len(values), shift)
    return rotate(values, (len(values) - shift) % len(values))


def log_softmax(logits: Sequence[float]) -> tuple[float, ...]:
    """Log-probabilities from logits; IntegrityError where a logit, or the distance of two, is not a finite number.

    >>> log_softmax([7.0, 7.0])[0] == -math.log(2)
    True
    """
    centred = _centred(logits)
    log_total = math.log(_sum(math.exp(logit) for logit in centred))
    return tuple(logit - log_total for logit in centred)


def combine(logits_by_ordering: Sequence[Sequence[float]]) -> Combined:
    """One answer from the label logits of each ordering, each already in the question's own option order.

    This is the logarithmic opinion pool with equal weights, the normalised geometric mean of the distributions:
    p_i ∝ exp(1/m · Σ_j log p_ij) (Genest and Zidek, "Combining Probability Distributions", Statistical Science 1(1),
    1986). A logit that a place adds to whatever stands there falls out of it exactly over all cyclic shifts, since
    each option stands at each place once; out of the mean of the probabilities it does not fall.

    The result does not depend on the sequence of the orderings, to the last bit. An equal highest probability goes
    to the first option, as in `read`. IntegrityError where a logit, or the distance of two, is not a finite number.

    >>> combine([[2.0, 0.0], [1.0, 3.0]])
    Combined(probabilities=(0.5, 0.5), log_probabilities=(-0.6931471805599453, -0.6931471805599453), \
flip_rate=0.5, orderings_used=2)
    """
    # What normalises an ordering is one number for all its options, and falls out when the pool is normalised.
    orderings = _checked(logits_by_ordering)
    used = len(orderings)
    means = [total / used for total in _totals(orderings)]
    log_probabilities = log_softmax(means)
    winner = _first_highest(means)
    flips = sum(_first_highest(ordering) != winner for ordering in orderings)
    return Combined(softmax(log_probabilities), log_probabilities, flips / used, used)


def certified(log_probs_so_far: Sequence[Sequence[float]], total: int) -> bool:
    """Whether the orderings still to come, of `total`, can no longer change the combined answer.

    With r orderings to come and w the widest distance between any two options in any ordering so far, the answer
    is certified when its summed lead over every rival is more than r·w. That assumes that no ordering to come
    swings further than the widest one seen: a rule of thumb, not a proof. It covers which option is the answer, and
    neither the probabilities nor a score's expected level, which would still move. As an ordering lends a lead of w
    at the most, more than half of `total` has to be done first, so two options never stop after one order. Only
    distances within an ordering count: log-probabilities and logits serve alike.

    >>> certified([[0.0, -9.0], [0.0, -7.0], [0.0, -8.0]], 4)
    True
    """
    _check_whole("The number of orderings", total, 1)
    if len(log_probs_so_far) > total:
        raise ValueError(f"{len(log_probs_so_far)} orderings are done, of {total}.")
    if len(log_probs_so_far) == 0:
        return False
    orderings = _checked(log_probs_so_far)
    to_come = total - len(orderings)
    if to_come == 0:
        return True
    widest = max(-min(ordering) for ordering in orderings)
    totals = _totals(orderings)
    top = _first_highest(totals)
    return all(totals[top] - other > to_come * widest for i, other in enumerate(totals) if i != top)


def _checked(orderings: Sequence[Sequence[float]]) -> list[list[float]]:
    """Each ordering less its highest value; IntegrityError where they are not lists of one length."""
    if len(orderings) == 0:
        raise IntegrityError("There are no orderings.", value=0)
    options = len(orderings[0])
    for index, logits in enumerate(orderings):
        if len(logits) != options:
            raise IntegrityError(
                f"Ordering {index} does not have one logit for each option.",
                value=len(logits),
                expected=options,
                index=index,
            )
    return [_centred(logits) for logits in orderings]


def _centred(logits: Sequence[float]) -> list[float]:
    softmax(logits)  # For its checks.
    top = float(max(logits))
    centred = [float(logit) - top for logit in logits]
    for index, distance in enumerate(centred):
        if not math.isfinite(distance):
            value = float(logits[index])
            raise IntegrityError(
                f"Logit {index} is too far below the highest one.", value=value, highest=top, index=index
            )
    return centred


def _totals(orderings: Sequence[Sequence[float]]) -> list[float]:
    return [_sum(column) for column in zip(*orderings, strict=True)]


def _sum(values: Iterable[float]) -> float:
    # Sorted: equal values in another sequence give the same bits, so that options that tie do tie.
    return sum(sorted(values))


def _first_highest(values: Sequence[float]) -> int:
    return values.index(max(values))


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_whole(what: str, value: int, least: int) -> None:
    if not _is_whole(value) or value < least:
        raise ValueError(f"{what} must be a whole number of at least {least}, not {value!r}.")


def _check_shift(n: int, shift: int) -> None:
    if not _is_whole(shift) or not 0 <= shift < n:
        raise ValueError(
            f"A shift must be a whole number of at least 0 and below {n}, the number of items, not {shift!r}."
        )
