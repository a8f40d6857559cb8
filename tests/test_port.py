"""An engine lent over a port: it does there what it does here, until the loan is ended.

The tiny model answers at random: it is the way there and back that is tested here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from typedecide.static_server import StaticServer

pytestmark = pytest.mark.browser

START = """async (url) => {
  const { Engine, createEngine } = await import(`${url}index.js`);
  const { lend, borrow } = await import(`${url}port.js`);
  globalThis.Engine = Engine;
  globalThis.engine = await createEngine({ device: "wasm" });
  globalThis.loan = async (lent = engine) => {
    const { port1, port2 } = new MessageChannel();
    const end = lend(lent, port1);
    return { end, borrowed: await borrow(port2) };
  };
  globalThis.codeOf = (work) => work.then(() => null, ({ code }) => code);
  globalThis.many = Object.fromEntries(
    Array.from({ length: 60 }, (_, i) => [`q${i}`, { type: "noul", criteria: `Is it number ${i}?` }]),
  );
}"""


@pytest.fixture(scope="module")
def lender(browser: Browser, dist_pointer: Path) -> Iterator[Page]:
    """A page with an `engine`, and `loan()` of one."""
    with StaticServer(dist_pointer) as server:
        page = browser.new_page()
        page.goto(f"{server.url}manifest.json")
        page.evaluate(START, server.url)
        yield page
        page.close()


def test_a_borrowed_engine_does_all_that_the_engine_does(lender: Page) -> None:
    found: dict[str, Any] = lender.evaluate(
        """async () => {
          const state = "My card was charged twice.";
          const angry = { type: "noul", criteria: "Is the customer angry?" };
          const team = { type: "choice", instructions: "Which team?", criteria: ["billing", "shipping"] };
          const calls = {
            prefill: [state],
            score: [team],
            scoreAll: [[angry, team], { readout: "labels" }],
            decide: [{ state, questions: new Map([["10", angry], ["2", team]]) }],
            states: [],
            memory: [],
            release: [],
            scoreFull: [state, team],
          };
          const { borrowed, end } = await loan();
          const text = (value) => JSON.stringify(value, (key, one) => (key === "ms" ? 0 : one)) ?? "nothing";
          const [ours, theirs] = [{}, {}];
          // Once for nothing, after which the memory has the size that it stays at.
          for (const [answers, asked] of [[{}, engine], [theirs, engine], [ours, borrowed]])
            for (const [name, given] of Object.entries(calls)) {
              await engine.release();
              if (/^score|states/.test(name)) await engine.prefill(state);
              answers[name] = text(await asked[name](...given));
            }
          end();
          const own = new Set(["constructor", "evict", "close"]);
          const names = Object.getOwnPropertyNames(Engine.prototype).filter((name) => !own.has(name));
          return { ours, theirs, names, info: [text(borrowed.info), text(engine.info)] };
        }"""
    )
    # A method that is new in the engine has to be asked here as well.
    assert sorted(found["ours"]) == sorted(found["names"])
    assert found["ours"] == found["theirs"]
    assert found["info"][0] == found["info"][1]


def test_ending_a_loan_stops_what_was_asked_and_leaves_the_engine(lender: Page) -> None:
    answered, outcome, asked, later, after = lender.evaluate(
        """async () => {
          let answered = 0;
          let outcome = null;
          // The engine itself, watched.
          const watched = Object.create(engine, {
            decide: {
              value: (request, { onAnswer, ...options }) => {
                const counting = (id, answer) => (answered++, onAnswer(id, answer));
                const work = engine.decide(request, { ...options, onAnswer: counting });
                outcome = codeOf(work);
                return work;
              },
            },
          });
          const { end, borrowed } = await loan(watched);
          const first = Promise.withResolvers();
          const asked = codeOf(
            borrowed.decide(
              { state: "A text to be left", questions: many },
              { readout: "labels", runTokens: 20, onAnswer: first.resolve },
            ),
          );
          await first.promise;
          end();
          const codes = [await outcome, await asked, await codeOf(borrowed.states())];
          const after = await engine.decide({ state: "Another", questions: { q1: many.q1 } });
          return [answered, ...codes, Object.keys(after.answers)];
        }"""
    )
    assert 1 <= answered < 60
    assert (outcome, asked, later) == ("ABORTED", "ABORTED", "ABORTED")
    assert after == ["q1"]


def test_whoever_borrowed_may_end_it_too(lender: Page) -> None:
    found = lender.evaluate(
        """async () => {
          const { borrowed } = await loan();
          const question = { state: "A text", questions: { q1: many.q1 } };
          const work = codeOf(borrowed.decide({ state: "A text to be left", questions: many }));
          borrowed.close();
          const codes = [await work, await codeOf(borrowed.decide(question))];
          return [...codes, await codeOf(engine.decide(question))];
        }"""
    )
    assert found == ["ABORTED", "ABORTED", None]
