// The `pointer` readout: each option is compared with the answer, by two trained projections of their hidden states:
// score_i = query(answer) · key(option_i) / sqrt(D) + bias(option_i).
//
// Options are parallel branches that do not see one another; the answer sees all of them. So they are a set: in which
// order they are listed makes no difference, exactly. Knows no tensors. typedecide/pointer.py is its twin; both run
// tests/vectors/pointer.json.

import { IntegrityError } from "./errors.js";
import { fill, readTemplate, suffixAfter } from "./prompt.js";

/** @typedef {import("./prompt.js").Prompt} Prompt */
/** @typedef {import("./prompt.js").Tokenizer} Tokenizer */
/** @typedef {import("./questions.js").Question} Question */

/**
 * One question behind the cached prefix: the stem's tokens, a branch for each option, in order, and a tail that sees
 * them all. Options that read alike (a colon in a name can make them) have equal branches, and so equal scores.
 * @typedef {{ids: number[], branches: number[][], tail: number[]}} Joined
 */

/** Writes the prompts of the pointer readout: the head of a prompt, and behind it stem, options and answer. */
export class PointerPrompt {
  /**
   * @param {Prompt} prompt
   * @param {Record<string, unknown>} spec `manifest.prompt`, with `pointer_tail`, `pointer_option`, `pointer_answer`
   * @throws {BundleError}
   */
  constructor(prompt, spec) {
    this.prompt = prompt;
    this.tail = readTemplate(spec, "pointer_tail", ["criterion"]);
    this.option = readTemplate(spec, "pointer_option", ["option"]);
    this.answer = readTemplate(spec, "pointer_answer", []);
  }

  /**
   * The tokens of a question; options and answer are encoded on their own, so that they never merge.
   * @param {Tokenizer} tokenizer
   * @param {string} state
   * @param {readonly number[]} prefix
   * @param {Question} question
   * @returns {Joined}
   * @throws {PrefixMismatchError} the prefix merges with what follows it
   */
  joined(tokenizer, state, prefix, { criterion }) {
    const text = this.prompt.headText(state) + fill(this.tail, [["criterion", criterion.text]]);
    const ids = suffixAfter(prefix, [...this.prompt.spec.bos_ids, ...tokenizer.encode(text)]);
    const branches = criterion.options.map((option) =>
      tokenizer.encode(fill(this.option, [["option", option]])),
    );
    return { ids, branches, tail: tokenizer.encode(this.answer) };
  }
}

/**
 * One logit for each option.
 * @param {ArrayLike<number>} projections (options + 1) x (2·D + 1) values, row by row: a row for each option, then one
 *   for the answer; each holds a query of D, a key of D and a bias
 * @param {number} options how many there are
 * @returns {number[]}
 * @throws {IntegrityError} another number of values, or one that is not finite
 */
export function scores(projections, options) {
  const values = Array.from(projections);
  const width = values.length / (options + 1);
  if (!Number.isInteger(width) || width < 3 || width % 2 === 0) {
    const message = `${values.length} projections are not ${options + 1} rows of query, key and bias.`;
    throw new IntegrityError(message, { value: values.length, options });
  }
  values.forEach((value, index) => {
    if (!Number.isFinite(value)) {
      throw new IntegrityError(`Projection ${index} is not a finite number.`, { value, index });
    }
  });
  const size = (width - 1) / 2;
  const query = values.slice(options * width, options * width + size);
  return Array.from({ length: options }, (_, i) => {
    const row = values.slice(i * width, (i + 1) * width);
    const product = query.reduce((sum, value, j) => sum + value * row[size + j], 0);
    return product / Math.sqrt(size) + row[2 * size];
  });
}
