"""`engine.fetch` in a real page: the official JavaScript client, unmodified, gets its answers with no server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from pybuild import npm
from tests.vector_checks import load
from typedecide import Choice, Noul, Score
from typedecide.native import NativeEngine
from typedecide.static_server import StaticServer

pytestmark = pytest.mark.browser

SDK = (npm.package("@typesafe-ai/sdk") / "dist" / "index.mjs").read_text("utf-8")
STATE = "I was charged twice and want my money back."

_START = """async (sdk) => {
  const { createEngine } = await import("./index.js");
  globalThis.engine = await createEngine({ device: "wasm", threads: 1 });
  const address = URL.createObjectURL(new Blob([sdk], { type: "text/javascript" }));
  globalThis.sdk = await import(address);
  const { TypeSafeClient } = globalThis.sdk;
  const options = { apiKey: "none", dangerouslyAllowBrowser: true, timeout: 120_000, logLevel: "off" };
  globalThis.client = new TypeSafeClient({ ...options, fetch: globalThis.engine.fetch });
}"""


@pytest.fixture(scope="module")
def page(browser: Browser, dist_pointer: Path) -> Iterator[Page]:
    """A page with an engine, and the official client on top of it; `requests` is what it asked the network for."""
    with StaticServer(dist_pointer) as server, browser.new_context() as context:
        opened = context.new_page()
        # Any file of the origin will do as a page.
        opened.goto(f"{server.url}manifest.json")
        opened.evaluate(_START, SDK)
        yield opened


@pytest.fixture
def requests(page: Page) -> Iterator[list[str]]:
    """What the page asks the network for during a test."""
    seen: list[str] = []

    def note(request: Any) -> None:
        seen.append(request.url)

    page.on("request", note)
    yield seen
    page.remove_listener("request", note)


def test_the_official_client_gets_answers_and_no_request_leaves_the_page(
    page: Page, requests: list[str], dist_pointer: Path
) -> None:
    found = page.evaluate(
        """async (state) => {
          const { noul, choice, score } = globalThis.sdk;
          const questions = {
            refund: noul("Does the customer want money back?"),
            team: choice("Which team?", { billing: "charges", other: null }),
            mood: score("How angry?", ["calm", "annoyed", "furious"]),
          };
          const { answers, model, usage } = await globalThis.client.systemOne({ state, questions });
          return { answers, model, usage, models: await globalThis.client.models.list() };
        }""",
        STATE,
    )
    assert found["model"] == "tiny-pointer-model"
    assert [model["name"] for model in found["models"]] == ["tiny-pointer-model", "jev-latest"]
    with NativeEngine(dist_pointer, threads=1) as engine:
        done = engine.decide(
            STATE,
            {
                "refund": Noul("Does the customer want money back?"),
                "team": Choice("Which team?", {"billing": "charges", "other": None}),
                "mood": Score("How angry?", ["calm", "annoyed", "furious"]),
            },
        )
    answers = found["answers"]
    refund, team, mood = (done.answers[id].answer for id in ("refund", "team", "mood"))
    assert answers["refund"]["noul"] == pytest.approx(refund.value, abs=1e-4)
    assert [*answers["team"]["probabilities"].values()] == pytest.approx(team.probabilities, abs=1e-4)
    assert answers["team"]["confidence"] == pytest.approx(team.confidence, abs=1e-4)
    assert answers["mood"]["score"] == pytest.approx(mood.value, abs=1e-4)
    assert answers["mood"]["legend"] == {"0": "calm", "1": "annoyed", "2": "furious"}
    assert found["usage"] == {"input_tokens": done.prefill.tokens + done.tokens_run, "output_tokens": 0}
    assert requests == []


def test_the_client_knows_the_errors(page: Page) -> None:
    failed = page.evaluate(
        """async (state) => {
          const { noul, choice } = globalThis.sdk;
          const told = async (request) => {
            try {
              return await globalThis.client.systemOne(request);
            } catch ({ name, status, message, body }) {
              return { name, status, message, body };
            }
          };
          const questions = { a: noul("Urgent?") };
          return {
            invalid: await told({ state, questions: { a: choice("Which?", { only: null }) } }),
            long: await told({ state: "word ".repeat(5000), questions }),
            model: await told({ state, questions, model: "other" }),
            fine: await told({ state, questions }),
          };
        }""",
        STATE,
    )
    assert (failed["invalid"]["name"], failed["invalid"]["status"]) == ("UnprocessableEntityError", 422)
    assert "questions.a.criteria: There must be 2 to 255 options." in failed["invalid"]["message"]
    detail = failed["long"]["body"]["detail"]
    assert failed["long"]["status"] == 413 and detail["x_tokens"] > detail["x_limit"] == 4096
    assert (failed["model"]["name"], failed["model"]["status"]) == ("NotFoundError", 404)
    assert failed["fine"]["answers"]["a"]["type"] == "noul"


def test_whoever_aborts_gets_the_reason_and_the_engine_goes_on(page: Page) -> None:
    reasons = page.evaluate(
        """async (state) => {
          const { noul, choice } = globalThis.sdk;
          const names = Object.fromEntries(Array.from({ length: 12 }, (_, i) => [`name ${i}`, "about".repeat(20)]));
          const ids = Array.from({ length: 200 }, (_, i) => `q${i}`);
          const many = Object.fromEntries(ids.map((id) => [id, choice(`Which ${id}?`, names)]));
          const body = JSON.stringify({ state, questions: many });
          const { fetch } = globalThis.engine;
          const told = (work) => work.then(() => "answered", (error) => `${error.name}: ${error.message}`);
          const controller = new AbortController();
          const running = told(fetch("/v1/systemone", { method: "POST", body, signal: controller.signal }));
          setTimeout(() => controller.abort(new RangeError("enough")), 300);
          const late = told(fetch("/v1/systemone", { method: "POST", body, signal: AbortSignal.timeout(400) }));
          const before = told(fetch("/v1/models", { signal: AbortSignal.abort() }));
          const own = new AbortController();
          const options = { signal: own.signal };
          const client = told(globalThis.client.systemOne({ state, questions: many }, options));
          setTimeout(() => own.abort(), 100);
          const results = await Promise.all([running, late, before, client]);
          const after = await globalThis.client.systemOne({ state, questions: { a: noul("Urgent?") } });
          return [...results, after.answers.a.type];
        }""",
        STATE,
    )
    running, late, before, client, after = reasons
    assert running == "RangeError: enough"
    assert late.startswith("TimeoutError: ") and before.startswith("AbortError: ")
    assert client.startswith("APIUserAbortError: ") and after == "noul"


def test_it_is_a_fetch(page: Page, requests: list[str]) -> None:
    found = page.evaluate(
        """async (state) => {
          const { fetch } = globalThis.engine;
          const questions = '{"2": {"type": "choice", "criteria": {"10": "ten", "b": null, "2": "two"}}}';
          const body = `{"state": ${JSON.stringify(state)}, "questions": ${questions}}`;
          const ask = async (...given) => {
            const response = await fetch(...given);
            const { status, ok, headers } = response;
            return [status, ok, headers.get("content-type"), headers.get("allow"), await response.text()];
          };
          const address = "https://api.example/base/v1/systemone";
          return {
            string: await ask(address, { method: "POST", body }),
            url: await ask(new URL(address), { method: "POST", body: new TextEncoder().encode(body) }),
            request: await ask(new Request(address, { method: "POST", body: new Blob([body]) })),
            get: await ask(address),
            models: await ask("/v1/models"),
            post: await ask("/v1/models", { method: "POST" }),
            other: await ask("/v1/other"),
            bytes: await ask(address, { method: "POST", body: Uint8Array.of(0x22, 0xff, 0x22) }),
          };
        }""",
        STATE,
    )
    for way in ("string", "url", "request"):
        status, ok, kind, _, text = found[way]
        assert (status, ok, kind) == (200, True, "application/json")
        # Integer-like names stay where they are.
        assert text.index('"10":') < text.index('"b":') < text.rindex('"2":')
    assert [found[name][0] for name in ("get", "models", "post", "other", "bytes")] == [
        405,
        200,
        405,
        404,
        422,
    ]
    assert (found["get"][3], found["post"][3]) == ("POST", "GET")
    assert requests == []


def test_invalid_requests_are_422(page: Page) -> None:
    bodies = [case["body"] for case in load("systemone.json")["requests"] if "error" in case]
    statuses = page.evaluate(
        """(bodies) => Promise.all(bodies.map(async (body) => {
          const response = await globalThis.engine.fetch("/v1/systemone", { method: "POST", body });
          const { detail } = await response.json();
          return [response.status, detail.every(({ loc, msg, type }) => loc[0] === "body" && msg && type)];
        }))""",
        bodies,
    )
    assert len(statuses) > 60 and all(one == [422, True] for one in statuses)
