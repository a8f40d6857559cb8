"""A visit: a browser of its own with a page of the site, what it does there, and the memory of the page's process.

Knows no questions and no results.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typedecide.chromium import LAUNCH_ARGS, SANDBOX, find_chromium

if TYPE_CHECKING:
    from playwright.sync_api import Page, Playwright

_CALL = "async ([name, text]) => (await import('./visit.js'))[name](JSON.parse(text))"


@contextmanager
def visit(playwright: Playwright, profile: Path, url: str) -> Iterator[Page]:
    """An empty page of the site at `url`, in a headless browser that keeps what it downloads in `profile`."""
    context = playwright.chromium.launch_persistent_context(
        profile,
        executable_path=find_chromium(),
        args=list(LAUNCH_ARGS),
        chromium_sandbox=SANDBOX,
        headless=True,
    )
    try:
        page = context.pages[0]
        page.goto(f"{url}visit.html")
        yield page
    finally:
        context.close()


def call(page: Page, function: str, argument: object) -> dict[str, Any]:
    """What a function of page/visit.js gives."""
    found: dict[str, Any] = page.evaluate(_CALL, [function, json.dumps(argument)])
    return found


def peak_bytes(page: Page) -> int | None:
    """The most memory that the page's process has held so far, its workers' included; None where only Linux tells."""
    browser = page.context.browser
    if sys.platform != "linux" or browser is None:
        return None
    session = browser.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    return max(_peak(one["id"]) for one in processes if one["type"] == "renderer")


def _peak(process: int) -> int:
    for line in Path(f"/proc/{process}/status").read_text("utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
