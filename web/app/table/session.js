// The table of the workbench: its file, what is asked of it, the run and its results. What the tabs Table and Trust share.
// Knows no DOM.

import { parseQuestions } from "../../questions.js";
import { errorCode } from "../failure.js";
import { READINGS, readingFor } from "../readings.js";
import { KeptRunError, OtherModelError } from "./errors.js";
import * as kept from "./kept.js";
import { readFile } from "./reader.js";
import { OPEN, Results } from "./results.js";
import { answerRows, restore } from "./run.js";
import { Table } from "./table.js";

/** @typedef {import("../../index.js").Question} Wire */
/** @typedef {import("../../index.js").Engine} Engine */
/** @typedef {import("../readings.js").Reading} Reading */
/** @typedef {import("../workbench.js").Workbench} Workbench */
/** @typedef {import("./kept.js").Plan} Plan */
/** @typedef {import("./read.js").Read} Read */
/** @typedef {"empty" | "reading" | "ready" | "running" | "paused" | "done"} Status */

/** Names of columns that are likely to hold the texts, the likeliest first. */
const TEXTS = ["text", "message", "body", "content", "comment", "review", "description", "state"];
/** So many rows are looked at to guess. */
const LOOKED_AT = 100;
/** So long the page before a reload may take to be gone. */
const LEAVING_MS = 2000;

/** @type {WeakMap<Workbench, Session>} */
const sessions = new WeakMap();

/**
 * The one table of a workbench.
 * @param {Workbench} workbench
 */
export function sessionOf(workbench) {
  const found = sessions.get(workbench) ?? new Session(workbench);
  sessions.set(workbench, found);
  return found;
}

/**
 * Its events say that something changed: `status` (of which a new file is one), `rows` (more of them are done) and
 * `columns` (other ones are chosen).
 */
export class Session extends EventTarget {
  #workbench;
  /** @type {Blob | null} */
  #file = null;
  /** @type {AbortController | null} */
  #stop = null;
  /** @type {Plan | null} */
  #plan = null;
  #engine = "";
  /** @type {Promise<void> | null} */
  #restored = null;
  /** Lets another page keep a run; null while this one has no claim. @type {(() => void) | null} */
  #letGo = null;

  /** @param {Workbench} workbench */
  constructor(workbench) {
    super();
    this.#workbench = workbench;
    /** @type {Status} */
    this.status = "empty";
    /** @type {Read | null} */
    this.read = null;
    this.text = "";
    /** @type {readonly string[]} */
    this.keep = [];
    /** @type {Results | null} of the run that was started */
    this.results = null;
    /** @type {unknown} why the browser does not keep the run, though it was asked to */
    this.notKept = null;
    /** The file's name of the run that the browser holds for this page; null where it holds none. @type {string | null} */
    this.holds = null;
    /** Whether another page has the run that the browser holds: then those of this page are not kept. */
    this.elsewhere = false;
    /** Whether the run waits until nobody else needs the engine alone. */
    this.waits = false;
    /** @type {{rows: number, began: number}} when the run last went on, and the rows that were done then */
    this.stretch = { rows: 0, began: 0 };
  }

  /**
   * Reads a file as a table, in the place of the one before; a run of that one is over then.
   * @param {Blob} file
   * @param {string} name
   * @throws {import("./errors.js").InputError} it is no table; the one before stays
   */
  async open(file, name) {
    this.pause();
    const before = this.status === "running" ? "paused" : this.status;
    this.#become("reading");
    this.#stop = new AbortController();
    try {
      this.#take(await readFile(file, name, this.#stop.signal), file);
      this.#become("ready");
    } catch (error) {
      this.#become(before);
      throw error;
    }
  }

  /** @param {Read} read @param {Blob} file */
  #take(read, file) {
    this.read = read;
    this.#file = file;
    this.results = null;
    this.#plan = null;
    this.text = guessText(read);
    const twice = new Set(read.columns.filter((one, i) => read.columns.indexOf(one) !== i));
    this.keep = read.columns.filter((one) => one !== "row" && !twice.has(one));
  }

  /**
   * Chooses columns; a run that is over or paused has its own.
   * @param {string} text
   * @param {readonly string[]} keep in the order of the result
   */
  choose(text, keep) {
    this.text = text;
    this.keep = keep;
    this.dispatchEvent(new Event("columns"));
  }

  /** @returns {ReadonlyMap<string, Wire> | null} what the run asks */
  get questions() {
    return this.#plan && new Map(this.#plan.questions);
  }

  /** @returns {Reading | null} how the run reads answers */
  get reading() {
    return this.#plan?.reading ?? null;
  }

  /** @returns {boolean} whether the workbench's questions are no longer those of the run */
  get outdated() {
    const now = JSON.stringify(Object.entries(this.#workbench.questions));
    return this.#plan !== null && JSON.stringify(this.#plan.questions) !== now;
  }

  /**
   * Starts to answer all rows with the questions of the workbench.
   * @param {boolean} keep whether the browser keeps the run, so that it survives a reload
   * @throws {import("../../errors.js").TypedecideError} what is asked cannot be asked, the browser keeps a run that this
   *   page has not said it would delete, or the model fails
   */
  async start(keep) {
    const read = /** @type {Read} */ (this.read);
    const questions = Object.entries(this.#workbench.questions);
    const table = new Table(read, this.text, this.keep);
    const results = new Results(table, parseQuestions(new Map(questions)));
    if (keep) await this.#beSureOfNone();
    // Another file has taken the place of this one meanwhile.
    if (this.read !== read) return;
    this.results = results;
    const file = /** @type {Blob} */ (this.#file);
    const { reading } = this.#workbench;
    const about = { text: this.text, keep: this.keep, questions, reading };
    this.#plan = { id: crypto.randomUUID(), file, name: read.name, ...about };
    this.#engine = "";
    this.notKept = null;
    await this.forget();
    if (keep) await this.#keep(this.#plan);
    await this.go();
  }

  /**
   * A run that another page began, and that is nobody's now, is not deleted before this page has told of it.
   * @throws {KeptRunError} there is one
   */
  async #beSureOfNone() {
    // What it could not take up it has said itself.
    await this.#restored?.catch(() => null);
    if (this.holds !== null || !(await this.#taken(0))) return;
    this.#become(this.status);
    throw new KeptRunError(`This browser keeps a run of ${this.holds}, which another tab began.`);
  }

  /** @param {Plan} plan */
  async #keep(plan) {
    try {
      if (!(await this.#claim(0))) throw new KeptRunError("Another tab of this page keeps one.");
      await kept.begin(plan);
      this.holds = plan.name;
    } catch (error) {
      this.notKept = error;
      this.#release();
    }
  }

  /**
   * The run that the browser keeps, which this page has from then on.
   * @param {number} ms to wait for another page
   * @returns {ReturnType<typeof kept.load>} null where there is none, or another page has it
   */
  async #taken(ms) {
    if (!(await kept.exists()) || !(await this.#claim(ms))) return null;
    try {
      const found = await kept.load();
      this.holds = found && found.plan.name;
      return found;
    } finally {
      if (this.holds === null) this.#release();
    }
  }

  /** @param {number} ms to wait for another page */
  async #claim(ms) {
    this.#letGo ??= await kept.claim(ms);
    this.elsewhere = this.#letGo === null;
    return !this.elsewhere;
  }

  #release() {
    this.#letGo?.();
    this.#letGo = null;
  }

  /** Goes on where the run was paused; returns when it is paused or done. */
  async go() {
    const results = /** @type {Results} */ (this.results);
    const plan = /** @type {Plan} */ (this.#plan);
    const stop = (this.#stop = new AbortController());
    const onWait = () => {
      this.waits = true;
      this.#become("running");
    };
    this.#become("running");
    try {
      await this.#workbench.alone(() => this.#answer(results, plan, stop.signal), stop.signal, onWait);
    } catch (error) {
      if (errorCode(error) === "DEVICE_LOST") this.#workbench.discardEngine();
      if (!stop.signal.aborted && errorCode(error) !== "ABORTED") throw error;
    } finally {
      this.waits = false;
      // A file that was opened since has taken the place of this run.
      if (this.results === results && this.status === "running")
        this.#become(results.open === 0 ? "done" : "paused");
    }
  }

  /**
   * @param {Results} results
   * @param {Plan} plan
   * @param {AbortSignal} signal
   */
  async #answer(results, plan, signal) {
    this.waits = false;
    const engine = await this.#workbench.engine();
    signal.throwIfAborted();
    const options = { ...READINGS[readingFor(engine.info, plan.reading)] };
    this.#require(identityOf(engine, options));
    this.stretch = { rows: results.answered + results.rejected, began: performance.now() };
    await answerRows(engine, results, {
      questions: new Map(plan.questions),
      options,
      signal,
      onRow: (row) => this.dispatchEvent(new CustomEvent("rows", { detail: row })),
      onBlock: (done) => this.#store({ run: plan.id, engine: this.#engine, ...done }),
    });
  }

  /**
   * Rows of one run are answered by one model on one device.
   * @param {string} identity
   */
  #require(identity) {
    if (this.#engine !== "" && this.#engine !== identity) {
      const message = "The rows that are done were answered by another model, or on another device.";
      throw new OtherModelError(message, { before: this.#engine, now: identity });
    }
    this.#engine = identity;
  }

  /** @param {import("./kept.js").Block} block */
  async #store(block) {
    if (!this.holds) return;
    try {
      await kept.add(block);
    } catch (error) {
      // The run is worth more than its copy.
      this.notKept = error;
      await this.forget();
    }
  }

  pause() {
    this.#stop?.abort();
  }

  /** Forgets the answers, not the file. */
  async discard() {
    this.pause();
    this.results = null;
    this.#plan = null;
    await this.forget();
    this.#become(this.read ? "ready" : "empty");
  }

  /** Deletes what the browser keeps of a run; what is in the page stays. */
  async forget() {
    if (!this.holds) return;
    this.holds = null;
    try {
      await kept.forget();
    } finally {
      this.#release();
    }
    this.dispatchEvent(new Event("status"));
  }

  /** Takes up the run that the browser kept, where there is one and no other page has it; looks once. */
  restore() {
    this.#restored ??= this.#restore();
    return this.#restored;
  }

  async #restore() {
    const found = await this.#taken(LEAVING_MS);
    // A file that was opened meanwhile stays.
    if (!found || this.status !== "empty") return this.#become(this.status);
    const { plan, blocks } = found;
    this.#become("reading");
    this.#stop = new AbortController();
    try {
      this.#take(await readFile(plan.file, plan.name, this.#stop.signal), plan.file);
      this.text = plan.text;
      this.keep = plan.keep;
      const table = new Table(/** @type {Read} */ (this.read), plan.text, plan.keep);
      const results = new Results(table, parseQuestions(new Map(plan.questions)));
      for await (const block of blocks) {
        restore(results, block);
        this.#engine = block.engine;
      }
      this.#plan = plan;
      this.results = results;
      this.#become(results.status.includes(OPEN) ? "paused" : "done");
    } catch (error) {
      this.#become("empty");
      throw error;
    }
  }

  /** @param {Status} status */
  #become(status) {
    this.status = status;
    this.dispatchEvent(new Event("status"));
  }
}

/**
 * The column that is likely to hold the texts: by its name, or else the one with most characters.
 * @param {Read} read
 */
function guessText({ columns, rows }) {
  const named = TEXTS.find((name) => columns.includes(name));
  if (named !== undefined) return named;
  const table = (/** @type {string} */ column) => {
    const place = columns.indexOf(column);
    return rows.slice(0, LOOKED_AT).reduce((sum, { cells }) => {
      const cell = cells instanceof Map ? cells.get(column) : cells[place];
      return sum + (typeof cell === "string" ? cell.length : 0);
    }, 0);
  };
  const lengths = columns.map(table);
  return columns[lengths.indexOf(Math.max(...lengths))] ?? "";
}

/**
 * All that answers depend on besides questions and texts.
 * @param {Engine} engine
 * @param {import("../../index.js").ScoreAllOptions} options
 */
function identityOf({ info }, options) {
  const { model, format, device, shallow, calibration } = info;
  return JSON.stringify({ model, format, device, shallow, calibration, options });
}
