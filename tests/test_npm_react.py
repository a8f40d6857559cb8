"""A fresh app of Vite, React and TypeScript that installs the npm package: types, builds, the hook."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from pybuild import npm
from tests import programs
from tests.sites import LOAD_MS, READABLE, Traffic, origin, strict
from typedecide import parse_questions
from typedecide.native import NativeEngine
from typedecide.static_server import StaticServer

ROOT = Path(__file__).resolve().parents[1]
FIXTURE = Path(__file__).parent / "fixtures" / "vite-app"
BASE = "/some/where/"
WEIGHTS = "model/weights-fp32-0.bin.000"
TEXT = "My card was charged twice."
QUESTIONS = {
    "team": {
        "type": "choice",
        "instructions": "Which team should handle this?",
        "criteria": {"billing": "charges and refunds", "shipping": "parcels", "other": None},
    },
    "refund": {"type": "noul", "criteria": "Does the customer want money back?"},
    "mood": {
        "type": "score",
        "instructions": "How angry is the customer?",
        "criteria": ["calm", "annoyed", "angry"],
    },
}
PROGRAMS = """
import { useState } from "react";
import { createRoot } from "react-dom/client";
import { Answers } from "./Answers.jsx";

function App() {
  const [state, setState] = useState();
  return (
    <>
      <textarea aria-label="Ticket" onChange={({ target }) => setState(target.value)} />
      <Answers state={state} />
    </>
  );
}
createRoot(document.getElementById("root")).render(<App />);
console.log = (...said) => document.body.append(Object.assign(document.createElement("pre"), { textContent: said[1] }));
await import("./decide.mjs");
"""
LEAVING = """
import { createRoot } from "react-dom/client";
import { useDecider } from "typedecide/react";
const root = createRoot(document.getElementById("root"));
function Keep() {
  const { decide } = useDecider({ bundle: "%stypedecide/" });
  globalThis.ask = (text, questions) => decide(text, questions).then(({ answers }) => Object.keys(answers));
  return null;
}
globalThis.leave = () => root.unmount();
root.render(<Keep />);
"""
SSR = """
import { createElement } from "react";
import { renderToString } from "react-dom/server";
import { useDecider } from "typedecide/react";
const Status = () => createElement("p", null, useDecider({ bundle: "/typedecide/" }).status);
console.log(renderToString(createElement(Status)));
"""


def tool(script: str, *arguments: str) -> list[str]:
    """The command that runs a script of the installed packages."""
    return [str(npm.node()), str(ROOT / "node_modules" / script), *arguments]


def run(app: Path, command: list[str]) -> str:
    """What a command in the app's folder prints; the test fails with its words."""
    done = subprocess.run(command, cwd=app, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def app(npm_package: Path, dist_pointer: Path) -> Path:
    """The app with the package installed and a bundle in `public`; its tools and React are the checkout's own."""
    folder = ROOT / "build" / "vite-app"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(FIXTURE, folder)
    shutil.copytree(dist_pointer, folder / "public" / "typedecide")
    npm.run(["install", "--no-save", "--ignore-scripts", "--offline", str(npm_package)], folder)
    installed = {path.name for path in (folder / "node_modules").iterdir() if path.is_dir()}
    assert installed == {"typedecide"}
    return folder


@pytest.fixture(scope="module")
def built(app: Path) -> Path:
    """The built app, in a folder below the site's."""
    run(app, tool("typescript/bin/tsc", "-p", "."))
    out = app / "site" / BASE.strip("/")
    run(app, tool("vite/bin/vite.js", "build", "--base", BASE, "--outDir", str(out)))
    return app / "site"


@contextmanager
def development(app: Path) -> Iterator[str]:
    """Vite's development server; the app's address."""
    command = tool("vite/bin/vite.js", "--host", "127.0.0.1", "--port", "0", "--base", BASE)
    environment = {**os.environ, "NO_COLOR": "1"}
    process = subprocess.Popen(command, cwd=app, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        said = ""
        for line in process.stdout:
            said += line
            if found := re.search(r"http://127\.0\.0\.1:\d+/\S*", line):
                yield found[0]
                return
        raise AssertionError(said)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def ticket(page: Page, name: str) -> Locator:
    """One of the app's two components that use the hook."""
    return page.get_by_role("region", name=name)


def answers(page: Page, name: str, text: str) -> dict[str, Any]:
    """The answers of a component, once they are about `text`."""
    output = ticket(page, name).locator("output")
    expect(output).to_contain_text(text, timeout=LOAD_MS)
    shown: dict[str, Any] = json.loads(output.inner_text())
    return shown


def right(bundle: Path, text: str) -> dict[str, Any]:
    """The same from native code."""
    with NativeEngine(bundle) as engine:
        decided = engine.decide(text, parse_questions(QUESTIONS), readout="pointer").answers
    return {"text": text, **{name: one.answer.value for name, one in decided.items()}}


def close_to(expected: dict[str, Any]) -> dict[str, Any]:
    """The same, up to rounding."""
    return {k: pytest.approx(v, abs=1e-5) if isinstance(v, float) else v for k, v in expected.items()}


def test_the_built_app_decides_under_a_sub_path(
    page: Page, built: Path, dist_pointer: Path, tmp_path: Path
) -> None:
    site, weights = tmp_path / "site", tmp_path / "weights"
    shutil.copytree(built, site)
    (weights / "model").mkdir(parents=True)
    (site / BASE.strip("/") / "typedecide" / WEIGHTS).rename(weights / WEIGHTS)
    traffic = Traffic(page.context)
    with (
        StaticServer(weights, headers=READABLE) as other,
        StaticServer(site, headers=strict(connect=origin(other))) as server,
    ):
        page.goto(f"{origin(server)}{BASE}?weights={other.url}")
        assert answers(page, "first", TEXT) == close_to(right(dist_pointer, TEXT))
        answers(page, "second", "The lamp arrived broken.")
    assert traffic.complaints == []
    assert traffic.paths(other) == {WEIGHTS: 1}
    asked = traffic.paths(server)
    assert asked.total() == len(traffic.urls) - 1
    # Two components, one engine.
    assert asked["some/where/typedecide/manifest.json"] == 1


def test_a_load_that_failed_is_shown_and_can_be_tried_again(page: Page, built: Path) -> None:
    with StaticServer(built) as server:
        manifest = f"**{BASE}typedecide/manifest.json"
        page.context.route(manifest, lambda route: route.fulfill(status=503))
        page.goto(f"{origin(server)}{BASE}")
        first = ticket(page, "first")
        # A server may come back: it is asked for some seconds.
        expect(first.get_by_role("alert")).to_contain_text("HTTP 503", timeout=LOAD_MS)
        expect(first.get_by_role("status")).to_have_text("error")
        page.context.unroute(manifest)
        first.get_by_role("button", name="Try again").click()
        for name in ("first", "second"):
            expect(ticket(page, name).get_by_role("status")).to_have_text("ready", timeout=LOAD_MS)
        expect(page.get_by_role("alert")).to_have_count(0)


def test_the_hook_in_strict_mode_on_the_development_server(page: Page, app: Path, dist_pointer: Path) -> None:
    traffic = Traffic(page.context)
    with development(app) as address:
        page.goto(address)
        # Strict mode mounts twice: the first call of each component is aborted, and nothing is loaded again.
        assert answers(page, "first", TEXT) == close_to(right(dist_pointer, TEXT))
        answers(page, "second", "The lamp arrived broken.")
        for name in ("first", "second"):
            expect(ticket(page, name).locator("[data-aborted]")).to_have_attribute("data-aborted", "1")
        # A new text takes the place of the one before.
        text = "Where is my parcel?"
        page.get_by_label("Ticket").fill(text)
        assert answers(page, "first", text) == close_to(right(dist_pointer, text))
    assert traffic.complaints == []
    manifests = [url for url in traffic.urls if url.endswith("manifest.json")]
    assert manifests == [f"{address}typedecide/manifest.json"]


def write_programs(app: Path) -> None:
    """Put the programs of the page's Code tab into the app, as its page programs.html."""
    written = programs.write(TEXT, QUESTIONS)
    # Where the bundle is, is all that its notes leave to whoever uses them.
    sources = {
        "Answers.jsx": written["react"].replace("/typedecide/", f"{BASE}typedecide/"),
        "decide.mjs": written["npm"].replace("/typedecide/", f"{BASE}typedecide/"),
        "programs.jsx": PROGRAMS,
    }
    for name, source in sources.items():
        (app / "src" / name).write_text(source, "utf-8")
    index = (app / "index.html").read_text("utf-8").replace("main.tsx", "programs.jsx")
    (app / "programs.html").write_text(index, "utf-8")


def shown(engine: NativeEngine, text: str) -> list[str]:
    """The answers about a text as the React program shows them."""
    answers = engine.decide(text, parse_questions(QUESTIONS)).answers.values()
    return [f"{one.answer.choice} ({one.answer.confidence:.2f})" for one in answers]


def test_the_programs_of_the_page_run_as_they_are(page: Page, app: Path, dist_pointer: Path) -> None:
    write_programs(app)
    with development(app) as address, NativeEngine(dist_pointer) as engine:
        page.goto(f"{address}programs.html")
        expect(page.locator("dt")).to_have_text([*QUESTIONS], timeout=LOAD_MS)
        expect(page.locator("dd")).to_have_text(shown(engine, TEXT))
        answers = engine.decide(TEXT, parse_questions(QUESTIONS)).answers.values()
        expect(page.locator("pre")).to_have_text([one.answer.choice for one in answers], timeout=LOAD_MS)


def test_the_react_program_recovers_from_errors(page: Page, app: Path, dist_pointer: Path) -> None:
    write_programs(app)
    with development(app) as address, NativeEngine(dist_pointer) as engine:
        # What cannot be loaded is loaded again when that is asked for, and asked then.
        manifest = "**/typedecide/manifest.json"
        page.context.route(manifest, lambda route: route.fulfill(status=503))
        page.goto(f"{address}programs.html")
        again = page.get_by_role("button", name=re.compile("HTTP 503"))
        expect(again).to_be_visible(timeout=LOAD_MS)
        page.context.unroute(manifest)
        again.click()
        expect(page.locator("dd")).to_have_text(shown(engine, TEXT), timeout=LOAD_MS)
        # A text that fails says so, and a later one is answered as if nothing had been.
        text = page.get_by_label("Ticket")
        text.fill("word " * 9000)
        expect(page.get_by_role("alert")).to_contain_text("4096", timeout=LOAD_MS)
        text.fill("Where is my parcel?")
        expect(page.locator("dd")).to_have_text(shown(engine, "Where is my parcel?"), timeout=LOAD_MS)
        expect(page.get_by_role("alert")).to_have_count(0)
        # Replies to earlier texts, of which one fails, do not take the place of the last.
        text.fill("word " * 9000)
        text.fill("It is broken.")
        expect(page.locator("dd")).to_have_text(shown(engine, "It is broken."), timeout=LOAD_MS)
        expect(page.get_by_role("alert")).to_have_count(0)


def test_the_hook_renders_on_a_server_and_loads_nothing_there(app: Path) -> None:
    (app / "ssr.mjs").write_text(SSR)
    assert run(app, [str(npm.node()), "ssr.mjs"]).strip() == "<p>loading</p>"


def test_an_abort_does_not_wait_for_the_model(page: Page, built: Path) -> None:
    with StaticServer(built) as server:
        held: list[Route] = []
        page.context.route(f"**{BASE}typedecide/manifest.json", lambda route: held.append(route))
        page.goto(f"{origin(server)}{BASE}")
        first = ticket(page, "first")
        page.get_by_label("Ticket").fill("Where is my parcel?")
        # The call about the text before has ended, and nothing is loaded yet.
        expect(first.locator("[data-aborted]")).not_to_have_attribute("data-aborted", "0")
        expect(first.get_by_role("status")).to_have_text("loading")
        for route in held:
            route.abort()


def test_an_engine_for_a_component_that_is_gone_ends_too(page: Page, app: Path) -> None:
    (app / "src" / "leaving.jsx").write_text(LEAVING % BASE, "utf-8")
    index = (app / "index.html").read_text("utf-8").replace("main.tsx", "leaving.jsx")
    (app / "leaving.html").write_text(index, "utf-8")
    page.clock.install()
    with development(app) as address:
        page.goto(f"{address}leaving.html")
        page.wait_for_function("() => globalThis.ask")
        page.evaluate("() => globalThis.leave()")
        page.clock.fast_forward(6000)
        # Whoever still holds `decide` gets an answer, from another engine.
        asked = page.evaluate("([text, questions]) => globalThis.ask(text, questions)", [TEXT, QUESTIONS])
        assert asked == [*QUESTIONS]
        worker = page.workers[-1]
        with worker.expect_event("close", timeout=LOAD_MS):
            page.clock.fast_forward(6000)


def test_the_engine_ends_a_while_after_the_last_component(page: Page, built: Path) -> None:
    traffic = Traffic(page.context)
    page.clock.install()
    with StaticServer(built) as server:
        page.goto(f"{origin(server)}{BASE}")
        answers(page, "first", TEXT)
        worker = page.workers[0]
        page.get_by_role("button", name="Hide").click()
        expect(page.locator("output")).to_have_count(0)
        page.clock.fast_forward(4000)
        page.get_by_role("button", name="Show").click()
        answers(page, "first", TEXT)
        page.get_by_role("button", name="Hide").click()
        expect(page.locator("output")).to_have_count(0)
        with worker.expect_event("close", timeout=LOAD_MS):
            page.clock.fast_forward(6000)
    assert traffic.paths(server)["some/where/typedecide/manifest.json"] == 1
