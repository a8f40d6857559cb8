// Runs questions against an engine, one after another, and reports each result as it comes. Knows no DOM.

import { errorCode } from "./failure.js";

/** @typedef {import("../index.js").Engine} Engine */
/** @typedef {import("./card.js").QuestionCard} QuestionCard */
/** @typedef {import("./draft.js").WireQuestion} WireQuestion */
/** @typedef {{card: QuestionCard, wire: WireQuestion}} Job a question as it stood when the run began */
/** @typedef {{answered: number, failed: number, ms: number[]}} Tally */

/** After these the remaining questions cannot be answered either. */
const ENDS_RUN = new Set(["ABORTED", "DEVICE_LOST"]);

/**
 * Scores each job against the prefilled state. A question that fails does not stop the others; an abort or a
 * lost device does, and is thrown on. `tally` is updated in place, so it is right after a throw too.
 * @param {Engine} engine
 * @param {readonly Job[]} jobs
 * @param {string} state the prefilled text
 * @param {Tally} tally
 * @param {{signal: AbortSignal, onProgress: () => void}} options
 */
export async function scoreAll(engine, jobs, state, tally, { signal, onProgress }) {
  for (const { card, wire } of jobs) {
    if (card.removed) continue;
    card.setPhase("running");
    try {
      const answer = await engine.score(wire, { signal });
      card.setOutcome({ wire: JSON.stringify(wire), state, answer });
      tally.answered += 1;
      tally.ms.push(answer.ms);
    } catch (error) {
      if (ENDS_RUN.has(errorCode(error))) throw error;
      card.setFailure(wire, error);
      tally.failed += 1;
    }
    onProgress();
  }
}

/**
 * @param {readonly number[]} values at least one
 * @returns {number}
 */
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
