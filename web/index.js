/**
 * typedecide in a page: load a bundle, prefill a text once, and ask typed questions about it.
 *
 * @example
 * import { createEngine } from "./index.js";
 * const engine = await createEngine();
 * await engine.prefill("My card was charged twice.");
 * const answer = await engine.score({
 *   type: "choice",
 *   instructions: "Which team should handle this?",
 *   criteria: ["billing", "shipping"],
 * });
 * console.log(answer.choice, answer.probabilities);
 */

import { Channel } from "./channel.js";
import { AbortedError, InvalidQuestionError, TypedecideError, UnsupportedError } from "./errors.js";
import { parseQuestions } from "./questions.js";
import { spawn } from "./spawn.js";
import { evict } from "./storage.js";
import { requireSupport } from "./support.js";
import { makeFetch } from "./systemone_fetch.js";

export * from "./errors.js";

/** @typedef {import("./types.js").Info} Info */
/** @typedef {import("./types.js").Progress} Progress */
/** @typedef {import("./types.js").Prefilled} Prefilled */
/** @typedef {import("./types.js").Question} Question */
/** @typedef {import("./types.js").Scored} Scored */
/** @typedef {import("./types.js").Ordered} Ordered */
/** @typedef {import("./options.js").Options} ScoreAllOptions */
/** @typedef {import("./types.js").ScoredAll} ScoredAll */
/** @typedef {import("./types.js").Memory} Memory */
/**
 * @template Q
 * @typedef {import("./types.js").Decision<Q>} Decision
 */

/**
 * @typedef {object} EngineOptions
 * @property {string | URL} [bundle] folder of the bundle; default: the folder of this module, which is right where the
 *   bundle's own `index.js` is used. Its code is run, so take one that you trust; one on another origin runs with one
 *   thread, and its server must allow cross-origin reading (CORS).
 * @property {string | URL} [weights] folder that has the weights, `model/` of the bundle, where they lie elsewhere; what
 *   comes from there is only data, and is checked by hash; default: `bundle`
 * @property {string | URL} [worker] address of `worker.js`, on the page's own origin, for build tools that do not follow
 *   `new Worker(new URL(…))`; a bundle has one
 * @property {"auto" | "webgpu" | "wasm"} [device] default `auto`: the fastest that passes the self-test
 * @property {string} [format] weight format; default: the bundle's own default
 * @property {number} [threads] WASM threads; default: one for each core, at most 8
 * @property {string[]} [candidates] ways to run the model, in the order to try; see `engine.info.selfTest`
 * @property {number} [stateBytes] memory for the caches of prefilled texts; default 256 MiB
 * @property {boolean} [keepWeights] whether the browser keeps the weights for the next visit; default true;
 *   `engine.info.storage` says whether it could
 * @property {string | URL | object | false} [calibration] a calibration's address or its content, to be used for all
 *   answers; false for none; default: the bundle's own, where it has one, for the answers that it was made for
 * @property {(progress: Progress) => void} [onProgress]
 * @property {AbortSignal} [signal] stops the loading
 */

const DEVICES = ["auto", "webgpu", "wasm"];

/** Not written where it is used: build tools would take the folder for a file to copy. */
const HERE = import.meta.url;

/**
 * Load a bundle in a worker and start the model.
 * @param {EngineOptions} [options]
 * @returns {Promise<Engine>}
 * @throws {UnsupportedError} nothing here can run the model: `data.missing` names what the browser lacks (nothing was
 *   downloaded then), or `data.selfTest` says what was tried
 * @throws {TypedecideError} `INTEGRITY`, `BUNDLE`, `QUOTA`, `ABORTED`, or `INVALID_REQUEST` for a `calibration` that is no
 *   data
 */
export async function createEngine(options = {}) {
  const { device = "auto", format, threads, candidates } = options;
  const { stateBytes = 256 * 2 ** 20, keepWeights = true } = options;
  if (!DEVICES.includes(device)) {
    throw new UnsupportedError(`device must be one of ${DEVICES.join(", ")}, not ${JSON.stringify(device)}`, {
      device,
    });
  }
  if (threads !== undefined && !(Number.isInteger(threads) && threads >= 1)) {
    throw new UnsupportedError(`threads must be a whole number from 1, not ${threads}`, { threads });
  }
  if (!(stateBytes >= 0)) {
    throw new UnsupportedError(`stateBytes must be a number of bytes, not ${stateBytes}`, { stateBytes });
  }
  await requireSupport(device, candidates);
  const bundle = folder(options.bundle ?? new URL(".", HERE));
  const weights = folder(options.weights ?? bundle);
  /** @type {Engine | null} */
  let engine = null;
  /** @type {Info | null} */
  let info = null;
  const channel = new Channel(
    () => spawn(options.worker),
    (told) => {
      info = told;
      if (engine) engine.info = Object.freeze(told);
    },
  );
  try {
    const calibration = addressed(options.calibration);
    const running = { device, format, threads, candidates, stateBytes, calibration };
    const settings = { bundle, weights, keepWeights, ...running };
    await channel.call("load", [settings], options.signal, options.onProgress);
    engine = new Engine(channel, bundle, /** @type {Info} */ (/** @type {unknown} */ (info)));
    return engine;
  } catch (error) {
    channel.close(new AbortedError("the engine could not be loaded"));
    throw error;
  }
}

/**
 * Delete the weights that this browser keeps; the next load fetches them again. Engines that are loaded go on working,
 * and a load under way is waited for.
 * @param {string | URL} [bundle] folder of a bundle; default: all bundles of this origin
 * @returns {Promise<number>} bytes freed
 */
export async function evictWeights(bundle) {
  return evict(bundle === undefined ? undefined : new URL(folder(bundle)));
}

/**
 * The full address of a folder, which ends with a slash.
 * @param {string | URL} given
 */
function folder(given) {
  const url = new URL(given, globalThis.location?.href);
  if (!url.pathname.endsWith("/")) url.pathname += "/";
  return String(url);
}

/**
 * A calibration as the worker takes it: addresses relative to the page would mean nothing there.
 * @param {EngineOptions["calibration"]} given
 */
function addressed(given) {
  const address = typeof given === "string" || given instanceof URL;
  return address ? String(new URL(given, globalThis.location?.href)) : given;
}

/**
 * A loaded model. Calls are answered in the order they are made; what they are given is copied at once. Should the worker
 * end, or the GPU device be lost, run out of memory or refuse work, the engine loads itself again, and calls under way are
 * still answered; a call that this happens to twice fails with `DEVICE_LOST`.
 */
export class Engine {
  #channel;
  #folder;

  /**
   * @param {Pick<Channel, "call" | "close">} channel
   * @param {string} folder of the bundle
   * @param {Info} info
   */
  constructor(channel, folder, info) {
    this.#channel = channel;
    this.#folder = folder;
    /**
     * What runs, on what, and why; shapes and limits of the model. Another object once the engine has restarted itself.
     */
    this.info = Object.freeze(info);
    /**
     * A `fetch` that answers `POST /v1/systemone` and `GET /v1/models` from this engine: official clients take it in
     * place of their own and need no server. It rejects with the signal's reason when that aborts.
     *
     * @example
     * const client = new TypeSafeClient({ fetch: engine.fetch, apiKey: "none", dangerouslyAllowBrowser: true });
     */
    this.fetch = makeFetch(this);
  }

  /**
   * Compute the keys and values of a text once, and ask about it from now on. Texts prefilled before are kept while
   * memory allows, so that going back to one costs nothing. A call that fails leaves the text before in place; so does
   * `decide`.
   * @param {string} state
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<Prefilled>} tokens in the cache; whether it was kept from before; milliseconds taken
   * @throws {TypedecideError} `TOO_LONG` (with both lengths), `INVALID_STATE`, `ABORTED` or `DEVICE_LOST`
   */
  prefill(state, { signal } = {}) {
    return /** @type {Promise<any>} */ (this.#channel.call("prefill", [state], signal));
  }

  /**
   * Answer one question about the prefilled text, as `scoreAll` does.
   * @param {Question} question in the System One form: `{type, instructions?, criteria}`
   * @param {ScoreAllOptions & {signal?: AbortSignal}} [options]
   * @returns {Promise<Scored>} the answer, the tokens run for it, and milliseconds
   * @throws {TypedecideError} `INVALID_QUESTION` (`data.loc` is the path to the fault), `UNSUPPORTED` (an option),
   *   `INVALID_REQUEST` (an argument that is no data: it cannot be sent to the worker), `INVALID_STATE` (no text was
   *   prefilled), `PREFIX_MISMATCH`, `TOO_LONG`, `INTEGRITY`, `ABORTED` or `DEVICE_LOST`
   */
  score(question, { signal, ...options } = {}) {
    return /** @type {Promise<Scored>} */ (this.#channel.call("score", [question, options], signal));
  }

  /**
   * Answer many questions about the prefilled text at once, so that no option wins by its place: the `labels` readout
   * reads each question in several orders of its options, the others know no order. All suffixes are packed into few
   * runs; what they share is computed once.
   * @param {readonly Question[]} questions in the System One form
   * @param {ScoreAllOptions & {signal?: AbortSignal, onAnswer?: (index: number, answer: Ordered) => void}} [options]
   *   `onAnswer` is told each answer as soon as it is there
   * @returns {Promise<ScoredAll>}
   * @throws {TypedecideError} as `score` does; an invalid question's `data.loc` starts with its place in the list
   */
  scoreAll(questions, { signal, onAnswer, ...options } = {}) {
    const onProgress = onAnswer && once((index, answer) => onAnswer(index, answer));
    return /** @type {Promise<ScoredAll>} */ (
      this.#channel.call("scoreAll", [questions, options], signal, onProgress)
    );
  }

  /**
   * Prefill a text and answer questions about it in one go. Safe for several callers at once: no other call comes in
   * between. Once it is done, `score` and `scoreAll` are about this text.
   *
   * @example
   * const { answers } = await engine.decide({ state, questions: { angry: { type: "noul", instructions: "Angry?" } } });
   * console.log(answers.angry.value);
   *
   * @template {Readonly<Record<string, Question>> | Map<string, Question>} Q
   * @param {{state: string, questions: Q}} request at least one question, by id; they are asked in their order, which an
   *   object keeps except for ids like "10", and a Map for all
   * @param {ScoreAllOptions & {signal?: AbortSignal, onAnswer?: (id: string, answer: Ordered) => void}} [options]
   * @returns {Promise<Decision<Q>>}
   * @throws {TypedecideError} as `prefill` and `scoreAll` do; an invalid question's `data.loc` starts with its id
   */
  async decide({ state, questions }, { signal, onAnswer, ...options } = {}) {
    const ids = [...parseQuestions(questions).keys()];
    const onProgress = onAnswer && once((index, answer) => onAnswer(ids[index], answer));
    const asked = questions instanceof Map ? [...questions.values()] : Object.values(questions);
    const call = this.#channel.call("decide", [state, asked, options], signal, onProgress);
    const done = /** @type {ScoredAll & {prefill: Prefilled}} */ (await byId(call, ids));
    const answers = Object.fromEntries(ids.map((id, i) => [id, done.answers[i]]));
    return { ...done, answers: /** @type {any} */ (answers) };
  }

  /**
   * Tokens and bytes of each kept text, the least recently used one first.
   * @returns {Promise<{tokens: number, bytes: number}[]>}
   */
  states() {
    return /** @type {Promise<any>} */ (this.#channel.call("states", []));
  }

  /**
   * What the engine holds now.
   * @returns {Promise<Memory>}
   */
  memory() {
    return /** @type {Promise<any>} */ (this.#channel.call("memory", []));
  }

  /** Free all kept texts; the engine stays usable, with what all prompts start with. */
  async release() {
    await this.#channel.call("release", []);
  }

  /**
   * Answer one question, its options in the order given, from whole prompts without any cache. Slow: it is what the fast
   * path is compared with.
   * @param {string} state
   * @param {Question} question
   * @param {{readout?: string, signal?: AbortSignal}} [options] default readout: `labels`; the signal is heeded between
   *   prompts, of which `text` runs one for each option
   * @returns {Promise<Scored>}
   */
  scoreFull(state, question, { readout = "labels", signal } = {}) {
    return /** @type {Promise<Scored>} */ (
      this.#channel.call("scoreFull", [state, question, readout], signal)
    );
  }

  /**
   * Delete the kept weights of this bundle; the engine goes on working, and the next load fetches them again.
   * @returns {Promise<number>} bytes freed
   */
  evict() {
    return evictWeights(this.#folder);
  }

  /** End the worker and free everything; calls under way are rejected with `ABORTED`. */
  close() {
    this.#channel.close(new AbortedError("the engine was closed"));
  }
}

/**
 * What a call gives. The error of an invalid question names that by its id, where the worker knows its place.
 * @param {Promise<unknown>} call
 * @param {readonly string[]} ids
 */
async function byId(call, ids) {
  try {
    return await call;
  } catch (error) {
    if (!(error instanceof InvalidQuestionError)) throw error;
    const [place, ...rest] = /** @type {number[]} */ (error.data.loc);
    throw new InvalidQuestionError(error.message, { ...error.data, loc: [ids[place], ...rest] });
  }
}

/**
 * Passes on each answer of a call, and none twice: a call that is done again after a restart comes to them anew.
 * @param {(index: number, answer: Ordered) => void} tell
 * @returns {(progress: any) => void}
 */
function once(tell) {
  const told = new Set();
  return ({ index, answer }) => {
    if (told.has(index)) return;
    told.add(index);
    tell(index, answer);
  };
}
