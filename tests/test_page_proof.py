"""The Proof tab and the charts, on tiny models that really run: its figures, and that it sees planted faults."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from bench import common
from pybuild import npm, shallow
from pybuild.bundle import build
from tests.conftest import ROOT
from tests.test_bench_speed import decided, form
from tests.test_page_ui import button, has_no_sideways_scroll, tab_to, violations
from typedecide.native import NativeEngine
from typedecide.static_server import PAGE_HEADERS, StaticServer

LOAD_MS = 120_000
RUN_MS = 240_000
ROUNDING = 1e-5
MEASURED = re.compile(r"^Measured in [\d.,]+ (ms|s)$")


@pytest.mark.parametrize("name", ["chart", "proof"])
def test_what_is_reckoned(name: str) -> None:
    command = [str(npm.node()), "--test", "--test-reporter=tap", f"tests/js/{name}.test.js"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert re.search(r"^# pass [1-9]", done.stdout, re.M) and "\n# skipped 0" in done.stdout


TEXT = "My card was charged twice for order 4711, and nobody answers. I am furious!"
"""Short: the tiny model's tokens are bytes, and whole prompts are run by the dozen."""


@contextmanager
def proof_page(
    browser: Browser,
    bundle: Path,
    faults: Mapping[str, Callable[[Route], None]] | None = None,
    **options: Any,
) -> Iterator[Page]:
    """The Proof tab of a bundle, without the service worker, which would refuse files that a test changes."""
    context = browser.new_context(service_workers="block", accept_downloads=True, **options)
    for path, serve in (faults or {}).items():
        context.route(path, serve)
    with StaticServer(bundle, headers=PAGE_HEADERS) as server:
        page = context.new_page()
        page.goto(f"{server.url}?device=wasm")
        page.get_by_label("The text to decide about").fill(TEXT)
        page.get_by_role("tab", name="Proof").click()
        expect(button(page, "Measure")).to_be_visible(timeout=LOAD_MS)
        yield page
    context.close()


def status(page: Page) -> Locator:
    return page.locator(".proof-status")


def measure(page: Page, effort: str = "Quick") -> None:
    page.get_by_role("radio", name=effort).check()
    button(page, "Measure").click()
    expect(status(page)).to_have_text(MEASURED, timeout=RUN_MS)
    expect(page.get_by_role("alert")).to_have_count(0)


def press_until_focused(page: Page, key: str, control: Locator) -> None:
    for _ in range(10):
        page.keyboard.press(key)
        if control.evaluate("e => e === document.activeElement"):
            return
    raise AssertionError(f"{key} never reached {control}")


def checks(page: Page) -> dict[str, str]:
    """The verdict of each check."""
    return {
        row.get_attribute("data-check") or "": row.get_attribute("data-passed") or ""
        for row in page.locator("[data-check]").all()
    }


def figures(page: Page, part: str, row: str) -> list[float]:
    """The figures of a row of a part's table."""
    cells = page.locator(f'#proof-{part} [data-row="{row}"] [data-value]').all()
    return [float(cell.get_attribute("data-value") or "nan") for cell in cells]


def export(page: Page) -> tuple[dict[str, Any], str]:
    """What the download holds, and its text."""
    with page.expect_download() as started:
        button(page, "Download JSON").click()
    assert started.value.suggested_filename == "typedecide-proof.json"
    text = Path(started.value.path()).read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found, text


def test_the_figures_are_real(browser: Browser, dist_pointer: Path) -> None:
    state, questions = TEXT, common.read_sample(dist_pointer)[1]
    with proof_page(browser, dist_pointer) as page:
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        measure(page)
        assert checks(page) == dict.fromkeys(("selfTest", "shared", "packed", "order"), "true")
        found, text = export(page)
        shown = {key: figures(page, "shared", key) for key in questions}
        packing = {count: figures(page, "packing", str(count)) for count in (1, 4)}
        charted = page.locator("#proof-time tbody th").all_text_contents()
        assert complaints == []

    assert [row["id"] for row in found["shared"]] == found["questions"] == list(questions)
    with NativeEngine(dist_pointer, threads=1) as engine:
        assert engine.prefill(state).tokens == found["prefill"]["tokens"] == found["text"]["tokens"]
        for row in found["shared"]:
            question = questions[row["id"]]
            assert row["shared"]["tokens"] == engine.score(question).tokens
            assert row["full"]["tokens"] == engine.score_full(state, question, readout="pointer").tokens
            assert 0 <= row["difference"] <= ROUNDING
            assert min(row["shared"]["ms"], row["full"]["ms"]) > 0
            ms = [row["shared"]["ms"], row["full"]["ms"]]
            assert shown[row["id"]] == pytest.approx(
                [
                    row["difference"],
                    row["shared"]["tokens"],
                    ms[0],
                    row["full"]["tokens"],
                    ms[1],
                    ms[1] / ms[0],
                ]
            )
        for row in found["packing"]:
            count, ways = row["questions"], row["ways"]
            done = engine.score_all([*questions.values()][:count])
            assert (ways["packed"]["tokens"], row["saved"]) == (done.tokens_run, done.tokens_saved)
            asked = [one["shared"]["tokens"] for one in found["shared"][:count]]
            assert ways["sequential"]["tokens"] == sum(asked) >= ways["packed"]["tokens"]
            wholes = [one["full"]["tokens"] for one in found["shared"][:count]]
            assert ways["full"]["tokens"] == sum(wholes) and row["timed"] == count
            assert (
                packing[count][1] == ways["full"]["ms"] and packing[count][9] == row["difference"] <= ROUNDING
            )
            assert str(count) in charted

    own, one_order, orders = found["flips"]
    assert own["readout"] == "pointer" and own["flipped"] == [] and own["change"] <= ROUNDING
    assert one_order["orderings"] == 1 and orders["orderings"] == "auto"
    assert one_order["change"] > ROUNDING, "letters in one order do not hide the order"
    memory, info = found["memory"], found["engine"]
    assert memory["stateBytes"] == sum(state["bytes"] for state in memory["states"]) > 0
    assert memory["wasmBytes"] > 16 * 2**20 and memory["gpu"] is None and memory["pageHeap"] > 10**5
    assert memory["states"][0]["bytes"] >= memory["states"][0]["tokens"] * info["tokenBytes"]
    manifest = json.loads((dist_pointer / "manifest.json").read_text("utf-8"))
    assert found["drift"] == manifest["formats"]["fp32"]["drift"] and found["drift"]["max"] == 0
    assert state[:20] not in text and questions["queue"].question not in text


def test_by_keyboard_alone_and_axe_finds_nothing(browser: Browser, dist_pointer: Path) -> None:
    with proof_page(browser, dist_pointer, viewport={"width": 360, "height": 740}) as page:
        # From the text back to the tabs, and into this one.
        page.reload()
        expect(button(page, "Measure")).to_be_visible(timeout=LOAD_MS)
        page.keyboard.press("Tab")
        expect(page.get_by_role("tab", name="Proof")).to_be_focused()
        page.keyboard.press("Home")
        page.keyboard.press("Enter")
        text = page.get_by_label("The text to decide about")
        expect(text).to_be_visible()
        press_until_focused(page, "Tab", text)
        page.keyboard.press("Control+a")
        page.keyboard.insert_text(TEXT)
        press_until_focused(page, "Shift+Tab", page.get_by_role("tab", name="Decide"))
        press_until_focused(page, "ArrowRight", page.get_by_role("tab", name="Proof"))
        page.keyboard.press("Enter")
        expect(button(page, "Measure")).to_be_visible()
        page.keyboard.press("Tab")
        expect(page.get_by_role("radio", name="Normal")).to_be_focused()
        page.keyboard.press("ArrowUp")
        expect(page.get_by_role("radio", name="Quick")).to_be_checked()
        tab_to(page, "Measure")
        page.keyboard.press("Enter")
        expect(status(page)).to_have_text(MEASURED, timeout=RUN_MS)
        expect(page.get_by_role("progressbar", name="Measuring")).to_have_attribute("aria-valuenow", "100")
        tab_to(page, "Download JSON")
        with page.expect_download():
            page.keyboard.press("Enter")
        # What scrolls in itself is reached, and the numbers of a chart open.
        page.keyboard.press("Tab")
        tab_to(page, "Kept prefix against whole prompts")
        tab_to(page, "Numbers as a table")
        page.keyboard.press("Enter")
        expect(
            page.get_by_role("group", name="Numbers of the chart: Time by number of questions")
        ).to_be_visible()
        assert has_no_sideways_scroll(page)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            assert violations(page) == []
        levels = page.locator("h1, h2, h3").filter(visible=True)
        assert levels.evaluate_all("all => all.map((e) => e.tagName)")[:3] == ["H1", "H2", "H3"]


def test_a_planted_fault_is_seen(browser: Browser, dist_pointer: Path) -> None:
    """One option a little more likely in whole prompts, as where a kept prefix is wrong."""

    def serve(route: Route) -> None:
        response = route.fetch()
        before = "const { reading, tokens } = await this.#fullReading(used, state, parsed, aborted);"
        if response.text().count(before) != 1:
            # An error raised here would be heard of at the end of a long wait only.
            route.abort()
        else:
            route.fulfill(
                response=response, body=response.text().replace(before, before + " reading[0] += 1e-3;")
            )

    with proof_page(browser, dist_pointer, faults={"**/decider.js": serve}) as page:
        measure(page)
        assert checks(page) == {"selfTest": "true", "shared": "false", "packed": "false", "order": "true"}
        expect(page.locator('[data-check="shared"]')).to_contain_text("failed")
        ids = common.read_sample(dist_pointer)[1]
        assert max(figures(page, "shared", key)[0] for key in ids) > ROUNDING


def test_stop_keeps_what_was_measured(browser: Browser, dist_pointer: Path) -> None:
    with proof_page(browser, dist_pointer) as page:
        expect(button(page, "Download JSON")).to_have_attribute("aria-disabled", "true")
        page.get_by_role("radio", name="Thorough").check()
        button(page, "Measure").click()
        expect(page.locator('#proof-shared [data-row="topic"] [data-value]').first).to_be_visible(
            timeout=RUN_MS
        )
        button(page, "Stop").click()
        expect(status(page)).to_have_text("Stopped: what was measured stays", timeout=RUN_MS)
        found, _ = export(page)
        assert 2 <= len(found["shared"]) <= 11 and "memory" not in found
        assert checks(page)["order"] == "open"
        # Another text: the figures are said to be of the earlier one.
        page.get_by_role("tab", name="Decide").click()
        page.get_by_label("The text to decide about").fill("Another text.")
        page.get_by_role("tab", name="Proof").click()
        expect(page.locator(".proof-of")).to_contain_text("changed since")


def test_a_shallow_model_is_exact_for_its_own_policy(
    browser: Browser, dist_pointer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shallow, "MODELS", tmp_path)
    (tmp_path / "tiny-pointer-model").mkdir()
    decided(dist_pointer, tmp_path / "tiny-pointer-model" / shallow.FILE, form(2, "instruction"))
    model = common.BUNDLES / "tiny-pointer-model"
    bundle = build(tmp_path / "dist", source=str(model), formats=("fp32",), quiet=True, shallow="auto")
    with proof_page(browser, bundle) as page:
        measure(page)
        assert checks(page) == dict.fromkeys(("selfTest", "shared", "packed", "order"), "true")
        part = page.locator("#proof-shallow")
        expect(part).to_contain_text("2 of 3")
        expect(part).to_contain_text("99.5% (95% interval: 99.0% to 100.0%)")
        expect(part).to_contain_text("300 answers about 300 texts of heldout")
        expect(part).to_contain_text("passes them all")


def test_a_refusal_of_the_gate_is_shown(
    browser: Browser, dist_pointer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shallow, "MODELS", tmp_path)
    (tmp_path / "tiny-pointer-model").mkdir()
    rows = (form(1, "bos", error=1), {**form(2, "instruction", error=0.4), "effect_error": 0.2})
    decided(dist_pointer, tmp_path / "tiny-pointer-model" / shallow.FILE, *rows)
    model = common.BUNDLES / "tiny-pointer-model"
    bundle = build(tmp_path / "dist", source=str(model), formats=("fp32",), quiet=True, shallow="auto")
    with proof_page(browser, bundle) as page:
        part = page.locator("#proof-shallow")
        expect(part).to_contain_text("none of 2 shallow forms: the text goes through all layers")
        expect(part).to_contain_text("2 layers, anchor instruction")
        expect(part).to_contain_text("effect error up to 40.0%")


def test_formats_are_compared_on_the_users_questions(
    browser: Browser, dist_pointer: Path, tmp_path: Path
) -> None:
    model = common.BUNDLES / "tiny-pointer-model"
    bundle = build(tmp_path / "dist", source=str(model), formats=("int4", "fp32"), quiet=True)
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
    drift = manifest["formats"]["int4"]["drift"]
    with proof_page(browser, bundle) as page:
        part = page.locator("#proof-drift")
        expect(part).to_contain_text("int4, lossy")
        expect(part.locator("[data-value]").first).to_have_attribute("data-value", str(drift["max"]))
        part.get_by_role("button", name=re.compile("^Compare with fp32")).click()
        expect(part.locator(".proof-comparison")).to_have_text(
            re.compile(r"^Your 11 questions: largest difference [1-9]\.\de-[1-4], mean "), timeout=RUN_MS
        )
        expect(status(page)).to_have_text("Compared with fp32")


def test_a_comparison_goes_with_figures_of_its_own_questions_only(
    browser: Browser, dist_pointer: Path, tmp_path: Path
) -> None:
    model = common.BUNDLES / "tiny-pointer-model"
    bundle = build(tmp_path / "dist", source=str(model), formats=("int4", "fp32"), quiet=True)
    with proof_page(browser, bundle) as page:
        comparison = page.locator(".proof-comparison")

        def compare() -> None:
            button(page, re.compile("^Compare with fp32")).click()
            expect(comparison).not_to_be_empty(timeout=RUN_MS)
            expect(status(page)).to_have_text("Compared with fp32")

        def write(text: str) -> None:
            page.get_by_role("tab", name="Decide").click()
            page.get_by_label("The text to decide about").fill(text)
            page.get_by_role("tab", name="Proof").click()

        measure(page)
        write("Another text.")
        compare()
        assert export(page)[0]["against_fp32"] is None
        # Of whatever the comparison was, it was not this text.
        write(TEXT)
        expect(comparison).to_be_empty()
        compare()
        found, _ = export(page)
        assert found["against_fp32"]["questions"] == len(found["questions"])


def test_files_stay_until_they_are_saved_and_a_refused_copy_is_said(
    browser: Browser, dist_pointer: Path
) -> None:
    with proof_page(browser, dist_pointer) as page:
        page.evaluate(
            """() => {
              globalThis.revoked = 0;
              const revoke = URL.revokeObjectURL.bind(URL);
              URL.revokeObjectURL = (url) => ((globalThis.revoked += 1), revoke(url));
              navigator.clipboard.writeText = () => Promise.reject(new DOMException("no", "NotAllowedError"));
            }"""
        )
        measure(page)
        # Some browsers read the address only after the click.
        export(page)
        assert page.evaluate("globalThis.revoked") == 0
        bar = page.get_by_role("progressbar", name="Measuring")
        button(page, "Copy JSON").click()
        expect(status(page)).to_have_text("The browser did not let the page copy: download them instead")
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(bar).to_have_attribute("aria-valuenow", "100")


def test_parts_are_filled(page: Page, dist_pointer: Path) -> None:
    with StaticServer(dist_pointer, headers=PAGE_HEADERS) as server:
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(f"{server.url}?device=wasm#proof")
        expect(page.locator("#proof-selftest [data-verdict]").first).to_be_visible(timeout=LOAD_MS)
        empty = page.locator("#proof-selftest").evaluate(
            """(part) => {
              const { bottom } = part.lastElementChild.getBoundingClientRect();
              return (part.getBoundingClientRect().bottom - bottom) / part.clientHeight;
            }"""
        )
        assert empty < 0.3
        for part in ("shared", "packing", "order"):
            table = page.locator(f"#proof-{part} .figures")
            room, width = table.evaluate("e => [e.clientWidth, e.firstElementChild.offsetWidth]")
            assert width >= room
        # What the self-test found is said once.
        one = page.locator('#proof-selftest [data-verdict="chosen"]').inner_text()
        assert one.count("error") == 1


CHARTS = """async () => {
  const { makeChart } = await import("/app/chart.js");
  const line = (points) => ({ name: "packed", kind: "line", points });
  const spec = {
    title: "Time", x: { title: "questions", log: true, ticks: [1, 4] }, y: { title: "time", unit: "ms", log: true },
    series: [line([[1, 10], [4, 30]]), { name: "limit", kind: "line", reference: true, points: [[1, 20], [4, 20]] }],
  };
  const chart = await makeChart(spec);
  globalThis.charts = { chart, spec, line };
  document.querySelector("main").prepend(chart.element);
}"""

PIXELS = """() => {
  const canvas = document.querySelector(".chart canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const hex = (i) => [0, 1, 2].map((j) => data[i + j].toString(16).padStart(2, "0")).join("");
  const found = new Set();
  for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255) found.add("#" + hex(i));
  return [...found];
}"""


def drawn(page: Page, colour: str) -> list[str]:
    """The colours of a chart, once this one is among them: it is drawn in the browser's next frames."""
    for _ in range(100):
        colours: list[str] = page.evaluate(PIXELS)
        if colour in colours:
            return colours
        page.wait_for_timeout(50)
    raise AssertionError(f"{colour} is not drawn")


def test_a_chart_follows_the_page(page: Page, dist_pointer: Path) -> None:
    with StaticServer(dist_pointer, headers=PAGE_HEADERS) as server:
        page.set_viewport_size({"width": 900, "height": 700})
        page.emulate_media(color_scheme="light")
        page.goto(f"{server.url}?device=none")
        expect(page.locator("article").first).to_be_attached(timeout=LOAD_MS)
        page.evaluate(CHARTS)
        canvas = page.locator(".chart canvas")
        expect(canvas).to_have_count(1)
        drawn(page, "#1f6f69")
        page.emulate_media(color_scheme="dark")
        assert "#1f6f69" not in drawn(page, "#7cc4bb")
        wide = canvas.evaluate("e => e.getBoundingClientRect().width")
        page.set_viewport_size({"width": 400, "height": 700})
        for _ in range(100):
            narrow = canvas.evaluate("e => e.getBoundingClientRect().width")
            if narrow < wide:
                break
            page.wait_for_timeout(50)
        assert narrow < 400 < wide
        page.get_by_text("Numbers as a table").click()
        rows = page.locator(".chart tr").all_inner_texts()
        assert rows == ["questions\tpacked (ms)\tlimit (ms)", "1\t10\t20", "4\t30\t20"]
        assert page.locator(".chart-legend li").all_inner_texts() == ["packed", "limit"]
        # Other data: the opened table stays open.
        page.evaluate("() => charts.chart.update({ ...charts.spec, series: [charts.line([[1, 7.125]])] })")
        expect(page.locator(".chart td")).to_have_text("7.125")
        expect(page.locator(".chart-legend li")).to_have_count(0)
        assert violations(page) == []
