// What the Proof tab measures, on an engine: whether a kept prefix and packed questions give what whole prompts give, what
// each way costs, and whether the order of options counts. Knows no DOM. bench/shared_check.py, packing.py and flips.py
// measure the same, over more repeats and orders, from outside the page.

import { rotate } from "../../orderings.js";
import { parseQuestion } from "../../questions.js";

/** @typedef {import("../../index.js").Engine} Engine */
/** @typedef {import("../../index.js").Question} Question */
/** @typedef {import("../../index.js").Ordered} Ordered */
/** @typedef {import("../../index.js").ScoreAllOptions} ScoreAllOptions */

/**
 * The most that probabilities may differ where the same numbers are summed in another order: rounding of 32-bit floats.
 */
export const ROUNDING = 1e-5;

/** @typedef {"quick" | "normal" | "thorough"} Effort */

/** How many questions are asked at a time, and how often all of it is done. */
export const EFFORTS = Object.freeze({
  quick: { counts: [1, 4], repeats: 1 },
  normal: { counts: [1, 4, 11], repeats: 3 },
  thorough: { counts: [1, 4, 11, 32], repeats: 3 },
});

/** Three ways to ask the same. @typedef {"full" | "sequential" | "packed"} Way */
/** @type {readonly Way[]} */
export const WAYS = ["full", "sequential", "packed"];

/** Whole prompts run for each row in each repeat, where it has as many: they are slow. */
const FULL_PROMPTS = 4;

/** @typedef {{id: string, wire: Question}} Asked */

/**
 * @typedef {object} Plan
 * @property {string} text
 * @property {string} readout
 * @property {Effort} effort
 * @property {Asked[]} own the questions of the page that can be asked
 * @property {string[]} invalid ids of those that cannot
 * @property {Asked[]} all these and more of the page's own, for the larger counts
 * @property {number[]} counts
 * @property {number} repeats
 */

/**
 * One question against the kept prefix and as one whole prompt; milliseconds are medians.
 * @typedef {object} SharedRow
 * @property {string} id
 * @property {number} difference the largest of an option's probability
 * @property {{tokens: number, ms: number}} shared
 * @property {{tokens: number, ms: number}} full
 */

/**
 * So many questions asked in the three ways; milliseconds are medians, and those of whole prompts are reckoned by token
 * where `timed`, how many of the questions were run, is less than all.
 * @typedef {object} PackingRow
 * @property {number} questions
 * @property {Record<Way, {tokens: number, ms: number}>} ways
 * @property {number} runs packed runs
 * @property {number} saved tokens that packing saved
 * @property {number} difference the largest of an option's probability, packed against whole prompts
 * @property {number} timed
 */

/**
 * Questions with their options as given and reversed.
 * @typedef {object} FlipRow
 * @property {string} readout
 * @property {ScoreAllOptions["orderings"] | null} orderings null where options have no order
 * @property {number} questions
 * @property {string[]} flipped ids of those with another answer
 * @property {number} change the largest of an option's probability
 */

/**
 * @typedef {object} Found
 * @property {{tokens: number, ms: number}} [prefill]
 * @property {SharedRow[]} [shared]
 * @property {PackingRow[]} [packing]
 * @property {FlipRow[]} [flips]
 * @property {import("../../types.js").Memory & {states: {tokens: number, bytes: number}[], pageHeap: number | null}} [memory]
 */

/**
 * What to measure.
 * @param {{text: string, questions: Readonly<Record<string, Question>>, more: Readonly<Record<string, Question>>,
 *   readout: string, effort: Effort}} given
 * @returns {Plan}
 */
export function planOf({ text, questions, more, readout, effort }) {
  const entries = Object.entries(questions).map(([id, wire]) => ({ id, wire }));
  const own = entries.filter(({ wire }) => isValid(wire));
  const invalid = entries.filter(({ wire }) => !isValid(wire)).map(({ id }) => id);
  const added = Object.entries(more).map(([id, wire]) => ({ id, wire }));
  const all = own.length === 0 ? [] : [...own, ...added];
  const { counts, repeats } = EFFORTS[effort];
  return { text, readout, effort, own, invalid, all, repeats, counts: counts.filter((n) => n <= all.length) };
}

/** @param {Question} wire */
function isValid(wire) {
  try {
    parseQuestion(wire);
    return true;
  } catch {
    return false;
  }
}

/** How many steps `measure` takes. @param {Plan} plan */
export function stepsOf({ own, counts, repeats, readout }) {
  return 1 + repeats * (own.length + WAYS.length * counts.length) + flipWays(readout).length + 1;
}

/**
 * Measure, and say what is known after each step: rows fill up as repeats go on. Rows and ways take turns, so that a slow
 * moment hits all alike. The engine's kept texts are given up.
 * @param {Engine} engine
 * @param {Plan} plan
 * @param {{signal: AbortSignal, onStep: (done: number, found: Found) => void}} how
 * @returns {Promise<Found>}
 * @throws {import("../../errors.js").TypedecideError} as the engine does; `ABORTED` where the signal ends it
 */
export async function measure(engine, plan, { signal, onStep }) {
  const bench = new Bench(engine, plan, signal);
  /** @type {Found} */
  const found = {};
  let done = 0;
  const step = (/** @type {Partial<Found>} */ more) => onStep(++done, Object.assign(found, more));

  await bench.warmUp();
  step({});
  const asked = plan.own.map(() => /** @type {Pair[]} */ ([]));
  const cases = plan.counts.map((count) => new Case(count));
  /** @type {{tokens: number, ms: number}[]} */
  const prefills = [];
  for (let repeat = 0; repeat < plan.repeats; repeat++) {
    prefills.push(await bench.prefill());
    for (const [i, pairs] of asked.entries()) {
      pairs.push(await bench.pair(plan.own[i], repeat));
      const shared = plan.own.flatMap(({ id }, at) =>
        asked[at].length > 0 ? [sharedRow(id, asked[at])] : [],
      );
      step({ prefill: middle(prefills), shared });
    }
    for (const one of cases) {
      for (const way of rotate(WAYS, repeat % WAYS.length)) {
        await bench.run(one, way, repeat);
        step({ packing: cases.filter((each) => each.complete).map((each) => bench.packingRow(each)) });
      }
    }
  }
  /** @type {FlipRow[]} */
  const flips = [];
  for (const way of flipWays(plan.readout)) {
    flips.push(await bench.flips(way));
    step({ flips: [...flips] });
  }
  step({ memory: await memoryOf(engine) });
  return found;
}

/** @typedef {{shared: Timed, full: Timed}} Pair */
/** @typedef {{probabilities: readonly number[], tokens: number, ms: number}} Timed */

/** So many questions, and what was measured of them. */
class Case {
  /** @param {number} count */
  constructor(count) {
    this.count = count;
    /** @type {Record<Way, {tokens: number, ms: number}[]>} */
    this.times = { full: [], sequential: [], packed: [] };
    /** @type {import("../../types.js").ScoredAll[]} */
    this.packed = [];
    /** Whole prompts, by the question's place. @type {Map<number, Timed>} */
    this.fulls = new Map();
  }

  /** Whether every way was run once. */
  get complete() {
    return WAYS.every((way) => this.times[way].length > 0);
  }
}

class Bench {
  /**
   * @param {Engine} engine
   * @param {Plan} plan
   * @param {AbortSignal} signal
   */
  constructor(engine, plan, signal) {
    this.engine = engine;
    this.plan = plan;
    this.signal = signal;
    /** One order: every way then asks the same prompts. @type {ScoreAllOptions} */
    this.options =
      plan.readout === "labels" ? { readout: "labels", orderings: 1 } : { readout: plan.readout };
  }

  get #most() {
    return this.plan.all.slice(0, Math.max(...this.plan.counts, this.plan.own.length));
  }

  /** The first runs compile and allocate, and compute what is kept of blank evidence: no cost of the questions. */
  async warmUp() {
    await this.#decide(this.#most);
    await this.#full(0);
  }

  /** Read the text anew. */
  async prefill() {
    // A kept text would cost nothing.
    await this.engine.release();
    const { tokens, ms } = await this.engine.prefill(this.plan.text, { signal: this.signal });
    // What was kept of blank evidence went too, and is no cost of the questions.
    if (this.plan.readout === "text") await this.#decide(this.#most);
    return { tokens, ms };
  }

  /**
   * @param {Asked} one
   * @param {number} repeat which decides what comes first
   * @returns {Promise<Pair>}
   */
  async pair(one, repeat) {
    const place = this.plan.own.indexOf(one);
    const ways = /** @type {const} */ (["shared", "full"]);
    const pair = /** @type {Partial<Pair>} */ ({});
    for (const way of rotate(ways, repeat % 2)) {
      pair[way] = way === "full" ? await this.#full(place) : await this.#one(one);
    }
    return /** @type {Pair} */ (pair);
  }

  /**
   * @param {Case} one
   * @param {Way} way
   * @param {number} repeat
   */
  async run(one, way, repeat) {
    const asked = this.plan.all.slice(0, one.count);
    if (way === "packed") {
      const done = await this.#decide(asked);
      one.packed.push(done);
      one.times.packed.push({ tokens: done.tokens_run, ms: done.ms });
    } else if (way === "sequential") {
      const all = [];
      for (const each of asked) all.push(await this.#one(each));
      one.times.sequential.push(total(all));
    } else {
      const all = [];
      for (const place of share(one.count, repeat)) {
        const full = await this.#full(place);
        one.fulls.set(place, full);
        all.push(full);
      }
      one.times.full.push(total(all));
    }
  }

  /**
   * @param {Case} one
   * @returns {PackingRow}
   */
  packingRow({ count, times, packed, fulls }) {
    const known = [...fulls.values()];
    const tokens = Math.round((total(known).tokens / known.length) * count);
    const full = times.full.map((spent) => (spent.ms * tokens) / spent.tokens);
    const differences = packed.flatMap(({ answers }) =>
      [...fulls].map(([place, { probabilities }]) => difference(answers[place].probabilities, probabilities)),
    );
    return {
      questions: count,
      ways: {
        full: { tokens, ms: median(full) },
        sequential: middle(times.sequential),
        packed: middle(times.packed),
      },
      runs: packed[0].runs,
      saved: packed[0].tokens_saved,
      difference: largest(differences),
      timed: fulls.size,
    };
  }

  /**
   * @param {ScoreAllOptions} way
   * @returns {Promise<FlipRow>}
   */
  async flips(way) {
    const { text, own } = this.plan;
    const ask = async (/** @type {boolean} */ backwards) => {
      const questions = new Map(own.map(({ id, wire }) => [id, listed(wire, backwards)]));
      const { answers } = await this.engine.decide(
        { state: text, questions },
        { ...way, signal: this.signal },
      );
      return answers;
    };
    const [given, reversed] = [await ask(false), await ask(true)];
    const changes = own.map(({ id }) =>
      difference(given[id].probabilities, [...reversed[id].probabilities].reverse()),
    );
    return {
      readout: String(way.readout),
      orderings: way.orderings ?? null,
      questions: own.length,
      flipped: own.map(({ id }) => id).filter((id) => given[id].choice !== reversed[id].choice),
      change: largest(changes),
    };
  }

  /**
   * @param {readonly Asked[]} asked
   * @returns {Promise<import("../../types.js").ScoredAll>}
   */
  async #decide(asked) {
    // By place: what an object makes of ids does not matter then.
    const questions = new Map(asked.map(({ wire }, i) => [String(i), wire]));
    const { text: state } = this.plan;
    const done = await this.engine.decide({ state, questions }, { ...this.options, signal: this.signal });
    return { ...done, answers: asked.map((_, i) => done.answers[String(i)]) };
  }

  /**
   * @param {Asked} one
   * @returns {Promise<Timed>}
   */
  async #one(one) {
    const { answers, tokens_run: tokens, ms } = await this.#decide([one]);
    return { probabilities: answers[0].probabilities, tokens, ms };
  }

  /**
   * @param {number} place
   * @returns {Promise<Timed>}
   */
  async #full(place) {
    const { text, readout, all } = this.plan;
    const options = { readout, signal: this.signal };
    const { probabilities, tokens, ms } = await this.engine.scoreFull(text, all[place].wire, options);
    return { probabilities, tokens, ms };
  }
}

/**
 * The questions that a repeat runs as whole prompts: the next ones, going round, so that the repeats cover them.
 * @param {number} count
 * @param {number} repeat
 */
export function share(count, repeat) {
  const each = Math.min(count, FULL_PROMPTS);
  return Array.from({ length: each }, (_, i) => (repeat * each + i) % count);
}

/**
 * Ways in which options may have an order: by letters, and the readout in use where that is another.
 * @param {string} readout
 * @returns {ScoreAllOptions[]}
 */
export function flipWays(readout) {
  /** @type {ScoreAllOptions[]} */
  const letters = [
    { readout: "labels", orderings: 1 },
    { readout: "labels", orderings: "auto" },
  ];
  return readout === "labels" ? letters : [{ readout }, ...letters];
}

/**
 * The question as a choice among the same options, as given or backwards: the same prompt but for their order.
 * @param {Question} wire
 * @param {boolean} backwards
 * @returns {Question}
 */
export function listed(wire, backwards) {
  const { kind, names, criterion } = parseQuestion(wire);
  const options = criterion.options.map((text, i) => {
    // A yes/no question shows other names than it answers with.
    const name = kind === "noul" ? text.slice(0, names[i].length) : names[i];
    const description = text === name ? null : text.slice(name.length + ": ".length);
    return /** @type {[string, string | null]} */ ([name, description]);
  });
  const criteria = backwards ? options.reverse() : options;
  return { type: "choice", instructions: criterion.text, criteria };
}

/**
 * The largest difference of an option's probability.
 * @param {readonly number[]} one
 * @param {readonly number[]} other
 */
export function difference(one, other) {
  return largest(one.map((p, i) => Math.abs(p - other[i])));
}

/** @param {readonly number[]} values */
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const half = Math.floor(sorted.length / 2);
  return sorted.length % 2 === 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/** @param {readonly number[]} values */
function largest(values) {
  // Not a number is no small difference, and must not pass for one.
  return values.reduce((most, value) => (value > most || Number.isNaN(value) ? value : most), 0);
}

/**
 * Median milliseconds; tokens do not vary.
 * @param {readonly {tokens: number, ms: number}[]} times
 */
function middle(times) {
  return { tokens: times[0].tokens, ms: median(times.map(({ ms }) => ms)) };
}

/** @param {readonly {tokens: number, ms: number}[]} times */
function total(times) {
  return times.reduce((sum, { tokens, ms }) => ({ tokens: sum.tokens + tokens, ms: sum.ms + ms }), {
    tokens: 0,
    ms: 0,
  });
}

/**
 * @param {string} id
 * @param {readonly Pair[]} pairs
 * @returns {SharedRow}
 */
function sharedRow(id, pairs) {
  return {
    id,
    difference: largest(
      pairs.map(({ shared, full }) => difference(shared.probabilities, full.probabilities)),
    ),
    shared: middle(pairs.map(({ shared }) => shared)),
    full: middle(pairs.map(({ full }) => full)),
  };
}

/** @param {Engine} engine */
async function memoryOf(engine) {
  const [held, states] = [await engine.memory(), await engine.states()];
  return { ...held, states, pageHeap: pageHeap() };
}

/** Bytes of the page's JavaScript objects; null where the browser does not tell. */
function pageHeap() {
  const memory = /** @type {{memory?: {usedJSHeapSize: number}}} */ (performance).memory;
  return memory ? memory.usedJSHeapSize : null;
}

/**
 * Answers in two weight formats: the largest and the mean difference of an option's probability, and whose answer is
 * another.
 * @typedef {{questions: number, max: number, mean: number, flipped: string[]}} FormatDrift
 */

/**
 * The questions in two formats.
 * @param {Engine} engine
 * @param {Engine} reference
 * @param {Plan} plan
 * @param {AbortSignal} signal
 * @returns {Promise<FormatDrift>}
 */
export async function compareFormats(engine, reference, { text: state, readout, own }, signal) {
  const questions = new Map(own.map(({ id, wire }) => [id, wire]));
  const [found, wanted] = [
    await engine.decide({ state, questions }, { readout, signal }),
    await reference.decide({ state, questions }, { readout, signal }),
  ].map(({ answers }) => own.map(({ id }) => answers[id]));
  return driftOf(
    own.map(({ id }) => id),
    found,
    wanted,
  );
}

/**
 * @param {readonly string[]} ids
 * @param {readonly Pick<Ordered, "probabilities" | "choice">[]} found
 * @param {readonly Pick<Ordered, "probabilities" | "choice">[]} wanted
 * @returns {FormatDrift}
 */
export function driftOf(ids, found, wanted) {
  const gaps = found.flatMap(({ probabilities }, at) =>
    probabilities.map((p, i) => Math.abs(p - wanted[at].probabilities[i])),
  );
  return {
    questions: ids.length,
    max: largest(gaps),
    mean: gaps.reduce((sum, gap) => sum + gap, 0) / gaps.length,
    flipped: ids.filter((_, at) => found[at].choice !== wanted[at].choice),
  };
}
