"""The Python tab, driven as a person would, under the page's own policy; Python runs in a worker and answers with the
page's engine. The tiny model answers at random.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from bench.link import Link
from pybuild import npm
from tests.test_offline import visitor
from typedecide.native import NativeEngine
from typedecide.questions import Choice, Noul
from typedecide.static_server import PAGE_HEADERS, StaticServer

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "web" / "app" / "python" / "samples"


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """One visitor for all tests: what was fetched is kept from test to test, as it is for a person."""
    with visitor(browser) as context:
        yield context


@pytest.fixture(scope="module")
def link(dist_pointer: Path) -> Iterator[Link]:
    """The bundle behind a network that can be cut."""
    with StaticServer(dist_pointer, headers=PAGE_HEADERS) as server, Link(server.port) as link:
        yield link


@pytest.fixture(scope="module")
def tab(context: BrowserContext, link: Link) -> Page:
    """The opened tab, Python ready."""
    page = context.new_page()
    page.complaints = complaints = []  # type: ignore[attr-defined]
    page.on("console", lambda m: complaints.append(m.text) if m.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(f"{link.url}?device=wasm")
    expect(page.get_by_role("tab", name="Python")).to_be_visible()
    assert not [path for path in link.paths if "pyodide" in path or "codemirror" in path]
    page.get_by_role("tab", name="Decide").focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(status(page)).to_have_text(re.compile(r"^Python 3\.\d+\.\d+ is ready\.$"))
    return page


def status(page: Page):  # type: ignore[no-untyped-def]
    """What the tab says of the session."""
    return page.locator(".python-status")


def write(page: Page, code: str) -> None:
    """Replace what is in the editor, as a person who pastes."""
    page.get_by_role("textbox", name="Python code").focus()
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    page.evaluate(
        """(code) => {
          const clipboardData = new DataTransfer();
          clipboardData.setData("text/plain", code);
          const paste = new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true });
          document.activeElement.shadowRoot.activeElement.dispatchEvent(paste);
        }""",
        code,
    )


def run(page: Page, code: str, ending: str = "Done in ") -> str:
    """Run code; what it printed."""
    write(page, code)
    page.keyboard.press("Control+Enter")
    expect(status(page)).to_have_text(re.compile(f"^{ending}"))
    return page.get_by_role("log", name="Output").inner_text()


def test_the_readme_sample_gives_the_answers_of_every_engine(tab: Page, dist_pointer: Path) -> None:
    tab.get_by_role("button", name="Run").focus()
    tab.keyboard.press("Enter")
    expect(status(tab)).to_have_text(re.compile("^Done in "))
    printed = tab.get_by_role("log", name="Output").inner_text()
    with NativeEngine(dist_pointer) as engine:
        answers = engine.decide(
            "My card was charged twice for order 1182, and nobody answers my mails.",
            {
                "team": Choice("Which team should handle this?", ["billing", "shipping", "other"]),
                "refund": Noul("Does the customer want money back?"),
            },
        ).answers
    lines = printed.splitlines()
    assert [line.split(" ")[:2] for line in lines] == [[id, one.answer.choice] for id, one in answers.items()]
    for line, one in zip(lines, answers.values(), strict=True):
        shown = json.loads(line[line.index("(") :].replace("(", "[").replace(")", "]"))
        assert shown == pytest.approx(one.answer.probabilities, abs=1e-5)


def test_samples_are_those_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert (SAMPLES / "decide.py").read_text("utf-8") in readme


@pytest.mark.parametrize("label", ["Answers as they come", "Time limit and errors"])
def test_further_samples_run(tab: Page, label: str) -> None:
    tab.once("dialog", lambda dialog: dialog.accept())
    tab.get_by_label("Sample", exact=True).select_option(label=label)
    tab.get_by_role("button", name="Run").click()
    expect(status(tab)).to_have_text(re.compile("^Done in "))
    printed = tab.get_by_role("log", name="Output").inner_text()
    assert ("TOO_LONG" in printed) == (label == "Time limit and errors")
    assert len(printed.splitlines()) == 3


def test_shows_the_last_value_what_is_printed_and_tracebacks(tab: Page) -> None:
    assert run(tab, "x = 20\nx + 1") == "21\n"
    # Names stay.
    assert run(tab, "print('é 😀', x)\nNone") == "é 😀 20\n"
    shown = run(tab, "def f():\n    return 1 / 0\nf()", "Failed after ")
    assert "line 3, in <module>" in shown and "return 1 / 0" in shown and "ZeroDivisionError" in shown
    assert "/lib/" not in shown
    assert "SyntaxError" in run(tab, "def", "Failed after ")
    assert run(tab, "import sys\nsys.exit()") == ""


def test_errors_are_pythons(tab: Page) -> None:
    code = (
        "import typedecide.browser\nfrom typedecide import *\nengine = await typedecide.browser.connect()\n"
        "try:\n    await engine.decide('x ' * 9000, {'a': Noul('Is it?')})\n"
        "except TooLongError as error:\n    print(error.tokens > error.limit, error.limit)"
    )
    assert run(tab, code) == "True 4096\n"


@pytest.mark.parametrize(
    "code",
    ["while True:\n    pass", "import asyncio\nawait asyncio.sleep(600)", "while True:\n    print('more')"],
)
def test_stops(tab: Page, code: str) -> None:
    run(tab, "kept = 1")
    write(tab, code)
    tab.keyboard.press("Control+Enter")
    expect(status(tab)).to_have_text("Running …")
    # The page answers while Python does not.
    tab.get_by_role("button", name="Stop").focus()
    tab.keyboard.press("Enter")
    expect(status(tab)).to_have_text(re.compile("^Stopped after "))
    assert run(tab, "kept") == "1\n"


def test_the_keyboard_is_not_trapped(tab: Page) -> None:
    write(tab, "if True:")
    tab.keyboard.press("Enter")
    tab.keyboard.press("Tab")
    focused = """() => {
      const host = document.activeElement;
      const element = host.shadowRoot?.activeElement ?? host;
      return element.getAttribute("aria-label") ?? element.textContent;
    }"""
    assert tab.evaluate(focused) == "Python code"
    tab.keyboard.press("Escape")
    tab.keyboard.press("Tab")
    assert tab.evaluate(focused) == "Output"
    tab.keyboard.press("Shift+Tab")
    tab.keyboard.press("Escape")
    tab.keyboard.press("Shift+Tab")
    assert tab.evaluate(focused) == "Stop"


def test_the_model_is_loaded_once_and_nothing_is_complained_of(tab: Page, link: Link) -> None:
    shards = [path for path in link.paths if path.startswith("/model/") and path.endswith(".bin")]
    assert len(shards) == len(set(shards))
    assert tab.complaints == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_nothing(tab: Page, scheme: str, width: int) -> None:
    tab.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    tab.set_viewport_size({"width": width, "height": 900})
    run(tab, "# a comment\nfor i in range(3):\n    print('text', 3.5, None)\n1 / 0", "Failed after ")
    assert tab.evaluate("() => document.documentElement.scrollWidth") <= width
    tab.evaluate((npm.package("axe-core") / "axe.min.js").read_text("utf-8"))
    found = tab.evaluate(
        "async () => (await axe.run()).violations.map(({ id, nodes }) => [id, nodes.map((n) => n.html)])"
    )
    assert found == []
    tab.emulate_media(color_scheme="light")
    tab.set_viewport_size({"width": 1280, "height": 900})


def test_runs_without_a_network_once_it_was_used(tab: Page, context: BrowserContext, link: Link) -> None:
    # The first visit fetched some of it before the service worker was there; a reload passes through it.
    tab.reload()
    expect(status(tab)).to_have_text(re.compile("is ready"))
    tab.get_by_role("button", name="Run").click()
    expect(status(tab)).to_have_text(re.compile("^Done in "))
    tab.close()
    link.cut()
    page = context.new_page()
    page.goto(f"{link.url}?device=wasm#python")
    expect(status(page)).to_have_text(re.compile("is ready"))
    page.get_by_role("button", name="Run").click()
    expect(status(page)).to_have_text(re.compile("^Done in "))
    assert "refund" in page.get_by_role("log", name="Output").inner_text()
    page.close()
