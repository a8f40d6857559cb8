/**
 * A community export as it is: attention by a 1-D mask, logits of the whole vocabulary.
 *
 * Such a graph takes input_ids, attention_mask, past_key_values.{i}.key and .value and, where its rotary embedding is a
 * node of its own, position_ids; it gives logits and present.{i}.key and .value, in float32 or float16. Its mask knows no
 * branches, so every suffix is a run of its own. What the engine asks of such a graph is here: inputs, and what is read of
 * its logits. The Python twin is `typedecide/stock.py`.
 */

/** @typedef {typeof import("onnxruntime-common")} Ort */
/** @typedef {import("onnxruntime-common").Tensor} Tensor */
/** @typedef {import("onnxruntime-common").InferenceSession} Session */
/** @typedef {{rows: number[], labels: number[], whole: number[]}} Reads */

/** The budget of a run that holds one suffix. */
export const ALONE = 1;

/** Most memory for the logits that a run of a prefill makes, although nobody reads them. */
const LOGIT_BYTES = 64 * 2 ** 20;

/**
 * Tokens of one prefill run.
 * @param {number} vocabulary
 * @param {number} most a multiple of `step`
 * @param {number} step
 */
export function chunkTokens(vocabulary, most, step) {
  const fitting = Math.floor(LOGIT_BYTES / (vocabulary * Float32Array.BYTES_PER_ELEMENT));
  return Math.max(step, Math.min(most, Math.floor(fitting / step) * step));
}

/** @param {Session} session */
export function isStock(session) {
  return session.inputNames.includes("attention_mask");
}

/**
 * The type of the caches of a stock graph.
 * @param {Session} session
 * @returns {"float32" | "float16"}
 */
export function cacheType(session) {
  const found = session.inputMetadata.find(({ name }) => name === "past_key_values.0.key");
  return found?.isTensor && found.type === "float16" ? "float16" : "float32";
}

/**
 * All inputs but the caches, for new tokens that end at `total`.
 * @param {Ort} ort
 * @param {Session} session
 * @param {readonly number[]} ids
 * @param {readonly number[]} positions
 * @param {number} total
 * @returns {Record<string, Tensor>}
 */
export function stockFeeds(ort, session, ids, positions, total) {
  const row = (/** @type {readonly number[]} */ values) =>
    new ort.Tensor("int64", BigInt64Array.from(values, BigInt), [1, values.length]);
  const feeds = { input_ids: row(ids), attention_mask: row(new Array(total).fill(1)) };
  return session.inputNames.includes("position_ids") ? { ...feeds, position_ids: row(positions) } : feeds;
}

/**
 * What our own graphs would have given: logits of the labels at each row, and the log of the sum of exp over the
 * vocabulary at those of `whole`.
 * @param {Tensor["data"]} data logits [1, tokens, vocabulary], float32 or float16
 * @param {number} vocabulary
 * @param {Reads} reads
 * @returns {Record<string, Float32Array>}
 */
export function stockReads(data, vocabulary, { rows, labels, whole }) {
  const logits = rows.map((row) =>
    floats(/** @type {any} */ (data).subarray(row * vocabulary, (row + 1) * vocabulary)),
  );
  return {
    label_logits: Float32Array.from(logits.flatMap((row) => labels.map((label) => row[label]))),
    normalizers: Float32Array.from(whole, (place) => logSumExp(logits[place])),
  };
}

/** @param {Float32Array} values */
function logSumExp(values) {
  const most = values.reduce((a, b) => Math.max(a, b), -Infinity);
  return most + Math.log(values.reduce((sum, value) => sum + Math.exp(value - most), 0));
}

/**
 * As float32; where JavaScript has no float16, the runtime gives its bits.
 * @param {ArrayLike<number>} values
 */
function floats(values) {
  return values instanceof Uint16Array ? Float32Array.from(values, half) : Float32Array.from(values);
}

/**
 * The number that these bits are in float16.
 * @param {number} bits
 */
export function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
