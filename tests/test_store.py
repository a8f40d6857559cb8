"""Weights in the browser: progress, what is kept, resumed and deleted. What breaks is in test_faults.py."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Playwright, Route

from bench.faults import QUESTIONS, SHARD, STATE, Stage, hashes, refused, replace, set_up
from bench.tabs import Tab, chromium
from typedecide.static_server import PAGE_HEADERS, StaticServer

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


NOT_OPENED = """
  FileSystemFileHandle.prototype.createSyncAccessHandle = async () => {
    throw new DOMException("planted", "%s");
  };
"""


@pytest.mark.parametrize("name", ["UnknownError", "NoModificationAllowedError"])
def test_files_that_the_browser_does_not_open_are_not_kept(stage: Stage, name: str) -> None:
    with stage.served(stage.bundle) as window:
        tab = window.tab(NOT_OPENED % name)
        for _ in range(2):
            storage = tab.load()["storage"]
            stage.ask(tab)
            assert not storage["kept"] and storage["keptBytes"] == 0
            assert "does not open" in storage["note"] and name in storage["note"]
        assert set(tab.files().values()) <= {0}


def test_a_folder_that_cannot_be_listed_is_not_pruned_and_all_is_well(stage: Stage) -> None:
    unlisted = """
      FileSystemDirectoryHandle.prototype.keys = () => {
        throw new DOMException("planted", "UnknownError");
      };
    """
    with stage.served(stage.bundle) as window:
        tab = window.tab(unlisted)
        assert tab.load()["storage"]["kept"]
        stage.ask(tab)


def test_a_manifest_is_never_taken_from_the_browsers_cache(playwright: Playwright, stage: Stage) -> None:
    folder = stage.copy("lasting")
    lasting = {**PAGE_HEADERS, "Cache-Control": "max-age=3600"}
    with chromium(playwright) as browser, StaticServer(folder, headers=lasting) as server:
        tab = Tab(browser.new_page(), server.url)
        tab.load()
        shard = bytearray((folder / SHARD).read_bytes())
        shard[0] ^= 1
        replace(folder, SHARD, bytes(shard))
        manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
        manifest["files"][SHARD]["sha256"] = hashlib.sha256(shard).hexdigest()
        replace(folder, "manifest.json", json.dumps(manifest).encode())
        storage = tab.load()["storage"]
        stage.ask(tab)
        assert storage["downloadedBytes"] == len(shard)


def test_a_server_that_is_away_for_a_moment_is_waited_for(stage: Stage) -> None:
    # From the bundle's first file on: the manifest.
    with stage.served(stage.bundle) as window:
        tab, link = window.tab(), window.link
        mending = threading.Timer(2.0, link.mend)

        def go_away(route: Route) -> None:
            link.cut()
            mending.start()
            route.continue_()

        tab.page.route("**/manifest.json", go_away, times=1)
        tab.load()
        assert mending.finished.is_set()
        stage.ask(tab)


@pytest.mark.parametrize("module", ["tokenizers.min.mjs", "ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs"])
def test_a_module_that_does_not_come_at_first_is_asked_for_again(stage: Stage, module: str) -> None:
    left = [1]

    def once(route: Route) -> None:
        if left:
            left.pop()
            route.abort()
        else:
            route.continue_()

    with stage.served(stage.bundle) as window:
        tab = window.tab()
        tab.page.route(f"**/{module}", once)
        tab.load()
        assert left == []
        stage.ask(tab)


def test_a_module_that_is_not_there_says_so_at_once(stage: Stage) -> None:
    with stage.served(stage.bundle) as window:
        tab = window.tab()
        tab.page.route("**/tokenizers.min.mjs", lambda route: route.fulfill(status=404))
        error = refused(tab.load, "BUNDLE")
        assert error.data["status"] == 404 and error.data["url"].endswith("tokenizers.min.mjs")


def test_a_bundle_without_a_graph_for_the_device_costs_its_manifest_only(stage: Stage) -> None:
    folder = stage.copy("no-graph")
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    graphs = manifest["formats"]["fp32"]["graphs"]
    manifest["formats"]["fp32"]["graphs"] = {"other": graphs["explicit"]}
    replace(folder, "manifest.json", json.dumps(manifest).encode())
    with stage.served(folder) as window:
        tab = window.tab()
        error = refused(tab.load, "UNSUPPORTED")
        assert [trial["verdict"] for trial in error.data["selfTest"]] == ["unavailable"]
        assert not [path for path in window.link.paths if "/model/" in path or "/vendor/" in path]


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
