"""The example notebook in a real JupyterLite, in headless Chromium, against the bundle, with nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests import jupyterlite_site
from tests.sites import Traffic
from typedecide.native import NativeEngine
from typedecide.questions import Choice, Noul
from typedecide.static_server import StaticServer

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "examples" / "jupyterlite.ipynb"
WAIT_MS = 300_000


def test_the_example_notebook_runs(browser: Browser, dist_pointer: Path, tmp_path: Path) -> None:
    site = jupyterlite_site.build(tmp_path, dist_pointer, NOTEBOOK)
    # Not isolated: where memory can be shared, JupyterLite 0.8.6 can miss an answer of its kernel that comes too soon,
    # and then the notebook hangs.
    with StaticServer(site, isolated=False) as server:
        context = browser.new_context()
        traffic = Traffic(context)
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.goto(f"{server.url}notebooks/index.html?path={NOTEBOOK.name}")
        cells = page.locator(".jp-Notebook .jp-CodeCell")
        expect(cells).to_have_count(4, timeout=WAIT_MS)
        page.locator(".jp-Notebook-ExecutionIndicator").wait_for(state="attached")
        page.locator(".jp-Notebook .jp-Cell").first.click()
        for _ in range(5):
            page.keyboard.press("Shift+Enter")
        # Numbered once they have run.
        expect(cells.nth(3).locator(".jp-InputArea-prompt")).to_have_text("[4]:", timeout=WAIT_MS)
        assert page.locator(".jp-Notebook [data-mime-type='application/vnd.jupyter.stderr']").count() == 0
        expect(cells.nth(1).locator(".jp-OutputArea-output").last).to_have_text(
            re.compile("tiny-pointer-model")
        )
        printed = cells.nth(2).locator(".jp-OutputArea-output").inner_text()
        context.close()
    with NativeEngine(dist_pointer) as engine:
        answers = engine.decide(
            "My card was charged twice for order 1182, and nobody answers my mails.",
            {
                "team": Choice("Which team should handle this?", ["billing", "shipping", "other"]),
                "refund": Noul("Does the customer want money back?"),
            },
        ).answers
    assert [line.split(" ")[:2] for line in printed.splitlines()] == [
        [id, one.answer.choice] for id, one in answers.items()
    ]
    assert traffic.foreign(server) == []
