// The answers of a table's rows, kept in typed arrays, and the files that are made of them: byte for byte what
// `python -m typedecide batch` writes (typedecide/batch.py). Knows no engine and no page.

import { S } from "../strings.js";
import { csvLine, floatText, jsonText } from "./format.js";
import { InputError } from "./errors.js";

/** @typedef {import("../../index.js").Ordered} Answer */
/** @typedef {import("../../questions.js").Question} Question */
/** @typedef {import("./table.js").Table} Table */
/** @typedef {import("./table.js").Fault} Fault */

/** What is known of a row. */
export const OPEN = 0;
export const ANSWERED = 1;
export const REJECTED = 2;

/** Rows that are written to a file at a time, so that the page stays awake. */
const GROUP = 500;

/** `abstain` of an answer: not said, false, true. */
const ABSTAINS = ["", "false", "true"];

/**
 * What a row's answers are in numbers: of each question the place of its answer, whether to abstain, and its confidence
 * and probabilities one after the other.
 * @typedef {{choices: Uint8Array, abstains: Uint8Array, values: Float64Array}} Packed
 */

export class Results {
  #choices;
  #abstains;
  #values;
  /** @type {string[]} what answers say of a shallow model, of each question */
  #shallow;
  /** @type {Map<number, Fault>} */
  #faults = new Map();

  /**
   * @param {Table} table
   * @param {ReadonlyMap<string, Question>} questions
   * @throws {InputError} two columns of the result would have one name
   */
  constructor(table, questions) {
    this.table = table;
    this.ids = [...questions.keys()];
    this.questions = [...questions.values()];
    const rows = table.rows.length;
    this.starts = [0];
    for (const { names } of this.questions) this.starts.push((this.starts.at(-1) ?? 0) + 1 + names.length);
    this.width = this.starts.pop() ?? 0;
    this.status = new Uint8Array(rows);
    this.#choices = new Uint8Array(rows * this.ids.length);
    this.#abstains = new Uint8Array(rows * this.ids.length);
    this.#values = new Float64Array(rows * this.width);
    this.#shallow = this.ids.map(() => "");
    this.answered = this.rejected = 0;
    this.columns();
  }

  /** @returns {number} rows that are neither answered nor rejected */
  get open() {
    return this.status.length - this.answered - this.rejected;
  }

  /**
   * Answers as they are kept.
   * @param {readonly Answer[]} answers one for each question
   * @returns {Packed}
   */
  pack(answers) {
    const choices = Uint8Array.from(answers, ({ names, choice }) => names.indexOf(choice));
    const abstains = Uint8Array.from(answers, ({ abstain }) => (abstain === undefined ? 0 : abstain ? 2 : 1));
    const values = Float64Array.from(
      answers.flatMap(({ confidence, probabilities }) => [confidence, ...probabilities]),
    );
    answers.forEach(({ x_shallow: shallow }, i) => {
      if (shallow) this.#shallow[i] = shallowText(shallow);
    });
    return { choices, abstains, values };
  }

  /** @returns {readonly string[]} of each question what its answers say of a shallow model; empty where nothing */
  get shallow() {
    return this.#shallow;
  }

  set shallow(texts) {
    this.#shallow = [...texts];
  }

  /**
   * @param {number} row
   * @param {Packed} packed
   */
  answer(row, { choices, abstains, values }) {
    this.#choices.set(choices, row * this.ids.length);
    this.#abstains.set(abstains, row * this.ids.length);
    this.#values.set(values, row * this.width);
    this.#mark(row, ANSWERED);
  }

  /**
   * @param {number} row
   * @param {Fault} fault
   */
  reject(row, fault) {
    this.#faults.set(row, fault);
    this.#mark(row, REJECTED);
  }

  /** @param {number} row @param {number} status */
  #mark(row, status) {
    if (this.status[row] !== OPEN) throw new Error(S.table.rowDone(row));
    this.status[row] = status;
    if (status === ANSWERED) this.answered += 1;
    else this.rejected += 1;
  }

  /**
   * Gives a row what another with the same text has.
   * @param {number} row
   * @param {number} twin
   */
  copy(row, twin) {
    const fault = this.#faults.get(twin);
    if (fault) this.reject(row, fault);
    else this.answer(row, this.packAll([twin]));
  }

  /**
   * @param {ArrayLike<number>} rows that are answered
   * @returns {Packed} of all of them, one after the other
   */
  packAll(rows) {
    const [ids, width] = [this.ids.length, this.width];
    const choices = new Uint8Array(rows.length * ids);
    const abstains = new Uint8Array(rows.length * ids);
    const values = new Float64Array(rows.length * width);
    Array.from(rows).forEach((row, i) => {
      choices.set(this.#choices.subarray(row * ids, (row + 1) * ids), i * ids);
      abstains.set(this.#abstains.subarray(row * ids, (row + 1) * ids), i * ids);
      values.set(this.#values.subarray(row * width, (row + 1) * width), i * width);
    });
    return { choices, abstains, values };
  }

  /** @param {number} row @returns {Fault | undefined} */
  fault(row) {
    return this.#faults.get(row);
  }

  /** The place of the answer among the options. @param {number} row @param {number} question its place */
  choice(row, question) {
    return this.#choices[row * this.ids.length + question];
  }

  /** @param {number} row @param {number} question @returns {boolean | null} null where it is not calibrated */
  abstains(row, question) {
    return [null, false, true][this.#abstains[row * this.ids.length + question]];
  }

  /** @param {number} row @param {number} question */
  confidence(row, question) {
    return this.#values[row * this.width + this.starts[question]];
  }

  /** @param {number} row @param {number} question */
  probabilities(row, question) {
    const start = row * this.width + this.starts[question] + 1;
    return this.#values.subarray(start, start + this.questions[question].names.length);
  }

  /**
   * The columns of the result.
   * @returns {string[]}
   * @throws {InputError} two have the same name
   */
  columns() {
    const first = this.status.indexOf(ANSWERED);
    const columns = ["row", ...this.table.keep];
    this.questions.forEach(({ names }, i) => {
      const id = this.ids[i];
      columns.push(`${id}.answer`, `${id}.confidence`, ...names.map((name) => `${id}.p.${name}`));
      if (first >= 0 && this.abstains(first, i) !== null) columns.push(`${id}.abstain`);
      if (this.#shallow[i]) columns.push(`${id}.x_shallow`);
    });
    const twice = columns.find((column, i) => columns.indexOf(column) !== i);
    if (twice === undefined) return columns;
    throw new InputError(S.table.columnTwice(twice), { column: twice });
  }

  /**
   * The result as CSV.
   * @returns {Promise<Blob>}
   */
  async toCsv() {
    return this.#write(csvLine(this.columns()), ANSWERED, (row) => csvLine(this.#cells(row)));
  }

  /**
   * The rejected rows as JSON lines.
   * @returns {Promise<Blob>}
   */
  async toRejects() {
    return this.#write("", REJECTED, (row) => this.#reject(row));
  }

  /**
   * @param {string} head
   * @param {number} status of the rows to write
   * @param {(row: number) => string} line
   */
  async #write(head, status, line) {
    const parts = [head];
    for (let start = 0; start < this.status.length; start += GROUP) {
      let part = "";
      for (let row = start; row < Math.min(start + GROUP, this.status.length); row += 1) {
        if (this.status[row] === status) part += line(row);
      }
      parts.push(part);
      await breathe();
    }
    return new Blob(parts);
  }

  /** @param {number} row */
  #cells(row) {
    const { table } = this;
    const read = table.rows[row];
    const cells = [String(read.number), ...table.keep.map((column) => table.kept(read, column))];
    this.questions.forEach(({ names }, i) => {
      cells.push(names[this.choice(row, i)], floatText(this.confidence(row, i)));
      for (const p of this.probabilities(row, i)) cells.push(floatText(p));
      const abstains = this.#abstains[row * this.ids.length + i];
      if (abstains) cells.push(ABSTAINS[abstains]);
      if (this.#shallow[i]) cells.push(this.#shallow[i]);
    });
    return cells;
  }

  /** @param {number} row */
  #reject(row) {
    const { table } = this;
    const read = table.rows[row];
    const { column, reason } = /** @type {Fault} */ (this.#faults.get(row));
    const said = `"column": ${jsonText(column)}, "reason": ${jsonText(reason)}`;
    return `{"row": ${read.number}, ${said}, "content": ${table.content(read)}}\n`;
  }
}

/** @param {import("../../shallow.js").Shallow} shallow @returns {string} its JSON as Python writes it */
function shallowText({ k, anchor, agreement }) {
  const share = agreement === null ? "null" : floatText(agreement);
  return `{"k": ${k}, "anchor": ${jsonText(anchor)}, "agreement": ${share}}`;
}

/** Lets the page do what waits. @returns {Promise<void>} */
export function breathe() {
  return new Promise((resolve) => setTimeout(resolve));
}
