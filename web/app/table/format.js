// How results are written: CSV and JSON lines, byte for byte as typedecide/batch_tables.py writes them, by
// tests/vectors/tables.json. Knows no rows and no files.

import { dump } from "../../wire_json.js";

/**
 * A number in full, as Python writes it.
 * @param {number} value
 */
export function floatText(value) {
  const [digits, exponent] = Math.abs(value).toExponential().split("e");
  const power = Number(exponent);
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  return sign + (power < -4 || power > 15 ? scaled(digits, power) : placed(digits.replace(".", ""), power));
}

/** @param {string} digits @param {number} power of ten of the first one */
function placed(digits, power) {
  if (power < 0) return `0.${"0".repeat(-power - 1)}${digits}`;
  return `${digits.slice(0, power + 1).padEnd(power + 1, "0")}.${digits.slice(power + 1) || "0"}`;
}

/** @param {string} digits @param {number} power */
function scaled(digits, power) {
  return `${digits}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
}

/**
 * A line of CSV with its end.
 * @param {readonly string[]} cells
 */
export function csvLine(cells) {
  return `${cells.map(quoted).join(",")}\r\n`;
}

/** @param {string} cell */
function quoted(cell) {
  return /[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
}

/**
 * The JSON text of a value on one line.
 * @param {unknown} value as `dump` of wire_json.js takes it
 * @param {boolean} [ascii] whether other characters are escaped
 */
export function jsonText(value, ascii = true) {
  const text = dump(value);
  return ascii ? asAscii(text) : text;
}

/** @param {string} text JSON, in which other characters stand in strings only */
export function asAscii(text) {
  return text.replace(/[^ -~]/g, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
