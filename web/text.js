// The `text` readout: how likely each option's own text is as the answer, against the same under blank evidence:
// score_i = log p(text_i | evidence, criterion) - log p(text_i | blank evidence, criterion), the pointwise mutual
// information of evidence and answer (Holtzman et al., "Surface Form Competition", 2021). No options are listed, so their
// order does not exist. Knows no tensors. typedecide/text.py is its twin; both run tests/vectors/text.json.

import { fill, readTemplate, suffixAfter } from "./prompt.js";

/** @typedef {import("./prompt.js").Prompt} Prompt */
/** @typedef {import("./prompt.js").Tokenizer} Tokenizer */
/** @typedef {import("./questions.js").Question} Question */

/** The evidence that says nothing. */
export const BLANK = "N/A";

/**
 * One option behind the cached prefix: the tokens to run (the option's last one is only predicted), and which token is
 * read where: `targets[j]` is predicted at `ids[reads[j]]`.
 * @typedef {{ids: number[], reads: number[], targets: number[]}} Branch
 */

/** Writes the prompts of the text readout: the head of a prompt, and a tail without options. */
export class TextPrompt {
  /**
   * @param {Prompt} prompt
   * @param {Record<string, unknown>} spec `manifest.prompt`, with `text_tail` and `text_option`
   */
  constructor(prompt, spec) {
    this.prompt = prompt;
    this.tail = readTemplate(spec, "text_tail", ["criterion"]);
    this.option = readTemplate(spec, "text_option", ["option"]);
  }

  /**
   * One branch for each option, in order; they share everything before the option.
   * @param {Tokenizer} tokenizer
   * @param {string} state
   * @param {readonly number[]} prefix
   * @param {Question} question
   * @returns {Branch[]}
   * @throws {PrefixMismatchError} the prefix, or the prompt up to the answer, merges with what follows it
   */
  branches(tokenizer, state, prefix, question) {
    const text = this.prompt.headText(state) + fill(this.tail, [["criterion", question.criterion.text]]);
    const bos = this.prompt.spec.bos_ids;
    const stem = [...bos, ...tokenizer.encode(text)];
    const before = suffixAfter(prefix, stem);
    return answerTexts(question).map((answer) => {
      const full = [...bos, ...tokenizer.encode(text + fill(this.option, [["option", answer]]))];
      const targets = suffixAfter(stem, full);
      const ids = [...before, ...targets.slice(0, -1)];
      return { ids, reads: targets.map((_, j) => before.length - 1 + j), targets };
    });
  }
}

/**
 * What each option reads as an answer: its name, and Yes or No.
 * @param {Question} question
 * @returns {readonly string[]}
 */
export function answerTexts({ kind, names }) {
  return kind === "noul" ? ["Yes", "No"] : names;
}

/**
 * score_i: the options' summed log-probabilities under the evidence, minus those under blank evidence.
 * @param {readonly number[]} evidence
 * @param {readonly number[]} blank
 */
export function gain(evidence, blank) {
  return evidence.map((value, i) => value - blank[i]);
}
