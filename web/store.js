/**
 * The bundle's files: kept ones from the shelf, the others from the server, and each checked against its sha256 before
 * anything uses it.
 *
 * Knows files and hashes, not what is in them.
 */

import { download, get } from "./download.js";
import { AbortedError, BundleError, IntegrityError, UnsupportedError } from "./errors.js";
import { Shelf, outOfQuota } from "./shelf.js";
import { hex, outOfRoom, room } from "./storage.js";

/** Manifest schema that this code reads. */
const SCHEMA = 1;

/** Files fetched at the same time: enough to fill a connection, few enough to keep memory low. */
const PARALLEL = 4;

/** @typedef {{path: string, bytes: number, shards: string[]}} DataFile */
/**
 * A case of the self-test: for each suffix behind the prefix the logits of the labels, or of the options of a set.
 * @typedef {object} Golden
 * @property {string} name
 * @property {number[]} prefix
 * @property {number} [anchor] of a shallow model: how many of the prefix's tokens are the anchor
 * @property {{ids: number[], branches?: number[][], tail?: number[]}[]} suffixes
 * @property {number[]} label_ids
 * @property {number[][]} logits
 */
/**
 * @typedef {object} Format
 * @property {Record<string, string>} graphs path of each graph variant
 * @property {DataFile[]} data
 * @property {number} bytes
 * @property {Golden[]} golden
 * @property {number} [tolerance] of the self-test; default: the manifest's
 * @property {("webgpu" | "wasm")[]} [devices] those it is for; default: all
 */
/**
 * @typedef {object} Limits
 * @property {number} context
 * @property {number} max_options
 * @property {number} max_levels
 * @property {number} rotation_budget orders that are read of a question with many options
 * @property {Record<string, number>} run_tokens tokens of one packed run on each device
 */
/**
 * @typedef {{
 *   name: string,
 *   licence: string,
 *   shape: import("./engine.js").Shape,
 *   shallow?: {layers: number},
 * } & Record<string, unknown>} Model
 */
/** @typedef {{module: string, loader: string, wasm: string}} Build */
/**
 * @typedef {object} Manifest
 * @property {number} schema
 * @property {boolean} [stock] whether the graphs are a community's export, run as they are
 * @property {Model} model
 * @property {Limits} limits
 * @property {import("./prompt.js").PromptSpec} prompt
 * @property {{text: string, id: number}[]} labels
 * @property {string} readout
 * @property {string} tokenizer
 * @property {string} default_format
 * @property {{format: string}} [calibration]
 * @property {Record<string, Format>} formats
 * @property {{tolerance: number}} selftest
 * @property {{ort: string, builds: Record<string, Build>}} runtime
 * @property {Record<string, {bytes: number, sha256: string}>} files
 */

/** @typedef {(file: string, loadedBytes: number, totalBytes: number) => void} OnBytes */

export class Store {
  /**
   * @param {URL} base folder of the bundle
   * @param {Manifest} manifest
   * @param {Shelf} shelf
   * @param {AbortSignal} [signal]
   * @param {URL} [weights] folder that has the shards of the weights, under the same paths; default: the bundle's
   */
  constructor(base, manifest, shelf, signal, weights = base) {
    this.base = base;
    this.manifest = manifest;
    this.shelf = shelf;
    this.signal = signal;
    this.downloadedBytes = 0;
    this.keptBytes = 0;
    this.weights = weights;
    const formats = Object.values(manifest.formats);
    this.shards = new Set(formats.flatMap(({ data }) => data.flatMap(({ shards }) => shards)));
  }

  /**
   * Read the manifest of the bundle at `base`.
   * @param {URL} base
   * @param {object} [options]
   * @param {AbortSignal} [options.signal]
   * @param {URL} [options.weights] folder that has the shards of the weights; default: the bundle's
   * @param {boolean} [options.keep] whether files are kept for the next visit
   */
  static async open(base, { signal, weights, keep = true } = {}) {
    const url = new URL("manifest.json", base);
    // An old one would name files that are no more.
    const text = await get(url, { cache: "no-cache", signal });
    /** @type {Manifest} */
    let manifest;
    try {
      manifest = JSON.parse(text);
    } catch (error) {
      throw new BundleError(`${url} is not JSON: ${error}`, { url: String(url) });
    }
    if (manifest.schema !== SCHEMA) {
      throw new BundleError(`${url} has schema ${manifest.schema}; this code reads schema ${SCHEMA}`, {
        url: String(url),
        schema: manifest.schema,
      });
    }
    subtle();
    return new Store(base, manifest, await Shelf.open(base, keep), signal, weights);
  }

  /** @returns {import("./types.js").Storage} */
  get storage() {
    const { shelf, downloadedBytes, keptBytes } = this;
    return { kept: shelf.note === null, note: shelf.note, downloadedBytes, keptBytes };
  }

  /** Delete what the manifest does not name: an older bundle's files. Call it once the new ones are there. */
  async prune() {
    await this.shelf.prune(new Set(Object.values(this.manifest.files).map((file) => file.sha256)));
  }

  /**
   * Address of a file of the bundle.
   * @param {string} path
   */
  url(path) {
    return new URL(path, this.shards.has(path) ? this.weights : this.base);
  }

  /**
   * One file's bytes, verified.
   * @param {string} path
   * @param {OnBytes} [onBytes]
   */
  async bytes(path, onBytes = () => {}) {
    const { bytes } = this.#entry(path);
    const target = new Uint8Array(bytes);
    await this.#into(target, path, (loaded) => onBytes(path, loaded, bytes), this.#cancel().signal);
    return target;
  }

  /**
   * One file's text, verified.
   * @param {string} path
   * @param {OnBytes} [onBytes]
   */
  async text(path, onBytes) {
    return new TextDecoder().decode(await this.bytes(path, onBytes));
  }

  /**
   * Data files put together from their shards, each shard verified; downloaded in parallel.
   * @param {DataFile[]} files
   * @param {OnBytes} onBytes called with the shard, and the bytes of all data files
   * @returns {Promise<{path: string, data: Uint8Array}[]>}
   */
  async assemble(files, onBytes) {
    const total = files.reduce((sum, file) => sum + file.bytes, 0);
    await this.#makeRoom(files.flatMap((file) => file.shards));
    const cancel = this.#cancel();
    /** @type {Map<string, number>} */
    const loaded = new Map();
    const tasks = [];
    const assembled = [];
    for (const file of files) {
      const data = new Uint8Array(file.bytes);
      assembled.push({ path: file.path, data });
      let offset = 0;
      for (const shard of file.shards) {
        const part = data.subarray(offset, (offset += this.#entry(shard).bytes));
        tasks.push(() =>
          this.#into(
            part,
            shard,
            (bytes) => {
              loaded.set(shard, bytes);
              onBytes(shard, sum(loaded.values()), total);
            },
            cancel.signal,
          ),
        );
      }
      if (offset !== file.bytes) {
        throw new BundleError(`${file.path}: its shards have ${offset} bytes, not ${file.bytes}`, {
          path: file.path,
          expected: file.bytes,
          found: offset,
        });
      }
    }
    await inParallel(tasks, PARALLEL, cancel);
    return assembled;
  }

  /** @param {string} path */
  #entry(path) {
    const entry = this.manifest.files[path];
    if (!entry) throw new BundleError(`the manifest does not list ${path}`, { path });
    return entry;
  }

  /** A controller that the caller's own signal aborts too. */
  #cancel() {
    const cancel = new AbortController();
    if (this.signal?.aborted) cancel.abort();
    this.signal?.addEventListener("abort", () => cancel.abort(), { once: true });
    return cancel;
  }

  /**
   * See that what is missing of some files will fit, before it is fetched; older files go first.
   * @param {readonly string[]} paths
   */
  async #makeRoom(paths) {
    if (!this.shelf.folder) return;
    const missing = paths.map(async (path) => {
      const { bytes, sha256 } = this.#entry(path);
      return Math.max(0, bytes - (await this.shelf.size(sha256)));
    });
    const needed = sum(await Promise.all(missing));
    const fits = async () => needed <= ((await room()) ?? Infinity);
    if (await fits()) return;
    await this.prune();
    if (!(await fits())) throw outOfRoom(needed, await room());
  }

  /**
   * A file into memory that is already there, checked.
   * @param {Uint8Array<ArrayBuffer>} target
   * @param {string} path
   * @param {(loaded: number) => void} onLoaded
   * @param {AbortSignal} signal
   */
  async #into(target, path, onLoaded, signal) {
    const { sha256: name } = this.#entry(path);
    try {
      await this.shelf.exclusive(name, signal, async (file) => {
        let at = Math.min(file.size, target.length);
        file.read(target.subarray(0, at));
        onLoaded(at);
        this.keptBytes += at;
        // Bytes that are here may be wrong, and those of a server too, by way of some cache: each is given a second try.
        for (let fetched = 0; ; at = 0) {
          if (at === 0) fetched += 1;
          const again = fetched > 1;
          const fault = await this.#rest(target, path, { file, at, again, onLoaded, signal });
          if (!fault) {
            // A browser that is out of room may take bytes, say nothing, and not have them.
            if (file.lasts && file.size < target.length) throw outOfQuota();
            return;
          }
          file.clear();
          if (again) throw fault;
        }
      });
    } catch (error) {
      if (signal.aborted) throw new AbortedError(`loading ${path} was aborted`, { path });
      if (!(error instanceof DOMException && error.name === "QuotaExceededError")) throw error;
      throw outOfRoom(target.length - (await this.shelf.size(name)), await room());
    }
  }

  /**
   * Fetch what is missing of a file; gives what is wrong with the whole, or null.
   * @param {Uint8Array<ArrayBuffer>} target
   * @param {string} path
   * @param {{file: import("./shelf.js").Kept, at: number, again: boolean, onLoaded: (loaded: number) => void,
   *   signal: AbortSignal}} how
   */
  async #rest(target, path, { file, at: start, again, onLoaded, signal }) {
    const write = (/** @type {Uint8Array<ArrayBuffer>} */ chunk, /** @type {number} */ at) => {
      target.set(chunk, at);
      file.write(chunk, at);
      this.downloadedBytes += chunk.length;
      onLoaded(at + chunk.length);
    };
    // What is kept here need not be in the browser's HTTP cache as well.
    const cache = file.lasts ? "no-store" : again ? "reload" : "default";
    try {
      await download(this.url(path), { size: target.length, at: start, write }, { cache, signal });
    } catch (error) {
      if (!(error instanceof IntegrityError)) throw error;
      return integrity(path, "size", target.length, error.data.found);
    }
    const expected = this.#entry(path).sha256;
    const found = hex(await subtle().digest("SHA-256", target));
    return found === expected ? null : integrity(path, "sha256", expected, found);
  }
}

/**
 * @param {string} path
 * @param {string} what
 * @param {unknown} expected
 * @param {unknown} found
 */
function integrity(path, what, expected, found) {
  const message = `${path} is not the file that the manifest names: ${what} ${found}, expected ${expected}`;
  return new IntegrityError(message, { path, what, expected, found });
}

function subtle() {
  if (!globalThis.crypto?.subtle) {
    throw new UnsupportedError("files cannot be checked here: open the page over HTTPS or from localhost", {
      feature: "crypto.subtle",
    });
  }
  return crypto.subtle;
}

/** @param {Iterable<number>} numbers */
function sum(numbers) {
  return [...numbers].reduce((a, b) => a + b, 0);
}

/**
 * Do all tasks, `width` at a time; the first failure cancels the others, and is thrown once they have ended.
 * @param {(() => Promise<void>)[]} tasks
 * @param {number} width
 * @param {AbortController} cancel
 */
async function inParallel(tasks, width, cancel) {
  const queue = [...tasks];
  /** @type {unknown[]} */
  const faults = [];
  const worker = async () => {
    for (let task = queue.shift(); task && faults.length === 0; task = queue.shift()) {
      try {
        await task();
      } catch (error) {
        faults.push(error);
        cancel.abort();
      }
    }
  };
  await Promise.all(Array.from({ length: width }, worker));
  if (faults.length > 0) throw faults[0];
}
