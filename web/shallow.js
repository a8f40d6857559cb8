/**
 * Shallow prefill: a text's tokens stop below the upper layers, where questions see only the anchor of the prompt.
 *
 * What a bundle's manifest says of it, and what answers say of it. Knows no tensors and no prompts. The Python twin is
 * `typedecide/shallow.py`.
 */

import { BundleError } from "./errors.js";

/** Which of the prompt's first tokens all layers see: none, one, or all that stand before every text. */
export const ANCHORS = Object.freeze(["none", "bos", "instruction"]);

/**
 * How a model is shallow: all tokens go through its first `k` layers, the anchor and questions through all. `agreement`
 * is the share of answers, from 0 to 1, that are those of the whole model on held-out texts; null where that was not
 * measured.
 * @typedef {{k: number, anchor: string, agreement: number | null}} Shallow
 */

/**
 * What a bundle's manifest says of it; null where the model is not shallow.
 * @param {{model: Record<string, any>}} manifest
 * @returns {Shallow | null}
 * @throws {BundleError} it is malformed
 */
export function shallowOf({ model }) {
  if (!("shallow" in model)) return null;
  const { shallow: spec } = model;
  const { layers } = model.shape;
  if (typeof spec !== "object" || spec === null) throw malformed("shallow", spec, "is not an object");
  const { layers: k, anchor, agreement = null } = spec;
  if (!Number.isInteger(k) || k < 1 || k >= layers) {
    throw malformed("shallow.layers", k, `is not a whole number from 1 and below ${layers}`);
  }
  if (!ANCHORS.includes(anchor))
    throw malformed("shallow.anchor", anchor, `is none of ${ANCHORS.join(", ")}`);
  if (agreement !== null && !(typeof agreement === "number" && agreement >= 0 && agreement <= 1)) {
    throw malformed("shallow.agreement", agreement, "is not a number from 0 to 1");
  }
  return { k, anchor, agreement };
}

/**
 * How many of a prompt's first tokens are the anchor.
 * @param {Shallow | null} shallow
 * @param {readonly number[]} head the ids before every text
 */
export function anchorTokens(shallow, head) {
  if (shallow?.anchor === "instruction") return head.length;
  return shallow?.anchor === "bos" ? 1 : 0;
}

/**
 * @param {string} field
 * @param {unknown} value
 * @param {string} why
 */
function malformed(field, value, why) {
  return new BundleError(`the manifest's model.${field} ${why}: ${JSON.stringify(value)}`, {
    field: `model.${field}`,
    value: value ?? null,
  });
}
