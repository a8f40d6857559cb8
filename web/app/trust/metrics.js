// What labelled answers are worth: accuracy, calibration, and what is left of them above a threshold. The twin of those
// parts of typedecide/metrics.py that the page shows, by tests/vectors/metrics.json; sources are named there. Numbers in,
// numbers out: knows no questions and no page.

/** Of reliability tables and calibration errors. */
export const BINS = 15;

/**
 * Items whose confidences lie from `low` to `high`: how many, their mean confidence, their accuracy.
 * @typedef {{low: number, high: number, count: number, confidence: number, accuracy: number}} Bin
 */

/**
 * What remains where answers whose confidence is not above `threshold` are left out: how many, and how many of them are
 * wrong; a tie counts with the share of it that is wrong.
 * @typedef {{threshold: number, kept: number, wrong: number}} Kept
 */

/**
 * The weighted mean; null of nothing.
 * @param {ArrayLike<number>} values
 * @param {ArrayLike<number> | null} [weights] how often each counts; null: once
 */
export function mean(values, weights = null) {
  let [sum, total] = [0, 0];
  for (let i = 0; i < values.length; i += 1) {
    const weight = weights ? weights[i] : 1;
    sum += values[i] * weight;
    total += weight;
  }
  return total ? sum / total : null;
}

/**
 * What an answer earns: 1 where the true option is the most probable one, 1/k where it ties with k - 1 others.
 * @param {ArrayLike<number>} probabilities
 * @param {number} gold
 */
export function credit(probabilities, gold) {
  const all = Array.from(probabilities);
  const top = Math.max(...all);
  return all[gold] === top ? 1 / all.filter((p) => p === top).length : 0;
}

/**
 * The share of the most frequent true answer: the accuracy of always giving that one; null of nothing.
 * @param {readonly (string | number)[]} gold
 */
export function majority(gold) {
  if (gold.length === 0) return null;
  const counts = new Map();
  for (const name of gold) counts.set(name, (counts.get(name) ?? 0) + 1);
  return Math.max(...counts.values()) / gold.length;
}

/**
 * How often each option was the true one (rows) and the answer (columns), by their places.
 * @param {readonly number[]} gold
 * @param {readonly number[]} chosen
 * @param {number} options
 */
export function confusion(gold, chosen, options) {
  const counts = Array.from({ length: options }, () => /** @type {number[]} */ (Array(options).fill(0)));
  gold.forEach((truth, i) => (counts[truth][chosen[i]] += 1));
  return counts;
}

/**
 * Items by confidence, the probability of the answer given, in bins of equal mass or equal width; no empty ones.
 * @param {readonly number[]} confidences
 * @param {readonly number[]} credits
 * @param {"mass" | "width"} [binning]
 * @param {number} [bins]
 * @param {readonly number[] | null} [weights]
 * @returns {Bin[]}
 */
export function reliability(confidences, credits, binning = "mass", bins = BINS, weights = null) {
  const pairs = byConfidence(confidences, credits, weights);
  if (binning === "mass") {
    const ends = Array.from({ length: bins + 1 }, (_, place) => Math.floor((place * pairs.length) / bins));
    const cuts = ends.slice(1).map((end, i) => pairs.slice(ends[i], end));
    return cuts.filter((cut) => cut.length > 0).map((cut) => binOf(cut, cut[0][0], cut[cut.length - 1][0]));
  }
  const held = Array.from({ length: bins }, () => /** @type {Pair[]} */ ([]));
  for (const pair of pairs) held[Math.min(Math.floor(pair[0] * bins), bins - 1)].push(pair);
  return held.flatMap((cut, i) => (cut.length > 0 ? [binOf(cut, i / bins, (i + 1) / bins)] : []));
}

/**
 * Expected calibration error: the mean distance of confidence and accuracy over bins, weighted by their items.
 * @param {readonly Bin[]} bins
 */
export function calibrationError(bins) {
  const total = bins.reduce((sum, { count }) => sum + count, 0);
  const gaps = bins.reduce((sum, one) => sum + one.count * Math.abs(one.confidence - one.accuracy), 0);
  return total ? gaps / total : null;
}

/**
 * What each threshold keeps: 0, and the confidences themselves, the lowest first. Beyond the last, nothing is kept.
 * @param {readonly number[]} confidences
 * @param {readonly number[]} credits
 * @returns {Kept[]}
 */
export function thresholds(confidences, credits) {
  const pairs = pairsOf(confidences, credits).sort((a, b) => b[0] - a[0] || b[1] - a[1]);
  /** @type {Kept[]} */
  const found = [];
  let [kept, wrong] = [0, 0];
  pairs.forEach(([confidence, earned], i) => {
    if (i === 0 || pairs[i - 1][0] !== confidence) found.unshift({ threshold: confidence, kept, wrong });
    kept += 1;
    wrong += 1 - earned;
  });
  return found[0]?.threshold === 0 ? found : [{ threshold: 0, kept, wrong }, ...found];
}

/**
 * What a threshold keeps, of what `thresholds` found.
 * @param {readonly Kept[]} found
 * @param {number} threshold
 * @returns {Kept}
 */
export function atThreshold(found, threshold) {
  return found.findLast((one) => one.threshold <= threshold) ?? found[0];
}

/**
 * The lowest threshold at which at most the share `error` of what is kept is wrong; null where there is none. It was
 * looked for on these very answers, so that on others the error is likely to be a little higher.
 * @param {readonly Kept[]} found
 * @param {number} error
 * @returns {Kept | null}
 */
export function widest(found, error) {
  return found.find(({ kept, wrong }) => kept > 0 && wrong <= error * kept) ?? null;
}

/**
 * How often each item counts in one bootstrap sample: whole clusters are drawn, as many as there are, with replacement.
 * @param {readonly number[]} clusters of each item, numbered from 0
 * @param {() => number} random from 0, below 1
 */
export function resample(clusters, random) {
  const count = clusters.reduce((most, cluster) => Math.max(most, cluster + 1), 0);
  const drawn = new Uint32Array(count);
  for (let i = 0; i < count; i += 1) drawn[Math.floor(random() * count)] += 1;
  return Uint32Array.from(clusters, (cluster) => drawn[cluster]);
}

/**
 * The percentile interval of bootstrapped values: the middle `level` of them; null of nothing.
 * @param {readonly number[]} values
 * @param {number} [level]
 * @returns {[number, number] | null}
 */
export function interval(values, level = 0.95) {
  if (values.length === 0) return null;
  return [quantile(values, (1 - level) / 2), quantile(values, (1 + level) / 2)];
}

/**
 * The value below which a share of the values lies, interpolated linearly between two of them.
 * @param {readonly number[]} values
 * @param {number} share
 */
export function quantile(values, share) {
  const ordered = [...values].sort((a, b) => a - b);
  const at = share * (ordered.length - 1);
  const low = Math.floor(at);
  const high = Math.min(low + 1, ordered.length - 1);
  return ordered[low] + (ordered[high] - ordered[low]) * (at - low);
}

/** @typedef {[confidence: number, credit: number]} Pair */

/** @param {readonly number[]} confidences @param {readonly number[]} credits @returns {Pair[]} */
function pairsOf(confidences, credits) {
  return confidences.map((confidence, i) => [confidence, credits[i]]);
}

/**
 * Each item as often as it counts, least confident first; a tie shares its credit.
 * @param {readonly number[]} confidences
 * @param {readonly number[]} credits
 * @param {readonly number[] | null} weights
 * @returns {Pair[]}
 */
function byConfidence(confidences, credits, weights) {
  const sums = /** @type {Map<number, {count: number, earned: number}>} */ (new Map());
  confidences.forEach((confidence, i) => {
    const sum = sums.get(confidence) ?? { count: 0, earned: 0 };
    const weight = weights ? weights[i] : 1;
    sums.set(confidence, { count: sum.count + weight, earned: sum.earned + credits[i] * weight });
  });
  const ordered = [...sums].sort(([a], [b]) => a - b);
  return ordered.flatMap(([confidence, { count, earned }]) =>
    Array.from({ length: count }, () => /** @type {Pair} */ ([confidence, earned / count])),
  );
}

/** @param {readonly Pair[]} pairs @param {number} low @param {number} high @returns {Bin} */
function binOf(pairs, low, high) {
  const count = pairs.length;
  const sum = (/** @type {0 | 1} */ place) => pairs.reduce((total, pair) => total + pair[place], 0);
  return { low, high, count, confidence: sum(0) / count, accuracy: sum(1) / count };
}
