// Questions as JSON text, in the System One form, out and in. Knows no DOM.

import { InvalidQuestionError, InvalidRequestError } from "../../errors.js";
import { parseQuestions } from "../../questions.js";
import { WrittenNumber, dump, parse } from "../../wire_json.js";
import { S } from "../strings.js";
import { draftFromWire, wireFromDraft } from "./draft.js";

/** @typedef {import("./draft.js").WireQuestion} WireQuestion */
/** @typedef {import("./draft.js").DraftOption} DraftOption */
/** @typedef {import("../../index.js").Question} Question */
/** @typedef {{place: string, message: string}} Fault where something is wrong, as in `queue.criteria[2]`, and what */
/** @typedef {{questions: Record<string, WireQuestion>, state: string | null}} Imported */

/** Keys that an object does not keep in their place, or at all. */
const UNSAFE_KEY = /^(0|[1-9][0-9]*|__proto__)$/;

/**
 * A question as the command line, the API and other programs read it: options as an object of name to description, or as
 * a list where that keeps more.
 * @param {Question} question
 * @returns {Question}
 */
export function portable(question) {
  const wire = wireFromDraft(draftFromWire("", question));
  if (wire.type === "noul") {
    return wire.criteria ? wire : { type: wire.type, criteria: wire.instructions };
  }
  const options = wire.criteria.map((item) =>
    typeof item === "string" ? { name: item, description: "" } : item,
  );
  const plain = options.every(({ description }) => description === "");
  if ((wire.type === "score" && plain) || options.some(({ name }) => UNSAFE_KEY.test(name))) {
    return { ...wire, criteria: plain ? options.map(({ name }) => name) : options };
  }
  const named = Object.fromEntries(options.map(({ name, description }) => [name, description || null]));
  // Two options of one name are a fault that the reader is to see.
  return { ...wire, criteria: Object.keys(named).length === options.length ? named : wire.criteria };
}

/**
 * @param {Readonly<Record<string, Question>>} questions
 * @returns {string}
 */
export function exportQuestions(questions) {
  const entries = Object.entries(questions).map(([id, question]) => [id, portable(question)]);
  return JSON.stringify(Object.fromEntries(entries), null, 2) + "\n";
}

/**
 * Questions from JSON text: `{id: question}`, or a request of the System One API, whose state comes too.
 * @param {string} text
 * @returns {Imported}
 * @throws {ImportError} with all that is wrong
 */
export function importQuestions(text) {
  const wire = read(text);
  const whole =
    wire instanceof Map && wire.get("questions") instanceof Map && !wire.get("questions").has("type");
  const questions = whole ? wire.get("questions") : wire;
  if (!(questions instanceof Map) || questions.size === 0) {
    throw new ImportError([{ place: whole ? "questions" : "", message: S.decide.json.noQuestions }]);
  }
  /** @type {Fault[]} */
  const faults = [];
  /** @type {[string, WireQuestion][]} */
  const entries = [];
  for (const [id, question] of questions) {
    try {
      const plain = plainQuestion(question);
      parseQuestions(new Map([[id, plain]]));
      entries.push([id, wireFromDraft(draftFromWire(id, plain))]);
    } catch (error) {
      if (!(error instanceof InvalidQuestionError)) throw error;
      const loc = /** @type {(string | number)[]} */ (error.data.loc);
      faults.push({ place: placeOf(loc.length > 0 ? loc : [id]), message: error.message });
    }
  }
  if (faults.length > 0) throw new ImportError(faults);
  const state = whole && wire.has("state") ? asText(wire.get("state")) : null;
  return { questions: Object.fromEntries(entries), state: typeof state === "string" ? state : null };
}

/** Text that holds no questions: `faults` says why, each with its place. */
export class ImportError extends Error {
  /** @param {Fault[]} faults */
  constructor(faults) {
    super(faults.map(({ place, message }) => `${place}: ${message}`).join("\n"));
    this.faults = faults;
  }
}

/** @param {string} text @returns {any} */
function read(text) {
  try {
    return parse(new TextEncoder().encode(text));
  } catch (error) {
    if (!(error instanceof InvalidRequestError)) throw error;
    const reason = error.data.error === undefined ? "" : ` ${error.data.error}`;
    throw new ImportError([{ place: "", message: error.message + reason }]);
  }
}

/**
 * `queue.criteria[2]` for a path.
 * @param {readonly (string | number)[]} loc
 */
function placeOf(loc) {
  return loc
    .map((step, i) => (typeof step === "number" ? `[${step}]` : i === 0 ? step : `.${step}`))
    .join("");
}

/**
 * A question as `parseQuestion` takes it; texts that are objects or arrays are read as their JSON text, as the API does.
 * @param {any} wire
 * @returns {any}
 */
function plainQuestion(wire) {
  if (!(wire instanceof Map)) return null;
  const type = wire.get("type");
  const criteria = wire.get("criteria");
  return { type, instructions: asText(wire.get("instructions")), criteria: plainCriteria(type, criteria) };
}

/** @param {unknown} type @param {any} criteria */
function plainCriteria(type, criteria) {
  if (Array.isArray(criteria)) return criteria.map(plainOption);
  if (!(criteria instanceof Map)) return asPlain(criteria);
  if (type === "noul") return { true: asText(criteria.get("true")), false: asText(criteria.get("false")) };
  return new Map([...criteria].map(([name, about]) => [name, asText(about)]));
}

/** @param {any} item */
function plainOption(item) {
  if (item instanceof Map && item.has("name")) {
    return { name: asPlain(item.get("name")), description: asText(item.get("description")) };
  }
  return Array.isArray(item) && item.length === 2 ? [asPlain(item[0]), asText(item[1])] : asText(item);
}

/** @param {any} value */
function asText(value) {
  return value instanceof Map || Array.isArray(value) ? dump(value) : asPlain(value);
}

/** @param {any} value */
function asPlain(value) {
  return value instanceof WrittenNumber ? Number(value.text) : value;
}
