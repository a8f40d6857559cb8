// What the tabs share: one engine, the questions, the text, how answers are read, and where to say things. Knows
// neither the tabs nor how anything looks.
//
// Nothing of this is stored: it is gone when the page is.

import { unlessAborted } from "../abort.js";
import { createEngine } from "../index.js";
import { errorCode } from "./failure.js";
import { keepRuntime } from "./offline.js";
import { READINGS, readingFor } from "./readings.js";

/** @typedef {import("../index.js").Engine} Engine */
/** @typedef {import("../index.js").EngineOptions} EngineOptions */
/** @typedef {import("../index.js").Info} Info */
/** @typedef {import("../index.js").Progress} Progress */
/** @typedef {import("../index.js").Question} Question */
/** @typedef {import("../index.js").ScoreAllOptions} ScoreAllOptions */
/** @typedef {import("./readings.js").Reading} Reading */
/** @typedef {import("./notices.js").AlertKind} AlertKind */
/**
 * @typedef {{status: "idle"}
 *   | {status: "loading", progress: Progress | null}
 *   | {status: "ready", info: Info}
 *   | {status: "stopped" | "failed", error: unknown}} Loading
 */

/**
 * Its events say that something changed, and not how: `questions`, `text`, `reading`, and `loading` (of the model).
 */
export class Workbench extends EventTarget {
  #options;
  #notices;
  /** @type {Promise<Engine> | null} */
  #engine = null;
  /** @type {Engine | null} */
  #loaded = null;
  /** @type {AbortController | null} */
  #stop = null;
  /** Whether anybody waits for the load under way and so reports its failure. */
  #awaited = false;
  /** @type {Record<string, Question>} */
  #questions = {};
  #text = "";
  /** @type {Reading | null} */
  #reading = null;
  /** The end of what needs the engine alone; null while nothing does. @type {Promise<void> | null} */
  #alone = null;

  /**
   * @param {EngineOptions} options of the engine
   * @param {import("./notices.js").Notices} notices
   */
  constructor(options, notices) {
    super();
    this.#options = options;
    this.#notices = notices;
    /** @type {Loading} */
    this.loading = { status: "idle" };
  }

  /**
   * The engine, loaded once; a load that failed is forgotten, so that the next call tries again. Who calls this says
   * what went wrong.
   * @returns {Promise<Engine>}
   */
  engine() {
    this.#awaited = true;
    return this.#load();
  }

  /** Loads the model before anybody asks for an answer; what goes wrong is shown, unless somebody waits for it by then. */
  async preload() {
    this.#awaited = false;
    try {
      await this.#load();
    } catch (error) {
      if (errorCode(error) !== "ABORTED" && !this.#awaited) this.alert("load", error, () => this.preload());
    }
  }

  stopLoading() {
    this.#stop?.abort();
  }

  /** Gives up an engine whose device is lost for good: the next call of `engine` loads anew. */
  discardEngine() {
    this.#loaded?.close();
    this.#engine = this.#loaded = null;
    this.#tell({ status: "failed", error: null });
  }

  /**
   * Does what needs the engine alone, once nothing else does: the rows of a table, or what is measured, which asks them
   * to wait, as it times the engine and empties its caches. Single questions may still come in between.
   * @template T
   * @param {() => Promise<T>} work
   * @param {AbortSignal} signal ends the waiting
   * @param {() => void} onWait told when it has to wait
   * @returns {Promise<T>}
   */
  async alone(work, signal, onWait) {
    if (this.#alone) onWait();
    while (this.#alone) await unlessAborted(this.#alone, signal);
    const done = work();
    const end = () => {
      this.#alone = null;
    };
    this.#alone = done.then(end, end);
    return done;
  }

  /** @returns {Info | null} of the engine, once it is loaded */
  get info() {
    return this.#loaded?.info ?? null;
  }

  #load() {
    this.#engine ??= this.#start();
    return this.#engine;
  }

  async #start() {
    this.#stop = new AbortController();
    this.#tell({ status: "loading", progress: null });
    try {
      this.#loaded = await this.#create(this.#stop.signal);
      const { info } = this.#loaded;
      keepRuntime(info.ort.build);
      this.#tell({ status: "ready", info });
      return this.#loaded;
    } catch (error) {
      this.#engine = null;
      this.#tell({ status: errorCode(error) === "ABORTED" ? "stopped" : "failed", error });
      throw error;
    } finally {
      this.#stop = null;
    }
  }

  /**
   * An engine that keeps its weights, or one that does not where the browser has no room for them.
   * @param {AbortSignal} signal
   */
  async #create(signal) {
    /** @type {EngineOptions} */
    const options = {
      ...this.#options,
      signal,
      onProgress: (progress) => this.#tell({ status: "loading", progress }),
    };
    try {
      return await createEngine(options);
    } catch (error) {
      if (errorCode(error) !== "QUOTA") throw error;
      return createEngine({ ...options, keepWeights: false });
    }
  }

  /** @param {Loading} loading */
  #tell(loading) {
    this.loading = loading;
    this.dispatchEvent(new Event("loading"));
  }

  /**
   * By id, in the System One form and in the order in which they are asked. They may be half written: `parseQuestions`
   * of `../questions.js` says whether they can be asked.
   * @returns {Readonly<Record<string, Question>>}
   */
  get questions() {
    return this.#questions;
  }

  /** @param {Record<string, Question>} questions */
  setQuestions(questions) {
    if (JSON.stringify(questions) === JSON.stringify(this.#questions)) return;
    this.#questions = questions;
    this.dispatchEvent(new Event("questions"));
  }

  get text() {
    return this.#text;
  }

  set text(text) {
    if (text === this.#text) return;
    this.#text = text;
    this.dispatchEvent(new Event("text"));
  }

  /** @returns {Reading | null} how answers are read, null until somebody chooses: the bundle's own way is meant then */
  get reading() {
    return this.#reading;
  }

  set reading(reading) {
    if (reading === this.#reading) return;
    this.#reading = reading;
    this.dispatchEvent(new Event("reading"));
  }

  /**
   * The way of reading, as `engine.decide` takes it.
   * @param {Info} info of the engine
   * @returns {ScoreAllOptions}
   */
  askOptions(info) {
    return { ...READINGS[readingFor(info, this.#reading)] };
  }

  /** @param {string} text said by a screen reader; for starts and ends, not for every step */
  announce(text) {
    this.#notices.announce(text);
  }

  /**
   * Says above the open tab what failed.
   * @param {AlertKind} kind
   * @param {unknown} error
   * @param {() => void} [retry]
   */
  alert(kind, error, retry) {
    this.#notices.alert(kind, error, retry);
  }

  clearAlerts() {
    this.#notices.clearAlerts();
  }
}
