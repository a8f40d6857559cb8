"""The bundle as built: sizes, hashes, labels, measured drift, and that the same inputs give the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pybuild.artifacts import prune
from pybuild.bundle import ON_USE, build
from pybuild.drift import LARGE
from pybuild.labels import find_labels
from pybuild.profiles import profile_of
from pybuild.sources import DEFAULT_MODEL, STOCK_MODEL, load_source
from tests.conftest import FIXTURES, ROOT
from typedecide.bundle import Bundle
from typedecide.errors import UnsupportedError
from typedecide.native import TextTokenizer


def contents(folder: Path) -> dict[str, str]:
    """sha256 of every file of a folder."""
    return {
        p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def test_built_twice_is_byte_identical(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for name in ("first", "second"):
        # A cache of its own each: everything is really made twice.
        monkeypatch.setenv("TYPEDECIDE_BUILD_CACHE", str(tmp_path / f"{name}-cache"))
        found.append(contents(build(tmp_path / name, formats=("int8", "int4"), layers=2, quiet=True)))
    assert found[0] == found[1]


def test_default_bundle_is_small_and_lists_every_file(dist: Path) -> None:
    files = {p: f for p, f in contents(dist).items() if p != "manifest.json"}
    manifest = json.loads((dist / "manifest.json").read_text("utf-8"))
    assert {p: f["sha256"] for p, f in manifest["files"].items()} == files
    total = sum(p.stat().st_size for p in dist.rglob("*") if p.is_file())
    print(f"int8 bundle: {total / 1e6:.1f} MB in {len(files)} files")
    python = sum(f["bytes"] for path, f in manifest["files"].items() if path.startswith(ON_USE))
    assert total - python <= 180e6 and python <= 15e6
    assert all(f["bytes"] <= 64_000_000 for f in manifest["files"].values())


def test_manifest_says_what_a_format_costs(dist: Path) -> None:
    bundle = Bundle.open(dist)
    drift = bundle.format("int8").drift
    assert drift["prompts"] >= 50
    assert 0 < drift["mean"] <= 0.02 and drift["flips"] <= 3
    assert drift["large"] == (drift["max"] > LARGE)
    assert bundle.limits == {
        "context": 8192,
        "max_options": 255,
        "max_levels": 10,
        "rotation_budget": 4,
        "run_tokens": {"wasm": 256, "webgpu": 512, "native": 256},
    }


def test_manifest_says_which_model_answers_and_on_whose_terms(dist: Path) -> None:
    bundle = Bundle.open(dist)
    assert (bundle.model["name"], bundle.manifest["readout"]) == (DEFAULT_MODEL, "pointer")
    # The adapter's card states the same licence as the stock model's file.
    assert bundle.model["licence"] == "Apache-2.0"
    stock = load_source(STOCK_MODEL).origin
    assert bundle.model["origin"].startswith(f"{stock}, adapter {DEFAULT_MODEL} sha256 ")
    assert "Answer:" not in bundle.manifest["prompt"]["head"]


def test_unchanged_bundle_is_left_alone(dist: Path) -> None:
    before = (dist / "manifest.json").stat().st_mtime_ns
    build(dist, quiet=True)
    assert (dist / "manifest.json").stat().st_mtime_ns == before


def test_labels_are_single_tokens_letters_first_and_no_digits(dist: Path) -> None:
    bundle = Bundle.open(dist)
    tokenizer = TextTokenizer.from_file(bundle.tokenizer_path)
    texts = [label["text"] for label in bundle.labels]
    assert len(set(texts)) == 255 and "".join(texts[:52]).isalpha()
    assert texts[:3] == ["A", "B", "C"] and texts[25:27] == ["Z", "a"]
    assert not any(c.isdigit() for text in texts for c in text)
    before = tokenizer.encode("Options:\nAnswer:")
    for label in bundle.labels:
        assert tokenizer.encode(f"Options:\nAnswer: {label['text']}") == [*before, label["id"]]


def test_a_small_vocabulary_gives_fewer_labels() -> None:
    tokenizer = TextTokenizer(json.dumps(load_source(str(FIXTURES / "qwen3")).tokenizer))
    labels = find_labels(tokenizer)
    assert [label["text"] for label in labels[:8]] == list("ABCDEFGH")
    assert len(labels) < 255


def test_unknown_format_is_an_error_that_lists_them(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"int3.*known: fp32, int8, int4, int8-fast"):
        build(tmp_path / "out", formats=("int3",))


def test_command_line_reports_errors_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pybuild", "bundle", "--model", str(tmp_path / "none"), "--out"]
    done = subprocess.run([*command, str(tmp_path / "out")], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr.startswith("pybuild: SOURCE:") and done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_profiles_say_how_a_model_is_asked() -> None:
    whole, cut, other = (profile_of(name, False) for name in (STOCK_MODEL, f"{STOCK_MODEL}-4l", "some-model"))
    tuned = profile_of(DEFAULT_MODEL, True)
    assert tuned == profile_of("some-model", True) and tuned.readout == "pointer" and not tuned.examples
    assert whole.readout == cut.readout == "text" and other.readout == "labels"
    assert whole.head.count("\nAnswer: ") == len(whole.examples) == 4
    assert cut.head == other.head and "Answer:" not in cut.head
    assert all(profile.head.count("{state}") == 1 for profile in (whole, cut, other))


def test_the_cache_forgets_models_used_longest_ago(tmp_path: Path) -> None:
    for age, name in enumerate(("new", "used", "old", "oldest")):
        (tmp_path / name / "fp32").mkdir(parents=True)
        (tmp_path / name / "fp32" / "weights.bin").write_bytes(bytes(100))
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    prune(tmp_path, tmp_path / "oldest", 250)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "oldest"]
    prune(tmp_path, tmp_path / "oldest", 50)
    assert [path.name for path in tmp_path.iterdir()] == ["oldest"]
