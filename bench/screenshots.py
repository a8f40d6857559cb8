"""`python -m bench.screenshots`: pictures of every tab of the page, narrow and wide, light and dark.

They are of the bundle in dist/, so the answers on them are those of its model on this machine. PNG with a palette of
128 colours: all of them together stay below 1.5 MB.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from bench.common import ROOT
from typedecide.chromium import LAUNCH_ARGS, SANDBOX, find_chromium
from typedecide.static_server import PAGE_HEADERS, StaticServer

OUT = ROOT / "docs" / "screenshots"
WIDTHS = {"narrow": (360, 740), "wide": (1280, 900)}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
COLOURS = 128
TIMEOUT_MS = 300_000


def _decide(page: Any) -> None:
    page.get_by_role("button", name="Decide", exact=True).click()
    page.locator(".run-status").filter(has_text=re.compile("answered in")).wait_for()
    # Bars grow to their length.
    page.wait_for_timeout(500)


ROWS = """message,refund
"The second parcel was charged too, please pay it back.",yes
"Where do I find my invoices?",no
"This is the third time! I want my money back today.",yes
"Thank you, the new version works well.",no
"Nobody answers, I am furious.",no
"Please cancel order 4410 and refund it.",yes
"How do I add a colleague to our plan?",no
"You ruined our opening day. Unacceptable!",no
"I paid twice, so please return 249 EUR.",yes
"Do you ship to Norway?",no
"""
"""Invented messages with true answers to one question of the sample."""


def _table(page: Any) -> None:
    page.get_by_text("Or paste rows").click()
    page.locator("#table-pasted").fill(ROWS)
    page.get_by_role("button", name="Use these rows").click()
    page.get_by_role("button", name="Start", exact=True).click()
    page.locator("#panel-table .run-status").filter(has_text="Done").wait_for()


def _trust(page: Any) -> None:
    page.locator("#trust-question").select_option("refund")
    page.locator("#panel-trust .report").wait_for()


def _proof(page: Any) -> None:
    page.get_by_role("radio", name="Quick").check()
    page.get_by_role("button", name="Measure", exact=True).click()
    page.get_by_text("Measured in").first.wait_for()


def _python(page: Any) -> None:
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("Done in").first.wait_for()


PREPARE: dict[str, Callable[[Any], None]] = {
    "decide": _decide,
    "table": _table,
    "trust": _trust,
    "proof": _proof,
    "python": _python,
}
"""What is done in a tab before its picture is taken: by its name in the page's address."""


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
        for width, (across, down) in WIDTHS.items():
            for scheme in SCHEMES:
                context = browser.new_context(
                    viewport={"width": across, "height": down}, color_scheme=scheme, reduced_motion="reduce"
                )
                context.set_default_timeout(TIMEOUT_MS)
                page = context.new_page()
                page.goto(f"{server.url}?device=wasm")
                page.locator(".load-label").filter(has_text="Ready").wait_for()
                for tab in page.get_by_role("tab").all():
                    name = str(tab.get_attribute("href")).removeprefix("#")
                    tab.click()
                    page.locator(f"#panel-{name}:not([aria-busy])").wait_for()
                    PREPARE.get(name, lambda page: None)(page)
                    page.mouse.move(0, 0)
                    path = out / f"{name}-{width}-{scheme}.png"
                    path.write_bytes(shrink(page.screenshot()))
                    written.append(path)
                context.close()
        browser.close()
    return written


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
