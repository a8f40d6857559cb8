/**
 * Where the files of a bundle are kept between visits: in the origin's private file system (OPFS), named by their
 * sha256, one folder for each bundle. A file that is shorter than it should be is a download that broke; it goes on from
 * there. OPFS rather than the Cache API, because bytes can be added to a file, and read straight into memory.
 *
 * Knows files and bytes, not what is in them. `Shelf` works in a dedicated worker only.
 */

import { QuotaError } from "./errors.js";

const ROOT = "typedecide";

/** How often, and after how many milliseconds, a file is asked for again that a worker which has ended still holds. */
const HELD = { tries: 40, ms: 50 };

/**
 * A file under its lock.
 * @typedef {object} Kept
 * @property {number} size
 * @property {(target: Uint8Array<ArrayBuffer>) => void} read the first bytes, as many as the target takes
 * @property {(chunk: Uint8Array<ArrayBuffer>, at: number) => void} write
 * @property {() => void} clear
 */

/** @type {Kept} */
const NOWHERE = { size: 0, read: () => {}, write: () => {}, clear: () => {} };

export class Shelf {
  /**
   * @param {FileSystemDirectoryHandle | null} folder null keeps nothing
   * @param {string} key of the bundle
   * @param {string | null} note why nothing is kept
   */
  constructor(folder, key, note = null) {
    this.folder = folder;
    this.key = key;
    this.note = note;
  }

  /**
   * The shelf of a bundle; one that keeps nothing, and says why, where the browser has no place for it.
   * @param {URL} bundle
   * @param {boolean} wanted
   */
  static async open(bundle, wanted) {
    const key = await keyOf(bundle);
    if (!wanted) return new Shelf(null, key, "weights are not kept: keepWeights is false");
    try {
      if (!navigator.locks) throw new Error("this browser has no Web Locks");
      return new Shelf(await (await root(true)).getDirectoryHandle(key, { create: true }), key);
    } catch (error) {
      // A private window of Firefox or Safari, or a browser that blocks site data.
      return new Shelf(null, key, `weights are not kept, this browser offers no storage here: ${error}`);
    }
  }

  /**
   * Do `work` with a file that nobody else touches meanwhile, in no tab.
   * @template T
   * @param {string} name
   * @param {AbortSignal} signal
   * @param {(file: Kept) => Promise<T>} work
   * @returns {Promise<T>}
   */
  async exclusive(name, signal, work) {
    const { folder } = this;
    if (!folder) return work(NOWHERE);
    return navigator.locks.request(lockOf(this.key, name), { signal }, async () => {
      const access = await openFile(folder, name);
      try {
        return await work(kept(access));
      } finally {
        access.close();
      }
    });
  }

  /**
   * How many bytes of a file are there.
   * @param {string} name
   */
  async size(name) {
    try {
      return (await (await this.folder?.getFileHandle(name))?.getFile())?.size ?? 0;
    } catch {
      return 0;
    }
  }

  /**
   * Delete the files that are not named, except those in use.
   * @param {ReadonlySet<string>} names
   */
  async prune(names) {
    const { folder, key } = this;
    if (!folder) return;
    for await (const name of folder.keys()) {
      if (!names.has(name)) await remove(folder, key, name, { ifAvailable: true });
    }
  }
}

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
 * @param {number | null} available
 */
export function outOfRoom(needed, available) {
  const free = available === null ? "not that much is free" : `${megabytes(available)} MB are free`;
  const message = `the weights need ${megabytes(needed)} MB of this browser's storage, ${free}`;
  return new QuotaError(`${message}; load with keepWeights: false to keep nothing`, { needed, available });
}

/** @param {boolean} create */
async function root(create) {
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
async function remove(folder, key, name, options) {
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

/**
 * @param {FileSystemDirectoryHandle} folder
 * @param {string} name
 */
async function openFile(folder, name) {
  const handle = await folder.getFileHandle(name, { create: true });
  for (let tries = 1; ; tries++) {
    try {
      return await handle.createSyncAccessHandle();
    } catch (error) {
      const held = error instanceof DOMException && error.name === "NoModificationAllowedError";
      if (!held || tries === HELD.tries) throw error;
      await new Promise((resolve) => setTimeout(resolve, HELD.ms));
    }
  }
}

/**
 * @param {FileSystemSyncAccessHandle} access
 * @returns {Kept}
 */
function kept(access) {
  return {
    get size() {
      return access.getSize();
    },
    read: (target) => void access.read(target, { at: 0 }),
    write: (chunk, at) => {
      // A full disk shows as fewer bytes written, a full quota as an exception.
      if (access.write(chunk, { at }) < chunk.length) {
        throw new DOMException("the file could not be written", "QuotaExceededError");
      }
    },
    clear: () => access.truncate(0),
  };
}

/** @param {URL} bundle */
async function keyOf(bundle) {
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
function lockOf(key, name) {
  return `typedecide/${key}/${name}`;
}

/** @param {number} bytes */
function megabytes(bytes) {
  return (bytes / 1e6).toFixed(1);
}
