// How questions are asked: the options that `scoreAll` takes, checked and filled in from the bundle's manifest.
//
// Knows no tensors and no prompts. typedecide/options.py is its twin.

import { InvalidQuestionError, UnsupportedError } from "./errors.js";
import { cyclicShifts, howMany } from "./orderings.js";
import { KINDS } from "./prior.js";

/** What an answer is read from: letters of the listed options, the options' own texts, or a trained pointer. */
export const READOUTS = ["labels", "text", "pointer"];

const POINTER = ["pointer_tail", "pointer_option", "pointer_answer"];

/**
 * How to ask.
 * @typedef {object} Options
 * @property {string} [readout] `labels` (the letters of listed options), `text` (the options' own texts) or `pointer` (a
 *   trained comparison of options and answer, for models that have it); default: the bundle's
 * @property {import("./orderings.js").Level} [orderings] orders of its options in which a question is read: 1, a number,
 *   `all` cyclic ones, or (default) `auto`: both of two options, and up to `budget` of more. Like all below but the last
 *   one it is for the `labels` readout only: the other readouts have no order of options.
 * @property {number} [budget] the most orders that `auto` reads; default: the bundle's
 * @property {boolean} [earlyStop] of a question with three options or more that is no score, read only more than half of
 *   the orders where the answer is `certified` then (orderings.js). Probabilities are then pooled over fewer orders. What
 *   is left of the orders is run on its own and shares nothing with the first half, so this pays only where most
 *   questions are certified: for models that judge the same in all orders. With `auto`, which leaves out one order of
 *   four, it hardly ever does; SmolLM2-135M-Instruct as it comes runs 6 % more tokens with it, for `all` too.
 * @property {import("./prior.js").Kind} [prior] take out what the model answers whatever the evidence is: `content-free`
 *   or `batch` (prior.js)
 * @property {number} [runTokens] tokens of one packed run; default: the bundle's
 */

/**
 * How to ask, nothing left open.
 * @typedef {object} Asking
 * @property {string} readout
 * @property {import("./orderings.js").Level} orderings
 * @property {number} budget
 * @property {boolean} earlyStop
 * @property {import("./prior.js").Kind | null} prior
 * @property {number} runTokens
 */

/**
 * What options and their defaults are read from in a manifest.
 * @typedef {object} Manifest
 * @property {Record<string, unknown>} model
 * @property {Record<string, unknown>} prompt
 * @property {string} readout
 * @property {{rotation_budget: number, run_tokens: Record<string, number>}} limits
 */

/**
 * The readouts that a bundle has: `pointer` only where its model was trained for it.
 * @param {Pick<Manifest, "model" | "prompt">} manifest
 */
export function readoutsOf({ model, prompt }) {
  const pointer = Number.isInteger(model.pointer_width) && POINTER.every((key) => key in prompt);
  return pointer ? READOUTS : READOUTS.slice(0, 2);
}

/**
 * The options, with the bundle's defaults where none is given.
 * @param {Manifest} manifest
 * @param {string} device whose run length is the default
 * @param {Options} options
 * @returns {Asking}
 * @throws {UnsupportedError} the bundle has no such readout, or an option does not go with it, or is none
 */
export function resolve(manifest, device, { readout = manifest.readout, runTokens, ...options }) {
  const { limits } = manifest;
  const known = readoutsOf(manifest);
  if (!known.includes(readout)) {
    const message = `this bundle has no readout ${JSON.stringify(readout)}; it has ${known.join(", ")}`;
    throw new UnsupportedError(message, { readout, known });
  }
  const given = Object.fromEntries(
    Object.entries(options).filter(
      ([name, value]) => value !== undefined && !(name === "earlyStop" && value === false),
    ),
  );
  if (readout !== "labels" && Object.keys(given).length > 0) {
    const names = Object.keys(given).join(", ");
    const message = `the ${readout} readout has neither orders of options nor a prior, so it takes no ${names}: leave that out, or use the labels readout`;
    throw new UnsupportedError(message, { readout, ...given });
  }
  const { orderings = "auto", budget = limits.rotation_budget, earlyStop = false, prior } = options;
  const tokens = runTokens ?? limits.run_tokens[device];
  check("runTokens", tokens, Number.isInteger(tokens) && tokens >= 1, "a whole number from 1");
  check("earlyStop", earlyStop, typeof earlyStop === "boolean", "true or false");
  check("prior", prior, prior === undefined || KINDS.includes(prior), `one of ${KINDS.join(", ")}`);
  return { readout, orderings, budget, earlyStop, prior: prior ?? null, runTokens: tokens };
}

/**
 * In which orders a question's options are read; its index is the error's `data.loc`.
 * @param {Asking} how
 * @param {import("./questions.js").Question} question
 * @param {number} index
 * @throws {InvalidQuestionError}
 */
export function shiftsOf({ readout, orderings, budget }, { names }, index) {
  if (readout !== "labels") return [0];
  try {
    return cyclicShifts(names.length, howMany(names.length, orderings, budget));
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    const data = { value: orderings, budget, loc: [index] };
    throw new InvalidQuestionError(error.message, data);
  }
}

/**
 * @param {string} name
 * @param {unknown} value
 * @param {boolean} valid
 * @param {string} wanted
 */
function check(name, value, valid, wanted) {
  if (valid) return;
  throw new UnsupportedError(`${name} must be ${wanted}, not ${JSON.stringify(value)}`, { [name]: value });
}
