// A table of which one column holds the texts and some are copied into the result: which rows can be used, and what they
// hold. The twin of `Table` in typedecide/batch_tables.py. Knows no engine and no page.

import { findSurrogate, isBlank } from "../../questions.js";
import { byteOf } from "./decode.js";
import { asAscii, jsonText } from "./format.js";
import { InputError } from "./errors.js";

/** @typedef {import("./read.js").Cell} Cell */
/** @typedef {import("./read.js").Read} Read */
/** @typedef {import("./read.js").Row} Row */
/** @typedef {{column: string | null, reason: string}} Fault why a row cannot be used, and which column is at fault */

/** So much of a value that is no text is told. */
const SHOWN = 60;

export class Table {
  #places;

  /**
   * @param {Read} read
   * @param {string} text the column of the texts
   * @param {readonly string[]} keep the columns to copy
   * @throws {InputError} a column is there twice
   */
  constructor(read, text, keep) {
    this.read = read;
    this.text = text;
    this.keep = keep;
    this.#places = new Map(read.columns.map((column, place) => [column, place]));
    for (const column of [text, ...keep]) this.#check(column);
  }

  /** @returns {readonly Row[]} */
  get rows() {
    return this.read.rows;
  }

  /** @param {string} column */
  #check(column) {
    const count = this.read.columns.filter((one) => one === column).length;
    if (count === 1) return;
    const problem = count === 0 ? "there is no such column" : `there are ${count} such columns`;
    throw new InputError(`${this.read.name}: column '${column}': ${problem}.`, {
      column,
      columns: this.read.columns,
    });
  }

  /**
   * @param {Row} row
   * @param {string} column
   * @returns {Cell | undefined} undefined where the row has no such cell
   */
  cell({ cells }, column) {
    return cells instanceof Map ? cells.get(column) : cells[this.#places.get(column) ?? -1];
  }

  /**
   * The text of a row without a fault.
   * @param {Row} row
   */
  textOf(row) {
    return /** @type {string} */ (this.cell(row, this.text));
  }

  /**
   * A kept cell as it goes into the result: texts as they are, what is missing as nothing, other values as JSON.
   * @param {Row} row
   * @param {string} column
   */
  kept(row, column) {
    const cell = this.cell(row, column);
    if (cell === undefined || typeof cell === "string") return cell ?? "";
    return cell.json === "null" ? "" : cell.json;
  }

  /**
   * @param {Row} row
   * @returns {Fault | null}
   */
  fault(row) {
    if (row.reason !== undefined) return { column: null, reason: row.reason };
    const state = this.cell(row, this.text);
    if (state === undefined) return { column: this.text, reason: "there is no such column" };
    for (const column of new Set([this.text, ...this.keep])) {
      const value = this.cell(row, column);
      if (typeof value !== "string" || findSurrogate(value) === null) continue;
      const [byte] = /** @type {RegExpMatchArray} */ (value.match(/\p{Surrogate}/u));
      const ofJson = row.cells instanceof Map;
      return { column, reason: ofJson ? "holds a lone surrogate" : `is not UTF-8: byte ${byteOf(byte)}` };
    }
    if (typeof state !== "string") {
      const shown = [...asAscii(state.json)].slice(0, SHOWN).join("");
      return { column: this.text, reason: `is not a text but ${shown}` };
    }
    return isBlank(state) ? { column: this.text, reason: "the text is blank" } : null;
  }

  /**
   * What a row holds, as JSON.
   * @param {Row} row
   */
  content(row) {
    if (row.content !== undefined) return row.content;
    const cells = row.cells instanceof Map ? row.cells : new Map(zip(this.read.columns, row.cells));
    const entries = [...cells].map(
      ([key, cell]) => `${jsonText(key)}: ${typeof cell === "string" ? jsonText(cell) : asAscii(cell.json)}`,
    );
    return `{${entries.join(", ")}}`;
  }
}

/**
 * @param {readonly string[]} columns
 * @param {readonly Cell[]} cells
 * @returns {[string, Cell][]}
 */
function zip(columns, cells) {
  return columns.map((column, i) => [column, cells[i]]);
}
