// A state and a criterion become prompt text and token ids: a head to keep, and a tail for each question.
// Knows no tensors and no model: every template string and label comes from the bundle's manifest.
// typedecide/prompt.py is its twin; both run tests/vectors/prompt.json.

import { BundleError, InvalidQuestionError, InvalidStateError, PrefixMismatchError } from "./errors.js";
import { checkText, findSurrogate } from "./questions.js";

/** @typedef {import("./questions.js").Criterion} Criterion */

/**
 * Text to token ids, with no special token added and none recognised in the text.
 * @typedef {{encode(text: string): number[]}} Tokenizer
 */

/**
 * An option label: its text as the prompt shows it, and the id of the token read at the answer.
 * @typedef {{readonly text: string, readonly id: number}} Label
 */

/**
 * The pieces a prompt is made of, as a bundle's manifest states them.
 * @typedef {object} PromptSpec
 * @property {readonly number[]} bos_ids
 * @property {string} head
 * @property {string} tail
 * @property {string} option
 * @property {readonly Label[]} labels
 */

/**
 * The spec in `manifest.prompt` and `manifest.labels`.
 * @param {Record<string, unknown>} manifest
 * @returns {PromptSpec}
 * @throws {BundleError} that says what is missing or wrong
 */
export function promptSpec(manifest) {
  const { prompt } = manifest;
  if (!isRecord(prompt)) throw malformed("The manifest has no prompt.", prompt, ["prompt"]);
  return Object.freeze({
    bos_ids: readBosIds(prompt.bos_ids),
    head: readTemplate(prompt, "head", ["state"]),
    tail: readTemplate(prompt, "tail", ["criterion", "options"]),
    option: readTemplate(prompt, "option", ["label", "option"]),
    labels: readLabels(manifest.labels),
  });
}

/** Writes prompts from one spec. */
export class Prompt {
  /** @param {PromptSpec} spec */
  constructor(spec) {
    /** @readonly */
    this.spec = spec;
  }

  /**
   * The part that every question about `state` shares.
   * @param {string} state
   * @returns {string}
   */
  headText(state) {
    return fill(this.spec.head, [["state", checkState(state)]]);
  }

  /**
   * The part that belongs to one question.
   * @param {Criterion} criterion
   * @returns {string}
   */
  tailText(criterion) {
    checkCriterion(criterion, this.spec.labels.length);
    const lines = criterion.options.map((option, at) =>
      fill(this.spec.option, [
        ["label", this.spec.labels[at].text],
        ["option", option],
      ]),
    );
    return fill(this.spec.tail, [
      ["criterion", criterion.text],
      ["options", lines.join("")],
    ]);
  }

  /**
   * The token ids whose logits answer `criterion`, one for each option in order.
   * @param {Criterion} criterion
   * @returns {number[]}
   */
  labelIds(criterion) {
    checkCriterion(criterion, this.spec.labels.length);
    return this.spec.labels.slice(0, criterion.options.length).map((label) => label.id);
  }

  /**
   * The ids of the whole prompt, head and tail encoded as one text.
   * @param {Tokenizer} tokenizer
   * @param {string} state
   * @param {Criterion} criterion
   * @returns {number[]}
   */
  fullIds(tokenizer, state, criterion) {
    return [...this.spec.bos_ids, ...tokenizer.encode(this.headText(state) + this.tailText(criterion))];
  }

  /**
   * The ids to compute once for `state`: the head's minus the last, which the tail may merge with.
   * @param {Tokenizer} tokenizer
   * @param {string} state
   * @returns {number[]}
   */
  statePrefixIds(tokenizer, state) {
    return [...this.spec.bos_ids, ...tokenizer.encode(this.headText(state)).slice(0, -1)];
  }

  /**
   * The ids before every state: those of the head's text up to the state, minus the last, which a state may merge with.
   * @param {Tokenizer} tokenizer
   * @returns {number[]}
   */
  headIds(tokenizer) {
    const before = this.spec.head.slice(0, this.spec.head.indexOf("{state}"));
    return [...this.spec.bos_ids, ...tokenizer.encode(before).slice(0, -1)];
  }

  /**
   * The full prompt's ids after the state's prefix.
   * @param {Tokenizer} tokenizer
   * @param {string} state
   * @param {Criterion} criterion
   * @returns {number[]}
   * @throws {PrefixMismatchError} where the prefix is not a prefix of the full prompt
   */
  suffixIds(tokenizer, state, criterion) {
    const prefix = this.statePrefixIds(tokenizer, state);
    return suffixAfter(prefix, this.fullIds(tokenizer, state, criterion));
  }
}

/**
 * What follows `prefix` in `full`, at least one id.
 * @param {readonly number[]} prefix
 * @param {readonly number[]} full
 * @returns {number[]}
 * @throws {PrefixMismatchError} where they first differ
 */
export function suffixAfter(prefix, full) {
  const differs = prefix.findIndex((id, at) => id !== full[at]);
  const position = differs < 0 ? prefix.length : differs;
  if (position === prefix.length && position < full.length) return full.slice(position);
  throw new PrefixMismatchError(
    `The cached prefix is not a prefix of the full prompt: they differ at token ${position}.`,
    { position, prefix_token: prefix[position] ?? null, full_token: full[position] ?? null },
  );
}

/**
 * A template with its `{slots}` filled in.
 * @param {string} template
 * @param {readonly (readonly [string, string])[]} pairs
 */
export function fill(template, pairs) {
  const values = new Map(pairs);
  // One pass, so that braces inside a value stay text.
  return template.replace(/\{([a-z]+)\}/g, (whole, name) => values.get(name) ?? whole);
}

/**
 * @param {unknown} state
 * @returns {string}
 */
function checkState(state) {
  if (typeof state !== "string") throw new InvalidStateError("The state must be a string.", { value: state });
  const position = findSurrogate(state);
  if (position !== null) {
    const value = [...state][position];
    throw new InvalidStateError(`The state holds a lone surrogate at character ${position}.`, {
      value,
      position,
    });
  }
  return state;
}

/**
 * @param {Criterion} criterion
 * @param {number} most
 */
function checkCriterion({ text, options }, most) {
  if (options.length > most) {
    const data = { value: options.length, loc: ["options"] };
    throw new InvalidQuestionError(`This bundle has labels for ${most} options.`, data);
  }
  checkText(text, ["text"]);
  options.forEach((option, at) => checkText(option, ["options", at]));
}

/**
 * @param {string} message
 * @param {unknown} value
 * @param {(string | number)[]} loc
 */
function malformed(message, value, loc) {
  return new BundleError(message, { value: value ?? null, loc });
}

/**
 * @param {unknown} value
 * @returns {value is Record<string, unknown>}
 */
function isRecord(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * @param {unknown} value
 * @returns {value is number}
 */
function isId(value) {
  return Number.isInteger(value) && Number(value) >= 0;
}

/**
 * The template in `prompt[key]`, which must have each of the fields once.
 * @param {Record<string, unknown>} prompt
 * @param {string} key
 * @param {string[]} fields
 * @returns {string}
 * @throws {BundleError}
 */
export function readTemplate(prompt, key, fields) {
  const template = prompt[key];
  const slots = fields.map((name) => `{${name}}`);
  const valid = typeof template === "string" && template !== "";
  if (!valid || slots.some((slot) => template.split(slot).length !== 2)) {
    const wanted = slots.length ? `a text with one ${slots.join(" and ")}` : "a text";
    throw malformed(`The prompt's ${key} must be ${wanted}.`, template, ["prompt", key]);
  }
  return template;
}

/**
 * @param {unknown} ids
 * @returns {readonly number[]}
 */
function readBosIds(ids) {
  if (!Array.isArray(ids) || !ids.every(isId)) {
    throw malformed("The prompt's bos_ids must be token ids.", ids, ["prompt", "bos_ids"]);
  }
  return Object.freeze([...ids]);
}

/**
 * @param {unknown} labels
 * @returns {readonly Label[]}
 */
function readLabels(labels) {
  if (!Array.isArray(labels) || labels.length < 2) {
    throw malformed("The manifest must have at least two labels.", labels, ["labels"]);
  }
  const read = labels.map(readLabel);
  const parts = [new Set(read.map(({ text }) => text)), new Set(read.map(({ id }) => id))];
  if (parts.some((part) => part.size !== read.length)) {
    throw malformed("The texts and ids of labels must be unique.", labels, ["labels"]);
  }
  return Object.freeze(read);
}

/**
 * @param {unknown} label
 * @param {number} at
 * @returns {Label}
 */
function readLabel(label, at) {
  if (isRecord(label) && typeof label.text === "string" && label.text && isId(label.id)) {
    return Object.freeze({ text: label.text, id: label.id });
  }
  throw malformed("A label must have a text and a token id.", label, ["labels", at]);
}
