"""The page itself, driven as a person would, on the real bundle: no engine is replaced here.

The page's content security policy forbids eval, so nothing here may use `wait_for_function`: wait on locators.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, expect

from pybuild import npm
from pybuild.sources import DEFAULT_MODEL, STOCK_MODEL
from typedecide.static_server import PAGE_HEADERS, StaticServer

SAMPLE: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "web" / "app" / "decide" / "samples" / "support.json").read_text(
        encoding="utf-8"
    )
)
# A cold load on a slow machine, and eleven answers on one thread.
LOAD_MS = 180_000
RUN_MS = 180_000
AFTER = re.compile(r"^after [\d.,]+ (ms|s)$")
# An address that the library refuses at once: a page without a model, for what needs none.
NO_MODEL = "?device=none"

_CONTROL_WITHOUT_NAME = re.compile(
    r"^\s*- (?:button|textbox|radio|checkbox|switch|combobox|link|progressbar|group|meter|article|region)(?! \")",
    re.M,
)
_SHIFTS = """
window.layoutShift = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.layoutShift += entry.value;
}).observe({ type: "layout-shift", buffered: true });
"""


@dataclass
class Watched:
    """A page and everything that it complained about or asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.context.on("request", lambda request: self.requests.append(request.url))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(f"{message.type}: {message.text}")


def open_page(page: Page, url: str) -> Watched:
    """`page` at `url`, with the questions of the sample on it."""
    watched = Watched(page)
    page.add_init_script(_SHIFTS)
    page.goto(url)
    expect(page.get_by_role("article")).to_have_count(len(SAMPLE["questions"]))
    return watched


def button(page: Page | Locator, name: str | re.Pattern[str]) -> Locator:
    """The button of exactly this name."""
    return page.get_by_role("button", name=name, exact=True)


def card(page: Page, question_id: str) -> Locator:
    """The card of a question, by the question's id."""
    return page.locator(f'article[data-question="{question_id}"]')


def keep_only(page: Page, *question_ids: str) -> None:
    """Delete all other questions, so that a run is short."""
    for question_id in SAMPLE["questions"]:
        if question_id not in question_ids:
            button(card(page, question_id), re.compile("^Delete: ")).click()
    expect(page.get_by_role("article")).to_have_count(len(question_ids))


def probabilities(answered: Locator) -> list[float]:
    """The unrounded probabilities that a card shows."""
    bars = answered.locator("[data-p]").all()
    return [float(bar.get_attribute("data-p") or "nan") for bar in bars]


def orders_read(answered: Locator) -> int:
    """The number of orders that a card says were read, once its words are found to fit its flip rate."""
    orders = answered.locator(".orders")
    used = int(orders.get_attribute("data-orders") or "0")
    agreeing = used * (1 - float(orders.get_attribute("data-flip-rate") or "nan"))
    assert agreeing == pytest.approx(round(agreeing))
    words = {0: "none agrees", 1: "1 agrees", used: "both agree" if used == 2 else "all agree"}
    agreement = words.get(round(agreeing), f"{round(agreeing)} agree")
    expect(orders).to_have_text("1 order read" if used == 1 else f"{used} orders read, {agreement}")
    return used


def says_nothing_of_orders(answered: Locator) -> bool:
    """Whether a card says only when its answer came, as for options that were not listed."""
    foot = answered.locator(".card-foot")
    return AFTER.match(foot.inner_text().strip()) is not None and foot.locator("[data-orders]").count() == 0


def stat(page: Page, name: str) -> Locator:
    """One of the figures of the run."""
    return page.locator(f'[data-stat="{name}"] dd')


def has_no_sideways_scroll(page: Page) -> bool:
    """Whether the page fits the width of its window."""
    root: dict[str, int] = page.evaluate(
        "() => ({ content: document.documentElement.scrollWidth, window: document.documentElement.clientWidth })"
    )
    return root["content"] <= root["window"]


def tab_to(page: Page, name: str | re.Pattern[str]) -> Locator:
    """Press Tab until the control of this accessible name has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        focused = page.locator(":focus")
        label = focused.get_attribute("aria-label") or focused.inner_text()
        if re.fullmatch(name, label.strip()):
            return focused
    raise AssertionError(f"Tab never reached {name!r}")


@pytest.fixture(scope="module")
def decided(browser: Browser, dist_url: str) -> Iterator[Watched]:
    """The sample, decided on WebAssembly. Only tests that change nothing may use it."""
    context: BrowserContext = browser.new_context(viewport={"width": 1280, "height": 900})
    watched = open_page(context.new_page(), f"{dist_url}?device=wasm&auto=1")
    status = watched.page.locator(".run-status")
    expect(status).to_have_text(re.compile("^11 answered in "), timeout=LOAD_MS + RUN_MS)
    yield watched
    context.close()


def test_answers_every_question_of_the_sample(decided: Watched) -> None:
    for question_id, question in SAMPLE["questions"].items():
        answered = card(decided.page, question_id)
        shown = probabilities(answered)
        expected = 2 if question["type"] == "noul" else len(question["criteria"])
        assert len(shown) == expected, question_id
        assert sum(shown) == pytest.approx(1, abs=1e-6), question_id
        best = answered.locator(".bar.best")
        assert float(best.get_attribute("data-p") or "nan") == max(shown)
        expect(answered.locator(".verdict strong")).to_have_text(best.locator(".name").inner_text())
        assert says_nothing_of_orders(answered), question_id


def test_answers_come_within_the_scoring_and_in_their_order(decided: Watched) -> None:
    notes = decided.page.locator(".note").all()
    times = [float(note.get_attribute("data-ms") or "nan") for note in notes]
    assert len(times) == len(SAMPLE["questions"])
    assert times == sorted(times)
    assert 0 < times[0] < times[-1]


def test_bars_are_as_long_as_their_probabilities(decided: Watched) -> None:
    for bar in card(decided.page, "topic").locator(".bar").all():
        share = bar.locator(".fill").evaluate(
            "e => e.getBoundingClientRect().width / e.parentElement.clientWidth"
        )
        assert share == pytest.approx(float(bar.get_attribute("data-p") or "nan"), abs=0.02)


def test_says_what_the_run_cost(decided: Watched) -> None:
    page = decided.page
    for name in ("prefill", "answers"):
        expect(stat(page, name)).to_have_text(re.compile(r"^[\d.,]+ (ms|s)$"))
    names = ("tokens", "runs", "tokensRun", "tokensSaved")
    figures = {name: int(stat(page, name).inner_text().replace(",", "")) for name in names}
    assert 250 <= figures["tokens"] <= 400
    assert figures["runs"] >= 1
    assert figures["tokensRun"] > 200
    # Questions share at least how they begin.
    assert figures["tokensSaved"] >= len(SAMPLE["questions"]) - 1


def test_says_what_it_runs_on_and_why(decided: Watched) -> None:
    panel = decided.page.locator("details.panel")
    expect(panel.locator("summary")).to_contain_text(f"WebAssembly (CPU) · int8 · {DEFAULT_MODEL}")
    chosen = panel.locator('[data-verdict="chosen"]')
    expect(chosen).to_have_count(1)
    expect(chosen).to_have_attribute("data-candidate", "wasm")
    for row in panel.locator("[data-candidate]").all():
        assert (row.locator("p").text_content() or "").strip(), "a verdict needs a reason"


def test_progress_is_a_named_progressbar_that_ends_full(decided: Watched) -> None:
    bar = decided.page.get_by_role("progressbar", name="Loading the model")
    expect(bar).to_have_attribute("aria-valuenow", "100")
    expect(bar).to_have_attribute("aria-valuetext", "Ready")


def test_asks_no_other_origin_and_complains_of_nothing(decided: Watched, dist_url: str) -> None:
    foreign = [url for url in decided.requests if not url.startswith((dist_url, f"blob:{dist_url}"))]
    assert decided.requests
    assert foreign == []
    assert decided.complaints == []


def test_nothing_moves_while_loading_and_deciding(decided: Watched) -> None:
    assert decided.page.evaluate("() => window.layoutShift") < 0.01


def test_every_control_has_a_name(page: Page, dist_url: str) -> None:
    open_page(page, dist_url + NO_MODEL)
    button(card(page, "queue"), re.compile("^Edit: ")).click()
    page.locator("details.panel summary").click()
    snapshot = page.locator("body").aria_snapshot()
    assert 'button "Move option 2 down"' in snapshot
    assert 'textbox "Description of option 1 (not required)"' in snapshot
    assert [match.group() for match in _CONTROL_WITHOUT_NAME.finditer(snapshot)] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(browser: Browser, dist_pointer: Path, scheme: Any) -> None:
    context = browser.new_context(color_scheme=scheme, reduced_motion="reduce")
    with StaticServer(dist_pointer, headers=PAGE_HEADERS) as server:
        watched = open_page(context.new_page(), f"{server.url}?device=wasm&auto=1")
        page = watched.page
        expect(page.locator(".run-status")).to_have_text(re.compile("^11 answered in "), timeout=LOAD_MS)
        page.locator("details.panel summary").click()
        assert violations(page) == []
        button(card(page, "queue"), re.compile("^Edit: ")).click()
        assert violations(page) == []
        # A planted fault is seen.
        page.evaluate("() => document.body.append(document.createElement('button'))")
        assert violations(page) == ["button-name: body > button"]
    context.close()


def violations(page: Page) -> list[str]:
    """What axe has to say about the page as it stands."""
    page.evaluate((npm.package("axe-core") / "axe.min.js").read_text("utf-8"))
    found: list[str] = page.evaluate(
        """async () => (await axe.run()).violations.map(
          ({ id, nodes }) => `${id}: ${nodes.map((node) => node.target.join(" ")).join(", ")}`,
        )"""
    )
    return found


def test_ids_are_unique_and_headings_in_order(decided: Watched) -> None:
    ids = decided.page.locator("[id]").evaluate_all("elements => elements.map((e) => e.id)")
    assert len(ids) == len(set(ids))
    levels = decided.page.locator("h1, h2, h3").evaluate_all("elements => elements.map((e) => +e.tagName[1])")
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


@pytest.mark.parametrize("width", [360, 768, 1280, 2560])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_the_window(browser: Browser, dist_url: str, width: int, scheme: Any) -> None:
    context = browser.new_context(viewport={"width": width, "height": 740}, color_scheme=scheme)
    page = context.new_page()
    open_page(page, dist_url + NO_MODEL)
    expect(page.get_by_role("alert")).to_be_visible()
    button(card(page, "queue"), re.compile("^Edit: ")).click()
    page.get_by_role("textbox", name="Question", exact=True).fill("x" * 300)
    page.get_by_role("textbox", name="Option 1", exact=True).fill("y" * 300)
    button(page, "Done").click()
    page.locator("details.panel summary").click()
    assert has_no_sideways_scroll(page)
    context.close()


def test_focus_is_visible_and_motion_can_be_turned_off(browser: Browser, dist_url: str) -> None:
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    open_page(page, dist_url + NO_MODEL)
    focused = tab_to(page, "Decide")
    assert focused.evaluate("e => getComputedStyle(e).outlineStyle") == "solid"
    assert page.locator(".bar .fill").first.evaluate("e => getComputedStyle(e).transitionDuration") == "0s"
    context.close()


def test_load_failure_gives_the_code_what_to_do_and_a_way_back(page: Page, dist_url: str) -> None:
    open_page(page, dist_url + NO_MODEL)
    alert = page.get_by_role("alert")
    expect(alert).to_have_attribute("data-code", "UNSUPPORTED")
    expect(alert).to_contain_text('not "none"')
    expect(alert).to_contain_text("?device=wasm")
    expect(page.locator(".load-label")).to_have_text("The model is not loaded")
    button(alert, "Try again").click()
    expect(page.get_by_role("alert")).to_have_count(1)
    button(page, "Dismiss").click()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_typed_text_is_never_markup(page: Page, dist_url: str) -> None:
    open_page(page, dist_url + NO_MODEL)
    hostile = '<img src=x onerror="document.title = 1"><script>document.title = 2</script>'
    page.get_by_label("The text to decide about").fill(hostile)
    button(card(page, "queue"), re.compile("^Edit: ")).click()
    page.get_by_role("textbox", name="Question", exact=True).fill(hostile)
    page.get_by_role("textbox", name="Option 1", exact=True).fill(hostile)
    button(page, "Done").click()
    expect(card(page, "queue").get_by_role("heading")).to_have_text(hostile)
    expect(card(page, "queue").locator(".bar .name").first).to_have_text(hostile)
    assert page.locator("img, body script").count() == 0
    assert page.title() == "typedecide"


def test_questions_are_added_edited_and_deleted(page: Page, dist_url: str) -> None:
    open_page(page, dist_url + NO_MODEL)
    button(page, "Add a question").click()
    form = card(page, "question_12")
    form.get_by_label("Question", exact=True).fill("What language is it in?")
    form.get_by_label("Option 1", exact=True).fill("English")
    form.get_by_label("Option 1", exact=True).press("Enter")
    form.get_by_label("Option 2", exact=True).fill("German")
    expect(form.get_by_role("textbox", name=re.compile(r"^Option \d+$"))).to_have_count(3)
    button(form, "Remove option 3").click()
    button(form, "Move option 2 up").click()
    expect(button(form, "Move option 1 up")).to_be_focused()
    button(form, "Done").click()
    expect(form.locator(".bar .name")).to_have_text(["German", "English"])

    button(form, re.compile("^Edit: ")).click()
    form.get_by_role("radio", name="Score").check()
    expect(form.get_by_label("Level 1", exact=True)).to_have_value("German")
    form.get_by_role("radio", name="Yes / no").check()
    expect(form.get_by_role("textbox")).to_have_count(1)
    button(form, "Done").click()
    expect(form.locator(".bar .name")).to_have_text(["Yes", "No"])

    button(form, re.compile("^Delete: ")).click()
    expect(form).to_have_count(0)
    expect(page.locator(":focus")).to_have_attribute("aria-label", re.compile("^Edit: "))


@pytest.mark.parametrize(
    ("names", "message"),
    [(("billing", "billing"), "unique"), (("billing", " "), "empty")],
    ids=["twice the same", "empty"],
)
def test_an_invalid_question_keeps_its_form_open(
    page: Page, dist_url: str, names: tuple[str, str], message: str
) -> None:
    open_page(page, dist_url + NO_MODEL)
    form = card(page, "queue")
    button(form, re.compile("^Edit: ")).click()
    for position, name in enumerate(names, start=1):
        form.get_by_label(f"Option {position}", exact=True).fill(name)
    button(form, "Done").click()
    alert = form.get_by_role("alert")
    expect(alert).to_have_attribute("data-code", "INVALID_QUESTION")
    expect(alert).to_contain_text(message)
    expect(form.get_by_label("Option 2", exact=True)).to_have_value(names[1])


def test_a_question_that_fails_does_not_stop_the_others(page: Page, dist_url: str) -> None:
    open_page(page, f"{dist_url}?device=wasm")
    keep_only(page, "channel", "refund", "locked_out", "churn")
    # One that is refused before it is asked, and one that the engine refuses, with all that are asked with it.
    for question_id, text in {"refund": "  ", "churn": "word " * 10_000}.items():
        button(card(page, question_id), re.compile("^Edit: ")).click()
        card(page, question_id).get_by_label("Question", exact=True).fill(text)
    button(page, "Decide").click()
    status = page.locator(".run-status")
    expect(status).to_have_text(re.compile("^2 answered, 2 failed in "), timeout=LOAD_MS + RUN_MS)
    for question_id, code in {"refund": "INVALID_QUESTION", "churn": "TOO_LONG"}.items():
        expect(card(page, question_id).get_by_role("alert")).to_have_attribute("data-code", code)
    expect(page.get_by_role("alert")).to_have_count(2)
    for question_id in ("channel", "locked_out"):
        assert sum(probabilities(card(page, question_id))) == pytest.approx(1, abs=1e-6)
    assert int(stat(page, "tokensRun").inner_text()) > 20

    # A text that is too long: said with both lengths, and the answers that are there stay.
    page.get_by_label("The text to decide about").fill("word " * 20_000)
    button(page, "Decide").click()
    alert = page.locator(".alert")
    expect(alert).to_have_attribute("data-code", "TOO_LONG", timeout=RUN_MS)
    assert len(re.findall(r"\d[\d,]{3,}", alert.inner_text())) >= 2
    assert len(probabilities(card(page, "channel"))) == 2


def test_edits_during_a_run_do_not_mix_with_its_answers(page: Page, dist_url: str) -> None:
    open_page(page, f"{dist_url}?device=wasm")
    keep_only(page, "channel", "refund")
    button(page, "Decide").click()
    # The run has its own copy of the text and the questions from here on, and waits for the model.
    text = page.get_by_label("The text to decide about")
    text.fill("Another text.")
    edited = card(page, "refund")
    button(edited, re.compile("^Edit: ")).click()
    edited.get_by_label("Question", exact=True).fill("Is the customer a baker?")
    expect(page.locator(".run-status")).to_have_text(re.compile("^2 answered in "), timeout=LOAD_MS + RUN_MS)
    expect(card(page, "channel").locator(".note")).to_have_text("For the earlier text")
    button(edited, "Done").click()
    expect(edited.locator(".verdict")).to_have_text("Edited, decide again")
    assert probabilities(edited) == []
    expect(text).to_have_value("Another text.")

    # Undone, both answers are current again.
    text.fill(SAMPLE["state"])
    button(edited, re.compile("^Edit: ")).click()
    edited.get_by_label("Question", exact=True).fill(SAMPLE["questions"]["refund"]["instructions"])
    button(edited, "Done").click()
    expect(card(page, "channel").locator(".note")).to_have_text(AFTER)
    assert sum(probabilities(edited)) == pytest.approx(1, abs=1e-6)


def test_stop_keeps_what_is_answered(page: Page, dist_url: str) -> None:
    open_page(page, f"{dist_url}?device=wasm")
    # A run under way is not cut off, so there have to be runs to come: long questions that share no start make them,
    # each read in several orders.
    page.get_by_role("radio", name="Letters, several orders").check()
    for question_id in ("channel", "reproducible", "earlier_contact"):
        button(card(page, question_id), re.compile("^Edit: ")).click()
        card(page, question_id).get_by_label("Question", exact=True).fill(
            f"{question_id} " + "Which is it? " * 60
        )
    button(page, "Decide").click()
    expect(page.locator("[data-ms]").first).to_be_visible(timeout=LOAD_MS + RUN_MS)
    button(page, "Stop").click()
    status = page.locator(".run-status")
    expect(status).to_have_text(re.compile(r"^Stopped: \d+ of 11 answered$"), timeout=RUN_MS)
    answered = int(re.findall(r"\d+", status.inner_text())[0])
    assert 1 <= answered < 11
    expect(page.locator("[data-ms]")).to_have_count(answered)
    expect(page.get_by_role("alert")).to_have_count(0)

    # The text is still held: the next run reads nothing again, also after one about another text.
    keep_only(page, "refund")
    text = page.get_by_label("The text to decide about")
    for state, kept in ((SAMPLE["state"], True), ("Call me.", False), (SAMPLE["state"], True)):
        text.fill(state)
        button(page, "Decide").click()
        expect(status).to_have_text(re.compile("^1 answered in "), timeout=RUN_MS)
        expect(stat(page, "prefill")).to_have_text(re.compile(r"\(kept\)$" if kept else r"s$"))


def test_answers_are_read_as_chosen(page: Page, dist_url: str) -> None:
    open_page(page, f"{dist_url}?device=wasm")
    keep_only(page, "channel", "queue")
    group = page.get_by_role("group", name="How answers are read")
    compared = group.get_by_role("radio", name="Trained comparison")
    expect(compared).to_be_checked(timeout=LOAD_MS)
    expect(compared).to_have_accessible_description(re.compile("they have no order"))
    cards = [card(page, "channel"), card(page, "queue")]
    read: list[list[list[float]]] = []
    choices = {
        "Trained comparison": None,
        "Option texts": None,
        "Letters, several orders": [2, 4],
        "Letters, one order": [1, 1],
    }
    for name, orders in choices.items():
        group.get_by_role("radio", name=name).check()
        button(page, "Decide").click()
        expect(page.locator('article[aria-busy="true"]')).to_have_count(0, timeout=LOAD_MS + RUN_MS)
        expect(page.locator(".run-status")).to_have_text(
            re.compile("^2 answered in "), timeout=LOAD_MS + RUN_MS
        )
        if orders is None:
            assert all(says_nothing_of_orders(one) for one in cards)
        else:
            assert [orders_read(one) for one in cards] == orders
        read.append([probabilities(one) for one in cards])
    assert all(one != other for one, other in itertools.combinations(read, 2))


def test_a_stock_model_is_read_by_option_texts(page: Page, dist_stock: Path) -> None:
    with StaticServer(dist_stock) as server:
        open_page(page, f"{server.url}?device=wasm")
        keep_only(page, "queue")
        # Neither its own way nor one chosen later needs a click more.
        button(page, "Decide").click()
        status = page.locator(".run-status")
        expect(status).to_have_text(re.compile("^1 answered in "), timeout=LOAD_MS + RUN_MS)
        expect(page.locator("details.panel summary")).to_contain_text(STOCK_MODEL)
        group = page.get_by_role("group", name="How answers are read")
        texts = group.get_by_role("radio", name="Option texts")
        expect(texts).to_be_checked()
        expect(texts).to_have_accessible_description(re.compile("not tuned"))
        # The stock model was not trained for this one.
        expect(group.get_by_role("radio", name="Trained comparison")).to_be_disabled()
        one = card(page, "queue")
        assert says_nothing_of_orders(one)
        weighed = probabilities(one)
        # The head, with its worked examples, lies before the text.
        assert 400 <= int(stat(page, "tokens").inner_text()) <= 550
        group.get_by_role("radio", name="Letters, one order").check()
        button(page, "Decide").click()
        expect(one.locator(".orders[data-orders]")).to_have_count(1, timeout=RUN_MS)
        expect(status).to_have_text(re.compile("^1 answered in "), timeout=RUN_MS)
        assert orders_read(one) == 1 and probabilities(one) != weighed


def test_stop_ends_loading_and_decide_starts_it_again(page: Page, dist_url: str) -> None:
    open_page(page, f"{dist_url}?device=wasm")
    button(page, "Stop").click()
    expect(page.locator(".load-label")).to_have_text("Loading stopped", timeout=LOAD_MS)
    keep_only(page, "channel")
    button(page, "Decide").click()
    expect(page.locator(".run-status")).to_have_text(re.compile("^1 answered in "), timeout=LOAD_MS + RUN_MS)


def test_keyboard_alone_does_everything(page: Page, dist_url: str) -> None:
    open_page(page, f"{dist_url}?device=wasm")
    page.keyboard.press("Tab")
    expect(page.get_by_label("The text to decide about")).to_be_focused()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text("The parcel came on time and I am very happy. Thank you!")
    # A radio button has no text of its own that Tab could be told to look for: the group follows Decide and Stop.
    compared = page.get_by_role("radio", name="Trained comparison")
    expect(compared).to_be_checked(timeout=LOAD_MS)
    tab_to(page, "Stop")
    page.keyboard.press("Tab")
    expect(compared).to_be_focused()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    expect(page.get_by_role("radio", name="Letters, one order")).to_be_checked()
    for left in range(len(SAMPLE["questions"]) - 1, 0, -1):
        tab_to(page, re.compile("Delete: .*"))
        page.keyboard.press("Enter")
        expect(page.get_by_role("article")).to_have_count(left)
    tab_to(page, "Add a question")
    page.keyboard.press("Enter")
    page.keyboard.insert_text("How does the customer feel?")
    tab_to(page, "Option 1")
    page.keyboard.insert_text("bad")
    tab_to(page, "Option 2")
    page.keyboard.insert_text("good")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Escape")
    expect(page.locator(":focus")).to_have_attribute("aria-label", "Edit: How does the customer feel?")
    page.keyboard.press("Control+Enter")
    status = page.locator(".run-status")
    expect(status).to_have_text(re.compile("^2 answered in "), timeout=LOAD_MS + RUN_MS)
    assert len(probabilities(page.get_by_role("article").last)) == 2
    assert orders_read(page.get_by_role("article").last) == 1
    tab_to(page, re.compile("Device and self-test.*", re.S))
    page.keyboard.press("Enter")
    expect(page.locator("[data-verdict]").first).to_be_visible()
