// The label logits of a question become probabilities, an answer and a confidence.
// Knows no tensors, tokens or prompts. typedecide/readout.py is its twin; both run tests/vectors/readout.json.

import { IntegrityError } from "./errors.js";

/** @typedef {import("./questions.js").Question} Question */
/** @typedef {import("./questions.js").Kind} Kind */

/**
 * The answer to one question; names, logits and probabilities are in the question's option order.
 * @typedef {object} Answer
 * @property {Kind} kind
 * @property {readonly string[]} names
 * @property {readonly number[]} logits
 * @property {readonly number[]} probabilities
 * @property {string | number} value the name of the option (choice), P(yes) (noul) or the expected level Σ i·p (score)
 * @property {string} choice the most probable name, the first one in a tie
 * @property {number} confidence
 */

/**
 * Probabilities from logits.
 * @param {ArrayLike<number>} logits
 * @returns {number[]}
 * @throws {IntegrityError} where a logit is not a finite number
 */
export function softmax(logits) {
  const finite = checkLogits(logits);
  const top = Math.max(...finite);
  const weights = finite.map((logit) => Math.exp(logit - top));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
}

/**
 * The answer to `question` from the logits of its labels, one for each option in order.
 * @param {Question} question
 * @param {ArrayLike<number>} logits
 * @returns {Answer}
 */
export function read({ kind, names }, logits) {
  if (logits.length !== names.length) {
    const data = { value: logits.length, expected: names.length };
    throw new IntegrityError("There must be one logit for each option.", data);
  }
  const probabilities = softmax(logits);
  const choice = names[modeOf(probabilities)];
  return Object.freeze({
    kind,
    names,
    logits: Object.freeze(Array.from(logits)),
    probabilities: Object.freeze(probabilities),
    value: valueOf(kind, choice, probabilities),
    choice,
    confidence: confidenceOf(kind, probabilities),
  });
}

/**
 * @param {ArrayLike<number>} logits
 * @returns {number[]}
 */
function checkLogits(logits) {
  if (logits.length === 0) throw new IntegrityError("There are no logits.", { value: 0 });
  return Array.from(logits, (logit, index) => {
    if (!Number.isFinite(logit)) {
      throw new IntegrityError(`Logit ${index} is not a finite number.`, { value: logit, index });
    }
    return logit;
  });
}

/** @param {readonly number[]} probabilities */
function modeOf(probabilities) {
  return probabilities.indexOf(Math.max(...probabilities));
}

/**
 * @param {Kind} kind
 * @param {string} choice
 * @param {readonly number[]} probabilities
 * @returns {string | number}
 */
function valueOf(kind, choice, probabilities) {
  if (kind === "choice") return choice;
  if (kind === "noul") return probabilities[0];
  return probabilities.reduce((sum, p, level) => sum + level * p, 0);
}

/**
 * @param {Kind} kind
 * @param {readonly number[]} probabilities
 * @returns {number}
 */
function confidenceOf(kind, probabilities) {
  const n = probabilities.length;
  if (kind !== "score") {
    // max: equal probabilities can fall short of 1/n by the last bit.
    return Math.max(0, (Math.max(...probabilities) - 1 / n) / (1 - 1 / n));
  }
  const mode = modeOf(probabilities);
  const spread = probabilities.reduce((sum, p, level) => sum + p * Math.abs(level - mode), 0);
  const uniform = probabilities.reduce((sum, _, level) => sum + Math.abs(level - (n - 1) / 2), 0) / n;
  return Math.max(0, 1 - spread / uniform);
}
