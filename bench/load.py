"""How long does the page take to its first answer, at the first visit and at the second?

The bundle's page is opened twice in one browser window over a link of a given speed, as a person would open it. The
second visit should move no byte of the model over the network. Each visit is split into the steps of the load, which
overlap, the reading of the text and the first answer.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench import common
from bench.link import Link
from bench.tabs import chromium
from typedecide.page import PageEngine
from typedecide.static_server import PAGE_HEADERS, StaticServer

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

NAME = "load"
DEVICES = ("wasm",)

WAIT_MS = 300_000

_WATCH = """
  const said = (globalThis.said = []);
  globalThis.Worker = class extends Worker {
    constructor(...given) {
      super(...given);
      this.addEventListener("message", ({ data }) => said.push({ at: performance.now(), data }));
    }
    postMessage(data, ...more) {
      said.push({ at: performance.now(), data });
      super.postMessage(data, ...more);
    }
  };
"""
"""Runs before the page's own scripts: what is said to its worker and by it, and when."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The speed of the link."""
    parser.add_argument(
        "--mbits", type=float, default=50.0, metavar="N", help="megabits a second (default: 50)"
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure, publish and return the results."""
    from playwright.sync_api import sync_playwright

    bundle = common.find_bundle(args)
    with PageEngine(bundle, args.device, args.format, threads=args.threads) as engine:
        facts = common.describe(NAME, engine)
    with (
        StaticServer(bundle, headers=PAGE_HEADERS) as server,
        Link(server.port, args.mbits * 1e6) as link,
        sync_playwright() as playwright,
        chromium(playwright) as browser,
    ):
        context = browser.new_context()
        context.add_init_script(_WATCH)
        visits = [visit(context, link, args.device, args.format) for _ in range(2)]
    first, second = visits
    result = {
        **facts,
        "mbits": args.mbits,
        "first": first,
        "second": second,
        "faster": first["first_answer_ms"] / second["first_answer_ms"],
    }
    common.publish(args, result, summarise(result))
    return result


def visit(context: BrowserContext, link: Link, device: str, format: str) -> dict[str, Any]:
    """Open the page and wait for answers: times, and what went over the link meanwhile."""
    paths, received = len(link.paths), link.received
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    began = time.perf_counter()
    page.goto(f"{link.url}?device={device}&format={format}&auto=1")
    page.locator("[data-p]").first.wait_for()
    answered = time.perf_counter() - began
    # The service worker goes on for a moment; a page that is closed too early would not be kept.
    page.evaluate("async () => void (await navigator.serviceWorker.ready)")
    page.locator(".run-status").get_by_text("answered in").wait_for()
    said = page.evaluate(
        "() => said.filter(({ data }) => 'op' in data || 'result' in data || 'answer' in (data.progress ?? {}))"
    )
    page.wait_for_timeout(1000)
    page.close()
    asked = link.paths[paths:]
    model = [path for path in asked if path.startswith("/model/") or path.endswith(".wasm.gzip")]
    return {
        "first_answer_ms": answered * 1e3,
        "steps": steps(said),
        "bytes": link.received - received,
        "requests": len(asked),
        "model_requests": len(model),
    }


def steps(said: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """When each step of a visit ran, in milliseconds since its page was asked for.

    Args:
        said: messages to the worker and from it, and when they were there.
    """
    asked = {
        one["data"]["op"]: (one["data"]["id"], one["at"]) for one in reversed(said) if "op" in one["data"]
    }
    ended = {one["data"]["id"]: one for one in said if "result" in one["data"]}
    load = ended[asked["load"][0]]
    info = load["data"]["result"]
    # The worker has a clock of its own, and says how long the load took by it.
    began = load["at"] - info["loadMs"]
    found = {"page": {"from": 0.0, "to": began}}
    found |= {step: {side: began + ms for side, ms in span.items()} for step, span in info["timings"].items()}
    prefill = ended[asked["prefill"][0]]
    answer = next(one["at"] for one in said if "answer" in one["data"].get("progress", {}))
    found["prefill"] = {"from": asked["prefill"][1], "to": prefill["at"]}
    found["first answer"] = {"from": prefill["at"], "to": answer}
    return dict(sorted(found.items(), key=lambda item: item[1]["from"]))


def summarise(result: Mapping[str, Any]) -> str:
    """The figures in a few lines."""
    lines = [
        f"{NAME}: {result['model']}, {result['format']} on {result['device']}, {result['mbits']:g} Mbit/s"
    ]
    for name in ("first", "second"):
        one = result[name]
        lines.append(
            f"  {name} visit: first answer after {one['first_answer_ms'] / 1e3:.1f} s, {one['bytes'] / 1e6:.2f} MB in"
            f" {one['requests']} requests, {one['model_requests']} of them for model and runtime"
        )
        told = (
            f"{step} {span['from'] / 1e3:.1f}-{span['to'] / 1e3:.1f}" for step, span in one["steps"].items()
        )
        lines.append(f"    seconds: {', '.join(told)}")
    lines.append(f"  the second visit is {result['faster']:.1f} times faster")
    return "\n".join(lines)
