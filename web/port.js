/**
 * One engine for several threads of a page: whoever has it lends it over a port, and whoever has the other end uses it as
 * if it were there. So a worker of the page need not load the model again.
 *
 * Knows calls by name; the engine that is lent does the work, and restarts itself where it must.
 */

import { AbortedError, TypedecideError, reviveError } from "./errors.js";
import { Engine } from "./index.js";

/** @typedef {import("./types.js").Operation} Operation */

/**
 * @typedef {object} Call
 * @property {(value: unknown) => void} resolve
 * @property {(error: Error) => void} reject
 * @property {(progress: any) => void} [onProgress]
 */

/**
 * Lend an engine to whoever has the other end of a port, until one of them ends it.
 * @param {Engine} engine
 * @param {MessagePort} port
 * @returns {() => void} ends the loan: calls under way are aborted, and whoever borrowed is told `ABORTED` from then on
 */
export function lend(engine, port) {
  /** @type {Map<number, AbortController>} */
  const pending = new Map();
  /** @type {Record<Operation, (args: any[], how: {signal: AbortSignal, tell: (progress: unknown) => void}) => unknown>} */
  const operations = {
    load: () => engine.info,
    prefill: ([state], { signal }) => engine.prefill(state, { signal }),
    score: ([question, options], { signal }) => engine.score(question, { ...options, signal }),
    scoreAll: ([questions, options], { signal, tell }) =>
      engine.scoreAll(questions, {
        ...options,
        signal,
        onAnswer: (index, answer) => tell({ index, answer }),
      }),
    decide: async ([state, asked, options], { signal, tell }) => {
      const questions = new Map(
        asked.map((/** @type {any} */ question, /** @type {number} */ i) => [`${i}`, question]),
      );
      const onAnswer = (/** @type {string} */ id, /** @type {unknown} */ answer) =>
        tell({ index: Number(id), answer });
      const done = await engine.decide({ state, questions }, { ...options, signal, onAnswer });
      return { ...done, answers: Object.values(done.answers) };
    },
    states: () => engine.states(),
    memory: () => engine.memory(),
    release: () => engine.release(),
    scoreFull: ([state, question, readout], { signal }) =>
      engine.scoreFull(state, question, { readout, signal }),
  };
  const receive = async (/** @type {MessageEvent} */ { data }) => {
    if ("abort" in data) return pending.get(data.abort)?.abort();
    const { id, args } = data;
    const op = /** @type {Operation} */ (data.op);
    const controller = new AbortController();
    pending.set(id, controller);
    const tell = (/** @type {unknown} */ progress) => port.postMessage({ id, progress });
    try {
      const result = await operations[op](args, { signal: controller.signal, tell });
      port.postMessage({ id, result });
    } catch (error) {
      port.postMessage({ id, error: plain(error) });
    } finally {
      pending.delete(id);
    }
  };
  port.addEventListener("message", receive);
  port.start();
  return () => {
    port.removeEventListener("message", receive);
    for (const controller of pending.values()) controller.abort();
    port.postMessage({ ended: new AbortedError("the engine is no longer lent").toJSON() });
    port.close();
  };
}

/**
 * Use the engine that is lent at the other end of a port. Its `info` is as it was then; closing it ends the loan and not
 * the engine.
 * @param {MessagePort} port
 * @param {string} [bundle] folder of its bundle, for `evict`
 * @returns {Promise<Engine>}
 */
export async function borrow(port, bundle = String(new URL(".", import.meta.url))) {
  const calls = new Calls(port);
  const info = /** @type {import("./types.js").Info} */ (await calls.call("load", []));
  return new Engine(calls, bundle, info);
}

/** Calls over a port, and their answers. */
class Calls {
  /** @type {Map<number, Call>} */
  #pending = new Map();
  #next = 1;
  #port;
  /** @type {Error | null} */
  #closed = null;

  /** @param {MessagePort} port */
  constructor(port) {
    this.#port = port;
    port.addEventListener("message", ({ data: { id, progress, result, error, ended } }) => {
      if (ended) return this.close(reviveError(ended));
      const call = this.#pending.get(id);
      if (!call) return;
      if (progress) return call.onProgress?.(progress);
      this.#pending.delete(id);
      if (error) call.reject(reviveError(error));
      else call.resolve(result);
    });
    port.start();
  }

  /**
   * @param {string} op
   * @param {unknown[]} args
   * @param {AbortSignal} [signal]
   * @param {(progress: any) => void} [onProgress]
   * @returns {Promise<unknown>}
   */
  call(op, args, signal, onProgress) {
    return new Promise((resolve, reject) => {
      if (this.#closed) return reject(this.#closed);
      if (signal?.aborted) return reject(new AbortedError(`${op} was aborted before it began`));
      const id = this.#next++;
      const abort = () => this.#port.postMessage({ abort: id });
      signal?.addEventListener("abort", abort, { once: true });
      const settle = () => signal?.removeEventListener("abort", abort);
      this.#pending.set(id, {
        resolve: (value) => (settle(), resolve(value)),
        reject: (error) => (settle(), reject(error)),
        onProgress,
      });
      this.#port.postMessage({ id, op, args });
    });
  }

  /** @param {Error} reason what the calls under way, and later ones, are rejected with */
  close(reason) {
    this.#closed ??= reason;
    for (const [id, { reject }] of this.#pending) {
      this.#port.postMessage({ abort: id });
      reject(this.#closed);
    }
    this.#pending.clear();
    this.#port.close();
  }
}

/** @param {unknown} error */
function plain(error) {
  if (error instanceof TypedecideError) return error.toJSON();
  return { code: "ERROR", message: String(error instanceof Error ? error.message : error), data: {} };
}
