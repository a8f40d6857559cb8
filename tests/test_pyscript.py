"""The example page in a real PyScript, in headless Chromium, against the bundle, with nothing from elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from pybuild import npm
from tests.sites import Traffic
from tests.test_jupyterlite import WAIT_MS
from typedecide.native import NativeEngine
from typedecide.questions import Choice, Noul
from typedecide.static_server import StaticServer

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "pyscript"
TEXT = "The parcel never came, and I want my money back."
QUESTIONS = {
    "team": Choice("Which team should handle this?", ["billing", "shipping", "other"]),
    "refund": Noul("Does the customer want money back?"),
}


@pytest.fixture(scope="module")
def site(dist_pointer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example as its page says: PyScript's own files beside it, and a bundle."""
    folder = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("pyscript") / "site")
    shutil.copytree(
        npm.package("@pyscript/core") / "dist", folder / "pyscript", ignore=shutil.ignore_patterns("*.map")
    )
    shutil.copytree(dist_pointer, folder / "bundle")
    return folder


@pytest.mark.parametrize("isolated", [True, False])
def test_the_example_page_answers(browser: Browser, site: Path, dist_pointer: Path, isolated: bool) -> None:
    with StaticServer(site, isolated=isolated) as server:
        context = browser.new_context()
        traffic = Traffic(context)
        complaints: list[str] = []
        context.on("weberror", lambda error: complaints.append(str(error.error)))
        page = context.new_page()
        page.goto(server.url)
        expect(page.locator("#status")).to_have_text("tiny-pointer-model", timeout=WAIT_MS)
        page.get_by_label("Text").fill(TEXT)
        decide = page.get_by_role("button", name="Decide")
        rows = page.locator("#answers tr")
        # Twice: what a click made must not be in the way of the next.
        for _ in range(2):
            page.locator("#answers").evaluate("rows => rows.replaceChildren()")
            decide.click()
            expect(rows).to_have_count(len(QUESTIONS), timeout=WAIT_MS)
            expect(decide).to_be_enabled()
        shown = [row.locator("td").all_inner_texts() for row in rows.all()]
        assert page.locator(".py-error, .mpy-error").count() == 0
        context.close()
    with NativeEngine(dist_pointer) as engine:
        answers = engine.decide(TEXT, QUESTIONS).answers
    for (id, choice, probability), (expected, one) in zip(shown, answers.items(), strict=True):
        assert (id, choice) == (expected, one.answer.choice)
        assert float(probability) == pytest.approx(max(one.answer.probabilities), abs=2e-4)
    assert complaints == []
    assert traffic.foreign(server) == []
    assert any(url.endswith("/bundle/pyodide/pyodide.asm.wasm") for url in traffic.urls)
