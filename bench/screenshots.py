"""`python -m bench.screenshots`: pictures of every tab of the page, narrow and wide, light and dark.

They are of the bundle in dist/, so the answers on them are those of its model on this machine. Each shows the page from
its top on, as far down as there is something to see. PNG with a palette: all of them together stay below 2 MB.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Literal

from bench.common import ROOT
from bench.generator import compose, kinds
from typedecide.chromium import LAUNCH_ARGS, SANDBOX, find_chromium
from typedecide.static_server import PAGE_HEADERS, StaticServer

OUT = ROOT / "docs" / "screenshots"
WIDTHS = {"narrow": (360, 740), "wide": (1280, 900)}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
TALLEST = {"narrow": 1800, "wide": 1500}
"""How much of the page a picture shows, in pixels from the top."""
FIRST_VIEW = "decide-wide"
"""The README's picture shows what a window shows."""
COLOURS = 64
TIMEOUT_MS = 600_000

ROWS = 160
ATTRIBUTES = ("cause", "wish", "urgency")
"""What is asked of generated tickets; the first is one that no training text is asked about."""


def tickets() -> tuple[bytes, dict[str, Any]]:
    """A table of generated tickets with the true answers, and the questions about them in the System One form."""
    kind = kinds()["support tickets"]
    told = [next(one for one in kind.attributes if one.name == name) for name in ATTRIBUTES]
    rng = Random(7)
    table = io.StringIO(newline="")
    rows = csv.writer(table)
    rows.writerow(["message", *ATTRIBUTES])
    for _ in range(ROWS):
        text = compose(kind, rng, told, reserved=True)
        rows.writerow([text.state, *(text.values[name].names[0] for name in ATTRIBUTES)])
    questions = {
        one.name: {
            "type": "score" if one.scale else "choice",
            "instructions": one.asks[0],
            "criteria": [value.names[0] for value in one.values],
        }
        for one in told
    }
    return table.getvalue().encode(), questions


def _decide(page: Any) -> None:
    page.get_by_role("button", name="Decide", exact=True).click()
    page.locator("#panel-decide .run-status").filter(has_text=re.compile("answered in")).wait_for()
    # It sticks to the window's end, which on a picture of more than the window is the middle.
    page.locator("#panel-decide .actions").evaluate("(bar) => { bar.style.position = 'static' }")


def _proof(page: Any) -> None:
    page.get_by_role("radio", name="Normal").check()
    page.get_by_role("button", name="Measure", exact=True).click()
    page.locator(".proof-status").filter(has_text="Measured in").wait_for()
    page.locator("#panel-proof canvas").nth(1).wait_for()


def _code(page: Any) -> None:
    page.locator("pre.code").filter(has_text="createEngine").wait_for()


def _python(page: Any) -> None:
    status = page.locator(".python-status")
    status.filter(has_text="is ready").wait_for()
    page.get_by_role("button", name="Run", exact=True).click()
    status.filter(has_text="Done in").wait_for()


def _table(page: Any) -> None:
    table, questions = tickets()
    page.get_by_role("tab", name="Decide").click()
    page.get_by_role("button", name="Import / export").click()
    page.get_by_role("textbox", name="Questions as JSON").fill(json.dumps(questions))
    page.get_by_role("button", name="Use these", exact=True).click()
    page.get_by_role("tab", name="Table").click()
    page.locator("#table-file").set_input_files(
        {"name": "tickets.csv", "mimeType": "text/csv", "buffer": table}
    )
    page.get_by_role("button", name="Start", exact=True).click()
    page.locator("#panel-table .run-status").filter(has_text="Done").wait_for()
    page.locator("#table-sort").select_option("lowest")
    page.locator(".rows tbody tr").nth(9).wait_for()


def _trust(page: Any) -> None:
    page.locator("#panel-trust .report").wait_for()
    page.locator("#panel-trust").get_by_text("95% interval").wait_for()
    page.locator("#panel-trust canvas").nth(1).wait_for()
    page.get_by_label("Errors allowed").fill("20")
    page.get_by_role("button", name="Find the threshold").click()


PREPARE: dict[str, Callable[[Any], None]] = {
    "decide": _decide,
    "proof": _proof,
    "code": _code,
    "python": _python,
    "table": _table,
    "trust": _trust,
}
"""What is done in a tab before its pictures are taken: by its name in the page's address, in this order. Trust is about
the rows of Table."""


def shrink(png: bytes) -> bytes:
    """The same picture with a palette."""
    from PIL import Image

    out = io.BytesIO()
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def take(bundle: Path, out: Path) -> list[Path]:
    """Write the pictures; their paths."""
    from playwright.sync_api import sync_playwright

    out.mkdir(parents=True, exist_ok=True)
    written = []
    with StaticServer(bundle, headers=PAGE_HEADERS) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(find_chromium()), args=list(LAUNCH_ARGS), chromium_sandbox=SANDBOX
        )
        context = browser.new_context(reduced_motion="reduce")
        context.set_default_timeout(TIMEOUT_MS)
        page = context.new_page()
        page.goto(f"{server.url}?device=wasm")
        page.locator(".load-label").filter(has_text="Ready").wait_for()
        tabs = {str(tab.get_attribute("href")).removeprefix("#") for tab in page.get_by_role("tab").all()}
        assert tabs == set(PREPARE), tabs
        for name, prepare in PREPARE.items():
            page.locator(f"#tab-{name}").click()
            page.locator(f"#panel-{name}:not([aria-busy])").wait_for()
            prepare(page)
            for width, (across, down) in WIDTHS.items():
                page.set_viewport_size({"width": across, "height": down})
                for scheme in SCHEMES:
                    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
                    path = out / f"{name}-{width}-{scheme}.png"
                    tallest = down if f"{name}-{width}" == FIRST_VIEW else TALLEST[width]
                    path.write_bytes(shrink(picture(page, across, tallest)))
                    written.append(path)
        browser.close()
    return written


def picture(page: Any, across: int, tallest: int) -> bytes:
    """The page from its top on, no longer than it is."""
    page.mouse.move(0, 0)
    page.evaluate("scrollTo(0, 0)")
    # Charts follow a new size or scheme within two frames.
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    length = page.evaluate("document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": across, "height": min(length, tallest)}
    png: bytes = page.screenshot(full_page=True, clip=clip)
    return png


def main(arguments: list[str]) -> None:
    """Take the pictures and say how large they are."""
    parser = argparse.ArgumentParser(prog="python -m bench.screenshots", description=__doc__)
    parser.add_argument("--bundle", type=Path, default=ROOT / "dist", help="default: dist")
    parser.add_argument("--out", type=Path, default=OUT, help="default: docs/screenshots")
    options = parser.parse_args(arguments)
    for path in (written := take(options.bundle, options.out)):
        print(path)
    print(f"{len(written)} pictures, {sum(path.stat().st_size for path in written) / 1e6:.2f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
