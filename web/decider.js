/**
 * One loaded model that answers questions about one text at a time: prompt, engine and readout put together.
 *
 * Runs inside the worker. Knows no messages and no page.
 */

import { InvalidQuestionError, InvalidStateError, UnsupportedError } from "./errors.js";
import { combine, cyclicShifts, howMany, rotate, unrotate } from "./orderings.js";
import { Prompt, promptSpec, suffixAfter } from "./prompt.js";
import { parseQuestion } from "./questions.js";
import { read } from "./readout.js";
import { start } from "./runtime.js";
import { States } from "./states.js";
import { Store } from "./store.js";
import { BLANK, TextPrompt, answerTexts, gain } from "./text.js";

/** What an answer is read from: the letters of the listed options, or the options' own texts. */
const READOUTS = ["labels", "text"];

/**
 * What `createEngine` passes to the worker.
 * @typedef {object} Settings
 * @property {string} bundle address of the bundle's folder
 * @property {"auto" | "webgpu" | "wasm"} device
 * @property {string} [format]
 * @property {number} [threads]
 * @property {string[]} [candidates]
 * @property {number} stateBytes
 */

/**
 * @typedef {object} Progress
 * @property {"manifest" | "download" | "session" | "selftest" | "ready"} phase
 * @property {string} message
 * @property {string} [file]
 * @property {number} [loadedBytes]
 * @property {number} [totalBytes]
 */

/**
 * @typedef {object} Info
 * @property {Record<string, unknown>} model
 * @property {string} format
 * @property {"webgpu" | "wasm"} device
 * @property {string} candidate
 * @property {string} reason
 * @property {import("./runtime.js").Trial[]} selfTest
 * @property {number} threads
 * @property {string | null} adapter
 * @property {{version: string, build: string}} ort
 * @property {number} context
 * @property {number} loadMs
 */

/** @typedef {import("./readout.js").Answer & {tokens: number, ms: number}} Scored */

/**
 * An answer pooled over orders of the options: how many orders were read, and the share of them whose own answer
 * differs from the pooled one. `logits` are the pooled log-probabilities.
 * @typedef {import("./readout.js").Answer & {orderings_used: number, flip_rate: number}} Ordered
 */

/**
 * @typedef {object} ScoreAllOptions
 * @property {number | "auto" | "all"} [orderings] orders read of each question: 1, a number, all cyclic ones, or
 *   (default) `auto`: both of two options, and up to `budget` of more. For the `labels` readout only.
 * @property {number} [budget] the rotation budget of `auto`; default: the bundle's
 * @property {number} [runTokens] tokens of one packed run; default: the bundle's
 * @property {string} [readout] `labels` or `text`: letters of the listed options, or the options' own texts (which need no
 *   orders); default: the bundle's
 */

/** @typedef {{tokens: number, kept: boolean, ms: number}} Prefilled */

/** @typedef {{answers: Ordered[], tokens_run: number, tokens_saved: number, runs: number, ms: number}} ScoredAll */

export class Decider {
  /**
   * @param {import("./engine.js").Engine} engine
   * @param {Prompt} prompt
   * @param {TextPrompt} text
   * @param {import("./prompt.js").Tokenizer} tokenizer
   * @param {{rotation_budget: number, run_tokens: number, readout: string}} limits the bundle's defaults
   * @param {number} stateBytes memory for kept states
   * @param {Info} info
   */
  constructor(engine, prompt, text, tokenizer, limits, stateBytes, info) {
    this.engine = engine;
    this.prompt = prompt;
    this.tokenizer = tokenizer;
    this.limits = limits;
    this.info = info;
    /** @type {import("./states.js").State | null} the text that `score` is about */
    this.state = null;
    this.states = new States(stateBytes);
    this.text = text;
    /** @type {import("./states.js").State | null} the state of blank evidence */
    this.blank = null;
    /** @type {Map<string, number[]>} scores of each question's option texts under blank evidence */
    this.blankScores = new Map();
    /** @type {{ids: number[], cache: import("./engine.js").Cache} | null} the prompt before every state */
    this.head = null;
  }

  /**
   * Load the bundle and start the first way to run it that passes the self-test.
   * @param {Settings} settings
   * @param {(progress: Progress) => void} onProgress
   * @param {AbortSignal} signal
   */
  static async load(settings, onProgress, signal) {
    const began = performance.now();
    onProgress({ phase: "manifest", message: "Reading the manifest" });
    const store = await Store.open(new URL(settings.bundle), signal);
    const { manifest } = store;
    const format = settings.format ?? manifest.default_format;
    if (!manifest.formats[format]) {
      const known = Object.keys(manifest.formats).join(", ");
      throw new UnsupportedError(`this bundle has no format ${JSON.stringify(format)}; it has ${known}`, {
        format,
      });
    }
    const prompt = new Prompt(promptSpec(/** @type {any} */ (manifest)));
    const text = new TextPrompt(prompt, /** @type {any} */ (manifest.prompt));
    const defaults = { ...manifest.limits, readout: manifest.readout };
    const tokenizer = await loadTokenizer(store);
    const started = await start(store, {
      ...settings,
      format,
      signal,
      report: (phase, message, file, loadedBytes, totalBytes) =>
        onProgress(/** @type {Progress} */ ({ phase, message, file, loadedBytes, totalBytes })),
    });
    const info = {
      model: manifest.model,
      format,
      device: started.candidate.device,
      candidate: started.candidate.name,
      reason: started.reason,
      selfTest: started.selfTest,
      threads: started.threads,
      adapter: started.adapter,
      ort: started.ort,
      context: manifest.limits.context,
      loadMs: performance.now() - began,
    };
    onProgress({ phase: "ready", message: "Ready" });
    return new Decider(started.engine, prompt, text, tokenizer, defaults, settings.stateBytes, info);
  }

  /**
   * Compute the KV cache of a text, unless it is kept; every question after that costs its own suffix only.
   * @param {string} text
   * @param {() => boolean} [aborted]
   * @returns {Promise<Prefilled>}
   */
  async prefill(text, aborted) {
    const began = performance.now();
    const kept = this.states.get(text);
    if (kept) this.state = kept;
    else {
      this.state = await this.#prefilled(text, aborted);
      this.states.add(this.state);
    }
    return { tokens: this.state.cache.length, kept: kept !== undefined, ms: performance.now() - began };
  }

  /**
   * @param {string} text
   * @param {() => boolean} [aborted]
   */
  async #prefilled(text, aborted) {
    const ids = this.prompt.statePrefixIds(this.tokenizer, text);
    const cache = await this.engine.prefill(ids, { base: await this.#base(ids), aborted });
    return { text, ids, cache };
  }

  /**
   * The cache of the tokens that stand before every state, computed once; undefined where `ids` start otherwise.
   * @param {number[]} ids
   */
  async #base(ids) {
    if (!this.head) {
      const constant = this.prompt.headIds(this.tokenizer);
      this.head = { ids: constant, cache: await this.engine.prefill(constant) };
    }
    const { ids: constant, cache } = this.head;
    return constant.length > 0 && constant.every((id, i) => id === ids[i]) ? cache : undefined;
  }

  /** Release all kept states and what is known of blank evidence; the next prefill starts anew. */
  release() {
    this.states.clear();
    this.blank?.cache.release();
    this.blankScores.clear();
    this.state = this.blank = null;
  }

  /**
   * Prefill and answer in one go: no other caller's text can come in between.
   * @param {string} state
   * @param {unknown[]} questions
   * @param {ScoreAllOptions} options
   * @param {(index: number, answer: Ordered) => void} onAnswer
   * @param {() => boolean} aborted
   */
  async decide(state, questions, options, onAnswer, aborted) {
    const prefill = await this.prefill(state, aborted);
    return { ...(await this.scoreAll(questions, options, onAnswer, aborted)), prefill };
  }

  /**
   * Answer a question (System One form) about the prefilled text.
   * @param {unknown} question
   * @returns {Promise<Scored>}
   */
  async score(question) {
    const began = performance.now();
    const parsed = parseQuestion(question);
    const { cache } = this.#current();
    const suffix = this.#suffix(parsed, 0);
    const { logits } = await this.engine.score(cache, [suffix]);
    return { ...read(parsed, logits[0]), tokens: suffix.ids.length, ms: performance.now() - began };
  }

  /**
   * Answer many questions about the prefilled text, each in several orders of its options, in packed runs.
   * @param {unknown[]} questions in the System One form
   * @param {ScoreAllOptions} options
   * @param {(index: number, answer: Ordered) => void} onAnswer told each answer as soon as its last order is read
   * @param {() => boolean} aborted
   * @returns {Promise<ScoredAll>}
   */
  async scoreAll(questions, { orderings, budget, runTokens, readout }, onAnswer, aborted) {
    const began = performance.now();
    const { limits } = this;
    const all = questions.map(parseAt);
    if (this.#readout({ orderings, budget, readout }) === "text") {
      const run = { budget: runTokens ?? limits.run_tokens, aborted };
      return { ...(await this.#scoreTexts(all, run, onAnswer)), ms: performance.now() - began };
    }
    const asked = all.map((parsed, i) => {
      const n = parsed.names.length;
      const shifts = cyclicShifts(n, ordersOf(n, i, orderings ?? "auto", budget ?? limits.rotation_budget));
      return { index: i, parsed, shifts, found: /** @type {number[][]} */ ([]) };
    });
    const orders = asked.flatMap((question) => question.shifts.map((shift) => ({ question, shift })));
    const suffixes = orders.map(({ question, shift }) => this.#suffix(question.parsed, shift));
    const answers = /** @type {Ordered[]} */ (new Array(questions.length));
    const { tokens, saved, runs } = await this.engine.score(this.#current().cache, suffixes, {
      budget: runTokens ?? limits.run_tokens,
      aborted,
      onLogits: (i, logits) => {
        const { question, shift } = orders[i];
        question.found.push(unrotate(Array.from(logits), shift));
        if (question.found.length < question.shifts.length) return;
        answers[question.index] = pool(question.parsed, question.found);
        onAnswer(question.index, answers[question.index]);
      },
    });
    return { answers, tokens_run: tokens, tokens_saved: saved, runs, ms: performance.now() - began };
  }

  /**
   * The readout asked for, or the bundle's.
   * @param {ScoreAllOptions} options
   */
  #readout({ orderings, budget, readout = this.limits.readout }) {
    if (!READOUTS.includes(readout)) {
      const message = `there is no readout ${JSON.stringify(readout)}; known: ${READOUTS.join(", ")}`;
      throw new UnsupportedError(message, { readout });
    }
    if (readout === "text" && (orderings !== undefined || budget !== undefined)) {
      const message =
        "the text readout lists no options, so orderings and budget do not apply: leave them out, or use the labels readout";
      throw new UnsupportedError(message, { readout, orderings: orderings ?? null, budget: budget ?? null });
    }
    return readout;
  }

  /**
   * The `text` readout: every option's own text, under the evidence and (kept) under blank evidence.
   * @param {import("./questions.js").Question[]} questions
   * @param {{budget: number, aborted: () => boolean}} run
   * @param {(index: number, answer: Ordered) => void} onAnswer
   */
  async #scoreTexts(questions, run, onAnswer) {
    const state = this.#current();
    const keys = questions.map((question) =>
      JSON.stringify([question.criterion.text, answerTexts(question)]),
    );
    const fresh = new Map(keys.map((key, i) => [key, questions[i]]));
    for (const key of this.blankScores.keys()) fresh.delete(key);
    const cost = { tokens: 0, saved: 0, runs: 0 };
    // Each in a run of its own: what is kept must not depend on what was asked along with it, not by the last bit.
    for (const [key, question] of fresh) {
      const take = (/** @type {number} */ _, /** @type {number[]} */ scores) =>
        void this.blankScores.set(key, scores);
      const { tokens, saved, runs } = await this.#textScores(await this.#blankState(), [question], run, take);
      cost.tokens += tokens;
      cost.saved += saved;
      cost.runs += runs;
    }
    const answers = /** @type {Ordered[]} */ (new Array(questions.length));
    const total = await this.#textScores(state, questions, run, (i, scores) => {
      const blank = /** @type {number[]} */ (this.blankScores.get(keys[i]));
      answers[i] = { ...read(questions[i], gain(scores, blank)), orderings_used: 1, flip_rate: 0 };
      onAnswer(i, answers[i]);
    });
    return {
      answers,
      tokens_run: total.tokens + cost.tokens,
      tokens_saved: total.saved + cost.saved,
      runs: total.runs + cost.runs,
    };
  }

  /**
   * Summed log-probability of each option's text after a state; `take` is told each question's as they come.
   * @param {import("./states.js").State} state
   * @param {import("./questions.js").Question[]} questions
   * @param {{budget: number, aborted: () => boolean}} run
   * @param {(index: number, scores: number[]) => void} take
   */
  async #textScores(state, questions, run, take) {
    const owners = /** @type {number[]} */ ([]);
    const suffixes = questions.flatMap((question, i) => {
      const branches = this.text.branches(this.tokenizer, state.text, state.ids, question);
      owners.push(...branches.map(() => i));
      return branches;
    });
    const scores = questions.map(() => /** @type {number[]} */ ([]));
    return this.engine.score(state.cache, suffixes, {
      ...run,
      onLogits: (suffix, found) => {
        const i = owners[suffix];
        scores[i].push(found.reduce((sum, value) => sum + value, 0));
        if (scores[i].length === questions[i].names.length) take(i, scores[i]);
      },
    });
  }

  async #blankState() {
    this.blank ??= await this.#prefilled(BLANK);
    return this.blank;
  }

  /**
   * The suffix that asks a question with its options rotated by `shift`.
   * @param {import("./questions.js").Question} question
   * @param {number} shift
   */
  #suffix({ criterion }, shift) {
    const state = this.#current();
    const rotated = { text: criterion.text, options: rotate(criterion.options, shift) };
    const full = this.prompt.fullIds(this.tokenizer, state.text, rotated);
    return { ids: suffixAfter(state.ids, full), labelIds: this.prompt.labelIds(rotated) };
  }

  #current() {
    if (!this.state) throw new InvalidStateError("nothing is prefilled: call prefill(state) first");
    return this.state;
  }

  /**
   * Answer a question from the whole prompt, without the cache: the plain path that others are compared with.
   * @param {string} state
   * @param {unknown} question
   * @returns {Promise<Scored>}
   */
  async scoreFull(state, question) {
    const began = performance.now();
    const parsed = parseQuestion(question);
    const ids = this.prompt.fullIds(this.tokenizer, state, parsed.criterion);
    const logits = await this.engine.scoreFull({ ids, labelIds: this.prompt.labelIds(parsed.criterion) });
    return { ...read(parsed, logits), tokens: ids.length, ms: performance.now() - began };
  }
}

/**
 * How many orders of a question's options are read; its index goes into the error.
 * @param {number} n
 * @param {number} index
 * @param {number | "auto" | "all"} orderings
 * @param {number} budget
 */
function ordersOf(n, index, orderings, budget) {
  try {
    return howMany(n, orderings, budget);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    const data = { value: orderings, budget, loc: [index] };
    throw new InvalidQuestionError(`Question ${index}: ${error.message}`, data);
  }
}

/**
 * @param {unknown} question
 * @param {number} index
 */
function parseAt(question, index) {
  try {
    return parseQuestion(question);
  } catch (error) {
    if (!(error instanceof InvalidQuestionError)) throw error;
    const loc = [index, .../** @type {(string | number)[]} */ (error.data.loc)];
    throw new InvalidQuestionError(`Question ${index}: ${error.message}`, { ...error.data, loc });
  }
}

/**
 * @param {import("./questions.js").Question} question
 * @param {number[][]} found label logits of each order, in the question's own option order
 * @returns {Ordered}
 */
function pool(question, found) {
  const { log_probabilities, flip_rate, orderings_used } = combine(found);
  return { ...read(question, log_probabilities), orderings_used, flip_rate };
}

/**
 * @param {Store} store
 * @returns {Promise<import("./prompt.js").Tokenizer>}
 */
async function loadTokenizer(store) {
  const spec = JSON.parse(await store.text(store.manifest.tokenizer));
  const { Tokenizer } = await import(String(store.url("vendor/tokenizers/tokenizers.min.mjs")));
  const tokenizer = new Tokenizer(spec, {});
  return { encode: (text) => tokenizer.encode(text, { add_special_tokens: false }).ids };
}
