/**
 * One file over HTTP. A transfer that breaks goes on where it stopped, by a range request, while the server comes back
 * within a few seconds.
 *
 * Knows HTTP, not what is in a file or where its bytes go. Whether they are the right ones is the caller's to check.
 */

import { AbortedError, BundleError, IntegrityError } from "./errors.js";

/** Milliseconds waited before each try that follows one without a single byte: eight seconds, then it is an error. */
const WAITS = [250, 500, 1000, 2000, 4000];

/** Milliseconds without a byte after which a transfer counts as broken. */
const STALL_MS = 10_000;

/** Answers that may be better a moment later: time-outs, too many requests, a server that restarts. */
const PASSING = new Set([408, 425, 429, 500, 502, 503, 504]);

/** A transfer that broke, and is worth another try. */
class Broken extends Error {}

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
  let failures = 0;
  while (target.at < target.size) {
    const before = target.at;
    try {
      await receive(url, target, cache, signal);
    } catch (error) {
      if (signal?.aborted) throw aborted(url);
      if (!(error instanceof Broken)) throw error;
      failures = target.at > before ? 0 : failures + 1;
      if (failures > WAITS.length) throw new BundleError(error.message, { url: String(url) });
      await pause(WAITS[Math.max(0, failures - 1)], signal);
    }
  }
}

/**
 * A response that is good, or a typed error.
 * @param {URL} url
 * @param {AbortSignal} [signal]
 */
export async function get(url, signal) {
  let response;
  try {
    response = await fetch(url, { signal });
  } catch (error) {
    if (signal?.aborted) throw aborted(url);
    throw new BundleError(`cannot load ${url}: ${error}`, { url: String(url) });
  }
  if (!response.ok) throw refused(url, response);
  return response;
}

/**
 * One request for the rest of a file.
 * @param {URL} url
 * @param {Target} target
 * @param {RequestCache} [cache]
 * @param {AbortSignal} [signal]
 */
async function receive(url, target, cache, signal) {
  const control = new AbortController();
  const stop = () => control.abort();
  signal?.addEventListener("abort", stop, { once: true });
  if (signal?.aborted) stop();
  let timer = setTimeout(stop, STALL_MS);
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(stop, STALL_MS);
  };
  try {
    const reader = await open(url, target, cache, control.signal);
    for (let part = await broken(url, reader.read()); !part.done; part = await broken(url, reader.read())) {
      alive();
      const chunk = /** @type {Uint8Array<ArrayBuffer>} */ (part.value);
      if (target.at + chunk.length > target.size) throw wrongSize(url, target, "more");
      target.write(chunk, target.at);
      target.at += chunk.length;
    }
    if (target.at < target.size) throw wrongSize(url, target, String(target.at));
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
    // Nothing more is read, whatever the reason was; a transfer that is over is not touched by this.
    stop();
  }
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
  const response = await broken(url, fetch(url, { headers, cache, signal }));
  if (PASSING.has(response.status)) throw new Broken(`cannot load ${url}: HTTP ${response.status}`);
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
  return /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
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
