// Reads files as tables in a worker, so that the page stays awake however large they are. This module is both ends: as a
// worker it answers what `readFile` asks in the page.

import { importModule } from "../../modules.js";
import { InputError } from "./errors.js";
import { readTable } from "./read.js";

/** @typedef {import("./read.js").Read} Read */
/** @typedef {import("./read.js").Row} Row */
/**
 * @typedef {{columns: string[]} | {rows: Row[]} | {done: true}
 *   | {error: {message: string, data: Record<string, unknown> | null}}} Message
 */

const PAPA = new URL("../../vendor/papaparse/papaparse.mjs", import.meta.url);

/** Rows that cross at a time. */
const BLOCK = 1000;

/**
 * The table in a file.
 * @param {Blob} file
 * @param {string} name whose ending says what it is
 * @param {AbortSignal} signal
 * @returns {Promise<Read>}
 * @throws {InputError} it cannot be read as a table at all
 */
export function readFile(file, name, signal) {
  const worker = new Worker(import.meta.url, { type: "module" });
  /** @type {Read} */
  const read = { name, columns: [], rows: [] };
  return /** @type {Promise<Read>} */ (
    new Promise((resolve, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason));
      worker.addEventListener("error", (event) => reject(new Error(event.message)));
      worker.addEventListener("message", ({ data }) => {
        const message = /** @type {Message} */ (data);
        if ("columns" in message) read.columns = message.columns;
        else if ("rows" in message) for (const row of message.rows) read.rows.push(row);
        else if ("done" in message) resolve(read);
        else reject(revive(message.error));
      });
      worker.postMessage({ file, name });
    })
  ).finally(() => worker.terminate());
}

/** @param {{message: string, data: Record<string, unknown> | null}} error */
function revive({ message, data }) {
  return data ? new InputError(message, data) : new Error(message);
}

/**
 * @param {{file: Blob, name: string}} asked
 * @param {(message: Message) => void} tell
 */
async function answer({ file, name }, tell) {
  try {
    const [bytes, { default: papa }] = await Promise.all([file.arrayBuffer(), importModule(PAPA)]);
    const { columns, rows } = readTable(name, new Uint8Array(bytes), papa);
    tell({ columns });
    for (let start = 0; start < rows.length; start += BLOCK) tell({ rows: rows.slice(start, start + BLOCK) });
    tell({ done: true });
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    tell({ error: { message, data: error instanceof InputError ? error.data : null } });
  }
}

if (!("document" in globalThis) && "postMessage" in globalThis) {
  addEventListener("message", ({ data }) => answer(data, (message) => postMessage(message)));
}
