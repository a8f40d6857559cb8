// The table of the workbench: its file, what is asked of it, the run and its results. What the tabs Table and Trust share.
// Knows no DOM.

import { parseQuestions } from "../../questions.js";
import { errorCode } from "../failure.js";
import { READINGS, readingFor } from "../readings.js";
import { S } from "../strings.js";
import { KeptRunError, OtherModelError } from "./errors.js";
import * as kept from "./kept.js";
import { readFile } from "./reader.js";
import { Results } from "./results.js";
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
  /** Of what is under way. */
  #stop = new AbortController();
  /** @type {Plan | null} */
  #plan = null;
  #engine = "";
  /** @type {Promise<void> | null} */
  #restored = null;
  /** Lets another page keep a run; null while this one has no claim. @type {(() => void) | null} */
  #letGo = null;
  /** Whether it is being found out if a run may begin. */
  #starting = false;
  /** Answered rows that a download has: of the run, and whether that is all of the run that the browser holds. */
  #saved = 0;
  #heldIsSaved = false;

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
    const signal = this.#begin();
    this.#become("reading");
    try {
      this.#take(await readFile(file, name, signal), file);
    } catch (error) {
      // Another file has taken its place meanwhile.
      if (signal.aborted) return;
      this.#settle();
      throw error;
    }
    this.#settle();
  }

  /** @param {Read} read @param {Blob} file */
  #take(read, file) {
    this.read = read;
    this.#file = file;
    this.results = null;
    this.#plan = null;
    this.#saved = 0;
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
    const [read, file] = [this.read, this.#file];
    if (!read || !file || this.#busy) return;
    const questions = Object.entries(this.#workbench.questions);
    const table = new Table(read, this.text, this.keep);
    const results = new Results(table, parseQuestions(new Map(questions)));
    if (keep) await this.#beSureOfNone();
    // Another file has taken the place of this one meanwhile.
    if (this.read !== read) return;
    this.results = results;
    const { reading } = this.#workbench;
    const about = { text: this.text, keep: this.keep, questions, reading };
    const plan = (this.#plan = { id: crypto.randomUUID(), file, name: read.name, ...about });
    this.#engine = "";
    this.#saved = 0;
    this.notKept = null;
    await this.#run(async () => {
      await this.forget();
      if (keep) await this.#keep(plan);
    });
  }

  /**
   * A run that another page began, and that is nobody's now, is not deleted before this page has told of it.
   * @throws {KeptRunError} there is one
   */
  async #beSureOfNone() {
    this.#starting = true;
    try {
      // What it could not take up it has said itself.
      await this.#restored?.catch(() => null);
      const found = this.holds === null && (await this.#taken(0));
      if (!found) return;
      this.#become(this.status);
      throw new KeptRunError(S.table.keptRun(found.plan.name));
    } finally {
      this.#starting = false;
    }
  }

  /** @param {Plan} plan */
  async #keep(plan) {
    try {
      if (!(await this.#claim(0))) throw new KeptRunError(S.table.keptElsewhere);
      await kept.begin(plan);
      this.holds = plan.name;
      this.#heldIsSaved = false;
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
    if (this.status === "paused") await this.#run(async () => {});
  }

  /** @param {() => Promise<void>} prepare */
  async #run(prepare) {
    const signal = this.#begin();
    this.waits = false;
    // From the first moment, so that nothing starts it twice.
    this.#become("running");
    const onWait = () => {
      this.waits = true;
      this.#become("running");
    };
    try {
      await prepare();
      signal.throwIfAborted();
      await this.#workbench.alone(() => this.#answer(signal), signal, onWait);
    } catch (error) {
      if (errorCode(error) === "DEVICE_LOST") this.#workbench.discardEngine();
      if (!signal.aborted && errorCode(error) !== "ABORTED") throw error;
    } finally {
      // A file that was opened since has taken the place of this run.
      if (signal === this.#stop.signal) this.#settle();
    }
  }

  /** @param {AbortSignal} signal */
  async #answer(signal) {
    this.waits = false;
    const results = /** @type {Results} */ (this.results);
    const plan = /** @type {Plan} */ (this.#plan);
    const engine = await this.#workbench.engine();
    signal.throwIfAborted();
    const options = { ...READINGS[readingFor(engine.info, plan.reading)] };
    const identity = identityOf(engine, options);
    this.#require(identity);
    this.stretch = { rows: results.answered + results.rejected, began: performance.now() };
    await answerRows(engine, results, {
      questions: new Map(plan.questions),
      options,
      signal,
      onRow: (row) => this.dispatchEvent(new CustomEvent("rows", { detail: row })),
      onBlock: (done) => this.#store({ run: plan.id, engine: identity, ...done }),
    });
  }

  /**
   * Rows of one run are answered by one model on one device.
   * @param {string} identity
   */
  #require(identity) {
    if (this.#engine !== "" && this.#engine !== identity) {
      throw new OtherModelError(S.table.otherModel, { before: this.#engine, now: identity });
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
      if (this.#plan?.id === block.run) this.notKept = error;
      await this.forget();
    }
  }

  pause() {
    if (this.status === "running") this.#stop.abort();
  }

  /** Forgets the answers, not the file. */
  async discard() {
    this.#begin();
    this.results = null;
    this.#plan = null;
    this.#saved = 0;
    this.#settle();
    await this.forget();
  }

  /** @returns {number} answered rows of the run that no download has */
  get unsaved() {
    return this.results ? this.results.answered - this.#saved : 0;
  }

  /** @returns {string | null} the file's name of a run that the browser holds, with rows that no download has, beside a new table */
  get unsavedElsewhere() {
    return this.results || this.#heldIsSaved ? null : this.holds;
  }

  /** @returns {boolean} whether something would be lost if the page were left */
  get leavingLoses() {
    return this.status === "running" || (this.unsaved > 0 && this.holds === null);
  }

  /**
   * Says that a download has the first so many answered rows, by when they were answered.
   * @param {Results} results
   * @param {number} answered
   */
  saved(results, answered) {
    if (results !== this.results) return;
    this.#saved = answered;
    this.#heldIsSaved = this.holds !== null && results.open === 0 && this.unsaved === 0;
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
    // A file that was opened meanwhile stays; what the browser holds can still be deleted.
    if (!found || this.status !== "empty") return this.#become(this.status);
    const { plan, blocks } = found;
    const signal = this.#begin();
    this.#become("reading");
    try {
      const read = await readFile(plan.file, plan.name, signal);
      const table = new Table(read, plan.text, plan.keep);
      const results = new Results(table, parseQuestions(new Map(plan.questions)));
      let engine = "";
      for await (const block of blocks) {
        signal.throwIfAborted();
        restore(results, block);
        engine = block.engine;
      }
      signal.throwIfAborted();
      this.#take(read, plan.file);
      Object.assign(this, { text: plan.text, keep: plan.keep, results });
      this.#plan = plan;
      this.#engine = engine;
    } catch (error) {
      if (signal.aborted) return;
      this.#settle();
      throw error;
    }
    this.#settle();
  }

  /** @returns {boolean} whether a file is read, or rows are answered or about to be */
  get #busy() {
    return this.#starting || this.status === "reading" || this.status === "running";
  }

  /**
   * What is under way gives way to what begins, and ends without a word.
   * @returns {AbortSignal} of what begins
   */
  #begin() {
    this.#stop.abort();
    this.#stop = new AbortController();
    return this.#stop.signal;
  }

  /** Becomes what is there when nothing is under way. */
  #settle() {
    const { read, results } = this;
    if (!read) this.#become("empty");
    else if (!results) this.#become("ready");
    else this.#become(results.open === 0 ? "done" : "paused");
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
