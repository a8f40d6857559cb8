"""What tabs must not do to each other: those of the page, and two of the browser that both show it. Tiny model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, expect

from tests.test_page_proof import MEASURED
from tests.test_page_proof import status as measuring
from tests.test_page_table import (
    QUESTIONS,
    done_rows,
    finish,
    load,
    open_table,
    status,
    tickets,
)
from tests.test_page_ui import LOAD_MS, NO_MODEL, RUN_MS, button
from typedecide.static_server import PAGE_HEADERS, StaticServer

pytestmark = pytest.mark.browser

ONE = {"angry": QUESTIONS["angry"]}
MANY = 20_000
"""Rows that no machine answers while a test looks on."""

KEPT = """() => new Promise((resolve, reject) => {
  const request = indexedDB.open("typedecide-table");
  request.onerror = () => reject(request.error);
  request.onsuccess = () => {
    const database = request.result;
    const stores = database.transaction(["plan", "blocks"]);
    const [plan, blocks] = ["plan", "blocks"].map((name) => stores.objectStore(name).getAll());
    stores.oncomplete = () => {
      database.close();
      const rows = blocks.result.map(({ rows, faults }) => rows.length + faults.length);
      resolve({
        names: plan.result.map(({ name }) => name),
        runs: [...new Set(blocks.result.map(({ run }) => run))].length,
        rows: rows.reduce((sum, one) => sum + one, 0),
      });
    };
  };
})"""
"""What the browser keeps: the names of files, how many runs answered rows, and how many rows."""


@pytest.fixture(scope="module")
def address(dist_pointer: Path) -> Iterator[str]:
    with StaticServer(dist_pointer, headers=PAGE_HEADERS) as server:
        yield server.url


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A visitor of their own: what the browser keeps is nobody else's."""
    context = browser.new_context()
    yield context
    context.close()


def table_page(context: BrowserContext, address: str) -> Page:
    page = context.new_page()
    open_table(page, f"{address}?device=wasm", ONE)
    return page


def start(page: Page, name: str, content: bytes) -> None:
    """Answer the rows of a file, and see that they are being answered."""
    load(page, name, content)
    button(page, "Start").click()
    expect(status(page)).to_contain_text("rows/s", timeout=LOAD_MS)


def kept(page: Page) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(KEPT)
    return found


def notice(page: Page) -> Locator:
    """What the Table tab says of another tab's run."""
    return page.get_by_text("Another tab of this page has the run")


@pytest.mark.parametrize("width", [360, 1280])
def test_the_names_of_tabs_stay_where_they_are(page: Page, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(f"{address}{NO_MODEL}")
    names = page.get_by_role("tab")
    expect(names).to_have_count(6)
    places = "links => links.map((link) => { const { x, width } = link.getBoundingClientRect(); return [x, width]; })"
    strip = page.get_by_role("tablist")
    weights = set()
    before = None
    for name in names.all():
        name.click()
        expect(name).to_have_attribute("aria-selected", "true")
        weights.update(names.evaluate_all("links => links.map((link) => getComputedStyle(link).fontWeight)"))
        # The strip scrolls where it is too narrow: that is no move of a name among the others.
        strip.evaluate("strip => { strip.scrollLeft = 0 }")
        found = names.evaluate_all(places)
        assert before is None or found == before
        before = found
    assert len(weights) == 2, "the selected name is bold: else this test could not fail"
    assert page.get_by_role("tab", name="Table", exact=True).count() == 1, "a name is read once"


def pause(page: Page) -> int:
    """Pause the run; how many rows are done then."""
    button(page, "Pause").click()
    expect(status(page)).to_have_text(re.compile("^Paused · "))
    return done_rows(page)


def go_on(page: Page) -> None:
    """Resume the run, and see that more rows are answered."""
    before = done_rows(page)
    button(page, "Resume").click()
    while done_rows(page) <= before:
        page.wait_for_timeout(100)


def test_a_second_browser_tab_leaves_a_run_alone(context: BrowserContext, address: str) -> None:
    first = table_page(context, address)
    start(first, "tickets.csv", tickets(MANY, MANY))
    second = table_page(context, address)
    expect(notice(second)).to_be_visible(timeout=LOAD_MS)
    expect(second.locator(".table-summary")).to_be_hidden()
    expect(button(second, "Delete what is kept")).to_have_count(0)

    # A run of its own is done and not kept, although that is asked for.
    load(second, "few.csv", b"text\none\ntwo\n")
    expect(second.get_by_label("Keep this run in the browser")).to_be_checked()
    button(second, "Start").click()
    finish(second)
    expect(second.locator(".held")).to_have_text(
        "The browser does not keep this run, so a reload loses it: Another tab of this page keeps one."
    )
    button(second, "Discard the answers").click()
    button(second.get_by_role("dialog"), "Discard").click()
    expect(status(second)).to_be_hidden()

    # The first went on, and is kept as it is; a reload brings it back there.
    done = pause(first)
    assert kept(first) == {"names": ["tickets.csv"], "runs": 1, "rows": done}
    first.reload()
    expect(status(first)).to_have_text(re.compile("^Paused · "), timeout=LOAD_MS)
    assert done_rows(first) == done
    go_on(first)
    done = pause(first)
    assert kept(second) == {"names": ["tickets.csv"], "runs": 1, "rows": done}

    # Once it is closed, nothing of the second deletes its run unasked, and a reload brings it there.
    first.close()
    load(second, "few.csv", b"text\none\ntwo\n")
    button(second, "Start").click()
    alert = second.get_by_role("alert")
    expect(alert).to_have_attribute("data-code", "KEPT_RUN", timeout=LOAD_MS)
    expect(alert).to_contain_text("This browser keeps a run of tickets.csv, which another tab began.")
    expect(second.locator(".held")).to_contain_text(
        "keeps a run of tickets.csv, which comes back with a reload"
    )
    assert kept(second) == {"names": ["tickets.csv"], "runs": 1, "rows": done}
    second.reload()
    expect(status(second)).to_have_text(re.compile("^Paused · "), timeout=LOAD_MS)
    assert done_rows(second) == done
    expect(notice(second)).to_have_count(0)
    go_on(second)
    done = pause(second)
    assert kept(second) == {"names": ["tickets.csv"], "runs": 1, "rows": done}
    button(second, "Delete what is kept").click()
    expect(second.locator(".held")).to_be_empty()
    assert second.evaluate("indexedDB.databases()") == []


def test_starting_again_replaces_a_run_that_was_told_of(context: BrowserContext, address: str) -> None:
    second = table_page(context, address)
    first = table_page(context, address)
    load(first, "old.csv", b"text\none\n")
    button(first, "Start").click()
    finish(first)
    first.close()
    load(second, "new.csv", b"text\none\ntwo\n")
    button(second, "Start").click()
    expect(second.get_by_role("alert")).to_have_attribute("data-code", "KEPT_RUN", timeout=LOAD_MS)
    button(second, "Start").click()
    button(second.get_by_role("dialog"), "Start").click()
    finish(second)
    assert kept(second) == {"names": ["new.csv"], "runs": 1, "rows": 2}


def test_measuring_waits_for_the_rows(context: BrowserContext, address: str) -> None:
    page = table_page(context, address)
    start(page, "many.csv", tickets(MANY, MANY))
    page.get_by_role("tab", name="Proof").click()
    page.get_by_role("radio", name="Quick").check()
    button(page, "Measure").click()
    waiting = "Measures as soon as the run of the Table tab is paused or done"
    expect(measuring(page)).to_have_text(waiting)
    # One that waits can be stopped, and does not hold anything up.
    button(page, "Stop").click()
    expect(measuring(page)).to_have_text("Stopped: what was measured stays")
    button(page, "Measure").click()
    expect(measuring(page)).to_have_text(waiting)
    page.get_by_role("tab", name="Table").click()
    before = done_rows(page)
    while done_rows(page) == before:
        page.wait_for_timeout(100)
    assert measuring(page).text_content() == waiting
    button(page, "Pause").click()
    expect(status(page)).to_have_text(re.compile("^Paused · "))
    page.get_by_role("tab", name="Proof").click()
    expect(measuring(page)).to_have_text(MEASURED, timeout=RUN_MS)
    assert page.locator("[data-check][data-passed='true']").count() == 4


def test_rows_wait_for_the_measuring(browser: Browser, address: str) -> None:
    context = browser.new_context(service_workers="block")
    held: list[Route] = []
    holding = True

    def serve(route: Route) -> None:
        if holding:
            held.append(route)
        else:
            route.continue_()

    context.route(re.compile(r"/model/.*\.(bin|onnx)"), serve)
    page = table_page(context, address)
    load(page, "few.csv", b"text\none\ntwo\n")
    page.get_by_role("tab", name="Proof").click()
    page.get_by_role("radio", name="Quick").check()
    button(page, "Measure").click()
    expect(measuring(page)).to_have_text("Measures as soon as the model is ready")
    page.get_by_role("tab", name="Table").click()
    waiting = "0 of 2 rows · Starts as soon as the Proof tab has measured"
    button(page, "Start").click()
    expect(status(page)).to_have_text(waiting)
    # Pausing ends the waiting, and going on waits anew.
    button(page, "Pause").click()
    expect(status(page)).to_have_text("Paused · 0 of 2 rows")
    button(page, "Resume").click()
    expect(status(page)).to_have_text(waiting)
    # The model is asked for by now, or soon.
    while not held:
        page.wait_for_timeout(100)
    holding = False
    for route in held:
        route.continue_()
    finish(page)
    # It was over before the first row was asked about.
    assert MEASURED.match(measuring(page).text_content() or "")
    context.close()
