"""Shallow prefill: what a shallow model gives packed, one by one, from whole prompts and in batches is the same.

And its upper layers see of a text the anchor alone.

Tiny random models natively, in the page's engine under Node.js, and in the page on WASM and software WebGPU.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Page, expect

from pybuild import verify
from pybuild.adapter import write_adapter
from pybuild.bundle import build as build_bundle
from pybuild.graph import Decoder, UnsupportedModelError, Variant, build
from pybuild.quantize import store
from pybuild.sources import load_source
from tests.conftest import BUNDLES, FIXTURES, ROOT
from tests.test_engine_page import copy_bundle
from tests.test_joined import JOINED, PREFIX, STEM, WithPointer, apart, check_page_engine, open_model
from typedecide import model
from typedecide.batch import Batch, Job, here
from typedecide.batch_tables import open_table
from typedecide.batches import WholePrompts
from typedecide.bundle import Bundle
from typedecide.calibration import Calibration
from typedecide.errors import BundleError, UnsupportedError
from typedecide.journal import Journal
from typedecide.model import HIDDEN, BatchedModel, Cache, Suffix, tree_mask
from typedecide.native import NativeEngine
from typedecide.page import PageEngine
from typedecide.questions import Choice, Noul, Question, Score
from typedecide.results import DecisionEngine
from typedecide.shallow import ANCHORS, Shallow
from typedecide.static_server import StaticServer

LIMIT = 1e-5
K = 2
"""Of three layers."""

VARIANTS: tuple[Variant, ...] = ("gqa", "explicit")

SUFFIXES = (
    Suffix([*STEM, 20, 9], [1, 2, 300]),
    JOINED,
    Suffix([*STEM, 30, 4, 7], reads=[1, 3, 5], targets=[5, 6, 9]),
    Suffix([*STEM, 20, 8, 8], [7, 12]),
)

TEXTS = ("My card was charged twice for order 4412, and nobody has answered me.", "")
QUESTIONS: dict[str, Question] = {
    "team": Choice("Which team?", {"billing": "charges", "shipping": "", "other": None}),
    "angry": Noul("Is the customer angry?"),
    "urgency": Score("How urgent is it?", ["low", "medium", "high"]),
}

Array = NDArray[np.float32]


def whole(suffix: Suffix, prefix: Sequence[int], anchor: int) -> Suffix:
    """The whole prompt of a suffix behind a prefix."""
    reads = None if suffix.reads is None else [len(prefix) + read for read in suffix.reads]
    hidden = (anchor, len(prefix))
    return dataclasses.replace(suffix, ids=[*prefix, *suffix.ids], reads=reads, hidden=hidden)


def furthest(one: Sequence[Array], other: Sequence[Array]) -> float:
    return max(map(apart, one, other))


# -- the graph ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("anchor", (0, 1, 9, len(PREFIX)))
@pytest.mark.parametrize(("k", "format_name"), ((1, "fp32"), (2, "fp32"), (2, "int4")))
def test_packed_is_what_whole_prompts_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: Variant, anchor: int, k: int, format_name: str
) -> None:
    monkeypatch.setattr(model, "CHUNK", 7)  # Some chunks go up, one does in part, and some do not.
    with open_model(tmp_path, variant, format_name, shallow=k) as engine:
        cache = engine.prefill(PREFIX, anchor=anchor)
        base = engine.prefill(PREFIX[: max(anchor, 5)], anchor=anchor)
        packed, totals = engine.score(cache, SUFFIXES)
        behind_base, _ = engine.score(engine.prefill(PREFIX, base, anchor), SUFFIXES)
        single = [engine.score(cache, [one])[0][0] for one in SUFFIXES]
        plain = [engine.score_full(whole(one, PREFIX, anchor)) for one in SUFFIXES]
        deep = [engine.score_full(whole(one, PREFIX, len(PREFIX))) for one in SUFFIXES]
    gaps = [furthest(found, plain) for found in (packed, behind_base, single)]
    print(
        f"{variant} {format_name}, {k} layers, {anchor} tokens: {gaps}, from the deep model {furthest(deep, plain):.2f}"
    )
    assert totals.runs == 1 and totals.saved > 0
    assert max(gaps) <= LIMIT
    assert anchor == len(PREFIX) or furthest(deep, plain) > 0.01


@pytest.mark.parametrize("anchor", (0, 1, 9))
def test_batches_give_what_single_prompts_give(tmp_path: Path, anchor: int) -> None:
    with open_model(tmp_path, shallow=K) as engine:
        asked = [whole(one, PREFIX[:length], anchor) for length in (9, 14, 23) for one in SUFFIXES]
        expected = [engine.score_full(one) for one in asked]
        (tmp_path / "batched").mkdir()
        with open_model(tmp_path / "batched", "batched", shallow=K) as same:
            files = [p for p in (tmp_path / "batched").glob("*.bin")]
            data = {path.name: path.read_bytes() for path in files}
            graph = (tmp_path / "batched" / "graph.onnx").read_bytes()
            with BatchedModel(graph, data, same.shape) as many:
                assert (
                    max(furthest(many.score(asked, budget), expected) for budget in (1, 100, 4096)) <= LIMIT
                )


@pytest.mark.parametrize("variant", VARIANTS)
def test_upper_layers_see_of_a_text_the_anchor_alone(tmp_path: Path, variant: Variant) -> None:
    anchor, length = 5, len(PREFIX)
    with open_model(tmp_path, variant, shallow=K) as engine:
        shallow = engine.prefill(PREFIX, anchor=anchor)
        expected, _ = engine.score(shallow, SUFFIXES[:1])
        # All tokens of the text have been through all layers, those behind the anchor seen by themselves alone.
        mask = tree_mask(0, range(-1, length - 1))
        up = model._Up(range(length), model.hide(mask, anchor, length), True)
        empty = engine._empty()
        _, deep = engine._run(empty, PREFIX, range(length), mask, model._Reads(), True, up)
        assert (shallow.upper, deep.upper) == (anchor, length)

        def score(cache: Cache, hidden: tuple[int, int]) -> Array:
            """The first suffix behind these, where upper layers do not see some of them."""
            ids = list(SUFFIXES[0].ids)
            parents = range(-1, len(ids) - 1)
            above = tree_mask(cache.upper, parents)
            above[..., slice(*hidden)] = HIDDEN
            rows = model._Reads([len(ids) - 1], [*SUFFIXES[0].label_ids])
            positions = range(length, length + len(ids))
            below = tree_mask(length, parents)
            read, _ = engine._run(
                cache, ids, positions, below, rows, False, model._Up(range(len(ids)), above)
            )
            return read["label_logits"][0]

        hidden = (anchor, length)
        right = score(deep, hidden)
        assert apart(right, expected[0]) <= LIMIT
        for place in range(length):
            changed = score(with_noise(deep, place), hidden)
            moved = apart(changed, right)
            assert (moved > 100 * LIMIT) if place < anchor else np.array_equal(changed, right), place
        assert apart(score(deep, (0, 0)), right) > 100 * LIMIT, "a mask that hides nothing is seen"


def with_noise(cache: Cache, place: int) -> Cache:
    """The same with other keys and values of one token in the upper layers."""
    past = dict(cache.past)
    for part in ("key", "value"):
        past[f"past.{K}.{part}"] = past[f"past.{K}.{part}"].copy()
        past[f"past.{K}.{part}"][:, :, place] += 3
    return Cache(past)


def test_a_cache_holds_of_each_layer_what_it_needs(tmp_path: Path) -> None:
    with open_model(tmp_path, shallow=K) as engine:
        base = engine.prefill(PREFIX[:9], anchor=9)
        cache = engine.prefill(PREFIX, base, 9)
        token = engine.shape.token_bytes
    assert [array.shape[2] for array in cache.past.values()] == [23] * 2 * K + [9] * 2
    assert token * 3 == 2 * sum(array[:, :, 0].nbytes for array in base.past.values()) // 2 * K
    assert base.bytes == 9 * token // K * 3 and cache.bytes == 23 * token, "the anchor is the base's"
    assert all(cache.past[f"past.{K}.{part}"] is base.past[f"past.{K}.{part}"] for part in ("key", "value"))


def test_a_base_with_another_anchor_is_refused(tmp_path: Path) -> None:
    with open_model(tmp_path, shallow=K) as engine, pytest.raises(ValueError, match="The anchor is 9 tokens"):
        engine.prefill(PREFIX, engine.prefill(PREFIX[:9], anchor=4), 9)


@pytest.mark.parametrize("variant", (*VARIANTS, "batched"))
def test_all_layers_are_the_plain_graph(tmp_path: Path, variant: Variant) -> None:
    source = load_source(str(FIXTURES / "qwen3"))
    decoder = Decoder.from_config(source.config)
    layout = store(decoder, WithPointer(source.weights, decoder.hidden), "fp32", tmp_path, 64)
    plain = build(decoder, layout, variant)
    assert build(decoder, layout, variant, decoder.layers) == plain
    assert build(decoder, layout, variant, decoder.layers - 1) != plain
    for k in (0, decoder.layers + 1):
        with pytest.raises(UnsupportedModelError, match=f"from 1 to the model's 3 layers, not {k}") as caught:
            build(decoder, layout, variant, k)
        assert caught.value.data == {"value": k}


@pytest.mark.parametrize("anchor", (0, 1, 9))
def test_the_page_engine_agrees(tmp_path: Path, anchor: int) -> None:
    with open_model(tmp_path, shallow=K) as engine:
        check_page_engine(tmp_path, engine, anchor)


# -- bundles --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def anchored(dist_pointer_shallow: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The shallow bundle with each of the anchors; golden cases name their own."""
    return {
        name: with_anchor(dist_pointer_shallow, tmp_path_factory.mktemp("shallow") / name, name)
        for name in ANCHORS
    }


def with_anchor(source: Path, target: Path, anchor: str, agreement: float | None = None) -> Path:
    def edit(manifest: dict[str, Any]) -> None:
        manifest["model"]["shallow"] = Shallow(K, anchor, agreement).spec

    return copy_bundle(source, target, edit)


def largest_gap(
    engine: DecisionEngine, expected: DecisionEngine, readouts: Sequence[str], full: bool = True
) -> float:
    """Of probabilities: packed answers against another engine's whole prompts, and both engines' whole prompts."""
    gaps = []
    for text in TEXTS:
        for readout in readouts:
            orderings = 1 if readout == "labels" else None
            answers = engine.decide(text, QUESTIONS, orderings, readout=readout).answers
            for key, question in QUESTIONS.items():
                right = expected.score_full(text, question, readout)
                found = [answers[key], *([engine.score_full(text, question, readout)] if full else [])]
                gaps += [
                    float(np.abs(np.subtract(one.answer.probabilities, right.answer.probabilities)).max())
                    for one in found
                ]
                assert all(one.shallow == right.shallow is not None for one in found)
    return max(gaps)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("anchor", ANCHORS)
def test_engines_and_whole_prompts_agree(anchored: dict[str, Path], anchor: str, variant: str) -> None:
    with NativeEngine(anchored[anchor], variant=variant) as engine:
        assert largest_gap(engine, engine, ("labels", "text", "pointer"), full=False) <= LIMIT
        head = engine.prompt.head_ids(engine.tokenizer)
        tokens = {"none": 0, "bos": 1, "instruction": len(head)}[anchor]
        state = engine.states.list()[0].cache
        assert (state.upper, engine._head().upper) == (tokens, tokens)
        assert state.bytes == state.length * engine.info["tokenBytes"]
    for readout in ("labels", "text", "pointer"):
        with (
            NativeEngine(anchored[anchor], variant=variant) as engine,
            WholePrompts(Bundle.open(anchored[anchor]), readout=readout) as batches,
        ):
            asked = [(text, question) for text in TEXTS for question in QUESTIONS.values()]
            for (text, question), found in zip(asked, batches.answers(asked), strict=True):
                right = engine.decide(text, {"asked": question}, readout=readout).answers["asked"]
                gap = np.subtract(found.answer.probabilities, right.answer.probabilities)
                assert np.abs(gap).max() <= LIMIT and found.shallow == right.shallow


def test_options_of_the_labels_readout_work_on_top(dist_pointer_shallow: Path) -> None:
    with NativeEngine(dist_pointer_shallow) as engine:
        for options in ({}, {"early_stop": True}, {"prior": "content-free"}, {"run_tokens": 20}):
            answers = engine.decide(TEXTS[0], QUESTIONS, "all", readout="labels", **options).answers
            assert all(one.to_dict()["x_shallow"]["anchor"] == "instruction" for one in answers.values())
        assert engine.prefill(TEXTS[0]).kept


@pytest.mark.browser
@pytest.mark.parametrize("anchor", ANCHORS)
def test_the_page_agrees_on_wasm(anchored: dict[str, Path], anchor: str) -> None:
    with PageEngine(anchored[anchor], "wasm", threads=1) as page, NativeEngine(anchored[anchor]) as native:
        assert largest_gap(page, native, ("labels", "text", "pointer")) <= LIMIT
        assert page.info["shallow"] == native.info["shallow"]
        assert page.info["tokenBytes"] == native.info["tokenBytes"]
        for text in TEXTS:
            native.prefill(text)
        states = page.evaluate("(engine) => engine.states()")
        assert states == [{"tokens": one.cache.length, "bytes": one.bytes} for one in native.states.list()]


@pytest.mark.browser
@pytest.mark.parametrize(
    ("anchor", "candidate"),
    (*((anchor, "webgpu-gqa-nosubgroups") for anchor in ANCHORS), ("instruction", "webgpu-explicit")),
)
def test_the_page_agrees_on_software_webgpu(anchored: dict[str, Path], anchor: str, candidate: str) -> None:
    folder = anchored[anchor]
    with PageEngine(folder, "webgpu", candidates=[candidate]) as page, NativeEngine(folder) as native:
        assert largest_gap(page, native, ("labels", "text", "pointer")) <= LIMIT
        # A second text beside the first: what they share of the upper layers survives runs about either.
        again = page.decide(TEXTS[0], QUESTIONS)
        assert again.prefill.kept
        right = native.decide(TEXTS[0], QUESTIONS).answers
        for key, one in again.answers.items():
            gap = np.subtract(one.answer.probabilities, right[key].answer.probabilities)
            assert np.abs(gap).max() <= LIMIT
        for state in page.evaluate("(engine) => engine.states()"):
            slots = -(-state["tokens"] // 256) * 256
            # The empty text is the head itself, and takes nothing.
            assert state["bytes"] in (0, slots * page.info["tokenBytes"], 2 * slots * page.info["tokenBytes"])


@pytest.mark.browser
def test_four_layers_of_the_default_model_agree() -> None:
    folder = build_bundle(
        BUNDLES / "smollm2-135m-instruct-fp32-4-layers-shallow",
        formats=("fp32",),
        layers=4,
        shallow=2,
        quiet=True,
    )
    with NativeEngine(folder, variant="gqa") as native, PageEngine(folder, "wasm") as page:
        gap = largest_gap(page, native, ("labels", "text"))
    print(f"4 layers, texts through 2: {gap:.1e}")
    assert gap <= LIMIT


def test_verify_passes_and_sees_a_wrong_anchor(dist_pointer_shallow: Path, tmp_path: Path) -> None:
    check = verify.check_golden(Bundle.open(dist_pointer_shallow))
    assert check.failures == []
    cases = Bundle.open(dist_pointer_shallow).format().golden
    assert [case["anchor"] for case in cases] == [0, 36, 1]

    def edit(manifest: dict[str, Any]) -> None:
        for case in manifest["formats"]["fp32"]["golden"]:
            case["anchor"] = 3

    found = verify.check_golden(Bundle.open(copy_bundle(dist_pointer_shallow, tmp_path / "wrong", edit)))
    assert len(found.failures) == 3 * len(cases)


def test_agreement_is_in_every_answer(dist_pointer_shallow: Path, tmp_path: Path) -> None:
    folder = with_anchor(dist_pointer_shallow, tmp_path / "measured", "bos", 0.985)
    with NativeEngine(folder) as engine:
        (answer,) = engine.decide(TEXTS[0], {"a": QUESTIONS["angry"]}).answers.values()
    assert answer.to_dict()["x_shallow"] == {"k": K, "anchor": "bos", "agreement": 0.985}


@pytest.mark.parametrize(
    ("shallow", "field"),
    (
        (3, "shallow"),
        ({"layers": 3, "anchor": "bos"}, "shallow.layers"),
        ({"layers": 0, "anchor": "bos"}, "shallow.layers"),
        ({"layers": 1, "anchor": "first"}, "shallow.anchor"),
        ({"layers": 1, "anchor": "bos", "agreement": 98}, "shallow.agreement"),
    ),
)
def test_a_malformed_manifest_is_named(
    dist_pointer_shallow: Path, tmp_path: Path, shallow: object, field: str
) -> None:
    def edit(manifest: dict[str, Any]) -> None:
        manifest["model"]["shallow"] = shallow

    folder = copy_bundle(dist_pointer_shallow, tmp_path / "malformed", edit)
    with pytest.raises(BundleError) as caught:
        Bundle.open(folder)
    assert caught.value.data["field"] == f"model.{field}"
    script = "import('./web/shallow.js').then(({shallowOf}) => shallowOf(JSON.parse(process.argv[1])))"
    manifest = json.dumps(json.loads((folder / "manifest.json").read_text("utf-8")))
    done = subprocess.run(
        [str(verify.npm.node()), "-e", f"{script}.catch((e) => console.log(e.code, e.data.field))", manifest],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"BUNDLE model.{field}\n"


def test_building_says_what_is_wrong(dist_pointer_shallow: Path, tmp_path: Path) -> None:
    source = str(BUNDLES / "tiny-pointer-model")
    with pytest.raises(UnsupportedModelError, match="not 4"):
        build_bundle(tmp_path / "a", source=source, formats=("fp32",), quiet=True, shallow=4)
    with pytest.raises(UnsupportedError, match="'first'; known: none, bos, instruction"):
        build_bundle(tmp_path / "b", source=source, formats=("fp32",), quiet=True, shallow=2, anchor="first")
    with pytest.raises(UnsupportedError, match="say --shallow K too"):
        build_bundle(tmp_path / "c", source=source, formats=("fp32",), quiet=True, anchor="bos")


def test_a_calibration_of_the_whole_model_is_refused(dist_pointer: Path, dist_pointer_shallow: Path) -> None:
    deep, shallow = (Bundle.open(folder).manifest for folder in (dist_pointer, dist_pointer_shallow))
    document = {
        "schema": 1,
        "model": {name: deep["model"][name] for name in ("name", "origin")},
        "format": "fp32",
        "readout": "pointer",
        "prompt": deep["prompt"],
        "kinds": {},
        "abstain": {"alpha": 0.1, "threshold": 0.5},
    }
    found = Calibration.parse(document)
    found.check(deep, "fp32")
    with pytest.raises(UnsupportedError, match=re.escape("(model.shallow.layers)")):
        found.check(shallow, "fp32")
    own = {**document["model"], "shallow": shallow["model"]["shallow"]}
    Calibration.parse({**document, "model": own}).check(shallow, "fp32")


def test_the_command_line_says_so(dist_pointer_shallow: Path, tmp_path: Path) -> None:
    (tmp_path / "state.txt").write_text(TEXTS[0], "utf-8")
    (tmp_path / "questions.json").write_text('{"a": {"type": "noul", "criteria": "Angry?"}}', "utf-8")
    (tmp_path / "texts.csv").write_text(f'text\n"{TEXTS[0]}"\n', "utf-8")
    told = "shallow: texts go through 2 of 3 layers (anchor: instruction; agreement with the whole model: not"
    files = ["--state", str(tmp_path / "state.txt"), "--questions", str(tmp_path / "questions.json")]
    for command in (["decide", *files, "--device", "native"], ["info"]):
        done = subprocess.run(
            [sys.executable, "-m", "typedecide", *command, "--bundle", str(dist_pointer_shallow)],
            cwd=ROOT,
            env={**os.environ, "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 and told in done.stdout, done.stdout + done.stderr
    questions = {"a": QUESTIONS["angry"]}
    job = Job(dist_pointer_shallow, questions)
    table, out = open_table(tmp_path / "texts.csv", "text"), tmp_path / "out.csv"
    with Journal(tmp_path / "journal") as journal:
        batch = Batch(job, job.plan(), table, out, journal)
        assert len([*batch.run(here(job))]) == 1
        batch.finish()
    (row,) = csv.DictReader(out.read_text("utf-8").splitlines())
    assert json.loads(row["a.x_shallow"]) == {"k": K, "anchor": "instruction", "agreement": None}


def test_the_page_says_so(page: Page, dist_pointer_shallow: Path) -> None:
    with StaticServer(dist_pointer_shallow) as server:
        page.goto(server.url)
        panel = page.locator("details.panel")
        panel.locator("summary").click()
        told = "the text is read by 2 of 3 layers (anchor: instruction); agreement with the whole model: not measured"
        expect(panel).to_contain_text(told, timeout=60_000)


def test_what_was_trained_to_be_shallow_is_built_so(dist_pointer_shallow: Path, tmp_path: Path) -> None:
    facts = {
        "base": str(BUNDLES / "tiny-pointer-model"),
        "rank": 1,
        "alpha": 1,
        "shallow": {"layers": 2, "anchor": "bos"},
    }
    write_adapter(tmp_path / "adapter", {}, None, facts)
    given: dict[str, Any] = {"source": str(tmp_path / "adapter"), "formats": ("fp32",), "quiet": True}
    built = Bundle.open(build_bundle(tmp_path / "dist", **given))
    assert built.model["shallow"] == {"layers": 2, "anchor": "bos"}
    assert build_bundle(tmp_path / "dist", **given, shallow=2, anchor="bos")
    for other in ({"shallow": 1}, {"anchor": "none"}, {"shallow": 2, "anchor": "instruction"}):
        with pytest.raises(UnsupportedError, match="trained to be shallow: 2 layers, anchor bos"):
            build_bundle(tmp_path / "dist", **given, **other)
