"""The engine in headless Chromium: candidates, self-test, exactness against native, and what happens when things break.

WebGPU runs on the software adapter, whose subgroup size of 4 is where GroupQueryAttention is silently wrong.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from typedecide.errors import (
    AbortedError,
    BundleError,
    IntegrityError,
    InvalidQuestionError,
    InvalidStateError,
    TooLongError,
    UnsupportedError,
)
from typedecide.native import NativeEngine
from typedecide.page import PageEngine
from typedecide.questions import Choice, Noul, Question, Score
from typedecide.results import Scored

pytestmark = pytest.mark.browser

STATE = "My card was charged twice for order 4412, and nobody has answered me for four days. I want it back today."
QUESTIONS: tuple[Question, ...] = (
    Choice("Which team should handle this?", ["billing", "shipping", "technical support"]),
    Noul("Is the customer angry?"),
    Score("How urgent is it?", ["not at all", "somewhat", "very"]),
)


def largest_drift(engine: PageEngine, native: NativeEngine, state: str = STATE) -> float:
    """Largest probability difference to native: from the prefilled state, and from one full prompt."""
    engine.prefill(state)
    native.prefill(state)
    worst = 0.0
    for question in QUESTIONS:
        worst = max(
            worst,
            difference(
                engine.score(question, 1, readout="labels"), native.score(question, 1, readout="labels")
            ),
        )
    full = engine.score_full(state, QUESTIONS[1])
    return max(worst, difference(full, native.score(QUESTIONS[1], 1, readout="labels")))


def difference(found: Scored, right: Scored) -> float:
    """Largest probability difference of two answers."""
    pairs = zip(found.answer.probabilities, right.answer.probabilities, strict=True)
    return max(abs(a - b) for a, b in pairs)


def copy_bundle(source: Path, target: Path, edit: Callable[[dict[str, Any]], None] | None = None) -> Path:
    """A bundle with an edited manifest; big files are links, so never write into them."""
    shutil.copytree(source, target, copy_function=os.link)
    (target / "manifest.json").unlink()
    manifest = json.loads((source / "manifest.json").read_text("utf-8"))
    if edit:
        edit(manifest)
    (target / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    return target


def plant_wrong_golden(manifest: dict[str, Any]) -> None:
    """One golden logit that no right engine computes."""
    manifest["formats"]["fp32"]["golden"][0]["logits"][0][0] += 0.5


@pytest.fixture(scope="module")
def wasm(dist_fp32_4l: Path) -> Iterator[PageEngine]:
    """The cut-down model on WASM."""
    with PageEngine(dist_fp32_4l, "wasm") as engine:
        yield engine


def test_software_webgpu_rejects_plain_gqa_and_is_right(dist_fp32_4l: Path) -> None:
    with PageEngine(dist_fp32_4l, "webgpu") as engine, NativeEngine(dist_fp32_4l) as native:
        first, second, third = engine.info["selfTest"]
        assert (first["candidate"], first["verdict"]) == ("webgpu-gqa", "rejected")
        assert first["maxError"] > 0.1
        assert (second["candidate"], second["verdict"]) == ("webgpu-gqa-nosubgroups", "chosen")
        assert third["verdict"] == "not tried"
        assert engine.info["candidate"] == "webgpu-gqa-nosubgroups" and "rejected" in engine.info["reason"]
        # 250 tokens: the suffix needs more slots than were allocated, so the buffers grow under the prefix.
        long = (STATE + " ") * 9
        drifts = [largest_drift(engine, native), largest_drift(engine, native, long[:1000])]
        print(f"webgpu-gqa rejected with logit error {first['maxError']:.2f}; chosen one drifts {drifts}")
        assert max(drifts) <= 1e-5


def test_explicit_attention_on_webgpu_is_right(dist_fp32_4l: Path) -> None:
    with (
        PageEngine(dist_fp32_4l, "webgpu", candidates=["webgpu-explicit"]) as engine,
        NativeEngine(dist_fp32_4l, variant="gqa") as native,
    ):
        drift = largest_drift(engine, native)
        print(f"explicit attention on WebGPU against GQA natively: {drift:.1e}")
        assert drift <= 1e-5


def test_whole_default_model_on_software_webgpu(dist: Path) -> None:
    state = "The parcel arrived four days late and the lamp in it is broken. I would like a new one before Friday."
    with (
        PageEngine(dist, "webgpu", candidates=["webgpu-gqa-nosubgroups"]) as engine,
        NativeEngine(dist) as native,
    ):
        tokens = engine.prefill(state).tokens
        native.prefill(state)
        # The constant head and about 25 tokens of the text itself.
        assert 30 <= tokens <= 60
        worst = 0.0
        for question in QUESTIONS[:2]:
            worst = max(
                worst,
                difference(
                    engine.score(question, 1, readout="labels"), native.score(question, 1, readout="labels")
                ),
            )
        print(f"whole model on software WebGPU, {tokens} cached tokens: drift {worst:.1e}")
        assert worst <= 1e-4


def test_wasm_is_right(dist: Path) -> None:
    with PageEngine(dist) as engine, NativeEngine(dist) as native:
        assert engine.info["device"] == "wasm" and engine.info["candidate"] == "wasm"
        drift = largest_drift(engine, native)
        print(f"default bundle on WASM against native: {drift:.1e}")
        assert drift <= 1e-5


def test_wrong_golden_value_moves_on_and_none_left_is_a_clear_error(
    dist_fp32_4l: Path, tmp_path: Path
) -> None:
    broken = copy_bundle(dist_fp32_4l, tmp_path / "broken", plant_wrong_golden)
    with pytest.raises(UnsupportedError, match="no way to run the model is left") as caught:
        PageEngine(broken, "webgpu", candidates=["webgpu-explicit", "wasm"])
    trials = caught.value.data["selfTest"]
    assert [(t["candidate"], t["verdict"]) for t in trials] == [
        ("webgpu-explicit", "rejected"),
        ("wasm", "rejected"),
    ]
    assert all(0.49 < t["maxError"] < 0.51 for t in trials)


def test_wrong_golden_pointer_score_is_seen(dist_pointer: Path, tmp_path: Path) -> None:
    def plant(manifest: dict[str, Any]) -> None:
        (of_pointer,) = (
            case
            for case in manifest["formats"]["fp32"]["golden"]
            if any("branches" in one for one in case["suffixes"])
        )
        assert len(of_pointer["logits"][0]) == 3
        of_pointer["logits"][0][1] += 0.25

    broken = copy_bundle(dist_pointer, tmp_path / "broken", plant)
    with pytest.raises(UnsupportedError, match="no way to run the model is left") as caught:
        PageEngine(broken, "wasm")
    (trial,) = caught.value.data["selfTest"]
    assert trial["verdict"] == "rejected" and 0.24 < trial["maxError"] < 0.26


def test_planted_mask_error_is_seen(dist_pointer: Path, tmp_path: Path) -> None:
    broken = copy_bundle(dist_pointer, tmp_path / "broken")
    code = (broken / "packing.js").read_text("utf-8")
    # Suffixes of a packed run then see those before them, and themselves ahead.
    right = "mask.fill(hidden, row + past, row + width)"
    assert code.count(right) == 1
    (broken / "packing.js").unlink()
    (broken / "packing.js").write_text(code.replace(right, "mask.fill(hidden, row, row)"), "utf-8")
    with pytest.raises(UnsupportedError, match="wrong numbers") as caught:
        PageEngine(broken, "wasm")
    (trial,) = caught.value.data["selfTest"]
    assert trial["verdict"] == "rejected" and trial["maxError"] > 1e-3


@pytest.mark.parametrize("candidate", ["webgpu-gqa-nosubgroups", "webgpu-explicit"])
def test_pointer_on_webgpu_is_right(dist_pointer: Path, candidate: str) -> None:
    questions = [
        Choice("Which team?", {"billing": "payments", "accounts": "", "deliveries": "parcels and couriers"}),
        Noul("Is the customer angry?"),
    ]
    with (
        PageEngine(dist_pointer, "webgpu", candidates=[candidate]) as engine,
        NativeEngine(dist_pointer) as native,
    ):
        for one in (engine, native):
            one.prefill("I was charged twice for one parcel.")
        pairs = zip(
            engine.score_all(questions, readout="pointer").answers,
            native.score_all(questions, readout="pointer").answers,
            strict=True,
        )
        drift = max(
            abs(a - b)
            for found, wanted in pairs
            for a, b in zip(found.answer.probabilities, wanted.answer.probabilities, strict=True)
        )
        print(f"pointer on {candidate} against native: {drift:.1e}")
        assert drift <= 1e-5


def test_graph_that_does_not_load_moves_on(dist_fp32_4l: Path, tmp_path: Path) -> None:
    def swap(manifest: dict[str, Any]) -> None:
        # A real, hash-checked file that is no graph.
        manifest["formats"]["fp32"]["graphs"]["gqa"] = "model/tokenizer.json"

    broken = copy_bundle(dist_fp32_4l, tmp_path / "broken", swap)
    with PageEngine(broken, "webgpu", candidates=["webgpu-gqa-nosubgroups", "wasm"]) as engine:
        first, second = engine.info["selfTest"]
        assert first["verdict"] == "rejected" and first["reason"].startswith("failed: ")
        assert second["verdict"] == "chosen" and engine.info["device"] == "wasm"


def test_without_webgpu_auto_says_why_it_takes_wasm(wasm: PageEngine, dist_fp32_4l: Path) -> None:
    with PageEngine(dist_fp32_4l, "auto", software=False) as engine:
        verdicts = [(t["candidate"], t["verdict"]) for t in engine.info["selfTest"]]
    assert verdicts[-1] == ("wasm", "chosen")
    assert all(verdict == "unavailable" for _, verdict in verdicts[:-1])


def test_software_adapter_is_passed_over_by_auto(dist_fp32_4l: Path) -> None:
    with PageEngine(dist_fp32_4l, "auto", software=True) as engine:
        assert engine.info["candidate"] == "wasm"
        assert "software" in engine.info["selfTest"][0]["reason"]


def test_changed_byte_is_an_integrity_error(dist_fp32_4l: Path, tmp_path: Path) -> None:
    broken = copy_bundle(dist_fp32_4l, tmp_path / "broken")
    shard = broken / "model" / "weights-fp32-0.bin.001"
    data = bytearray(shard.read_bytes())
    data[1234] ^= 1
    shard.unlink()
    shard.write_bytes(data)
    with pytest.raises(IntegrityError) as caught:
        PageEngine(broken, "wasm")
    assert caught.value.data["path"] == "model/weights-fp32-0.bin.001"
    assert caught.value.data["what"] == "sha256"


def test_missing_file_is_a_bundle_error(dist_fp32_4l: Path, tmp_path: Path) -> None:
    broken = copy_bundle(dist_fp32_4l, tmp_path / "broken")
    (broken / "model" / "tokenizer.json").unlink()
    with pytest.raises(BundleError, match="HTTP 404") as caught:
        PageEngine(broken, "wasm")
    assert caught.value.data["status"] == 404


@pytest.mark.parametrize(
    ("options", "offending"),
    [({"candidates": ["webgpu-fast"]}, "webgpu-fast"), ({"threads": 0}, "0")],
)
def test_unknown_options_are_named(dist_fp32_4l: Path, options: dict[str, Any], offending: str) -> None:
    with pytest.raises(UnsupportedError, match=offending):
        PageEngine(dist_fp32_4l, "wasm", **options)


def test_text_that_does_not_fit_gives_both_lengths(wasm: PageEngine) -> None:
    wasm.prefill(STATE)
    before = wasm.score(QUESTIONS[0], 1, readout="labels").answer.probabilities
    with pytest.raises(TooLongError) as caught:
        wasm.prefill("word " * 9000)
    assert caught.value.limit == 8192 and caught.value.tokens > 9000
    assert wasm.score(QUESTIONS[0], 1, readout="labels").answer.probabilities == before


def test_bad_input_is_a_typed_error_and_nothing_is_lost(wasm: PageEngine) -> None:
    wasm.prefill(STATE)
    before = wasm.score(QUESTIONS[1], 1, readout="labels").answer.probabilities
    with pytest.raises(InvalidQuestionError) as caught:
        wasm.evaluate("(engine) => engine.score({ type: 'choice', criteria: ['one'] })")
    assert list(caught.value.data["loc"]) == ["criteria"]
    with pytest.raises(InvalidStateError):
        wasm.evaluate("(engine) => engine.prefill(42)")
    assert wasm.score(QUESTIONS[1], 1, readout="labels").answer.probabilities == before


def test_scoring_before_a_prefill_says_what_to_do(dist_fp32_4l: Path) -> None:
    with (
        PageEngine(dist_fp32_4l, "wasm") as engine,
        pytest.raises(InvalidStateError, match="call prefill"),
    ):
        # The self-test prefilled its own golden prefix: that must not count as a state.
        engine.score(QUESTIONS[0], 1, readout="labels")


def test_aborted_prefill_leaves_the_state_before(wasm: PageEngine) -> None:
    wasm.prefill(STATE)
    before = wasm.score(QUESTIONS[0], 1, readout="labels").answer.probabilities
    with pytest.raises(AbortedError):
        wasm.evaluate(
            """async (engine, text) => {
              const controller = new AbortController();
              const running = engine.prefill(text, { signal: controller.signal });
              setTimeout(() => controller.abort(), 100);
              return running;
            }""",
            "many words " * 3500,
        )
    assert wasm.score(QUESTIONS[0], 1, readout="labels").answer.probabilities == before


def test_request_that_waits_can_be_aborted_and_others_go_on(wasm: PageEngine) -> None:
    outcome = wasm.evaluate(
        """async (engine, [state, question]) => {
          const controller = new AbortController();
          const first = engine.prefill(state);
          const waiting = engine.score(question, { signal: controller.signal }).catch((e) => e.code);
          const last = engine.score(question, 1, readout="labels");
          controller.abort();
          return [(await first).tokens, await waiting, (await last).kind];
        }""",
        # Long, and new: it is still being read when the abort arrives, however late that is.
        ["A text that no other test reads. " + STATE * 60, {"type": "noul", "instructions": "Is it urgent?"}],
    )
    assert outcome[0] > 1000 and outcome[1:] == ["ABORTED", "noul"]


def test_closing_rejects_what_is_under_way(dist_fp32_4l: Path) -> None:
    with PageEngine(dist_fp32_4l, "wasm") as engine:
        codes = engine.evaluate(
            """async (engine, text) => {
              const running = engine.prefill(text).catch((e) => e.code);
              engine.close();
              return [await running, await engine.prefill(text).catch((e) => e.code)];
            }""",
            "some words " * 500,
        )
    assert codes == ["ABORTED", "ABORTED"]


def test_lost_device_is_replaced(dist_pointer: Path) -> None:
    with PageEngine(dist_pointer, "webgpu", candidates=["webgpu-explicit"]) as engine:
        engine.prefill(STATE[:40])
        before = engine.score(QUESTIONS[1], 1, readout="labels").answer.probabilities
        browser = engine._page.context.browser
        assert browser is not None
        engine._call(lambda: browser.new_browser_cdp_session().send("Browser.crashGpuProcess"))
        # The text that was read is read again.
        after = engine.score(QUESTIONS[1], 1, readout="labels").answer.probabilities
        assert after == pytest.approx(before, abs=1e-6)


def test_prefix_reuse_on_wasm_is_bit_exact(wasm: PageEngine) -> None:
    # Prefixes of every length modulo 4: the kernels sum four positions at a time.
    lengths = set()
    for words in range(6):
        state = STATE + " again" * words
        lengths.add(wasm.prefill(state).tokens % 4)
        for question in QUESTIONS:
            shared, full = (
                wasm.score(question, 1, readout="labels").answer.logits,
                wasm.score_full(state, question).answer.logits,
            )
            assert shared == full
    assert lengths == {0, 1, 2, 3}
