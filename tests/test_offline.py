"""The page as a person opens it again: offline, on a host without headers, after an update; and what it asks for.

The tiny model answers at random: it is the page that is tested here.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from bench import load
from bench.faults import hashes, replace
from bench.link import Link
from pybuild.bundle import _write_service_worker
from tests.test_bench import check_result, run_json
from typedecide.static_server import PAGE_HEADERS, POLICY, StaticServer

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[1]
WAIT_MS = 180_000


@contextmanager
def visitor(browser: Browser) -> Iterator[BrowserContext]:
    """A window with storage of its own."""
    context = browser.new_context()
    context.set_default_timeout(WAIT_MS)
    expect.set_options(timeout=WAIT_MS)
    yield context
    context.close()
    expect.set_options(timeout=5000)


def decide(page: Page, url: str) -> None:
    """Open the page, and wait for its answers."""
    page.goto(f"{url}?device=wasm&auto=1")
    expect(page.locator(".run-status")).to_have_text(re.compile("^11 answered in "))


def settle(page: Page) -> None:
    """Wait until the service worker has all that the next visit needs."""
    page.evaluate(
        """async () => {
          await navigator.serviceWorker.ready;
          const urls = async () => {
            const found = [];
            for (const name of await caches.keys())
              for (const { url } of await (await caches.open(name)).keys()) found.push(url);
            return found;
          };
          while (!(await urls()).some((url) => url.endsWith("/ort-wasm-simd-threaded.mjs")))
            await new Promise((resolve) => setTimeout(resolve, 50));
        }"""
    )


def is_isolated(page: Page) -> bool:
    """Whether the page may use threads."""
    isolated: bool = page.evaluate("() => crossOriginIsolated")
    return isolated


@pytest.mark.parametrize("isolated", [True, False], ids=["headers", "no headers"])
def test_decides_without_a_network_after_one_visit(
    browser: Browser, dist_pointer: Path, isolated: bool
) -> None:
    headers = PAGE_HEADERS if isolated else None
    with (
        StaticServer(dist_pointer, isolated=isolated, headers=headers) as server,
        Link(server.port) as link,
        visitor(browser) as context,
    ):
        page = context.new_page()
        visits: list[str] = []
        page.on("framenavigated", lambda frame: visits.append(frame.url))
        complaints: list[str] = []
        page.on("console", lambda m: complaints.append(m.text) if m.type in {"error", "warning"} else None)
        decide(page, link.url)
        # A host that sets no headers costs one reload, and no more; none where the service worker takes too long.
        assert len(visits) == 1 or (len(visits) == 2 and not isolated)
        assert is_isolated(page) or (len(visits) == 1 and not isolated)
        settle(page)
        assert complaints == []
        page.close()
        link.cut()
        page = context.new_page()
        decide(page, link.url)
        assert is_isolated(page)
        expect(page.locator("details.panel")).to_contain_text("kept in this browser")


def test_a_browser_under_test_that_keeps_service_workers_out(browser: Browser, dist_pointer: Path) -> None:
    """Playwright's `service_workers="block"` has `register` give nothing, which no browser does by itself."""
    with StaticServer(dist_pointer, headers=PAGE_HEADERS) as server:
        context = browser.new_context(service_workers="block")
        page = context.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(error.message))
        page.set_default_timeout(WAIT_MS)
        page.goto(f"{server.url}?device=wasm&auto=1")
        expect(page.locator(".run-status")).to_have_text(re.compile("^11 answered in "), timeout=WAIT_MS)
        context.close()
    assert problems == []


def test_a_second_visit_asks_for_nothing_of_the_model(browser: Browser, dist_pointer: Path) -> None:
    with (
        StaticServer(dist_pointer, headers=PAGE_HEADERS) as server,
        Link(server.port) as link,
        visitor(browser) as context,
    ):
        page = context.new_page()
        decide(page, link.url)
        settle(page)
        seen = len(link.paths)
        # Only one build of the runtime was fetched.
        assert {path for path in link.paths if path.endswith(".gzip")} == {
            "/vendor/ort/ort-wasm-simd-threaded.wasm.gzip"
        }
        decide(page, link.url)
        assert [path for path in link.paths[seen:] if path != "/sw.js"] == []


def test_asks_no_other_origin_and_stores_nothing_of_the_text(browser: Browser, dist_pointer: Path) -> None:
    with (
        StaticServer(dist_pointer, headers=PAGE_HEADERS) as server,
        visitor(browser) as context,
    ):
        requests: list[Any] = []
        context.on("request", lambda request: requests.append(request))
        page = context.new_page()
        decide(page, server.url)
        settle(page)
        page.reload()
        expect(page.locator(".run-status")).to_have_text(re.compile("^11 answered in "))
        assert len(requests) > 30
        assert {request.service_worker is not None for request in requests} == {True, False}
        assert [request.url for request in requests if not request.url.startswith(server.url)] == []
        assert {request.method for request in requests} == {"GET"}
        assert [request.url for request in requests if request.post_data] == []
        stored = page.evaluate(
            """async () => ({
              local: { ...localStorage },
              session: { ...sessionStorage },
              databases: (await indexedDB.databases()).length,
              cookies: document.cookie,
            })"""
        )
        assert stored == {"local": {}, "session": {}, "databases": 0, "cookies": ""}
        # Kept are the bundle's own files, byte for byte, and so nothing of a text or an answer.
        kept = page.evaluate(
            """async () => {
              const names = [];
              for await (const entry of (await navigator.storage.getDirectory()).values()) {
                if (entry.name !== "typedecide") names.push(entry.name);
                else for await (const folder of entry.values())
                  for await (const file of folder.values()) names.push(file.name);
              }
              return names;
            }"""
        )
        assert kept and set(kept) <= set(hashes(dist_pointer).values())


def test_the_policy_is_the_same_in_page_and_header_and_is_enforced(
    browser: Browser, dist_pointer: Path
) -> None:
    index = (ROOT / "web" / "app" / "index.html").read_text("utf-8")
    assert f'content="{POLICY}"' in index
    assert "unsafe-inline" not in POLICY and "'unsafe-eval'" not in POLICY
    with (
        StaticServer(dist_pointer, headers=PAGE_HEADERS) as server,
        StaticServer(dist_pointer) as foreign,
        visitor(browser) as context,
    ):
        page = context.new_page()
        page.goto(f"{server.url}?device=none")
        expect(page.get_by_role("article")).to_have_count(11)
        tried = page.evaluate(
            """async (foreign) => {
              const broken = [];
              document.addEventListener("securitypolicyviolation", (event) => broken.push(event.effectiveDirective));
              const request = await fetch(foreign).then(() => "answered", () => "refused");
              const script = document.createElement("script");
              script.textContent = "globalThis.inline = true";
              document.body.append(script);
              // In a task of its own, because a debugger's call may evaluate code.
              const evaluated = await new Promise((resolve) =>
                setTimeout(() => {
                  try {
                    resolve(new Function("return 'evaluated'")());
                  } catch {
                    resolve("refused");
                  }
                }, 50),
              );
              return { request, evaluated, inline: globalThis.inline ?? false, broken };
            }""",
            foreign.url,
        )
        assert (tried["request"], tried["evaluated"], tried["inline"]) == ("refused", "refused", False)
        assert {"connect-src", "script-src-elem"} <= set(tried["broken"])


def test_an_update_comes_whole_at_the_next_visit(
    browser: Browser, dist_pointer: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    shutil.copytree(dist_pointer, site)
    with (
        StaticServer(site, headers=PAGE_HEADERS) as server,
        visitor(browser) as context,
    ):
        page = context.new_page()
        decide(page, server.url)
        settle(page)
        old = set(hashes(site).values())
        _update(site)
        # The page that stands, and the visit that finds the update, are of the old bundle.
        page.reload()
        expect(page).to_have_title("typedecide")
        page.evaluate(
            """async () => {
              const registration = await navigator.serviceWorker.ready;
              while (!registration.waiting) await new Promise((resolve) => setTimeout(resolve, 50));
            }"""
        )
        decide(page, server.url)
        expect(page).to_have_title("typedecide, renewed")
        kept = page.evaluate(
            """async () => {
              const top = await (await navigator.storage.getDirectory()).getDirectoryHandle("typedecide");
              const names = [];
              for await (const folder of top.values()) for await (const name of folder.keys()) names.push(name);
              return names;
            }"""
        )
        new = set(hashes(site).values())
        assert set(kept) <= new and not set(kept) <= old
        assert len(page.evaluate("() => caches.keys()")) == 1


def _update(site: Path) -> None:
    """Another bundle in the same place: another title, and another weight in its last bit."""
    import hashlib

    index = (site / "index.html").read_text("utf-8")
    (site / "index.html").write_text(
        index.replace("<title>typedecide", "<title>typedecide, renewed"), "utf-8"
    )
    shard = site / "model" / "weights-fp32-0.bin.000"
    data = bytearray(shard.read_bytes())
    data[0] ^= 1
    shard.write_bytes(bytes(data))
    manifest = json.loads((site / "manifest.json").read_text("utf-8"))
    for path in ("index.html", "model/weights-fp32-0.bin.000"):
        content = (site / path).read_bytes()
        manifest["files"][path] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    del manifest["files"]["sw.js"], manifest["build"]["version"]
    _write_service_worker(site, manifest)
    replace(site, "manifest.json", json.dumps(manifest).encode())


def test_can_be_installed(browser: Browser, dist_pointer: Path) -> None:
    with StaticServer(dist_pointer, headers=PAGE_HEADERS) as server, visitor(browser) as context:
        page = context.new_page()
        page.goto(f"{server.url}?device=none")
        session = context.new_cdp_session(page)
        found = session.send("Page.getAppManifest")
        assert found["errors"] == [] and found["url"] == f"{server.url}app/page.webmanifest"
        manifest = json.loads(found["data"])
        for icon in manifest["icons"]:
            reply = page.request.get(f"{server.url}app/{icon['src']}")
            assert reply.ok and reply.headers["content-type"] == icon["type"]
        refused = session.send("Page.getInstallabilityErrors")["installabilityErrors"]
        # A window like this one, without a profile, is never offered an installation.
        assert {error["errorId"] for error in refused} <= {"in-incognito"}


@pytest.mark.usefixtures("dist_fp32_4l")
def test_load_benchmark_short() -> None:
    result = run_json("load", "--device", "wasm", "--format", "fp32", "--layers", "4", "--mbits", "2000")
    print(load.summarise(result))
    check_result(result)
    first, second = result["first"], result["second"]
    assert first["model_requests"] > 3 and second["model_requests"] == 0
    assert first["bytes"] > 40e6 and second["bytes"] < 100e3
    for visit in (first, second):
        steps = visit["steps"]
        assert {"page", "manifest", "weights", "session", "selftest", "prefill", "first answer"} < set(steps)
        assert all(0 <= span["from"] <= span["to"] <= visit["first_answer_ms"] for span in steps.values())
        # One after another, to the end.
        order = ("page", "weights", "session", "selftest", "prefill", "first answer")
        assert all(steps[a]["to"] <= steps[b]["from"] for a, b in pairwise(order))
