// Calibrated answers: a temperature for each kind of question, and a threshold below which it is better to abstain.
//
// A calibration is a JSON document that `python -m typedecide calibrate` makes from labelled answers. It serves the one
// model, weight format, prompt and readout that it was made with, and says so. Knows no tensors and fetches nothing.
// typedecide/calibration.py is its twin; both run tests/vectors/calibration.json.

import { UnsupportedError } from "./errors.js";
import { read } from "./readout.js";

/** @typedef {import("./options.js").Asking} Asking */
/** @typedef {import("./questions.js").Question} Question */

/**
 * What calibration did to an answer: its logits were divided by `temperature`, and `abstain` says whether its highest
 * probability is too low to trust at the error rate that the threshold was set for.
 * @typedef {{calibration: {temperature: number}, abstain: boolean}} Applied
 */

/**
 * What an engine's `info` says of its calibration.
 * @typedef {{readout: string, temperatures: Record<string, number>, alpha: number, threshold: number}} Facts
 */

/**
 * A document that was checked, and what of it is used.
 * @typedef {object} Calibration
 * @property {string} name of the model that it was made with, as that bundle's manifest says it; so are the next four
 * @property {string} origin
 * @property {Record<string, unknown> | null} shallow
 * @property {string} format
 * @property {Record<string, unknown>} prompt
 * @property {string} readout what was read
 * @property {import("./orderings.js").Level | null} orderings of the `labels` readout, in which orders; else null
 * @property {number | null} budget of these orders; else null
 * @property {Record<string, number>} temperatures by kind of question; kinds that are missing are not calibrated
 * @property {number} alpha the error rate that the threshold was set for
 * @property {number} threshold an answer abstains where its highest probability is not above it: 0 never does, 1 always
 */

/** The schema of the document that this version reads. */
const SCHEMA = 1;

const KINDS = ["choice", "noul", "score"];

/**
 * Check a document.
 * @param {unknown} document
 * @returns {Calibration}
 * @throws {UnsupportedError} it names the field at fault and its value
 */
export function parseCalibration(document) {
  const top = new Fields(document, "");
  if (top.take("schema", Number.isInteger, "a whole number") !== SCHEMA) {
    throw top.error("schema", `is not ${SCHEMA}, the schema that this version reads`);
  }
  const model = top.child("model");
  const abstain = top.child("abstain");
  const readout = top.take("readout", isText, "a text");
  const labels = readout === "labels";
  const kinds = top.child("kinds");
  for (const kind of Object.keys(kinds.value)) {
    if (!KINDS.includes(kind)) throw kinds.error(kind, "is no kind of question");
  }
  return {
    name: model.take("name", isText, "a text"),
    origin: model.take("origin", isText, "a text"),
    shallow: "shallow" in model.value ? model.child("shallow").value : null,
    format: top.take("format", isText, "a text"),
    prompt: top.child("prompt").value,
    readout,
    orderings: labels ? top.take("orderings", isLevel, "auto, all or a whole number from 1") : null,
    budget: labels ? top.take("budget", isCount, "a whole number from 1") : null,
    temperatures: Object.fromEntries(
      Object.keys(kinds.value).map((kind) => [
        kind,
        kinds.child(kind).take("temperature", isPositive, "a number above 0"),
      ]),
    ),
    alpha: abstain.take("alpha", isShare, "a number from 0 to 1"),
    threshold: abstain.take("threshold", isShare, "a number from 0 to 1"),
  };
}

/**
 * Whether it was made with a bundle's model, weight format and prompt.
 * @param {Calibration} calibration
 * @param {{model: Record<string, unknown>, prompt: Record<string, any>}} manifest
 * @param {string} format
 * @throws {UnsupportedError} it was not
 */
export function checkCalibration(calibration, { model, prompt }, format) {
  const templates = Object.keys({ ...prompt, ...calibration.prompt });
  /** @type {[string, unknown, unknown][]} */
  const pairs = [
    ["model.name", calibration.name, model.name],
    ["model.origin", calibration.origin, model.origin],
    ...["layers", "anchor"].map(
      (key) =>
        /** @type {[string, unknown, unknown]} */ ([
          `model.shallow.${key}`,
          calibration.shallow?.[key] ?? null,
          /** @type {Record<string, unknown> | undefined} */ (model.shallow)?.[key] ?? null,
        ]),
    ),
    ["format", calibration.format, format],
    ...templates.map(
      (key) =>
        /** @type {[string, unknown, unknown]} */ ([
          `prompt.${key}`,
          calibration.prompt[key] ?? null,
          prompt[key] ?? null,
        ]),
    ),
  ];
  for (const [field, value, expected] of pairs) {
    if (JSON.stringify(value) === JSON.stringify(expected)) continue;
    const message = `This calibration was made with another ${field.split(".")[0]} than the one here (${field}): make one for this, or do without.`;
    throw new UnsupportedError(message, { field, value, expected });
  }
}

/**
 * Whether answers that are asked for in this way are those that it was made with.
 * @param {Calibration} calibration
 * @param {Asking} how
 */
export function serves({ readout, orderings, budget }, how) {
  if (how.readout !== readout) return false;
  const orders = how.orderings === orderings && how.budget === budget;
  return readout !== "labels" || (orders && how.prior === null && !how.earlyStop);
}

/**
 * The calibrated answer, its own logits divided by the temperature, and what was done; null where the question's kind is
 * not calibrated.
 * @param {Calibration} calibration
 * @param {Question} question
 * @param {readonly number[]} logits
 * @returns {(import("./readout.js").Answer & Applied) | null}
 */
export function calibrate({ temperatures, threshold }, question, logits) {
  if (!Object.hasOwn(temperatures, question.kind)) return null;
  const temperature = temperatures[question.kind];
  const answer = read(
    question,
    logits.map((logit) => logit / temperature),
  );
  const abstain = Math.max(...answer.probabilities) <= threshold;
  return { ...answer, calibration: { temperature }, abstain };
}

/**
 * The calibration that an engine uses, if any.
 *
 * One that its user gave must serve whatever is asked; the bundle's own, like its readout, is a default: answers that it
 * was not made for come without.
 */
export class Calibrator {
  /** @type {Calibration | null} */
  #calibration = null;
  #required = false;

  /**
   * @param {unknown} given a document, false for none, undefined for the bundle's own, where it has one
   * @param {{model: Record<string, unknown>, prompt: Record<string, any>, calibration?: {format: string}}} manifest
   * @param {string} format the weight format in use
   * @throws {UnsupportedError} the document is malformed, or not for this bundle
   */
  constructor(given, manifest, format) {
    if (given === false) return;
    const own = manifest.calibration?.format === format ? manifest.calibration : undefined;
    const document = given ?? own;
    if (document === undefined) return;
    this.#required = document === given;
    this.#calibration = parseCalibration(document);
    checkCalibration(this.#calibration, manifest, format);
  }

  /**
   * @param {Asking} how
   * @throws {UnsupportedError} a calibration was given that does not serve what is asked
   */
  require(how) {
    const one = this.#calibration;
    if (!this.#required || !one || serves(one, how)) return;
    const labels =
      one.readout === "labels" ? ", its orderings and its budget, without early stop or prior" : "";
    throw new UnsupportedError(
      `The calibration is for the ${one.readout} readout${labels}: ask in that way, or leave it out.`,
      { readout: how.readout, calibrated: one.readout },
    );
  }

  /**
   * The calibrated answer, and what was done; null where nothing is.
   * @param {Asking} how
   * @param {Question} question
   * @param {readonly number[]} logits
   */
  apply(how, question, logits) {
    const one = this.#calibration;
    return one && serves(one, how) ? calibrate(one, question, logits) : null;
  }

  /**
   * What `info` says of it.
   * @returns {Facts | null}
   */
  facts() {
    if (!this.#calibration) return null;
    const { readout, temperatures, alpha, threshold } = this.#calibration;
    return { readout, temperatures, alpha, threshold };
  }
}

/** Takes checked fields from a JSON object, and names field and value where one is wrong. */
class Fields {
  /**
   * @param {unknown} value
   * @param {string} at
   */
  constructor(value, at) {
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      throw malformed(at.replace(/\.$/, "") || "it", "is not an object", value);
    }
    this.value = /** @type {Record<string, unknown>} */ (value);
    this.at = at;
  }

  /**
   * @param {string} key
   * @param {(value: unknown) => boolean} valid
   * @param {string} wanted
   * @returns {any}
   */
  take(key, valid, wanted) {
    if (!valid(this.value[key])) throw this.error(key, `is not ${wanted}`);
    return this.value[key];
  }

  /** @param {string} key */
  child(key) {
    return new Fields(this.value[key], `${this.at}${key}.`);
  }

  /**
   * @param {string} key
   * @param {string} why
   */
  error(key, why) {
    return malformed(`${this.at}${key}`, why, this.value[key]);
  }
}

/**
 * @param {string} field
 * @param {string} why
 * @param {unknown} value
 */
function malformed(field, why, value) {
  return new UnsupportedError(`This is no calibration: ${field} ${why}.`, { field, value: value ?? null });
}

/** @param {unknown} value */
function isText(value) {
  return typeof value === "string";
}

/** @param {unknown} value */
function isPositive(value) {
  return typeof value === "number" && Number.isFinite(value) && value > 0;
}

/** @param {unknown} value */
function isShare(value) {
  return typeof value === "number" && value >= 0 && value <= 1;
}

/** @param {unknown} value */
function isCount(value) {
  return Number.isInteger(value) && /** @type {number} */ (value) >= 1;
}

/** @param {unknown} value */
function isLevel(value) {
  return value === "auto" || value === "all" || isCount(value);
}
