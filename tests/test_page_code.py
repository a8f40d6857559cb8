"""The Code tab: its programs are run, in their own languages, and ask what the page asks."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests import programs
from tests.test_page_ui import LOAD_MS, SAMPLE, card, has_no_sideways_scroll, tab_to, violations
from typedecide import Choice, Noul, Question, Score, parse_questions, systemone
from typedecide.native import NativeEngine
from typedecide.static_server import PAGE_HEADERS, StaticServer

# All that some language could take for something else than text.
NASTY = (
    'He said "don\'t" \\ $HOME `id` ${x} </script><!-- {state} %s\n'
    "END\n\n\ttab\r\nJSON '''\"\"\" é 😀 \u2028\u202e\ufeff\x00\x1b\x7f" + "long " * 40 + "x" * 200
)
HARD: dict[str, Any] = {
    "plain": {"type": "noul", "criteria": "Is it?"},
    'it\'s "quoted"': {"type": "noul", "instructions": NASTY},
    "meaning": {
        "type": "noul",
        "instructions": "So?",
        "criteria": {"true": "it \\ is", "false": "</script>"},
    },
    "__proto__": {"type": "choice", "instructions": "Which?", "criteria": ["__proto__", "constructor"]},
    "numbers": {"type": "choice", "instructions": "How many?", "criteria": [["10", "ten"], ["2", None]]},
    "described": {"type": "choice", "instructions": "", "criteria": {"a b": NASTY, "c": None, "d": "d"}},
    "levels": {"type": "score", "instructions": "How?", "criteria": ["low", "high"]},
    "told": {"type": "score", "instructions": "How?", "criteria": {"low": "nothing", "high": "all"}},
    "2": {"type": "choice", "instructions": "n" * 90, "criteria": [f"option {i}" for i in range(30)]},
}
OPTIONS = {"readout": "labels", "orderings": 1}


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    return programs.write(NASTY, HARD, OPTIONS)


class _Scripts(HTMLParser):
    """The scripts of a page, as a browser's parser finds them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag == "script"
        if self.inside:
            assert dict(attrs) == {"type": "module"}
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.scripts[-1] += data


@pytest.mark.parametrize("language", ["npm", "script"])
def test_javascript_asks_the_same(written: dict[str, str], language: str) -> None:
    source = written[language]
    if language == "script":
        [source] = _Scripts(source).scripts
        assert "https://host.example/b/index.js" in source
    [asked] = programs.call("run", source)
    assert asked["state"] == NASTY
    assert asked["options"] == OPTIONS
    assert parse_questions(dict(asked["questions"])) == parse_questions(HARD)
    [asked] = programs.call("run", programs.write("t", {"plain": HARD["plain"]})["npm"])
    assert asked.get("options") is None


@pytest.mark.parametrize("language", ["python", "pyodide"])
def test_python_asks_the_same(written: dict[str, str], language: str) -> None:
    source = written[language]
    compile(source, language, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    text, questions = _constants(source)
    assert text == NASTY
    assert questions == parse_questions(HARD)
    assert 'engine.decide(text, questions, readout="labels", orderings=1)' in source


def _constants(source: str) -> tuple[str, dict[str, Question]]:
    """What a Python program defines before it asks."""
    tree = ast.parse(source)
    body: list[ast.stmt] = [node for node in tree.body if isinstance(node, ast.Assign)]
    tree.body = body[:2]
    names: dict[str, Any] = {"Choice": Choice, "Noul": Noul, "Score": Score}
    exec(compile(tree, "program", "exec"), names)
    return names["text"], names["questions"]


def test_curl_sends_the_same(written: dict[str, str], tmp_path: Path) -> None:
    fake = tmp_path / "curl"
    # In the place of curl, what prints the body that it is given.
    fake.write_text("#!/bin/sh\nexec cat\n")
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = written["curl"].encode()
    body = subprocess.run(["bash"], input=script, env=environment, capture_output=True, check=True).stdout
    request = systemone.parse_request(body)
    assert request.state == NASTY
    # The API's levels have no descriptions of their own; the model reads the same.
    assert {id: asked.criterion() for id, asked in request.questions.items()} == {
        id: asked.criterion() for id, asked in parse_questions(HARD).items()
    }


def test_no_program_hides_what_it_says(written: dict[str, str]) -> None:
    for source in written.values():
        assert (
            re.search(r"[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069\ufeff]", source)
            is None
        )


def test_python_runs(dist_pointer: Path, tmp_path: Path) -> None:
    (tmp_path / "dist").symlink_to(dist_pointer)
    source = programs.write(SAMPLE["state"], SAMPLE["questions"])["python"]
    command = [sys.executable, "-c", source]
    environment = {**os.environ, "PYTHONPATH": str(programs.ROOT)}
    said = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    ).stdout
    with NativeEngine(dist_pointer) as engine:
        answers = engine.decide(SAMPLE["state"], parse_questions(SAMPLE["questions"])).answers
    expected = [
        f"{id} {one.answer.choice} {one.answer.value} {one.answer.confidence}" for id, one in answers.items()
    ]
    assert said.splitlines() == expected


@pytest.mark.browser
def test_the_programs_follow_the_page_and_run_in_it(
    browser: Browser, dist_pointer: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    shutil.copytree(dist_pointer, site)
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    with StaticServer(site, isolated=True) as server:
        page = context.new_page()
        page.goto(f"{server.url}?device=wasm")
        expect(page.locator(".load-label")).to_have_text("Ready", timeout=LOAD_MS)
        page.get_by_label("The text to decide about").fill("The lamp arrived broken.")
        page.get_by_role("button", name="Decide", exact=True).click()
        expect(page.locator(".run-status")).to_have_text(re.compile("^11 answered in "), timeout=LOAD_MS)
        shown = {id: _probabilities(page, id) for id in SAMPLE["questions"]}

        # By keyboard from here on.
        page.get_by_role("tab", name="Decide").focus()
        while page.locator(":focus").inner_text() != "Code":
            page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        expect(page.get_by_role("radio", name="JavaScript (npm)")).to_be_checked()
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("radio", name="Plain HTML")).to_be_checked()
        tab_to(page, "Copy")
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Copied", exact=True)).to_be_focused()
        program = page.evaluate("() => navigator.clipboard.readText()")
        assert program == page.locator("pre.code").text_content()
        assert '"The lamp arrived broken."' in program

        (site / "mine.html").write_text(program, "utf-8")
        own = context.new_page()
        own.goto(f"{server.url}mine.html")
        output = own.locator("pre")
        expect(output).to_contain_text('"earlier_contact"', timeout=LOAD_MS)
        answers = json.loads(output.inner_text())
        for id, values in shown.items():
            assert answers[id]["probabilities"] == pytest.approx(values, abs=1e-6)

        with page.expect_download() as begun:
            page.get_by_role("button", name="Download", exact=True).click()
        assert begun.value.suggested_filename == "decide.html"
        assert begun.value.path().read_text("utf-8") == program
    context.close()


def _probabilities(page: Page, question_id: str) -> list[float]:
    bars = card(page, question_id).locator("[data-p]").all()
    return [float(bar.get_attribute("data-p") or "nan") for bar in bars]


LANGUAGES = ("JavaScript (npm)", "Plain HTML", "React", "Python", "Python in the browser")


@pytest.mark.browser
def test_a_program_shows_what_it_asks_and_how(browser: Browser, dist_pointer: Path) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    with StaticServer(dist_pointer, headers=PAGE_HEADERS) as server:
        page = context.new_page()
        page.goto(f"{server.url}?device=wasm#code")
        written = programs.write(SAMPLE["state"], SAMPLE["questions"])
        names = dict(zip(LANGUAGES, ("npm", "script", "react", "python", "pyodide"), strict=True))
        for name, language in names.items():
            page.get_by_role("radio", name=name, exact=True).check()
            block = page.locator("pre.code")
            for label in ("The text, as source text", "The questions, as source text"):
                value = block.get_by_role("group", name=label)
                # It is long, and scrolls in itself, by keyboard too.
                assert value.evaluate("e => e.scrollHeight > e.clientHeight && e.tabIndex === 0"), name
            source = block.text_content() or ""
            if language != "script":
                assert source == written[language]
            # The first question and the call are in the first window.
            call = "useDecider(" if language == "react" else "decide("
            for piece in ("Which team should handle this ticket first?", call):
                bottom = block.evaluate(
                    """(block, piece) => {
                      const walk = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
                      for (let node = walk.nextNode(); node; node = walk.nextNode()) {
                        const at = node.data.indexOf(piece);
                        if (at < 0) continue;
                        const range = document.createRange();
                        range.setStart(node, at);
                        range.setEnd(node, at + piece.length);
                        return range.getBoundingClientRect().bottom;
                      }
                      return Infinity;
                    }""",
                    piece,
                )
                assert bottom < 900, (name, piece)
        # No line is cut off on a narrow page.
        page.set_viewport_size({"width": 360, "height": 740})
        for name in LANGUAGES:
            page.get_by_role("radio", name=name, exact=True).check()
            for part in page.locator("pre.code, pre.code .value").all():
                assert part.evaluate("e => e.scrollWidth <= e.clientWidth"), name
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_and_narrow_windows(browser: Browser, dist_pointer: Path, scheme: Any) -> None:
    context = browser.new_context(
        viewport={"width": 360, "height": 740}, color_scheme=scheme, reduced_motion="reduce"
    )
    with StaticServer(dist_pointer, headers=PAGE_HEADERS) as server:
        page = context.new_page()
        page.goto(f"{server.url}?device=none#code")
        for name in ("JavaScript (npm)", "Plain HTML", "React", "Python", "Python in the browser", "curl"):
            page.get_by_role("radio", name=name, exact=True).check()
            expect(page.locator("pre.code")).to_contain_text(
                "question" if name != "curl" else "--data-binary"
            )
            assert has_no_sideways_scroll(page)
        assert violations(page) == []
        # Questions that cannot be asked have no program.
        page.get_by_role("tab", name="Decide").click()
        page.get_by_role("button", name=re.compile("^Edit: Which team")).click()
        page.get_by_role("textbox", name="Option 1", exact=True).fill("sales")
        page.get_by_role("tab", name="Code").click()
        expect(page.locator("#panel-code .failure")).to_contain_text("INVALID_QUESTION")
        expect(page.locator("pre.code")).to_be_hidden()
        expect(page.get_by_role("button", name="Copy", exact=True)).to_have_attribute("aria-disabled", "true")
        assert violations(page) == []
    context.close()
