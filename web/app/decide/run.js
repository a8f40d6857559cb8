// Asks an engine questions in packed runs, and gives each card its answer as it comes. Knows no DOM.

import { parseQuestion } from "../../questions.js";
import { errorCode } from "../failure.js";
import { READINGS } from "../readings.js";

/** @typedef {import("../../index.js").Engine} Engine */
/** @typedef {import("../../index.js").Ordered} Ordered */
/** @typedef {import("../readings.js").Reading} Reading */
/** @typedef {import("./card.js").QuestionCard} QuestionCard */
/** @typedef {import("./draft.js").WireQuestion} WireQuestion */
/** @typedef {{card: QuestionCard, wire: WireQuestion}} Job a question as it stood when the run began */
/** @typedef {{tokensRun: number, tokensSaved: number, runs: number}} Cost */

/**
 * @typedef {object} ScoringOptions
 * @property {string} state the text
 * @property {Reading} reading
 * @property {AbortSignal} signal
 * @property {() => void} onProgress called after each answer and each failure
 */

/** After these the remaining questions cannot be answered either. */
const ENDS_RUN = new Set(["ABORTED", "DEVICE_LOST"]);

/** One round of answers about a text that the engine has read. Its figures are right after a throw too. */
export class Scoring {
  /**
   * @param {Engine} engine
   * @param {ScoringOptions} options
   */
  constructor(engine, options) {
    this.engine = engine;
    this.options = options;
    this.began = performance.now();
    this.answered = 0;
    this.failed = 0;
    /** @type {Cost | null} null once a call failed midway, as what it had run is not known */
    this.cost = { tokensRun: 0, tokensSaved: 0, runs: 0 };
  }

  /** Milliseconds since the scoring began. */
  get ms() {
    return performance.now() - this.began;
  }

  /**
   * Answers all jobs. A question that fails does not stop the others; an abort or a lost device does, and is
   * thrown on.
   * @param {readonly Job[]} jobs
   */
  async run(jobs) {
    const valid = jobs.filter((job) => this.#isValid(job));
    if (valid.length > 0) await this.#ask(valid);
  }

  /**
   * Tells an invalid question's card, since one such question would be the end of the packed call.
   * @param {Job} job
   */
  #isValid(job) {
    try {
      parseQuestion(job.wire);
      return true;
    } catch (error) {
      this.#fail(job, error);
      return false;
    }
  }

  /**
   * All jobs in one call. Where that fails, those without an answer one by one, so that only the culprit fails.
   * @param {readonly Job[]} jobs
   */
  async #ask(jobs) {
    const { state, reading, signal } = this.options;
    const open = new Set(jobs);
    for (const { card } of jobs) card.setPhase("running");
    const byId = new Map(jobs.map((job) => [job.card.draft.id, job]));
    /** @param {string} id @param {Ordered} answer */
    const onAnswer = (id, answer) => {
      const job = /** @type {Job} */ (byId.get(id));
      open.delete(job);
      this.#answer(job, answer);
    };
    try {
      // Text and questions in one call, as other parts of the page may ask about other texts meanwhile.
      const questions = new Map([...byId].map(([id, job]) => [id, job.wire]));
      const asked = { ...READINGS[reading], signal, onAnswer };
      this.#count(await this.engine.decide({ state, questions }, asked));
    } catch (error) {
      if (ENDS_RUN.has(errorCode(error))) throw error;
      if (open.size < jobs.length) this.cost = null;
      if (jobs.length === 1) return this.#fail(jobs[0], error);
      for (const { card } of open) card.setPhase("waiting");
      for (const job of open) await this.#ask([job]);
    }
  }

  /** @param {Pick<import("../../index.js").ScoredAll, "tokens_run" | "tokens_saved" | "runs">} done */
  #count(done) {
    if (!this.cost) return;
    this.cost.tokensRun += done.tokens_run;
    this.cost.tokensSaved += done.tokens_saved;
    this.cost.runs += done.runs;
  }

  /** @param {Job} job @param {Ordered} answer */
  #answer({ card, wire }, answer) {
    const { state, reading } = this.options;
    card.setOutcome({ wire: JSON.stringify(wire), state, reading, answer, ms: this.ms });
    this.answered += 1;
    this.options.onProgress();
  }

  /** @param {Job} job @param {unknown} error */
  #fail({ card, wire }, error) {
    card.setFailure(wire, error);
    this.failed += 1;
    this.options.onProgress();
  }
}
