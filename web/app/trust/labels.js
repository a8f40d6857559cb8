// Labels: the true answers of a question, by the rows of a table. Knows no engine and no page; what a cell means is as
// typedecide/labelled.py reads it, by tests/vectors/tables.json.

import { isBlank } from "../../questions.js";
import { S } from "../strings.js";
import { InputError } from "../table/errors.js";

/** @typedef {import("../../questions.js").Question} Question */
/** @typedef {import("../table/read.js").Read} Read */
/** @typedef {import("../table/read.js").Row} Row */
/** @typedef {import("../table/results.js").Results} Results */

/** So many rows are looked at to find a column of labels. */
const LOOKED_AT = 200;

const YES_NO = new Map([
  ["yes", "yes"],
  ["true", "yes"],
  ["1", "yes"],
  ["no", "no"],
  ["false", "no"],
  ["0", "no"],
]);

/**
 * The option that a cell means: itself, or without white space around it; of yes/no questions also true, false, 1 and 0,
 * in any case.
 * @param {Question} question
 * @param {string} cell
 * @returns {string | null}
 */
export function trueOption({ kind, names }, cell) {
  if (kind === "noul") return YES_NO.get(cell.trim().toLowerCase()) ?? null;
  return [cell, cell.trim()].find((name) => names.includes(name)) ?? null;
}

/**
 * Labels for a question, by the place of the row: the place of the true option. `missing` have none, `unknown` have one
 * that is none of the options.
 * @typedef {{gold: Map<number, number>, missing: number, unknown: {row: number, label: string}[]}} Labels
 */

/**
 * @param {Results} results
 * @param {number} question its place
 * @param {(place: number, row: Row) => string | undefined} labelOf
 * @returns {Labels}
 */
function collect({ table, questions }, question, labelOf) {
  /** @type {Labels} */
  const labels = { gold: new Map(), missing: 0, unknown: [] };
  table.rows.forEach((row, place) => {
    const label = labelOf(place, row);
    if (label === undefined || isBlank(label)) labels.missing += 1;
    else {
      const name = trueOption(questions[question], label);
      if (name === null) labels.unknown.push({ row: row.number, label });
      else labels.gold.set(place, questions[question].names.indexOf(name));
    }
  });
  return labels;
}

/**
 * How many of the first cells of a column are labels of a question, less those that are something else.
 * @param {Results} results
 * @param {number} question
 * @param {string} column
 */
export function fit({ table, questions }, question, column) {
  const labels = table.rows.slice(0, LOOKED_AT).map((row) => table.kept(row, column));
  const given = labels.filter((label) => !isBlank(label));
  return given.reduce((sum, label) => sum + (trueOption(questions[question], label) === null ? -1 : 1), 0);
}

/**
 * Labels in a column of the table itself.
 * @param {Results} results
 * @param {number} question
 * @param {string} column
 */
export function fromColumn(results, question, column) {
  return collect(results, question, (_, row) => results.table.kept(row, column));
}

/**
 * Labels in another table: by its column `row`, where it has one, or else its rows are those of the table in their order.
 * @param {Results} results
 * @param {number} question
 * @param {Read} read
 * @throws {InputError} nobody can tell which row is which, or which column holds the labels
 */
export function fromTable(results, question, read) {
  const column = labelColumn(read, results.ids[question]);
  const byRow = read.columns.includes("row");
  const labels = read.rows.map((row) => cellOf(read, row, column));
  if (!byRow && labels.length !== results.table.rows.length) {
    throw wrongCount(labels.length, results.table.rows.length);
  }
  if (!byRow) return collect(results, question, (place) => labels[place]);
  const numbered = new Map(read.rows.map((row, i) => [cellOf(read, row, "row"), labels[i]]));
  return collect(results, question, (_, row) => numbered.get(String(row.number)));
}

/**
 * Labels one a line, in the order of the table's rows; an empty line is a row without one.
 * @param {Results} results
 * @param {number} question
 * @param {string} text
 * @throws {InputError} there are not as many lines as rows
 */
export function fromLines(results, question, text) {
  const lines = text.split(/\r?\n/);
  const rows = results.table.rows.length;
  // Behind the end of the last line there is none, unless one is missing.
  if (lines.length !== rows && lines.at(-1) === "") lines.pop();
  if (lines.length !== rows) throw wrongCount(lines.length, rows);
  return collect(results, question, (place) => lines[place]);
}

/** @param {number} found @param {number} wanted */
function wrongCount(found, wanted) {
  return new InputError(S.trust.wrongCount(found, wanted), { found, wanted });
}

/**
 * @param {Read} read
 * @param {string} id of the question
 */
function labelColumn({ name, columns }, id) {
  const others = columns.filter((column) => column !== "row");
  const found = [id, "label", "gold"].find((column) => others.includes(column));
  if (found !== undefined) return found;
  if (others.length === 1) return others[0];
  throw new InputError(S.trust.noLabels(name, id), { columns });
}

/** @param {Read} read @param {Row} row @param {string} column @returns {string | undefined} */
function cellOf({ columns }, { cells }, column) {
  const cell = cells instanceof Map ? cells.get(column) : cells[columns.indexOf(column)];
  return typeof cell === "object" ? cell.json : cell;
}
