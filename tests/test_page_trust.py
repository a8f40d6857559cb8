"""The Trust tab, driven as a person would: the figures that it shows of answers are those of `typedecide.metrics`."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.test_page_table import (
    QUESTIONS,
    address,
    downloaded,
    finish,
    load,
    open_table,
    read,
    status,
    tickets,
)
from tests.test_page_ui import LOAD_MS, Watched, button, has_no_sideways_scroll, tab_to, violations
from typedecide import metrics

__all__ = ["address"]  # a fixture

ROWS = 150
OPTIONS = ["yes", "no"]


def labelled_table() -> bytes:
    """Texts and true answers; some rows have none, one has what is no option."""
    rng = random.Random(5)
    lines = ["id,text,angry,verdict"]
    for number in range(ROWS):
        angry = rng.choice(["yes", "No", "TRUE", "0", " no "]) if number % 10 else ""
        lines.append(
            f"{number},Parcel {number} is {number % 7} days late.,{angry},{rng.choice(['low', 'high'])}"
        )
    lines[4] = "3,Parcel 3 is late.,perhaps,low"
    return "\n".join(lines).encode() + b"\n"


@pytest.fixture(scope="module")
def answered(browser: Browser, address: str) -> Iterator[tuple[Watched, list[dict[str, str]]]]:
    """A page whose table is answered, its Trust tab open, and the answers as they are downloaded."""
    context = browser.new_context()
    watched = open_table(context.new_page(), address, {k: QUESTIONS[k] for k in ("angry", "mood")})
    page = watched.page
    load(page, "gold.csv", labelled_table())
    button(page, "Start").click()
    finish(page)
    _, content = downloaded(page, "Download CSV")
    page.get_by_role("tab", name="Trust").click()
    expect(page.locator(".report")).to_be_visible()
    yield watched, read(content)
    context.close()


def figure(page: Page, name: str) -> float:
    value = page.locator(f'[data-figure="{name}"]').get_attribute("data-value")
    return float(value or "nan")


def decisions(rows: list[dict[str, str]]) -> tuple[list[float], list[float], list[int], list[int]]:
    """Confidences, credits, true and given places of the rows that have a true answer."""
    meant = {"yes": 0, "true": 0, "1": 0, "no": 1, "false": 1, "0": 1}
    confidences, credits, gold, chosen = [], [], [], []
    for row in rows:
        truth = meant.get(row["angry"].strip().lower())
        if truth is not None:
            probabilities = [float(row[f"angry.p.{name}"]) for name in OPTIONS]
            confidences.append(max(probabilities))
            credits.append(metrics.credit(probabilities, truth))
            gold.append(truth)
            chosen.append(OPTIONS.index(row["angry.answer"]))
    return confidences, credits, gold, chosen


def test_figures_are_those_of_the_library(answered: tuple[Watched, list[dict[str, str]]]) -> None:
    watched, rows = answered
    page = watched.page
    # The column named like the question has its true answers.
    expect(page.locator("#trust-source option:checked")).to_have_text("Column “angry” of the table")
    confidences, credits, gold, chosen = decisions(rows)
    assert len(gold) == 134
    note = page.locator(".trust-note")
    expect(note).to_contain_text("134 answered rows have a true answer; 15 rows have none.")
    expect(note).to_contain_text("1 label is none of the options and not used: row 5 “perhaps”")
    assert figure(page, "accuracy") == pytest.approx(metrics.mean(credits), abs=1e-12)
    assert figure(page, "majority") == pytest.approx(metrics.majority(gold), abs=1e-12)
    assert figure(page, "chance") == 0.5
    bins = metrics.reliability(confidences, credits)
    assert figure(page, "error") == pytest.approx(metrics.calibration_error(bins), abs=1e-12)
    # Drawn by other random numbers than Python's, the interval is near, and not the same.
    interval = page.locator('[data-figure="accuracy"] .hint')
    expect(interval).to_contain_text("95% interval")
    low, high = (float(one) / 100 for one in re.findall(r"([\d.]+)%", interval.inner_text())[1:])
    drawn = [metrics.mean(credits, weights) or 0.0 for weights in metrics.resamples(range(134), 500, 0)]
    wanted = metrics.interval(drawn)
    assert wanted is not None
    assert (low, high) == pytest.approx(wanted, abs=0.03)
    matrix = page.locator(".confusion tbody tr").evaluate_all(
        "rows => rows.map((row) => [...row.querySelectorAll('td')].map((cell) => +cell.innerText))"
    )
    counts = metrics.confusion(gold, chosen, 2)
    assert matrix == [[*row, sum(row)] for row in counts]


def test_thresholds_say_what_is_kept(answered: tuple[Watched, list[dict[str, str]]]) -> None:
    watched, rows = answered
    page = watched.page
    confidences, credits, _, _ = decisions(rows)
    found = metrics.thresholds(confidences, credits)
    kept = page.locator(".kept")
    page.get_by_label("Threshold", exact=True).first.fill("0.7")
    wanted = metrics.at_threshold(found, 0.7)
    expect(kept).to_have_attribute("data-kept", str(wanted.kept))
    expect(kept).to_have_attribute("data-wrong", str(int(wanted.wrong)))
    expect(kept).to_contain_text(f"{wanted.kept} of 134 answers are kept")
    # An error rate that some threshold keeps, in whole percents.
    percents = min(math.ceil(100 * one.wrong / one.kept) for one in found if one.kept >= 10)
    page.locator("#trust-error").fill(str(percents))
    button(page, "Find the threshold").click()
    widest = metrics.widest(found, percents / 100)
    assert widest is not None
    expect(kept).to_have_attribute("data-kept", str(widest.kept))
    page.locator("#trust-error").fill("0")
    button(page, "Find the threshold").click()
    if metrics.widest(found, 0.0) is None:
        expect(kept).to_have_text("No threshold keeps errors at 0% or below.")


def test_labels_are_pasted_or_loaded(answered: tuple[Watched, list[dict[str, str]]]) -> None:
    page = answered[0].page
    page.locator("#trust-question").select_option(label="mood")
    note = page.locator(".trust-note")
    # No column is named like it: the one that holds its options is taken.
    expect(page.locator("#trust-source option:checked")).to_have_text("Column “verdict” of the table")
    expect(note).to_contain_text("150 answered rows have a true answer.")
    page.locator("#trust-source").select_option("given")
    expect(page.locator(".report")).to_be_hidden()
    page.locator("#trust-pasted").fill("low\n" * 3)
    button(page, "Use these").click()
    expect(page.get_by_role("alert")).to_contain_text("There are 3 labels for 150 rows")
    page.locator("#trust-pasted").fill("low\n" * 149 + "middle\n")
    button(page, "Use these").click()
    expect(note).to_contain_text("150 answered rows have a true answer.")
    expect(page.get_by_role("alert")).to_have_count(0)
    content = b"row,label\n2,low\n9,high\n1000,low\n"
    page.locator("#trust-file").set_input_files({"name": "labels.csv", "mimeType": "", "buffer": content})
    expect(note).to_contain_text("2 answered rows have a true answer; 148 rows have none.")
    expect(note).to_contain_text("rough")
    page.locator("#trust-question").select_option(label="angry")
    expect(page.locator("#trust-source option:checked")).to_have_text("Column “angry” of the table")


def test_the_calibration_curve_is_drawn_as_a_square(answered: tuple[Watched, list[dict[str, str]]]) -> None:
    page = answered[0].page
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        box = page.locator(".calibration .chart-plot").bounding_box()
        assert box is not None and box["height"] > 200
        assert box["width"] == pytest.approx(box["height"], abs=2)


def test_labels_that_do_not_fit_are_said_once_while_a_run_goes_on(page: Page, address: str) -> None:
    open_table(page, address, {"angry": QUESTIONS["angry"]})
    load(page, "many.csv", tickets(20_000, 20_000))
    button(page, "Start").click()
    expect(status(page)).to_contain_text("rows/s", timeout=LOAD_MS)
    page.get_by_role("tab", name="Trust").click()
    page.locator("#trust-source").select_option("given")
    page.locator("#trust-pasted").fill("yes\n" * 3)
    button(page, "Use these").click()
    alert = page.locator(".alert")
    expect(alert).to_contain_text("There are 3 labels for 20004 rows")
    button(alert, "Dismiss").click()
    note = page.locator(".trust-note")
    # A mark on what is shown: who writes it anew takes the mark away.
    expect(note).to_contain_text("There are 3 labels for 20004 rows")
    note.locator("p").evaluate("(line) => { line.dataset.seen = 'yes' }")
    for _ in range(2):
        page.get_by_role("tab", name="Table").click()
        page.get_by_role("tab", name="Trust").click()
        expect(page.locator("#panel-trust")).to_be_visible()
    page.get_by_role("tab", name="Table").click()
    button(page, "Pause").click()
    expect(status(page)).to_have_text(re.compile("^Paused · "), timeout=LOAD_MS)
    page.get_by_role("tab", name="Trust").click()
    expect(note.locator("[data-seen]")).to_have_count(1)
    expect(note).to_have_attribute("aria-live", "polite")
    expect(alert).to_have_count(0)


def test_a_run_that_goes_on_is_not_read_out(page: Page, address: str) -> None:
    open_table(page, address, {"angry": QUESTIONS["angry"]})
    rows = "".join(f"Parcel {i} is late.,{'yes' if i % 2 else 'no'}\n" for i in range(20_000))
    load(page, "many.csv", b"text,angry\n" + rows.encode())
    button(page, "Start").click()
    expect(status(page)).to_contain_text("rows/s", timeout=LOAD_MS)
    page.get_by_role("tab", name="Trust").click()
    note, kept = page.locator(".trust-note"), page.locator(".kept")
    expect(kept).to_contain_text("answers are kept")
    for place in (note, kept):
        expect(place).to_have_attribute("aria-live", "off")
    first = note.inner_text()
    # It is looked at again by itself.
    expect(note).not_to_have_text(first, timeout=LOAD_MS)
    page.get_by_role("tab", name="Table").click()
    button(page, "Pause").click()
    expect(status(page)).to_have_text(re.compile("^Paused · "), timeout=LOAD_MS)
    page.get_by_role("tab", name="Trust").click()
    for place in (note, kept):
        expect(place).to_have_attribute("aria-live", "polite")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_and_the_tab_fits(
    answered: tuple[Watched, list[dict[str, str]]], scheme: Any
) -> None:
    watched, _ = answered
    page = watched.page
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    expect(page.locator(".report canvas")).to_have_count(2)
    assert violations(page) == []
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_timeout(100)
        assert has_no_sideways_scroll(page)
    assert watched.complaints == []


def test_by_keyboard_alone_from_nothing(page: Page, address: str) -> None:
    page.goto(f"{address}#trust")
    expect(page.get_by_text("Load a table first")).to_be_visible(timeout=LOAD_MS)
    tab_to(page, "Go to Table")
    page.keyboard.press("Enter")
    load(page, "gold.csv", b"text,queue\none,billing\ntwo,sales\nthree,billing\n")
    page.get_by_role("tab", name="Table").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(button(page, "Answer the rows now")).to_be_visible()
    tab_to(page, "Answer the rows now")
    page.keyboard.press("Enter")
    expect(page.locator(".trust-note")).to_contain_text("3 answered rows", timeout=LOAD_MS)
    expect(button(page, "Find the threshold")).to_be_visible()
    tab_to(page, "Find the threshold")
    page.keyboard.press("Enter")
    expect(page.locator(".kept")).not_to_be_empty()
