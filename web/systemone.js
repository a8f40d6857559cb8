// The System One wire: the body of a request -> state and questions; answers and errors -> the body of a reply.
// Knows no network, no engine and no tensors. typedecide/systemone.py is its twin; both run tests/vectors/systemone.json.

import {
  InvalidQuestionError,
  InvalidRequestError,
  InvalidStateError,
  TooLongError,
  TypedecideError,
  UnsupportedError,
} from "./errors.js";
import { findSurrogate, parseQuestions } from "./questions.js";
import { WrittenNumber, dump, parse } from "./wire_json.js";

/** @typedef {import("./questions.js").Loc} Loc */

/** @typedef {{loc: (string | number)[], msg: string, type: string}} Fault */

/**
 * A request that validates: the model asked for, null where the request names none; the text, a structured state as its
 * JSON text; the questions by id in the order sent, as `parseQuestion` takes them; and for each score question, its
 * levels as they were sent.
 * @typedef {object} SystemOneRequest
 * @property {string | null} model
 * @property {string} state
 * @property {Map<string, Question>} questions
 * @property {Map<string, unknown[]>} legends
 */

/**
 * What goes back: the status, the body (`dump` of wire_json.js writes it), and headers beside its media type.
 * @typedef {{status: number, body: object, headers: Record<string, string>}} Reply
 */

/** @typedef {import("./types.js").Question} Question */
/** @typedef {import("./types.js").Ordered} Ordered */
/** @typedef {import("./types.js").Prefilled} Prefilled */
/** @typedef {import("./types.js").ScoredAll} ScoredAll */
/** @typedef {Omit<ScoredAll, "answers"> & {answers: Record<string, Ordered>, prefill: Prefilled}} Decided */

export const PATH = "/v1/systemone";
export const MODELS_PATH = "/v1/models";

/** The model that official clients ask for when they are told none: it stands for the one that is served. */
export const ALIAS = "jev-latest";

// What answers hold that the standard names or leaves out; the rest goes out under `x_`.
const OWN = ["kind", "names", "logits", "probabilities", "value", "choice", "confidence"];

/**
 * The request in a body.
 *
 * State, instructions and descriptions may be strings, objects or arrays; objects and arrays are read as their JSON text
 * on one line, keys in their order and numbers as they were written. Beyond the standard, the options of a choice may be
 * a list, as `parseQuestion` takes it, and `model` may be missing. Unknown fields are ignored.
 * @param {ArrayBuffer | Uint8Array} body
 * @returns {SystemOneRequest}
 * @throws {InvalidRequestError} with all that is wrong
 */
export function parseRequest(body) {
  const wire = parse(body);
  if (!(wire instanceof Map)) {
    const message = "The body must be an object.";
    throw new InvalidRequestError(message, { faults: [makeFault([], message, "dict_type")] });
  }
  const reader = new Reader(wire);
  const [model, state, questions] = [reader.model(), reader.state(), reader.questions()];
  reader.assets();
  const { faults } = reader;
  if (faults.length > 0) throw new InvalidRequestError(faults[0].msg, { faults });
  const scores = [...questions].filter(([, question]) => question.type === "score");
  const legends = new Map(scores.map(([id]) => [id, wire.get("questions").get(id).get("criteria")]));
  return { model, state, questions, legends };
}

/** Reads the fields of one request, and notes all that is wrong with them. */
class Reader {
  /** @type {Fault[]} */
  faults = [];

  /** @param {Map<string, any>} body */
  constructor(body) {
    this.body = body;
  }

  /**
   * @param {Loc} loc
   * @param {string} message
   * @param {string} type
   */
  #fault(loc, message, type) {
    this.faults.push(makeFault(loc, message, type));
  }

  /** @returns {string | null} */
  model() {
    const model = this.body.get("model") ?? null;
    if (model === null || typeof model === "string") return model;
    this.#fault(["model"], "The model must be a string.", "string_type");
    return null;
  }

  /** @returns {string} */
  state() {
    const state = asText(this.body.get("state"));
    if (!this.body.has("state")) this.#fault(["state"], "The state is missing.", "missing");
    else if (typeof state !== "string") {
      this.#fault(["state"], "The state must be a string, an object or an array.", "union_type");
    } else if (findSurrogate(state) !== null) {
      this.#fault(["state"], "The state holds a lone surrogate.", "value_error");
    }
    return String(state);
  }

  assets() {
    const assets = this.body.get("assets");
    const none = assets instanceof Map ? assets.size === 0 : !asPlain(assets) || assets.length === 0;
    // The standard's pictures; left unread, they would be missing from the text that is judged.
    if (!none) this.#fault(["assets"], "Assets are not read: this model takes text only.", "value_error");
  }

  /** @returns {Map<string, Question>} */
  questions() {
    const wire = this.body.get("questions");
    if (!this.body.has("questions")) this.#fault(["questions"], "The questions are missing.", "missing");
    else if (!(wire instanceof Map)) {
      this.#fault(["questions"], "The questions must be an object of id to question.", "dict_type");
    } else if (wire.size === 0) {
      this.#fault(["questions"], "There must be at least one question.", "too_short");
    } else return new Map([...wire].flatMap(([id, question]) => this.#question(id, question)));
    return new Map();
  }

  /**
   * @param {string} id
   * @param {unknown} wire
   * @returns {[string, Question][]}
   */
  #question(id, wire) {
    try {
      const question = plainQuestion(id, wire);
      parseQuestions(new Map([[id, question]]));
      return [[id, /** @type {Question} */ (question)]];
    } catch (error) {
      if (!(error instanceof InvalidQuestionError)) throw error;
      this.#fault(["questions", .../** @type {Loc} */ (error.data.loc)], error.message, "value_error");
      return [];
    }
  }
}

/**
 * @param {SystemOneRequest} request
 * @param {string} served
 * @throws {UnsupportedError} the request asks for another model than the one served
 */
export function checkModel({ model }, served) {
  if (model === null || model === served || model === ALIAS) return;
  const message = `There is no model ${dump(model)} here, but ${served}, also known as ${ALIAS}.`;
  throw new UnsupportedError(message, { model, known: [served, ALIAS] });
}

/**
 * The reply to a request.
 *
 * `usage.input_tokens` counts the prompt of the text, also where it was kept from before, and the tokens run for the
 * questions, in which what questions share counts once. No tokens are put out.
 * @param {SystemOneRequest} request
 * @param {string} model the name of the model that answered
 * @param {Decided} done
 * @returns {Reply}
 */
export function answered({ questions, legends }, model, done) {
  const { tokens_run, tokens_saved, runs, ms, prefill } = done;
  const cost = { tokens_run, tokens_saved, runs, ms };
  const answers = new Map(
    [...questions.keys()].map((id) => [id, answerToWire(done.answers[id], legends.get(id))]),
  );
  const body = {
    model,
    answers,
    usage: { input_tokens: prefill.tokens + tokens_run, output_tokens: 0 },
    x_cost: { prefix_tokens: prefill.tokens, prefill_ms: prefill.ms, ...cost },
  };
  return { status: 200, body, headers: {} };
}

/**
 * An answer as the standard has it; what is beyond the standard has names that begin with `x_`.
 * @param {Ordered} answer
 * @param {unknown[] | undefined} legend the levels of a score, as they were sent
 * @returns {object}
 */
export function answerToWire(answer, legend) {
  const { kind, names, probabilities, value, choice, confidence } = answer;
  const beyond = Object.entries(answer).filter(([name]) => !OWN.includes(name));
  const extra = Object.fromEntries(
    beyond.map(([name, item]) => [name.startsWith("x_") ? name : `x_${name}`, item]),
  );
  if (kind === "noul") return { type: kind, noul: value, x_confidence: confidence, ...extra };
  const keys = legend ? legend.map((_, i) => String(i)) : names;
  const found = legend
    ? { score: value, legend: new Map(legend.map((level, i) => [String(i), level])) }
    : { choice };
  const spread = new Map(keys.map((key, i) => [key, probabilities[i]]));
  return { type: kind, ...found, probabilities: spread, confidence, ...extra };
}

/**
 * The reply that lists what is served: the model under its own name, and as `ALIAS`.
 * @param {Pick<import("./types.js").Info, "model" | "format" | "candidate" | "context">} info of an engine
 * @returns {Reply}
 */
export function models({ model, format, candidate, context }) {
  const about = `${model.name}, ${format}, on ${candidate}, ${context} tokens`;
  // The standard wants a date. A bundle may not know when its model came out, and then says so.
  const description = model.released ? about : `${about}; release date not known`;
  const dated = { description, release_date: model.released ?? "1970-01-01" };
  const body = { models: [model.name, ALIAS].map((name) => ({ name, ...dated })) };
  return { status: 200, body, headers: {} };
}

/**
 * The reply that tells an error: 422 for what does not validate, 413 for what does not fit, 404 for another model, else
 * 500.
 * @param {TypedecideError} error
 * @returns {Reply}
 */
export function refused(error) {
  const { message, code, data } = error;
  if (error instanceof InvalidRequestError) return unprocessable(/** @type {Fault[]} */ (data.faults));
  if (error instanceof InvalidQuestionError) {
    const loc = /** @type {Loc} */ (data.loc);
    return unprocessable([makeFault(["questions", ...loc], message, "value_error")]);
  }
  if (error instanceof InvalidStateError)
    return unprocessable([makeFault(["state"], message, "value_error")]);
  if (error instanceof TooLongError) {
    return failure(413, "max_tokens_exceeded", message, { x_tokens: data.tokens, x_limit: data.limit });
  }
  if (error instanceof UnsupportedError && "known" in data) return failure(404, "not_found", message);
  return failure(500, "internal_error", message, { x_code: code });
}

/**
 * An error in the standard's shape for all that is not about the content of a request.
 * @param {number} status
 * @param {string} type
 * @param {string} message
 * @param {object} [more]
 * @param {Record<string, string>} [headers]
 * @returns {Reply}
 */
export function failure(status, type, message, more = {}, headers = {}) {
  return { status, body: { detail: { error_type: type, message, ...more } }, headers };
}

/**
 * The reply where there is nothing.
 * @param {string} path
 */
export function notFound(path) {
  return failure(404, "not_found", `There is no ${path} here.`);
}

/**
 * The reply to a method that a path does not take.
 * @param {string} method
 * @param {string} allowed
 */
export function notAllowed(method, allowed) {
  const message = `${method} is not allowed, but ${allowed}.`;
  return failure(405, "method_not_allowed", message, {}, { Allow: allowed });
}

/**
 * @param {Fault[]} faults
 * @returns {Reply}
 */
function unprocessable(faults) {
  return { status: 422, body: { detail: faults }, headers: {} };
}

/**
 * @param {Loc} loc
 * @param {string} message
 * @param {string} type
 * @returns {Fault}
 */
function makeFault(loc, message, type) {
  return { loc: ["body", ...loc], msg: message, type };
}

/**
 * A structured text as the string that it is read as; all else as it is.
 * @param {any} value
 */
function asText(value) {
  return value instanceof Map || Array.isArray(value) ? dump(value) : asPlain(value);
}

/**
 * No object of ours where the checks look for objects of the sender's.
 * @param {any} value
 */
function asPlain(value) {
  return value instanceof WrittenNumber ? Number(value.text) : value;
}

/**
 * A question whose texts are strings, as `parseQuestion` takes it.
 * @param {string} id
 * @param {any} wire
 * @returns {any}
 */
function plainQuestion(id, wire) {
  if (!(wire instanceof Map)) return null;
  const type = wire.get("type");
  let criteria = asPlain(wire.get("criteria"));
  if (type === "score") {
    if (!Array.isArray(criteria)) {
      const data = { value: null, loc: [id, "criteria"] };
      throw new InvalidQuestionError("The levels of a score must be a list, low to high.", data);
    }
    criteria = criteria.map(asText);
  } else if (criteria instanceof Map) {
    criteria = new Map([...criteria].map(([name, about]) => [name, asText(about)]));
    if (type === "noul") criteria = { true: criteria.get("true"), false: criteria.get("false") };
  } else if (type === "choice" && Array.isArray(criteria)) criteria = criteria.map(plainOption);
  return { type, instructions: asText(wire.get("instructions")), criteria };
}

/**
 * An option of a list, its description as a string.
 * @param {any} item
 */
function plainOption(item) {
  if (item instanceof Map && item.has("name"))
    return { name: item.get("name"), description: asText(item.get("description")) };
  return Array.isArray(item) && item.length === 2 ? [item[0], asText(item[1])] : item;
}
