"""Report, README and model card say what bench/results holds, and nothing else."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench import common, figures, report
from pybuild.sources import DEFAULT_MODEL

RESULTS = report.read_results()
ALWAYS = {"README.md", "bench/REPORT.md"}
CARD = f"models/{DEFAULT_MODEL}/README.md"
COST, QUESTIONS, QUALITY = (f"docs/figures/{name}.svg" for name in ("cost", "questions", "quality"))


def test_nothing_is_stale() -> None:
    report.check(RESULTS)
    assert report.main(["--check"]) == 0


def test_every_result_is_told() -> None:
    text = report.report(RESULTS)
    for name, result in RESULTS.items():
        assert f"\n## {name}\n" in text
        if name != report.HELDOUT:
            assert f"$ {result['command']}\n" in text
    for plot in common.RESULTS.glob("*.svg"):
        assert f"(results/{plot.name})" in text


@pytest.mark.parametrize(
    ("path", "value", "files"),
    [
        (
            ("heldout", "totals", 0, "accuracy"),
            0.123,
            {*ALWAYS, CARD, QUALITY},
        ),
        (("packing-wasm-fp32", "rows", 0, "packed_ms"), 123.4, {*ALWAYS, COST, QUESTIONS}),
        (("faults", "rows", 0, "survived"), False, ALWAYS),
        (("packing-wasm-fp32", "max_drift"), 0.123, {"README.md"}),
        (("shared_check-wasm-fp32", "max_drift"), 0.123, {"bench/REPORT.md"}),
    ],
)
def test_another_result_makes_them_stale(path: tuple[str | int, ...], value: Any, files: set[str]) -> None:
    results: Any = copy.deepcopy(dict(RESULTS))
    at = results
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    with pytest.raises(report.StaleError) as caught:
        report.check(results)
    assert set(str(caught.value).split(":")[0].split(", ")) == files


def test_what_is_not_measured_yet_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(figures, "FOLDER", tmp_path)
    kept = {name: RESULTS[name] for name in ("packing-wasm-fp32", "heldout")}
    text = report.report(kept)
    assert "Not measured yet: peers beside ours (`python -m bench peers`);" in text
    assert "Not measured yet: the cost of a question (`python -m bench packing`); peers" in report.report({})
    figures.write(kept)
    assert {path.name for path in tmp_path.iterdir()} == {"cost.svg", "questions.svg", "quality.svg"}
    # What has nothing to show any more goes.
    without = {"heldout": RESULTS["heldout"]}
    assert figures.stale(without) == [tmp_path / "cost.svg", tmp_path / "questions.svg"]
    figures.write(without)
    assert {path.name for path in tmp_path.iterdir()} == {"quality.svg"} and not figures.stale(without)


def test_plots_follow_light_and_dark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(figures, "FOLDER", tmp_path)
    figures.write(RESULTS)
    drawn = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(drawn) == len(figures.FIGURES)
    for path, content in drawn.items():
        text = content.decode()
        assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
        assert "prefers-color-scheme:dark" in text and "var(--ink)" in text and "var(--paper)" in text
        # No colour of the light theme is left where it would be drawn.
        assert text.count("#1f2328") == text.count("#ffffff") == 1
        path.unlink()
    figures.write(RESULTS)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == drawn


def peer(name: str, setting: str, seconds: float, **more: Any) -> dict[str, Any]:
    """A row of the benchmark of peers, with two questions."""
    each = [seconds * 500, seconds * 1000]
    return {
        **{"name": name, "setting": setting, "threads": 2, "reason": None, "each_ms": each},
        **{"all_answers_ms": each[-1], **more},
    }


def test_the_best_format_of_each_setting_is_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(figures, "FOLDER", tmp_path)
    rows = [
        peer("typedecide", "fp32, letters, one order", 2),
        peer("typedecide", "int8, letters, one order", 1),
        peer("typedecide", "int8, letters, several orders", 3),
        peer("typedecide", "int8, letters, one order", 0.1, threads=1),
        peer("wllama", "GGUF, one token for each question, with prompt cache", 7),
        peer("transformers.js", "q8, whole prompts", 9, reason="no memory"),
    ]
    results = {
        **RESULTS,
        "peers-wasm-all": {"benchmark": "peers", "model": "m", "processor": "p", "rows": rows},
    }
    data = figures.questions_data(results)
    assert data is not None and data["peers"]
    assert [(line["label"], line["seconds"]) for line in data["lines"]] == [
        ("typedecide: int8, letters, one order", [0.5, 1]),
        ("typedecide: int8, letters, several orders", [1.5, 3]),
        ("wllama: GGUF, one token for each question, with prompt cache", [3.5, 7]),
    ]
    caption = figures.questions_caption(data)
    assert "1.0 s for 2 with typedecide, 7.0 s with the fastest peer (wllama: GGUF" in caption
    figures.write(results)
    assert "peers" not in "".join(figures.missing(results))


def test_depths_stand_beside_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(figures, "FOLDER", tmp_path)

    def depth(k: int, anchor: str | None) -> dict[str, Any]:
        intervals = {"accuracy": [0.5, 0.7]}
        return {
            **{"k": k, "anchor": anchor, "n": 40, "accuracy": 0.6, "intervals": intervals},
            **{"hidden_evidence_accuracy": 0.4},
        }

    rows = [depth(22, "none"), depth(22, "instruction"), depth(30, None)]
    speeds = [
        {"prefix_tokens": tokens, "k": k, "ratio": {"all_answers": ratio}}
        for tokens, k, ratio in ((128, 22, 1.1), (512, 22, 1.25), (512, 30, 1.0))
    ]
    shallow = {"benchmark": "shallow_quality", "model": DEFAULT_MODEL, "rows": rows}
    speed = {"benchmark": "speed", "model": DEFAULT_MODEL, "rows": speeds}
    results = {"heldout": RESULTS["heldout"], "shallow": shallow, "speed": speed}
    data = figures.quality_data(results)
    assert data is not None
    assert [(row["k"], row["time"]) for row in data["depths"]["rows"]] == [(22, 0.8), (22, 0.8), (30, 1.0)]
    assert "some layers only" in figures.quality_caption(data)
    figures.write(results)
    assert (tmp_path / "quality.svg").is_file()


def test_a_block_that_nobody_knows() -> None:
    with pytest.raises(KeyError, match="weather"):
        report.filled("<!-- figures weather -->\n<!-- /figures -->", RESULTS)
