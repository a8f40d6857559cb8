// A question as it is being edited, and its System One form. Knows neither the DOM nor the engine, and does
// not validate: the library does, so that the page and the API refuse the same questions.

/** @typedef {"choice" | "noul" | "score"} Kind */
/** @typedef {{name: string, description: string}} DraftOption */
/** @typedef {{id: string, kind: Kind, question: string, options: DraftOption[]}} Draft */
/**
 * @typedef {{type: "noul", instructions: string}
 *   | {type: "choice" | "score", instructions: string, criteria: (string | DraftOption)[]}} WireQuestion
 */

/** @typedef {{type: Kind, instructions: string, criteria?: string[] | Record<string, string | null>}} SampleQuestion */

/**
 * @param {string} id
 * @param {SampleQuestion} wire a question of the page's own sample
 * @returns {Draft}
 */
export function draftFromWire(id, wire) {
  return { id, kind: wire.type, question: wire.instructions, options: optionsFromWire(wire.criteria ?? []) };
}

/**
 * @param {string[] | Record<string, string | null>} criteria
 * @returns {DraftOption[]}
 */
function optionsFromWire(criteria) {
  if (Array.isArray(criteria)) return criteria.map((name) => ({ name, description: "" }));
  return Object.entries(criteria).map(([name, description]) => ({ name, description: description ?? "" }));
}

/**
 * The System One form. Options go out as a list, whose order survives names such as "10" and "2".
 * @param {Draft} draft
 * @returns {WireQuestion}
 */
export function wireFromDraft(draft) {
  if (draft.kind === "noul") return { type: "noul", instructions: draft.question };
  const described = draft.options.some((option) => option.description !== "");
  const criteria = draft.options.map((option) => (described ? { ...option } : option.name));
  return { type: draft.kind, instructions: draft.question, criteria };
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
  return { id: `question_${number}`, kind: "choice", question: "", options };
}
