/**
 * Calls to the worker and their answers. A worker that dies, or whose GPU device is lost, is replaced: a new one loads
 * the model again, is told which text calls are about, and does what was not done.
 *
 * Knows calls by name, and of what they do only which text they leave behind.
 */

import { AbortedError, BundleError, DeviceLostError, InvalidRequestError, reviveError } from "./errors.js";

/** @typedef {import("./types.js").Info} Info */
/** @typedef {import("./types.js").Progress} Progress */

/** Milliseconds that a worker's script may take to come: a server may take the request for it and never answer. */
const START_MS = 30_000;

/**
 * @typedef {object} Call
 * @property {string} op
 * @property {unknown[]} args copies of the caller's own
 * @property {(value: unknown) => void} resolve
 * @property {(error: Error) => void} reject
 * @property {(progress: Progress) => void} [onProgress]
 * @property {boolean} [aborted] whether its caller wants it no more
 * @property {boolean} [retried] whether it was under way when a worker went
 */

/** What callers know the arguments of calls as. @type {Readonly<Record<string, readonly string[]>>} */
const NAMES = Object.freeze({
  load: ["options"],
  prefill: ["state"],
  score: ["question", "options"],
  scoreAll: ["questions", "options"],
  decide: ["state", "questions", "options"],
  scoreFull: ["state", "question", "readout"],
});

export class Channel {
  /** @type {Worker | null} null between one that went and the next */
  #worker = null;
  /** Whether the worker has loaded the model, so that calls go to it as they come. */
  #ready = false;
  /** Calls in the order they were made. @type {Map<number, Call>} */
  #calls = new Map();
  /** Those that put a new worker in place, apart from those of callers. @type {Map<number, Call>} */
  #own = new Map();
  #next = 1;
  /** The first call, once it was answered: what a new worker begins with. @type {Call | null} */
  #load = null;
  /** The text read last. @type {string | null} */
  #text = null;
  /** @type {Error | null} */
  #closed = null;
  #make;
  #onInfo;

  /**
   * @param {() => Worker} make starts a worker
   * @param {(info: Info) => void} onInfo told what runs, at first and after each restart
   */
  constructor(make, onInfo) {
    this.#make = make;
    this.#onInfo = onInfo;
    this.#worker = this.#start();
    this.#ready = true;
  }

  /**
   * @param {string} op the first one is `load`
   * @param {unknown[]} args
   * @param {AbortSignal} [signal]
   * @param {(progress: Progress) => void} [onProgress]
   * @returns {Promise<unknown>}
   * @throws {InvalidRequestError} an argument holds what cannot be sent to a worker; `data.faults` says where
   */
  call(op, args, signal, onProgress) {
    return new Promise((resolve, reject) => {
      if (this.#closed) return reject(this.#closed);
      if (signal?.aborted) return reject(new AbortedError(`${op} was aborted before it began`));
      const own = copied(op, args);
      const id = this.#next++;
      const abort = () => this.#abort(id);
      signal?.addEventListener("abort", abort, { once: true });
      const settle = () => signal?.removeEventListener("abort", abort);
      const call = {
        op,
        args: own,
        resolve: (/** @type {unknown} */ value) => (settle(), resolve(value)),
        reject: (/** @type {Error} */ error) => (settle(), reject(error)),
        onProgress,
      };
      this.#calls.set(id, call);
      if (this.#ready) this.#worker?.postMessage({ id, op, args: own });
      else if (!this.#worker) this.#restart();
    });
  }

  /** @param {Error} reason what the calls under way, and later ones, are rejected with */
  close(reason) {
    this.#closed ??= reason;
    this.#stop();
    this.#rejectAll(this.#closed);
  }

  /** @param {number} id */
  #abort(id) {
    const call = this.#calls.get(id);
    if (!call) return;
    // The worker that is told may be one that is gone: its successor does not get the call.
    call.aborted = true;
    if (this.#ready) this.#worker?.postMessage({ abort: id });
    // One that waits for a restart has not reached a worker.
    else this.#rejectAborted();
  }

  #rejectAborted() {
    for (const [id, { aborted, reject }] of this.#calls) {
      if (!aborted) continue;
      this.#take(id);
      reject(new AbortedError("aborted while the engine was restarted"));
    }
  }

  #start() {
    const worker = this.#make();
    const late = setTimeout(
      () => this.#scriptless(worker, `its script did not come within ${START_MS / 1000} seconds`),
      START_MS,
    );
    worker.addEventListener("message", ({ data }) => {
      clearTimeout(late);
      if (worker !== this.#worker) return;
      if ("alive" in data) this.#watch(worker, data.alive);
      else this.#receive(data);
    });
    worker.addEventListener("error", (event) => {
      clearTimeout(late);
      event.preventDefault();
      if (event.message) return this.#lost(worker, event.message);
      // A script that cannot be loaded says nothing more.
      this.#scriptless(worker, "its script cannot be loaded; option `worker` says where it is");
    });
    return worker;
  }

  /**
   * @param {Worker} worker whose script is not there
   * @param {string} reason
   */
  #scriptless(worker, reason) {
    if (worker === this.#worker) this.#failed(new BundleError(`the worker stopped: ${reason}`, { reason }));
  }

  /**
   * A worker may end without any event. Its lock tells: it is free once the worker is gone.
   * @param {Worker} worker
   * @param {string} lock
   */
  #watch(worker, lock) {
    navigator.locks.request(lock, () => this.#lost(worker, "it ended"));
  }

  /**
   * The worker went, or its device.
   * @param {Worker | null} worker
   * @param {string} reason
   */
  #lost(worker, reason) {
    if (this.#closed || worker !== this.#worker) return;
    const error = new DeviceLostError(`the worker stopped: ${reason}`, { reason });
    const [oldest] = this.#calls;
    this.#rejectAborted();
    if (!this.#load || this.#own.size > 0) return this.#failed(error);
    this.#stop();
    if (oldest) {
      const [id, call] = oldest;
      // A call that has now ended two workers would end the next one too.
      if (call.retried) this.#take(id)?.reject(error);
      call.retried = true;
    }
    // Where no call waits, the next one starts another.
    if (this.#calls.size > 0) this.#restart();
  }

  /**
   * A worker that was to be put in place went. Nothing is left to wait for; once there was a load, a later call tries
   * again.
   * @param {Error} error
   */
  #failed(error) {
    if (!this.#load) return this.close(error);
    this.#stop();
    this.#rejectAll(error);
  }

  #stop() {
    this.#worker?.terminate();
    this.#worker = null;
    this.#ready = false;
  }

  /** A new worker that stands where the one before stood, and then gets the calls that wait. */
  async #restart() {
    const load = /** @type {Call} */ (this.#load);
    /** @type {Worker | null} */
    let worker = null;
    try {
      worker = this.#worker = this.#start();
      this.#onInfo(/** @type {Info} */ (await this.#begin("load", load.args, load.onProgress)));
      // Whichever call comes first: the text is read again once one is about it.
      if (this.#text !== null) await this.#begin("recall", [this.#text]);
      if (worker !== this.#worker) return;
      for (const [id, { op, args }] of this.#calls) worker.postMessage({ id, op, args });
      this.#ready = true;
    } catch (error) {
      if (worker === this.#worker) this.#failed(/** @type {Error} */ (error));
    }
  }

  /**
   * @param {string} op
   * @param {unknown[]} args
   * @param {(progress: Progress) => void} [onProgress]
   * @returns {Promise<unknown>}
   */
  #begin(op, args, onProgress) {
    return new Promise((resolve, reject) => {
      const id = this.#next++;
      this.#own.set(id, { op, args, resolve, reject, onProgress });
      this.#worker?.postMessage({ id, op, args });
    });
  }

  /** @param {{id: number, progress?: Progress, result?: unknown, error?: import("./errors.js").PlainError}} message */
  #receive({ id, progress, result, error }) {
    const own = this.#own.get(id);
    const call = own ?? this.#calls.get(id);
    if (!call) return;
    if (progress) return call.onProgress?.(progress);
    if (error?.code === DeviceLostError.code && this.#load && !own) {
      return this.#lost(this.#worker, error.message);
    }
    this.#take(id);
    if (error) return call.reject(reviveError(error));
    if (!own) this.#learn(call, result);
    call.resolve(result);
  }

  /**
   * What a new worker would have to know.
   * @param {Call} call
   * @param {unknown} result
   */
  #learn(call, result) {
    const { op, args } = call;
    if (op === "load") {
      this.#load = call;
      this.#onInfo(/** @type {Info} */ (result));
    }
    if (op === "prefill" || op === "decide") this.#text = /** @type {string} */ (args[0]);
    if (op === "release") this.#text = null;
  }

  /** @param {number} id */
  #take(id) {
    const call = this.#calls.get(id);
    this.#calls.delete(id);
    this.#own.delete(id);
    return call;
  }

  /** @param {Error} error */
  #rejectAll(error) {
    const calls = [...this.#own.values(), ...this.#calls.values()];
    this.#own.clear();
    this.#calls.clear();
    for (const { reject } of calls) reject(error);
  }
}

/**
 * A call's arguments, to be sent now and perhaps again: what their owner does with them later changes nothing.
 * @param {string} op
 * @param {unknown[]} args
 * @returns {unknown[]}
 */
function copied(op, args) {
  try {
    return structuredClone(args);
  } catch (error) {
    const [at, ...rest] = uncloneable(args, new Set());
    const loc = [NAMES[op][Number(at)], ...rest];
    const message = `${loc.join(".")} cannot be sent to the worker: give data, no function, DOM node or proxy (${error})`;
    throw new InvalidRequestError(message, { faults: [{ loc, msg: message, type: "value_error" }] });
  }
}

/**
 * The path to the first part of a value that cannot be copied; empty where that is the value itself.
 * @param {unknown} value
 * @param {Set<unknown>} above what it is a part of
 * @returns {(string | number)[]}
 */
function uncloneable(value, above) {
  if (typeof value !== "object" || value === null) return [];
  const here = new Set([...above, value]);
  const keys = value instanceof Map ? [...value.keys()] : Object.keys(value);
  for (const key of keys) {
    let part;
    try {
      part = value instanceof Map ? value.get(key) : Reflect.get(value, key);
      if (here.has(part)) continue;
      structuredClone(part);
    } catch {
      return [Array.isArray(value) ? Number(key) : String(key), ...uncloneable(part, here)];
    }
  }
  return [];
}
