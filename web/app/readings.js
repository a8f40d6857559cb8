// The ways of reading answers that the page offers, and which one a bundle is asked with. Knows no DOM.

/** @typedef {import("../index.js").ScoreAllOptions} ScoreAllOptions */
/** @typedef {Pick<import("../index.js").Info, "readout" | "readouts">} Bundled the readouts of a bundle */
/** @typedef {"compared" | "texts" | "orders" | "order"} Reading */

/** What each way asks of the engine. @type {Readonly<Record<Reading, {readout: string} & Pick<ScoreAllOptions, "orderings">>>} */
export const READINGS = {
  compared: { readout: "pointer" },
  texts: { readout: "text" },
  orders: { readout: "labels", orderings: "auto" },
  order: { readout: "labels", orderings: 1 },
};

export const CHOICES = /** @type {Reading[]} */ (Object.keys(READINGS));

/**
 * The way to read that was chosen, where the bundle has it; else the one that is best for its model.
 * @param {Bundled} info
 * @param {Reading | null} chosen null until somebody chooses
 * @returns {Reading}
 */
export function readingFor({ readout, readouts }, chosen) {
  if (chosen && readouts.includes(READINGS[chosen].readout)) return chosen;
  return /** @type {Reading} */ (CHOICES.find((reading) => READINGS[reading].readout === readout));
}
