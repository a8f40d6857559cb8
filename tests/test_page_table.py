"""The Table tab, driven as a person would: files in, a run that survives a reload, and the very file that
`python -m typedecide batch` writes. The model is the tiny one; all else is the real thing.
"""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserType, Download, Locator, Page, expect

from bench.probe import LONG_TASK_MS, read_trace
from tests.test_page_ui import LOAD_MS, Watched, button, has_no_sideways_scroll, tab_to, violations
from typedecide.static_server import PAGE_HEADERS, StaticServer

ROOT = Path(__file__).resolve().parents[1]

QUESTIONS: dict[str, Any] = {
    "queue": {
        "type": "choice",
        "instructions": "Which team?",
        "criteria": {"billing": None, 'ship, "fast"': None},
    },
    "angry": {"type": "noul", "criteria": "Is the customer angry?"},
    "mood": {"type": "score", "instructions": "Mood?", "criteria": ["low", "middle", "high"]},
}
RUN_MS = 600_000
"""On a machine that is busy with other things; a quiet one needs some seconds."""


@pytest.fixture(scope="module")
def address(dist_pointer: Path) -> Iterator[str]:
    with StaticServer(dist_pointer, headers=PAGE_HEADERS) as server:
        yield f"{server.url}?device=wasm"


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.json"
    path.write_text(json.dumps(QUESTIONS), "utf-8")
    return path


def open_table(page: Page, address: str, questions: dict[str, Any] | None = None) -> Watched:
    """The Table tab of a page that has `QUESTIONS`, or others."""
    watched = Watched(page)
    page.goto(f"{address}#decide")
    button(page, "Import / export").click()
    page.get_by_role("textbox", name="Questions as JSON, in the System One form").fill(
        json.dumps(questions or QUESTIONS)
    )
    button(page, "Use these").click()
    page.get_by_role("tab", name="Table").click()
    expect(page.get_by_text("Drop a CSV")).to_be_visible()
    return watched


def load(page: Page, name: str, content: bytes) -> None:
    """Choose a file, and wait until it is read."""
    page.locator("#table-file").set_input_files({"name": name, "mimeType": "", "buffer": content})
    expect(page.locator(".table-summary")).to_contain_text(f"{name}: ", timeout=LOAD_MS)


def status(page: Page) -> Locator:
    return page.locator("#panel-table .run-status")


def done_rows(page: Page) -> int:
    found = re.search(r"([\d,]+) of [\d,]+ rows", status(page).text_content() or "")
    return int(found[1].replace(",", "")) if found else 0


def finish(page: Page) -> None:
    expect(status(page)).to_have_text(re.compile(r"^Done · "), timeout=RUN_MS)


def downloaded(page: Page, name: str) -> tuple[str, bytes]:
    """A file that a button of the tab gives: its name and its content."""
    with page.expect_download() as event:
        button(page.locator("#panel-table"), name).click()
    download: Download = event.value
    return download.suggested_filename, download.path().read_bytes()


def batch(table: Path, questions: Path, out: Path, bundle: Path, *more: str) -> bytes:
    """What the command writes."""
    asked = ["--questions", str(questions), "--out", str(out), "--bundle", str(bundle), *more]
    command = [sys.executable, "-m", "typedecide", "batch", str(table), *asked]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out.read_bytes()


def read(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode("utf-8"), newline="")))


def cells(page: Page) -> list[list[str]]:
    """The text of the table's cells, row by row."""
    rows: list[list[str]] = page.locator(".rows tbody tr").evaluate_all(
        "rows => rows.map((row) => [...row.children].map((cell) => cell.innerText))"
    )
    return rows


def tickets(rows: int, texts: int) -> bytes:
    """A table of `rows` rows about `texts` parcels, some of which cannot be used."""
    lines = ["id,text,note"]
    for number in range(rows):
        text = f"Parcel {number % texts} is {number % 7} days late, order {number % texts * 37}."
        lines.append(f'{number},"{text}","é, ""{number}"""')
    content = "\n".join(lines).encode()
    broken = [b"short", b"x, ,blank", b"y,caf\xe9,", b"z," + b"word " * 9000 + b",too long"]
    parts = content.split(b"\n")
    for place, row in enumerate(broken):
        parts.insert(50 + place * 300 if rows > 1000 else 3 + place * 5, row)
    return b"\n".join(parts) + b"\n"


def test_a_run_survives_a_reload_and_gives_the_command_lines_file(
    page: Page, address: str, dist_pointer: Path, questions: Path, tmp_path: Path
) -> None:
    table = tmp_path / "tickets.csv"
    table.write_bytes(tickets(2000, 2000))
    watched = open_table(page, address)
    load(page, table.name, table.read_bytes())
    expect(page.locator(".table-summary")).to_have_text("tickets.csv: 2,004 rows, 3 columns")
    expect(page.locator("#table-text")).to_have_value("text")
    expect(page.locator(".keep > summary")).to_have_text("Columns copied into the result: 3 of 3")
    button(page, "Start").click()
    expect(status(page)).to_contain_text(re.compile(r"rows/s · .* left"), timeout=LOAD_MS)
    while done_rows(page) < 150:
        page.wait_for_timeout(200)
    button(page, "Pause").click()
    expect(status(page)).to_have_text(re.compile("^Paused · "))
    paused = done_rows(page)
    assert 150 <= paused < 2004
    expect(page.locator(".held")).to_contain_text("This browser keeps this run")

    page.reload()
    expect(status(page)).to_have_text(re.compile("^Paused · "), timeout=LOAD_MS)
    assert done_rows(page) == paused
    expect(page.locator(".asked")).to_have_text("3: queue, angry, mood")
    button(page, "Resume").click()
    finish(page)
    expect(status(page)).to_contain_text("2,004 of 2,004 rows, 4 rejected")

    rejects_name, rejects = downloaded(page, "Download rejected rows")
    name, content = downloaded(page, "Download CSV")
    assert (name, rejects_name) == ("tickets.answers.csv", "tickets.answers.csv.rejects.jsonl")
    # Whether the file was really saved nobody knows: what is kept stays until somebody deletes it.
    button(page, "Delete what is kept").click()
    expect(page.locator(".held")).to_be_empty()
    assert page.evaluate("indexedDB.databases()") == []

    keep = ["--keep", "id", "--keep", "text", "--keep", "note"]
    out = tmp_path / name
    assert content == batch(
        table, questions, out, dist_pointer, *keep, "--engine", "page", "--device", "wasm"
    )
    assert rejects == out.with_name(rejects_name).read_bytes()
    assert [json.loads(line)["row"] for line in rejects.splitlines()] == [51, 351, 651, 951]

    # The native engine computes the same in another order: its file is the same but for the last digits.
    native = read(batch(table, questions, tmp_path / "native.csv", dist_pointer, *keep))
    found = read(content)
    largest = 0.0
    assert len(found) == len(native) == 2000 and found[0].keys() == native[0].keys()
    for ours, theirs in zip(found, native, strict=True):
        for column, value in ours.items():
            if ".p." in column:
                largest = max(largest, abs(float(value) - float(theirs[column])))
            elif column.endswith(".confidence"):
                assert abs(float(value) - float(theirs[column])) < 2e-5
            else:
                assert value == theirs[column] or column.endswith(".answer")
    assert largest < 1e-5
    print(f"paused after {paused} of 2,004 rows; native differs by at most {largest:.1e}")
    assert watched.complaints == []


@pytest.fixture
def traced(browser_type: BrowserType, browser_type_launch_args: dict[str, Any]) -> Iterator[Browser]:
    """A browser of its own: after a trace and a download, Chromium opens no file chooser in any of its pages."""
    browser = browser_type.launch(**browser_type_launch_args)
    yield browser
    browser.close()


def test_ten_thousand_rows_leave_the_page_awake(traced: Browser, address: str) -> None:
    page = traced.new_page()
    watched = open_table(page, address, {"angry": QUESTIONS["angry"]})
    load(page, "many.csv", tickets(10_000, 40))
    expect(page.locator(".table-summary")).to_have_text("many.csv: 10,004 rows, 3 columns")
    # A model is loaded before tasks count.
    expect(page.locator(".load-label")).to_have_text("Ready", timeout=LOAD_MS)
    traced.start_tracing(page=page, categories=["toplevel"])
    button(page, "Start").click()
    finish(page)
    thread = read_trace(traced.stop_tracing())
    # All of them are in the result, and few in the page.
    _, content = downloaded(page, "Download CSV")
    assert len(read(content)) == 10_000
    assert page.locator(".rows tbody tr").count() == 50
    expect(page.locator(".page-place")).to_have_text("1–50 of 10,004")
    page.locator("#table-sort").select_option("lowest")
    confidences = page.locator(".row-answer").evaluate_all("cells => cells.map((c) => +c.dataset.confidence)")
    assert confidences == sorted(confidences) and len(confidences) == 50
    print(f"longest of {thread.tasks} tasks of the main thread: {thread.longest_ms:.1f} ms")
    # How many there are depends on the machine's speed; that there are says that the trace is one of this page.
    assert thread.tasks > 100 and thread.longest_ms <= LONG_TASK_MS
    assert watched.complaints == []


@pytest.fixture(scope="module")
def answered(browser: Browser, address: str) -> Iterator[Watched]:
    """A page whose small table is answered; tests must leave it as it is, but for its controls."""
    context = browser.new_context()
    watched = open_table(context.new_page(), address)
    load(watched.page, "small.csv", tickets(60, 60))
    button(watched.page, "Start").click()
    finish(watched.page)
    yield watched
    context.close()


def test_rows_are_filtered_and_sorted(answered: Watched) -> None:
    page = answered.page
    count = page.locator(".row-count")
    expect(count).to_have_text("64 rows")
    first = cells(page)[0]
    assert first[0] == "2" and first[1].startswith("Parcel 0 is 0 days late") and len(first) == 5
    assert re.fullmatch(r"(billing|ship, \"fast\")\n[\d.]+%, confidence \d\.\d\d", first[2])
    page.locator("#table-answer").select_option(label="Rejected rows")
    expect(count).to_have_text("4 of 64 rows")
    assert [row[2] for row in cells(page)] == [
        "Rejected: has 1 cells, the header has 3",
        "Rejected: text the text is blank",
        "Rejected: text is not UTF-8: byte 0xe9",
        "Rejected: text " + (cells(page)[3][2].removeprefix("Rejected: text ")),
    ]
    assert "4096" in cells(page)[3][2]
    page.locator("#table-question").select_option(label="mood")
    page.locator("#table-answer").select_option(label="low")
    page.locator("#table-sort").select_option("highest")
    rows = cells(page)
    assert rows and all(row[4].startswith("low\n") for row in rows)
    shown = page.locator("tbody td:nth-child(5)").evaluate_all(
        "cells => cells.map((c) => +c.dataset.confidence)"
    )
    assert shown == sorted(shown, reverse=True)
    page.locator("#table-least").fill(str(shown[1] - 1e-9))
    page.locator("#table-least").press("Tab")
    expect(count).to_have_text("2 of 64 rows")
    page.locator("#table-least").fill("0")
    page.locator("#table-least").press("Tab")
    page.locator("#table-answer").select_option(label="Any")
    page.locator("#table-sort").select_option("row")
    button(page, "Next").click()
    expect(page.locator(".page-place")).to_have_text("51–64 of 64")
    button(page, "Previous").click()
    assert cells(page)[0] == first


def test_says_how_to_do_the_same_on_the_command_line(answered: Watched) -> None:
    command = answered.page.locator(".command").text_content() or ""
    assert command == (
        "python -m typedecide batch small.csv --questions questions.json --text text --keep id --keep text"
        " --keep note --engine page --out small.answers.csv"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_and_the_tab_fits(answered: Watched, scheme: Any) -> None:
    page = answered.page
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    for details in page.locator("#panel-table .paste, #panel-table .keep, .on-command-line").all():
        details.evaluate("e => { e.open = true }")
    assert violations(page) == []
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert has_no_sideways_scroll(page)
    assert answered.complaints == []


def test_by_keyboard_alone(page: Page, address: str, tmp_path: Path) -> None:
    path = tmp_path / "few.tsv"
    path.write_text("text\tid\n" + "".join(f"Parcel {i} is late.\t{i}\n" for i in range(3)), "utf-8")
    page.goto(f"{address}#decide")
    expect(page.locator(".load-label")).to_have_text("Ready", timeout=LOAD_MS)
    page.get_by_role("tab", name="Decide").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.get_by_role("tab", name="Table")).to_be_focused()
    expect(page.get_by_text("Drop a CSV")).to_be_visible(timeout=LOAD_MS)
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.locator("#table-file:focus").count():
            break
    expect(page.locator("#table-file")).to_be_focused()
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Enter")
    chooser.value.set_files(path)
    expect(page.locator(".table-summary")).to_have_text("few.tsv: 3 rows, 2 columns")
    tab_to(page, "Start")
    page.keyboard.press("Enter")
    finish(page)
    tab_to(page, "Rows and their answers")
    tab_to(page, "Previous")


@pytest.mark.parametrize(
    ("content", "name", "rows"),
    [
        ("id,text\n1,one\n", "pasted.csv", 1),
        ("id\ttext\n1\tone, two\n2\tthree\n", "pasted.tsv", 2),
        ('{"text": "one"}\n', "pasted.jsonl", 1),
    ],
)
def test_rows_can_be_pasted(page: Page, address: str, content: str, name: str, rows: int) -> None:
    open_table(page, address)
    page.get_by_text("Or paste rows").click()
    button(page, "Use these rows").click()
    expect(page.get_by_text("Paste some rows first.")).to_be_visible()
    page.locator("#table-pasted").fill(content)
    button(page, "Use these rows").click()
    expect(page.locator(".table-summary")).to_contain_text(f"{name}: {rows} row")
    expect(page.locator("#table-text")).to_have_value("text")


def test_files_that_are_no_tables_say_why(page: Page, address: str) -> None:
    open_table(page, address)
    alert = page.get_by_role("alert")
    for name, content, reason in [
        ("a.xlsx", b"PK", "its name must end in .csv, .tsv, .jsonl"),
        ("a.csv", b'text\n"never closed\n', "row 2: a quote is never closed"),
    ]:
        page.locator("#table-file").set_input_files({"name": name, "mimeType": "", "buffer": content})
        expect(alert).to_contain_text(reason)
        expect(alert).to_have_attribute("data-code", "INPUT")
    load(page, "a.csv", b"text,angry.answer\nhello,yes\n")
    expect(alert).to_have_count(0)
    # Two columns of one name would come of it: said before anything is asked.
    button(page, "Start").click()
    expect(alert).to_contain_text("'angry.answer'")
    page.locator(".keep > summary").click()
    page.get_by_label("angry.answer").uncheck()
    button(page, "Start").click()
    finish(page)


def test_what_is_kept_is_deleted_when_asked(page: Page, address: str) -> None:
    open_table(page, address)
    assert page.evaluate("indexedDB.databases()") == []
    load(page, "few.csv", b"text\none\ntwo\n")
    page.get_by_label("Keep this run in the browser").uncheck()
    button(page, "Start").click()
    finish(page)
    assert page.evaluate("indexedDB.databases()") == []
    page.get_by_label("Keep this run in the browser").check()
    button(page, "Start again").click()
    button(page.get_by_role("dialog"), "Start again").click()
    # The run before is finished too: only what is kept tells that this one has begun.
    expect(button(page, "Delete what is kept")).to_be_visible()
    finish(page)
    assert len(page.evaluate("indexedDB.databases()")) == 1
    button(page, "Delete what is kept").click()
    expect(page.locator(".held")).to_be_empty()
    assert page.evaluate("indexedDB.databases()") == []
    page.reload()
    expect(page.get_by_text("Drop a CSV")).to_be_visible()
    expect(page.locator(".table-summary")).to_be_hidden()


def test_a_shallow_model_says_so_in_every_row(
    page: Page, dist_pointer_shallow: Path, questions: Path, tmp_path: Path
) -> None:
    table = tmp_path / "few.jsonl"
    table.write_text(
        '{"text": "one", "n": 1.50}\n\n{"n": [null, "é"], "text": "two"}\n{"text": 3}\n', "utf-8"
    )
    with StaticServer(dist_pointer_shallow, headers=PAGE_HEADERS) as server:
        open_table(page, f"{server.url}?device=wasm")
        load(page, table.name, table.read_bytes())
        button(page, "Start").click()
        finish(page)
        _, rejects = downloaded(page, "Download rejected rows")
        _, content = downloaded(page, "Download CSV")
    out = tmp_path / "few.csv"
    keep = ["--keep", "text", "--keep", "n", "--engine", "page"]
    assert content == batch(table, questions, out, dist_pointer_shallow, *keep)
    assert rejects == out.with_name("few.csv.rejects.jsonl").read_bytes()
    rows = read(content)
    assert [row["n"] for row in rows] == ["1.50", '[null, "é"]']
    assert json.loads(rows[0]["angry.x_shallow"])["k"] == 2


def test_another_model_does_not_go_on_with_a_run(page: Page, address: str) -> None:
    open_table(page, address, {"angry": QUESTIONS["angry"]})
    load(page, "few.csv", tickets(6000, 6000))
    button(page, "Start").click()
    expect(status(page)).to_contain_text("rows/s", timeout=LOAD_MS)
    page.wait_for_timeout(1500)
    button(page, "Pause").click()
    expect(status(page)).to_have_text(re.compile("^Paused · "))
    # As if the rows that are kept were another model's.
    page.evaluate(
        """() => new Promise((resolve) => {
          indexedDB.open("typedecide-table").onsuccess = ({ target: { result: database } }) => {
            const transaction = database.transaction("blocks", "readwrite");
            transaction.objectStore("blocks").openCursor().onsuccess = ({ target: { result: cursor } }) => {
              if (!cursor) return;
              cursor.update({ ...cursor.value, engine: "another" });
              cursor.continue();
            };
            transaction.oncomplete = () => (database.close(), resolve());
          };
        })"""
    )
    page.reload()
    expect(status(page)).to_have_text(re.compile("^Paused · "), timeout=LOAD_MS)
    button(page, "Resume").click()
    expect(page.get_by_role("alert")).to_have_attribute("data-code", "OTHER_MODEL", timeout=LOAD_MS)
    expect(status(page)).to_have_text(re.compile("^Paused · "))
