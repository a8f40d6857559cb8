// Prior correction: what a model answers whatever the evidence is, taken out of its answers.
//
// Two ways to learn that prior. `content-free`: the model's answer under blank evidence (Zhao et al., "Calibrate Before
// Use", 2021). `batch`: the mean of its answers to the question over the texts of a session (Zhou et al., "Batch
// Calibration", 2023). Both are taken out of log-probabilities. Knows no text, no tensors and no questions.
// typedecide/prior.py is its twin; both run tests/vectors/prior.json.

import { logSoftmax } from "./orderings.js";

/** @typedef {"content-free" | "batch"} Kind */

/**
 * What was done about the prior of an answer: its kind, from how many states it is known, and whether it was taken out.
 * A batch prior of fewer than `MIN_STATES` states is not.
 * @typedef {{kind: Kind, count: number, applied: boolean}} Prior
 */

/** @type {readonly Kind[]} */
export const KINDS = ["content-free", "batch"];

/** From how many different states on a batch prior is applied. */
export const MIN_STATES = 16;

/** How many different states a batch prior is the mean of; those that come later leave it as it is. */
export const MAX_STATES = 1024;

/**
 * Log-probabilities from logits, less those of the prior's logits, normalised again.
 * @param {ArrayLike<number>} logits
 * @param {ArrayLike<number>} prior
 * @returns {number[]}
 * @throws {IntegrityError} where a logit, or the distance of two, is not a finite number
 */
export function without(logits, prior) {
  const taken = logSoftmax(prior);
  return logSoftmax(logSoftmax(logits).map((logit, i) => logit - taken[i]));
}

/** The mean of a question's log-probabilities over different states. */
export class BatchPrior {
  /** @type {Set<string>} */
  #seen = new Set();
  /** @type {number[]} */
  #totals = [];

  /** States so far. */
  get count() {
    return this.#seen.size;
  }

  /** Whether that is enough. */
  get applies() {
    return this.count >= MIN_STATES;
  }

  /**
   * Count a state's answer, unless the state was counted before, or `MAX_STATES` were.
   * @param {string} state
   * @param {ArrayLike<number>} logits
   */
  add(state, logits) {
    const logProbabilities = logSoftmax(logits);
    if (this.#seen.has(state) || this.count === MAX_STATES) return;
    this.#seen.add(state);
    this.#totals = logProbabilities.map((value, i) => (this.#totals[i] ?? 0) + value);
  }

  /**
   * Log-probabilities, less the prior where it applies.
   * @param {ArrayLike<number>} logits
   * @returns {number[]}
   */
  correct(logits) {
    if (!this.applies) return logSoftmax(logits);
    const { count } = this;
    return without(
      logits,
      this.#totals.map((total) => total / count),
    );
  }
}
