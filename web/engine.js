/**
 * The engine: token ids in, logits or projections out; owns the session, and makes the KV caches.
 *
 * Knows tensors and token ids, not questions or text. `ort` is injected, so that any build of ONNX Runtime Web
 * runs it. The Python twin is `typedecide/model.py`.
 */

import { AbortedError, DeviceLostError, TooLongError, UnsupportedError } from "./errors.js";
import { planRuns, suffixDepth, suffixLength, treeMask } from "./packing.js";

/** Tokens of one prefill run: bounds the score matrix of a long text, and lets a caller abort in between. */
const CHUNK = 512;

/**
 * Key positions that the CPU kernel of Softmax sums together. A prefill that ends on a multiple of it adds up in the
 * same order as the whole prompt does, so that a reused prefix gives the same numbers to the last bit.
 */
const LANES = 4;

/** KV slots are allocated in steps of this many tokens. */
const SLOT_STEP = 256;

const FLOAT_BYTES = 4;

/** Milliseconds that a device is given to say that it was lost, after a run failed. */
const LOSS_MS = 500;

/**
 * Sizes that the KV cache needs, in counts.
 * @typedef {{layers: number, kv_heads: number, head_dim: number, context: number}} Shape
 */

/**
 * One continuation of a cached prefix, and what is read of it: either the logits of `labelIds` at the last token, or
 * the log-probability of each of `targets`, the j-th one at place `reads[j]` of `ids`; or, of a joined suffix
 * (`branches` behind the stem `ids`, and `tail` behind them all), the projections of the last token of each branch and
 * of the tail: (branches + 1) x width values, row by row.
 * @typedef {object} Suffix
 * @property {readonly number[]} ids
 * @property {readonly number[]} [labelIds]
 * @property {readonly number[]} [reads]
 * @property {readonly number[]} [targets]
 * @property {readonly (readonly number[])[]} [branches]
 * @property {readonly number[]} [tail]
 */

/** @typedef {typeof import("onnxruntime-common")} Ort */
/** @typedef {import("onnxruntime-common").Tensor} Tensor */
/** @typedef {import("onnxruntime-common").InferenceSession} Session */

/**
 * The KV cache of a prefilled prefix. Who asked for it keeps it, and releases it.
 * @typedef {object} Cache
 * @property {number} length tokens held
 * @property {number} bytes memory taken
 * @property {() => Record<string, Tensor>} feeds past tensors of a run
 * @property {(total: number, keep: boolean) => Record<string, Tensor | null>} fetches present tensors of a run that
 *   ends at `total` tokens; null where the runtime makes them
 * @property {(total: number, results: Record<string, Tensor>) => void} commit take over what a kept run wrote
 * @property {(total: number) => void} reserve make room for `total` tokens
 * @property {() => void} finish no more tokens will be kept
 * @property {(other: Cache) => void} extend start as a copy of another cache of the same engine
 * @property {() => void} release
 */

export class Engine {
  /**
   * @param {object} parts
   * @param {Ort} parts.ort
   * @param {Session} parts.session
   * @param {Shape} parts.shape
   * @param {GPUDevice | null} parts.device null on WASM
   */
  constructor({ ort, session, shape, device }) {
    this.ort = ort;
    this.session = session;
    this.shape = shape;
    this.device = device;
    this.names = Array.from({ length: shape.layers }, (_, i) => [`${i}.key`, `${i}.value`]).flat();
    this.outputs = session.outputNames.filter((name) => !name.startsWith("present."));
    this.grouped = session.inputNames.includes("seqlens_k");
    /** @type {string | null} */
    this.lost = null;
    /** What to tell when the device is lost. @type {Set<(error: Error) => void>} */
    this.waiting = new Set();
    device?.lost.then((info) => {
      this.lost = info.message || info.reason || "unknown reason";
      for (const reject of this.waiting) reject(deviceLost(this.lost));
    });
  }

  /**
   * Compute the KV cache of `ids`.
   * @param {readonly number[]} ids
   * @param {object} [options]
   * @param {Cache} [options.base] the cache of the first `base.length` of the ids: they are not computed again
   * @param {() => boolean} [options.aborted] asked between chunks
   * @returns {Promise<Cache>}
   * @throws {TooLongError} the text does not fit the context
   * @throws {AbortedError}
   */
  async prefill(ids, { base, aborted } = {}) {
    const limit = this.shape.context;
    const tokens = ids.length;
    if (tokens > limit) {
      throw new TooLongError(`the text has ${tokens} tokens, the context holds ${limit}`, { tokens, limit });
    }
    const cache = this.#newCache();
    try {
      cache.reserve(tokens);
      if (base) cache.extend(base);
      while (cache.length < ids.length) {
        const start = cache.length;
        if (aborted) await turn();
        if (aborted?.()) throw new AbortedError("the prefill was aborted");
        const chunk = ids.slice(start, start + CHUNK);
        const positions = chunk.map((_, i) => start + i);
        const kept = chunk.length;
        // Filler behind the last token: no token sees it, and its keys are not kept.
        while (!this.device && (start + chunk.length) % LANES) {
          chunk.push(0);
          positions.push(start + kept - 1);
        }
        const mask = treeMask(start, chain(chunk.length));
        await this.#run(cache, chunk, positions, mask, NOTHING, kept);
        // GPU work is only queued so far; without this wait an abort could not come between two chunks.
        if (this.device && aborted) await this.#held(this.device.queue.onSubmittedWorkDone());
      }
    } catch (error) {
      cache.release();
      throw error;
    }
    cache.finish();
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
    const plan = planRuns(suffixes, Math.min(budget, this.shape.context));
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
   * What is read of a whole prompt, without the cache: the plain path that others are compared with.
   * @param {Suffix} prompt
   * @returns {Promise<Float32Array>}
   */
  async scoreFull(prompt) {
    const cache = this.#newCache();
    try {
      this.#check(0, prompt);
      const [run] = planRuns([prompt], suffixLength(prompt));
      return (await this.#packed(cache, run, [prompt]))[0];
    } finally {
      cache.release();
    }
  }

  /** Free the session; caches are their keepers' to release. */
  async release() {
    await this.session.release();
  }

  /**
   * One packed run: what is read of its suffixes.
   * @param {Cache} cache
   * @param {import("./packing.js").Run} run
   * @param {readonly Suffix[]} suffixes all suffixes that were planned
   */
  async #packed(cache, run, suffixes) {
    const past = cache.length;
    const wanted = run.suffixes.map((i) => suffixes[i]);
    const columns = places(
      wanted.flatMap((suffix) => [...(suffix.labelIds ?? []), ...(suffix.targets ?? [])]),
    );
    const rows = places(run.rows.flat());
    const whole = places(run.rows.filter((_, i) => wanted[i].targets).flat());
    const positions = run.depths.map((depth) => past + depth);
    cache.reserve(past + run.ids.length);
    const mask = treeMask(past, run.parents, run.joins);
    const reads = {
      rows: [...rows.keys()],
      labels: columns.size > 0 ? [...columns.keys()] : NOTHING.labels,
      whole: [...whole.keys()].map((row) => place(rows, row)),
    };
    const read = await this.#run(cache, run.ids, positions, mask, reads, 0);
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
   * @param {{rows: number[], labels: number[], whole: number[]}} reads rows and labels whose logits are read, and which
   *   of the rows are normalised over the whole vocabulary, as places in `rows`
   * @param {number} keep how many of the new tokens stay in the cache, from the first
   * @returns {Promise<Record<string, Float32Array>>} `label_logits`, rows x labels; `normalizers`, the log of the sum of
   *   exp over the vocabulary, one for each of `whole`; with a pointer `projections`, rows x width
   */
  async #run(cache, ids, positions, mask, { rows, labels, whole }, keep) {
    if (this.lost !== null) throw deviceLost(this.lost);
    const total = cache.length + ids.length;
    /** @type {Record<string, Tensor>} */
    const feeds = {
      input_ids: this.#integers("int64", ids, [1, ids.length]),
      position_ids: this.#integers("int64", positions, [1, ids.length]),
      mask: new this.ort.Tensor("float32", mask, [1, 1, ids.length, total]),
      rows: this.#integers("int64", rows, [rows.length]),
      label_ids: this.#integers("int64", labels, [labels.length]),
      vocabulary_rows: this.#integers("int64", whole, [whole.length]),
      ...cache.feeds(),
    };
    if (this.grouped) {
      feeds.seqlens_k = this.#integers("int32", [total - 1], [1]);
      feeds.total_sequence_length = this.#integers("int32", [total], [1]);
    }
    try {
      const fetches = Object.fromEntries(this.outputs.map((name) => [name, null]));
      const results = await this.#held(
        this.session.run(feeds, { ...fetches, ...cache.fetches(total, keep > 0) }),
      );
      /** @type {Record<string, Float32Array>} */
      const read = {};
      for (const name of this.outputs)
        read[name] = /** @type {Float32Array} */ (await this.#held(results[name].getData()));
      if (keep) cache.commit(total - ids.length + keep, results);
      return read;
    } catch (error) {
      // The runtime may notice a lost device before the device says so itself.
      if (this.device) await Promise.race([this.device.lost, turn(LOSS_MS)]);
      throw this.lost === null ? error : deviceLost(this.lost);
    }
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

  /** @returns {Cache} */
  #newCache() {
    if (!this.device) return heapCache(this.ort, this.shape, this.names);
    return bufferCache(this.ort, this.shape, this.names, this.device, this.grouped);
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
 * A KV cache in JavaScript arrays: the runtime copies it to its heap at each run.
 * @param {Ort} ort
 * @param {Shape} shape
 * @param {readonly string[]} names
 * @returns {Cache}
 */
function heapCache(ort, shape, names) {
  const dims = [1, shape.kv_heads, 0, shape.head_dim];
  /** @type {Record<string, Tensor>} */
  let past = named("past", names, () => new ort.Tensor("float32", new Float32Array(0), dims));
  /** @type {Cache} */
  const cache = {
    length: 0,
    get bytes() {
      return cache.length * tokenBytes(shape);
    },
    feeds: () => past,
    fetches: (_, keep) => (keep ? named("present", names, () => null) : {}),
    commit: (total, results) => {
      past = named("past", names, (i) => firstSlots(ort, results[`present.${names[i]}`], total));
      cache.length = total;
    },
    reserve: () => {},
    finish: () => {},
    extend: (other) => {
      // Tensors are never written to: two caches may share them.
      past = other.feeds();
      cache.length = other.length;
    },
    release: () => {
      past = {};
      cache.length = 0;
    },
  };
  return cache;
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
  const kept = new Float32Array(heads * slots * size);
  for (let head = 0; head < heads; head++) {
    const start = head * positions * size;
    kept.set(data.subarray(start, start + slots * size), head * slots * size);
  }
  return new ort.Tensor("float32", kept, [1, heads, slots, size]);
}

/** @typedef {Cache & {source: {buffers: GPUBuffer[], step: number}}} BufferCache */

/**
 * A KV cache in GPU buffers that we own. The grouped kernel writes new keys in place behind the prefix, which therefore
 * survives any number of scoring runs; the explicit graph reads one set of buffers and writes another.
 * @param {Ort} ort
 * @param {Shape} shape
 * @param {readonly string[]} names
 * @param {GPUDevice} device
 * @param {boolean} inPlace
 * @returns {Cache}
 */
function bufferCache(ort, shape, names, device, inPlace) {
  let slots = 0;
  /** @type {GPUBuffer[]} */
  let current = [];
  /** @type {GPUBuffer[]} */
  let spare = [];

  /** @param {number} tokens */
  const allocate = (tokens) =>
    names.map(() =>
      device.createBuffer({
        size: tokens * shape.kv_heads * shape.head_dim * FLOAT_BYTES,
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
    return named(kind, names, (i) => ort.Tensor.fromGpuBuffer(buffers[i], { dataType: "float32", dims }));
  };
  const empty = () =>
    named("past", names, () => {
      return new ort.Tensor("float32", new Float32Array(0), [1, shape.kv_heads, 0, shape.head_dim]);
    });

  /**
   * Larger buffers; what they hold moves along.
   * @param {number} wanted
   */
  const grow = (wanted) => {
    const larger = allocate(wanted);
    copy(current, slots, larger, wanted, cache.length);
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
    const row = shape.head_dim * FLOAT_BYTES;
    const encoder = device.createCommandEncoder();
    from.forEach((buffer, i) => {
      for (let head = 0; head < shape.kv_heads; head++) {
        const [source, target] = [head * fromStep * row, head * toStep * row];
        encoder.copyBufferToBuffer(buffer, source, to[i], target, tokens * row);
      }
    });
    device.queue.submit([encoder.finish()]);
  };

  /** @type {BufferCache} */
  const cache = {
    length: 0,
    get bytes() {
      return ((current.length + spare.length) / names.length) * slots * tokenBytes(shape);
    },
    /** Buffers, and how many positions apart their heads lie: what another cache copies. */
    get source() {
      return { buffers: current, step: inPlace ? slots : cache.length };
    },
    feeds: () => {
      if (inPlace) return tensors("past", current, slots);
      return cache.length === 0 ? empty() : tensors("past", current, cache.length);
    },
    fetches: (total, keep) => {
      if (inPlace) return tensors("present", current, slots);
      return keep ? tensors("present", spare, total) : {};
    },
    commit: (total) => {
      if (!inPlace) [current, spare] = [spare, current];
      cache.length = total;
    },
    reserve: (total) => {
      const wanted = Math.ceil(total / SLOT_STEP) * SLOT_STEP;
      if (inPlace) {
        if (wanted > slots) grow(wanted);
      } else if (cache.length === 0 && wanted > slots) {
        destroy([...current, ...spare]);
        [current, spare, slots] = [allocate(wanted), allocate(wanted), wanted];
      }
    },
    finish: () => {
      destroy(spare);
      spare = [];
    },
    extend: (other) => {
      const { buffers, step } = /** @type {BufferCache} */ (other).source;
      copy(buffers, step, current, inPlace ? slots : other.length, other.length);
      cache.length = other.length;
    },
    release: () => {
      destroy([...current, ...spare]);
      [current, spare, slots, cache.length] = [[], [], 0, 0];
    },
  };
  return cache;
}

/**
 * Let the event loop turn: a run on WASM never does, and the message that aborts waits there.
 * @param {number} [ms]
 */
export function turn(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/**
 * Bytes that one token takes in a cache.
 * @param {Shape} shape
 */
function tokenBytes({ layers, kv_heads, head_dim }) {
  return 2 * layers * kv_heads * head_dim * FLOAT_BYTES;
}

/** @param {string} reason */
function deviceLost(reason) {
  return new DeviceLostError(`the GPU device was lost (${reason}): load the engine again`, { reason });
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
