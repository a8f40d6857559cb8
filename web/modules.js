// Loads code of a bundle by its address. Knows no bundle.

import { unlessAborted } from "./abort.js";
import { get } from "./download.js";
import { AbortedError, BundleError } from "./errors.js";

/**
 * Milliseconds that a module may take to come: nothing tells how far it is, and a server that accepts a request may never
 * answer it.
 */
const LIMIT_MS = 30_000;

/**
 * A module whose address is known only in the browser: build tools must leave this import as it is.
 * @param {URL} url
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 * @throws {BundleError}
 * @throws {AbortedError}
 */
export async function importModule(url, signal) {
  try {
    return await imported(url, signal);
  } catch (error) {
    if (error instanceof AbortedError || error instanceof BundleError) throw error;
    // Whether it is there, and is only not to be had for a moment, `get` knows; it gives up in time too.
    await get(url, { signal });
  }
  try {
    return await imported(url, signal);
  } catch (error) {
    if (error instanceof AbortedError || error instanceof BundleError) throw error;
    throw new BundleError(`cannot load the module ${url}: ${error}`, { url: String(url) });
  }
}

/**
 * @param {URL} url
 * @param {AbortSignal} [signal]
 */
async function imported(url, signal) {
  const address = String(url);
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const late = new Promise((_, reject) => {
    const message = `the module ${url} did not come within ${LIMIT_MS / 1000} seconds`;
    timer = setTimeout(() => reject(new BundleError(message, { url: address })), LIMIT_MS);
  });
  const coming = Promise.race([import(/* webpackIgnore: true */ /* @vite-ignore */ address), late]);
  const message = `loading ${url} was aborted`;
  return unlessAborted(coming, signal, message, { url: address }).finally(() => clearTimeout(timer));
}
