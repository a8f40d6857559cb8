// web/engine.js on ONNX Runtime Web's WASM build, under Node.js: what it reads is what Python's engine reads.
// TYPEDECIDE_CASE is a folder with a tiny model and a case of it, as tests/test_joined.py makes them.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";

import * as ort from "onnxruntime-web/wasm";

import { Engine, tokenBytes } from "../../web/engine.js";
import { TooLongError } from "../../web/errors.js";

const FOLDER = process.env.TYPEDECIDE_CASE ?? "";
const LIMIT = 1e-5;

/** @type {{shape: import("../../web/engine.js").Shape, weights: string[], prefix: number[], anchor: number,
 *   cache: {upper: number, bytes: number}, suffixes: import("../../web/engine.js").Suffix[], results: Record<string, number[][]>}} */
const CASE = JSON.parse(readFileSync(join(FOLDER, "case.json"), "utf8"));
const { anchor } = CASE;

/** @type {Engine} */
let engine;

before(async () => {
  ort.env.wasm.numThreads = 1;
  const session = await ort.InferenceSession.create(bytes("graph.onnx"), {
    executionProviders: ["wasm"],
    externalData: CASE.weights.map((path) => ({ path, data: bytes(path) })),
  });
  engine = new Engine({ ort, session, shape: CASE.shape, device: null });
});

after(() => engine.release());

/** @param {string} name */
function bytes(name) {
  return new Uint8Array(readFileSync(join(FOLDER, name)));
}

/**
 * @param {ArrayLike<number>} found
 * @param {ArrayLike<number>} wanted
 */
function apart(found, wanted) {
  assert.equal(found.length, wanted.length);
  return Math.max(...Array.from(wanted, (value, i) => Math.abs(value - found[i])));
}

test("all that is read agrees with Python, in runs of any size", async () => {
  const cache = await engine.prefill(CASE.prefix, { anchor });
  for (const [budget, wanted] of Object.entries(CASE.results)) {
    const { logits } = await engine.score(cache, CASE.suffixes, { budget: Number(budget) });
    wanted.forEach((row, i) => assert.ok(apart(logits[i], row) <= LIMIT, `suffix ${i}, budget ${budget}`));
  }
});

test("a joined suffix gives what its whole prompt gives, whatever the order of its branches", async () => {
  const cache = await engine.prefill(CASE.prefix, { anchor });
  const [joined] = CASE.suffixes;
  const { logits } = await engine.score(cache, [joined]);
  const ids = [...CASE.prefix, ...joined.ids];
  const full = await engine.scoreFull({ ...joined, ids, hidden: [anchor, CASE.prefix.length] });
  assert.ok(apart(logits[0], full) <= LIMIT);
  const branches = joined.branches ?? [];
  const { logits: moved } = await engine.score(cache, [{ ...joined, branches: [...branches].reverse() }]);
  const width = logits[0].length / (branches.length + 1);
  branches.forEach((_, i) => {
    const at = (branches.length - 1 - i) * width;
    assert.deepEqual(logits[0].subarray(i * width, (i + 1) * width), moved[0].subarray(at, at + width));
  });
});

test("a cache holds of each layer what that one needs, and of a base only what it adds", async () => {
  const whole = await engine.prefill(CASE.prefix, { anchor });
  assert.deepEqual({ upper: whole.upper, bytes: whole.bytes }, CASE.cache);
  const { logits: wanted } = await engine.score(whole, CASE.suffixes);
  const start = Math.max(anchor, 8);
  const base = await engine.prefill(CASE.prefix.slice(0, start), { anchor });
  const cache = await engine.prefill(CASE.prefix, { base, anchor });
  assert.equal(cache.bytes, CASE.prefix.length * tokenBytes(CASE.shape));
  base.release();
  const { logits } = await engine.score(cache, CASE.suffixes);
  wanted.forEach((row, i) => assert.ok(apart(logits[i], row) <= LIMIT, `suffix ${i}`));
  const other = engine.prefill([...CASE.prefix, 1], { base: cache, anchor: anchor + 1 });
  if (CASE.shape.shallow) await assert.rejects(other, RangeError);
  else await other;
});

test("what does not fit says whether it is the text or the question", async () => {
  const cache = await engine.prefill(CASE.prefix, { anchor });
  const { context } = CASE.shape;
  const long = { ids: new Array(context).fill(1), labelIds: [1] };
  const prefix = CASE.prefix.length;
  await assert.rejects(engine.score(cache, [long]), {
    message: RegExp(`the question has ${context} tokens; behind the text's ${prefix}`),
    data: { tokens: prefix + context, limit: context, prefix, suffix: context },
  });
  await assert.rejects(engine.prefill([...long.ids, 1]), { message: /^the text has/ });
  await assert.rejects(engine.scoreFull({ ...long, ids: [...long.ids, 1] }), TooLongError);
});
