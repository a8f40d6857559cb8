"""What the tests of the npm package share: sites with a strict policy, and all that a browser asked of them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from playwright.sync_api import BrowserContext, ConsoleMessage, Page, expect

from typedecide.static_server import StaticServer

LOAD_MS = 180_000
"""A model's load on a slow machine."""

READABLE = {"Access-Control-Allow-Origin": "*"}
"""What a server says whose files pages of other origins may read."""


def strict(*, connect: str = "", script: str = "") -> dict[str, str]:
    """A policy that allows a page's own files and WebAssembly, and from the named origins data or scripts."""
    policy = (
        f"default-src 'none'; script-src 'self' 'wasm-unsafe-eval' {script}; worker-src 'self';"
        f" connect-src 'self' {connect}; style-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'"
    )
    return {"Content-Security-Policy": policy}


def origin(server: StaticServer) -> str:
    """The origin of a server."""
    return server.url.rstrip("/")


@dataclass
class Traffic:
    """What the pages of a context asked for, their workers too, and what they complained about."""

    context: BrowserContext
    urls: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.context.on("request", lambda request: self._asked(request.url))
        self.context.on("console", self._said)
        self.context.on("weberror", lambda error: self.complaints.append(str(error.error)))

    def _asked(self, url: str) -> None:
        if not url.startswith("data:"):
            self.urls.append(url)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(f"{message.type}: {message.text}")

    def paths(self, server: StaticServer) -> Counter[str]:
        """The paths that were asked of a server, without queries, and how often."""
        return Counter(
            url.removeprefix(server.url).partition("?")[0] for url in self.urls if url.startswith(server.url)
        )

    def foreign(self, server: StaticServer) -> list[str]:
        """What was asked of anything but a server and the page itself."""
        return [url for url in self.urls if not url.startswith((server.url, "blob:"))]


def outcome(page: Page, address: str, options: dict[str, Any]) -> dict[str, Any]:
    """What the plain page at `address` says after it loaded an engine with `options`."""
    page.goto(f"{address}?{quote(json.dumps(options))}")
    output = page.locator("output")
    expect(output).not_to_be_empty(timeout=LOAD_MS)
    said: dict[str, Any] = json.loads(output.inner_text())
    return said
