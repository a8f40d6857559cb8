// Starts the worker, wherever its script is. Knows no messages.

import { UnsupportedError } from "./errors.js";

/**
 * @param {string | URL} [address] of worker.js; default: beside this module
 * @returns {Worker}
 * @throws {UnsupportedError} the script is on another origin
 */
export function spawn(address) {
  try {
    // The second form is the one that build tools look for, word by word.
    return address
      ? new Worker(address, { type: "module", name: "typedecide" })
      : new Worker(new URL("./worker.js", import.meta.url), { type: "module", name: "typedecide" });
  } catch (error) {
    const message = `the worker cannot start: ${error}; its script must be on the page's own origin (option \`worker\`)`;
    throw new UnsupportedError(message, {
      worker: String(address ?? import.meta.url),
      reason: String(error),
    });
  }
}
