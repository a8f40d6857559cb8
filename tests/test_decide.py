"""`decide`, from text to answers: one set of vectors for the native engine, the page, and the page from Python."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import make_decide_vectors
from tests.make_decide_vectors import ASKED, QUESTIONS, STATES
from tests.make_vectors import FOLDER
from typedecide.errors import InvalidQuestionError, InvalidStateError, TooLongError, UnsupportedError
from typedecide.native import NativeEngine
from typedecide.page import PageEngine
from typedecide.prior import MIN_STATES, Prior
from typedecide.questions import Choice, Noul, Question, parse_question, parse_questions, to_wire
from typedecide.readout import softmax
from typedecide.results import Debiased, DecisionEngine

VECTORS = json.loads((FOLDER / make_decide_vectors.NAME).read_text("ascii"))
TOLERANCE = 1e-5
LOGITS_TOLERANCE = 1e-4
"""Of logits, which are sums over an option's tokens, or products of hidden states, in single precision."""

PARSED: dict[str, Question] = parse_questions(QUESTIONS)

# Questions go in as the page gets them from anybody, options by their JavaScript names.
DECIDE = """async (engine, { states, questions, options }) => {
  await engine.release();
  const asked = new Map(questions);
  let done;
  for (const state of states) done = await engine.decide({ state, questions: asked }, options);
  const { prefill, tokens_run, tokens_saved, runs } = done;
  const answers = questions.map(([id]) => [id, done.answers[id]]);
  return { prefix_tokens: prefill.tokens, tokens_run, tokens_saved, runs, answers };
}"""

# An object puts ids like "10" first: they are asked, and told of, in another order.
DECIDE_OBJECT = """async (engine, { state, questions }) => {
  const told = [];
  const onAnswer = (id, answer) => told.push([id, answer]);
  const options = { readout: "labels", onAnswer };
  const { answers } = await engine.decide({ state, questions: Object.fromEntries(questions) }, options);
  return { answers: questions.map(([id]) => [id, answers[id]]), told };
}"""

JS_NAMES = {"run_tokens": "runTokens", "early_stop": "earlyStop"}


@pytest.fixture(scope="module")
def native(dist_pointer: Path) -> Iterator[NativeEngine]:
    """The tiny model natively."""
    with NativeEngine(dist_pointer) as engine:
        yield engine


@pytest.fixture(scope="module")
def page_engine(dist_pointer: Path) -> Iterator[PageEngine]:
    """The tiny model on WASM."""
    with PageEngine(dist_pointer, "wasm") as engine:
        yield engine


def near(found: Any, right: Any, tolerance: float = TOLERANCE) -> bool:
    """Equal in structure; numbers to the tolerance."""
    if isinstance(right, dict):
        own = {"logits": LOGITS_TOLERANCE}
        return list(found) == list(right) and all(
            near(found[k], right[k], own.get(k, TOLERANCE)) for k in right
        )
    if isinstance(right, list):
        return len(found) == len(right) and all(
            near(a, b, tolerance) for a, b in zip(found, right, strict=True)
        )
    if isinstance(right, float):
        return abs(found - right) <= tolerance * max(1.0, abs(right))
    return bool(found == right)


def check(found: Any, case: dict[str, Any]) -> None:
    assert near(found, case["expect"]), f"{case['name']}: {found}"


def test_vectors_are_those_of_the_script() -> None:
    assert VECTORS["states"] == STATES
    assert VECTORS["questions"] == [[key, wire] for key, wire in QUESTIONS.items()]
    assert [case["name"] for case in VECTORS["cases"]] == [name for name, *_ in ASKED]
    assert VECTORS["refused"] == make_decide_vectors.REFUSED


@pytest.mark.parametrize("index", range(len(ASKED)), ids=[name for name, *_ in ASKED])
def test_native(native: NativeEngine, index: int) -> None:
    _, states, orderings, options = ASKED[index]
    done = make_decide_vectors.ask(native, [STATES[i] for i in states], orderings, options)
    check(make_decide_vectors.view(done), VECTORS["cases"][index])


@pytest.mark.browser
@pytest.mark.parametrize("index", range(len(ASKED)), ids=[name for name, *_ in ASKED])
def test_page_from_python(page_engine: PageEngine, index: int) -> None:
    _, states, orderings, options = ASKED[index]
    done = make_decide_vectors.ask(page_engine, [STATES[i] for i in states], orderings, options)
    check(make_decide_vectors.view(done), VECTORS["cases"][index])


@pytest.mark.browser
@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
def test_page(page_engine: PageEngine, case: dict[str, Any]) -> None:
    options = {JS_NAMES.get(name, name): value for name, value in case["options"].items()}
    states = [VECTORS["states"][i] for i in case["states"]]
    argument = {"states": states, "questions": VECTORS["questions"], "options": options}
    check(page_engine.evaluate(DECIDE, argument), case)


@pytest.mark.browser
def test_page_with_questions_in_an_object(page_engine: PageEngine, native: NativeEngine) -> None:
    argument = {"state": STATES[0], "questions": VECTORS["questions"]}
    done = page_engine.evaluate(DECIDE_OBJECT, argument)
    right = native.decide(STATES[0], PARSED, readout="labels").answers
    assert near(done["answers"], [[key, answer.to_dict()] for key, answer in right.items()])
    assert [key for key, _ in done["told"]] == ["2", "10", "queue", "__proto__", "alike", "certain", "mood"]
    assert dict(done["told"]) == dict(done["answers"])


# -- every readout against whole prompts ----------------------------------------------------------------------------


def check_full(engine: DecisionEngine, readout: str) -> None:
    """Cached and packed answers are those of whole prompts without a cache."""
    orderings = 1 if readout == "labels" else None
    done = engine.decide(STATES[0], PARSED, orderings, readout=readout)
    worst = 0.0
    for key, question in PARSED.items():
        full = engine.score_full(STATES[0], question, readout)
        alone = engine.score(question, orderings, readout=readout)
        assert (full.orderings_used, full.flip_rate) == (alone.orderings_used, alone.flip_rate) == (1, 0.0)
        assert full.tokens > alone.tokens > 5
        for other in (full, alone):
            pairs = zip(done.answers[key].answer.probabilities, other.answer.probabilities, strict=True)
            worst = max(worst, *(abs(a - b) for a, b in pairs))
    print(f"{readout}: packed and alone against whole prompts: {worst:.1e}")
    assert worst <= TOLERANCE


@pytest.mark.parametrize("readout", ("labels", "text", "pointer"))
def test_whole_prompts_natively(native: NativeEngine, readout: str) -> None:
    check_full(native, readout)


@pytest.mark.browser
@pytest.mark.parametrize("readout", ("labels", "text", "pointer"))
def test_whole_prompts_in_the_page(page_engine: PageEngine, readout: str) -> None:
    check_full(page_engine, readout)


# -- the pointer ----------------------------------------------------------------------------------------------------


def test_pointer_knows_no_order_to_the_last_bit(native: NativeEngine) -> None:
    names = ["billing", "shipping", "sales", "billing and more"]
    native.prefill(STATES[0])
    forward = native.score(Choice("Which team?", names), readout="pointer").answer
    backward = native.score(Choice("Which team?", names[::-1]), readout="pointer").answer
    assert forward.logits == backward.logits[::-1]
    assert forward.choice == backward.choice


def test_options_that_read_alike_score_alike(native: NativeEngine) -> None:
    # Names are unique, but a colon in one can make two options the same text, and so the same branch.
    native.prefill(STATES[0])
    first, second, _ = native.score(PARSED["alike"], readout="pointer").answer.probabilities
    assert first == second


def test_a_bundle_without_a_pointer_says_what_it_has(dist_stock: Path) -> None:
    with NativeEngine(dist_stock) as engine:
        assert engine.info["readouts"] == ["labels", "text"]
        with pytest.raises(UnsupportedError, match=r"'pointer'; it has labels, text$") as caught:
            engine.decide(STATES[0], PARSED, readout="pointer")
    assert caught.value.data["known"] == ["labels", "text"]


# -- decide ---------------------------------------------------------------------------------------------------------


def check_streaming(engine: DecisionEngine) -> None:
    """Answers come by id, each once, and are those that are returned, in the order of the questions."""
    for readout in ("labels", "text", "pointer"):
        seen: list[tuple[str, Debiased]] = []
        done = engine.decide(
            STATES[0],
            PARSED,
            readout=readout,
            run_tokens=80,
            on_answer=lambda key, answer, seen=seen: seen.append((key, answer)),  # type: ignore[misc]
        )
        assert [key for key, _ in seen] == list(done.answers) == list(QUESTIONS)
        assert dict(seen) == done.answers
        assert done.runs > 2


def test_answers_stream_by_id_natively(native: NativeEngine) -> None:
    check_streaming(native)


@pytest.mark.browser
def test_answers_stream_by_id_in_the_page(page_engine: PageEngine) -> None:
    check_streaming(page_engine)


@pytest.mark.browser
def test_info_names_the_readouts(page_engine: PageEngine, native: NativeEngine) -> None:
    for engine in (page_engine, native):
        # Its own, since it has one: a model with a pointer was tuned to be read by it.
        assert engine.info["readout"] == "pointer"
        assert engine.info["readouts"] == ["labels", "text", "pointer"]


# -- what is refused ------------------------------------------------------------------------------------------------

REFUSED_DECIDE = """async (engine, { state, questions, options }) => {
  const told = ({ code, message, data }) => ({ code, loc: data.loc, message });
  return engine.decide({ state, questions: new Map(questions) }, options).then(() => null, told);
}"""


POST = """async (engine, body) => {
  const response = await engine.fetch("/v1/systemone", { method: "POST", body: JSON.stringify(body) });
  return [response.status, (await response.json()).detail];
}"""


def refused_bundle(bundle: Path, target: Path, case: dict[str, Any]) -> Path:
    """The bundle with as few labels as a case wants."""
    if case["labels"] is None:
        return bundle
    shutil.copytree(bundle, target, copy_function=os.link)
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
    manifest["labels"] = manifest["labels"][: case["labels"]]
    (target / "manifest.json").unlink()
    (target / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    return target


@pytest.mark.parametrize("case", VECTORS["refused"], ids=lambda case: case["name"])
def test_refused_natively(dist_pointer: Path, tmp_path: Path, case: dict[str, Any]) -> None:
    with NativeEngine(refused_bundle(dist_pointer, tmp_path / "bundle", case)) as engine:
        questions = {key: parse_question(wire) for key, wire in case["questions"]}
        with pytest.raises(InvalidQuestionError) as caught:
            engine.decide(STATES[0], questions, **case["options"])
    assert {"loc": list(caught.value.data["loc"]), "message": caught.value.message} == case["error"]


@pytest.mark.browser
@pytest.mark.parametrize("case", VECTORS["refused"], ids=lambda case: case["name"])
def test_refused_in_the_page(dist_pointer: Path, tmp_path: Path, case: dict[str, Any]) -> None:
    with PageEngine(refused_bundle(dist_pointer, tmp_path / "bundle", case), "wasm") as engine:
        told = engine.evaluate(REFUSED_DECIDE, {**case, "state": STATES[0]})
    assert told == {"code": "INVALID_QUESTION", **case["error"]}


@pytest.mark.browser
def test_a_question_that_is_refused_is_named_on_the_wire(dist_pointer: Path, tmp_path: Path) -> None:
    (case,) = (case for case in VECTORS["refused"] if case["labels"] is not None)
    body = {"state": STATES[0], "questions": dict(case["questions"])}
    bundle = refused_bundle(dist_pointer, tmp_path / "bundle", case)
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
    # The wire reads as the bundle does by default.
    (bundle / "manifest.json").write_text(json.dumps({**manifest, "readout": "labels"}), "utf-8")
    with PageEngine(bundle, "wasm") as engine:
        status, (fault,) = engine.evaluate(POST, body)
    assert (status, fault["loc"]) == (422, ["body", "questions", "queue", "criteria"])


NOT_QUESTIONS = """async (engine) => {
  const question = { type: "noul", instructions: "Is it?" };
  const asked = {
    nothing: () => engine.decide({ state: "", questions: null }),
    text: () => engine.decide({ state: "", questions: "x" }),
    empty: () => engine.decide({ state: "", questions: {} }),
    number: () => engine.decide({ state: "", questions: new Map([["1", question], [1, question]]) }),
    unnamed: () => engine.decide({ state: "", questions: { "": question } }),
    invalid: () => engine.decide({ state: "", questions: { fine: question, wrong: { type: "noul" } } }),
    all_of_nothing: () => engine.scoreAll(null),
    all_of_a_text: () => engine.scoreAll("x"),
    all_of_holes: () => engine.scoreAll([question, , question]),
  };
  const found = {};
  for (const [name, ask] of Object.entries(asked))
    found[name] = await ask().then(() => null, ({ code, data }) => [code, data.loc]);
  return found;
}"""


@pytest.mark.browser
def test_what_are_no_questions(page_engine: PageEngine) -> None:
    page_engine.prefill(STATES[0])
    assert page_engine.evaluate(NOT_QUESTIONS) == {
        "nothing": ["INVALID_QUESTION", []],
        "text": ["INVALID_QUESTION", []],
        "empty": ["INVALID_QUESTION", []],
        "number": ["INVALID_QUESTION", []],
        "unnamed": ["INVALID_QUESTION", []],
        "invalid": ["INVALID_QUESTION", ["wrong", "criteria"]],
        "all_of_nothing": ["INVALID_QUESTION", []],
        "all_of_a_text": ["INVALID_QUESTION", []],
        "all_of_holes": ["INVALID_QUESTION", [1]],
    }


def test_a_decision_that_fails_leaves_the_text_before(native: NativeEngine) -> None:
    native.release()
    native.prefill(STATES[0])
    right = native.score(PARSED["queue"], readout="labels").answer
    with pytest.raises(TooLongError):
        # The text is read before the question turns out to be too long.
        native.decide(STATES[2], {"long": Noul("why " * 9000)})
    assert native.score(PARSED["queue"], readout="labels").answer == right
    native.release()
    with pytest.raises(TooLongError):
        native.decide(STATES[2], {"long": Noul("why " * 9000)})
    with pytest.raises(InvalidStateError):
        native.score(PARSED["queue"])


# -- options --------------------------------------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"readout": "vibes"}, "'?\"?vibes.* it has labels, text, pointer"),
    ({"readout": "pointer", "orderings": "all"}, "neither orders of options nor a prior.* orderings"),
    ({"readout": "text", "budget": 3}, "takes no budget"),
    ({"readout": "pointer", "prior": "batch"}, "takes no prior"),
    ({"readout": "text", "early_stop": True}, "takes no early"),
    ({"run_tokens": 0}, "whole number from 1, not 0"),
    ({"run_tokens": 2.5}, "whole number from 1, not 2.5"),
    ({"readout": "labels", "prior": "mean"}, "one of content-free, batch, not .mean"),
    ({"readout": "labels", "early_stop": "yes"}, "true or false, not .yes"),
]


def check_options(engine: DecisionEngine, options: dict[str, Any], message: str) -> None:
    for ask in (
        lambda: engine.decide(STATES[0], PARSED, **options),
        lambda: engine.score(PARSED["queue"], **options),
    ):
        with pytest.raises(UnsupportedError, match=message):
            ask()


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_options_that_are_wrong(native: NativeEngine, options: dict[str, Any], message: str) -> None:
    check_options(native, options, message)


@pytest.mark.browser
@pytest.mark.parametrize(("options", "message"), WRONG)
def test_options_that_are_wrong_in_the_page(
    page_engine: PageEngine, options: dict[str, Any], message: str
) -> None:
    check_options(page_engine, options, message)


@pytest.mark.browser
def test_a_budget_below_two_is_refused(native: NativeEngine, page_engine: PageEngine) -> None:
    for engine in (native, page_engine):
        with pytest.raises(InvalidQuestionError, match="budget"):
            engine.decide(STATES[0], PARSED, budget=1, readout="labels")


def check_wrong_options_come_first(engine: DecisionEngine) -> None:
    engine.release()
    with pytest.raises(UnsupportedError):
        engine.decide(STATES[0], PARSED, readout="vibes")
    assert not engine.prefill(STATES[0]).kept


@pytest.mark.browser
def test_wrong_options_cost_no_prefill(native: NativeEngine, page_engine: PageEngine) -> None:
    check_wrong_options_come_first(native)
    check_wrong_options_come_first(page_engine)


def test_no_early_stop_is_no_option_of_other_readouts(native: NativeEngine) -> None:
    done = native.decide(STATES[0], PARSED, readout="text", early_stop=False, prior=None)
    assert done.answers == native.decide(STATES[0], PARSED, readout="text").answers


# -- early stop and priors ------------------------------------------------------------------------------------------


def test_early_stop_leaves_out_what_is_certified(native: NativeEngine) -> None:
    full = native.decide(STATES[0], PARSED, "all", readout="labels", run_tokens=1000)
    early = native.decide(STATES[0], PARSED, "all", readout="labels", run_tokens=1000, early_stop=True)
    used = {key: answer.orderings_used for key, answer in early.answers.items()}
    # Two options are read in both orders and scores in all; of the others one is certified after two of its three.
    assert used == {"queue": 4, "10": 2, "2": 2, "__proto__": 3, "alike": 3, "certain": 2, "mood": 5}
    for key, answer in full.answers.items():
        assert answer.orderings_used == len(PARSED[key].names)
        assert early.answers[key].answer.choice == answer.answer.choice
        if key != "certain":
            probabilities = pytest.approx(answer.answer.probabilities, abs=TOLERANCE)
            assert early.answers[key].answer.probabilities == probabilities
    # The second round starts anew: both rounds together share less.
    assert early.tokens_saved < full.tokens_saved


def test_early_stop_saves_the_orders_that_are_left_out(native: NativeEngine) -> None:
    native.prefill(STATES[0])
    full = native.score(PARSED["certain"], "all", readout="labels")
    early = native.score(PARSED["certain"], "all", readout="labels", early_stop=True)
    assert (early.orderings_used, full.orderings_used) == (2, 3)
    assert early.tokens < full.tokens


def test_content_free_prior_is_the_answer_without_a_text(native: NativeEngine) -> None:
    question = PARSED["queue"]
    native.release()
    native.prefill("N/A")
    flat = native.score(question, readout="labels", prior="content-free")
    assert flat.answer.probabilities == pytest.approx([1 / 4] * 4, abs=1e-6)
    native.prefill(STATES[0])
    first = native.score(question, readout="labels", prior="content-free")
    again = native.score(question, readout="labels", prior="content-free")
    assert first.prior is not None and first.prior.to_dict() == {
        "kind": "content-free",
        "count": 1,
        "applied": True,
    }
    # What is known of blank evidence is kept, and forgotten when the engine is told to.
    assert again.answer == first.answer and again.tokens == first.tokens < flat.tokens
    native.release()
    native.prefill(STATES[0])
    assert native.score(question, readout="labels", prior="content-free").tokens == flat.tokens
    assert native.score(question, readout="labels").prior is None


def test_batch_prior_is_the_mean_over_different_states(native: NativeEngine) -> None:
    native.release()
    question = PARSED["queue"]
    plain = []
    for count, state in enumerate(STATES[:MIN_STATES], 1):
        native.prefill(state)
        plain.append(native.score(question, readout="labels").answer.logits)
        for _ in range(2):
            # A state that was counted counts no more.
            found = native.score(question, readout="labels", prior="batch")
            assert found.prior == Prior("batch", count, count == MIN_STATES)
        right = pytest.approx(plain[-1], abs=1e-9)
        assert (found.answer.logits == right) == (count < MIN_STATES)
    means = [sum(column) / MIN_STATES for column in zip(*plain, strict=True)]
    left = [logit - mean for logit, mean in zip(plain[-1], means, strict=True)]
    assert found.answer.probabilities == pytest.approx(softmax(left), abs=1e-9)
    # Another number of orders is another prior, and so is another question.
    one = native.score(question, 1, readout="labels", prior="batch")
    other = native.score(PARSED["10"], readout="labels", prior="batch")
    assert one.prior == other.prior == Prior("batch", 1, False)
    native.release()
    native.prefill(STATES[0])
    assert native.score(question, readout="labels", prior="batch").prior == Prior("batch", 1, False)


def test_what_is_remembered_of_questions_has_a_bound(native: NativeEngine) -> None:
    native.release()
    native.prefill(STATES[0])
    limit, native._blank_readings.limit = native._blank_readings.limit, 3
    try:
        questions = [Noul(f"Question {i}?") for i in range(5)]
        # All in one call: what is dropped on the way is still there for the call itself.
        first = native.score_all(questions, readout="text")
        again = native.score_all(questions, readout="text")
        assert len(native._blank_readings) == 3
        assert first.answers == again.answers
        assert native.score_all(questions[-3:], readout="text").runs == 1
        assert native.score_all(questions[:1], readout="text").runs == 2
    finally:
        native._blank_readings.limit = limit


def test_wire_form_of_the_vectors_is_that_of_the_page() -> None:
    assert parse_questions({key: to_wire(question) for key, question in PARSED.items()}) == PARSED
