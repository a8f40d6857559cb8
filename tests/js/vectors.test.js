// The shared vectors (tests/vectors, written by Python) against the modules of the page.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Tokenizer } from "@huggingface/tokenizers";

import * as errors from "../../web/errors.js";
import { Prompt, promptSpec } from "../../web/prompt.js";
import { parseQuestion, parseQuestions } from "../../web/questions.js";
import { read } from "../../web/readout.js";
import { TextPrompt, gain } from "../../web/text.js";

const TOLERANCE = 1e-12;

/** @typedef {import('../../web/questions.js').Question} Question */

/**
 * @typedef {object} Case
 * @property {string} name
 * @property {any} [input]
 * @property {any} [expect]
 * @property {errors.PlainError} [error]
 * @property {errors.PlainError} [js_error] where JavaScript must refuse what Python can read
 */

/** @param {string} name */
function load(name) {
  return JSON.parse(readFileSync(new URL(`../vectors/${name}`, import.meta.url), "ascii"));
}

/** @param {string} name */
function loadTokenizer(name) {
  const tokenizer = new Tokenizer(load(`tokenizer-${name}.json`), {});
  return {
    /** @param {string} text */
    encode: (text) => tokenizer.encode(text, { add_special_tokens: false }).ids,
  };
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
 * @param {unknown} actual
 * @param {unknown} wanted
 * @param {string} where
 */
function assertSame(actual, wanted, where) {
  if (typeof wanted === "number" && typeof actual === "number") {
    const near = Math.abs(actual - wanted) <= TOLERANCE * Math.max(1, Math.abs(wanted));
    assert.ok(near, `${where}: ${actual}, not ${wanted}`);
  } else if (typeof wanted === "object" && wanted && typeof actual === "object" && actual) {
    assert.equal(Array.isArray(actual), Array.isArray(wanted), where);
    assert.deepEqual(Object.keys(actual), Object.keys(wanted), where);
    for (const [key, item] of Object.entries(wanted)) {
      assertSame(/** @type {Record<string, unknown>} */ (actual)[key], item, `${where}.${key}`);
    }
  } else {
    assert.equal(actual, wanted, where);
  }
}

/**
 * @param {Case} expected
 * @param {() => unknown} compute
 */
function assertOutcome({ name, expect, error, js_error }, compute) {
  const wanted = js_error ?? error;
  if (!wanted) return assertSame(toJson(compute()), expect, name);
  assert.throws(
    compute,
    (thrown) => {
      assert.ok(thrown instanceof errors.TypedecideError, `${name}: ${thrown}`);
      assert.equal(thrown.constructor, errors.ERRORS.get(wanted.code), name);
      assert.deepEqual(toJson(thrown), wanted, name);
      return true;
    },
    name,
  );
}

test("questions", () => {
  const { questions } = load("questions.json");
  assert.ok(questions.length > 100);
  for (const vector of questions) assertOutcome(vector, () => parseQuestion(vector.input));
});

test("questions do not change what they were given", () => {
  const input = Object.freeze({ type: "choice", criteria: Object.freeze(["a", "b"]) });
  const question = parseQuestion(input);
  assert.ok(
    Object.isFrozen(question) && Object.isFrozen(question.names) && Object.isFrozen(question.criterion),
  );
});

test("batches of questions", () => {
  const { batches } = load("questions.json");
  assert.ok(batches.length > 10);
  for (const vector of batches) {
    // Integer-like ids come first in JavaScript, whatever their place: compare by id.
    const sorted = (/** @type {[string, Question][]} */ pairs) =>
      [...pairs].sort(([left], [right]) => (left < right ? -1 : 1));
    const expected = vector.expect ? { ...vector, expect: sorted(vector.expect) } : vector;
    assertOutcome(expected, () => sorted([...parseQuestions(vector.input)]));
  }
});

test("prompts", () => {
  const { manifest, prompts } = load("prompt.json");
  const prompt = new Prompt(promptSpec(manifest));
  /** @type {Record<string, ReturnType<typeof loadTokenizer>>} */
  const tokenizers = { plain: loadTokenizer("plain"), crossing: loadTokenizer("crossing") };
  assert.ok(prompts.length > 200);
  for (const vector of prompts) {
    const { state, criterion } = vector;
    const tokenizer = tokenizers[vector.tokenizer];
    assertOutcome(vector, () => ({
      head_text: prompt.headText(state),
      tail_text: prompt.tailText(criterion),
      label_ids: prompt.labelIds(criterion),
      head_ids: prompt.headIds(tokenizer),
      state_prefix_ids: prompt.statePrefixIds(tokenizer, state),
      full_ids: prompt.fullIds(tokenizer, state, criterion),
      suffix_ids: prompt.suffixIds(tokenizer, state, criterion),
    }));
  }
});

test("text readout", () => {
  const { manifest, templates, branches, gains } = load("text.json");
  const prompt = new Prompt(promptSpec(manifest));
  const text = new TextPrompt(prompt, templates);
  /** @type {Record<string, ReturnType<typeof loadTokenizer>>} */
  const tokenizers = { plain: loadTokenizer("plain"), crossing: loadTokenizer("crossing") };
  assert.ok(branches.length > 20);
  for (const vector of branches) {
    const tokenizer = tokenizers[vector.tokenizer];
    assertOutcome(vector, () => {
      const question = parseQuestion(vector.question);
      return text.branches(tokenizer, vector.state, prompt.statePrefixIds(tokenizer, vector.state), question);
    });
  }
  for (const { evidence, blank, expect } of gains) assertSame(gain(evidence, blank), expect, "gain");
});

test("manifests", () => {
  const { manifests } = load("prompt.json");
  assert.ok(manifests.length > 20);
  const criterion = { text: "Which team?", options: ["billing: payments, refunds", "other"] };
  for (const vector of manifests) {
    assertOutcome(vector, () => {
      const spec = promptSpec(vector.manifest);
      const prompt = new Prompt(spec);
      return {
        bos_ids: spec.bos_ids,
        labels: spec.labels,
        head_text: prompt.headText("{state} {x}"),
        tail_text: prompt.tailText(criterion),
      };
    });
  }
});

test("readouts", () => {
  const { readouts } = load("readout.json");
  assert.ok(readouts.length > 60);
  const named = ["NaN", "Infinity", "-Infinity"];
  for (const vector of readouts) {
    const logits = vector.logits.map((/** @type {any} */ logit) =>
      named.includes(logit) ? Number(logit) : logit,
    );
    assertOutcome(vector, () => read(parseQuestion(vector.question), logits));
  }
});

test("typed arrays of logits read as lists do", () => {
  const noul = parseQuestion({ type: "noul", criteria: "Urgent?" });
  assert.deepEqual(read(noul, Float32Array.of(1.5, -2)), read(noul, [1.5, -2]));
});

test("errors keep their class across a worker border", () => {
  for (const [code, known] of errors.ERRORS) {
    const error = new known("message", { value: [1], loc: ["a", 0] });
    const revived = errors.reviveError(structuredClone(error.toJSON()));
    assert.equal(revived.constructor, known);
    assert.equal(revived.name, known.name);
    assert.deepEqual(revived.toJSON(), { code, message: "message", data: { value: [1], loc: ["a", 0] } });
  }
  const unknown = errors.reviveError({ code: "NEWER", message: "message", data: {} });
  assert.equal(unknown.constructor, errors.TypedecideError);
  assert.equal(unknown.code, "NEWER");
});
