/**
 * The places in the browser where bundles' files are kept between visits: in the origin's private file system (OPFS), named
 * by their sha256, one folder for each bundle, each file with a lock that all tabs know. OPFS rather than the Cache API,
 * because bytes can be added to a file, and read straight into memory.
 *
 * Knows names and sizes, not what is in a file; shelf.js reads and writes them.
 */

import { QuotaError } from "./errors.js";

const ROOT = "typedecide";

/**
 * Delete kept weights, once no tab loads them any more. An engine that is loaded goes on working.
 * @param {URL} [bundle] folder of a bundle; default: all bundles of this origin
 * @returns {Promise<number>} bytes freed
 */
export async function evict(bundle) {
  let freed = 0;
  let folders;
  try {
    folders = await root(false);
  } catch {
    return freed;
  }
  const only = bundle && (await keyOf(bundle));
  for await (const [key, folder] of folders.entries()) {
    if (folder.kind !== "directory" || (only !== undefined && key !== only)) continue;
    const directory = /** @type {FileSystemDirectoryHandle} */ (folder);
    for await (const name of directory.keys()) freed += await remove(directory, key, name, {});
  }
  return freed;
}

/** Bytes that this origin may still store; null where the browser does not tell. */
export async function room() {
  const { quota, usage } = (await navigator.storage?.estimate?.()) ?? {};
  return quota === undefined || usage === undefined ? null : Math.max(0, quota - usage);
}

/**
 * @param {number} needed
 * @param {number | null} estimate
 */
export function outOfRoom(needed, estimate) {
  // Browsers guess at their room, and may claim more than there turned out to be.
  const available = estimate !== null && estimate < needed ? estimate : null;
  const free = available === null ? "not that much is free" : `${megabytes(available)} MB are free`;
  const message = `the weights need ${megabytes(needed)} MB of this browser's storage, ${free}`;
  return new QuotaError(`${message}; load with keepWeights: false to keep nothing`, { needed, available });
}

/** @param {boolean} create */
export async function root(create) {
  const top = await navigator.storage.getDirectory();
  return top.getDirectoryHandle(ROOT, { create });
}

/**
 * @param {FileSystemDirectoryHandle} folder
 * @param {string} key
 * @param {string} name
 * @param {{ifAvailable?: boolean}} options
 * @returns {Promise<number>} bytes freed
 */
export async function remove(folder, key, name, options) {
  return navigator.locks.request(lockOf(key, name), options, async (lock) => {
    if (!lock) return 0;
    try {
      const { size } = await (await folder.getFileHandle(name)).getFile();
      await folder.removeEntry(name);
      return size;
    } catch {
      // Another tab was faster, or a worker that has ended still holds it: the next visit prunes it.
      return 0;
    }
  });
}

/** @param {URL} bundle */
export async function keyOf(bundle) {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(bundle.href));
  return hex(digest).slice(0, 32);
}

/** @param {ArrayBuffer} bytes */
export function hex(bytes) {
  return Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * @param {string} key
 * @param {string} name
 */
export function lockOf(key, name) {
  return `typedecide/${key}/${name}`;
}

/** @param {number} bytes */
function megabytes(bytes) {
  return (bytes / 1e6).toFixed(1);
}
