// What the Proof tab reckons: its plan, which prompts are run, options in reverse, differences and verdicts.

import assert from "node:assert/strict";
import { test } from "node:test";

import { checksOf } from "../../web/app/proof/checks.js";
import * as proof from "../../web/app/proof/measure.js";
import { parseQuestion } from "../../web/questions.js";

/** @typedef {import("../../web/index.js").Question} Question */

/** @type {Record<string, Question>} */
const QUESTIONS = {
  queue: {
    type: "choice",
    instructions: "Which team?",
    criteria: [["billing", "money"], ["accounts", null], "other"],
  },
  angry: { type: "noul", instructions: "Angry?", criteria: { true: "shouts", false: null } },
  mood: { type: "score", instructions: "How calm?", criteria: ["not", "so-so", "very"] },
};

/** @type {Record<string, Question>} */
const MORE = Object.fromEntries(
  Array.from({ length: 3 }, (_, i) => [`more_${i}`, { type: "noul", instructions: `Is it ${i}?` }]),
);

const given = { text: "Hello.", questions: QUESTIONS, more: MORE, readout: "pointer" };

test("a plan asks what can be asked, as many as there are", () => {
  const half = { ...QUESTIONS, new: /** @type {Question} */ ({ type: "choice", criteria: ["a"] }) };
  const plan = proof.planOf({ ...given, questions: half, effort: "thorough" });
  assert.deepEqual(
    plan.own.map(({ id }) => id),
    ["queue", "angry", "mood"],
  );
  assert.deepEqual(plan.invalid, ["new"]);
  assert.equal(plan.all.length, 6);
  assert.deepEqual(plan.counts, [1, 4]);
  const none = proof.planOf({ ...given, questions: {}, effort: "quick" });
  assert.deepEqual([none.own, none.all, none.counts], [[], [], []]);
});

test("repeats go round, so that whole prompts cover the questions", () => {
  assert.deepEqual(proof.share(1, 2), [0]);
  assert.deepEqual(proof.share(11, 0), [0, 1, 2, 3]);
  assert.deepEqual(proof.share(11, 2), [8, 9, 10, 0]);
  const covered = new Set([0, 1, 2].flatMap((repeat) => proof.share(11, repeat)));
  assert.equal(covered.size, 11);
});

test("a listed question is the same prompt, and backwards one with its options reversed", () => {
  for (const wire of Object.values(QUESTIONS)) {
    const { criterion } = parseQuestion(wire);
    const same = parseQuestion(proof.listed(wire, false));
    const reversed = parseQuestion(proof.listed(wire, true));
    assert.deepEqual(same.criterion, criterion);
    assert.equal(reversed.criterion.text, criterion.text);
    assert.deepEqual(reversed.criterion.options, [...criterion.options].reverse());
    assert.deepEqual(reversed.names, [...same.names].reverse());
  }
  assert.deepEqual(parseQuestion(proof.listed(QUESTIONS.angry, true)).names, ["No", "Yes"]);
});

test("differences and medians by hand; not a number is no small difference", () => {
  assert.equal(proof.difference([0.5, 0.5], [0.25, 0.75]), 0.25);
  assert.equal(proof.difference([0.5], [0.5]), 0);
  assert.ok(Number.isNaN(proof.difference([0.1, NaN, 0.2], [0.1, 0.5, 0.3])));
  assert.equal(proof.median([3, 1, 2]), 2);
  assert.equal(proof.median([4, 1, 2, 3]), 2.5);
  const answers = [
    { probabilities: [0.75, 0.25], choice: "a" },
    { probabilities: [0.5, 0.5], choice: "a" },
  ];
  const others = [
    { probabilities: [0.25, 0.75], choice: "b" },
    { probabilities: [0.5, 0.5], choice: "a" },
  ];
  const drift = { questions: 2, max: 0.5, mean: 0.25, flipped: ["x"] };
  assert.deepEqual(proof.driftOf(["x", "y"], answers, others), drift);
});

test("checks pass up to their limit, fail above it and for what is no number, and are open before", () => {
  const trial = { candidate: "wasm", verdict: "chosen", maxError: 0.001, ms: 1, reason: "" };
  const info = /** @type {import("../../web/index.js").Info} */ (
    /** @type {unknown} */ ({ selfTest: [{ ...trial, verdict: "rejected", maxError: 1 }, trial] })
  );
  const time = { tokens: 1, ms: 1 };
  const row = (/** @type {number} */ difference) => ({ id: "q", difference, shared: time, full: time });
  const flips = [{ readout: "pointer", orderings: null, questions: 1, flipped: [], change: 0.2 }];
  /** @param {import("../../web/app/proof/measure.js").Found} found @param {string} [readout] */
  const verdicts = (found, readout = "pointer") =>
    checksOf(info, 0.005, readout, found).map(({ id, passed }) => [id, passed]);
  assert.deepEqual(verdicts({}), [
    ["selfTest", true],
    ["shared", null],
    ["packed", null],
    ["order", null],
  ]);
  assert.deepEqual(verdicts({ shared: [row(0), row(proof.ROUNDING)], flips }), [
    ["selfTest", true],
    ["shared", true],
    ["packed", null],
    ["order", false],
  ]);
  assert.equal(verdicts({ shared: [row(0), row(1.1e-5)] })[1][1], false);
  assert.equal(verdicts({ shared: [row(NaN), row(0)] })[1][1], false);
  // Letters stand in an order.
  assert.equal(verdicts({ flips }, "labels").length, 3);
  assert.equal(checksOf(null, 0.005, "labels", {})[0].passed, null);
});
