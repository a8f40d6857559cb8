"""The Table tab of somebody in a hurry, at the keyboard, or with two files at once: nothing runs twice, no table is
taken for another, no answer is lost unasked, and the focus stays where somebody looks.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from playwright.sync_api import Dialog, Locator, Page, expect

from tests.test_page_table import (
    QUESTIONS,
    address,
    batch,
    cells,
    done_rows,
    downloaded,
    finish,
    load,
    open_table,
    questions,
    read,
    status,
    tickets,
)
from tests.test_page_ui import LOAD_MS, button, tab_to

__all__ = ["address", "questions"]  # fixtures

ONE = {"angry": QUESTIONS["angry"]}
FEW = b"text,id\none,1\ntwo,2\nthree,3\n"

GATE = "window.gate = new Promise((open) => { window.openGate = open; });"
"""What waits for it waits until a test calls `openGate`."""

SLOW_FILE = f"""{GATE}
const post = Worker.prototype.postMessage;
Worker.prototype.postMessage = function (message, ...rest) {{
  const send = () => post.call(this, message, ...rest);
  if (message?.name === "slow.csv") window.gate.then(send);
  else send();
}};
"""
"""The file slow.csv is read once the gate is open."""

SLOW_BLOCKS = f"""{GATE}
const get = IDBObjectStore.prototype.get;
IDBObjectStore.prototype.get = function (key) {{
  if (this.name !== "blocks") return get.call(this, key);
  const database = this.transaction.db;
  const late = new EventTarget();
  window.gate.then(() => {{
    const request = get.call(database.transaction("blocks").objectStore("blocks"), key);
    request.onsuccess = () => {{
      late.result = request.result;
      late.dispatchEvent(new Event("success"));
    }};
  }});
  return late;
}};
"""
"""The rows of a kept run come once the gate is open."""

SLOW_LOOK = f"""{GATE}
const databases = indexedDB.databases.bind(indexedDB);
indexedDB.databases = () => window.gate.then(databases);
"""
"""Whether a run is kept is known once the gate is open."""


def choose(page: Page, name: str, content: bytes) -> None:
    """Choose a file, and wait for nothing."""
    page.locator("#table-file").set_input_files({"name": name, "mimeType": "", "buffer": content})


def answer_few(page: Page, *, keep: bool = True) -> None:
    """A small table, all of it answered and nothing of it downloaded."""
    load(page, "few.csv", FEW)
    page.locator("#table-keep-run").set_checked(keep)
    button(page, "Start").click()
    finish(page)


def going(page: Page) -> None:
    """A run goes on that takes a while, until it is paused."""
    load(page, "long.csv", tickets(6000, 6000))
    button(page, "Start").click()
    expect(status(page)).to_contain_text("rows/s", timeout=LOAD_MS)


def asked(page: Page) -> Locator:
    """The question before something is lost."""
    return page.get_by_role("dialog")


def reading(page: Page) -> Locator:
    return page.get_by_text("Reading the file …")


def focused(page: Page) -> str:
    """The name of what has the focus."""
    found = page.locator(":focus")
    return (found.get_attribute("aria-label") or found.inner_text()).strip()


# ------------------------------------------------------------------------------------ one thing at a time


def test_a_double_click_starts_one_run(page: Page, address: str) -> None:
    watched = open_table(page, address, ONE)
    load(page, "few.csv", tickets(300, 300))
    button(page, "Start").dblclick()
    finish(page)
    expect(status(page)).to_contain_text("304 of 304 rows, 4 rejected")
    downloaded(page, "Download CSV")
    button(page, "Start again").dblclick()
    expect(button(page, "Start again")).to_be_hidden()
    finish(page)
    downloaded(page, "Download CSV")
    load(page, "again.csv", tickets(300, 300))
    button(page, "Start").evaluate("start => { for (let i = 0; i < 3; i++) start.click() }")
    finish(page)
    expect(page.get_by_role("alert")).to_have_count(0)
    _, content = downloaded(page, "Download CSV")
    assert len(read(content)) == 300
    assert watched.complaints == []


def test_a_run_that_goes_on_is_not_discarded(page: Page, address: str) -> None:
    open_table(page, address)
    going(page)
    before = done_rows(page)
    discard = button(page, "Discard the answers")
    expect(discard).to_have_attribute("aria-disabled", "true")
    discard.focus()
    page.keyboard.press("Enter")
    discard.dispatch_event("click")
    expect(asked(page)).to_have_count(0)
    button(page, "Pause").click()
    expect(status(page)).to_have_text(re.compile("^Paused · "))
    assert done_rows(page) >= before > 0
    expect(page.locator(".held")).to_contain_text("This browser keeps this run")
    # Now it can be, once somebody said so.
    discard.click()
    button(asked(page), "Discard").click()
    expect(status(page)).to_be_hidden()
    expect(page.locator(".held")).to_be_empty()
    expect(button(page, "Start")).to_be_focused()
    assert page.evaluate("indexedDB.databases()") == []


def test_a_second_file_while_one_is_read(page: Page, address: str) -> None:
    page.add_init_script(SLOW_FILE)
    open_table(page, address, ONE)
    alert = page.get_by_role("alert")
    choose(page, "slow.csv", FEW)
    expect(reading(page)).to_be_visible()
    # The second one is no table: that is said, and there is nothing else.
    choose(page, "b.xlsx", b"PK")
    expect(alert).to_have_attribute("data-code", "INPUT")
    expect(reading(page)).to_have_count(0)
    expect(button(page, "Start")).to_be_hidden()
    choose(page, "slow.csv", FEW)
    expect(reading(page)).to_be_visible()
    load(page, "good.csv", b"text\ngood\n")
    page.evaluate("openGate()")
    expect(alert).to_have_count(0)
    # The table that is there comes back too.
    choose(page, "b.xlsx", b"PK")
    expect(alert).to_have_attribute("data-code", "INPUT")
    expect(page.locator(".table-summary")).to_have_text("good.csv: 1 row, 1 column")
    button(page, "Start").click()
    finish(page)
    expect(status(page)).to_contain_text("1 of 1 rows")


def test_a_file_opened_while_a_kept_run_comes_back(page: Page, address: str) -> None:
    watched = open_table(page, address, ONE)
    answer_few(page)
    page.add_init_script(SLOW_BLOCKS)
    page.reload()
    expect(reading(page)).to_be_visible(timeout=LOAD_MS)
    load(page, "other.csv", b"text\none\n")
    page.evaluate("openGate()")
    # What would be shown of the other run by now, were the two mixed.
    page.wait_for_timeout(1000)
    expect(status(page)).to_be_hidden()
    expect(page.locator(".held")).to_contain_text("This browser keeps a run of few.csv")
    button(page, "Start").click()
    expect(asked(page)).to_contain_text("few.csv")
    button(asked(page), "Start").click()
    finish(page)
    expect(status(page)).to_contain_text("1 of 1 rows")
    expect(page.locator(".held")).to_contain_text("This browser keeps this run")
    assert watched.complaints == []


def test_a_kept_run_is_told_of_though_a_file_came_first(page: Page, address: str) -> None:
    open_table(page, address, ONE)
    answer_few(page)
    page.add_init_script(SLOW_LOOK)
    page.reload()
    choose(page, "other.csv", b"text\none\n")
    expect(button(page, "Start")).to_be_visible(timeout=LOAD_MS)
    page.evaluate("openGate()")
    expect(page.locator(".held")).to_contain_text("This browser keeps a run of few.csv")
    button(page, "Delete what is kept").click()
    expect(page.locator(".held")).to_be_empty()
    assert page.evaluate("indexedDB.databases()") == []
    expect(button(page, "Start")).to_be_focused()


def test_a_page_that_does_not_let_go_of_what_is_kept_stops_nothing(page: Page, address: str) -> None:
    open_table(page, address, ONE)
    answer_few(page)
    page.evaluate(
        """() => new Promise((resolve) => {
          indexedDB.open("typedecide-table").onsuccess = ({ target }) => resolve(void (window.held = target.result));
        })"""
    )
    button(page, "Delete what is kept").click()
    expect(page.locator(".held")).to_be_empty()
    button(page, "Download CSV").click()
    page.locator("#table-keep-run").uncheck()
    button(page, "Start again").click()
    finish(page)
    # All that was kept is gone, although the database is still open.
    assert page.evaluate(
        """() => new Promise((resolve) => {
          const stores = [...window.held.objectStoreNames];
          const transaction = window.held.transaction(stores);
          const counts = stores.map((name) => transaction.objectStore(name).count());
          transaction.oncomplete = () => resolve(counts.map(({ result }) => result));
        })"""
    ) == [0, 0]


# ------------------------------------------------------------------------------------- nothing is lost unasked


def test_what_is_kept_outlives_the_download(page: Page, address: str) -> None:
    open_table(page, address, ONE)
    answer_few(page)
    downloaded(page, "Download CSV")
    expect(page.locator(".held")).to_contain_text("This browser keeps this run")
    page.reload()
    expect(status(page)).to_have_text("Done · 3 of 3 rows", timeout=LOAD_MS)
    assert [row[1] for row in cells(page)] == ["one", "two", "three"]


def test_answers_are_not_thrown_away_unasked(page: Page, address: str) -> None:
    open_table(page, address, ONE)
    answer_few(page, keep=False)
    summary = page.locator(".table-summary")
    choose(page, "other.csv", b"text\none\n")
    expect(asked(page)).to_contain_text("3 answered rows are not downloaded. They are gone then.")
    page.keyboard.press("Escape")
    expect(asked(page)).to_have_count(0)
    expect(summary).to_contain_text("few.csv")
    for name in ("Start again", "Discard the answers"):
        button(page, name).click()
        expect(asked(page)).to_contain_text("3 answered rows")
        expect(button(asked(page), "Cancel")).to_be_focused()
        page.keyboard.press("Enter")
        expect(status(page)).to_have_text("Done · 3 of 3 rows")
        expect(button(page, name)).to_be_focused()
    # Who has the file need not be asked.
    downloaded(page, "Download CSV")
    button(page, "Start again").click()
    finish(page)
    choose(page, "other.csv", b"text\none\n")
    button(asked(page), "Open it").click()
    expect(summary).to_contain_text("other.csv")
    button(page, "Start").click()
    finish(page)
    downloaded(page, "Download CSV")
    button(page, "Discard the answers").click()
    expect(status(page)).to_be_hidden()


def test_the_browser_asks_before_answers_are_left(page: Page, address: str) -> None:
    seen: list[str] = []

    def stay_or_go(dialog: Dialog) -> None:
        seen.append(dialog.type)
        dialog.accept()

    page.on("dialog", stay_or_go)
    open_table(page, address, ONE)
    answer_few(page)
    page.reload()
    expect(status(page)).to_have_text("Done · 3 of 3 rows", timeout=LOAD_MS)
    # The browser keeps them; now it does not, and now a file has them.
    assert seen == []
    button(page, "Delete what is kept").click()
    expect(page.locator(".held")).to_be_empty()
    downloaded(page, "Download CSV")
    button(page, "Start again").click()
    finish(page)
    page.locator("#table-keep-run").uncheck()
    downloaded(page, "Download CSV")
    button(page, "Start again").click()
    finish(page)
    page.reload()
    assert seen == ["beforeunload"]
    expect(page.get_by_text("Drop a CSV")).to_be_visible(timeout=LOAD_MS)
    answer_few(page, keep=False)
    downloaded(page, "Download CSV")
    page.reload()
    assert seen == ["beforeunload"]


def test_trust_asks_before_it_takes_the_place_of_a_kept_run(page: Page, address: str) -> None:
    open_table(page, address, ONE)
    answer_few(page)
    choose(page, "gold.csv", b"text,angry\none,yes\ntwo,no\n")
    expect(asked(page)).to_contain_text("they come back with a reload")
    button(asked(page), "Open it").click()
    expect(page.locator(".table-summary")).to_contain_text("gold.csv")
    page.get_by_role("tab", name="Trust").click()
    button(page, "Answer the rows now").click()
    expect(asked(page)).to_contain_text("This browser keeps a run of few.csv, which is not downloaded.")
    button(asked(page), "Cancel").click()
    expect(button(page, "Answer the rows now")).to_be_visible()
    assert len(page.evaluate("indexedDB.databases()")) == 1
    button(page, "Answer the rows now").click()
    button(asked(page), "Start").click()
    expect(page.locator(".trust-note")).to_contain_text("2 answered rows", timeout=LOAD_MS)
    assert page.evaluate("indexedDB.databases()") == []


DROP = """
(target, [type, name]) => {
  const dataTransfer = new DataTransfer();
  if (name) dataTransfer.items.add(new File(["text\\none\\n"], name));
  else dataTransfer.setData("text/plain", "words");
  const event = new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true });
  return !target.dispatchEvent(event);
}
"""


def test_a_file_dropped_beside_the_zone_does_not_take_the_page_away(page: Page, address: str) -> None:
    open_table(page, address, ONE)
    for place in ("h1", "#table-pasted", "body"):
        for event in ("dragover", "drop"):
            assert page.locator(place).evaluate(DROP, [event, "beside.csv"])
            # Words are no file: they may be dropped into a field.
            assert not page.locator(place).evaluate(DROP, [event, ""])
    expect(page.locator(".table-summary")).to_be_hidden()
    assert page.locator(".drop-zone").evaluate(DROP, ["drop", "within.csv"])
    expect(page.locator(".table-summary")).to_have_text("within.csv: 1 row, 1 column")


# ----------------------------------------------------------------------------------------- focus and room


def test_the_focus_stays_where_somebody_looks(page: Page, address: str) -> None:
    open_table(page, address, ONE)
    long = b"word " * 60
    load(page, "long.csv", b"text\n" + b"".join(b"%d %s\n" % (i, long) for i in range(400)))
    button(page, "Start").focus()
    page.keyboard.press("Enter")
    expect(button(page, "Pause")).to_be_focused()
    # A text that somebody opened while the run goes on stays open, and is still where the focus is.
    summary = page.locator(".rows tbody tr").nth(40).locator("summary")
    summary.focus()
    page.keyboard.press("Enter")
    finish(page)
    expect(summary).to_be_focused()
    expect(page.locator(".rows tbody details[open]")).to_have_count(1)
    expect(page.locator(".rows tbody tr").nth(40).locator(".row-answer")).to_have_count(1)
    # A button that goes away hands the focus on.
    again = button(page, "Start again")
    again.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(button(page, "Pause")).to_be_focused()
    finish(page)
    expect(button(page, "Download CSV")).to_be_focused()
    button(page, "Delete what is kept").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".held")).to_be_empty()
    expect(button(page, "Download CSV")).to_be_focused()


def test_what_was_loaded_makes_room_for_its_answers(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    open_table(page, address, ONE)
    zone = page.locator(".drop-zone")
    tall = zone.evaluate("zone => zone.offsetHeight")
    page.get_by_text("Or paste rows").click()
    page.locator("#table-pasted").fill(FEW.decode())
    button(page, "Use these rows").click()
    expect(page.locator("#table-pasted")).to_be_hidden()
    assert zone.evaluate("zone => zone.offsetHeight") < tall
    expect(button(page, "Use these rows")).to_be_hidden()
    expect(page.locator(".paste > summary")).to_be_focused()
    button(page, "Start").click()
    finish(page)
    page.evaluate("scrollTo(0, 0)")
    expect(status(page)).to_be_in_viewport()
    expect(page.get_by_role("heading", name="Answers", exact=True)).to_be_in_viewport()
    assert page.locator("#table-text").evaluate("select => getComputedStyle(select).opacity") == "1"


def test_every_control_by_keyboard_alone(page: Page, address: str) -> None:
    open_table(page, address, ONE)
    press = page.keyboard.press
    # Paste.
    tab_to(page, "Or paste rows")
    press("Enter")
    press("Tab")
    expect(page.locator("#table-pasted")).to_be_focused()
    rows = [f"Parcel {i} is late.\t{i}\tx" for i in range(300)]
    page.keyboard.insert_text("\n".join(["text\tid\tnote", *rows]))
    tab_to(page, "Use these rows")
    press("Enter")
    expect(page.locator(".table-summary")).to_have_text("pasted.tsv: 300 rows, 3 columns")
    # Choose columns: the focus is still on the one that was changed.
    tab_to(page, re.compile("Columns copied into the result: 3 of 3"))
    press("Enter")
    tab_to(page, "All")
    press("Tab")
    press("Tab")
    for name, left in (("text", 2), ("id", 1)):
        box = page.get_by_label(name, exact=True)
        expect(box).to_be_focused()
        press("Space")
        expect(page.locator(".keep > summary")).to_contain_text(f"{left} of 3")
        expect(box).not_to_be_checked()
        expect(box).to_be_focused()
        press("Tab")
    press("Shift+Tab")
    # Neither does the loading of the model take it away.
    expect(page.locator(".load-label")).to_have_text("Ready", timeout=LOAD_MS)
    expect(page.get_by_label("id", exact=True)).to_be_focused()
    press("Space")
    expect(page.locator(".keep > summary")).to_contain_text("2 of 3")
    # Run, pause, go on.
    tab_to(page, "Start")
    press("Enter")
    expect(button(page, "Pause")).to_be_focused()
    press("Enter")
    expect(status(page)).to_have_text(re.compile("^Paused · "))
    assert focused(page) == "Resume"
    press("Enter")
    finish(page)
    assert focused(page) == "Download CSV"
    # Filter and sort.
    tab_to_select(page, "table-answer")
    press("R")
    expect(page.locator(".row-count")).to_have_text("0 of 300 rows")
    press("Home")
    expect(page.locator(".row-count")).to_have_text("300 rows")
    tab_to_select(page, "table-sort")
    press("L")
    found = page.locator(".row-answer").evaluate_all("cells => cells.map((c) => +c.dataset.confidence)")
    assert found == sorted(found) and len(found) == 50
    tab_to(page, "Next")
    press("Enter")
    expect(page.locator(".page-place")).to_have_text("51–100 of 300")
    # Think twice, start again, and download.
    for _ in range(60):
        if focused(page) == "Start again":
            break
        press("Shift+Tab")
    press("Enter")
    expect(asked(page)).to_contain_text("answered rows are not downloaded")
    press("Escape")
    expect(asked(page)).to_have_count(0)
    assert focused(page) == "Start again"
    tab_to(page, "Download CSV")
    with page.expect_download() as event:
        press("Enter")
    content = event.value.path().read_bytes()
    assert len(read(content)) == 300 and b"Parcel" not in content
    tab_to(page, "Discard the answers")
    press("Enter")
    expect(status(page)).to_be_hidden()
    assert focused(page) == "Start"


def tab_to_select(page: Page, id: str) -> None:
    """Press Tab until the list of this id has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == id:
            return
    raise AssertionError(f"Tab never reached {id}")


# ------------------------------------------------------------------------------------------- stray quotes


def test_stray_quotes_are_rejected_as_the_command_line_does(
    page: Page, address: str, dist_pointer: Path, questions: Path, tmp_path: Path
) -> None:
    table = tmp_path / "quotes.csv"
    table.write_bytes(
        b'"id","text"\n1,"He said ""no"""\n2,"He said "no" twice"\n3,"5"" pipe"\n4,"two\nlines"\n5,"x" y\n6,six\n'
    )
    open_table(page, address)
    load(page, table.name, table.read_bytes())
    expect(page.locator(".table-summary")).to_have_text("quotes.csv: 6 rows, 2 columns")
    button(page, "Start").click()
    finish(page)
    expect(status(page)).to_contain_text("6 of 6 rows, 2 rejected")
    assert [row[2] for row in cells(page) if row[0] in "36"] == ["Rejected: text follows a closing quote"] * 2
    _, rejects = downloaded(page, "Download rejected rows")
    _, content = downloaded(page, "Download CSV")
    out = tmp_path / "quotes.answers.csv"
    keep = ["--keep", "id", "--keep", "text", "--engine", "page", "--device", "wasm"]
    assert content == batch(table, questions, out, dist_pointer, *keep)
    assert rejects == out.with_name(f"{out.name}.rejects.jsonl").read_bytes()
    assert [json.loads(line)["row"] for line in rejects.splitlines()] == [3, 6]
    # A quote that hides where the next row begins ends the reading; the row is named.
    choose(page, "hidden.csv", b'text\none\n"5" pipe"\ntwo\n')
    expect(page.get_by_role("alert")).to_contain_text("row 3: text follows a closing quote")
