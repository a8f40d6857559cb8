"""Weights in the browser: progress, what is kept, resumed and deleted. What breaks is in test_faults.py."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Playwright

from bench.faults import QUESTIONS, SHARD, STATE, Stage, hashes, refused, replace, set_up

pytestmark = pytest.mark.browser

PIECES = 12


@pytest.fixture(scope="module")
def stage(playwright: Playwright, dist_pointer: Path) -> Iterator[Stage]:
    with set_up(playwright, dist_pointer) as stage:
        yield stage


def cut_up(folder: Path) -> list[str]:
    """Cut the one shard of a bundle into many; their paths."""
    data = (folder / SHARD).read_bytes()
    size = -(-len(data) // PIECES)
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    paths = []
    for number in range(PIECES):
        part = data[number * size : (number + 1) * size]
        path = f"model/part-{number}.bin"
        (folder / path).write_bytes(part)
        manifest["files"][path] = {"bytes": len(part), "sha256": hashlib.sha256(part).hexdigest()}
        paths.append(path)
    del manifest["files"][SHARD]
    manifest["formats"]["fp32"]["data"][0]["shards"] = paths
    replace(folder, "manifest.json", json.dumps(manifest).encode())
    return paths


def test_many_shards_come_in_parallel_with_progress_in_bytes(stage: Stage) -> None:
    folder = stage.copy("pieces")
    shards = cut_up(folder)
    whole = sum((folder / path).stat().st_size for path in shards)
    with stage.served(folder) as window:
        tab = window.tab()
        first = tab.load()["storage"]
        stage.ask(tab)
        assert first["kept"] and first["note"] is None and first["keptBytes"] == 0
        told: list[dict[str, Any]] = tab.evaluate("async () => globalThis.progress")
        steps = [p for p in told if p["phase"] == "download" and p["file"].startswith("model/part-")]
        assert {step["totalBytes"] for step in steps} == {whole}
        loaded = [step["loadedBytes"] for step in steps]
        assert loaded == sorted(loaded) and loaded[-1] == whole
        assert {step["file"] for step in steps} == set(shards)
        # Kept files are read without a request.
        seen = len(window.link.paths)
        second = tab.load()["storage"]
        stage.ask(tab)
        assert second["downloadedBytes"] == 0 and second["keptBytes"] == first["downloadedBytes"]
        assert [
            path for path in window.link.paths[seen:] if "/model/" in path or path.endswith(".gzip")
        ] == []


def test_what_an_abort_leaves_is_used(stage: Stage) -> None:
    with stage.served(stage.bundle) as window:
        tab = window.tab()
        gone = tab.evaluate(
            """async () => {
              const { createEngine } = await import("./index.js");
              const control = new AbortController();
              const onProgress = ({ file = "", loadedBytes }) => {
                if (file.endsWith(".gzip") && loadedBytes > 1e6) control.abort();
              };
              const loading = createEngine({ device: "wasm", onProgress, signal: control.signal });
              return loading.then(() => "loaded", (error) => error.code);
            }"""
        )
        assert gone == "ABORTED"
        storage = tab.load()["storage"]
        stage.ask(tab)
        assert storage["keptBytes"] > 1e6


def test_weights_are_deleted_on_request(stage: Stage) -> None:
    with stage.served(stage.bundle) as window:
        tab = window.tab()
        size = tab.load()["storage"]["downloadedBytes"]
        assert sum(tab.files().values()) == size
        assert set(tab.files()) <= set(hashes(stage.bundle).values())
        other = "async () => (await import('./index.js')).evictWeights('https://example.org/other/')"
        assert tab.evaluate(other) == 0
        assert tab.evaluate("async () => globalThis.engine.evict()") == size
        assert tab.files() == {}
        # The engine does not need them any more.
        stage.ask(tab)
        tab.load()
        assert tab.evaluate("async () => (await import('./index.js')).evictWeights()") == size


def test_without_storage_it_works_and_says_so(stage: Stage) -> None:
    # What a private window of some browsers does.
    private = """
      StorageManager.prototype.getDirectory = async () => {
        throw new DOMException("Security error when calling GetDirectory", "SecurityError");
      };
    """
    with stage.served(stage.bundle) as window:
        tab = window.tab(private)
        storage = tab.load()["storage"]
        stage.ask(tab)
        assert not storage["kept"] and "SecurityError" in storage["note"]
        storage = tab.load(keepWeights=False)["storage"]
        assert not storage["kept"] and "keepWeights" in storage["note"]
        assert tab.files() == {}


def test_a_call_that_ends_two_workers_fails_and_the_engine_goes_on(stage: Stage) -> None:
    deadly = """
      addEventListener("message", ({ data }) => {
        if (data.op === "prefill" && data.args[0] === "deadly") self.close();
      });
    """
    with stage.served(stage.bundle) as window:
        tab = window.tab(deadly)
        tab.load()
        tab.evaluate("(text) => globalThis.engine.prefill(text)", STATE)
        refused(lambda: tab.evaluate("() => globalThis.engine.prefill('deadly')"), "DEVICE_LOST")
        score = "async (questions) => (await globalThis.engine.scoreAll(questions)).answers.map((a) => a.probabilities)"
        stage.check(tab.evaluate(score, list(QUESTIONS.values())))
