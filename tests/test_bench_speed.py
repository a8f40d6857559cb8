"""The benchmarks of shallow prefill on a tiny model and on figures by hand: what they compare, count and decide."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import common, depths, gate, shallow_quality, speed
from bench.__main__ import main
from bench.cost_model import CostModel
from bench.shallow_quality import Depth
from pybuild import bundle as bundles
from pybuild import shallow
from pybuild.__main__ import main as pybuild_main
from pybuild.artifacts import ModelBuild
from pybuild.progress import Steps
from pybuild.sources import load_source
from tests.test_bench import check_result
from typedecide.bundle import Bundle
from typedecide.errors import UnsupportedError
from typedecide.evaluation import Decision, Log
from typedecide.labelled import Labelled
from typedecide.native import NativeEngine
from typedecide.questions import Choice, Noul, Question

ROW = {
    "prefix_tokens", "k", "layers", "anchor", "first_answer_ms", "all_answers_ms", "prefill_ms", "ms_per_question",
    "suffix_tokens", "cache_bytes", "ratio", "predicted", "predicted_ratio", "ms",
}  # fmt: skip

TINY = str(common.BUNDLES / "tiny-pointer-model")

DECODER = CostModel(hidden=576, queries=576, keys=192, ff=1536, layers=30)
"""The default model."""

QUESTIONS: dict[str, Question] = {
    "queue": Choice("Which team?", ["billing", "accounts", "other"]),
    "refund": Noul("Does the customer ask for money back?"),
}


# -- time -----------------------------------------------------------------------------------------------------------


def run_speed(path: Path, *arguments: str) -> Any:
    given = ["speed", "--quick", "--model", TINY, "--format", "fp32", "--json", str(path), *arguments]
    assert main(given) == 0
    return json.loads(path.read_text("utf-8"))


def check_rows(result: Any, ks: Sequence[int], prefixes: Sequence[int]) -> None:
    rows = result["rows"]
    assert [(row["prefix_tokens"], row["k"]) for row in rows] == [(p, k) for p in prefixes for k in ks]
    for row in rows:
        assert set(row) == ROW and row["layers"] == ks[-1]
        times = row["ms"]
        assert {len(times[part]) for part in times} == {result["rounds"]}
        first = [before + own for before, own in zip(times["prefill"], times["first"], strict=True)]
        assert row["first_answer_ms"] == statistics.median(first) > 0
        assert row["suffix_tokens"]["all"] > row["suffix_tokens"]["first"] > 0
        assert row["cache_bytes"] == row["predicted"]["cache"]
        assert row["ratio"]["cache"] == pytest.approx(row["predicted_ratio"]["cache"])
        if row["k"] == ks[-1]:
            assert row["anchor"] is None
            assert set(row["ratio"].values()) == set(row["predicted_ratio"].values()) == {1}
        else:
            assert row["anchor"] == "instruction"
            assert all(ratio > 1 for ratio in row["predicted_ratio"].values())


@pytest.mark.browser
@pytest.mark.usefixtures("dist_pointer")
def test_time_in_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results" / "speed.json"
    result = run_speed(path, "--k", "2", "--prefix", "128", "--rounds", "2")
    check_result(result)
    check_rows(result, [2, 3], [128])
    assert (result["device"], result["layers"], result["criteria"]) == ("wasm", 3, 11)
    printed = capsys.readouterr()
    assert "measured, foretold" in printed.out and "speed: 4 of 4" in printed.err
    drawing = path.with_suffix(".svg")
    first = drawing.read_bytes()
    assert first.startswith(b"<?xml")
    speed.plot(result, drawing)
    assert drawing.read_bytes() == first


@pytest.mark.usefixtures("dist_pointer")
@pytest.mark.parametrize("arguments", ([], ["--in-turn"]))
def test_time_natively(tmp_path: Path, arguments: list[str]) -> None:
    result = run_speed(
        tmp_path / "speed.json", "--device", "native", "--prefix", "128", "300", "--rounds", "1", *arguments
    )
    check_result(result)
    check_rows(result, [2, 3], [128, 300])


def test_one_engine_at_a_time(dist_pointer: Path) -> None:
    opened: list[NativeEngine] = []

    def open_engine(_: int) -> NativeEngine:
        opened.append(NativeEngine(dist_pointer))
        return opened[-1]

    with speed.Engines(open_engine, in_turn=True) as engines:
        assert [*engines.order([1, 2], [3, 4])] == [(1, 3), (2, 3), (1, 4), (2, 4)]
        assert engines[3] is engines[3]
        assert engines[4] is not opened[0] and opened[0].model._session is None
    with speed.Engines(open_engine) as engines:
        assert [*engines.order([1, 2], [3, 4])] == [(1, 3), (1, 4), (2, 3), (2, 4)]
        assert engines[3] is engines[3] is not engines[4] and opened[2].model._session is not None
    assert len(opened) == 4 and all(one.model._session is None for one in opened)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["speed", "--k", "4"], "--k 4"),
        (["speed", "--k", "3", "--prefix", "3"], "--prefix 3"),
        (["speed", "--bundle", "dist"], "--bundle dist"),
        (["shallow_quality", "--k", "0", "--suite", "valid"], "--k 0"),
    ],
)
@pytest.mark.usefixtures("dist_pointer")
def test_arguments_that_do_not_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    monkeypatch.setitem(shallow_quality.SUITES, "valid", lambda limit, seed: records(limit))
    assert main([*arguments, "--quick", "--model", TINY, "--format", "fp32"]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("tokens", (64, 128, 1024))
def test_texts_have_the_length_asked_for(dist_pointer: Path, tokens: int) -> None:
    state, _ = common.read_sample(dist_pointer)
    with NativeEngine(dist_pointer) as engine:
        assert engine.prefill(speed.text_of(dist_pointer, state, tokens)).tokens == tokens


def test_costs_by_hand() -> None:
    assert DECODER.layer_weights == 3_538_944
    # One token through one layer: its products, and itself seen: scores and values of 576 each.
    assert DECODER.prefill(1, 1) == 2 * 3_538_944 + 2 * 2 * 576
    # The second token sees two.
    assert DECODER.prefill(2, 1) - DECODER.prefill(1, 1) == 2 * 3_538_944 + 2 * 2 * 2 * 576
    assert DECODER.prefill(500, 22) * 30 == DECODER.prefill(500, 30) * 22
    assert DECODER.prefill(500, 30, base=100) == DECODER.prefill(500, 30) - DECODER.prefill(100, 30)
    # 11 suffixes of 45 tokens behind 500: 238 billion with all layers.
    whole, cut = (DECODER.prefill(500, k) + DECODER.suffixes([45] * 11, 500, k, anchor=0) for k in (30, 22))
    assert (round(whole / 1e9), round(cut / 1e9)) == (238, 203)
    own = 2 * 3_538_944 * 2 + 2 * 576 * 2 * 3
    assert DECODER.suffixes([2], 100, 22, anchor=5) == 30 * own + 4 * 576 * 2 * (22 * 100 + 8 * 5)
    assert DECODER.suffixes([2, 2], 100, 30, 5) == 2 * (30 * own + 4 * 576 * 2 * 3000)
    assert DECODER.cache_bytes(500, 30, 0) == 2 * 192 * 4 * 30 * 500
    assert DECODER.cache_bytes(500, 22, 10) == 2 * 192 * 4 * (22 * 500 + 8 * 10)


def test_the_sizes_come_from_the_manifest(dist_fp32_4l: Path) -> None:
    assert CostModel.of(Bundle.open(dist_fp32_4l).model) == replace(DECODER, layers=4)


# -- quality --------------------------------------------------------------------------------------------------------


def records(count: int = 3) -> list[Labelled]:
    gold = {"queue": "billing", "refund": "yes"}
    return [Labelled(f"Order {number} is late.", QUESTIONS, gold, task="late") for number in range(count)]


@pytest.fixture(scope="module")
def quality(dist_pointer: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("quality") / "quality.json"
    arguments = ["shallow_quality", "--model", TINY, "--k", "2", "--suite", "valid", "--limit", "3"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(shallow_quality.SUITES, "valid", lambda limit, seed: records(limit))
        log = path.with_name("log.jsonl")
        for _ in range(2):
            assert main([*arguments, "--json", str(path), "--resume", str(log)]) == 0
            lines = log.read_bytes().count(b"\n")
            found = json.loads(path.read_text("utf-8"))
            found["log"] = [*found.get("log", []), lines]
    drawing = path.with_suffix(".svg")
    first = drawing.read_bytes()
    shallow_quality.plot(found, drawing)
    assert drawing.read_bytes() == first and first.startswith(b"<?xml")
    return found


def test_quality_of_every_depth_and_anchor(quality: Any) -> None:
    print(shallow_quality.summarise(quality))
    check_result(quality)
    forms = [(row["k"], row["anchor"]) for row in quality["rows"]]
    assert forms == [(2, "none"), (2, "bos"), (2, "instruction"), (3, None)]
    for row in quality["rows"]:
        assert (row["n"], row["texts"], row["layers"]) == (6, 3, 3)
        for name, ends in row["intervals"].items():
            assert ends[0] <= ends[1], name
        assert row["accuracy_loss"] == pytest.approx(row["whole"]["accuracy"] - row["accuracy"])
        assert row["nll_loss"] == pytest.approx(row["nll"] - row["whole"]["nll"])
    *cut, whole = quality["rows"]
    assert (whole["effect_error"], whole["kl"], whole["agreement"], whole["accuracy_loss"]) == (0, 0, 1, 0)
    errors = [row["effect_error"] for row in cut]
    assert min(errors) > 1e-6 and min(row["kl"] for row in cut) > 0
    assert len({*errors}) == len(errors), "each anchor is another model"


def test_another_anchor_is_another_model(dist_pointer_shallow: Path) -> None:
    other = depths.with_anchor(dist_pointer_shallow, "none")
    for folder, anchor in ((dist_pointer_shallow, "instruction"), (other, "none")):
        found = Bundle.open(folder).shallow
        assert found is not None and (found.k, found.anchor) == (2, anchor)


def decision(text: int, logits: Sequence[float], hidden: Sequence[float], gold: int = 0) -> Decision:
    names = tuple("abc"[: len(logits)])
    fixed: dict[str, Any] = dict.fromkeys(("family", "domain", "split"), "")
    return Decision(
        text=text, task="t", kind="choice", names=names, gold=gold, logits=tuple(logits), hidden=tuple(hidden),
        backwards=None, whole=None, between_orders=0, baselines={}, **fixed,
    )  # fmt: skip


def test_figures_by_hand() -> None:
    whole = [decision(0, [3.0, 1.0], [0.0, 0.0]), decision(1, [0.0, 2.0], [1.0, 1.0])]
    # The effects are (1, -1) and (-1, 1): a constant added to all logits is none.
    assert shallow_quality.effect(whole[0]) == [1, -1] and shallow_quality.effect(whole[1]) == [-1, 1]
    found = [decision(0, [9.0, 7.0], [5.0, 5.0]), decision(1, [3.0, 2.0], [1.0, 1.0])]
    assert shallow_quality.effect(found[1]) == [0.5, -0.5]
    row = shallow_quality.row(Depth(2, "bos"), 3, found, whole)
    assert row["effect_error"] == pytest.approx((1.5**2 + 1.5**2) / 4)
    assert row["intervals"]["effect_error"] == pytest.approx([0, 2.25])
    assert row["agreement"] == 0.5 and row["intervals"]["agreement"] == (0, 1)
    assert (row["accuracy"], row["whole"]["accuracy"], row["accuracy_loss"]) == (1, 0.5, -0.5)
    assert row["kl"] == pytest.approx(shallow_quality.divergence([0.0, 2.0], [3.0, 2.0]) / 2)
    assert row["hidden_evidence_accuracy"] == 0.5


def test_divergence_by_hand() -> None:
    assert shallow_quality.divergence([0.0, 0.0], [1.0986122886681098, 0.0]) == pytest.approx(0.1438410362)


def test_other_decisions_are_no_pairs() -> None:
    with pytest.raises(ValueError, match="texts 1 and 0"):
        shallow_quality.compared([decision(1, [0, 0], [0, 0])], [decision(0, [0, 0], [0, 0])])


def test_evidence_without_effect_has_no_error() -> None:
    same = [decision(0, [1.0, 1.0], [1.0, 1.0])]
    row = shallow_quality.row(Depth(2, "bos"), 3, same, same)
    assert row["effect_error"] is None and row["intervals"]["effect_error"] is None


def test_what_is_slow_is_left_out(dist_pointer: Path) -> None:
    with NativeEngine(dist_pointer, calibration=False) as engine:
        found = shallow_quality.answer(engine, records(), Log(None), "tiny")
    assert len(found.decisions) == 6
    assert all(one.backwards is None and one.whole is None for one in found.decisions)


# -- the gate -------------------------------------------------------------------------------------------------------


def form(
    k: int, anchor: str | None, error: float = 0.02, loss: float = 0.005, same: float = 0.99
) -> dict[str, Any]:
    """A row whose intervals end there."""
    intervals = {"effect_error": [0, error], "accuracy_loss": [-0.01, loss], "agreement": [same, 1]}
    points = {name: 0.5 for name in gate.KEPT}
    return {
        **points,
        "k": k,
        "anchor": anchor,
        "n": 300,
        "texts": 300,
        "agreement": 0.995,
        "intervals": intervals,
    }


WHOLE = form(30, None, 0, 0, 1)


def document(*rows: dict[str, Any], **other: Any) -> dict[str, Any]:
    return {
        "benchmark": "shallow_quality", "suite": "heldout", "model": "some-model", "origin": "folder x", "layers": 30,
        "reference": "some-model", "readout": "pointer", "format": "fp32", "limit": 20, "seed": 0,
        "date": "2026-01-01T00:00:00+00:00", "versions": {}, "command": "…", "rows": [*rows, WHOLE], **other,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "chosen"),
    [
        ([form(22, "bos"), form(19, "bos"), form(26, "bos")], (19, "bos")),
        ([form(15, "bos", error=0.051), form(22, "bos")], (22, "bos")),
        ([form(15, "bos", loss=0.0101), form(22, "bos")], (22, "bos")),
        ([form(15, "bos", same=0.979), form(22, "bos")], (22, "bos")),
        (
            [form(22, "none", error=0.03), form(22, "instruction", error=0.01), form(22, "bos")],
            (22, "instruction"),
        ),
        ([form(15, "bos", 0.05, 0.01, 0.98)], (15, "bos")),
        ([form(22, "bos", error=0.06), form(26, "bos", same=0.9)], None),
        ([{**form(22, "bos"), "texts": gate.LEAST_TEXTS - 1}], None),
        ([], None),
    ],
)
def test_the_gate_decides(rows: list[dict[str, Any]], chosen: tuple[int, str] | None) -> None:
    found = gate.decide(document(*rows))
    assert found["chosen"] == (None if chosen is None else {"k": chosen[0], "anchor": chosen[1]})
    assert len(found["rows"]) == len(rows)
    print(gate.summarise(found))
    assert ("k = 30" in gate.summarise(found)) == (chosen is None)


def test_so_few_texts_show_nothing() -> None:
    assert gate.LEAST_TEXTS == 183
    assert 0.98**gate.LEAST_TEXTS <= 0.025 < 0.98 ** (gate.LEAST_TEXTS - 1)


def test_faults_are_told() -> None:
    bad = {**form(22, "bos", 0.06, 0.02, 0.9), "texts": 12}
    assert gate.faults(bad) == [
        "12 texts, at least 183 are needed",
        "effect error up to 6.0%",
        "accuracy loss up to 2.0 points",
        "agreement down to 90.0%",
    ]
    bad["intervals"]["effect_error"] = None
    assert gate.faults(bad) == ["a figure is not defined"]


@pytest.mark.parametrize("other", ({"suite": "valid"}, {"benchmark": "speed"}))
def test_only_held_out_texts_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], other: dict[str, str]
) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document(form(22, "bos"), **other)), "utf-8")
    assert gate.main([str(path), "--out", str(tmp_path / "out.json")]) == 2
    assert "held-out" in capsys.readouterr().err and not (tmp_path / "out.json").exists()


# -- what a bundle takes of it --------------------------------------------------------------------------------------


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of `models`."""
    monkeypatch.setattr(shallow, "MODELS", tmp_path)
    (tmp_path / "tiny-pointer-model").mkdir()
    return tmp_path / "tiny-pointer-model" / shallow.FILE


def decided(bundle: Path, path: Path, *rows: dict[str, Any]) -> None:
    """Let the gate decide about the tiny model."""
    model = Bundle.open(bundle).model
    result = document(*rows, model=model["name"], origin=model["origin"], layers=3)
    results = path.with_name("results.json")
    results.write_text(json.dumps(result), "utf-8")
    assert gate.main([str(results)]) == 0 and path.is_file()


def depth(given: Any, anchor: str | None = None) -> tuple[int | None, str, float | None]:
    """Layers, anchor and agreement of a bundle of the tiny model that is built with these."""
    return bundles._depth(load_source(TINY), given, anchor)


def test_a_bundle_follows_the_gate(dist_pointer: Path, models: Path, tmp_path: Path) -> None:
    decided(dist_pointer, models, form(2, "instruction"), {**form(1, "bos", error=1), "agreement": 0.25})
    assert depth("auto") == depth(2) == (2, "instruction", 0.995)
    assert depth(2, "bos") == (2, "bos", None) and depth(1, "bos") == (1, "bos", 0.25)
    assert depth(None) == (None, "instruction", None)
    out = bundles.build(tmp_path / "dist", TINY, ("fp32",), quiet=True, shallow="auto")
    assert Bundle.open(out).model["shallow"] == {"layers": 2, "anchor": "instruction", "agreement": 0.995}
    found = json.loads(models.read_text("utf-8"))
    shown = Bundle.open(out).manifest["shallow_gate"]
    assert shown == {"suite": "heldout", **{name: found[name] for name in ("limits", "chosen", "rows")}}
    assert shown["chosen"] == {"k": 2, "anchor": "instruction"} and shown["rows"][0]["faults"] == []
    with NativeEngine(out) as engine:
        assert engine.info["shallow"] == {"layers": 3, "k": 2, "anchor": "instruction", "agreement": 0.995}


def test_where_none_passes_all_layers_stay(dist_pointer: Path, models: Path, tmp_path: Path) -> None:
    decided(dist_pointer, models, form(2, "instruction", error=1))
    assert depth("auto")[0] is None
    assert depth(2) == (2, "instruction", 0.995), "who asks for it anyway is told what it costs"
    out = bundles.build(tmp_path / "dist", TINY, ("fp32",), quiet=True, shallow="auto")
    opened = Bundle.open(out)
    assert "shallow" not in opened.model
    shown = opened.manifest["shallow_gate"]
    assert shown["chosen"] is None and shown["rows"][0]["faults"] == ["effect error up to 100.0%"]


def test_new_figures_make_a_new_bundle_of_the_same_model() -> None:
    with Steps(quiet=True) as steps:
        made = [
            ModelBuild(load_source(TINY), None, steps, False, 2, "bos", share) for share in (None, 0.98, 0.99)
        ]
        assert len({one.key for one in made}) == 1
        assert len({bundles._inputs(one, {}, None, False) for one in made}) == 3


def test_auto_needs_the_models_own_figures(dist_pointer: Path, models: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"nobody has measured .*`python -m bench\.gate`"):
        depth("auto")
    decided(dist_pointer, models, form(2, "instruction"))
    found = json.loads(models.read_text("utf-8"))
    models.write_text(json.dumps({**found, "model": {**found["model"], "origin": "another"}}), "utf-8")
    with pytest.raises(UnsupportedError, match="nobody has measured"):
        depth("auto")
    assert depth(2) == (2, "instruction", None)


def test_auto_has_its_own_anchor(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="say --shallow K too"):
        bundles.build(tmp_path / "dist", TINY, ("fp32",), quiet=True, shallow="auto", anchor="bos")


@pytest.mark.parametrize(
    "broken",
    ({}, {"schema": 2}, {"chosen": {"k": 1, "anchor": "bos"}}, {"rows": [{"k": 2}]}, {"model": []}),
)
def test_a_file_that_is_malformed(dist_pointer: Path, models: Path, broken: dict[str, Any]) -> None:
    decided(dist_pointer, models, form(2, "instruction"))
    found = json.loads(models.read_text("utf-8"))
    models.write_text(json.dumps({**found, **broken} if broken else broken), "utf-8")
    with pytest.raises(UnsupportedError, match=r"shallow\.json"):
        depth(2)


@pytest.mark.parametrize("text", ("many", "2.5"))
def test_layers_that_are_no_number(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with pytest.raises(SystemExit):
        pybuild_main(["bundle", "--shallow", text])
    assert f"{text!r} is neither auto nor a number of layers" in capsys.readouterr().err
