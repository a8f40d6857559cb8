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
  // What scrolls has to be in reach of the keyboard; a group, as the part that it is in is the landmark.
  return h("div", { class: "figures", tabindex: 0, role: "group", "aria-label": label }, table);
}

/**
 * Puts a table in the place of the one that the element holds, if any: focus and place stay as they are.
 * @param {HTMLElement} element
 * @param {HTMLElement} table of `figuresTable`
 */
export function showTable(element, table) {
  const before = element.querySelector(":scope > .figures");
  if (!before) return element.append(table);
  const { scrollLeft, scrollTop } = before;
  const focused = before === document.activeElement;
  before.replaceWith(table);
  table.scrollTo(scrollLeft, scrollTop);
  if (focused) table.focus({ preventScroll: true });
}

/** @param {Cell} cell */
function textOf(cell) {
  return typeof cell === "string" ? cell : cell.text;
}
