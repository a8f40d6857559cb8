// A table of figures that scrolls in itself on a narrow page. Knows nothing of what the figures are.

import { h } from "./dom.js";

/** @typedef {string | {text: string, value: number}} Cell a text, or one with the number behind it as `data-value` */

/**
 * @param {string} label
 * @param {readonly string[]} head
 * @param {readonly {id?: string, cells: readonly Cell[]}[]} rows the first cell names its row; the id becomes `data-row`
 */
export function figuresTable(label, head, rows) {
  const columns = head.map((text) => h("th", { scope: "col" }, text));
  const body = rows.map(({ id, cells: [name, ...others] }) =>
    h(
      "tr",
      { "data-row": id },
      h("th", { scope: "row" }, textOf(name)),
      ...others.map((cell) =>
        h("td", { "data-value": typeof cell === "string" ? null : cell.value }, textOf(cell)),
      ),
    ),
  );
  const table = h("table", {}, h("thead", {}, h("tr", {}, ...columns)), h("tbody", {}, ...body));
  // What scrolls has to be in reach of the keyboard.
  return h("div", { class: "figures", tabindex: 0, role: "region", "aria-label": label }, table);
}

/** @param {Cell} cell */
function textOf(cell) {
  return typeof cell === "string" ? cell : cell.text;
}
