"""The example notebook in a real marimo, in headless Chromium: its server in CPython, and its WebAssembly build."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError

import pytest
from playwright.sync_api import Browser, Page, expect

from tests import marimo_site
from tests.sites import Traffic
from tests.test_jupyterlite import WAIT_MS
from typedecide.native import NativeEngine
from typedecide.questions import Choice, Noul
from typedecide.static_server import StaticServer

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "examples" / "marimo_notebook.py"
TEXTS = [
    "My card was charged twice for order 1182, and nobody answers my mails.",
    "The parcel never came, and I want my money back.",
]
"""The notebook's own, and another one."""
QUESTIONS = {
    "team": Choice("Which team should handle this?", ["billing", "shipping", "other"]),
    "refund": Noul("Does the customer want money back?"),
}

Rows = list[tuple[str, str, float]]


@pytest.fixture(scope="module")
def expected(dist_pointer: Path) -> list[Rows]:
    """What the table must show for each text."""
    with NativeEngine(dist_pointer) as engine:
        found = [engine.decide(text, QUESTIONS).answers for text in TEXTS]
    rows = [
        [(id, one.answer.choice, max(one.answer.probabilities)) for id, one in answers.items()]
        for answers in found
    ]
    assert rows[0] != rows[1], "else nobody saw whether another text was asked about"
    return rows


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """marimo's own server of the notebook, with the folder as its working directory; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "marimo", "run", str(NOTEBOOK), "--headless", "--no-token"]
    said = folder / "marimo.log"
    with said.open("wb") as log:
        process = subprocess.Popen(
            [*command, "--no-sandbox", "--port", str(port)], cwd=folder, stdout=log, stderr=log
        )
        try:
            url = f"http://127.0.0.1:{port}/"
            wait_for(url, process, said)
            yield url
        finally:
            process.terminate()
            process.wait()


def wait_for(url: str, process: subprocess.Popen[bytes], said: Path) -> None:
    until = time.monotonic() + WAIT_MS / 1000
    while time.monotonic() < until:
        assert process.poll() is None, said.read_text("utf-8")
        try:
            urllib.request.urlopen(f"{url}health").close()
            return
        except URLError:
            time.sleep(0.2)
    raise AssertionError(said.read_text("utf-8"))


def check(page: Page, expected: list[Rows]) -> None:
    """The notebook's answers are those expected, for its own text, and for another once that is entered."""
    for text, rows in zip(TEXTS, expected, strict=True):
        area = page.locator("marimo-text-area textarea")
        expect(area).to_be_visible(timeout=WAIT_MS)
        area.fill(text)
        area.blur()
        table = page.locator("marimo-table tbody tr")
        for row, (id, choice, probability) in enumerate(rows):
            cells = table.nth(row).locator("td")
            # Rounded, and of an engine that sums in another order.
            near = [f"{probability + step * 1e-4:.4f}".rstrip("0") for step in (-1, 0, 1)]
            expect(cells.nth(2)).to_have_text(re.compile("|".join(map(re.escape, near))), timeout=WAIT_MS)
            expect(cells.nth(0)).to_have_text(id)
            expect(cells.nth(1)).to_have_text(choice)
        expect(table).to_have_count(len(rows))


def test_the_notebook_runs_in_marimo(
    browser: Browser, dist_pointer: Path, tmp_path: Path, expected: list[Rows]
) -> None:
    (tmp_path / "dist").symlink_to(dist_pointer, target_is_directory=True)
    with serving(tmp_path) as url:
        page = browser.new_page()
        page.goto(url)
        expect(page.get_by_text("'tiny-pointer-model'")).to_be_visible(timeout=WAIT_MS)
        check(page, expected)
        page.close()


def test_the_notebook_runs_as_webassembly(
    browser: Browser, dist_pointer: Path, tmp_path: Path, expected: list[Rows]
) -> None:
    site = marimo_site.build(tmp_path, dist_pointer, NOTEBOOK)
    with StaticServer(site, isolated=False) as server:
        context = browser.new_context()
        traffic = Traffic(context)
        page = context.new_page()
        page.goto(server.url)
        expect(page.get_by_text("'tiny-pointer-model'")).to_be_visible(timeout=WAIT_MS)
        check(page, expected)
        context.close()
    assert traffic.foreign(server) == []
    assert any(url.endswith("/dist/worker.js") for url in traffic.urls)
