/**
 * One file over HTTP. A transfer that breaks goes on where it stopped, by a range request, while the server comes back
 * within a few seconds; a small file is fetched anew.
 *
 * Knows HTTP, not what is in a file or where its bytes go. Whether they are the right ones is the caller's to check.
 */

import { AbortedError, BundleError, IntegrityError } from "./errors.js";

/** Milliseconds waited before each try that follows one without a single byte: eight seconds, then it is an error. */
const WAITS = [250, 500, 1000, 2000, 4000];

/** Milliseconds without a byte after which a transfer counts as broken. */
const STALL_MS = 10_000;

/** How many tries in a row may end like that: twenty seconds of silence are an error. */
const STALLS = 2;

/** Answers that may be better a moment later: time-outs, too many requests, a server that restarts. */
const PASSING = new Set([408, 425, 429, 500, 502, 503, 504]);

/** A transfer that broke, and is worth another try. */
class Broken extends Error {}

/** A transfer that broke because nothing came. */
class Silent extends Broken {}

/**
 * @typedef {object} Target
 * @property {number} size bytes of the whole file
 * @property {number} at bytes that are there already; kept up to date
 * @property {(chunk: Uint8Array<ArrayBuffer>, at: number) => void} write takes a piece that starts at byte `at`; may start
 *   again from 0, where a server sends no ranges
 */

/**
 * Fetch what a target lacks.
 * @param {URL} url
 * @param {Target} target
 * @param {{cache?: RequestCache, signal?: AbortSignal}} options
 * @throws {BundleError} the file cannot be had
 * @throws {IntegrityError} it is longer or shorter than it should be
 * @throws {AbortedError}
 */
export async function download(url, target, { cache, signal } = {}) {
  if (target.at === target.size) return;
  await patiently(url, signal, {
    progress: () => target.at,
    work: (watch) => receive(url, target, cache, watch),
  });
}

/**
 * The text of a small file.
 * @param {URL} url
 * @param {{cache?: RequestCache, signal?: AbortSignal}} [options]
 * @returns {Promise<string>}
 * @throws {BundleError} the file cannot be had
 * @throws {AbortedError}
 */
export async function get(url, { cache, signal } = {}) {
  const decoder = new TextDecoder();
  return patiently(url, signal, {
    progress: () => 0,
    work: async (watch) => {
      const response = await answered(url, { cache, signal: watch.signal });
      if (!response.ok) throw refused(url, response);
      const reader = bodyOf(response);
      let text = "";
      for await (const chunk of chunks(url, reader, watch)) text += decoder.decode(chunk, { stream: true });
      return text + decoder.decode();
    },
  });
}

/**
 * What ends a transfer: its signal aborts when it is to stop, and unless `alive` is called now and then.
 * @typedef {{signal: AbortSignal, alive: () => void}} Watch
 */

/**
 * Do some work that may break, again and again while there is hope.
 * @template T
 * @param {URL} url
 * @param {AbortSignal | undefined} signal
 * @param {{work: (watch: Watch) => Promise<T>, progress: () => number}} transfer `progress` is greater than before once
 *   something came that need not come again
 * @returns {Promise<T>}
 */
async function patiently(url, signal, { work, progress }) {
  let [failures, stalls] = [0, 0];
  for (;;) {
    const before = progress();
    try {
      return await watched(url, signal, work);
    } catch (error) {
      if (signal?.aborted) throw aborted(url);
      if (!(error instanceof Broken)) throw error;
      if (progress() > before) [failures, stalls] = [0, 0];
      else [failures, stalls] = [failures + 1, error instanceof Silent ? stalls + 1 : 0];
      if (failures > WAITS.length || stalls >= STALLS)
        throw new BundleError(error.message, { url: String(url) });
      await pause(WAITS[Math.max(0, failures - 1)], signal);
    }
  }
}

/**
 * One try.
 * @template T
 * @param {URL} url
 * @param {AbortSignal | undefined} signal
 * @param {(watch: Watch) => Promise<T>} work
 * @returns {Promise<T>}
 */
async function watched(url, signal, work) {
  const control = new AbortController();
  const stop = () => control.abort();
  signal?.addEventListener("abort", stop, { once: true });
  if (signal?.aborted) stop();
  let silent = false;
  const giveUp = () => {
    silent = true;
    stop();
  };
  let timer = setTimeout(giveUp, STALL_MS);
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(giveUp, STALL_MS);
  };
  try {
    return await work({ signal: control.signal, alive });
  } catch (error) {
    if (!silent || !(error instanceof Broken)) throw error;
    throw new Silent(`cannot load ${url}: nothing came for ${STALL_MS / 1000} seconds`);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
    // Nothing more is read, whatever the reason was; a transfer that is over is not touched by this.
    stop();
  }
}

/**
 * One request for the rest of a file.
 * @param {URL} url
 * @param {Target} target
 * @param {RequestCache | undefined} cache
 * @param {Watch} watch
 */
async function receive(url, target, cache, watch) {
  const reader = await open(url, target, cache, watch.signal);
  for await (const chunk of chunks(url, reader, watch)) {
    if (target.at + chunk.length > target.size) throw wrongSize(url, target, "more");
    target.write(chunk, target.at);
    target.at += chunk.length;
  }
  if (target.at < target.size) throw wrongSize(url, target, String(target.at));
}

/**
 * The pieces of a body as they come.
 * @param {URL} url
 * @param {ReadableStreamDefaultReader<Uint8Array>} reader
 * @param {Watch} watch
 */
async function* chunks(url, reader, watch) {
  for (let part = await broken(url, reader.read()); !part.done; part = await broken(url, reader.read())) {
    watch.alive();
    yield /** @type {Uint8Array<ArrayBuffer>} */ (part.value);
  }
}

/**
 * The answer to a request, unless it may be another one in a moment.
 * @param {URL} url
 * @param {RequestInit} init
 */
async function answered(url, init) {
  const response = await broken(url, fetch(url, init));
  if (PASSING.has(response.status)) throw new Broken(`cannot load ${url}: HTTP ${response.status}`);
  return response;
}

/** @param {Response} response */
function bodyOf({ body }) {
  return /** @type {ReadableStream<Uint8Array>} */ (body).getReader();
}

/**
 * The body of an answer, from the byte that the target has come to.
 * @param {URL} url
 * @param {Target} target
 * @param {RequestCache} [cache]
 * @param {AbortSignal} [signal]
 * @returns {Promise<ReadableStreamDefaultReader<Uint8Array>>}
 */
async function open(url, target, cache, signal) {
  const headers = target.at > 0 ? { Range: `bytes=${target.at}-` } : undefined;
  const response = await answered(url, { headers, cache, signal });
  // Another origin may keep Content-Range to itself; the hash tells then.
  const range = response.headers.get("Content-Range") ?? `bytes ${target.at}-`;
  const fits = response.status === 206 && range.startsWith(`bytes ${target.at}-`);
  if (target.at > 0 && !fits) {
    target.at = 0;
    if (response.status !== 200) {
      await response.body?.cancel();
      throw new Broken(`cannot load the rest of ${url}: HTTP ${response.status}`);
    }
  }
  if (!response.ok) throw refused(url, response);
  return bodyOf(response);
}

/**
 * What a network call gives; its failures are breaks.
 * @template T
 * @param {URL} url
 * @param {Promise<T>} call
 */
async function broken(url, call) {
  try {
    return await call;
  } catch (error) {
    throw new Broken(`cannot load ${url}: ${error}`);
  }
}

/**
 * @param {number} ms
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

/** @param {URL} url */
function aborted(url) {
  return new AbortedError(`loading ${url} was aborted`, { url: String(url) });
}

/**
 * @param {URL} url
 * @param {Response} response
 */
function refused(url, { status }) {
  return new BundleError(`cannot load ${url}: HTTP ${status}`, { url: String(url), status });
}

/**
 * @param {URL} url
 * @param {Target} target
 * @param {string} found
 */
function wrongSize(url, { size }, found) {
  const data = { url: String(url), what: "size", expected: size, found };
  return new IntegrityError(`${url} has ${found} bytes, expected ${size}`, data);
}
