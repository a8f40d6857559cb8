// A run as the browser keeps it, so that it survives a reload: the file, what is asked, and the rows that are done. There
// is one at a time, in IndexedDB, and one page that has it: the one with the claim. Knows no engine and no page.

import { breathe } from "./results.js";

/** @typedef {import("./table.js").Fault} Fault */

/**
 * What a run is.
 * @typedef {object} Plan
 * @property {string} id
 * @property {Blob} file
 * @property {string} name of the file
 * @property {string} text the column of the texts
 * @property {readonly string[]} keep the columns to copy
 * @property {[id: string, wire: import("../../index.js").Question][]} questions
 * @property {import("../readings.js").Reading | null} reading
 */

/**
 * Rows that are done: what `Results` has of each, one after the other.
 * @typedef {object} Block
 * @property {string} run its id
 * @property {string} engine what answered them
 * @property {readonly string[]} shallow of `Results`
 * @property {Uint32Array} rows places of those that are answered
 * @property {Uint8Array} choices
 * @property {Uint8Array} abstains
 * @property {Float64Array} values
 * @property {[row: number, fault: Fault][]} faults of those that are rejected
 */

const NAME = "typedecide-table";
const [PLAN, BLOCKS] = ["plan", "blocks"];

/**
 * Makes this page the one that has what is kept, until it lets go or is gone: two at once would mix their runs.
 * @param {number} ms to wait for a page that is about to be gone
 * @returns {Promise<(() => void) | null>} lets go; null where another page has it
 */
export function claim(ms) {
  const options = ms > 0 ? { signal: AbortSignal.timeout(ms) } : { ifAvailable: true };
  return new Promise((resolve, reject) => {
    const asked = navigator.locks.request(NAME, options, (lock) => {
      if (lock === null) return resolve(null);
      return new Promise((letGo) => resolve(() => letGo(undefined)));
    });
    asked.catch((error) => (error.name === "TimeoutError" ? resolve(null) : reject(error)));
  });
}

/** Whether anything is kept, by whichever page. */
export async function exists() {
  return (await indexedDB.databases()).some(({ name }) => name === NAME);
}

/**
 * The database, made where there is none; it gives way where it is to be deleted.
 * @returns {Promise<IDBDatabase>}
 */
async function open() {
  const request = indexedDB.open(NAME, 1);
  request.addEventListener("upgradeneeded", () => {
    request.result.createObjectStore(PLAN);
    request.result.createObjectStore(BLOCKS, { autoIncrement: true });
  });
  const database = await result(request);
  database.addEventListener("versionchange", () => database.close());
  return database;
}

/**
 * Keeps a run in the place of the one before.
 * @param {Plan} plan
 */
export async function begin(plan) {
  await change((stores) => {
    clear(stores);
    stores.plan.put(plan, PLAN);
  });
}

/** @param {Block} block of the run that was begun */
export async function add(block) {
  await change(({ blocks }) => void blocks.add(block));
}

/**
 * The run that is kept, and its blocks one by one.
 * @returns {Promise<{plan: Plan, blocks: AsyncGenerator<Block>} | null>}
 */
export async function load() {
  // Looking must not make what is not there.
  if (!(await exists())) return null;
  const database = await open();
  try {
    const plan = /** @type {Plan | undefined} */ (
      await result(database.transaction(PLAN).objectStore(PLAN).get(PLAN))
    );
    return plan ? { plan, blocks: blocksOf(plan.id) } : null;
  } finally {
    database.close();
  }
}

/**
 * @param {string} run
 * @returns {AsyncGenerator<Block>}
 */
async function* blocksOf(run) {
  const database = await open();
  try {
    const store = () => database.transaction(BLOCKS).objectStore(BLOCKS);
    for (const key of await result(store().getAllKeys())) {
      const block = /** @type {Block} */ (await result(store().get(key)));
      if (block.run === run) yield block;
      await breathe();
    }
  } finally {
    database.close();
  }
}

/** Deletes what is kept, and the database as soon as no page has it open. */
export async function forget() {
  await change(clear);
  const request = indexedDB.deleteDatabase(NAME);
  // Whoever has it open may never let go, and nothing is in it any more.
  const blocked = new Promise((resolve) => request.addEventListener("blocked", resolve));
  await Promise.race([result(request), blocked]);
}

/** @typedef {{plan: IDBObjectStore, blocks: IDBObjectStore}} Stores */

/** @param {Stores} stores */
function clear(stores) {
  for (const store of Object.values(stores)) store.clear();
}

/** @param {(stores: Stores) => void} work */
async function change(work) {
  const database = await open();
  try {
    const transaction = database.transaction([PLAN, BLOCKS], "readwrite");
    const done = new Promise((resolve, reject) => {
      transaction.addEventListener("complete", resolve);
      transaction.addEventListener("abort", () => reject(transaction.error));
    });
    work({ plan: transaction.objectStore(PLAN), blocks: transaction.objectStore(BLOCKS) });
    await done;
  } finally {
    database.close();
  }
}

/**
 * @template T
 * @param {IDBRequest<T>} request
 * @returns {Promise<T>}
 */
function result(request) {
  return new Promise((resolve, reject) => {
    request.addEventListener("success", () => resolve(request.result));
    request.addEventListener("error", () => reject(request.error));
  });
}
