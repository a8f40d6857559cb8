// Waiting that a caller may end. Knows nothing of what is waited for.

import { AbortedError } from "./errors.js";

/**
 * What a promise gives, or ABORTED as soon as the signal says so; the work itself goes on.
 * @template T
 * @param {Promise<T>} promise
 * @param {AbortSignal | undefined} signal
 * @param {string} [message]
 * @param {Record<string, unknown>} [data]
 * @returns {Promise<T>}
 */
export function unlessAborted(promise, signal, message = "the wait was aborted", data = {}) {
  return new Promise((resolve, reject) => {
    const stop = () => reject(new AbortedError(message, data));
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop, { once: true });
    promise.then(resolve, reject).finally(() => signal?.removeEventListener("abort", stop));
  });
}
