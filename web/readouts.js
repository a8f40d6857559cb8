// The readouts as strategies: what a question puts behind a text, and how what is read there becomes its answer.
//
// Each says the same few things of itself, so that an engine has one way of scoring for all of them. Knows prompts and
// token ids, no tensors' insides and no caches. typedecide/readouts.py is its twin.

import { readoutsOf } from "./options.js";
import { combine, rotate, unrotate } from "./orderings.js";
import { PointerPrompt, scores } from "./pointer.js";
import { Prompt, promptSpec, suffixAfter } from "./prompt.js";
import { read } from "./readout.js";
import { TextPrompt } from "./text.js";

/** @typedef {import("./engine.js").Suffix} Suffix */
/** @typedef {import("./prompt.js").Tokenizer} Tokenizer */
/** @typedef {import("./questions.js").Question} Question */
/** @typedef {import("./types.js").Ordered} Ordered */

/**
 * One way to ask a question and read its answer. A *reading* is one logit for each option, in the question's own order,
 * from one order of the options.
 * @typedef {object} Readout
 * @property {boolean} needsBlank whether a reading is only worth something against the one under blank evidence
 * @property {(state: string, prefix: readonly number[], question: Question, shift: number) => Suffix[]} suffixes what one
 *   order of a question runs behind `prefix`, the first ids of the prompt of the text `state`; without a prefix these are
 *   whole prompts
 * @property {(question: Question, shift: number, found: readonly Float32Array[]) => number[]} reading the reading, from
 *   what the model gave for each of these suffixes
 * @property {(question: Question, readings: readonly (readonly number[])[]) => Ordered} answer the answer, from the
 *   readings of all orders
 */

/**
 * The readouts that a bundle has, by name.
 * @param {Record<string, any>} manifest
 * @param {Tokenizer} tokenizer
 * @returns {Map<string, Readout>}
 * @throws {BundleError} its templates are malformed
 */
export function makeReadouts(manifest, tokenizer) {
  const prompt = new Prompt(promptSpec(manifest));
  /** @type {Map<string, Readout>} */
  const found = new Map();
  found.set("labels", labelsReadout(prompt, tokenizer));
  found.set("text", textReadout(new TextPrompt(prompt, manifest.prompt), tokenizer));
  if (readoutsOf(/** @type {any} */ (manifest)).includes("pointer")) {
    found.set("pointer", pointerReadout(new PointerPrompt(prompt, manifest.prompt), tokenizer));
  }
  return found;
}

/**
 * The logits of the labels that stand before the listed options.
 * @param {Prompt} prompt
 * @param {Tokenizer} tokenizer
 * @returns {Readout}
 */
function labelsReadout(prompt, tokenizer) {
  return {
    needsBlank: false,
    suffixes: (state, prefix, { criterion }, shift) => {
      const rotated = { text: criterion.text, options: rotate(criterion.options, shift) };
      const ids = suffixAfter(prefix, prompt.fullIds(tokenizer, state, rotated));
      return [{ ids, labelIds: prompt.labelIds(rotated) }];
    },
    reading: (_, shift, [logits]) => unrotate(logits, shift),
    answer: (question, readings) => {
      const { log_probabilities, orderings_used, flip_rate } = combine(readings);
      return { ...read(question, log_probabilities), orderings_used, flip_rate };
    },
  };
}

/**
 * The log-probability of each option's own text, against the same under blank evidence.
 * @param {TextPrompt} text
 * @param {Tokenizer} tokenizer
 * @returns {Readout}
 */
function textReadout(text, tokenizer) {
  return {
    needsBlank: true,
    suffixes: (state, prefix, question) => text.branches(tokenizer, state, prefix, question),
    reading: (_, __, found) =>
      found.map((logProbabilities) => logProbabilities.reduce((sum, value) => sum + value, 0)),
    answer: onlyReading,
  };
}

/**
 * The trained comparison of options and answer.
 * @param {PointerPrompt} pointer
 * @param {Tokenizer} tokenizer
 * @returns {Readout}
 */
function pointerReadout(pointer, tokenizer) {
  return {
    needsBlank: false,
    suffixes: (state, prefix, question) => [pointer.joined(tokenizer, state, prefix, question)],
    reading: ({ names }, _, [projections]) => scores(projections, names.length),
    answer: onlyReading,
  };
}

/**
 * The answer of a readout that has one order.
 * @param {Question} question
 * @param {readonly (readonly number[])[]} readings
 * @returns {Ordered}
 */
function onlyReading(question, [logits]) {
  return { ...read(question, logits), orderings_used: 1, flip_rate: 0 };
}
