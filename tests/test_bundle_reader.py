"""typedecide/bundle.py against a real bundle, and against manifests that are wrong in one place each."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pybuild.sources import DEFAULT_MODEL
from typedecide.bundle import MANIFEST, Bundle
from typedecide.errors import BundleError, IntegrityError


@pytest.fixture
def manifest(dist: Path) -> dict[str, Any]:
    """A copy of the default bundle's manifest, to be spoiled."""
    read: dict[str, Any] = json.loads((dist / MANIFEST).read_bytes())
    return read


def write(folder: Path, manifest: Any) -> Path:
    (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def test_reads_the_default_bundle(dist: Path) -> None:
    bundle = Bundle.open(dist)
    assert bundle.model["name"] == DEFAULT_MODEL
    assert bundle.model["licence"] == "Apache-2.0"
    assert bundle.default_format == "int8"
    assert bundle.format() is bundle.formats["int8"]
    assert len(bundle.labels) == bundle.limits["max_options"] == 255
    assert bundle.tokenizer_path.is_file()
    assert {"head", "tail", "option"} <= set(bundle.prompt)
    assert 0 < bundle.tolerance < 0.1
    assert bundle.format().drift["prompts"] >= 50


def test_graphs_and_weights_are_there(dist: Path) -> None:
    bundle = Bundle.open(dist)
    for variant in bundle.format().graphs:
        assert bundle.graph_path(None, variant).stat().st_size > 0
    for (name, buffer), data in zip(bundle.weights(), bundle.format().data, strict=True):
        assert (name, len(buffer)) == (data.path, data.bytes)
        shards = b"".join((dist / shard).read_bytes() for shard in data.shards)
        assert buffer == shards


def test_all_files_are_as_promised(dist: Path) -> None:
    seen: dict[str, int] = {}

    def count(path: str, size: int) -> None:
        seen[path] = seen.get(path, 0) + size

    bundle = Bundle.open(dist)
    assert bundle.damage(progress=count) == []
    bundle.check()
    assert seen == {path: entry.bytes for path, entry in bundle.files.items()}
    on_disk = {p.relative_to(dist).as_posix() for p in dist.rglob("*") if p.is_file()}
    assert on_disk == {*bundle.files, MANIFEST}


def test_no_folder_and_no_manifest(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(BundleError, match="pybuild bundle") as caught:
            Bundle.open(path)
        assert caught.value.data["path"] == str(path / MANIFEST)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'"x"', b"\xff\xfe"])
def test_not_a_json_object(tmp_path: Path, text: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(text)
    with pytest.raises(BundleError, match=MANIFEST):
        Bundle.open(tmp_path)


@pytest.mark.parametrize("schema", [0, 2, 99])
def test_another_schema(tmp_path: Path, manifest: dict[str, Any], schema: int) -> None:
    with pytest.raises(BundleError, match=f"schema {schema}") as caught:
        Bundle.open(write(tmp_path, {**manifest, "schema": schema}))
    assert (caught.value.data["schema"], caught.value.data["supported"]) == (schema, 1)


def spoil(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Replaces the value at a dotted path, or takes it away for `...`."""

    def change(manifest: dict[str, Any]) -> None:
        *parents, last = path.split("/")
        target: Any = manifest
        for key in parents:
            target = target[int(key) if isinstance(target, list) else key]
        if value is ...:
            del target[last]
        else:
            target[last] = value

    return change


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("schema", "1", "schema"),
        ("schema", True, "schema"),
        ("model", ..., "model"),
        ("model/name", 3, "model.name"),
        ("model/licence", ..., "model.licence"),
        ("limits/context", "8192", "limits.context"),
        ("prompt", [], "prompt"),
        ("labels", {}, "labels"),
        ("tokenizer", "../secret.json", "tokenizer"),
        ("tokenizer", "/etc/passwd", "tokenizer"),
        ("default_format", "int3", "default_format"),
        ("selftest/tolerance", "small", "selftest.tolerance"),
        ("formats", {}, "formats"),
        ("formats/int8", [], "formats.int8"),
        ("formats/int8/bytes", 1.5, "formats.int8.bytes"),
        ("formats/int8/graphs/gqa", "..\\gqa.onnx", "formats.int8.graphs.gqa"),
        ("formats/int8/data/0/shards", "one", "formats.int8.data[0].shards"),
        ("formats/int8/data/0/shards", [7], "formats.int8.data[0].shards[0]"),
        ("formats/int8/golden", [1], "formats.int8.golden[0]"),
        ("files/index.js", None, "files.index.js"),
        ("files/index.js", {"bytes": 1}, "files.index.js.sha256"),
    ],
)
def test_a_malformed_field_is_named(
    tmp_path: Path, manifest: dict[str, Any], path: str, value: Any, field: str
) -> None:
    spoilt = copy.deepcopy(manifest)
    spoil(path, value)(spoilt)
    with pytest.raises(BundleError) as caught:
        Bundle.open(write(tmp_path, spoilt))
    assert caught.value.data["field"] == field
    assert field in caught.value.message


def test_unknown_names(dist: Path) -> None:
    bundle = Bundle.open(dist)
    with pytest.raises(BundleError, match=r"int3.*int8") as caught:
        bundle.format("int3")
    assert caught.value.data["formats"] == ["int8"]
    with pytest.raises(BundleError, match="flash"):
        bundle.graph_path(None, "flash")
    with pytest.raises(BundleError, match="no file 'nothing'"):
        bundle.damage(["nothing"])


def small_bundle(dist: Path, folder: Path) -> Bundle:
    """The manifest and the small files of the default bundle: enough to damage."""
    for path in ("index.js", "prompt.js", MANIFEST):
        shutil.copyfile(dist / path, folder / path)
    return Bundle.open(folder)


def test_damage_is_found_and_named(dist: Path, tmp_path: Path) -> None:
    bundle = small_bundle(dist, tmp_path)
    assert bundle.damage(["index.js", "prompt.js"]) == []
    flipped = bytearray((tmp_path / "index.js").read_bytes())
    flipped[100] ^= 1
    (tmp_path / "index.js").write_bytes(flipped)
    with (tmp_path / "prompt.js").open("ab") as file:
        file.write(b"\n")
    changed, longer, missing = bundle.damage(["index.js", "prompt.js", "engine.js"])
    assert changed.path == "index.js" and changed.expected.startswith("sha256 ")
    assert changed.expected != changed.found
    assert longer.found == f"{bundle.files['prompt.js'].bytes + 1} bytes"
    assert missing.found == "missing"
    with pytest.raises(IntegrityError, match=r"index\.js.*prompt\.js") as caught:
        bundle.check(["index.js", "prompt.js"])
    assert [one["path"] for one in caught.value.data["damage"]] == ["index.js", "prompt.js"]


def test_shards_that_do_not_add_up(dist: Path, tmp_path: Path, manifest: dict[str, Any]) -> None:
    data = manifest["formats"]["int8"]["data"][0]
    (tmp_path / "model").mkdir()
    for shard in data["shards"]:
        (tmp_path / shard).write_bytes(b"12345678")
    for size, words in ((8 * len(data["shards"]) + 1, "instead of"), (9, "more than")):
        data["bytes"] = size
        bundle = Bundle.open(write(tmp_path, manifest))
        with pytest.raises(IntegrityError, match=words):
            bundle.weights()
    (tmp_path / data["shards"][0]).unlink()
    with pytest.raises(IntegrityError, match="missing"):
        bundle.weights()
