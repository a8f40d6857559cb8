// A question as it is being edited, and its System One form. Knows neither the DOM nor the engine, and does
// not validate: the library does, so that the page and the API refuse the same questions.

/** @typedef {import("../../index.js").Question} Question */
/** @typedef {import("../../types.js").OptionList} OptionList */
/** @typedef {Question["type"]} Kind */
/** @typedef {{name: string, description: string}} DraftOption */
/**
 * @typedef {object} Draft
 * @property {string} id
 * @property {Kind} kind
 * @property {string} question
 * @property {DraftOption[]} options of a choice, or the levels of a score
 * @property {string} yes what the answer yes means, where that is said
 * @property {string} no
 */
/**
 * @typedef {{type: "noul", instructions: string, criteria?: {true: string, false: string}}
 *   | {type: "choice" | "score", instructions: string, criteria: (string | DraftOption)[]}} WireQuestion
 */

/**
 * @param {string} id
 * @param {Question} wire
 * @returns {Draft}
 */
export function draftFromWire(id, wire) {
  const draft = { id, kind: wire.type, question: wire.instructions ?? "", options: [], yes: "", no: "" };
  if (wire.type !== "noul") return { ...draft, options: optionsFromWire(wire.criteria ?? []) };
  const { criteria } = wire;
  if (typeof criteria === "string") {
    return { ...draft, question: [draft.question, criteria].filter(Boolean).join(" ") };
  }
  return { ...draft, yes: criteria?.true ?? "", no: criteria?.false ?? "" };
}

/**
 * @param {OptionList} criteria
 * @returns {DraftOption[]}
 */
function optionsFromWire(criteria) {
  const listed = Array.isArray(criteria)
    ? criteria.map((item) =>
        typeof item === "string" ? [item] : "name" in item ? [item.name, item.description] : item,
      )
    : criteria instanceof Map
      ? [...criteria]
      : Object.entries(criteria);
  return listed.map(([name, description]) => ({ name, description: description ?? "" }));
}

/**
 * The System One form. Options go out as a list, whose order survives names such as "10" and "2".
 * @param {Draft} draft
 * @returns {WireQuestion}
 */
export function wireFromDraft(draft) {
  const { kind, question: instructions, options, yes, no } = draft;
  if (kind === "noul") {
    return { type: kind, instructions, ...(yes || no ? { criteria: { true: yes, false: no } } : {}) };
  }
  const described = options.some((option) => option.description !== "");
  return {
    type: kind,
    instructions,
    criteria: options.map((option) => (described ? { ...option } : option.name)),
  };
}

/**
 * @param {ReadonlySet<string>} taken ids in use
 * @returns {Draft}
 */
export function newDraft(taken) {
  let number = taken.size + 1;
  while (taken.has(`question_${number}`)) number += 1;
  const options = [
    { name: "", description: "" },
    { name: "", description: "" },
  ];
  return { id: `question_${number}`, kind: "choice", question: "", options, yes: "", no: "" };
}
