// Answers that nothing else has: asks before they are thrown away, and before the page is left with them. What the tabs
// Table and Trust share.

import { confirm } from "../confirm.js";
import { S } from "../strings.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {keyof typeof S.table.losing.heading} Act what throws them away */

const L = S.table.losing;

/** @type {WeakSet<Session>} */
const guarded = new WeakSet();

/**
 * Whether answers may be thrown away by what is about to be done; asks where there are any.
 * @param {Session} session
 * @param {Act} act
 * @returns {Promise<boolean>}
 */
export async function mayLose(session, act) {
  const { unsaved, holds, unsavedElsewhere } = session;
  if (unsaved > 0) {
    const then = act === "open" && holds !== null ? L.comesBack : L.gone;
    return confirm({ heading: L.heading[act], text: `${L.unsaved(unsaved)} ${then}`, yes: L.yes[act] });
  }
  if (act !== "start" || unsavedElsewhere === null) return true;
  return confirm({ heading: L.replace, text: L.elsewhere(unsavedElsewhere), yes: L.start });
}

/**
 * Lets the browser ask before the page is left while a run goes on, or with answers that nothing else has.
 * @param {Session} session
 */
export function guardLeaving(session) {
  if (guarded.has(session)) return;
  guarded.add(session);
  addEventListener("beforeunload", (event) => {
    if (session.leavingLoses) event.preventDefault();
  });
}
