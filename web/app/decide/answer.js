// The answer part of a card: verdict, bars, and what is to know about them. Builds elements from an outcome and knows
// nothing of the card.

import { h, setBar } from "../dom.js";
import { READINGS } from "../readings.js";
import { S, formatProbability } from "../strings.js";

const D = S.decide;

/** @typedef {import("./draft.js").Draft} Draft */
/** @typedef {import("../../index.js").Ordered} Answer */
/**
 * @typedef {object} Outcome
 * @property {string} wire the question that this is the answer to
 * @property {string} state the text that it is about
 * @property {import("../readings.js").Reading} reading how it was read
 * @property {Answer} answer
 * @property {number} ms from the start of the scoring until the answer was there
 */
/** @typedef {"idle" | "waiting" | "running"} Phase */

/** Above this many options the list scrolls inside its card. */
const SCROLL_ABOVE = 12;

/**
 * @param {Outcome | null} outcome
 * @param {boolean} edited whether there was an answer before the question was changed
 */
export function verdict(outcome, edited) {
  if (!outcome) return h("p", { class: "verdict empty" }, edited ? D.edited : D.notDecided);
  const { answer } = outcome;
  const word = answer.kind === "noul" ? (answer.choice === "yes" ? S.yes : S.no) : answer.choice;
  const mean = answer.kind === "score" ? `${D.mean(Number(answer.value), answer.names.length - 1)}, ` : "";
  return h(
    "p",
    { class: "verdict" },
    h("strong", {}, word),
    " ",
    ...reservations(answer),
    h("span", { class: "confidence" }, mean + S.confidence(answer.confidence)),
  );
}

/**
 * What speaks against taking the answer as it is: that it abstains, and that it comes from an approximation.
 * @param {Answer} answer
 */
function reservations({ abstain, x_shallow: shallow }) {
  const badge = (/** @type {string} */ name, /** @type {string} */ word, /** @type {string} */ hint) =>
    h(
      "span",
      { class: `verdict-badge ${name}`, title: hint },
      word,
      h("span", { class: "visually-hidden" }, `: ${hint}`),
    );
  return [
    ...(abstain ? [badge("abstains", D.abstains, D.abstainsHint)] : []),
    ...(shallow ? [badge("approximate", D.approximate, D.approximateHint(shallow))] : []),
  ];
}

/**
 * @param {Draft} draft
 * @param {Outcome | null} outcome
 */
export function bars(draft, outcome) {
  const answer = outcome?.answer;
  const names = draft.kind === "noul" ? [S.yes, S.no] : draft.options.map((option) => option.name);
  const best = answer ? answer.names.indexOf(answer.choice) : -1;
  const scrolls = names.length > SCROLL_ABOVE;
  const list = h("ul", {
    class: scrolls ? "bars scrolls" : "bars",
    "aria-label": D.optionsRegion,
    tabindex: scrolls ? 0 : null,
  });
  names.forEach((name, index) => {
    const p = answer ? answer.probabilities[index] : null;
    const fill = h("span", { class: "fill" });
    setBar(fill, p ?? 0);
    list.append(
      h(
        "li",
        { class: index === best ? "bar best" : "bar", "data-p": p },
        h("span", { class: "name" }, name.trim() === "" ? D.emptyOption : name),
        h("span", { class: "p" }, p === null ? S.none : formatProbability(p)),
        h("span", { class: "track", "aria-hidden": "true" }, fill),
      ),
    );
  });
  return list;
}

/**
 * @param {Outcome | null} outcome
 * @param {boolean} old whether it is about an earlier text
 * @param {Phase} phase
 */
export function foot(outcome, old, phase) {
  return h("footer", { class: "card-foot" }, flips(outcome), note(outcome, old, phase));
}

/**
 * In how many orders of the options the question was read, and in what share of them the answer is another one.
 * @param {Outcome | null} outcome
 */
function flips(outcome) {
  if (!outcome) return h("span", { class: "orders" });
  if (READINGS[outcome.reading].readout !== "labels") {
    return h("span", { class: "orders", title: D.orderFreeHint }, D.orderFree);
  }
  const { orderings_used: used, flip_rate: flipRate } = outcome.answer;
  const attributes = { class: "orders", "data-orders": used, "data-flip-rate": flipRate };
  return h("span", { ...attributes, title: D.flipsHint }, D.flips(used, flipRate));
}

/**
 * When the answer came, or else what is more important to know.
 * @param {Outcome | null} outcome @param {boolean} old @param {Phase} phase
 */
function note(outcome, old, phase) {
  const time = outcome ? D.answeredAfter(outcome.ms) : S.none;
  const texts = { idle: old ? D.olderText : time, waiting: D.waiting, running: D.running };
  const title = outcome ? D.answeredAfterHint : null;
  return h("span", { class: `note ${phase}`, "data-ms": outcome?.ms, title }, texts[phase]);
}
