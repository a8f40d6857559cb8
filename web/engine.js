/**
 * The engine: token ids in, logits or projections out; owns the session, and makes the KV caches.
 *
 * Knows tensors and token ids, not questions or text. `ort` is injected, so that any build of ONNX Runtime Web
 * runs it. The Python twin is `typedecide/model.py`.
 */

import { AbortedError, DeviceLostError, TooLongError, UnsupportedError } from "./errors.js";
import { HIDDEN, planRuns, suffixDepth, suffixLength, treeMask } from "./packing.js";
import { ALONE, cacheType, chunkTokens, isStock, stockFeeds, stockReads } from "./stock.js";

/** Tokens of one prefill run: bounds the score matrix of a long text, and lets a caller abort in between. */
const CHUNK = 512;

/**
 * Key positions that the CPU kernel of Softmax sums together. A prefill that ends on a multiple of it adds up in the
 * same order as the whole prompt does, so that a reused prefix gives the same numbers to the last bit.
 */
const LANES = 4;

/** KV slots are allocated in steps of this many tokens. */
const SLOT_STEP = 256;

/** Milliseconds that a device is given to say that it was lost, after a run failed. */
const LOSS_MS = 500;

/**
 * Sizes that the KV cache needs, in counts; `shallow` layers run all tokens (undefined: all layers do).
 * @typedef {{layers: number, kv_heads: number, head_dim: number, context: number, shallow?: number}} Shape
 */

/**
 * How caches are kept: sizes, the first word of the graph's names for what it takes, and the type of their values.
 * @typedef {Shape & {past: string, type: "float32" | "float16"}} Kept
 */

/**
 * One continuation of a cached prefix, and what is read of it: either the logits of `labelIds` at the last token, or
 * the log-probability of each of `targets`, the j-th one at place `reads[j]` of `ids`; or, of a joined suffix
 * (`branches` behind the stem `ids`, and `tail` behind them all), the projections of the last token of each branch and
 * of the tail: (branches + 1) x width values, row by row. Of a whole prompt, `hidden` says from where to before where in
 * `ids` the upper layers of a shallow model see no token: the text behind the anchor.
 * @typedef {object} Suffix
 * @property {readonly number[]} ids
 * @property {readonly number[]} [labelIds]
 * @property {readonly number[]} [reads]
 * @property {readonly number[]} [targets]
 * @property {readonly (readonly number[])[]} [branches]
 * @property {readonly number[]} [tail]
 * @property {readonly [number, number]} [hidden]
 */

/** @typedef {typeof import("onnxruntime-common")} Ort */
/** @typedef {import("onnxruntime-common").Tensor} Tensor */
/** @typedef {import("onnxruntime-common").InferenceSession} Session */

/**
 * The keys and values of some layers for a prefilled prefix. Several caches may hold one part.
 * @typedef {object} Part
 * @property {number} holders caches that hold it
 * @property {number} length tokens held
 * @property {number} bytes memory taken
 * @property {() => Record<string, Tensor>} feeds past tensors of a run
 * @property {(total: number, keep: boolean) => Record<string, Tensor | null>} fetches present tensors of a run that
 *   ends at `total` tokens; null where the runtime makes them
 * @property {(total: number, results: Record<string, Tensor>) => void} commit take over what a kept run wrote
 * @property {(total: number) => void} reserve make room for `total` tokens that will be kept
 * @property {(total: number) => void} fit make room for a run that ends at `total` tokens
 * @property {() => void} finish no more tokens will be kept
 * @property {(other: Part) => void} extend start as a copy of another part of the same layers
 * @property {() => void} release
 */

/**
 * What a run sends to the upper layers of a shallow model: places among its tokens, their mask, U x (past + U), and how
 * many of them stay in the cache, from the first.
 * @typedef {{rows: number[], mask: Float32Array, keep: number}} Up
 */

/**
 * The KV cache of a prefilled prefix. Who asked for it keeps it, and releases it. The upper layers of a shallow model are
 * a part of their own, which often is that of another cache: what all texts share.
 */
export class Cache {
  /** @type {Set<Part>} */
  #own;

  /**
   * @param {Part[]} parts
   * @param {Part[]} own those that belong to no other cache
   */
  constructor(parts, own) {
    this.parts = parts;
    this.#own = new Set(own);
  }

  /** Tokens held. */
  get length() {
    return this.parts[0].length;
  }

  /** Tokens that the last layer holds: of a shallow model, those of the anchor. */
  get upper() {
    return this.parts[this.parts.length - 1].length;
  }

  /** Memory taken, without what belongs to another cache. */
  get bytes() {
    return [...this.#own].reduce((sum, part) => sum + part.bytes, 0);
  }

  /** Let go of all parts; those that no other cache holds are freed. */
  release() {
    for (const part of this.parts.splice(0)) if (--part.holders === 0) part.release();
    this.#own.clear();
  }
}

export class Engine {
  /**
   * @param {object} parts
   * @param {Ort} parts.ort
   * @param {Session} parts.session
   * @param {Shape} parts.shape
   * @param {GPUDevice | null} parts.device null on WASM
   * @param {number} [parts.vocabulary] of a stock export: tokens that its logits are of
   * @param {boolean} [parts.grouped] whether attention is one kernel that takes keys in place; default: our own graphs'
   */
  constructor({ ort, session, shape, device, vocabulary = 0, grouped }) {
    this.ort = ort;
    this.session = session;
    this.shape = shape;
    this.device = device;
    const names = Array.from({ length: shape.layers }, (_, i) => [`${i}.key`, `${i}.value`]);
    const cut = shape.shallow ?? shape.layers;
    /** Names of the keys and values of each part of the layers. */
    this.parts = [names.slice(0, cut), names.slice(cut)]
      .filter(({ length }) => length > 0)
      .map((p) => p.flat());
    this.outputs = session.outputNames.filter((name) => !name.startsWith("present."));
    /** Whether the graph is a community's export. */
    this.stock = isStock(session);
    this.chunk = this.stock ? chunkTokens(vocabulary, CHUNK, LANES) : CHUNK;
    /** @type {Kept} */
    this.kept = {
      ...shape,
      past: this.stock ? "past_key_values" : "past",
      type: this.stock ? cacheType(session) : "float32",
    };
    this.grouped = grouped ?? session.inputNames.includes("seqlens_k");
    /** @type {string | null} */
    this.lost = null;
    /** What to tell when the device is lost. @type {Set<(error: Error) => void>} */
    this.waiting = new Set();
    device?.lost.then((info) => this.#lose(info.message || info.reason || "unknown reason"));
    // A buffer for which there is no memory, or work that is refused, is no exception: what depends on it is left out, and
    // stale or zero values are read. The device says so on the side, and in order: before it gives what is read after.
    device?.addEventListener("uncapturederror", ({ error }) => this.#lose(error.message));
  }

  /**
   * The device is gone, or what it holds is not to be trusted any more.
   * @param {string} reason
   */
  #lose(reason) {
    this.lost ??= reason;
    for (const reject of this.waiting) reject(deviceLost(this.lost));
  }

  /**
   * Compute the KV cache of `ids`.
   * @param {readonly number[]} ids
   * @param {object} [options]
   * @param {Cache} [options.base] the cache of the first `base.length` of the ids: they are not computed again
   * @param {number} [options.anchor] how many of the ids the upper layers of a shallow model get, from the first
   * @param {() => boolean} [options.aborted] asked between chunks
   * @returns {Promise<Cache>}
   * @throws {TooLongError} the text does not fit the context
   * @throws {AbortedError}
   * @throws {RangeError} the base has another anchor
   */
  async prefill(ids, { base, anchor = 0, aborted } = {}) {
    const limit = this.shape.context;
    const tokens = ids.length;
    if (tokens > limit) {
      throw new TooLongError(`the text has ${tokens} tokens, the context holds ${limit}`, { tokens, limit });
    }
    if (base && this.#isShallow && base.upper !== Math.min(anchor, base.length)) {
      throw new RangeError(`The anchor is ${anchor} tokens, of which the base has ${base.upper}.`);
    }
    const cache = this.#newCache([tokens, Math.min(anchor, tokens)], base);
    try {
      while (cache.length < ids.length) {
        const start = cache.length;
        if (aborted) await turn();
        if (aborted?.()) throw new AbortedError("the prefill was aborted");
        const chunk = ids.slice(start, start + this.chunk);
        const positions = chunk.map((_, i) => start + i);
        const kept = chunk.length;
        // Filler behind the last token: no token sees it, and its keys are not kept.
        while (!this.device && (start + chunk.length) % LANES) {
          chunk.push(0);
          positions.push(start + kept - 1);
        }
        const mask = treeMask(start, chain(chunk.length));
        const up = this.#isShallow ? anchored(cache, Math.min(kept, anchor - start)) : null;
        await this.#run(cache, chunk, positions, mask, up, NOTHING, kept);
        // GPU work is only queued so far; without this wait an abort could not come between two chunks.
        if (this.device && aborted) await this.#held(this.device.queue.onSubmittedWorkDone());
      }
    } catch (error) {
      cache.release();
      throw error;
    }
    for (const part of cache.parts) part.finish();
    return cache;
  }

  /**
   * Label logits, targets' log-probabilities or projections of each suffix after a cached prefix. Suffixes are packed
   * into runs of at most `budget` tokens, in which what they share from their start is computed once. The cache stays
   * as it is.
   * @param {Cache} cache
   * @param {readonly Suffix[]} suffixes
   * @param {object} [options]
   * @param {number} [options.budget] tokens of one run; default: as many as the context holds
   * @param {() => boolean} [options.aborted] asked between runs
   * @param {(suffix: number, logits: Float32Array) => void} [options.onLogits] told each result as its run ends
   * @returns {Promise<{logits: Float32Array[], tokens: number, saved: number, runs: number}>} what is read of each
   *   suffix, in the order of its `labelIds`, `targets` or `branches`; tokens run, tokens saved by sharing, and number
   *   of runs
   * @throws {TooLongError} a suffix does not fit behind the prefix
   * @throws {UnsupportedError} a joined suffix, and a model without a pointer
   * @throws {AbortedError}
   */
  async score(cache, suffixes, { budget = Infinity, aborted, onLogits } = {}) {
    for (const suffix of suffixes) this.#check(cache.length, suffix);
    // RotaryEmbedding takes no more tokens than it has positions.
    const plan = planRuns(suffixes, this.stock ? ALONE : Math.min(budget, this.shape.context));
    const logits = /** @type {Float32Array[]} */ (new Array(suffixes.length));
    const sum = { tokens: 0, saved: 0, runs: plan.length };
    for (const [i, run] of plan.entries()) {
      if (i > 0 && aborted) await turn();
      if (aborted?.()) throw new AbortedError("scoring was aborted");
      const found = await this.#packed(cache, run, suffixes);
      run.suffixes.forEach((suffix, j) => {
        logits[suffix] = found[j];
        onLogits?.(suffix, found[j]);
      });
      sum.tokens += run.ids.length;
      sum.saved += run.saved;
    }
    return { logits, ...sum };
  }

  /**
   * What is read of a whole prompt, without the cache: the plain path that others are compared with. All its tokens go
   * through all layers; the upper ones of a shallow model do not see those that are `hidden`.
   * @param {Suffix} prompt
   * @returns {Promise<Float32Array>}
   */
  async scoreFull(prompt) {
    const cache = this.#newCache([0, 0]);
    try {
      this.#check(0, prompt);
      const [run] = planRuns([prompt], suffixLength(prompt));
      return (await this.#packed(cache, run, [prompt], prompt.hidden))[0];
    } finally {
      cache.release();
    }
  }

  /** Free the session; caches are their keepers' to release. */
  async release() {
    await this.session.release();
  }

  /** Whether the upper layers are a part of their own. */
  get #isShallow() {
    return this.parts.length > 1;
  }

  /**
   * One packed run: what is read of its suffixes.
   * @param {Cache} cache
   * @param {import("./packing.js").Run} run
   * @param {readonly Suffix[]} suffixes all suffixes that were planned
   * @param {readonly [number, number]} [hidden] of a whole prompt
   */
  async #packed(cache, run, suffixes, hidden = [0, 0]) {
    const past = cache.length;
    const wanted = run.suffixes.map((i) => suffixes[i]);
    const columns = places(
      wanted.flatMap((suffix) => [...(suffix.labelIds ?? []), ...(suffix.targets ?? [])]),
    );
    const rows = places(run.rows.flat());
    const whole = places(run.rows.filter((_, i) => wanted[i].targets).flat());
    const positions = run.depths.map((depth) => past + depth);
    const mask = treeMask(past, run.parents, run.joins);
    const up = this.#isShallow
      ? {
          rows: run.ids.map((_, i) => i),
          mask: hide(treeMask(cache.upper, run.parents, run.joins), run.ids.length, hidden),
          keep: 0,
        }
      : null;
    const reads = {
      rows: [...rows.keys()],
      labels: columns.size > 0 ? [...columns.keys()] : NOTHING.labels,
      whole: [...whole.keys()].map((row) => place(rows, row)),
    };
    const read = await this.#run(cache, run.ids, positions, mask, up, reads, 0);
    const at = (/** @type {number} */ row, /** @type {number} */ id) =>
      read.label_logits[place(rows, row) * columns.size + place(columns, id)];
    return wanted.map(({ labelIds = [], targets, branches }, i) => {
      const own = run.rows[i];
      if (branches?.length)
        return gather(
          read.projections,
          rows.size,
          own.map((row) => place(rows, row)),
        );
      if (!targets) return Float32Array.from(labelIds, (id) => at(own[0], id));
      return Float32Array.from(targets, (id, j) => at(own[j], id) - read.normalizers[place(whole, own[j])]);
    });
  }

  /**
   * One session run.
   * @param {Cache} cache
   * @param {readonly number[]} ids S new tokens
   * @param {readonly number[]} positions S
   * @param {Float32Array} mask S x (past + S)
   * @param {Up | null} up for the upper layers of a shallow model
   * @param {{rows: number[], labels: number[], whole: number[]}} reads rows and labels whose logits are read, and which
   *   of the rows are normalised over the whole vocabulary, as places in `rows`
   * @param {number} keep how many of the new tokens stay in the cache, from the first
   * @returns {Promise<Record<string, Float32Array>>} `label_logits`, rows x labels; `normalizers`, the log of the sum of
   *   exp over the vocabulary, one for each of `whole`; with a pointer `projections`, rows x width
   */
  async #run(cache, ids, positions, mask, up, reads, keep) {
    if (this.lost !== null) throw deviceLost(this.lost);
    const total = cache.length + ids.length;
    /** For each part, how many tokens run and how many of them are kept. */
    const spans = [{ count: ids.length, keep }, ...(up ? [{ count: up.rows.length, keep: up.keep }] : [])];
    const ends = spans.map(({ count }, i) => cache.parts[i].length + count);
    cache.parts.forEach((part, i) => part.fit(ends[i]));
    const feeds = Object.assign(
      this.stock
        ? stockFeeds(this.ort, this.session, ids, positions, total)
        : this.#feeds(ids, positions, mask, total, up, ends[1], reads),
      ...cache.parts.map((part) => part.feeds()),
    );
    // A prefill reads no logits, and those of the whole vocabulary are many.
    const outputs = this.stock && keep > 0 ? [] : this.outputs;
    try {
      const fetches = Object.fromEntries(outputs.map((name) => [name, null]));
      const present = cache.parts.map((part, i) => part.fetches(ends[i], spans[i].keep > 0));
      const results = await this.#held(this.session.run(feeds, Object.assign(fetches, ...present)));
      /** @type {Record<string, Float32Array>} */
      const read = {};
      for (const name of outputs)
        read[name] = /** @type {Float32Array} */ (await this.#held(results[name].getData()));
      if (this.lost !== null) throw deviceLost(this.lost);
      cache.parts.forEach((part, i) => {
        if (spans[i].keep > 0) part.commit(part.length + spans[i].keep, results);
      });
      return this.stock && read.logits ? stockReads(read.logits, results.logits.dims[2], reads) : read;
    } catch (error) {
      // The runtime may notice a lost device before the device says so itself.
      if (this.device && this.lost === null) await Promise.race([this.device.lost, turn(LOSS_MS)]);
      if (this.lost !== null) throw deviceLost(this.lost);
      // After a trap the WebAssembly instance runs nothing any more; after a refused run on a GPU, nobody knows what its
      // buffers hold.
      if (this.device || error instanceof WebAssembly.RuntimeError) throw stopped(error);
      throw error;
    }
  }

  /**
   * The inputs of our own graphs, without the caches.
   * @param {readonly number[]} ids
   * @param {readonly number[]} positions
   * @param {Float32Array} mask
   * @param {number} total tokens that the run ends at
   * @param {Up | null} up
   * @param {number} upTotal the same for the upper layers
   * @param {import("./stock.js").Reads} reads
   * @returns {Record<string, Tensor>}
   */
  #feeds(ids, positions, mask, total, up, upTotal, { rows, labels, whole }) {
    /** @type {Record<string, Tensor>} */
    const feeds = {
      input_ids: this.#integers("int64", ids, [1, ids.length]),
      position_ids: this.#integers("int64", positions, [1, ids.length]),
      mask: new this.ort.Tensor("float32", mask, [1, 1, ids.length, total]),
      rows: this.#integers("int64", rows, [rows.length]),
      label_ids: this.#integers("int64", labels, [labels.length]),
      vocabulary_rows: this.#integers("int64", whole, [whole.length]),
    };
    if (this.grouped) {
      feeds.seqlens_k = this.#integers("int32", [total - 1], [1]);
      feeds.total_sequence_length = this.#integers("int32", [total], [1]);
    }
    if (up) {
      feeds.up_rows = this.#integers("int64", up.rows, [up.rows.length]);
      feeds.up_mask = new this.ort.Tensor("float32", up.mask, [1, 1, up.rows.length, upTotal]);
      if (this.grouped) {
        feeds.up_seqlens_k = this.#integers("int32", [upTotal - 1], [1]);
        feeds.up_total_sequence_length = this.#integers("int32", [upTotal], [1]);
      }
    }
    return feeds;
  }

  /**
   * What the device promises, or its loss: a lost one may leave its promises open.
   * @template T
   * @param {Promise<T>} promise
   */
  #held(promise) {
    if (!this.device) return promise;
    // Not a race with `device.lost`, which would keep a trace of every run.
    return /** @type {Promise<T>} */ (
      new Promise((resolve, reject) => {
        this.waiting.add(reject);
        promise.then(resolve, reject).finally(() => this.waiting.delete(reject));
      })
    );
  }

  /**
   * @param {"int64" | "int32"} type
   * @param {readonly number[]} values
   * @param {number[]} dims
   */
  #integers(type, values, dims) {
    const data = type === "int64" ? BigInt64Array.from(values, BigInt) : Int32Array.from(values);
    return new this.ort.Tensor(type, data, dims);
  }

  /**
   * A cache that starts as its base. A part to which nothing will be added is the base's own.
   * @param {[number, number]} tokens that each part will hold
   * @param {Cache} [base]
   */
  #newCache(tokens, base) {
    /** @type {Part[]} */
    const own = [];
    const parts = this.parts.map((names, i) => {
      const old = base?.parts[i];
      if (old?.length === tokens[i]) {
        old.holders++;
        return old;
      }
      const part = this.#newPart(names);
      part.reserve(tokens[i]);
      if (old) part.extend(old);
      own.push(part);
      return part;
    });
    return new Cache(parts, own);
  }

  /** @param {string[]} names */
  #newPart(names) {
    if (!this.device) return heapPart(this.ort, this.kept, names);
    return bufferPart(this.ort, this.kept, names, this.device, this.grouped);
  }

  /**
   * @param {number} prefix tokens before the suffix
   * @param {Suffix} suffix
   */
  #check(prefix, suffix) {
    const limit = this.shape.context;
    const depth = suffixDepth(suffix);
    const tokens = prefix + depth;
    if (tokens > limit) {
      const room = `behind the text's ${prefix} the context of ${limit} holds ${limit - prefix} more`;
      const whole = `the prompt has ${tokens} tokens, the context holds ${limit}`;
      const message = prefix > 0 ? `the question has ${depth} tokens; ${room}` : whole;
      throw new TooLongError(message, { tokens, limit, prefix, suffix: depth });
    }
    const length = suffixLength(suffix);
    if (length > limit) {
      throw new TooLongError(
        `the question has ${length} tokens with all its options, one run holds ${limit}`,
        {
          tokens: length,
          limit,
          prefix,
          suffix: length,
        },
      );
    }
    if (suffix.branches?.length && !this.outputs.includes("projections")) {
      throw new UnsupportedError("this model has no pointer, which joined suffixes are read by", {
        outputs: this.outputs,
      });
    }
  }
}

/** What a prefill reads: nothing of use, but the graph wants a row. */
const NOTHING = { rows: [0], labels: [0], whole: [] };

/**
 * Some rows of a matrix, one after another.
 * @param {Float32Array} matrix
 * @param {number} count how many rows it has
 * @param {readonly number[]} rows
 */
function gather(matrix, count, rows) {
  const width = matrix.length / count;
  const found = new Float32Array(rows.length * width);
  rows.forEach((row, i) => found.set(matrix.subarray(row * width, (row + 1) * width), i * width));
  return found;
}

/**
 * Distinct values in order, each with its place.
 * @param {readonly number[]} values
 */
function places(values) {
  return new Map([...new Set(values)].map((value, i) => [value, i]));
}

/**
 * @param {Map<number, number>} of
 * @param {number} value
 */
function place(of, value) {
  return /** @type {number} */ (of.get(value));
}

/**
 * Parents of a plain sequence: each token follows the one before.
 * @param {number} length
 */
function chain(length) {
  return Array.from({ length }, (_, i) => i - 1);
}

/**
 * The first `count` tokens of a run are sent up and kept; where that is none, one as filler, which is not: GPU tensors
 * cannot be empty.
 * @param {Cache} cache
 * @param {number} count
 * @returns {Up}
 */
function anchored(cache, count) {
  const rows = Array.from({ length: Math.max(count, 1) }, (_, i) => i);
  return { rows, mask: treeMask(cache.upper, chain(rows.length)), keep: Math.max(count, 0) };
}

/**
 * A mask in which no token sees those from one place to before another, but each sees itself.
 * @param {Float32Array} mask of `size` x `size` tokens where any are hidden; changed in place
 * @param {number} size
 * @param {readonly [number, number]} hidden
 */
function hide(mask, size, [from, to]) {
  for (let row = 0; row < size && from < to; row++) {
    const own = mask[row * size + row];
    mask.fill(HIDDEN, row * size + from, row * size + to);
    mask[row * size + row] = own;
  }
  return mask;
}

/**
 * Keys and values in JavaScript arrays: the runtime copies them to its heap at each run.
 * @param {Ort} ort
 * @param {Kept} shape
 * @param {readonly string[]} names
 * @returns {Part}
 */
function heapPart(ort, shape, names) {
  /** @type {Record<string, Tensor>} */
  let past = emptyPast(ort, shape, names);
  /** @type {Part} */
  const part = {
    holders: 1,
    length: 0,
    get bytes() {
      return part.length * names.length * valueBytes(shape);
    },
    feeds: () => past,
    fetches: (_, keep) => (keep ? named("present", names, () => null) : {}),
    commit: (total, results) => {
      past = named(shape.past, names, (i) => firstSlots(ort, results[`present.${names[i]}`], total));
      part.length = total;
    },
    reserve: () => {},
    fit: () => {},
    finish: () => {},
    extend: (other) => {
      // Tensors are never written to: two caches may share them.
      past = other.feeds();
      part.length = other.length;
    },
    release: () => {
      past = {};
      part.length = 0;
    },
  };
  return part;
}

/**
 * The first `slots` positions of a cache tensor [1, heads, positions, size].
 * @param {Ort} ort
 * @param {Tensor} tensor
 * @param {number} slots
 */
function firstSlots(ort, tensor, slots) {
  const [, heads, positions, size] = tensor.dims;
  if (positions === slots) return tensor;
  const data = /** @type {Float32Array} */ (tensor.data);
  const kept = new /** @type {Float32ArrayConstructor} */ (data.constructor)(heads * slots * size);
  for (let head = 0; head < heads; head++) {
    const start = head * positions * size;
    kept.set(data.subarray(start, start + slots * size), head * slots * size);
  }
  return new ort.Tensor(/** @type {"float32"} */ (tensor.type), kept, [1, heads, slots, size]);
}

/** @typedef {Part & {source: {buffers: GPUBuffer[], step: number}}} BufferPart */

/**
 * Keys and values in GPU buffers that we own. The grouped kernel writes new keys in place behind the prefix, which
 * therefore survives any number of scoring runs, also where caches share it; the explicit graph reads one set of buffers
 * and writes another.
 * @param {Ort} ort
 * @param {Kept} shape
 * @param {readonly string[]} names
 * @param {GPUDevice} device
 * @param {boolean} inPlace
 * @returns {BufferPart}
 */
function bufferPart(ort, shape, names, device, inPlace) {
  let slots = 0;
  /** @type {GPUBuffer[]} */
  let current = [];
  /** @type {GPUBuffer[]} */
  let spare = [];

  /** @param {number} tokens */
  const allocate = (tokens) =>
    names.map(() =>
      device.createBuffer({
        size: tokens * valueBytes(shape),
        usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST,
      }),
    );
  /** @param {GPUBuffer[]} buffers */
  const destroy = (buffers) => buffers.forEach((buffer) => buffer.destroy());
  /**
   * @param {string} kind
   * @param {GPUBuffer[]} buffers
   * @param {number} tokens
   * @returns {Record<string, Tensor>}
   */
  const tensors = (kind, buffers, tokens) => {
    const dims = [1, shape.kv_heads, tokens, shape.head_dim];
    return named(kind, names, (i) => ort.Tensor.fromGpuBuffer(buffers[i], { dataType: shape.type, dims }));
  };

  /**
   * Larger buffers; what they hold moves along.
   * @param {number} wanted
   */
  const grow = (wanted) => {
    const larger = allocate(wanted);
    copy(current, slots, larger, wanted, part.length);
    destroy(current);
    current = larger;
    slots = wanted;
  };
  /**
   * Copy `tokens` positions of each head between buffers whose heads are `step` positions apart.
   * @param {GPUBuffer[]} from
   * @param {number} fromStep
   * @param {GPUBuffer[]} to
   * @param {number} toStep
   * @param {number} tokens
   */
  const copy = (from, fromStep, to, toStep, tokens) => {
    if (tokens === 0) return;
    const row = shape.head_dim * WIDTHS[shape.type];
    const encoder = device.createCommandEncoder();
    from.forEach((buffer, i) => {
      for (let head = 0; head < shape.kv_heads; head++) {
        const [source, target] = [head * fromStep * row, head * toStep * row];
        encoder.copyBufferToBuffer(buffer, source, to[i], target, tokens * row);
      }
    });
    device.queue.submit([encoder.finish()]);
  };

  /** @type {BufferPart} */
  const part = {
    holders: 1,
    length: 0,
    get bytes() {
      return (current.length + spare.length) * slots * valueBytes(shape);
    },
    /** Buffers, and how many positions apart their heads lie: what another part copies. */
    get source() {
      return { buffers: current, step: inPlace ? slots : part.length };
    },
    feeds: () => {
      if (inPlace) return tensors(shape.past, current, slots);
      return part.length === 0 ? emptyPast(ort, shape, names) : tensors(shape.past, current, part.length);
    },
    fetches: (total, keep) => {
      if (inPlace) return tensors("present", current, slots);
      return keep ? tensors("present", spare, total) : {};
    },
    commit: (total) => {
      if (!inPlace) [current, spare] = [spare, current];
      part.length = total;
    },
    reserve: (total) => {
      if (inPlace) part.fit(total);
      else if (total > 0) {
        slots = stepped(total);
        [current, spare] = [allocate(slots), allocate(slots)];
      }
    },
    fit: (total) => {
      if (inPlace && stepped(total) > slots) grow(stepped(total));
    },
    finish: () => {
      destroy(spare);
      spare = [];
    },
    extend: (other) => {
      const { buffers, step } = /** @type {BufferPart} */ (other).source;
      copy(buffers, step, current, inPlace ? slots : other.length, other.length);
      part.length = other.length;
    },
    release: () => {
      destroy([...current, ...spare]);
      [current, spare, slots, part.length] = [[], [], 0, 0];
    },
  };
  return part;
}

/**
 * Let the event loop turn: a run on WASM never does, and the message that aborts waits there.
 * @param {number} [ms]
 */
export function turn(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/**
 * Slots that are allocated for so many tokens.
 * @param {number} tokens
 */
function stepped(tokens) {
  return Math.ceil(tokens / SLOT_STEP) * SLOT_STEP;
}

/** Bytes of a value of a cache. */
const WIDTHS = Object.freeze({ float32: 4, float16: 2 });

/**
 * The caches of no token.
 * @param {Ort} ort
 * @param {Kept} shape
 * @param {readonly string[]} names
 */
function emptyPast(ort, { past, type, kv_heads, head_dim }, names) {
  const dims = [1, kv_heads, 0, head_dim];
  // The runtime takes the bits of float16 too.
  const nothing = () =>
    type === "float32"
      ? new ort.Tensor("float32", new Float32Array(0), dims)
      : new ort.Tensor("float16", new Uint16Array(0), dims);
  return named(past, names, nothing);
}

/**
 * Bytes of a token's keys, or values, in one layer.
 * @param {Shape & {type?: Kept["type"]}} shape
 */
function valueBytes({ kv_heads, head_dim, type = "float32" }) {
  return kv_heads * head_dim * WIDTHS[type];
}

/**
 * Bytes that one token of a text takes in a cache.
 * @param {Shape & {type?: Kept["type"]}} shape
 */
export function tokenBytes(shape) {
  return 2 * (shape.shallow ?? shape.layers) * valueBytes(shape);
}

/** @param {string} reason */
function deviceLost(reason) {
  return new DeviceLostError(`the GPU device was lost, or failed (${reason}): load the engine again`, {
    reason,
  });
}

/** @param {unknown} error */
function stopped(error) {
  const reason = error instanceof Error ? error.message : String(error);
  return new DeviceLostError(`the runtime stopped (${reason}): load the engine again`, { reason });
}

/**
 * A record `{kind}.{name}` for all cache tensors.
 * @template T
 * @param {string} kind
 * @param {readonly string[]} names
 * @param {(i: number) => T} make
 * @returns {Record<string, T>}
 */
function named(kind, names, make) {
  return Object.fromEntries(names.map((name, i) => [`${kind}.${name}`, make(i)]));
}
