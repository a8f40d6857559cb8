// In which orders a question's options are shown, and how the answers of several orders become one.
//
// A small model answers partly by place: it favours a label, whatever that label stands for. Showing the options
// again, turned round by some places, and pooling the answers takes that out. Knows option counts and logits; no
// text, no tensors. typedecide/orderings.py is its twin; both run tests/vectors/orderings.json.

import { IntegrityError } from "./errors.js";
import { softmax } from "./readout.js";

/** The most orderings that "auto" gives a question. */
export const DEFAULT_BUDGET = 4;

/** @typedef {number | "auto" | "all"} Level */

/**
 * What several orderings say together, in the question's own option order. `read` makes the `Answer` from
 * `log_probabilities`, with these very probabilities.
 * @typedef {object} Combined
 * @property {readonly number[]} probabilities
 * @property {readonly number[]} log_probabilities
 * @property {number} flip_rate share of the orderings whose most probable option is not the combined one
 * @property {number} orderings_used
 */

/**
 * The number of orderings for `n` options: `level` itself, all n, or what the rotation budget allows. "auto" is
 * min(n, budget); as a budget is 2 at the least, two options are always shown in both orders.
 * @param {number} n
 * @param {Level} [level]
 * @param {number} [budget]
 * @returns {number}
 * @throws {RangeError} also where the level is a number above n: it is not cut to n
 */
export function howMany(n, level = "auto", budget = DEFAULT_BUDGET) {
  checkWhole("The number of options", n, 1);
  checkWhole("The rotation budget", budget, 2);
  if (level === "auto") return Math.min(n, budget);
  if (level === "all") return n;
  if (!isWholeWithin(level, 1, n)) {
    const allowed = `"auto", "all" or a whole number from 1 to ${n}, the number of options`;
    throw new RangeError(`The orderings must be ${allowed}, not ${show(level)}.`);
  }
  return level;
}

/**
 * `count` shifts spread evenly over 0 to n - 1, the first one 0: shift j is floor(j·n / count).
 * @param {number} n
 * @param {number} count
 * @returns {number[]}
 * @throws {RangeError} where the count is not from 1 to n
 */
export function cyclicShifts(n, count) {
  checkWhole("The number of options", n, 1);
  if (!isWholeWithin(count, 1, n)) {
    const allowed = `a whole number from 1 to ${n}, the number of options`;
    throw new RangeError(`The shifts must be ${allowed}, not ${show(count)}.`);
  }
  return Array.from({ length: count }, (_, j) => Math.floor((j * n) / count));
}

/**
 * The shifts that an early stop reads first, and those that it reads where the answer is not `certified` then.
 *
 * The first round is the least that can be certified: more than half of the shifts, spread over all of them. So one and
 * two options have no second round.
 * @param {readonly number[]} shifts
 * @returns {[number[], number[]]}
 */
export function rounds(shifts) {
  const spread = [...shifts.filter((_, j) => j % 2 === 0), ...shifts.filter((_, j) => j % 2 === 1)];
  const first = Math.floor(spread.length / 2) + 1;
  return [spread.slice(0, first), spread.slice(first)];
}

/**
 * The items as an ordering shows them: at place p stands item (p + shift) mod n.
 * @template Item
 * @param {ArrayLike<Item>} items
 * @param {number} shift
 * @returns {Item[]}
 * @throws {RangeError} where the shift is not from 0 to n - 1
 */
export function rotate(items, shift) {
  checkShift(items.length, shift);
  const list = Array.from(items);
  return [...list.slice(shift), ...list.slice(0, shift)];
}

/**
 * The values of the places of an ordering, given back in the items' own order: undoes `rotate`.
 * @template Item
 * @param {ArrayLike<Item>} values
 * @param {number} shift
 * @returns {Item[]}
 * @throws {RangeError} where the shift is not from 0 to n - 1
 */
export function unrotate(values, shift) {
  checkShift(values.length, shift);
  return rotate(values, (values.length - shift) % values.length);
}

/**
 * Log-probabilities from logits.
 * @param {ArrayLike<number>} logits
 * @returns {number[]}
 * @throws {IntegrityError} where a logit, or the distance of two, is not a finite number
 */
export function logSoftmax(logits) {
  const centred = centre(logits);
  const logTotal = Math.log(sum(centred.map(Math.exp)));
  return centred.map((logit) => logit - logTotal);
}

/**
 * One answer from the label logits of each ordering, each already in the question's own option order.
 *
 * This is the logarithmic opinion pool with equal weights, the normalised geometric mean of the distributions:
 * p_i ∝ exp(1/m · Σ_j log p_ij) (Genest and Zidek, "Combining Probability Distributions", Statistical Science 1(1),
 * 1986). A logit that a place adds to whatever stands there falls out of it exactly over all cyclic shifts, since
 * each option stands at each place once; out of the mean of the probabilities it does not fall.
 *
 * The result does not depend on the sequence of the orderings, to the last bit. An equal highest probability goes to
 * the first option, as in `read`.
 * @param {readonly ArrayLike<number>[]} logitsByOrdering
 * @returns {Combined}
 * @throws {IntegrityError} where a logit, or the distance of two, is not a finite number
 */
export function combine(logitsByOrdering) {
  // What normalises an ordering is one number for all its options, and falls out when the pool is normalised.
  const orderings = check(logitsByOrdering);
  const used = orderings.length;
  const means = totalsOf(orderings).map((total) => total / used);
  const logProbabilities = logSoftmax(means);
  const winner = firstHighest(means);
  const flips = orderings.filter((ordering) => firstHighest(ordering) !== winner).length;
  return Object.freeze({
    probabilities: Object.freeze(softmax(logProbabilities)),
    log_probabilities: Object.freeze(logProbabilities),
    flip_rate: flips / used,
    orderings_used: used,
  });
}

/**
 * Whether the orderings still to come, of `total`, can no longer change the combined answer.
 *
 * With r orderings to come and w the widest distance between any two options in any ordering so far, the answer is
 * certified when its summed lead over every rival is more than r·w. That assumes that no ordering to come swings
 * further than the widest one seen: a rule of thumb, not a proof. It covers which option is the answer, and neither
 * the probabilities nor a score's expected level, which would still move. As an ordering lends a lead of w at the
 * most, more than half of `total` has to be done first, so two options never stop after one order. Only distances
 * within an ordering count: log-probabilities and logits serve alike.
 * @param {readonly ArrayLike<number>[]} logProbsSoFar
 * @param {number} total
 * @returns {boolean}
 * @throws {RangeError} where more orderings are done than `total`
 */
export function certified(logProbsSoFar, total) {
  checkWhole("The number of orderings", total, 1);
  if (logProbsSoFar.length > total) {
    throw new RangeError(`${logProbsSoFar.length} orderings are done, of ${total}.`);
  }
  if (logProbsSoFar.length === 0) return false;
  const orderings = check(logProbsSoFar);
  const toCome = total - orderings.length;
  if (toCome === 0) return true;
  const widest = Math.max(...orderings.map((ordering) => -Math.min(...ordering)));
  const totals = totalsOf(orderings);
  const top = firstHighest(totals);
  return totals.every((other, i) => i === top || totals[top] - other > toCome * widest);
}

/**
 * Each ordering less its highest value.
 * @param {readonly ArrayLike<number>[]} orderings
 * @throws {IntegrityError} where they are not lists of one length
 */
function check(orderings) {
  if (orderings.length === 0) throw new IntegrityError("There are no orderings.", { value: 0 });
  const expected = orderings[0].length;
  for (const [index, { length }] of orderings.entries()) {
    if (length !== expected) {
      const data = { value: length, expected, index };
      throw new IntegrityError(`Ordering ${index} does not have one logit for each option.`, data);
    }
  }
  return orderings.map(centre);
}

/**
 * @param {ArrayLike<number>} logits
 * @returns {number[]}
 */
function centre(logits) {
  softmax(logits); // For its checks.
  const list = Array.from(logits);
  const highest = Math.max(...list);
  return list.map((value, index) => {
    if (!Number.isFinite(value - highest)) {
      const data = { value, highest, index };
      throw new IntegrityError(`Logit ${index} is too far below the highest one.`, data);
    }
    return value - highest;
  });
}

/** @param {readonly number[][]} orderings */
function totalsOf(orderings) {
  return orderings[0].map((_, option) => sum(orderings.map((ordering) => ordering[option])));
}

/** @param {readonly number[]} values */
function sum(values) {
  // Sorted: equal values in another sequence give the same bits, so that options that tie do tie.
  return Float64Array.from(values)
    .sort()
    .reduce((total, value) => total + value, 0);
}

/** @param {readonly number[]} values */
function firstHighest(values) {
  return values.indexOf(Math.max(...values));
}

/**
 * @param {number} value
 * @param {number} least
 * @param {number} most
 */
function isWholeWithin(value, least, most) {
  return Number.isInteger(value) && value >= least && value <= most;
}

/**
 * @param {string} what
 * @param {number} value
 * @param {number} least
 */
function checkWhole(what, value, least) {
  if (!isWholeWithin(value, least, Number.MAX_SAFE_INTEGER)) {
    throw new RangeError(`${what} must be a whole number of at least ${least}, not ${show(value)}.`);
  }
}

/**
 * @param {number} n
 * @param {number} shift
 */
function checkShift(n, shift) {
  if (!isWholeWithin(shift, 0, n - 1)) {
    const allowed = `a whole number of at least 0 and below ${n}, the number of items`;
    throw new RangeError(`A shift must be ${allowed}, not ${show(shift)}.`);
  }
}

/**
 * A value in a message: text in quotes, to tell "2" from 2.
 * @param {unknown} value
 */
function show(value) {
  return typeof value === "string" ? JSON.stringify(value) : String(value);
}
