/**
 * One loaded model that answers questions about one text at a time: prompt, engine and readout put together.
 *
 * Runs inside the worker. Knows no messages and no page.
 */

import { Calibrator } from "./calibration.js";
import { Clock } from "./clock.js";
import { get } from "./download.js";
import { tokenBytes, turn } from "./engine.js";
import {
  AbortedError,
  IntegrityError,
  InvalidQuestionError,
  InvalidStateError,
  UnsupportedError,
} from "./errors.js";
import { memoryBytes } from "./meter.js";
import { importModule } from "./modules.js";
import { readoutsOf, resolve, shiftsOf } from "./options.js";
import { certified, rounds } from "./orderings.js";
import { suffixLength } from "./packing.js";
import { BatchPrior } from "./prior.js";
import { Prompt, promptSpec } from "./prompt.js";
import { parseQuestion } from "./questions.js";
import { read } from "./readout.js";
import { makeReadouts } from "./readouts.js";
import { KEPT_QUESTIONS, Recent } from "./recent.js";
import { start, survey } from "./runtime.js";
import { anchorTokens, shallowOf } from "./shallow.js";
import { States } from "./states.js";
import { Store } from "./store.js";
import { BLANK, gain } from "./text.js";

/**
 * What `createEngine` passes to the worker.
 * @typedef {object} Settings
 * @property {string} bundle address of the bundle's folder
 * @property {string} weights address of the folder that has the weights, under the same paths
 * @property {"auto" | "webgpu" | "wasm"} device
 * @property {string} [format]
 * @property {number} [threads]
 * @property {string[]} [candidates]
 * @property {number} stateBytes
 * @property {boolean} keepWeights
 * @property {unknown} [calibration] a document or its address, false for none; default: the bundle's own
 */

/** @typedef {import("./types.js").Progress} Progress */
/** @typedef {import("./types.js").Info} Info */
/** @typedef {import("./types.js").Scored} Scored */
/** @typedef {import("./types.js").Prefilled} Prefilled */
/** @typedef {import("./types.js").ScoredAll} ScoredAll */
/** @typedef {import("./types.js").Ordered} Ordered */
/** @typedef {import("./types.js").Memory} Memory */
/** @typedef {import("./options.js").Options} Options */
/** @typedef {import("./options.js").Asking} Asking */
/** @typedef {import("./questions.js").Question} Question */
/** @typedef {import("./states.js").State} State */

/**
 * A question under way: the orders to read in the first round and in the second, and what was read.
 * @typedef {{index: number, question: Question, rounds: [number[], number[]], readings: number[][]}} Open
 */

/** @typedef {{question: Question, shift: number}} Pair a question in one order of its options */

/** @typedef {{tokens: number, saved: number, runs: number}} Totals */

/** @type {Totals} */
const NOTHING = { tokens: 0, saved: 0, runs: 0 };

export class Decider {
  /**
   * @param {import("./engine.js").Engine} engine
   * @param {Record<string, any>} manifest
   * @param {import("./prompt.js").Tokenizer} tokenizer
   * @param {number} stateBytes memory for kept states
   * @param {Calibrator} calibrator
   * @param {Info} info
   * @param {import("./runtime.js").Started["gpu"]} gpu
   */
  constructor(engine, manifest, tokenizer, stateBytes, calibrator, info, gpu) {
    this.engine = engine;
    this.manifest = /** @type {import("./options.js").Manifest} */ (manifest);
    this.prompt = new Prompt(promptSpec(manifest));
    this.readouts = makeReadouts(manifest, tokenizer);
    this.shallow = shallowOf(this.manifest);
    /** The ids before every text. */
    this.constant = this.prompt.headIds(tokenizer);
    this.anchor = anchorTokens(this.shallow, this.constant);
    this.tokenizer = tokenizer;
    this.calibrator = calibrator;
    this.info = info;
    this.gpu = gpu;
    /** @type {State | null} the text that `score` is about */
    this.state = null;
    /** @type {string | null} that text, where its cache is not to be trusted and has to be computed again */
    this.dropped = null;
    this.states = new States(stateBytes);
    /** @type {State | null} the state of blank evidence */
    this.blank = null;
    /** @type {Recent<Map<number, number[]>>} readings under blank evidence: by readout and question, then by order */
    this.blankReadings = new Recent(KEPT_QUESTIONS, () => new Map());
    /** @type {Recent<BatchPrior>} by question and number of orders */
    this.priors = new Recent(KEPT_QUESTIONS, () => new BatchPrior());
    /** @type {import("./engine.js").Cache | null} of the constant ids */
    this.head = null;
  }

  /**
   * Load the bundle and start the first way to run it that passes the self-test.
   * @param {Settings} settings
   * @param {(progress: Progress) => void} onProgress
   * @param {AbortSignal} signal
   */
  static async load(settings, onProgress, signal) {
    const clock = new Clock();
    onProgress({ phase: "manifest", message: "Reading the manifest" });
    const place = { weights: new URL(settings.weights), keep: settings.keepWeights, signal };
    const store = await clock.during("manifest", () => Store.open(new URL(settings.bundle), place));
    const { manifest } = store;
    const format = settings.format ?? manifest.default_format;
    if (!manifest.formats[format]) {
      const known = Object.keys(manifest.formats).join(", ");
      throw new UnsupportedError(`this bundle has no format ${JSON.stringify(format)}; it has ${known}`, {
        format,
      });
    }
    const shallow = shallowOf(manifest);
    const calibrator = new Calibrator(await readCalibration(settings.calibration, signal), manifest, format);
    // Before anything large is fetched.
    const ways = await survey(manifest, { ...settings, format });
    const spec = await store.text(manifest.tokenizer);
    const starting = start(store, ways, {
      ...settings,
      format,
      clock,
      signal,
      report: (phase, message, file, loadedBytes, totalBytes) =>
        onProgress(/** @type {Progress} */ ({ phase, message, file, loadedBytes, totalBytes })),
    });
    const making = clock.during("tokenizer", () => makeTokenizer(store, spec, signal));
    const [started, tokenizer] = await Promise.all([starting, making]);
    await store.prune();
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
      readout: manifest.readout,
      readouts: readoutsOf(manifest),
      calibration: calibrator.facts(),
      shallow: shallow && { layers: started.engine.shape.layers, ...shallow },
      tokenBytes: tokenBytes(started.engine.kept),
      storage: store.storage,
      loadMs: clock.ms,
      timings: /** @type {import("./types.js").Timings} */ (clock.steps),
    };
    onProgress({ phase: "ready", message: "Ready" });
    const { engine, gpu } = started;
    return new Decider(engine, manifest, tokenizer, settings.stateBytes, calibrator, info, gpu);
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
    this.dropped = null;
    return { tokens: this.state.cache.length, kept: kept !== undefined, ms: performance.now() - began };
  }

  /**
   * Go back to a text read before: it is read again when a question is asked, unless it is kept.
   * @param {string | null} text null: none
   */
  recall(text) {
    [this.state, this.dropped] = [null, text];
  }

  /**
   * @param {string} text
   * @param {() => boolean} [aborted]
   */
  async #prefilled(text, aborted) {
    const ids = this.prompt.statePrefixIds(this.tokenizer, text);
    const base = await this.#base(ids);
    const cache = await this.engine.prefill(ids, { base, anchor: this.anchor, aborted });
    return { text, ids, cache };
  }

  /**
   * The cache of the tokens that stand before every state, computed once; undefined where `ids` start otherwise.
   * @param {number[]} ids
   */
  async #base(ids) {
    this.head ??= await this.engine.prefill(this.constant, { anchor: this.anchor });
    const starts = this.constant.length > 0 && this.constant.every((id, i) => id === ids[i]);
    return starts ? this.head : undefined;
  }

  /**
   * What is held now.
   * @returns {Memory}
   */
  memory() {
    return { wasmBytes: memoryBytes(), stateBytes: this.states.bytes, gpu: this.gpu?.() ?? null };
  }

  /**
   * Release all kept states, what is known of blank evidence, and batch priors. What all texts start with stays: it is a
   * part of the loaded model rather than of a text.
   */
  release() {
    this.states.clear();
    this.blank?.cache.release();
    this.blankReadings.clear();
    this.priors.clear();
    this.state = this.blank = this.dropped = null;
  }

  /**
   * Prefill and answer in one go: no other caller's text can come in between. Where that fails, the text before is the
   * one that `score` is about.
   * @param {string} state
   * @param {unknown} questions
   * @param {Options} options
   * @param {(index: number, answer: Ordered) => void} onAnswer
   * @param {() => boolean} aborted
   * @throws {InvalidQuestionError} `data.loc` starts with the question's index
   */
  async decide(state, questions, options, onAnswer, aborted) {
    const plan = this.#plan(parseList(questions), options);
    const before = this.dropped ?? this.state?.text ?? null;
    try {
      const prefill = await this.prefill(state, aborted);
      return { ...(await this.#score(plan, onAnswer, aborted)), prefill };
    } catch (error) {
      // By its text, for its cache may have had to make room.
      this.recall(before);
      throw error;
    }
  }

  /**
   * Answer a question (System One form) about the prefilled text.
   * @param {unknown} question
   * @param {Options} options
   * @param {() => boolean} aborted
   * @returns {Promise<Scored>}
   */
  async score(question, options, aborted) {
    // It is the only one: nobody counts.
    const plan = located(
      () => this.#plan(parseList([question]), options),
      (loc, message) => [loc.slice(1), message],
    );
    const done = await this.#score(plan, () => {}, aborted);
    return { ...done.answers[0], tokens: done.tokens_run, ms: done.ms };
  }

  /**
   * Answer many questions about the prefilled text, in packed runs.
   * @param {unknown} questions a list of them in the System One form
   * @param {Options} options
   * @param {(index: number, answer: Ordered) => void} onAnswer told each answer as soon as its last order is read
   * @param {() => boolean} aborted
   * @returns {Promise<ScoredAll>}
   */
  async scoreAll(questions, options, onAnswer, aborted) {
    const plan = located(
      () => this.#plan(parseList(questions), options),
      (loc, message) => [loc, loc.length > 0 ? `Question ${loc[0]}: ${message}` : message],
    );
    return this.#score(plan, onAnswer, aborted);
  }

  /**
   * How to ask, and what to read; the errors of wrong options come from here.
   * @param {readonly Question[]} questions
   * @param {Options} options
   * @throws {InvalidQuestionError} `data.loc` starts with the question's index
   */
  #plan(questions, options) {
    const how = resolve(this.manifest, this.info.device, options);
    this.calibrator.require(how);
    const asked = questions.map((question, index) => {
      this.#checkLabels(question, how, [index]);
      return open(question, index, how);
    });
    return { how, asked };
  }

  /**
   * @param {Question} question
   * @param {Asking} how
   * @param {(string | number)[]} loc of the question
   * @throws {InvalidQuestionError} it has more options than this bundle can list
   */
  #checkLabels({ criterion }, { readout }, loc) {
    if (readout !== "labels") return;
    located(
      () => this.prompt.labelIds(criterion),
      (_, message) => [[...loc, "criteria"], message],
    );
  }

  /**
   * Answer what was planned.
   * @param {{how: Asking, asked: Open[]}} plan
   * @param {(index: number, answer: Ordered) => void} onAnswer
   * @param {() => boolean} aborted
   * @returns {Promise<ScoredAll>}
   */
  async #score({ how, asked }, onAnswer, aborted) {
    const began = performance.now();
    const state = await this.#current(aborted);
    const answers = /** @type {Ordered[]} */ (new Array(asked.length));
    const take = (/** @type {Open} */ one, /** @type {number[]} */ reading) => {
      one.readings.push(reading);
      if (!isDone(one)) return;
      answers[one.index] = this.#answer(state, one, how);
      onAnswer(one.index, answers[one.index]);
    };
    let total = await this.#round(state, asked, 0, how, take, aborted);
    const left = asked.filter((one) => !isDone(one));
    if (left.length > 0) {
      await turn();
      total = sum(total, await this.#round(state, left, 1, how, take, aborted));
    }
    const ms = performance.now() - began;
    return { answers, tokens_run: total.tokens, tokens_saved: total.saved, runs: total.runs, ms };
  }

  /**
   * Read one round of the orders of some questions, against blank evidence where that is wanted.
   * @param {State} state
   * @param {readonly Open[]} asked
   * @param {0 | 1} number
   * @param {Asking} how
   * @param {(one: Open, reading: number[]) => void} take
   * @param {() => boolean} aborted
   */
  async #round(state, asked, number, how, take, aborted) {
    const units = asked.flatMap((one) =>
      one.rounds[number].map((shift) => ({ one, question: one.question, shift })),
    );
    const wanted = this.#readout(how.readout).needsBlank || how.prior === "content-free";
    const blank = wanted ? await this.#blankOf(units, how, aborted) : null;
    const compare = (/** @type {number} */ i, /** @type {number[]} */ reading) =>
      take(units[i].one, blank ? gain(reading, blank.readings[i]) : reading);
    const { totals } = await this.#read(state, units, how, aborted, compare);
    return sum(totals, blank?.totals ?? NOTHING);
  }

  /**
   * The readings of questions and orders under blank evidence; those that are not kept are computed now.
   * @param {readonly Pair[]} pairs
   * @param {Asking} how
   * @param {() => boolean} aborted
   */
  async #blankOf(pairs, how, aborted) {
    const readings = [];
    let totals = NOTHING;
    for (const { question, shift } of pairs) {
      const kept = this.blankReadings.get(keyOf(question, how.readout));
      let reading = kept.get(shift);
      if (!reading) {
        // In a run of its own: what is kept must not depend on what was asked along with it, not by the last bit.
        await turn();
        const one = await this.#read(await this.#blankState(), [{ question, shift }], how, aborted);
        [reading] = one.readings;
        kept.set(shift, reading);
        totals = sum(totals, one.totals);
      }
      readings.push(reading);
    }
    return { readings, totals };
  }

  /**
   * The readings of questions, each in one order, after a state; `take` is told each one as its run ends.
   * @param {State} state
   * @param {readonly Pair[]} pairs
   * @param {Asking} how
   * @param {() => boolean} aborted
   * @param {(index: number, reading: number[]) => void} [take]
   */
  async #read(state, pairs, how, aborted, take) {
    const readout = this.#readout(how.readout);
    const owners = /** @type {number[]} */ ([]);
    const counts = /** @type {number[]} */ ([]);
    const suffixes = pairs.flatMap(({ question, shift }, i) => {
      const own = readout.suffixes(state.text, state.ids, question, shift);
      owners.push(...own.map(() => i));
      counts.push(own.length);
      return own;
    });
    const found = pairs.map(() => /** @type {Float32Array[]} */ ([]));
    const readings = /** @type {number[][]} */ ([]);
    const totals = await this.engine.score(state.cache, suffixes, {
      budget: how.runTokens,
      aborted,
      onLogits: (suffix, values) => {
        if (!values.every(Number.isFinite)) throw this.#distrust(state, values);
        // Results come in the order of the suffixes, so readings do in that of the pairs.
        const i = owners[suffix];
        found[i].push(values);
        if (found[i].length < counts[i]) return;
        readings.push(readout.reading(pairs[i].question, pairs[i].shift, found[i]));
        take?.(i, readings[i]);
      },
    });
    return { readings, totals };
  }

  /**
   * The error for numbers that are none. What they were computed from may be as wrong, so it is computed again.
   * @param {State} state
   * @param {Float32Array} values
   */
  #distrust(state, values) {
    for (const cache of [this.head, this.blank?.cache, state.cache]) cache?.release();
    this.states.remove(state);
    this.head = this.blank = null;
    if (this.state === state) [this.state, this.dropped] = [null, state.text];
    const value = String(values.find((one) => !Number.isFinite(one)));
    return new IntegrityError(`the runtime gave ${value} where a number was due`, { value });
  }

  /**
   * The answer of a question that is read, and what was done about its prior.
   * @param {State} state
   * @param {Open} one
   * @param {Asking} how
   * @returns {Ordered}
   */
  #answer(state, { question, rounds: [first, second], readings }, how) {
    const answer = this.#pooled(this.#readout(how.readout), question, readings);
    if (how.prior === null) return this.#calibrated(how, question, answer);
    if (how.prior === "content-free")
      return { ...answer, prior: { kind: how.prior, count: 1, applied: true } };
    // By the number of orders too: what a place adds is part of the prior.
    const batch = this.priors.get(keyOf(question, first.length + second.length));
    batch.add(state.text, answer.logits);
    const prior = { kind: how.prior, count: batch.count, applied: batch.applies };
    return { ...answer, ...read(question, batch.correct(answer.logits)), prior };
  }

  /**
   * The answer from the readings of all orders, which says where it is an approximation.
   * @param {import("./readouts.js").Readout} readout
   * @param {Question} question
   * @param {number[][]} readings
   * @returns {Ordered}
   */
  #pooled(readout, question, readings) {
    const answer = readout.answer(question, readings);
    return this.shallow ? { ...answer, x_shallow: this.shallow } : answer;
  }

  /**
   * The answer, calibrated where there is a calibration for it.
   * @param {Asking} how
   * @param {Question} question
   * @param {Ordered} answer
   * @returns {Ordered}
   */
  #calibrated(how, question, answer) {
    return { ...answer, ...this.calibrator.apply(how, question, answer.logits) };
  }

  /** @param {string} name */
  #readout(name) {
    return /** @type {import("./readouts.js").Readout} */ (this.readouts.get(name));
  }

  async #blankState() {
    this.blank ??= await this.#prefilled(BLANK);
    return this.blank;
  }

  /** @param {() => boolean} aborted */
  async #current(aborted) {
    if (this.dropped !== null) await this.prefill(this.dropped, aborted);
    if (!this.state) throw new InvalidStateError("nothing is prefilled: call prefill(state) first");
    return this.state;
  }

  /**
   * Answer a question in the order given from whole prompts, without any cache: the plain path that others are compared
   * with.
   * @param {string} state
   * @param {unknown} question
   * @param {string} readout
   * @param {() => boolean} aborted asked before each prompt
   * @returns {Promise<Scored>}
   */
  async scoreFull(state, question, readout, aborted) {
    const began = performance.now();
    const parsed = parseQuestion(question);
    const orderings = readout === "labels" ? 1 : undefined;
    const how = resolve(this.manifest, this.info.device, { readout, orderings });
    this.#checkLabels(parsed, how, []);
    const used = this.#readout(how.readout);
    const { reading, tokens } = await this.#fullReading(used, state, parsed, aborted);
    const blank = used.needsBlank ? await this.#fullReading(used, BLANK, parsed, aborted) : null;
    const plain = this.#pooled(used, parsed, [blank ? gain(reading, blank.reading) : reading]);
    const answer = this.#calibrated(how, parsed, plain);
    return { ...answer, tokens: tokens + (blank?.tokens ?? 0), ms: performance.now() - began };
  }

  /**
   * A question's reading from whole prompts, and the tokens that took.
   * @param {import("./readouts.js").Readout} readout
   * @param {string} state
   * @param {Question} question
   * @param {() => boolean} aborted
   */
  async #fullReading(readout, state, question, aborted) {
    const prompts = readout.suffixes(state, [], question, 0);
    const hidden = /** @type {const} */ ([
      this.anchor,
      this.prompt.statePrefixIds(this.tokenizer, state).length,
    ]);
    const found = [];
    for (const prompt of prompts) {
      await turn();
      if (aborted()) throw new AbortedError("scoring was aborted");
      found.push(await this.engine.scoreFull({ ...prompt, hidden }));
    }
    const tokens = prompts.reduce((total, prompt) => total + suffixLength(prompt), 0);
    return { reading: readout.reading(question, 0, found), tokens };
  }
}

/**
 * A question before its first round.
 * @param {Question} question
 * @param {number} index
 * @param {Asking} how
 * @returns {Open}
 */
function open(question, index, how) {
  const shifts = shiftsOf(how, question, index);
  // A score's expected level would move with the orders left out.
  const early = how.earlyStop && question.kind !== "score";
  return { index, question, rounds: early ? rounds(shifts) : [shifts, []], readings: [] };
}

/**
 * Whether all orders are read, or the first round decides.
 * @param {Open} one
 */
function isDone({ rounds: [first, second], readings }) {
  const orders = first.length + second.length;
  return readings.length === orders || (readings.length === first.length && certified(readings, orders));
}

/**
 * What tells a question from others in one use of it.
 * @param {Question} question
 * @param {string | number} use
 */
function keyOf({ kind, names, criterion }, use) {
  return JSON.stringify([use, kind, names, criterion.text, criterion.options]);
}

/**
 * @param {Totals} one
 * @param {Totals} other
 * @returns {Totals}
 */
function sum(one, other) {
  return {
    tokens: one.tokens + other.tokens,
    saved: one.saved + other.saved,
    runs: one.runs + other.runs,
  };
}

/**
 * Questions in a list; an error's `data.loc` starts with the index.
 * @param {unknown} wire
 */
function parseList(wire) {
  if (!Array.isArray(wire))
    throw new InvalidQuestionError("Questions must be a list.", { value: wire ?? null, loc: [] });
  return Array.from(wire, (question, index) =>
    located(
      () => parseQuestion(question),
      (loc, message) => [[index, ...loc], message],
    ),
  );
}

/**
 * What `work` gives. An invalid question's error says where it is by another path, or in other words.
 * @template T
 * @param {() => T} work
 * @param {(loc: (string | number)[], message: string) => [loc: (string | number)[], message: string]} change
 */
function located(work, change) {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof InvalidQuestionError)) throw error;
    const [loc, message] = change(/** @type {(string | number)[]} */ (error.data.loc), error.message);
    throw new InvalidQuestionError(message, { ...error.data, loc });
  }
}

/**
 * A calibration from its address; what is none stays as it is.
 * @param {unknown} given
 * @param {AbortSignal} signal
 */
async function readCalibration(given, signal) {
  if (typeof given !== "string") return given;
  const text = await get(new URL(given), { signal });
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new UnsupportedError(`${given} is not JSON: ${error}`, { url: given });
  }
}

/**
 * @param {Store} store
 * @param {string} spec JSON
 * @param {AbortSignal} signal
 * @returns {Promise<import("./prompt.js").Tokenizer>}
 */
async function makeTokenizer(store, spec, signal) {
  const { Tokenizer } = await importModule(store.url("vendor/tokenizers/tokenizers.min.mjs"), signal);
  const tokenizer = new Tokenizer(JSON.parse(spec), {});
  return { encode: (text) => tokenizer.encode(text, { add_special_tokens: false }).ids };
}
