// Files as tables: rows of CSV, TSV and JSON lines, with what is wrong with them. The twin of the readers in
// typedecide/batch_tables.py, by tests/vectors/tables.json: the same rows, under the same numbers, for the same reasons.
// Runs in a worker; knows no questions.

import { TypedecideError } from "../../errors.js";
import { parse } from "../../wire_json.js";
import { S } from "../strings.js";
import { decode, byteOf } from "./decode.js";
import { InputError } from "./errors.js";
import { jsonText } from "./format.js";

/** @typedef {typeof import("papaparse")} Papa */

/** What a cell holds: a text, or of JSON lines any other value, as its JSON text. @typedef {string | {json: string}} Cell */

/**
 * A row as it was read. `cells` are those of the table's columns, of JSON lines by their keys; `reason` says why it
 * cannot be used, and `content` is what it holds then, as JSON.
 * @typedef {{number: number, cells: Cell[] | Map<string, Cell>, reason?: string, content?: string}} Row
 */

/** @typedef {{name: string, columns: string[], rows: Row[]}} Read columns as the header has them, of JSON lines all keys */

export const ENDINGS = [".csv", ".tsv", ".jsonl"];

const SEPARATORS = [",", ";", "\t"];

const BEHIND = "text follows a closing quote";

const encoder = new TextEncoder();

/**
 * The rows of a file, by the ending of its name.
 * @param {string} name
 * @param {Uint8Array} bytes
 * @param {Papa} papa
 * @returns {Read}
 * @throws {InputError} it cannot be read as a table at all
 */
export function readTable(name, bytes, papa) {
  const ending = ENDINGS.find((one) => name.toLowerCase().endsWith(one));
  if (!ending) {
    throw new InputError(`${name}: its name must end in ${ENDINGS.join(", ")}.`, { path: name });
  }
  const text = decode(bytes);
  if (ending === ".jsonl") return { name, ...readLines(text) };
  return { name, ...readSeparated(name, text.replace(/^\ufeff/, ""), ending === ".tsv", papa) };
}

/**
 * @param {string} name
 * @param {string} text
 * @param {boolean} tabs whether tabs must separate the cells
 * @param {Papa} papa
 */
function readSeparated(name, text, tabs, papa) {
  const several = (/** @type {string} */ separator) => headerOf(text, separator, papa).length > 1;
  const separator = tabs ? "\t" : (SEPARATORS.find(several) ?? ",");
  /** @type {string[] | null} */
  let columns = null;
  /** @type {Row[]} */
  const rows = [];
  splitRows(name, text, separator, papa, (number, cells) => {
    if (typeof cells === "string") {
      rows.push({ number, cells: [], reason: BEHIND, content: jsonText(cells) });
      return;
    }
    columns ??= cells ?? [];
    if (number === 1 || !cells) return;
    if (cells.length === columns.length) rows.push({ number, cells });
    else {
      const reason = `has ${cells.length} cells, the header has ${columns.length}`;
      rows.push({ number, cells: [], reason, content: jsonText(cells) });
    }
  });
  return { columns: columns ?? [], rows };
}

/**
 * @param {string} text
 * @param {string} separator
 * @param {Papa} papa
 */
function headerOf(text, separator, papa) {
  const { data } = papa.parse(text, { delimiter: separator, newline: lineEnd(text), preview: 1 });
  return /** @type {string[]} */ (data[0] ?? []);
}

/** Old files end their rows with nothing but a carriage return. @param {string} text */
function lineEnd(text) {
  return text.includes("\n") || !text.includes("\r") ? "\n" : "\r";
}

/** @typedef {{newline: "\n" | "\r", number: number, start: number}} Place how many rows are taken, and where the next one begins */

/**
 * Takes the rows of a text. One in which text follows a closing quote is taken as its line, where that is one whose quotes
 * come in pairs: the next row begins behind it.
 * @param {string} name
 * @param {string} text
 * @param {string} separator
 * @param {Papa} papa
 * @param {(number: number, cells: string[] | string | null) => void} take null for an empty line
 * @throws {InputError} where a quote hides where the next row begins
 */
function splitRows(name, text, separator, papa, take) {
  const at = /** @type {Place} */ ({ newline: lineEnd(text), number: 0, start: 0 });
  for (;;) {
    const problem = takeRows(text, at, separator, papa, take);
    if (problem === null) return;
    const number = at.number + 1;
    let line = number > 1 ? lineAlone(text, at, separator) : null;
    if (line === null)
      throw new InputError(`${name}: row ${number}: ${problem}.`, { path: name, row: number });
    // In each of them Papa Parse would look through all that follows, for a quote that closes.
    for (; line !== null; line = lineAlone(text, at, separator)) {
      at.number += 1;
      take(at.number, line);
      at.start = lineEndAt(text, at) + 1;
    }
  }
}

/**
 * Takes rows up to one that is wrong.
 * @param {string} text
 * @param {Place} at
 * @param {string} separator
 * @param {Papa} papa
 * @param {(number: number, cells: string[] | null) => void} take
 * @returns {string | null} what is wrong, null at the end of the text
 */
function takeRows(text, at, separator, papa, take) {
  const { newline } = at;
  // From the line end before, as Papa Parse drops a byte order mark where its text begins.
  const from = Math.max(0, at.start - 1);
  /** @type {string | null} */
  let problem = null;
  papa.parse(text.slice(from), {
    delimiter: separator,
    newline,
    step: ({ data, meta }, parser) => {
      const end = from + meta.cursor;
      const raw = text.slice(at.start, end);
      // Behind the last line end there is no row, and before the first one neither.
      if (raw === "") return;
      const line = raw.endsWith(newline) ? raw.slice(0, -1) : raw;
      problem = faultOf(line, separator);
      if (problem !== null) return parser.abort();
      at.number += 1;
      at.start = end;
      const cells = /** @type {string[]} */ (data);
      if (newline === "\n" && line.endsWith("\r")) cells.push(withoutReturn(cells, line));
      take(at.number, line === "" || line === "\r" ? null : cells);
    },
  });
  return problem;
}

/** @param {string} text @param {Place} at */
function lineEndAt(text, { newline, start }) {
  const end = text.indexOf(newline, start);
  return end < 0 ? text.length : end;
}

/**
 * The line that begins there, where text follows a closing quote in it, and its quotes come in pairs.
 * @param {string} text
 * @param {Place} at
 * @param {string} separator
 * @returns {string | null}
 */
function lineAlone(text, at, separator) {
  const line = text.slice(at.start, lineEndAt(text, at)).replace(/\r$/, "");
  const paired = line.split('"').length % 2 === 1;
  return paired && !line.includes("\r") && behindQuote(separator).test(line) ? line : null;
}

/**
 * The last cell, taken out, without the carriage return of the line's end; Papa Parse drops that behind a quote only.
 * @param {string[]} cells
 * @param {string} line
 */
function withoutReturn(cells, line) {
  const last = cells.pop() ?? "";
  const quoted = line.endsWith('"\r') && !last.endsWith('"\r');
  return quoted ? last : last.slice(0, -1);
}

/**
 * What is wrong with the quotes of a row, which Papa Parse takes more kindly than is safe.
 * @param {string} line
 * @param {string} separator
 */
function faultOf(line, separator) {
  if (rowOf(separator, "\\r").test(line)) return null;
  if (rowOf(separator, "").test(line)) return S.table.strayReturn;
  return behindQuote(separator).test(line) ? BEHIND : "a quote is never closed";
}

/** Matches where text follows a closing quote. @param {string} separator */
function behindQuote(separator) {
  return new RegExp(`^(?:${cellOf(separator, "")}${separator})*"[^"]*(?:""[^"]*)*"(?!["${separator}]|$)`);
}

/** @param {string} separator @param {string} unquoted what else cells without quotes must not hold */
function rowOf(separator, unquoted) {
  const cell = cellOf(separator, unquoted);
  return new RegExp(`^${cell}(?:${separator}${cell})*\\r?$`);
}

/** @param {string} separator @param {string} unquoted */
function cellOf(separator, unquoted) {
  return `(?:"[^"]*(?:""[^"]*)*"|(?!")[^${separator}\\n${unquoted}]*)`;
}

/** @param {string} text */
function readLines(text) {
  const columns = new Set();
  /** @type {Row[]} */
  const rows = [];
  text.split("\n").forEach((line, index) => {
    if (/^[ \t\r\v\f]*$/.test(line)) return;
    const row = readLine(index + 1, index === 0 ? line.replace(/^\ufeff/, "") : line);
    rows.push(row);
    for (const key of row.cells.keys()) columns.add(key);
  });
  return { columns: /** @type {string[]} */ ([...columns]), rows };
}

/**
 * @param {number} number
 * @param {string} line
 * @returns {Row}
 */
function readLine(number, line) {
  const cells = /** @type {Map<string, Cell>} */ (new Map());
  const escaped = line.match(/\p{Surrogate}/u);
  if (escaped) {
    const shown = line.replace(/\p{Surrogate}/gu, (byte) => byteOf(byte).replace("0", "\\"));
    return { number, cells, reason: `is not UTF-8: byte ${byteOf(escaped[0])}`, content: jsonText(shown) };
  }
  let found;
  try {
    found = parse(encoder.encode(line));
  } catch (error) {
    if (!(error instanceof TypedecideError)) throw error;
    return { number, cells, reason: reasonOf(error.message), content: jsonText(line) };
  }
  if (!(found instanceof Map)) {
    return { number, cells, reason: "not a JSON object", content: jsonText(line) };
  }
  for (const [key, value] of found) {
    cells.set(key, typeof value === "string" ? value : { json: jsonText(value, false) });
  }
  return { number, cells };
}

/** "The body is not JSON." as it is said of a line. @param {string} message */
function reasonOf(message) {
  return (message[0].toLowerCase() + message.slice(1)).replace("body", "line").replace(/\.$/, "");
}
