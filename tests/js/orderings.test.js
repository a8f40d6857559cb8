// web/orderings.js against the shared vectors, and what only JavaScript can be given: typed arrays, odd values.

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  DEFAULT_BUDGET,
  certified,
  combine,
  cyclicShifts,
  howMany,
  logSoftmax,
  rotate,
  rounds,
  unrotate,
} from "../../web/orderings.js";
import { parseQuestion } from "../../web/questions.js";
import { read } from "../../web/readout.js";
import { assertOutcome, assertSame, load, numbers } from "./vectors.js";

/** @typedef {import("./vectors.js").Case} Case */

/** @type {Record<"levels" | "shifts" | "rotations" | "combinations" | "stops" | "rounds", Case[]>} */
const vectors = load("orderings.json");

/** @param {Case} vector */
function logitsOf({ orderings }) {
  return orderings.map(numbers);
}

test("counts, shifts and rotations", () => {
  const { levels, shifts, rotations } = vectors;
  assert.ok(levels.length > 50 && shifts.length > 80 && rotations.length > 15);
  for (const vector of levels) assertOutcome(vector, () => howMany(vector.n, vector.level, vector.budget));
  for (const vector of shifts) assertOutcome(vector, () => cyclicShifts(vector.n, vector.count));
  for (const vector of rotations) {
    const { items, shift } = vector;
    assertOutcome(vector, () => ({ rotated: rotate(items, shift), unrotated: unrotate(items, shift) }));
  }
});

test("combinations", () => {
  assert.ok(vectors.combinations.length > 70);
  for (const vector of vectors.combinations) assertOutcome(vector, () => combine(logitsOf(vector)));
});

test("stops", () => {
  assert.ok(vectors.stops.length > 70);
  for (const vector of vectors.stops) {
    assertOutcome(vector, () => certified(logitsOf(vector), vector.total));
  }
});

test("rounds", () => {
  assert.ok(vectors.rounds.length > 10);
  for (const vector of vectors.rounds) assertOutcome(vector, () => rounds(vector.shifts));
});

test("defaults, and values that are no level, count or shift", () => {
  assert.equal(howMany(255), DEFAULT_BUDGET);
  assert.equal(howMany(2), 2);
  for (const bad of ["some", "1", "", null, true, NaN, Infinity, ["all"], Symbol("all")]) {
    const wrong = /** @type {any} */ (bad);
    const message = /, not .*\.$/;
    assert.throws(() => howMany(3, wrong), { name: "RangeError", message });
    assert.throws(() => howMany(wrong), { name: "RangeError", message });
    assert.throws(() => howMany(3, "auto", wrong), { name: "RangeError", message });
    assert.throws(() => cyclicShifts(3, wrong), { name: "RangeError", message });
    assert.throws(() => rotate(["a", "b", "c"], wrong), { name: "RangeError", message });
    assert.throws(() => unrotate(["a", "b", "c"], wrong), { name: "RangeError", message });
    assert.throws(() => certified([], wrong), { name: "RangeError", message });
  }
  assert.throws(() => howMany(3, /** @type {any} */ ("2")), { message: /not "2"\.$/ });
});

test("typed arrays read as lists do, in full precision", () => {
  const shown = [Float32Array.of(1.5, -2, 0.25), Float32Array.of(0.5, 3, -1)];
  const lists = shown.map((logits) => [...logits]);
  assert.deepEqual(combine(shown), combine(lists));
  assert.deepEqual(logSoftmax(shown[0]), logSoftmax(lists[0]));
  assert.equal(certified(shown, 3), certified(lists, 3));
  assert.deepEqual(unrotate(shown[0], 2), [-2, 0.25, 1.5]);
});

test("what a place adds falls out of all orders; alone it makes an exact tie", () => {
  for (const n of [2, 3, 7, 29, 255]) {
    const places = Array.from({ length: n }, (_, p) => 3 * Math.sin(p * p + 1));
    const strength = Array.from({ length: n }, (_, i) => 2 * Math.cos(i));
    const shifts = cyclicShifts(n, howMany(n, "all"));
    const shown = shifts.map((shift) => rotate(strength, shift).map((value, p) => value + places[p]));
    const combined = combine(shown.map((logits, j) => unrotate(logits, shifts[j])));
    assertSame(combined.log_probabilities, logSoftmax(strength), `${n} options`);
    const alone = combine(shifts.map((shift) => unrotate(places, shift)));
    assert.equal(new Set(alone.probabilities).size, 1);
    assertSame(alone.flip_rate, (n - 1) / n, `${n} options`);
  }
});

test("read makes the answer from what combine gives", () => {
  const question = parseQuestion({ type: "choice", criteria: ["a", "b", "c"] });
  const combined = combine([
    [3, 0, 2.9],
    [0, 3, 2.9],
  ]);
  const answer = read(question, combined.log_probabilities);
  assert.equal(answer.choice, "c");
  assert.deepEqual(answer.probabilities, combined.probabilities);
  assert.equal(combined.flip_rate, 1);
  assert.ok(Object.isFrozen(combined) && Object.isFrozen(combined.probabilities));
});
