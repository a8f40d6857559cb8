// What a question is: choice, noul (yes or no) and score (ordered levels), read from the System One JSON form.
// Knows no prompt text, no tokens and no numbers. typedecide/questions.py is its twin; both run
// tests/vectors/questions.json.

import { InvalidQuestionError } from "./errors.js";

export const MAX_OPTIONS = 255;
export const MAX_LEVELS = 10;

/**
 * All that a prompt sees of a question: its text, and the text of every option in order.
 * @typedef {{readonly text: string, readonly options: readonly string[]}} Criterion
 */

/** @typedef {"choice" | "noul" | "score"} Kind */

/** @typedef {{readonly kind: Kind, readonly names: readonly string[], readonly criterion: Criterion}} Question */

/** @typedef {readonly (string | number)[]} Loc */

/** @typedef {{name: string, description: string}} Option */

/** @typedef {{name: unknown, description: unknown, loc: Loc}} RawOption */

/**
 * A question from its System One JSON form `{type, instructions?, criteria}`.
 *
 * `choice` and `score` criteria: a list of names, of `[name, description]` or of `{name, description}`, or an object of
 * name to description. JavaScript moves integer-like keys ("10", "2") to the front of an object, so an object that has
 * one is refused: use a list, or a Map. `noul` criteria: absent, null, the question as a string (it follows the
 * instructions, if any), or `{true?, false?}`, which say what each answer means. Unknown fields are ignored.
 * @param {unknown} wire
 * @returns {Question}
 * @throws {InvalidQuestionError} with `data.loc`, the path to the fault, and `data.value`, what was found there
 */
export function parseQuestion(wire) {
  if (!isRecord(wire)) throw invalid("A question must be an object.", wire, []);
  const parser = typeof wire.type === "string" ? PARSERS.get(wire.type) : undefined;
  if (!parser) throw invalid("The type of a question must be choice, noul or score.", wire.type, ["type"]);
  return parser(optionalText(wire.instructions, ["instructions"]), wire.criteria);
}

/**
 * Questions by id, from the System One JSON form `{id: question}` or a Map; an error's `data.loc` starts with the id.
 * @param {unknown} wire
 * @returns {Map<string, Question>}
 */
export function parseQuestions(wire) {
  if (!isRecord(wire)) throw invalid("Questions must be an object of id to question.", wire, []);
  const entries = wire instanceof Map ? [...wire] : Object.entries(wire);
  if (!entries.length) throw invalid("There must be at least one question.", wire, []);
  return new Map(entries.map(([id, question]) => [checkId(id), parseAt(id, question)]));
}

/**
 * True for a text of nothing but white space (Unicode White_Space, the same set in both languages).
 * @param {string} text
 * @returns {boolean}
 */
export function isBlank(text) {
  return /^\p{White_Space}*$/u.test(text);
}

/**
 * The position, in code points, of the first lone surrogate, which UTF-8 cannot carry, or null.
 * @param {string} text
 * @returns {number | null}
 */
export function findSurrogate(text) {
  const at = text.search(/\p{Surrogate}/u);
  return at < 0 ? null : [...text.slice(0, at)].length;
}

/**
 * `value`, when it is a string that UTF-8 can carry; else InvalidQuestionError at `loc`.
 * @param {unknown} value
 * @param {Loc} loc
 * @returns {string}
 */
export function checkText(value, loc) {
  if (typeof value !== "string") throw invalid("A text of a question must be a string.", value, loc);
  if (findSurrogate(value) !== null)
    throw invalid("A text of a question holds a lone surrogate.", value, loc);
  return value;
}

/**
 * @param {string} message
 * @param {unknown} value
 * @param {Loc} loc
 */
function invalid(message, value, loc) {
  return new InvalidQuestionError(message, { value: value ?? null, loc: [...loc] });
}

/**
 * @param {unknown} value
 * @returns {value is Record<string, unknown>}
 */
function isRecord(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * @param {Kind} kind
 * @param {string} text
 * @param {readonly string[]} names
 * @param {readonly Option[]} options
 * @returns {Question}
 */
function freezeQuestion(kind, text, names, options) {
  const texts = options.map(({ name, description }) => (description ? `${name}: ${description}` : name));
  const criterion = Object.freeze({ text, options: Object.freeze(texts) });
  return Object.freeze({ kind, names: Object.freeze([...names]), criterion });
}

/**
 * @param {Kind} kind
 * @param {number} most
 * @returns {(instructions: string, criteria: unknown) => Question}
 */
function optionsParser(kind, most) {
  return (instructions, criteria) => {
    const options = readOptions(criteria, most);
    const names = options.map(({ name }) => name);
    return freezeQuestion(kind, instructions, names, options);
  };
}

/**
 * @param {string} instructions
 * @param {unknown} criteria
 * @returns {Question}
 */
function parseNoul(instructions, criteria) {
  let text = instructions;
  let [yes, no] = ["", ""];
  if (isRecord(criteria)) {
    yes = optionalText(criteria.true, ["criteria", "true"]);
    no = optionalText(criteria.false, ["criteria", "false"]);
  } else {
    text = [instructions, optionalText(criteria, ["criteria"])].filter(Boolean).join(" ");
  }
  if ([text, yes, no].every(isBlank)) throw invalid("A yes/no question needs a text.", text, ["criteria"]);
  const options = [
    { name: "Yes", description: yes },
    { name: "No", description: no },
  ];
  return freezeQuestion("noul", text, ["yes", "no"], options);
}

/** @type {ReadonlyMap<string, (instructions: string, criteria: unknown) => Question>} */
const PARSERS = new Map([
  ["choice", optionsParser("choice", MAX_OPTIONS)],
  ["noul", parseNoul],
  ["score", optionsParser("score", MAX_LEVELS)],
]);

/**
 * @param {unknown} criteria
 * @param {number} most
 * @returns {Option[]}
 */
function readOptions(criteria, most) {
  const listed = listOptions(criteria, ["criteria"]);
  if (listed.length < 2 || listed.length > most) {
    throw invalid(`There must be 2 to ${most} options.`, listed.length, ["criteria"]);
  }
  /** @type {Set<string>} */
  const seen = new Set();
  return listed.map((option) => checkOption(option, seen));
}

/**
 * @param {unknown} options
 * @param {Loc} loc
 * @returns {RawOption[]}
 */
function listOptions(options, loc) {
  if (Array.isArray(options)) return options.map((item, index) => listOption(item, [...loc, index]));
  if (options instanceof Map)
    return [...options].map(([name, description]) => ({ name, description, loc: [...loc, name] }));
  if (!isRecord(options)) throw invalid("Options must be a list or an object.", options, loc);
  return Object.entries(options).map(([name, description]) => {
    if (/^(0|[1-9][0-9]*)$/.test(name)) {
      const message =
        "JavaScript does not keep the order of integer-like option names in an object: use a list.";
      throw invalid(message, name, [...loc, name]);
    }
    return { name, description, loc: [...loc, name] };
  });
}

/**
 * @param {unknown} item
 * @param {Loc} loc
 * @returns {RawOption}
 */
function listOption(item, loc) {
  if (isRecord(item) && Object.hasOwn(item, "name"))
    return { name: item.name, description: item.description, loc };
  if (Array.isArray(item) && item.length === 2) return { name: item[0], description: item[1], loc };
  return { name: item, description: null, loc };
}

/**
 * @param {RawOption} option
 * @param {Set<string>} seen
 * @returns {Option}
 */
function checkOption({ name: rawName, description, loc }, seen) {
  const name = checkText(rawName, loc);
  if (isBlank(name)) throw invalid("An option name must not be empty.", name, loc);
  if (seen.has(name)) throw invalid("Option names must be unique.", name, loc);
  seen.add(name);
  return { name, description: optionalText(description, loc) };
}

/**
 * @param {unknown} value
 * @param {Loc} loc
 * @returns {string}
 */
function optionalText(value, loc) {
  return value === null || value === undefined ? "" : checkText(value, loc);
}

/**
 * @param {unknown} id
 * @returns {string}
 */
function checkId(id) {
  if (typeof id !== "string" || !id || findSurrogate(id) !== null) {
    throw invalid("A question id must be a non-empty string without lone surrogates.", id, []);
  }
  return id;
}

/**
 * @param {string} id
 * @param {unknown} wire
 * @returns {Question}
 */
function parseAt(id, wire) {
  try {
    return parseQuestion(wire);
  } catch (error) {
    if (!(error instanceof InvalidQuestionError)) throw error;
    throw invalid(error.message, error.data.value, [id, .../** @type {Loc} */ (error.data.loc)]);
  }
}
