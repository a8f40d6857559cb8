"""The shared vectors: up to date, and met by Python and by JavaScript."""

from __future__ import annotations

import doctest
import json
import math
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pybuild import npm
from tests import make_vectors
from typedecide import pointer, prior, readout, recent, systemone, text, wire_json
from typedecide.calibration import Calibration
from typedecide.errors import revive_error
from typedecide.options import Asking
from typedecide.questions import Criterion

ROOT = Path(__file__).parent.parent
FOLDER = make_vectors.FOLDER
NAMED = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def load(name: str) -> Any:
    return json.loads((FOLDER / name).read_text("ascii"))


def stored_encoders() -> dict[str, make_vectors.Encoder]:
    return {name: make_vectors.Encoder(load(f"tokenizer-{name}.json")) for name in ("plain", "crossing")}


def numbers(values: list[Any]) -> list[Any]:
    """Numbers from a vector file, in which those that JSON lacks stand by name."""
    return [NAMED.get(value, value) if isinstance(value, str) else value for value in values]


def assert_outcome(case: dict[str, Any], outcome: dict[str, Any]) -> None:
    wanted = {key: case[key] for key in ("expect", "error") if key in case}
    assert make_vectors.same(wanted, json.loads(json.dumps(outcome))), case["name"]


def test_vectors_are_up_to_date() -> None:
    assert make_vectors.stale_files(FOLDER) == []


def test_check_fails_on_stale_vectors(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "vectors")
    planted = tmp_path / "vectors" / "readout.json"
    document = json.loads(planted.read_text("ascii"))
    document["readouts"][0]["expect"]["confidence"] += 1e-9
    planted.write_text(json.dumps(document), "ascii")
    (tmp_path / "vectors" / "prompt.json").unlink()
    assert make_vectors.stale_files(tmp_path / "vectors") == ["prompt.json", "readout.json"]


def test_vectors_cover_every_error_that_these_modules_raise() -> None:
    text = "".join((FOLDER / name).read_text("ascii") for name in make_vectors.build())
    codes = set(re.findall(r'"code": "([A-Z_]+)"', text))
    assert codes == {
        "ABORTED",
        "DEVICE_LOST",
        "INVALID_QUESTION",
        "INVALID_REQUEST",
        "NEWER",
        "TOO_LONG",
        "INVALID_STATE",
        "PREFIX_MISMATCH",
        "BUNDLE",
        "INTEGRITY",
        "UNSUPPORTED",
    }


@pytest.mark.parametrize("case", load("questions.json")["questions"], ids=lambda case: ascii(case["name"]))
def test_question(case: dict[str, Any]) -> None:
    assert_outcome(case, make_vectors.outcome(make_vectors.question_view, case["input"]))


@pytest.mark.parametrize("case", load("questions.json")["batches"], ids=lambda case: ascii(case["name"]))
def test_batch(case: dict[str, Any]) -> None:
    assert_outcome(case, make_vectors.outcome(make_vectors.batch_view, case["input"]))


def test_prompts() -> None:
    encoders = stored_encoders()
    for case in load("prompt.json")["prompts"]:
        criterion = Criterion(case["criterion"]["text"], tuple(case["criterion"]["options"]))
        encoder = encoders[case["tokenizer"]]
        assert_outcome(
            case, make_vectors.outcome(make_vectors.prompt_view, encoder, case["state"], criterion)
        )


@pytest.mark.parametrize("case", load("prompt.json")["manifests"], ids=lambda case: ascii(case["name"]))
def test_manifest(case: dict[str, Any]) -> None:
    assert_outcome(case, make_vectors.outcome(make_vectors.spec_view, case["manifest"]))


@pytest.mark.parametrize("case", load("pointer.json")["questions"], ids=lambda case: ascii(case["name"]))
def test_pointer_prompt(case: dict[str, Any]) -> None:
    encoder = stored_encoders()[case["tokenizer"]]
    assert_outcome(
        case, make_vectors.outcome(make_vectors.pointer_view, encoder, case["state"], case["question"])
    )


@pytest.mark.parametrize("case", load("pointer.json")["manifests"], ids=lambda case: case["name"])
def test_pointer_templates(case: dict[str, Any]) -> None:
    assert_outcome(case, make_vectors.outcome(make_vectors.pointer_template_view, case["templates"]))


@pytest.mark.parametrize("case", load("pointer.json")["scores"], ids=lambda case: case["name"])
def test_pointer_scores(case: dict[str, Any]) -> None:
    values = numbers(case["projections"])
    assert_outcome(case, make_vectors.outcome(pointer.scores, values, case["options"]))


@pytest.mark.parametrize("case", load("prior.json")["corrections"], ids=lambda case: case["name"])
def test_prior_correction(case: dict[str, Any]) -> None:
    pair = numbers(case["logits"]), numbers(case["prior"])
    assert_outcome(case, make_vectors.outcome(prior.without, *pair))


@pytest.mark.parametrize("case", load("prior.json")["sessions"], ids=lambda case: case["name"])
def test_prior_of_a_session(case: dict[str, Any]) -> None:
    assert_outcome(case, make_vectors.outcome(make_vectors.session_view, case["answers"]))


@pytest.mark.parametrize(
    "module",
    [pointer, prior, recent, readout, text, wire_json],
    ids=lambda module: module.__name__,
)
def test_examples_in_docstrings(module: ModuleType) -> None:
    failed, tried = doctest.testmod(module)
    assert failed == 0 and tried > 0


@pytest.mark.parametrize("case", load("calibration.json")["documents"], ids=lambda case: case["name"])
def test_calibration_document(case: dict[str, Any]) -> None:
    assert_outcome(case, make_vectors.outcome(lambda one: Calibration.parse(one).facts(), case["document"]))


@pytest.mark.parametrize("case", load("calibration.json")["checks"], ids=lambda case: case["name"])
def test_calibration_check(case: dict[str, Any]) -> None:
    one = Calibration.parse(case["document"])
    assert_outcome(case, make_vectors.outcome(one.check, case["manifest"], case["format"]))


@pytest.mark.parametrize("case", load("calibration.json")["askings"], ids=lambda case: case["name"])
def test_calibration_serves(case: dict[str, Any]) -> None:
    assert Calibration.parse(case["document"]).serves(Asking(**case["how"])) is case["expect"]


@pytest.mark.parametrize("case", load("calibration.json")["answers"], ids=lambda case: case["name"])
def test_calibrated_answer(case: dict[str, Any]) -> None:
    inputs = case["document"], case["question"], numbers(case["logits"])
    assert_outcome(case, make_vectors.outcome(make_vectors.calibration_answer_view, *inputs))


@pytest.mark.parametrize("case", load("readout.json")["readouts"], ids=lambda case: ascii(case["name"]))
def test_readout(case: dict[str, Any]) -> None:
    logits = numbers(case["logits"])
    assert_outcome(case, make_vectors.outcome(make_vectors.readout_view, case["question"], logits))


@pytest.mark.parametrize("case", load("systemone.json")["requests"], ids=lambda case: ascii(case["name"]))
def test_systemone_request(case: dict[str, Any]) -> None:
    assert_outcome(case, make_vectors.request_outcome(case["body"]))


@pytest.mark.parametrize("case", load("systemone.json")["answers"], ids=lambda case: case["name"])
def test_systemone_answers(case: dict[str, Any]) -> None:
    assert_outcome(case, make_vectors.outcome(make_vectors.answered_view, case["body"], case["answers"]))


def test_systemone_replies() -> None:
    document = load("systemone.json")
    for case in document["refusals"]:
        reply = systemone.refused(revive_error(case["plain"]))
        assert make_vectors.reply_view(reply) == case["expect"], case["name"]
    for case in document["models"]:
        assert make_vectors.reply_view(systemone.models(case["info"])) == case["expect"], case["name"]
    for case in document["checks"]:
        assert_outcome(case, make_vectors.outcome(make_vectors.model_check_view, case["model"]))


def test_javascript_agrees() -> None:
    command = [str(npm.node()), "--test", "--test-reporter=tap", "tests/js/vectors.test.js"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # The file has to run to its end: no test at all would pass as well.
    assert re.search(r"^# pass 18$", done.stdout, re.M), done.stdout
    assert re.search(r"^# skipped 0$", done.stdout, re.M), done.stdout
