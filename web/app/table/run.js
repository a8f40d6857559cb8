// Asks an engine about every row of a table, and hands on what is done in blocks. Knows no page and no storage.

import { errorCode } from "../failure.js";
import { OPEN, breathe } from "./results.js";

/** @typedef {import("../../index.js").Engine} Engine */
/** @typedef {import("../../index.js").Question} Question */
/** @typedef {import("../../index.js").ScoreAllOptions} ScoreAllOptions */
/** @typedef {import("./kept.js").Block} Block */
/** @typedef {import("./results.js").Results} Results */
/** @typedef {Omit<Block, "run" | "engine">} Done */

/** What is wrong with one text, and no reason to give up the others. typedecide/batch.py has the same. */
const UNANSWERABLE = new Set(["INVALID_STATE", "PREFIX_MISMATCH", "TOO_LONG"]);

/** How often what is done is handed on: what a reload loses at most. */
const BLOCK_MS = 1000;

/** Rows that need no model are done for so long without a break. */
const AWAKE_MS = 10;

/**
 * @typedef {object} Asked
 * @property {ReadonlyMap<string, Question>} questions
 * @property {ScoreAllOptions} options
 * @property {AbortSignal} signal
 * @property {(row: number) => void} onRow
 * @property {(done: Done) => Promise<void>} onBlock
 */

/**
 * Answers the rows of `results` that are open, in their order. Equal texts are asked about once.
 * @param {Engine} engine
 * @param {Results} results
 * @param {Asked} asked
 * @throws what the engine throws, but for what is wrong with one text only
 */
export async function answerRows(engine, results, { questions, options, signal, onRow, onBlock }) {
  const { table } = results;
  const twins = twinsOf(results);
  const asked = { questions: new Map(questions), state: "" };
  let block = new Gathering(results);
  let rested = performance.now();
  const flush = async () => {
    const done = block;
    block = new Gathering(results);
    if (!done.empty) await onBlock(done.done());
  };
  try {
    for (let row = 0; row < results.status.length; row += 1) {
      if (results.status[row] !== OPEN) continue;
      signal.throwIfAborted();
      const fault = table.fault(table.rows[row]);
      if (fault) results.reject(row, fault);
      else {
        asked.state = table.textOf(table.rows[row]);
        const twin = twins.get(asked.state);
        if (twin === undefined) await answerRow(engine, results, row, asked, { ...options, signal });
        else results.copy(row, twin);
        twins.set(asked.state, row);
      }
      block.add(row);
      onRow(row);
      if (performance.now() - rested > AWAKE_MS) {
        await breathe();
        rested = performance.now();
      }
      if (block.ms > BLOCK_MS) await flush();
    }
  } finally {
    await flush();
  }
}

/**
 * @param {Engine} engine
 * @param {Results} results
 * @param {number} row
 * @param {{state: string, questions: Map<string, Question>}} asked
 * @param {ScoreAllOptions & {signal: AbortSignal}} options
 */
async function answerRow(engine, results, row, asked, options) {
  try {
    const { answers } = await engine.decide(asked, options);
    results.answer(row, results.pack(results.ids.map((id) => answers[id])));
  } catch (error) {
    if (!(error instanceof Error) || !UNANSWERABLE.has(errorCode(error))) throw error;
    results.reject(row, { column: results.table.text, reason: error.message });
  }
}

/** Rows that are done, by their texts. @param {Results} results */
function twinsOf({ table, status }) {
  const found = /** @type {Map<string, number>} */ (new Map());
  status.forEach((one, row) => {
    if (one !== OPEN && !table.fault(table.rows[row])) found.set(table.textOf(table.rows[row]), row);
  });
  return found;
}

/** Rows that are done and not yet handed on. */
class Gathering {
  /** @type {number[]} */
  #rows = [];
  #began = performance.now();

  /** @param {Results} results */
  constructor(results) {
    this.results = results;
  }

  get empty() {
    return this.#rows.length === 0;
  }

  get ms() {
    return performance.now() - this.#began;
  }

  /** @param {number} row */
  add(row) {
    this.#rows.push(row);
  }

  /** @returns {Done} */
  done() {
    const { results } = this;
    const faults = this.#rows.flatMap((row) => {
      const fault = results.fault(row);
      return fault ? [/** @type {[number, typeof fault]} */ ([row, fault])] : [];
    });
    const rejected = new Set(faults.map(([row]) => row));
    const rows = Uint32Array.from(this.#rows.filter((row) => !rejected.has(row)));
    return { rows, ...results.packAll(rows), shallow: [...results.shallow], faults };
  }
}

/**
 * Puts a block that was kept back into the results.
 * @param {Results} results
 * @param {Block} block
 */
export function restore(results, { rows, choices, abstains, values, shallow, faults }) {
  results.shallow = shallow;
  const [ids, width] = [results.ids.length, results.width];
  rows.forEach((row, i) =>
    results.answer(row, {
      choices: choices.subarray(i * ids, (i + 1) * ids),
      abstains: abstains.subarray(i * ids, (i + 1) * ids),
      values: values.subarray(i * width, (i + 1) * width),
    }),
  );
  for (const [row, fault] of faults) results.reject(row, fault);
}
