// web/packing.js: the vectors shared with Python, the promises of a plan, the mask, and speed.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { ancestors, planRuns, treeMask } from "../../web/packing.js";

/** @typedef {import('../../web/packing.js').Run} Run */
/** @typedef {{ids: number[], reads?: number[]}} Suffix */

/**
 * @typedef {object} Outcome
 * @property {string} name
 * @property {unknown} [expect]
 * @property {string} [range_error]
 */

/** @type {{plans: (Outcome & {suffixes: Suffix[], budget: number})[], trees: (Outcome & {parents: number[]})[]}} */
const VECTORS = JSON.parse(readFileSync(new URL("../vectors/packing.json", import.meta.url), "ascii"));

/**
 * @param {Outcome} vector
 * @param {() => unknown} compute
 */
function assertOutcome({ name, expect, range_error: message }, compute) {
  if (message === undefined) assert.deepEqual(compute(), expect, name);
  else assert.throws(compute, { name: "RangeError", message }, name);
}

/**
 * Whole numbers below `limit`, the same on every run (the multiplier and increment of Numerical Recipes).
 * @param {number} seed
 */
function randomSource(seed) {
  let state = seed >>> 0;
  return (/** @type {number} */ limit) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

/** @typedef {ReturnType<typeof randomSource>} RandomSource */

/**
 * One question in every cyclic order: the labels (1, 2, …) keep their places, the options move.
 * @param {RandomSource} random
 * @param {number} count
 * @returns {Suffix[]}
 */
function shiftSuffixes(random, count) {
  const options = Array.from({ length: count }, () => randomIds(random, 20, 4));
  return options.map((_, shift) => {
    const order = options.map((_, place) => options[(place + shift) % count]);
    return { ids: [8, 9, ...order.flatMap((option, place) => [place + 1, ...option]), 30] };
  });
}

/**
 * One to four ids from `first` on.
 * @param {RandomSource} random
 * @param {number} first
 * @param {number} kinds
 */
function randomIds(random, first, kinds) {
  return Array.from({ length: 1 + random(4) }, () => first + random(kinds));
}

/**
 * @param {RandomSource} random
 * @returns {Suffix[]}
 */
function randomSuffixes(random) {
  const suffixes = Array.from({ length: random(6) }, () => ({ ids: randomIds(random, 0, 3) }));
  for (let i = random(3); i > 0; i--) suffixes.push(...shiftSuffixes(random, 2 + random(6)));
  return suffixes.map(({ ids }) =>
    random(2) ? { ids } : { ids, reads: [random(ids.length), ids.length - 1] },
  );
}

/**
 * The token ids from the root to `row`.
 * @param {Run} run
 * @param {number} row
 */
function pathTo(run, row) {
  const path = [];
  for (let at = row; at !== -1; at = run.parents[at]) path.push(run.ids[at]);
  return path.reverse();
}

/** The number of different starts, which are the tokens of a tree. @param {Suffix[]} suffixes */
function countStarts(suffixes) {
  return new Set(suffixes.flatMap(({ ids }) => ids.map((_, end) => ids.slice(0, end + 1).join()))).size;
}

/**
 * What a plan promises; the exact order of tokens is left to the vectors.
 * @param {Suffix[]} suffixes
 * @param {number} budget
 * @param {Run[]} runs
 */
function assertPlan(suffixes, budget, runs) {
  assert.deepEqual(
    runs.flatMap((run) => run.suffixes),
    suffixes.map((_, index) => index),
  );
  runs.forEach((run, number) => {
    const group = run.suffixes.map((index) => suffixes[index]);
    assert.ok(run.ids.length <= budget || group.length === 1);
    assert.equal(run.ids.length, countStarts(group));
    assert.deepEqual(
      run.depths,
      run.ids.map((_, row) => pathTo(run, row).length - 1),
    );
    group.forEach(({ ids, reads = [ids.length - 1] }, index) => {
      assert.deepEqual(
        run.rows[index].map((row) => pathTo(run, row)),
        reads.map((read) => ids.slice(0, read + 1)),
      );
    });
    const following = runs[number + 1];
    if (following) assert.ok(countStarts([...group, suffixes[following.suffixes[0]]]) > budget);
  });
  const lengths = suffixes.reduce((sum, { ids }) => sum + ids.length, 0);
  assert.equal(
    runs.reduce((sum, run) => sum + run.saved + run.ids.length, 0),
    lengths,
  );
}

test("plans", () => {
  assert.ok(VECTORS.plans.length > 70);
  for (const vector of VECTORS.plans) {
    assertOutcome(vector, () => planRuns(vector.suffixes, vector.budget));
  }
});

test("ancestors", () => {
  assert.ok(VECTORS.trees.length > 20);
  for (const vector of VECTORS.trees) assertOutcome(vector, () => ancestors(vector.parents));
});

test("plans keep every promise", () => {
  const random = randomSource(31);
  for (let i = 0; i < 300; i++) {
    const suffixes = randomSuffixes(random);
    const budget = [1, 3, 8, 20, 50, 10_000][random(6)];
    assertPlan(suffixes, budget, planRuns(suffixes, budget));
  }
});

test("planted faults are caught", () => {
  const suffixes = [{ ids: [5, 6, 7] }, { ids: [5, 6, 8] }, { ids: [9] }, { ids: [9, 9, 9, 9] }];
  const [first, second] = planRuns(suffixes, 6);
  assertPlan(suffixes, 6, [first, second]);
  const faults = [
    { parents: [-1, 0, 1, 2, -1] },
    { ids: [5, 6, 7, 7, 9] },
    { depths: [0, 1, 2, 3, 0] },
    { rows: [[3], [2], [4]] },
    { saved: 3 },
    { suffixes: [0, 2, 1] },
  ];
  for (const fault of faults) {
    assert.throws(() => assertPlan(suffixes, 6, [{ ...first, ...fault }, second]), assert.AssertionError);
  }
  assert.throws(() => assertPlan(suffixes, 6, planRuns(suffixes, 8)), assert.AssertionError);
  assert.throws(() => assertPlan(suffixes, 6, planRuns(suffixes, 4)), assert.AssertionError);
});

test("typed arrays are read as lists are, and a null is no list of reads", () => {
  const typed = [
    { ids: Int32Array.of(5, 6, 7), reads: Uint8Array.of(1, 2) },
    { ids: [5, 8], reads: null },
  ];
  const plain = [{ ids: [5, 6, 7], reads: [1, 2] }, { ids: [5, 8] }];
  assert.deepEqual(planRuns(typed, 9), planRuns(plain, 9));
  assert.deepEqual(ancestors(Int32Array.of(-1, 0)), [[], [0]]);
});

test("the mask shows the prefix, the ancestors and the token itself", () => {
  const trees = VECTORS.trees.filter(({ expect }) => expect !== undefined).map(({ parents }) => parents);
  const runs = VECTORS.plans.flatMap(({ expect }) => /** @type {Run[]} */ (expect ?? []));
  for (const parents of [...trees, ...runs.map((run) => run.parents)]) {
    const seen = ancestors(parents);
    for (const past of [0, 1, 5]) {
      const wanted = parents.map((_, row) => {
        const visible = new Set([row, ...seen[row]]);
        return [...Array(past).fill(0), ...parents.map((_, column) => (visible.has(column) ? 0 : -1e4))];
      });
      const mask = treeMask(past, parents);
      assert.ok(mask instanceof Float32Array);
      assert.deepEqual([...mask], wanted.flat());
    }
  }
});

test("the mask's hidden value", () => {
  assert.deepEqual([...treeMask(1, [-1, -1, 1], -2)], [0, 0, -2, -2, 0, -2, 0, -2, 0, -2, 0, 0]);
  assert.deepEqual([...treeMask(0, [-1, 0], -Infinity)], [0, -Infinity, 0, 0]);
});

test("values that are no whole numbers are refused by name", () => {
  for (const budget of [1.5, NaN, Infinity]) {
    assert.throws(() => planRuns([], budget), { name: "RangeError", message: RegExp(`not ${budget}`) });
  }
  const message = "Suffix 1 has 2 ids, none at its read 0.5.";
  assert.throws(() => planRuns([{ ids: [1] }, { ids: [1, 2], reads: [0.5] }], 9), {
    name: "RangeError",
    message,
  });
  for (const past of [-1, 0.5]) assert.throws(() => treeMask(past, [-1]), RangeError);
  for (const parents of [[-1, 0.5], [0], [-1, 1], [-2]]) {
    assert.throws(() => ancestors(parents), RangeError);
    assert.throws(() => treeMask(0, parents), RangeError);
  }
});

test("255 suffixes of 600 tokens are planned in less than 50 ms", () => {
  /** @type {Record<string, (suffix: number, place: number) => number>} */
  const shapes = {
    "nothing shared": (suffix, place) => suffix * 600 + place,
    "half shared": (suffix, place) => (place < 300 ? place : suffix * 600 + place),
    "all shared but the last": (suffix, place) => (place < 599 ? place : 1000 + suffix),
  };
  for (const [name, shape] of Object.entries(shapes)) {
    const suffixes = Array.from({ length: 255 }, (_, suffix) => ({
      ids: Array.from({ length: 600 }, (_, place) => shape(suffix, place)),
    }));
    // The best of some: other work on the machine only adds to the time.
    const times = Array.from({ length: 8 }, () => {
      const start = performance.now();
      planRuns(suffixes, 255 * 600);
      return performance.now() - start;
    });
    assert.ok(Math.min(...times) < 50, `${name}: ${times} ms`);
  }
});
