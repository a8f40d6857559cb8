// Values as source text of JavaScript, Python and the shell. Knows nothing of questions.
//
// A JSON string is a string of JavaScript and of Python too, with the same meaning. Beyond what JSON escapes, these are
// escaped: characters that end a line in some language or that change the direction of what is shown, so that code
// reads as what it does; and lone surrogates, which no file can hold.

/** Line ends that are not ASCII, marks of direction, and what shows as nothing. */
const DECEPTIVE = /[\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Longer lines are broken where that can be done. */
const WIDTH = 80;

/** Pieces that make up any text: whole lines, broken after a space or where there is none. */
const PIECES = /[^\n]{0,76}[ \n]|[^\n]{1,77}/gu;

/**
 * One string literal, the same in JSON, JavaScript and Python.
 * @param {string} text
 */
export function quote(text) {
  const escape = (/** @type {string} */ found) => "\\u" + found.charCodeAt(0).toString(16).padStart(4, "0");
  return JSON.stringify(text).replace(DECEPTIVE, escape);
}

/**
 * The literals that make up a text.
 * @param {string} text
 * @returns {string[]}
 */
function pieces(text) {
  const whole = text.length <= WIDTH && !text.includes("\n");
  return whole ? [quote(text)] : (text.match(PIECES) ?? []).map(quote);
}

/**
 * The definition of a JavaScript text.
 * @param {string} name
 * @param {string} text
 */
export function jsConstant(name, text) {
  const parts = pieces(text);
  return `const ${name} =${parts.length === 1 ? ` ${parts[0]}` : parts.map((part) => `\n  ${part}`).join(" +")};`;
}

/**
 * The definition of a Python text.
 * @param {string} name
 * @param {string} text
 */
export function pyConstant(name, text) {
  const parts = pieces(text);
  if (parts.length === 1) return `${name} = ${parts[0]}`;
  return `${name} = (${parts.map((part) => `\n    ${part}`).join("")}\n)`;
}

/**
 * A key of a JavaScript object: as it is where that is a name; computed where writing it would set the prototype.
 * @param {string} name
 */
export function jsKey(name) {
  if (name === "__proto__") return '["__proto__"]';
  return /^[A-Za-z_$][\w$]*$/.test(name) ? name : quote(name);
}

/**
 * A value as a JavaScript expression: strings, numbers, null, lists and objects.
 * @param {unknown} value
 * @param {string} [indent] of the line that it begins in
 * @returns {string}
 */
export function jsValue(value, indent = "") {
  if (typeof value === "string") return quote(value);
  if (value === null || typeof value !== "object") return String(value);
  const inner = `${indent}  `;
  const list = Array.isArray(value);
  const items = list
    ? value.map((item) => jsValue(item, inner))
    : Object.entries(value).map(([key, item]) => `${jsKey(key)}: ${jsValue(item, inner)}`);
  const [open, close] = list ? ["[", "]"] : ["{", "}"];
  if (items.length === 0) return open + close;
  const space = list ? "" : " ";
  const flat = `${open}${space}${items.join(", ")}${space}${close}`;
  if (!flat.includes("\n") && indent.length + flat.length <= WIDTH) return flat;
  return `${open}\n${items.map((item) => `${inner}${item},\n`).join("")}${indent}${close}`;
}

/**
 * A call or a collection of Python: on one line where it fits.
 * @param {string} open
 * @param {readonly string[]} items
 * @param {string} close
 * @param {string} indent of the line that it begins in
 */
export function pyGroup(open, items, close, indent) {
  const flat = `${open}${items.join(", ")}${close}`;
  if (!flat.includes("\n") && indent.length + flat.length <= WIDTH) return flat;
  return `${open}\n${items.map((item) => `${indent}    ${item},\n`).join("")}${indent}${close}`;
}
