"""Does the page stay responsive while the model scores?

Asks the sample's questions several times over, and reports how long the longest task of the page's main thread took
meanwhile: by the browser's own trace, and by the long tasks (over 50 ms) that the page itself is told of.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from bench import common
from bench.probe import LONG_TASK_MS, ProbedPage
from typedecide.questions import Question, to_wire

NAME = "main_thread"
DEVICES = ("wasm", "webgpu")

ROUNDS, QUICK_ROUNDS = 3, 1
"""How often everything is asked; the longest task of all rounds counts."""

WAYS: dict[str, Mapping[str, Any]] = {
    "own readout": {},
    "letters, one order": {"readout": "labels", "orderings": 1},
    "letters, all orders": {"readout": "labels", "orderings": "all"},
}
"""Options of `scoreAll` for each row."""

# With `block` the main thread is held up on purpose, for so many milliseconds: the watch must see that.
_ASK = """async (engine, { state, questions, options, block }) => {
  const long = [];
  const note = (entries) => long.push(...entries.map((entry) => entry.duration));
  const observer = new PerformanceObserver((list) => note(list.getEntries()));
  observer.observe({ type: "longtask" });
  const began = performance.now();
  if (block) {
    setTimeout(() => {
      const end = performance.now() + block;
      while (performance.now() < end);
    }, 20);
  }
  let answers = 0;
  const prefill = await engine.prefill(state);
  const onAnswer = () => (answers += 1);
  const { tokens_run } = await engine.scoreAll(questions, { ...options, onAnswer });
  const ms = performance.now() - began;
  // Entries come a moment after the task that they are about.
  await new Promise((resolve) => setTimeout(resolve, 200));
  note(observer.takeRecords());
  observer.disconnect();
  return { ms, tokens: tokens_run + (prefill.kept ? 0 : prefill.tokens), answers, long };
}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """This benchmark has no arguments of its own."""


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure, publish and return the results."""
    bundle = common.find_bundle(args)
    state, questions = common.read_sample(bundle)
    with common.open_page(args, bundle) as page:
        rounds = QUICK_ROUNDS if args.quick else ROUNDS
        result = measure(page, state, list(questions.values()), rounds)
    common.publish(args, result, summarise(result))
    return result


def measure(
    page: ProbedPage, state: str, questions: Sequence[Question], rounds: int, block: int = 0
) -> dict[str, Any]:
    """Ask everything in every way, `rounds` times, and watch the main thread.

    Args:
        block: milliseconds for which the main thread is held up in each round, to see that the watch sees it.
    """
    argument = {"state": state, "questions": list(map(to_wire, questions)), "block": block}
    rows = []
    for way, options in WAYS.items():
        asking = partial(page.evaluate, _ASK, {**argument, "options": options})
        done = []
        for _ in range(rounds):
            # A kept text would leave the prefill out.
            page.release()
            done.append(page.watch(asking))
        rows.append(
            {
                "way": way,
                "ms": sum(asked["ms"] for asked, _ in done),
                "tokens": sum(asked["tokens"] for asked, _ in done),
                "answers": sum(asked["answers"] for asked, _ in done),
                "tasks": sum(thread.tasks for _, thread in done),
                "longest_task_ms": max(thread.longest_ms for _, thread in done),
                "long_tasks_ms": [ms for asked, _ in done for ms in asked["long"]],
            }
        )
    longest = max(row["longest_task_ms"] for row in rows)
    seen = any(row["long_tasks_ms"] for row in rows)
    return {
        **common.describe(NAME, page),
        "criteria": len(questions),
        "rounds": rounds,
        "rows": rows,
        "longest_task_ms": longest,
        "free": longest <= LONG_TASK_MS and not seen,
    }


def summarise(result: Mapping[str, Any]) -> str:
    """The figures in a few lines."""
    lines = [
        f"{result['benchmark']}: {result['criteria']} questions, {result['rounds']} times, {result['format']} on"
        f" {result['candidate']}, {result['layers']} layers"
    ]
    for row in result["rows"]:
        long = ", ".join(f"{ms:.0f} ms" for ms in row["long_tasks_ms"]) or "none"
        lines.append(
            f"  {row['way']}: {row['tokens']} tokens in {row['ms']:.0f} ms; {row['tasks']} main-thread tasks,"
            f" the longest {row['longest_task_ms']:.1f} ms; long tasks that the page was told of: {long}"
        )
    lines.append(
        f"  the main thread was {'free' if result['free'] else 'NOT free'}: no task may take over"
        f" {LONG_TASK_MS} ms, the longest took {result['longest_task_ms']:.1f} ms"
    )
    return "\n".join(lines)
