// Asks before something is done that cannot be undone. Knows nothing of what it is about.

import { h } from "./dom.js";
import { S } from "./strings.js";

/**
 * A dialog; leaving it by Escape is a no, and the focus goes back to where it was.
 * @param {{heading: string, text: string, yes: string}} said
 * @returns {Promise<boolean>}
 */
export function confirm({ heading, text, yes }) {
  const answer = (/** @type {string} */ label, /** @type {string} */ value, kind = "") =>
    h(
      "button",
      { type: "button", class: kind, autofocus: value === "", onclick: () => dialog.close(value) },
      label,
    );
  const dialog = h(
    "dialog",
    { class: "confirm", "aria-labelledby": "confirm-heading", "aria-describedby": "confirm-text" },
    h("h2", { id: "confirm-heading" }, heading),
    h("p", { id: "confirm-text" }, text),
    h("div", { class: "buttons" }, answer(S.cancel, ""), answer(yes, "yes", "primary")),
  );
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
  });
}
