// JSON text as values that keep what is written: the order of keys, which JSON.parse changes for keys like "10", and the
// digits of numbers. Knows no requests. typedecide/wire_json.py is its twin; both run tests/vectors/systemone.json.

import { IntegrityError, InvalidRequestError } from "./errors.js";

/** Levels of arrays and objects in each other. */
export const MAX_DEPTH = 100;

/** A number as it is written: 1.0 stays 1.0, whatever the language. */
export class WrittenNumber {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }
}

// Only ever matched against text that JSON.parse has accepted.
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[-+.\w]+/g;

const WORDS = new Map(Object.entries({ true: true, false: false, null: null }));

/**
 * The value that UTF-8 bytes spell: Map, array, string, `WrittenNumber`, boolean or null.
 * @param {ArrayBuffer | Uint8Array} data
 * @returns {unknown}
 * @throws {InvalidRequestError} no JSON, a key that is there twice, a number beyond double precision, or more than
 *   `MAX_DEPTH` levels
 */
export function parse(data) {
  const text = decode(data);
  try {
    JSON.parse(text);
  } catch (error) {
    throw invalid("The body is not JSON.", { error: String(error) });
  }
  return new Builder(/** @type {string[]} */ (text.match(TOKENS))).value(0);
}

/**
 * The JSON text of a value on one line, its numbers as they were written.
 * @param {unknown} value Map, plain object, array, string, number, `WrittenNumber`, boolean or null
 * @returns {string}
 */
export function dump(value) {
  if (typeof value === "string") return dumpText(value);
  if (value instanceof WrittenNumber) return value.text;
  if (Array.isArray(value)) return `[${value.map(dump).join(", ")}]`;
  if (typeof value === "object" && value !== null) {
    const entries = value instanceof Map ? [...value] : Object.entries(value);
    return `{${entries.map(([key, item]) => `${dumpText(key)}: ${dump(item)}`).join(", ")}}`;
  }
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new IntegrityError(`JSON has no number ${value}.`, { value: String(value) });
  }
  return JSON.stringify(value);
}

/**
 * JSON.stringify would escape lone surrogates, which whoever reads the text is to find.
 * @param {string} text
 */
function dumpText(text) {
  const parts = text.split(/(\p{Surrogate})/u);
  return `"${parts.map((part, i) => (i % 2 ? part : JSON.stringify(part).slice(1, -1))).join("")}"`;
}

/** @param {ArrayBuffer | Uint8Array} data */
function decode(data) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch (error) {
    throw invalid("The body is not UTF-8.", { error: String(error) });
  }
}

/** Builds the value that the tokens of valid JSON spell. */
class Builder {
  #at = 0;

  /** @param {string[]} tokens */
  constructor(tokens) {
    this.tokens = tokens;
  }

  /**
   * @param {number} depth levels around the value
   * @returns {unknown}
   */
  value(depth) {
    const token = this.tokens[this.#at++];
    if (token === "{" || token === "[") {
      if (depth === MAX_DEPTH) throw invalid(`The body has more than ${MAX_DEPTH} levels.`);
      return token === "{" ? this.#object(depth + 1) : this.#array(depth + 1);
    }
    if (token[0] === '"') return JSON.parse(token);
    if (WORDS.has(token)) return WORDS.get(token);
    // What reads the other end of the wire has doubles only.
    if (!Number.isFinite(Number(token))) throw invalid("A number of the body does not fit double precision.");
    return new WrittenNumber(token);
  }

  /** @param {number} depth */
  #array(depth) {
    const found = [];
    while (!this.#ends("]")) found.push(this.value(depth));
    return found;
  }

  /** @param {number} depth */
  #object(depth) {
    const found = new Map();
    while (!this.#ends("}")) {
      const key = JSON.parse(this.tokens[this.#at++]);
      this.#at++; // the colon
      if (found.has(key)) throw invalid("A key of the body is there twice.");
      found.set(key, this.value(depth));
    }
    return found;
  }

  /**
   * Whether the bracket comes now; steps over it, or over the comma before the next item.
   * @param {string} bracket
   */
  #ends(bracket) {
    if (this.tokens[this.#at] === ",") this.#at++;
    const ends = this.tokens[this.#at] === bracket;
    if (ends) this.#at++;
    return ends;
  }
}

/**
 * @param {string} message
 * @param {{error: string}} [context]
 */
function invalid(message, context) {
  const fault = { loc: ["body"], msg: message, type: "json_invalid" };
  return new InvalidRequestError(message, { faults: [context ? { ...fault, ctx: context } : fault] });
}
