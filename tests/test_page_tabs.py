"""The workbench as a whole: all six tabs by keyboard alone, at every width, and without anything that moves by itself.

The tiny model answers at random: it is the page that is tested here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from tests.test_page_ui import LOAD_MS, NO_MODEL, button, has_no_sideways_scroll, tab_to
from typedecide.static_server import PAGE_HEADERS, StaticServer

pytestmark = pytest.mark.browser

TABS = ("Decide", "Table", "Trust", "Proof", "Code", "Python")
RUN_MS = 600_000
TEXT = "The kettle leaks, and I want my money back."
ROWS = "review,defect\n" + "".join(
    f"Kettle {i} {'leaks' if i % 2 else 'works'}.,{'yes' if i % 2 else 'no'}\n" for i in range(8)
)

SHIFTS = """
window.shifts = [];
const named = (node) => node && (node.outerHTML ?? node.textContent).slice(0, 80);
new PerformanceObserver((list) => {
  for (const { value, hadRecentInput, sources } of list.getEntries())
    if (!hadRecentInput) shifts.push([value, ...sources.map(({ node }) => named(node))]);
}).observe({ type: "layout-shift", buffered: true });
"""
MOST_SHIFT = 0.01


@pytest.fixture(scope="module")
def url(dist_pointer: Path) -> Iterator[str]:
    with StaticServer(dist_pointer, headers=PAGE_HEADERS) as server:
        yield server.url


@contextmanager
def window(browser: Browser, width: int, **options: Any) -> Iterator[BrowserContext]:
    """A window of this width that notes what moves."""
    context = browser.new_context(
        viewport={"width": width, "height": 800}, reduced_motion="reduce", **options
    )
    context.add_init_script(SHIFTS)
    yield context
    context.close()


def whole(page: Page, name: str) -> None:
    """Wait until a tab is there, and drawn."""
    expect(page.locator(f"#panel-{name.lower()}:not([aria-busy])")).to_be_visible(timeout=LOAD_MS)
    if name == "Python":
        expect(page.locator(".python-status")).to_have_text(re.compile("is ready"), timeout=LOAD_MS)
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def shifts(page: Page) -> list[Any]:
    """What moved by itself, and how much, once that is noticeable in all."""
    found: list[Any] = page.evaluate("shifts")
    return found if sum(shift[0] for shift in found) >= MOST_SHIFT else []


# ---------------------------------------------------------------- what stays where it is


@pytest.mark.parametrize("width", [360, 1280])
def test_tab_names_fit_and_stay_where_they_are(browser: Browser, url: str, width: int) -> None:
    with window(browser, width) as context:
        page = context.new_page()
        page.goto(url + NO_MODEL)
        whole(page, "Decide")
        tabs = page.get_by_role("tab").all()
        before = [tab.bounding_box() for tab in tabs]
        for box in before:
            assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= width
        for tab in tabs:
            tab.click()
            expect(tab).to_have_attribute("aria-selected", "true")
            assert [one.bounding_box() for one in tabs] == before


def test_a_narrow_page_begins_soon(browser: Browser, url: str) -> None:
    with window(browser, 360) as context:
        page = context.new_page()
        page.goto(f"{url}?device=wasm")
        whole(page, "Decide")
        tabs = page.get_by_role("tablist")
        before = tabs.bounding_box()
        # Title, what is loaded, what it is for, and the tabs: less than a quarter of the window.
        assert before is not None and before["y"] + before["height"] < 200
        expect(page.locator(".load-label")).to_have_text("Ready", timeout=LOAD_MS)
        assert tabs.bounding_box() == before
        for part in (".load-label", "h1", ".brand p"):
            box = page.locator(part).bounding_box()
            assert box is not None and box["x"] + box["width"] <= 360


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("first", TABS)
def test_nothing_moves_while_the_page_loads(browser: Browser, url: str, first: str, width: int) -> None:
    with window(browser, width) as context:
        page = context.new_page()
        page.goto(f"{url}?device=wasm#{first.lower()}")
        whole(page, first)
        expect(page.locator(".load-label")).to_have_text("Ready", timeout=LOAD_MS)
        whole(page, first)
        assert shifts(page) == []


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_moves_while_a_tab_is_opened(browser: Browser, url: str, width: int) -> None:
    def serve(route: Route) -> None:
        # Slow enough that the page is seen without it.
        time.sleep(0.2)
        route.continue_()

    # No service worker: its requests are not seen here, and a page without it loads no model by itself.
    with window(browser, width, service_workers="block") as context:
        page = context.new_page()
        context.route(re.compile(r"/app/(table|trust|proof|code|python)/[a-z]+\.(js|css)$"), serve)
        page.goto(f"{url}?device=wasm")
        whole(page, "Decide")
        for name in [*TABS[1:], TABS[0]]:
            # By address: what moves after a click or a key is no surprise, and does not count.
            page.evaluate("(hash) => { location.hash = hash }", name.lower())
            whole(page, name)
            assert shifts(page) == [], name


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_moves_while_a_kept_run_comes_back(browser: Browser, url: str, width: int) -> None:
    with window(browser, width) as context:
        page = context.new_page()
        page.goto(f"{url}?device=wasm#table")
        whole(page, "Table")
        page.locator("#table-file").set_input_files(
            {"name": "kettles.csv", "mimeType": "", "buffer": ROWS.encode()}
        )
        button(page, "Start").click()
        expect(page.locator("#panel-table .run-status")).to_have_text(re.compile("^Done · "), timeout=RUN_MS)
        page.reload()
        expect(page.locator("#panel-table .run-status")).to_have_text(re.compile("^Done · "), timeout=LOAD_MS)
        expect(page.locator(".load-label")).to_have_text("Ready", timeout=LOAD_MS)
        whole(page, "Table")
        assert shifts(page) == []


def test_a_tab_that_is_still_fetched_holds_up_no_other(browser: Browser, url: str) -> None:
    held: list[Route] = []
    with window(browser, 1280, service_workers="block") as context:
        page = context.new_page()
        context.route("**/app/code/tab.js", lambda route: held.append(route))
        page.goto(url + NO_MODEL)
        whole(page, "Decide")
        page.get_by_role("tab", name="Code").click()
        expect(page.locator("#panel-code")).to_contain_text("Opening")
        page.get_by_role("tab", name="Proof").click()
        expect(button(page, "Measure")).to_be_visible(timeout=LOAD_MS)
        [route] = held
        route.continue_()
        expect(page.locator("pre.code")).to_be_attached(timeout=LOAD_MS)
        expect(page.get_by_role("tabpanel")).to_have_accessible_name("Proof")
        page.get_by_role("tab", name="Code").click()
        expect(page.locator("pre.code")).to_contain_text("createEngine")


# ---------------------------------------------------------------- at every width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_very_large_screen_is_used(browser: Browser, url: str, scheme: Any) -> None:
    with window(browser, 3840, color_scheme=scheme) as context:
        page = context.new_page()
        page.goto(f"{url}?device=wasm")
        for name in TABS:
            page.get_by_role("tab", name=name).click()
            whole(page, name)
            assert has_no_sideways_scroll(page)
            box = page.locator(f"#panel-{name.lower()}").bounding_box()
            assert box is not None and box["width"] > 3840 / 2
            assert box["x"] == pytest.approx(3840 - box["x"] - box["width"], abs=20)


# ---------------------------------------------------------------- by keyboard


def go_to(page: Page, name: str) -> None:
    """Open a tab by keyboard, from wherever the focus is."""
    for _ in range(200):
        if page.locator(":focus").get_attribute("role") == "tab":
            break
        page.keyboard.press("Shift+Tab")
    page.keyboard.press("Home")
    for _ in TABS[: TABS.index(name)]:
        page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name=name)).to_be_focused()
    page.keyboard.press("Enter")
    whole(page, name)


def tab_into(page: Page, id: str) -> None:
    """Press Tab until the control of this id has the focus."""
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.locator(":focus").get_attribute("id") == id:
            return
    raise AssertionError(f"Tab never reached #{id}")


def test_all_six_tabs_by_keyboard_alone(browser: Browser, url: str) -> None:
    permissions = ["clipboard-read", "clipboard-write"]
    with window(browser, 1280, permissions=permissions) as context:
        page = context.new_page()
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{url}?device=wasm")
        whole(page, "Decide")
        page.keyboard.press("Tab")
        expect(page.get_by_role("tab", name="Decide")).to_be_focused()

        # Decide: a sample, a text of one's own, and all answers.
        tab_to(page, "Product review")
        page.keyboard.press("Enter")
        expect(page.get_by_role("article")).to_have_count(8)
        tab_into(page, "state")
        page.keyboard.press("Control+a")
        page.keyboard.insert_text(TEXT)
        page.keyboard.press("Control+Enter")
        answered = page.locator("#panel-decide .run-status")
        expect(answered).to_have_text(re.compile("^8 answered in "), timeout=LOAD_MS)

        # Table: rows pasted, answered, sorted.
        go_to(page, "Table")
        tab_to(page, "Or paste rows")
        page.keyboard.press("Enter")
        tab_into(page, "table-pasted")
        page.keyboard.insert_text(ROWS)
        tab_to(page, "Use these rows")
        page.keyboard.press("Enter")
        expect(page.locator(".table-summary")).to_have_text("pasted.csv: 8 rows, 2 columns")
        tab_to(page, "Start")
        page.keyboard.press("Enter")
        expect(page.locator("#panel-table .run-status")).to_have_text(re.compile("^Done · "), timeout=RUN_MS)
        tab_into(page, "table-sort")
        page.keyboard.type("Least")
        expect(page.locator("#table-sort")).to_have_value("lowest")
        tab_to(page, "Rows and their answers")

        # Trust: the column of true answers, and a threshold.
        go_to(page, "Trust")
        tab_into(page, "trust-question")
        page.keyboard.type("defect")
        expect(page.locator(".trust-note")).to_contain_text("8 answered rows have a true answer")
        tab_to(page, "Find the threshold")
        page.keyboard.press("Enter")
        expect(page.locator(".kept")).not_to_be_empty()

        # Proof: the shortest form.
        go_to(page, "Proof")
        page.keyboard.press("Tab")
        expect(page.get_by_role("radio", name="Normal")).to_be_focused()
        page.keyboard.press("ArrowUp")
        tab_to(page, "Measure")
        page.keyboard.press("Enter")
        expect(page.locator(".proof-status")).to_have_text(re.compile("^Measured in "), timeout=RUN_MS)

        # Code: another language, copied.
        go_to(page, "Code")
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("radio", name="Plain HTML")).to_be_checked()
        tab_to(page, "Copy")
        page.keyboard.press("Enter")
        expect(button(page, "Copied")).to_be_focused()
        assert TEXT in page.evaluate("navigator.clipboard.readText()")

        # Python: the sample, run, its output read.
        go_to(page, "Python")
        tab_to(page, "Run")
        page.keyboard.press("Enter")
        expect(page.locator(".python-status")).to_have_text(re.compile("^Done in "), timeout=RUN_MS)
        assert "refund" in page.get_by_role("log", name="Output").inner_text()
        assert complaints == []
