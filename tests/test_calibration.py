"""Calibration: how it is fitted, what it does to answers natively and in the page, and that it serves only its own."""

from __future__ import annotations

import doctest
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pybuild.bundle import build
from tests.conftest import BUNDLES
from typedecide import fitting
from typedecide.bundle import Bundle
from typedecide.calibration import Applied, Given
from typedecide.errors import BundleError, UnsupportedError
from typedecide.fitting import Sample, fit, temperature, threshold
from typedecide.inputs import InputError
from typedecide.native import NativeEngine
from typedecide.page import PageEngine
from typedecide.questions import Choice, Noul, Question, Score
from typedecide.readout import softmax
from typedecide.results import Debiased, DecisionEngine

ROOT = Path(__file__).resolve().parents[1]
STATE = "My card was charged twice for order 4412, and nobody has answered me for four days."
QUESTIONS: dict[str, Question] = {
    "queue": Choice("Which team?", ["billing", "shipping", "accounts"]),
    "angry": Noul("Is the customer angry?"),
    "mood": Score("How satisfied?", ["furious", "neutral", "pleased"]),
}


# -- the fit --------------------------------------------------------------------------------------------------------


def planted(count: int, hot: float, seed: int, kind: str = "choice", per_text: int = 2) -> list[Sample]:
    """Answers whose probabilities are right once their logits are divided by `hot`."""
    rng = Random(seed)
    found = []
    for number in range(count):
        logits = tuple(rng.gauss(0, 3) for _ in range(3))
        weights = softmax([logit / hot for logit in logits])
        found.append(Sample(number // per_text, kind, logits, rng.choices(range(3), weights)[0]))
    return found


@pytest.mark.parametrize("hot", (0.4, 1.0, 2.5))
def test_a_planted_temperature_is_found(hot: float) -> None:
    assert temperature(planted(4000, hot, 1)) == pytest.approx(hot, rel=0.08)


def test_temperature_is_the_best_of_a_grid() -> None:
    answers = planted(120, 2.0, 2)

    def nll(by: float) -> float:
        return -sum(math.log(softmax([x / by for x in one.logits])[one.gold]) for one in answers)

    assert nll(temperature(answers)) <= min(nll(0.05 * 1.02**step) for step in range(300)) + 1e-9


def test_no_temperature_where_all_is_right() -> None:
    certain = [Sample(n, "noul", (1.0, 0.0), 0) for n in range(60)]
    assert temperature(certain) == pytest.approx(fitting.COLDEST)


def test_what_helps_is_kept() -> None:
    fitted = fit(planted(600, 2.5, 3), 0.1)
    one = fitted.kinds["choice"]
    assert one["temperature"] == pytest.approx(2.5, rel=0.3) and one["n"] == 400
    assert one["nll_after"] < one["nll_before"] and one["ece_after"] < one["ece_before"]
    assert fitted.left_out.keys() == {"noul", "score"}


def test_what_does_not_help_is_not_kept() -> None:
    tried = [fit(planted(90, 1.0, seed), 0.1).kinds["choice"] for seed in range(8)]
    dropped = [one for one in tried if one["nll_after"] >= one["nll_before"]]
    assert dropped and len(dropped) < len(tried)
    assert all(one["temperature"] == 1 for one in dropped)
    assert all(one["temperature"] != 1 for one in tried if one not in dropped)


def test_a_kind_with_few_answers_or_texts_is_left_out() -> None:
    few = planted(60, 2.0, 4, "noul")
    one_text = [Sample(10_000, "score", (1.0, 0.0, 0.0), 0) for _ in range(200)]
    fitted = fit([*planted(300, 2.0, 5), *few, *one_text], 0.1)
    assert fitted.kinds.keys() == {"choice"}
    assert "50 are needed" in fitted.left_out["noul"]
    assert fitted.left_out["score"]


def test_texts_that_set_the_threshold_do_not_set_temperatures() -> None:
    answers = planted(600, 2.5, 6)
    texts = sorted({one.text for one in answers})
    Random(0).shuffle(texts)
    aside = set(texts[: len(texts) // fitting.THRESHOLD_SHARE])
    wrong = [
        Sample(one.text, one.kind, one.logits, (one.gold + 1) % 3) if one.text in aside else one
        for one in answers
    ]
    assert fit(wrong, 0.1).kinds == fit(answers, 0.1).kinds
    assert fit(wrong, 0.1).abstain != fit(answers, 0.1).abstain


def brute_threshold(answers: list[Sample], alpha: float) -> float:
    """The lowest of all places a threshold can lie that satisfies the rule, tried one by one."""
    texts = sorted({one.text for one in answers})
    for candidate in sorted({0.0, 1.0, *(max(softmax(one.logits)) for one in answers)}):
        losses = 0.0
        for text in texts:
            own = [one for one in answers if one.text == text]
            wrong = [
                one
                for one in own
                if max(p := softmax(one.logits)) > candidate and p.index(max(p)) != one.gold
            ]
            losses += len(wrong) / len(own)
        if (losses + 1) / (len(texts) + 1) <= alpha + 1e-12:
            return candidate
    return 1.0


def test_threshold_is_the_lowest_that_keeps_the_rule() -> None:
    rng = Random(7)
    for seed in range(25):
        answers = planted(rng.randrange(2, 60), 3.0, seed, per_text=rng.randrange(1, 4))
        rounded = [Sample(a.text, a.kind, tuple(round(x) for x in a.logits), a.gold) for a in answers]
        for alpha in (0.05, 0.21, 0.4):
            found = threshold(rounded, {"choice": 1.0}, alpha)
            assert found["threshold"] == brute_threshold(rounded, alpha), (seed, alpha)
            assert found["risk"] <= alpha


def test_few_texts_set_no_threshold() -> None:
    found = threshold(planted(8, 1.0, 8, per_text=1), {"choice": 1.0}, 0.1)
    assert (found["threshold"], found["coverage"], found["error"]) == (1, 0, None)


def test_the_guarantee_holds_on_average() -> None:
    alpha, risks = 0.15, []
    for seed in range(200):
        drawn = planted(80, 3.0, 1000 + seed)
        lowest = threshold(drawn, {"choice": 1.0}, alpha)["threshold"]
        fresh = planted(200, 3.0, 5000 + seed)
        tops = [(softmax(one.logits), one.gold) for one in fresh]
        risks.append(sum(max(p) > lowest and p.index(max(p)) != gold for p, gold in tops) / len(tops))
    risk = sum(risks) / len(risks)
    print(f"answered and wrong: {risk:.3f}, asked for at most {alpha}")
    assert alpha - 0.05 < risk <= alpha + 0.005


def test_examples_in_docstrings() -> None:
    failed, tried = doctest.testmod(fitting)
    assert failed == 0 and tried > 0


# -- engines --------------------------------------------------------------------------------------------------------


def document(bundle: Path, readout: str = "pointer", **changes: Any) -> dict[str, Any]:
    """A calibration for a bundle."""
    manifest = Bundle.open(bundle).manifest
    labels = readout == "labels"
    return {
        "schema": 1,
        "model": {"name": manifest["model"]["name"], "origin": manifest["model"]["origin"]},
        "format": manifest["default_format"],
        "readout": readout,
        "orderings": "auto" if labels else None,
        "budget": 4 if labels else None,
        "prompt": manifest["prompt"],
        "kinds": {"choice": {"temperature": 2.5}, "noul": {"temperature": 1.0}},
        "abstain": {"alpha": 0.1, "threshold": 0.5},
        **changes,
    }


@pytest.fixture(scope="module")
def file(dist_pointer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibration of the tiny model's pointer."""
    path = tmp_path_factory.mktemp("calibration") / "calibration.json"
    path.write_text(json.dumps(document(dist_pointer)), "utf-8")
    return path


@pytest.fixture(scope="module")
def dist_calibrated(dist_pointer: Path, file: Path) -> Path:
    """The tiny model, its calibration built in."""
    source = str(BUNDLES / "tiny-pointer-model")
    return build(BUNDLES / "tiny-calibrated", source=source, formats=("fp32",), quiet=True, calibration=file)


@pytest.fixture(scope="module")
def plain(dist_pointer: Path) -> Iterator[NativeEngine]:
    """The tiny model without calibration."""
    with NativeEngine(dist_pointer) as engine:
        yield engine


def ask(engine: DecisionEngine, readout: str = "pointer") -> dict[str, Debiased]:
    return engine.decide(STATE, QUESTIONS, readout=readout).answers


def check_calibrated(found: dict[str, Debiased], raw: dict[str, Debiased]) -> None:
    """The answers are those of the raw logits, divided, and say so."""
    for key, hot in (("queue", 2.5), ("angry", 1.0)):
        wanted = softmax([logit / hot for logit in raw[key].answer.logits])
        assert found[key].answer.probabilities == pytest.approx(wanted, abs=1e-6)
        assert found[key].answer.choice == raw[key].answer.choice
        assert found[key].calibration == Applied(hot, max(found[key].answer.probabilities) <= 0.5)
        assert found[key].to_dict()["calibration"] == {"temperature": hot}
    assert "calibration" not in found["mood"].to_dict() and "abstain" not in found["mood"].to_dict()
    assert found["mood"].answer.probabilities == pytest.approx(raw["mood"].answer.probabilities, abs=1e-6)


def test_no_calibration_says_nothing(plain: NativeEngine) -> None:
    assert plain.info["calibration"] is None
    assert all("calibration" not in one.to_dict() and one.calibration is None for one in ask(plain).values())


def test_given_natively(dist_pointer: Path, file: Path, plain: NativeEngine) -> None:
    raw = ask(plain)
    givens: list[Given] = [file, str(file), document(dist_pointer)]
    for given in givens:
        with NativeEngine(dist_pointer, calibration=given) as engine:
            check_calibrated(ask(engine), raw)
            assert engine.info["calibration"] == {
                "readout": "pointer", "temperatures": {"choice": 2.5, "noul": 1.0}, "alpha": 0.1, "threshold": 0.5
            }  # fmt: skip
            full = engine.score_full(STATE, QUESTIONS["queue"], "pointer")
            assert full.calibration is not None and full.calibration.temperature == 2.5
            assert engine.score_full(STATE, QUESTIONS["queue"], "labels").calibration is None
            with pytest.raises(UnsupportedError, match="is for the pointer readout: ask") as caught:
                ask(engine, "labels")
            assert caught.value.data == {"readout": "labels", "calibrated": "pointer"}


def test_labels_in_their_own_orders_only(dist_pointer: Path, plain: NativeEngine) -> None:
    raw = ask(plain, "labels")
    with NativeEngine(dist_pointer, calibration=document(dist_pointer, "labels")) as engine:
        check_calibrated(ask(engine, "labels"), raw)
        for orderings, options in ((1, {}), (None, {"prior": "content-free"}), (None, {"early_stop": True})):
            with pytest.raises(UnsupportedError, match="its orderings and its budget"):
                engine.decide(STATE, QUESTIONS, orderings, readout="labels", **options)  # type: ignore[arg-type]


def test_the_bundles_own(dist_calibrated: Path, plain: NativeEngine) -> None:
    with NativeEngine(dist_calibrated) as engine:
        check_calibrated(ask(engine), ask(plain))
        assert all(one.calibration is None for one in ask(engine, "labels").values())
    with NativeEngine(dist_calibrated, calibration=False) as engine:
        assert engine.info["calibration"] is None and ask(engine) == ask(plain)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"model": {"name": "tiny-pointer-model", "origin": "elsewhere"}}, "model.origin"),
        ({"format": "int8"}, "format"),
        ({"prompt": {}}, "prompt.bos_ids"),
        ({"kinds": {"noul": {"temperature": 0}}}, "kinds.noul.temperature"),
    ],
)
def test_what_is_not_for_this_model(dist_pointer: Path, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        NativeEngine(dist_pointer, calibration=document(dist_pointer, **changes))
    assert caught.value.data["field"] == field


def test_files_that_are_no_json(dist_pointer: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{", "utf-8")
    for name in ("broken.json", "absent.json"):
        with pytest.raises(InputError, match=name):
            NativeEngine(dist_pointer, calibration=tmp_path / name)


PAGE = """async (engine, { url, calibration, state, questions }) => {
  const { createEngine } = await import(url);
  const outcome = async (given) => {
    const engine = await createEngine({ device: "wasm", calibration: given });
    try {
      const { answers } = await engine.decide({ state, questions: new Map(questions) }, { readout: "pointer" });
      return { facts: engine.info.calibration, answers };
    } finally {
      engine.close();
    }
  };
  const failure = (given) => outcome(given).then(() => null, ({ code, message }) => ({ code, message }));
  return {
    own: await outcome(undefined),
    none: await outcome(false),
    address: await outcome(new URL("given.json", url)),
    content: await outcome(calibration),
    wrong: await failure({ ...calibration, format: "int8" }),
    broken: await failure("broken.json"),
    absent: await failure("nowhere.json"),
  };
}"""


@pytest.mark.browser
def test_in_the_page(dist_calibrated: Path, file: Path, plain: NativeEngine) -> None:
    raw = ask(plain)
    with PageEngine(dist_calibrated, "wasm", calibration=file) as engine:
        check_calibrated(ask(engine), raw)
        with pytest.raises(UnsupportedError, match="is for the pointer readout"):
            ask(engine, "labels")
        given = document(dist_calibrated, kinds={"noul": {"temperature": 3.0}})
        served = {"given.json": json.dumps(given), "broken.json": "{"}
        for name, text in served.items():
            (dist_calibrated / name).write_text(text, "utf-8")
        wires = [["angry", {"type": "noul", "criteria": "Is the customer angry?"}]]
        argument = {
            "url": f"{engine._base}index.js",
            "calibration": given,
            "state": STATE,
            "questions": wires,
        }
        try:
            done = engine.evaluate(PAGE, argument)
        finally:
            for name in served:
                (dist_calibrated / name).unlink()
    temperatures = {
        name: one["answers"]["angry"].get("calibration") for name, one in done.items() if "answers" in one
    }
    three = {"temperature": 3.0}
    assert temperatures == {"own": {"temperature": 1}, "none": None, "address": three, "content": three}
    assert done["none"]["facts"] is None and done["content"]["facts"]["temperatures"] == {"noul": 3}
    assert done["content"]["answers"]["angry"]["abstain"] in (True, False)
    assert [done[name]["code"] for name in ("wrong", "broken", "absent")] == [
        "UNSUPPORTED", "UNSUPPORTED", "BUNDLE"
    ]  # fmt: skip


@pytest.mark.browser
def test_the_bundles_own_in_the_page(dist_calibrated: Path, plain: NativeEngine) -> None:
    with PageEngine(dist_calibrated, "wasm") as engine:
        check_calibrated(ask(engine), ask(plain))
        assert all(one.calibration is None for one in ask(engine, "labels").values())
        full = engine.score_full(STATE, QUESTIONS["queue"], "pointer")
        assert full.calibration is not None and full.calibration.temperature == 2.5


# -- the build ------------------------------------------------------------------------------------------------------


def test_a_bundle_takes_only_its_own(dist_calibrated: Path, tmp_path: Path) -> None:
    assert Bundle.open(dist_calibrated).manifest["calibration"]["readout"] == "pointer"
    source = str(BUNDLES / "tiny-pointer-model")
    for changes, words in (
        ({"format": "int8"}, "this bundle has fp32"),
        ({"model": {"name": "other", "origin": "other"}}, "another model.*--calibration none"),
    ):
        path = tmp_path / "calibration.json"
        path.write_text(json.dumps(document(dist_calibrated, **changes)), "utf-8")
        with pytest.raises(UnsupportedError, match=words):
            build(tmp_path / "dist", source=source, formats=("fp32",), quiet=True, calibration=path)
    assert not (tmp_path / "dist").exists()


def test_a_malformed_one_in_a_manifest(dist_calibrated: Path, tmp_path: Path) -> None:
    manifest = json.loads((dist_calibrated / "manifest.json").read_bytes())
    (tmp_path / "manifest.json").write_text(json.dumps({**manifest, "calibration": []}), "utf-8")
    with pytest.raises(BundleError, match="calibration"):
        Bundle.open(tmp_path)


def test_info_says_what_a_bundle_is_calibrated_for(dist_calibrated: Path, dist_pointer: Path) -> None:
    told = json.loads(run("info", "--bundle", dist_calibrated, "--json").stdout)["calibration"]
    assert (told["readout"], told["format"], told["kinds"].keys()) == ("pointer", "fp32", {"choice", "noul"})
    assert json.loads(run("info", "--bundle", dist_pointer, "--json").stdout)["calibration"] is None


def test_the_models_own_is_the_default(
    dist_pointer: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tiny-pointer-model"
    folder.mkdir()
    (folder / "calibration.json").write_bytes(file.read_bytes())
    monkeypatch.setattr("pybuild.bundle.MODELS", tmp_path)
    source = str(BUNDLES / "tiny-pointer-model")
    taken = build(tmp_path / "taken", source=source, formats=("fp32",), quiet=True)
    assert Bundle.open(taken).manifest["calibration"] == json.loads(file.read_bytes())
    left = build(tmp_path / "left", source=source, formats=("fp32",), quiet=True, calibration=False)
    assert "calibration" not in Bundle.open(left).manifest


# -- the command ----------------------------------------------------------------------------------------------------


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "typedecide", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def write_data(path: Path, texts: int) -> Path:
    """Labelled decisions whose true answers are drawn at random."""
    rng = Random(9)
    questions = {
        "queue": {
            "type": "choice",
            "instructions": "Which team?",
            "criteria": ["billing", "shipping", "other"],
        },
        "angry": {"type": "noul", "criteria": "Is the customer angry?"},
    }
    lines = []
    for number in range(texts):
        gold = {"queue": rng.choice(["billing", "shipping", "other"])}
        gold.update({"angry": rng.choice(["yes", "no"])} if number < 40 else {})
        lines.append(json.dumps({"state": f"Parcel {number} is late.", "questions": questions, "gold": gold}))
    path.write_text("\n".join(lines), "utf-8")
    return path


def test_from_data_to_answers(dist_pointer: Path, tmp_path: Path) -> None:
    data, out = write_data(tmp_path / "data.jsonl", 90), tmp_path / "made.json"
    done = run(
        "calibrate", data, "--bundle", dist_pointer, "--readout", "pointer", "--out", out, "--alpha", "0.6"
    )
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    made = json.loads(out.read_bytes())
    assert (made["schema"], made["readout"], made["format"]) == (1, "pointer", "fp32")
    assert made["kinds"].keys() == {"choice"} and made["kinds"]["choice"]["n"] == 60
    assert made["abstain"]["alpha"] == 0.6 and made["abstain"]["texts"] == 30
    assert "noul: not calibrated" in done.stdout and "score: not calibrated" in done.stdout
    again = run(
        "calibrate", data, "--bundle", dist_pointer, "--readout", "pointer", "--out", out, "--alpha", "0.6", "--json"
    )  # fmt: skip
    assert json.loads(again.stdout) == made == json.loads(out.read_bytes())

    state, questions = tmp_path / "state.txt", tmp_path / "questions.json"
    state.write_text(STATE, "utf-8")
    questions.write_text(json.dumps({"q": {"type": "choice", "criteria": ["billing", "other"]}}), "utf-8")
    common = (
        "decide",
        "--state",
        state,
        "--questions",
        questions,
        "--bundle",
        dist_pointer,
        "--device",
        "native",
    )
    done = run(*common, "--readout", "pointer", "--calibration", out, "--json")
    answer = json.loads(done.stdout)["answers"]["q"]
    assert answer["calibration"] == {"temperature": made["kinds"]["choice"]["temperature"]}
    assert isinstance(answer["abstain"], bool)
    cautious = {**made, "abstain": {**made["abstain"], "threshold": 1}}
    (tmp_path / "cautious.json").write_text(json.dumps(cautious), "utf-8")
    done = run(*common, "--readout", "pointer", "--calibration", tmp_path / "cautious.json")
    assert "calibrated" in done.stdout and "(abstains)" in done.stdout
    done = run(*common, "--readout", "text", "--calibration", out)
    assert (
        (done.returncode, done.stdout) == (2, "") and "made.json" in done.stderr and "pointer" in done.stderr
    )
    done = run(*common, "--readout", "pointer", "--calibration", data)
    assert done.returncode == 2 and "data.jsonl" in done.stderr


def test_too_little_data(dist_pointer: Path, tmp_path: Path) -> None:
    data = write_data(tmp_path / "data.jsonl", 20)
    done = run("calibrate", data, "--bundle", dist_pointer, "--out", tmp_path / "made.json")
    assert done.returncode == 2 and "50 are needed" in done.stderr and not (tmp_path / "made.json").exists()
    done = run("calibrate", data, "--bundle", dist_pointer, "--out", tmp_path / "made.json", "--alpha", "1")
    assert done.returncode == 2 and "'1'" in done.stderr
