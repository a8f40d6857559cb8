"""The Python tab, driven as a person would, under the page's own policy; Python runs in a worker and answers with the
page's engine. The tiny model answers at random.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from bench.link import Link
from pybuild import npm
from tests.test_offline import visitor
from typedecide.native import NativeEngine
from typedecide.questions import Choice, Noul, Score, to_wire
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


WATCH = """
globalThis.aborted = globalThis.channels = 0;
globalThis.Worker = class extends Worker {
  constructor(...given) {
    super(...given);
    this.addEventListener("message", ({ data }) => (aborted += data.error?.code === "ABORTED"));
  }
};
globalThis.MessageChannel = class extends MessageChannel {
  constructor() {
    super();
    channels += 1;
  }
};
"""
"""Counts calls that the workers of a page say were aborted, and channels that it makes."""


@contextmanager
def another(context: BrowserContext, bundle: Path, held: list[Route] | None = None) -> Iterator[Page]:
    """The tab of another visitor; where `held` is given, Python starts once the request in it is answered."""
    assert context.browser is not None
    with StaticServer(bundle, headers=PAGE_HEADERS) as server:
        # A service worker's requests could not be held.
        other = context.browser.new_context(service_workers="block")
        other.add_init_script(WATCH)
        if held is not None:
            other.route("**/session.py", lambda route: held.append(route))
        page = other.new_page()
        page.goto(f"{server.url}?device=wasm#python")
        expect(status(page)).to_have_text(re.compile("is starting" if held is not None else "is ready"))
        yield page
        other.close()


def test_what_waits_for_python_can_be_stopped(context: BrowserContext, dist_pointer: Path) -> None:
    held: list[Route] = []
    with another(context, dist_pointer, held) as page:
        for _ in range(2):
            write(page, "ran = True")
            page.keyboard.press("Control+Enter")
            expect(status(page)).to_have_text("Running …")
            page.get_by_role("button", name="Stop").click()
            expect(status(page)).to_have_text(re.compile("^Stopped after "))
        # What is run then waits for Python, and is run.
        write(page, "print('ran' in globals())")
        page.keyboard.press("Control+Enter")
        expect(status(page)).to_have_text("Running …")
        while not held:
            page.wait_for_timeout(50)
        held[0].continue_()
        expect(status(page)).to_have_text(re.compile("^Done in "))
        assert page.get_by_role("log", name="Output").inner_text() == "False\n"


def test_python_that_does_not_stop_gives_the_engine_back(context: BrowserContext, dist_pointer: Path) -> None:
    connect = "import asyncio, typedecide.browser\nfrom typedecide import *\n"
    connect += "engine = await typedecide.browser.connect()\n"
    one = "print([*(await engine.decide('A text', {'a': Noul('Is it?')})).answers])"
    with another(context, dist_pointer) as page:
        assert run(page, connect + one) == "['a']\n"
        channels = page.evaluate("() => channels")
        # However often it connects, the page lends it the engine once.
        for _ in range(3):
            assert run(page, connect + one) == "['a']\n"
        assert page.evaluate("() => channels") == channels
        assert page.evaluate("() => aborted") == 0
        # Minutes of work for the engine, and a loop that no signal ends.
        write(
            page,
            "many = {f'q{i}': Noul(f'Is it number {i}?') for i in range(60)}\n"
            "work = [asyncio.ensure_future(engine.decide(f'Text {i}', many, readout='labels', run_tokens=20))\n"
            "        for i in range(400)]\n"
            "await asyncio.sleep(0.2)\nprint('stuck')\n"
            "while True:\n    try:\n        while True:\n            pass\n"
            "    except BaseException:\n        pass\n",
        )
        page.keyboard.press("Control+Enter")
        output = page.get_by_role("log", name="Output")
        expect(output).to_contain_text("stuck")
        page.get_by_role("button", name="Stop").click()
        expect(status(page)).to_have_text(re.compile("is ready"))
        assert output.inner_text().endswith("Python did not stop and was started anew: all names are gone.\n")
        assert run(page, "'engine' in globals()") == "False\n"
        # The engine is free for whoever asks next.
        assert run(page, connect + one) == "['a']\n"
        assert page.evaluate("() => aborted") > 0


def test_python_that_breaks_down_is_started_anew(context: BrowserContext, dist_pointer: Path) -> None:
    with another(context, dist_pointer) as page:
        for code in ("import os\nos._exit(3)", "import os\nprint('before')\nos.abort()"):
            run(page, "kept = 1")
            write(page, code)
            page.keyboard.press("Control+Enter")
            expect(status(page)).to_have_text(re.compile("is ready"))
            said = page.get_by_role("log", name="Output").inner_text()
            assert said.endswith("Python broke down and was started anew: all names are gone.\n")
            assert ("before" in said) == ("before" in code)
            assert run(page, "'kept' in globals()") == "False\n"


def test_a_run_ends_whatever_is_raised(tab: Page) -> None:
    code = "class Own(BaseException):\n    pass\n\nraise Own('its words')"
    shown = run(tab, code, "Failed after ")
    assert "line 4, in <module>" in shown and shown.endswith("Own: its words\n")
    # Where not even that can be shown.
    code = (
        "import sys\n\nclass Broken:\n    def write(self, text):\n        raise OSError('no such stream')\n\n"
        "sys.stderr = Broken()\n1 / 0"
    )
    assert "no such stream" in run(tab, code, "Failed after ")
    assert run(tab, "sys.stderr = sys.__stderr__") == ""


def test_the_editor_fills_its_frame(tab: Page) -> None:
    write(tab, "one = 'line'")
    below = tab.evaluate(
        """() => {
          const root = document.querySelector(".python-editor").shadowRoot;
          const bottom = (selector) => root.querySelector(selector).getBoundingClientRect().bottom;
          return [".cm-gutter", ".cm-content"].map((part) => bottom(".frame") - bottom(part));
        }"""
    )
    assert below == pytest.approx([0, 0], abs=3)


def test_run_stands_next_to_the_samples(tab: Page) -> None:
    sample = tab.get_by_label("Sample", exact=True).bounding_box()
    button = tab.get_by_role("button", name="Run").bounding_box()
    assert sample is not None and button is not None
    assert 0 < button["x"] - (sample["x"] + sample["width"]) < 50
    assert abs(button["y"] + button["height"] - (sample["y"] + sample["height"])) < 8


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


STATE = "My card was charged twice. 😀 {state} é"
QUESTIONS = {
    "10": Choice("Which team should handle this?", {"billing": "charges", "shipping": "", "other": None}),
    "angry": Noul("Is the customer angry?"),
    "2": Score("How urgent?", ["low", "middle", "high"]),
}


def check_answers(page: Page) -> None:
    """Python's answers are those of `engine.decide` in the page, to the last bit."""
    asked = json.dumps([[id, to_wire(one)] for id, one in QUESTIONS.items()])
    code = f"""import json, typedecide.browser
from typedecide import *
engine = await typedecide.browser.connect()
questions = parse_questions(dict(json.loads({asked!r})))
done = await engine.decide({STATE!r}, questions)
print(json.dumps([[id, one.to_dict()] for id, one in done.answers.items()]))"""
    ours = json.loads(run(page, code))
    theirs = page.evaluate(
        """async ({ state, asked }) => {
          const { createEngine } = await import(new URL("index.js", location.href));
          const engine = await createEngine({ device: "wasm" });
          const { answers } = await engine.decide({ state, questions: new Map(asked) });
          engine.close();
          return asked.map(([id]) => [id, answers[id]]);
        }""",
        {"state": STATE, "asked": json.loads(asked)},
    )
    assert ours == theirs
    assert [id for id, _ in ours] == list(QUESTIONS)


def test_answers_are_those_of_javascript_to_the_last_bit(tab: Page) -> None:
    check_answers(tab)


def test_python_adds_less_than_30_ms_to_a_call(tab: Page) -> None:
    request = {
        "state": "How long does it take?",
        "questions": {
            "a": {"type": "noul", "criteria": "Is it?"},
            "b": {"type": "choice", "criteria": ["x", "y", "z"]},
        },
    }
    code = f"""import json, typedecide.browser
from time import perf_counter
from typedecide import *
request = json.loads({json.dumps(request)!r})
questions = parse_questions(request["questions"])
engine = await typedecide.browser.connect()
taken = []
for _ in range(20):
    before = perf_counter()
    await engine.decide(request["state"], questions)
    taken.append((perf_counter() - before) * 1000)
print(json.dumps(taken))"""
    tab.evaluate(
        """async () => {
          const { createEngine } = await import(new URL("index.js", location.href));
          globalThis.own = await createEngine({ device: "wasm" });
        }"""
    )
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(3):
        ours += json.loads(run(tab, code))
        theirs += tab.evaluate(
            """async (request) => {
              const taken = [];
              for (let i = 0; i < 20; i++) {
                const before = performance.now();
                await own.decide(request);
                taken.push(performance.now() - before);
              }
              return taken;
            }""",
            request,
        )
    tab.evaluate("() => own.close()")
    added = statistics.median(ours) - statistics.median(theirs)
    print(
        f"decide: {statistics.median(theirs):.1f} ms in JavaScript, {added:.1f} ms more from the tab's Python"
    )
    assert added < 30


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
    check_answers(page)
    page.close()
