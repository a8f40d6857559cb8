/**
 * The files of one bundle as this browser keeps them. One that is shorter than it should be is a download that broke; it
 * goes on from there.
 *
 * Knows files and bytes, not what is in them. Works in a dedicated worker only.
 */

import { keyOf, lockOf, remove, root } from "./storage.js";

/** How often, and after how many milliseconds, a file is asked for again that a worker which has ended still holds. */
const HELD = { tries: 40, ms: 50 };

/**
 * A file under its lock.
 * @typedef {object} Kept
 * @property {boolean} lasts whether what is written is there for the next visit
 * @property {number} size
 * @property {(target: Uint8Array<ArrayBuffer>) => void} read the first bytes, as many as the target takes
 * @property {(chunk: Uint8Array<ArrayBuffer>, at: number) => void} write
 * @property {() => void} clear
 */

/** @type {Kept} */
const NOWHERE = { lasts: false, size: 0, read: () => {}, write: () => {}, clear: () => {} };

export class Shelf {
  /**
   * @param {FileSystemDirectoryHandle | null} folder null keeps nothing
   * @param {string} key of the bundle
   * @param {string | null} note why nothing is kept, or not everything
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
   * Do `work` with a file that nobody else touches meanwhile, in no tab. One that the browser does not open is none that
   * is kept, and the `note` says so.
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
      const access = await this.#open(folder, name);
      try {
        return await work(access ? kept(access) : NOWHERE);
      } finally {
        access?.close();
      }
    });
  }

  /**
   * @param {FileSystemDirectoryHandle} folder
   * @param {string} name
   */
  async #open(folder, name) {
    try {
      return await openFile(folder, name);
    } catch (error) {
      if (!(error instanceof DOMException) || error.name === "QuotaExceededError") throw error;
      this.note ??= `not all weights are kept, this browser does not open their files: ${error}`;
      return null;
    }
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
   * Delete the files that are not named, except those in use, as far as the browser lets us.
   * @param {ReadonlySet<string>} names
   */
  async prune(names) {
    const { folder, key } = this;
    if (!folder) return;
    try {
      for await (const name of folder.keys()) {
        if (!names.has(name)) await remove(folder, key, name, { ifAvailable: true });
      }
    } catch {
      // What is too much does no harm: the next visit prunes it.
    }
  }
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
    lasts: true,
    get size() {
      return access.getSize();
    },
    read: (target) => void access.read(target, { at: 0 }),
    write: (chunk, at) => {
      // A full disk shows as fewer bytes written, a full quota as an exception.
      if (access.write(chunk, { at }) < chunk.length) throw outOfQuota();
    },
    clear: () => access.truncate(0),
  };
}

/** What a browser throws that has no room for more. */
export function outOfQuota() {
  return new DOMException("the file could not be written", "QuotaExceededError");
}
