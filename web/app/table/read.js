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

/**
 * @param {string} name
 * @param {string} text
 * @param {string} separator
 * @param {Papa} papa
 * @param {(number: number, cells: string[] | null) => void} take null for an empty line
 * @throws {InputError} where a quote hides where the next row begins
 */
function splitRows(name, text, separator, papa, take) {
  const newline = lineEnd(text);
  let [number, start] = [0, 0];
  papa.parse(text, {
    delimiter: separator,
    newline,
    step: ({ data, errors, meta }) => {
      const raw = text.slice(start, meta.cursor);
      start = meta.cursor;
      // Behind the last line end there is no row.
      if (raw === "") return;
      number += 1;
      const line = raw.endsWith(newline) ? raw.slice(0, -1) : raw;
      const problem = faultOf(line, separator, errors);
      if (problem) throw new InputError(`${name}: row ${number}: ${problem}.`, { path: name, row: number });
      const cells = /** @type {string[]} */ (data);
      if (newline === "\n" && line.endsWith("\r")) cells.push(withoutReturn(cells, line));
      take(number, line === "" || line === "\r" ? null : cells);
    },
  });
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
 * Why a row ends the reading: what Papa Parse found, or takes more kindly than is safe.
 * @param {string} line
 * @param {string} separator
 * @param {readonly import("papaparse").ParseError[]} errors
 */
function faultOf(line, separator, errors) {
  if (errors[0]?.code === "MissingQuotes") return "a quote is never closed";
  if (rowOf(separator, "\\r").test(line)) return null;
  return rowOf(separator, "").test(line) ? S.table.strayReturn : "text follows a closing quote";
}

/** @param {string} separator @param {string} unquoted what else cells without quotes must not hold */
function rowOf(separator, unquoted) {
  const cell = `(?:"[^"]*(?:""[^"]*)*"|(?!")[^${separator}\\n${unquoted}]*)`;
  return new RegExp(`^${cell}(?:${separator}${cell})*\\r?$`);
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
