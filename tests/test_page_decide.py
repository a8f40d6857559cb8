"""The workbench's shell and the Decide tab: tabs, samples, questions moved and exchanged, and what the page weighs.

The tiny model answers at random, and `device=none` loads none: it is the page that is tested here.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from bench.tiny import build_tiny
from tests import programs
from tests.test_calibration import document
from tests.test_page_ui import (
    LOAD_MS,
    NO_MODEL,
    SAMPLE,
    button,
    card,
    has_no_sideways_scroll,
    open_page,
    orders_read,
    probabilities,
    tab_to,
    violations,
)
from typedecide import parse_questions
from typedecide.static_server import PAGE_HEADERS, StaticServer

SAMPLES = Path(__file__).resolve().parents[1] / "web" / "app" / "decide" / "samples"
SHELL_BYTES = 150_000
INTERACTIVE_MS = 1000
IDS = [*SAMPLE["questions"]]

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def url(dist_pointer: Path) -> Iterator[str]:
    """The tiny bundle, served as `make serve` does."""
    with StaticServer(dist_pointer, headers=PAGE_HEADERS) as server:
        yield server.url


def ids(page: Page) -> list[str]:
    """The ids of the cards, in their order."""
    found: list[str] = page.locator("article").evaluate_all("cards => cards.map((c) => c.dataset.question)")
    return found


def says(page: Page, text: str | re.Pattern[str]) -> None:
    """What a screen reader was told last."""
    expect(page.locator('body > [role="status"]')).to_have_text(text)


def edit_json(page: Page, text: str) -> None:
    """Open the dialog, put a text into it, and use it."""
    button(page, "Import / export").click()
    page.get_by_role("textbox", name="Questions as JSON").fill(text)
    button(page, "Use these").click()


# ---------------------------------------------------------------- the shell


def test_the_shell_is_small_and_soon_there(browser: Browser, url: str) -> None:
    best = 1e9
    for _ in range(3):
        context = browser.new_context()
        page = context.new_page()
        sizes: dict[str, int] = {}

        def weigh(request: Any, sizes: dict[str, int] = sizes) -> None:
            body = request.response().body()
            sizes[urlsplit(request.url).path] = len(gzip.compress(body, 6, mtime=0))

        # The page's own: its service worker fetches ahead, once the page is there, what the other tabs need.
        page.on("requestfinished", weigh)
        page.add_init_script(
            """new MutationObserver(() => {
              if (globalThis.interactive === undefined && document.querySelector("article"))
                requestAnimationFrame(() => (globalThis.interactive ??= performance.now()));
            }).observe(document, { childList: true, subtree: true });"""
        )
        page.goto(url + NO_MODEL)
        expect(page.get_by_role("alert")).to_be_visible(timeout=LOAD_MS)
        page.get_by_label("The text to decide about").fill("It works.")
        best = min(best, page.evaluate("() => globalThis.interactive"))
        page.wait_for_load_state("networkidle")
        assert {"/app/app.js", "/app/decide/tab.js", "/app/decide/decide.css", "/index.js"} <= set(sizes)
        assert not any(path.startswith(("/app/code/", "/vendor/", "/model/")) for path in sizes)
        assert sum(sizes.values()) < SHELL_BYTES, sizes
        context.close()
    print(f"shell {sum(sizes.values())} bytes compressed, interactive after {best:.0f} ms")
    assert best < INTERACTIVE_MS


def test_tabs_by_keyboard_by_address_and_back(page: Page, url: str) -> None:
    open_page(page, url + NO_MODEL)
    tabs = page.get_by_role("tab")
    expect(tabs.first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Tab")
    # After the alert's buttons, one stop for all tabs.
    tabs.first.focus()
    page.keyboard.press("End")
    expect(tabs.last).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(tabs.first).to_be_focused()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Home")
    code = page.get_by_role("tab", name="Code")
    while not code.evaluate("e => e === document.activeElement"):
        page.keyboard.press("ArrowRight")
    # Only now is it opened.
    expect(code).to_have_attribute("aria-selected", "false")
    page.keyboard.press(" ")
    expect(code).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("tabpanel", name="Code")).to_be_visible()
    assert page.url.endswith("#code")
    assert [tab.get_attribute("tabindex") for tab in tabs.all()].count("0") == 1
    page.go_back()
    expect(page.get_by_role("tabpanel", name="Decide")).to_be_visible()
    # Nothing was lost on the way.
    assert ids(page) == IDS
    page.goto(f"{url}{NO_MODEL}#code")
    page.reload()
    expect(page.get_by_role("tabpanel", name="Code")).to_be_visible()


def test_a_tab_that_cannot_be_fetched_is_said(page: Page, url: str) -> None:
    page.context.route("**/app/code/code.css", lambda route: route.fulfill(status=503))
    page.goto(f"{url}?device=wasm#code")
    alert = page.locator(".alert")
    expect(alert).to_contain_text("This part of the page could not be opened.")
    expect(alert).to_contain_text("code.css")
    page.context.unroute("**/app/code/code.css")
    button(alert, "Try again").click()
    expect(page.locator("pre.code")).to_contain_text("createEngine")
    expect(page.get_by_role("alert")).to_have_count(0)


# ---------------------------------------------------------------- samples


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_samples_are_questions_about_their_text(path: Path) -> None:
    sample = json.loads(path.read_text("utf-8"))
    assert 400 < len(sample["state"]) < 2000
    kinds = {asked.kind for asked in parse_questions(sample["questions"]).values()}
    assert kinds == {"choice", "noul", "score"} and len(sample["questions"]) >= 8


def test_samples_are_loaded_decided_and_undone(page: Page, url: str) -> None:
    open_page(page, f"{url}?device=wasm&auto=1")
    expect(page.locator(".run-status")).to_have_text(re.compile("^11 answered in "), timeout=LOAD_MS)
    assert sorted(path.stem for path in SAMPLES.glob("*.json")) == sorted(
        button.get_attribute("data-sample") or "" for button in page.locator("[data-sample]").all()
    )
    before = probabilities(card(page, "queue"))
    for path in SAMPLES.glob("*.json"):
        sample = json.loads(path.read_text("utf-8"))
        page.locator(f'[data-sample="{path.stem}"]').click()
        expect(page.get_by_label("The text to decide about")).to_have_value(sample["state"])
        assert ids(page) == [*sample["questions"]]
    page.get_by_role("button", name="Contract clause").click()
    page.get_by_role("button", name="Support ticket").click()
    button(page, "Decide").click()
    expect(page.locator(".run-status")).to_have_text(re.compile("^11 answered in "), timeout=LOAD_MS)
    assert probabilities(card(page, "queue")) == pytest.approx(before, abs=1e-6)
    button(page, re.compile("^Undo: Sample: Support ticket")).click()
    assert "renewal" in ids(page)
    expect(page.get_by_label("The text to decide about")).to_have_value(re.compile("^8. Term"))


# ---------------------------------------------------------------- questions


def test_questions_are_moved_duplicated_and_undone(page: Page, url: str) -> None:
    open_page(page, f"{url}?device=wasm&auto=1")
    expect(page.locator(".run-status")).to_have_text(re.compile("^11 answered in "), timeout=LOAD_MS)
    first = card(page, "queue")
    answered = probabilities(first)
    expect(button(first, re.compile("^Move up: "))).to_have_attribute("aria-disabled", "true")
    button(first, re.compile("^Move down: ")).click()
    assert ids(page) == ["topic", "queue", *IDS[2:]]
    says(page, "Moved: Which team should handle this ticket first?, now 2 of 11")
    expect(button(first, re.compile("^Move down: "))).to_be_focused()
    page.keyboard.press("Alt+ArrowUp")
    page.keyboard.press("Alt+ArrowUp")
    assert ids(page) == IDS
    # An answer goes with its question.
    assert probabilities(first) == answered

    button(first, re.compile("^Duplicate: ")).click()
    copy = card(page, "queue_2")
    assert ids(page) == ["queue", "queue_2", *IDS[1:]]
    expect(copy.get_by_label("Question", exact=True)).to_be_focused()
    copy.get_by_label("Id", exact=True).fill("queue")
    button(copy, "Done").click()
    expect(page.get_by_role("alert")).to_contain_text("Another question has this id.")
    page.get_by_label("Id", exact=True).fill("team")
    button(page, "Done").click()
    assert ids(page)[:3] == ["queue", "team", "topic"]
    expect(card(page, "team").locator(".verdict")).to_have_text("Not decided yet")

    button(first, re.compile("^Delete: ")).click()
    says(page, re.compile("^Deleted: "))
    assert ids(page)[0] == "team"
    button(page, re.compile("^Undo: Deleted: ")).click()
    assert ids(page)[:3] == ["queue", "team", "topic"]
    assert probabilities(first) == answered
    expect(page.get_by_role("button", name=re.compile("^Undo"))).to_have_count(0)


def test_what_yes_and_no_mean_is_asked(page: Page, url: str) -> None:
    open_page(page, f"{url}?device=wasm")
    refund = card(page, "refund")
    button(refund, re.compile("^Edit: ")).click()
    refund.get_by_label("What yes means (not required)").fill("the customer wants money")
    button(refund, "Done").click()
    page.get_by_role("tab", name="Code").click()
    expect(page.locator("pre.code")).to_contain_text('true: "the customer wants money", false: ""')


def test_flip_rates_and_orders(page: Page, url: str) -> None:
    open_page(page, f"{url}?device=wasm")
    page.get_by_role("radio", name="Letters, several orders").check()
    button(page, "Decide").click()
    expect(page.locator(".run-status")).to_have_text(re.compile("^11 answered in "), timeout=LOAD_MS)
    assert [orders_read(card(page, name)) for name in ("queue", "refund", "mood")] == [4, 2, 4]


def test_nothing_that_was_typed_is_lost_by_undo(page: Page, url: str) -> None:
    open_page(page, url + NO_MODEL)
    page.get_by_role("button", name="Contract clause").click()
    text = page.get_by_label("The text to decide about")
    text.fill("Typed since.")
    button(page, re.compile("^Undo: Sample: Contract clause")).click()
    expect(text).to_have_value(SAMPLE["state"])
    assert ids(page) == IDS
    says(page, "Undone")
    redo = button(page, re.compile("^Redo: Sample: Contract clause"))
    expect(redo).to_be_focused()
    page.keyboard.press("Enter")
    expect(text).to_have_value("Typed since.")
    assert "renewal" in ids(page)
    says(page, "Done again")
    button(page, re.compile("^Undo: Sample: Contract clause")).click()
    expect(text).to_have_value(SAMPLE["state"])
    # A step of another kind leaves nothing to do again.
    button(card(page, "queue"), re.compile("^Duplicate: ")).click()
    expect(page.get_by_role("button", name=re.compile("^(Undo|Redo)"))).to_have_count(0)


def test_cards_say_that_an_answer_is_approximate_and_that_it_abstains(
    page: Page, dist_pointer_shallow: Path, url: str, tmp_path: Path
) -> None:
    path = tmp_path / "calibration.json"
    model = json.loads((dist_pointer_shallow / "manifest.json").read_text("utf-8"))["model"]
    about = {name: model[name] for name in ("name", "origin", "shallow")}
    # No probability is above 1: all that is calibrated abstains.
    given = document(dist_pointer_shallow, model=about, abstain={"alpha": 0.1, "threshold": 1})
    path.write_text(json.dumps(given), "utf-8")
    bundle = build_tiny("-shallow-calibrated", shallow=2, anchor="instruction", calibration=path)
    with StaticServer(bundle, headers=PAGE_HEADERS) as server:
        open_page(page, f"{server.url}?device=wasm&auto=1")
        expect(page.locator(".run-status")).to_have_text(re.compile("^11 answered in "), timeout=LOAD_MS)
        approximate = page.locator("article .approximate")
        expect(approximate).to_have_count(len(IDS))
        expect(approximate.first).to_have_text(
            "approximate: only the first 2 layers read the text (anchor: instruction); agreement with the whole"
            " model: not measured"
        )
        calibrated = [id for id, asked in SAMPLE["questions"].items() if asked["type"] != "score"]
        for id in IDS:
            expect(card(page, id).locator(".abstains")).to_have_count(int(id in calibrated))
        expect(card(page, "queue").locator(".verdict")).to_contain_text(
            "abstains: its probability is not above"
        )
    # Neither is said of other answers.
    open_page(page, f"{url}?device=wasm&auto=1")
    expect(page.locator(".run-status")).to_have_text(re.compile("^11 answered in "), timeout=LOAD_MS)
    expect(page.locator(".verdict strong")).to_have_count(len(IDS))
    expect(page.locator("article .verdict-badge")).to_have_count(0)


# ---------------------------------------------------------------- how it looks


def test_no_card_has_a_hole_and_the_hint_no_gap(page: Page, url: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    open_page(page, url + NO_MODEL)
    holes = page.locator("article").evaluate_all(
        """cards => cards.map((card) => {
          const [bars, foot] = [".bars", ".card-foot"].map((part) => card.querySelector(part).getBoundingClientRect());
          return foot.top - bars.bottom + card.getBoundingClientRect().bottom - foot.bottom;
        })"""
    )
    assert len(holes) == len(IDS) and max(holes) < 30
    hint = page.locator(".reading-hint")
    for reading in ("Trained comparison", "Option texts", "Letters, several orders", "Letters, one order"):
        page.get_by_role("radio", name=reading).check()
        text, place = hint.evaluate(
            """(hint) => {
              const range = document.createRange();
              range.selectNodeContents(hint);
              return [range, hint].map((one) => one.getBoundingClientRect().height);
            }"""
        )
        assert text <= place < text + 8, reading


def test_a_narrow_page_shows_its_heads_whole_and_bars_soon(page: Page, url: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    open_page(page, url + NO_MODEL)
    page.get_by_role("button", name="Moderation").click()
    # With something to undo there is most in the line.
    expect(page.get_by_role("button", name=re.compile("^Undo"))).to_be_visible()
    lines = page.locator(".question-part .part-head :is(h2, .hint, button)").filter(visible=True)
    assert lines.count() == 4
    for line in lines.all():
        assert (
            line.evaluate(
                "(e) => new Set([...(() => { const r = document.createRange(); r.selectNodeContents(e);"
                " return r.getClientRects(); })()].map(({ top }) => Math.round(top))).size"
            )
            == 1
        )
    assert has_no_sideways_scroll(page)
    # The text, the buttons and the ways to read take one window; the first answer is in the second.
    first = page.locator(".bar").first.bounding_box()
    assert first is not None and first["y"] + page.evaluate("scrollY") < 2 * 740


def luminance(colour: str) -> float:
    """Relative luminance of `rgb(r, g, b)`, as WCAG 2 has it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_bars_can_be_seen(page: Page, url: str, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    open_page(page, f"{url}?device=wasm&auto=1")
    expect(page.locator(".run-status")).to_have_text(re.compile("^11 answered in "), timeout=LOAD_MS)
    found = page.locator(".bar .fill").evaluate_all(
        "fills => fills.map((e) => [e, e.parentElement].map((one) => getComputedStyle(one).backgroundColor))"
    )
    assert found
    for fill, track in found:
        light, dark = sorted((luminance(fill), luminance(track)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3, (fill, track)
    # However small the probability is; none at all is no bar.
    widths = page.locator(".bar .fill").first.evaluate(
        """(fill) => ["0.003", "0"].map((share) => {
          fill.style.setProperty("--fill", share);
          return fill.getBoundingClientRect().width;
        })"""
    )
    assert widths[0] >= 3 and widths[1] == 0


# ---------------------------------------------------------------- JSON


def test_json_goes_out_and_in_again(browser: Browser, url: str, tmp_path: Path) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    open_page(page, url + NO_MODEL)
    button(page, "Import / export").click()
    dialog = page.get_by_role("dialog", name="Questions as JSON")
    text = dialog.get_by_role("textbox")
    expect(text).to_be_focused()
    exported = text.input_value()
    assert parse_questions(json.loads(exported)) == parse_questions(SAMPLE["questions"])
    button(dialog, "Copy").click()
    says(page, "Copied")
    assert page.evaluate("() => navigator.clipboard.readText()") == exported
    with page.expect_download() as begun:
        button(dialog, "Download").click()
    assert begun.value.suggested_filename == "questions.json"
    assert begun.value.path().read_text("utf-8") == exported

    wanted = {"late": {"type": "noul", "criteria": "Is it late?"}}
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"state": "Where is it?", "questions": wanted}), "utf-8")
    with page.expect_file_chooser() as chooser:
        button(dialog, "Open a file").click()
    chooser.value.set_files(file)
    expect(text).to_have_value(re.compile("Where is it"))
    # Nothing changes until it is used.
    assert ids(page) == IDS
    button(dialog, "Use these").click()
    expect(dialog).to_be_hidden()
    says(page, "1 question from JSON")
    assert ids(page) == ["late"]
    expect(page.get_by_label("The text to decide about")).to_have_value("Where is it?")
    button(page, re.compile("^Undo: 1 question from JSON")).click()
    assert ids(page) == IDS
    expect(page.get_by_label("The text to decide about")).to_have_value(SAMPLE["state"])
    context.close()


@pytest.mark.parametrize(
    ("given", "place", "message"),
    [
        ('{"a": ', None, "not JSON"),
        ("[]", None, "object of questions"),
        ('{"questions": {}}', "questions", "object of questions"),
        ('{"a": {"type": "choice", "criteria": ["x", "y", "x"]}}', "a.criteria[2]", "unique"),
        (
            '{"ok": {"type": "noul", "criteria": "?"}, "b": {"type": "rank"}}',
            "b.type",
            "choice, noul or score",
        ),
        ('{"a": {"type": "noul", "criteria": 3}}', "a.criteria", "string"),
        ('{"a": 1, "a": 2}', None, "twice"),
    ],
)
def test_json_that_is_wrong_is_refused_with_the_place(given: str, place: str | None, message: str) -> None:
    [fault] = programs.call("exchange", given)["faults"]
    assert fault["place"] == (place or "")
    assert message in fault["message"]


def test_json_keeps_what_it_is_given() -> None:
    wire = {
        "n": {"type": "choice", "instructions": "How many?", "criteria": {"10": "ten", "9": None}},
        "s": {"type": "score", "instructions": "How?", "criteria": {"low": "nothing", "high": None}},
        "t": {"type": "noul", "instructions": {"a": 1.0}, "criteria": {"true": "it is", "false": None}},
    }
    done = programs.call("exchange", json.dumps({"questions": wire, "state": ["x"]}))
    assert done["state"] == '["x"]'
    kept = {**wire, "t": {**wire["t"], "instructions": '{"a": 1.0}'}}
    for questions in (done["questions"], json.loads(done["exported"])):
        assert parse_questions(questions) == parse_questions(kept)


def test_wrong_json_changes_nothing_and_stays(page: Page, url: str) -> None:
    open_page(page, url + NO_MODEL)
    bad = '{"a": {"type": "choice", "criteria": ["x"]}, "b": {"type": "noul"}}'
    edit_json(page, bad)
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("alert")).to_contain_text("because of 2 faults")
    expect(dialog.locator(".failure code")).to_have_text(["a.criteria", "b.criteria"])
    expect(dialog.get_by_role("textbox")).to_have_value(bad)
    assert violations(page) == []
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(button(page, "Import / export")).to_be_focused()
    assert ids(page) == IDS


# ---------------------------------------------------------------- by keyboard, and at every width


def test_keyboard_alone_from_sample_to_code(page: Page, url: str) -> None:
    open_page(page, f"{url}?device=wasm")
    tab_to(page, "Product review")
    page.keyboard.press("Enter")
    expect(page.get_by_role("article")).to_have_count(8)
    tab_to(page, re.compile("Move down: .*"))
    page.keyboard.press("Enter")
    assert ids(page)[:2] == ["defect", "sentiment"]
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Control+a")
    page.keyboard.insert_text("Is it about a kettle?")
    page.keyboard.press("Escape")
    assert "sentiment_2" in ids(page)
    page.keyboard.press("Control+Enter")
    expect(page.locator(".run-status")).to_have_text(re.compile("^9 answered in "), timeout=LOAD_MS)
    for _ in range(60):
        page.keyboard.press("Shift+Tab")
        if page.locator(":focus").get_attribute("role") == "tab":
            break
    page.keyboard.press("End")
    while page.locator(":focus").inner_text() != "Code":
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(page.locator("pre.code")).to_contain_text("Is it about a kettle?")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 3840])
def test_axe_and_every_width(browser: Browser, url: str, scheme: Any, width: int) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    open_page(page, f"{url}?device=wasm&auto=1")
    expect(page.locator(".run-status")).to_have_text(re.compile("^11 answered in "), timeout=LOAD_MS)
    button(card(page, "queue"), re.compile("^Delete: ")).click()
    button(card(page, "refund"), re.compile("^Edit: ")).click()
    assert has_no_sideways_scroll(page)
    assert violations(page) == []
    button(page, "Import / export").click()
    assert has_no_sideways_scroll(page)
    assert violations(page) == []
    context.close()
