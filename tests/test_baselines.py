"""The baselines: fetched once, they answer every kind of question, in the options' own order."""

from __future__ import annotations

import math
from importlib.metadata import entry_points

import pytest

from bench import baselines
from bench.baselines import SentenceEncoder, Sparrow
from bench.suites import heldout
from typedecide import cli_evaluate
from typedecide.cli_evaluate import load_baselines
from typedecide.errors import UnsupportedError
from typedecide.evaluation import Baseline
from typedecide.inputs import InputError
from typedecide.metrics import credit, mean
from typedecide.questions import Choice, Noul, Question, Score

TICKET = "My card was charged twice for order 1182. I want my money back!"
TEAM = {"billing": "charges, invoices and refunds", "sign-in": "passwords and locked accounts"}
QUESTIONS: tuple[Question, ...] = (
    Choice("Which team?", TEAM),
    Choice("Which team?", dict(reversed(TEAM.items()))),
    Noul("Does the customer ask for a refund?"),
    Noul("", yes="money is asked for", no="nothing is asked for"),
    Score("How urgent?", {"low": "can wait", "middle": "", "high": "now"}),
)


@pytest.fixture(scope="module", params=("minilm", "sparrow"))
def baseline(request: pytest.FixtureRequest) -> Baseline:
    found, missing = load_baselines(request.param)
    assert missing == {}
    return found[request.param]


def test_a_score_for_each_option(baseline: Baseline) -> None:
    for question in QUESTIONS:
        scores = baseline.scores(TICKET, question)
        assert len(scores) == len(question.names)
        assert all(map(math.isfinite, scores))
        assert list(scores) == list(baseline.scores(TICKET, question))


def test_options_keep_their_places(baseline: Baseline) -> None:
    for question in QUESTIONS[:2]:
        scores = list(baseline.scores(TICKET, question))
        assert question.names[scores.index(max(scores))] == "billing"


def test_yes_is_the_place_of_what_sparrow_calls_true() -> None:
    sparrow = Sparrow()
    wire = {"type": "noul", "instructions": "Is the user upset?"}
    said = sparrow._model.ask(TICKET, {"upset": wire})["upset"]["noul"]
    yes, no = sparrow.scores(TICKET, Noul("Is the user upset?"))
    assert abs(yes - said) < 1e-4
    assert abs(yes + no - 1) < 1e-6


def test_the_encoder_gives_unit_vectors_and_knows_what_is_alike() -> None:
    encoder = SentenceEncoder()
    cat, kitten, law = (
        encoder.embed(text) for text in ("A cat sleeps.", "A kitten naps.", "The law of contracts.")
    )
    assert math.isclose(float(cat @ cat), 1, abs_tol=1e-5)
    assert cat @ kitten > cat @ law + 0.3


def test_the_encoder_beats_chance_on_topics() -> None:
    encoder = SentenceEncoder()
    earned = [
        credit(encoder.scores(one.state, question), question.names.index(one.gold[key]))
        for one in heldout(40, 0)
        if one.task == "newsgroups"
        for key, question in one.questions.items()
    ]
    assert len(earned) == 40
    assert (mean(earned) or 0) > 0.6


def test_none_some_and_unknown() -> None:
    assert load_baselines("none") == ({}, {})
    assert set(load_baselines("all")[0]) == {one.name for one in entry_points(group=cli_evaluate.BASELINES)}
    with pytest.raises(InputError, match="there is no such thing"):
        load_baselines("minilm,nothing")


def test_one_that_cannot_be_fetched_is_missing_not_fatal(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(package: baselines.Package) -> None:
        raise UnsupportedError(f"{package.label} could not be fetched.")

    monkeypatch.setattr(baselines, "fetch", refuse)
    found, missing = load_baselines("all")
    assert found == {}
    assert missing["sparrow"] == "PyPI sparrow-decider 0.2.0 could not be fetched."
    with pytest.raises(UnsupportedError):
        load_baselines("sparrow")
