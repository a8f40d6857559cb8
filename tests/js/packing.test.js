// web/packing.js: the vectors shared with Python, the promises of a plan, the mask, and speed.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { ancestors, planRuns, suffixDepth, suffixLength, treeMask } from "../../web/packing.js";

/** @typedef {import('../../web/packing.js').Run} Run */
/** @typedef {{ids: number[], reads?: number[], branches?: number[][], tail?: number[]}} Suffix */
/** @typedef {[number, number[]][]} Pairs joins as JSON has them */

/**
 * @typedef {object} Outcome
 * @property {string} name
 * @property {unknown} [expect]
 * @property {string} [range_error]
 */

/**
 * @type {{
 *   plans: (Outcome & {suffixes: Suffix[], budget: number})[],
 *   trees: (Outcome & {parents: number[], joins: Pairs})[],
 * }}
 */
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
 * Few different tokens, so that stems and branches share their starts.
 * @param {RandomSource} random
 * @returns {Suffix}
 */
function randomJoined(random) {
  const branches = Array.from({ length: 1 + random(4) }, () => [20, ...randomIds(random, 20, 3)]);
  return { ids: [8, ...randomIds(random, 0, 2)], branches, tail: randomIds(random, 30, 2) };
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
  const plain = suffixes.map(({ ids }) =>
    random(2) ? { ids } : { ids, reads: [random(ids.length), ids.length - 1] },
  );
  const joined = Array.from({ length: random(3) }, () => randomJoined(random));
  return [...joined, ...plain, ...joined.slice(0, 1)];
}

/**
 * The token ids from the root to `row`; a tail's go through its stem.
 * @param {Run} run
 * @param {number} row
 */
function pathTo(run, row) {
  const path = [];
  for (let at = row; at !== -1; at = run.parents[at]) path.push(run.ids[at]);
  return path.reverse();
}

/**
 * The starts of a suffix that others may share: all but those of a tail.
 * @param {Suffix} suffix
 */
function treeStarts({ ids, branches = [[]] }) {
  return branches.flatMap((branch) => {
    const path = [...ids, ...branch];
    return path.map((_, end) => path.slice(0, end + 1).join());
  });
}

/** The tokens of a tree: different starts, and all tokens of tails. @param {Suffix[]} suffixes */
function countTokens(suffixes) {
  const tails = suffixes.reduce((sum, { tail = [] }) => sum + tail.length, 0);
  return new Set(suffixes.flatMap(treeStarts)).size + tails;
}

/**
 * The starts that rows of a run stand for.
 * @param {Run} run
 * @param {number[]} rows
 */
function startsAt(run, rows) {
  return rows.map((row) => pathTo(run, row).join());
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
    assert.equal(run.ids.length, countTokens(group));
    const seen = ancestors(run.parents, run.joins);
    group.forEach((suffix, index) => assertSuffix(suffix, run, run.rows[index], seen));
    // A run starts only where the suffix before does not fit.
    const before = run.suffixes[0] - 1;
    if (number > 0) assert.ok(countTokens([suffixes[before], ...group]) > budget);
  });
  const lengths = suffixes.reduce((sum, suffix) => sum + suffixLength(suffix), 0);
  assert.equal(
    runs.reduce((sum, run) => sum + run.saved + run.ids.length, 0),
    lengths,
  );
}

/**
 * The tokens that are read are the right ones, at the right positions, and see what they should.
 * @param {Suffix} suffix
 * @param {Run} run
 * @param {number[]} rows what is read of it
 * @param {number[][]} seen what each token of the run sees
 */
function assertSuffix({ ids, reads = [ids.length - 1], branches, tail = [] }, run, rows, seen) {
  const paths = branches
    ? branches.map((branch) => [...ids, ...branch])
    : reads.map((read) => ids.slice(0, read + 1));
  const ends = rows.slice(0, paths.length);
  assert.deepEqual(
    ends.map((row) => pathTo(run, row)),
    paths,
  );
  ends.forEach((row, i) => {
    assert.equal(run.depths[row], paths[i].length - 1);
    assert.deepEqual(startsAt(run, [...seen[row], row]), treeStarts({ ids: paths[i] }));
  });
  if (!branches) return;
  const last = rows[paths.length];
  const own = tail.map((_, i) => last - tail.length + 1 + i);
  assert.deepEqual(pathTo(run, last), [...ids, ...tail]);
  assert.equal(run.depths[last], suffixDepth({ ids, branches, tail }) - 1);
  const others = seen[last].filter((row) => !own.includes(row));
  assert.deepEqual(seen[last].slice(others.length), own.slice(0, -1));
  assert.deepEqual(startsAt(run, others).sort(), [...new Set(treeStarts({ ids, branches }))].sort());
}

test("plans", () => {
  assert.ok(VECTORS.plans.length > 70);
  for (const vector of VECTORS.plans) {
    assertOutcome(vector, () =>
      planRuns(vector.suffixes, vector.budget).map((run) => ({ ...run, joins: [...run.joins] })),
    );
  }
});

test("ancestors", () => {
  assert.ok(VECTORS.trees.length > 20);
  for (const vector of VECTORS.trees) {
    assertOutcome(vector, () => ancestors(vector.parents, new Map(vector.joins)));
  }
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
  const suffixes = [{ ids: [5, 6, 7] }, { ids: [5, 6, 8] }, { ids: [9] }, { ids: [4, 4, 4, 4, 4, 4] }];
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
  assert.throws(() => assertPlan(suffixes, 6, planRuns(suffixes, 11)), assert.AssertionError);
  assert.throws(() => assertPlan(suffixes, 6, planRuns(suffixes, 4)), assert.AssertionError);
});

test("planted faults in joins are caught", () => {
  const suffixes = [
    {
      ids: [5],
      branches: [
        [6, 7],
        [6, 8, 9],
      ],
      tail: [4, 4],
    },
    { ids: [5, 3] },
  ];
  const [run] = planRuns(suffixes, 99);
  assertPlan(suffixes, 99, [run]);
  assert.deepEqual([run.ids, [...run.joins]], [[5, 6, 7, 8, 9, 3, 4, 4], [[6, [2, 4]]]]);
  /** @type {Partial<Run>[]} */
  const faults = [
    { joins: new Map() },
    { joins: new Map([[6, [2]]]) },
    { joins: new Map([[6, [2, 4, 5]]]) },
    { joins: new Map([...run.joins, [5, [2]]]) },
    { parents: [...run.parents.slice(0, 6), -1, 6] },
    { depths: [...run.depths.slice(0, 6), 1, 2] },
    { rows: [[4, 2, 7], [5]] },
    { rows: [[2, 4, 6], [5]] },
  ];
  for (const fault of faults) {
    assert.throws(() => assertPlan(suffixes, 99, [{ ...run, ...fault }]), assert.AssertionError);
  }
});

test("the order of branches changes only the order of reads", () => {
  const random = randomSource(33);
  for (let i = 0; i < 100; i++) {
    const joined = randomJoined(random);
    const branches = /** @type {number[][]} */ (joined.branches);
    const [run] = planRuns([joined], 99);
    const [again] = planRuns([{ ...joined, branches: [...branches].reverse() }], 99);
    const [ends, last] = [run.rows[0].slice(0, -1), run.rows[0].slice(-1)];
    assert.deepEqual(again, { ...run, rows: [[...ends.reverse(), ...last]] });
  }
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
  const trees = VECTORS.trees.filter(({ expect }) => expect !== undefined);
  const runs = VECTORS.plans.flatMap(({ expect }) => /** @type {typeof trees} */ (expect ?? []));
  for (const { parents, joins: pairs } of [...trees, ...runs]) {
    const joins = new Map(pairs);
    const seen = ancestors(parents, joins);
    for (const past of [0, 1, 5]) {
      const wanted = parents.map((_, row) => {
        const visible = new Set([row, ...seen[row]]);
        return [...Array(past).fill(0), ...parents.map((_, column) => (visible.has(column) ? 0 : -1e4))];
      });
      const mask = treeMask(past, parents, joins);
      assert.ok(mask instanceof Float32Array);
      assert.deepEqual([...mask], wanted.flat());
    }
  }
});

test("the mask's hidden value", () => {
  assert.deepEqual([...treeMask(1, [-1, -1, 1], new Map(), -2)], [0, 0, -2, -2, 0, -2, 0, -2, 0, -2, 0, 0]);
  assert.deepEqual([...treeMask(0, [-1, 0], new Map(), -Infinity)], [0, -Infinity, 0, 0]);
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
    // The best of some, in the processor's time: other work on the machine only adds to it.
    const times = Array.from({ length: 8 }, () => {
      const start = process.cpuUsage();
      planRuns(suffixes, 255 * 600);
      const { user, system } = process.cpuUsage(start);
      return (user + system) / 1e3;
    });
    assert.ok(Math.min(...times) < 50, `${name}: ${times} ms`);
  }
});
