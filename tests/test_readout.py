"""typedecide.readout: probabilities, answers and confidences, against values worked out by hand."""

from __future__ import annotations

import doctest
import json
import math
import random
from collections.abc import Sequence

import pytest

from typedecide import Choice, IntegrityError, Noul, Score, read, readout, softmax


def logs(*probabilities: float) -> list[float]:
    return [math.log(p) + 5 for p in probabilities]


def near(value: object) -> object:
    return pytest.approx(value, abs=1e-12, rel=0)


def test_examples_in_docstrings() -> None:
    assert doctest.testmod(readout) == (0, 3)


def test_choice() -> None:
    answer = read(Choice("?", ["a", "b", "c", "d"]), logs(0.1, 0.7, 0.15, 0.05))
    assert answer.probabilities == near((0.1, 0.7, 0.15, 0.05))
    assert (answer.value, answer.choice) == ("b", "b")
    assert answer.confidence == near((0.7 - 0.25) / 0.75)


def test_noul() -> None:
    answer = read(Noul("?"), logs(0.2, 0.8))
    assert answer.value == near(0.2)
    assert answer.choice == "no"
    assert answer.confidence == near(0.6)


def test_score() -> None:
    answer = read(Score("?", ["low", "middle", "high"]), logs(0.2, 0.5, 0.3))
    assert answer.value == near(0.5 + 2 * 0.3)
    assert answer.choice == "middle"
    # Levels lie 1, 0 and 1 from the mode; evenly spread answers lie 2/3 from the middle.
    assert answer.confidence == near(1 - 0.5 / (2 / 3))
    assert read(Score("?", ["low", "middle", "high"]), logs(0.45, 0.1, 0.45)).confidence == 0.0


def test_the_first_of_equals_wins() -> None:
    assert read(Choice("?", ["a", "b", "c"]), [0.0, 2.0, 2.0]).choice == "b"
    assert read(Noul("?"), [1.0, 1.0]).choice == "yes"


def test_equal_logits_have_no_confidence() -> None:
    for n in range(2, 256):
        confidence = read(Choice("?", [str(i) for i in range(n)]), [0.1] * n).confidence
        assert 0 <= confidence <= 1e-12


def test_softmax_is_stable_and_does_not_move_with_a_constant() -> None:
    assert softmax([-1e308, 1e308]) == (0.0, 1.0)
    rng = random.Random(13)
    for _ in range(200):
        logits = [rng.gauss(0, 8) for _ in range(rng.randrange(1, 40))]
        assert math.fsum(softmax(logits)) == near(1.0)
        assert softmax(logits) == near(softmax([logit + 1000 for logit in logits]))


def test_ranges() -> None:
    rng = random.Random(17)
    for _ in range(300):
        n = rng.randrange(2, 11)
        names = [str(i) for i in range(n)]
        logits = [rng.gauss(0, 10 ** rng.uniform(-2, 2)) for _ in range(n)]
        for question in (Choice("?", names), Score("?", names)):
            answer = read(question, logits)
            assert 0 <= answer.confidence <= 1
            assert answer.probabilities[names.index(answer.choice)] == max(answer.probabilities)
            assert answer.logits == tuple(logits)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, None, "1", True])
def test_a_logit_that_is_no_finite_number(bad: float) -> None:
    with pytest.raises(IntegrityError) as caught:
        read(Choice("?", ["a", "b", "c"]), [0.0, bad, 1.0])
    assert caught.value.data["value"] is bad
    assert caught.value.data["index"] == 1


@pytest.mark.parametrize("logits", [[], [1.0], [1.0, 2.0, 3.0]])
def test_the_wrong_number_of_logits(logits: Sequence[float]) -> None:
    with pytest.raises(IntegrityError) as caught:
        read(Noul("?"), logits)
    assert caught.value.data == {"value": len(logits), "expected": 2}


def test_softmax_of_nothing() -> None:
    with pytest.raises(IntegrityError):
        softmax([])


def test_json_form() -> None:
    plain = read(Score("?", ["low", "high"]), [2, 2]).to_dict()
    assert json.loads(json.dumps(plain)) == {
        "kind": "score",
        "names": ["low", "high"],
        "logits": [2.0, 2.0],
        "probabilities": [0.5, 0.5],
        "value": 0.5,
        "choice": "low",
        "confidence": 0.0,
    }
