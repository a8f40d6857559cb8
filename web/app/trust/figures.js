// The figures about one question's answers, from results and labels. Knows no page.

import { breathe } from "../table/results.js";
import { ANSWERED } from "../table/results.js";
import { calibrationError, confusion, credit, interval, majority, mean } from "./metrics.js";
import { BINS, reliability, resample, thresholds } from "./metrics.js";

/** @typedef {import("../table/results.js").Results} Results */
/** @typedef {import("./labels.js").Labels} Labels */

/** Answers in a point of the curve: with fewer it would show nothing but chance. */
const LEAST = 10;
const RESAMPLES = 500;
/** Bootstrap samples that are drawn at a time, so that the page stays awake. */
const GROUP = 20;

/**
 * Answers with their labels, one after the other.
 * @typedef {object} Labelled
 * @property {number[]} confidences the probability of each answer
 * @property {number[]} credits what it earns
 * @property {number[]} gold place of the true option
 * @property {number[]} chosen place of the answer
 * @property {number[]} texts the number of its text: rows with one text stand or fall together
 */

/**
 * @param {Results} results
 * @param {number} question
 * @param {Labels} labels
 * @returns {Labelled}
 */
export function labelled(results, question, { gold }) {
  /** @type {Labelled} */
  const found = { confidences: [], credits: [], gold: [], chosen: [], texts: [] };
  const texts = /** @type {Map<string, number>} */ (new Map());
  for (const [row, truth] of gold) {
    if (results.status[row] !== ANSWERED) continue;
    const probabilities = results.probabilities(row, question);
    const chosen = results.choice(row, question);
    const text = results.table.textOf(results.table.rows[row]);
    if (!texts.has(text)) texts.set(text, texts.size);
    found.confidences.push(probabilities[chosen]);
    found.credits.push(credit(probabilities, truth));
    found.gold.push(truth);
    found.chosen.push(chosen);
    found.texts.push(texts.get(text) ?? 0);
  }
  return found;
}

/** @param {Labelled} found @param {number} options */
export function figures({ confidences, credits, gold, chosen }, options) {
  const bins = reliability(confidences, credits);
  return {
    accuracy: mean(credits),
    majority: majority(gold),
    chance: 1 / options,
    curve: reliability(
      confidences,
      credits,
      "mass",
      Math.max(1, Math.min(BINS, Math.floor(gold.length / LEAST))),
    ),
    error: calibrationError(bins),
    thresholds: thresholds(confidences, credits),
    confusion: confusion(gold, chosen, options),
  };
}

/**
 * The interval of the accuracy, by a bootstrap of the texts.
 * @param {Labelled} found
 * @param {() => number} random
 * @returns {Promise<[number, number] | null>}
 */
export async function accuracyInterval({ credits, texts }, random) {
  const drawn = [];
  while (drawn.length < RESAMPLES) {
    for (let i = 0; i < GROUP; i += 1) drawn.push(mean(credits, resample(texts, random)) ?? 0);
    await breathe();
  }
  return credits.length === 0 ? null : interval(drawn);
}

/**
 * Numbers from 0, below 1, that are the same for the same seed (Mulberry32), so that an interval stays as it was.
 * @param {number} seed
 */
export function seeded(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
