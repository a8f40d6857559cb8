/**
 * One loaded model that answers questions about one text at a time: prompt, engine and readout put together.
 *
 * Runs inside the worker. Knows no messages and no page.
 */

import { InvalidStateError, UnsupportedError } from "./errors.js";
import { Prompt, promptSpec, suffixAfter } from "./prompt.js";
import { parseQuestion } from "./questions.js";
import { read } from "./readout.js";
import { start } from "./runtime.js";
import { Store } from "./store.js";

/**
 * What `createEngine` passes to the worker.
 * @typedef {object} Settings
 * @property {string} bundle address of the bundle's folder
 * @property {"auto" | "webgpu" | "wasm"} device
 * @property {string} [format]
 * @property {number} [threads]
 * @property {string[]} [candidates]
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

export class Decider {
  /**
   * @param {import("./engine.js").Engine} engine
   * @param {Prompt} prompt
   * @param {import("./prompt.js").Tokenizer} tokenizer
   * @param {Info} info
   */
  constructor(engine, prompt, tokenizer, info) {
    this.engine = engine;
    this.prompt = prompt;
    this.tokenizer = tokenizer;
    this.info = info;
    /** @type {{text: string, ids: number[]} | null} */
    this.state = null;
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
    return new Decider(started.engine, prompt, tokenizer, info);
  }

  /**
   * Compute the KV cache of a text; every question after that costs its own suffix only.
   * @param {string} state
   * @param {() => boolean} aborted
   * @returns {Promise<{tokens: number, ms: number}>}
   */
  async prefill(state, aborted) {
    const began = performance.now();
    const ids = this.prompt.statePrefixIds(this.tokenizer, state);
    await this.engine.prefill(ids, { aborted });
    this.state = { text: state, ids };
    return { tokens: ids.length, ms: performance.now() - began };
  }

  /**
   * Answer a question (System One form) about the prefilled text.
   * @param {unknown} question
   * @returns {Promise<Scored>}
   */
  async score(question) {
    const began = performance.now();
    const parsed = parseQuestion(question);
    if (!this.state) throw new InvalidStateError("nothing is prefilled: call prefill(state) first");
    const full = this.prompt.fullIds(this.tokenizer, this.state.text, parsed.criterion);
    const ids = suffixAfter(this.state.ids, full);
    const [logits] = await this.engine.score([{ ids, labelIds: this.prompt.labelIds(parsed.criterion) }]);
    return { ...read(parsed, logits), tokens: ids.length, ms: performance.now() - began };
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
 * @param {Store} store
 * @returns {Promise<import("./prompt.js").Tokenizer>}
 */
async function loadTokenizer(store) {
  const spec = JSON.parse(await store.text(store.manifest.tokenizer));
  const { Tokenizer } = await import(String(store.url("vendor/tokenizers/tokenizers.min.mjs")));
  const tokenizer = new Tokenizer(spec, {});
  return { encode: (text) => tokenizer.encode(text, { add_special_tokens: false }).ids };
}
