/**
 * Fetches the bundle's files and checks each against its sha256 before anything uses it.
 *
 * Knows files and hashes, not what is in them.
 */

import { AbortedError, BundleError, IntegrityError, UnsupportedError } from "./errors.js";

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
   * @param {AbortSignal} [signal]
   * @param {URL} [weights] folder that has the shards of the weights, under the same paths; default: the bundle's
   */
  constructor(base, manifest, signal, weights = base) {
    this.base = base;
    this.manifest = manifest;
    this.signal = signal;
    this.weights = weights;
    const formats = Object.values(manifest.formats);
    this.shards = new Set(formats.flatMap(({ data }) => data.flatMap(({ shards }) => shards)));
  }

  /**
   * Read the manifest of the bundle at `base`.
   * @param {URL} base
   * @param {AbortSignal} [signal]
   * @param {URL} [weights]
   */
  static async open(base, signal, weights) {
    const url = new URL("manifest.json", base);
    const response = await get(url, signal);
    /** @type {Manifest} */
    let manifest;
    try {
      manifest = await response.json();
    } catch (error) {
      throw new BundleError(`${url} is not JSON: ${error}`, { url: String(url) });
    }
    if (manifest.schema !== SCHEMA) {
      throw new BundleError(`${url} has schema ${manifest.schema}; this code reads schema ${SCHEMA}`, {
        url: String(url),
        schema: manifest.schema,
      });
    }
    return new Store(base, manifest, signal, weights);
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
    await this.#into(target, path, (loaded) => onBytes(path, loaded, bytes));
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
   * A gzip file's content; the compressed bytes are what is verified.
   * @param {string} path
   * @param {OnBytes} [onBytes]
   */
  async gunzip(path, onBytes) {
    const packed = await this.bytes(path, onBytes);
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  /**
   * Data files put together from their shards, each shard verified; downloaded in parallel.
   * @param {DataFile[]} files
   * @param {OnBytes} onBytes called with the shard, and the bytes of all data files
   * @returns {Promise<{path: string, data: Uint8Array}[]>}
   */
  async assemble(files, onBytes) {
    const total = files.reduce((sum, file) => sum + file.bytes, 0);
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
          this.#into(part, shard, (bytes) => {
            loaded.set(shard, bytes);
            onBytes(
              shard,
              [...loaded.values()].reduce((a, b) => a + b, 0),
              total,
            );
          }),
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
    await inParallel(tasks, PARALLEL);
    return assembled;
  }

  /** @param {string} path */
  #entry(path) {
    const entry = this.manifest.files[path];
    if (!entry) throw new BundleError(`the manifest does not list ${path}`, { path });
    return entry;
  }

  /**
   * Fetch a file into memory that is already there, then check it.
   * @param {Uint8Array<ArrayBuffer>} target
   * @param {string} path
   * @param {(loaded: number) => void} onLoaded
   */
  async #into(target, path, onLoaded) {
    const response = await get(this.url(path), this.signal);
    const body = /** @type {ReadableStream<Uint8Array>} */ (response.body);
    const reader = body.getReader();
    let offset = 0;
    try {
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        if (offset + part.value.length > target.length) {
          throw integrity(path, "size", target.length, `more than ${target.length}`);
        }
        target.set(part.value, offset);
        offset += part.value.length;
        onLoaded(offset);
      }
    } catch (error) {
      await reader.cancel().catch(() => {});
      throw this.signal?.aborted ? new AbortedError(`loading ${path} was aborted`, { path }) : error;
    }
    if (offset !== target.length) throw integrity(path, "size", target.length, offset);
    const found = await sha256(target);
    const { sha256: expected } = this.#entry(path);
    if (found !== expected) throw integrity(path, "sha256", expected, found);
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
    if (signal?.aborted) throw new AbortedError(`loading ${url} was aborted`, { url: String(url) });
    throw new BundleError(`cannot load ${url}: ${error}`, { url: String(url) });
  }
  if (!response.ok) {
    throw new BundleError(`cannot load ${url}: HTTP ${response.status}`, {
      url: String(url),
      status: response.status,
    });
  }
  return response;
}

/** @param {Uint8Array<ArrayBuffer>} bytes */
async function sha256(bytes) {
  if (!globalThis.crypto?.subtle) {
    throw new UnsupportedError("files cannot be checked here: open the page over HTTPS or from localhost", {
      feature: "crypto.subtle",
    });
  }
  const digest = await crypto.subtle.digest("SHA-256", bytes);
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * @param {(() => Promise<void>)[]} tasks
 * @param {number} width
 */
async function inParallel(tasks, width) {
  const queue = [...tasks];
  const worker = async () => {
    for (let task = queue.shift(); task; task = queue.shift()) await task();
  };
  await Promise.all(Array.from({ length: width }, worker));
}
