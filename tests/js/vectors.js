// What the tests of this folder share: the files of tests/vectors, and the comparison with what they expect.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { Tokenizer } from "@huggingface/tokenizers";

import { ERRORS, TypedecideError } from "../../web/errors.js";

/** @typedef {import("../../web/errors.js").PlainError} PlainError */

/**
 * A case of a vector file: inputs, and what comes of them.
 * @typedef {Record<string, any> & {
 *   name?: string,
 *   expect?: any,
 *   error?: PlainError,
 *   js_error?: PlainError,
 *   range_error?: string,
 * }} Case `js_error`: where JavaScript must refuse what Python can read; `range_error`: a RangeError's message
 */

const TOLERANCE = 1e-12;

const NAMED_NUMBERS = ["NaN", "Infinity", "-Infinity"];

/**
 * @param {string} name
 * @returns {any}
 */
export function load(name) {
  return JSON.parse(readFileSync(new URL(`../vectors/${name}`, import.meta.url), "ascii"));
}

/** @typedef {{encode: (text: string) => number[]}} Encoder */

/**
 * The small tokenizers of the vectors, by name.
 * @returns {Record<string, Encoder>}
 */
export function loadTokenizers() {
  const named = ["plain", "crossing"].map((name) => {
    const tokenizer = new Tokenizer(load(`tokenizer-${name}.json`), {});
    /** @type {Encoder} */
    const encoder = { encode: (text) => tokenizer.encode(text, { add_special_tokens: false }).ids };
    return /** @type {const} */ ([name, encoder]);
  });
  return Object.fromEntries(named);
}

/**
 * Numbers from a vector file, in which those that JSON lacks stand by name.
 * @param {readonly any[]} values
 * @returns {any[]}
 */
export function numbers(values) {
  return values.map((value) => (NAMED_NUMBERS.includes(value) ? Number(value) : value));
}

/**
 * A value as the vectors hold it: JSON, with the numbers that JSON lacks by name.
 * @param {unknown} value
 */
function toJson(value) {
  const named = (/** @type {string} */ _, /** @type {unknown} */ item) =>
    typeof item === "number" && !Number.isFinite(item) ? String(item) : item;
  return JSON.parse(JSON.stringify(value, named));
}

/**
 * Equal in structure, key order and text; numbers to the tolerance.
 * @param {any} actual
 * @param {any} wanted
 * @param {string} where
 */
export function assertSame(actual, wanted, where) {
  if (typeof wanted === "number" && typeof actual === "number") {
    const near = Math.abs(actual - wanted) <= TOLERANCE * Math.max(1, Math.abs(wanted));
    assert.ok(near, `${where}: ${actual}, not ${wanted}`);
  } else if (typeof wanted === "object" && wanted && typeof actual === "object" && actual) {
    assert.equal(Array.isArray(actual), Array.isArray(wanted), where);
    assert.deepEqual(Object.keys(actual), Object.keys(wanted), where);
    for (const key of Object.keys(wanted)) assertSame(actual[key], wanted[key], `${where}.${key}`);
  } else {
    assert.equal(actual, wanted, where);
  }
}

/**
 * What `compute` gives, or throws, is what the vector says.
 * @param {Case} vector
 * @param {() => unknown} compute
 */
export function assertOutcome(vector, compute) {
  const { name, expect, range_error } = vector;
  const where = name ?? JSON.stringify(vector);
  const error = vector.js_error ?? vector.error;
  if (range_error) return assert.throws(compute, { name: "RangeError", message: range_error }, where);
  if (!error) return assertSame(toJson(compute()), expect, where);
  assert.throws(
    compute,
    (thrown) => {
      assert.ok(thrown instanceof TypedecideError, `${where}: ${thrown}`);
      assert.equal(thrown.constructor, ERRORS.get(error.code), where);
      assert.deepEqual(toJson(thrown), error, where);
      return true;
    },
    where,
  );
}
