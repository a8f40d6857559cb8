// The rows of a run as a table in pages: filtered, sorted, and brought up to date while the run goes on. Knows no engine.

import { h, isOff, setChildren, setOff } from "../dom.js";
import { S, formatProbability } from "../strings.js";
import { ANSWERED, OPEN, REJECTED } from "./results.js";

/** @typedef {import("./results.js").Results} Results */
/** @typedef {"row" | "lowest" | "highest" | "answer"} Sort */

const T = S.table;
const PAGE = 50;
/** Longer texts are shown when they are opened. */
const SHORT = 160;
/** How often rows are brought up to date. */
const REFRESH_MS = 500;
const [ANY, REJECTS, OPENS] = ["any", "rejected", "open"];

export class RowsView {
  /** @type {Results | null} */
  #results = null;
  /** Places of the rows that are shown, in their order. @type {Uint32Array} */
  #order = new Uint32Array(0);
  #page = 0;
  /** Rows that were done when the order was made. */
  #seen = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  /** @type {Set<number>} rows that are done since the last refresh */
  #fresh = new Set();
  /** The rows of the page that is shown, by their places. @type {Map<number, HTMLTableRowElement>} */
  #elements = new Map();

  constructor() {
    const control = () => this.#arrange();
    this.question = h("select", { id: "table-question", onchange: () => this.#offerAnswers() });
    this.answer = h("select", { id: "table-answer", onchange: control });
    const share = { type: "number", min: 0, max: 1, step: 0.05, onchange: control };
    this.least = h("input", { ...share, id: "table-least", value: 0 });
    this.most = h("input", { ...share, id: "table-most", value: 1 });
    this.sort = h(
      "select",
      { id: "table-sort", onchange: control },
      ...Object.entries(T.sorts).map(([value, label]) => h("option", { value }, label)),
    );
    this.count = h("p", { class: "row-count", role: "status" });
    this.update = h("button", { type: "button", class: "quiet", hidden: true, onclick: control });
    this.head = h("tr", {});
    this.body = h("tbody", {});
    this.table = h(
      "table",
      { class: "rows" },
      h("caption", { class: "visually-hidden" }, T.caption),
      h("thead", {}, this.head),
      this.body,
    );
    this.place = h("span", { class: "page-place" });
    this.previous = h("button", { type: "button", onclick: () => this.#turn(this.previous, -1) }, T.previous);
    this.next = h("button", { type: "button", onclick: () => this.#turn(this.next, 1) }, T.next);
    this.scroller = h(
      "div",
      { class: "rows-scroller", role: "region", tabindex: 0, "aria-label": T.caption },
      this.table,
    );
    this.element = h(
      "div",
      { class: "rows-view" },
      h(
        "div",
        { class: "filters" },
        field(T.filterQuestion, this.question),
        field(T.filterAnswer, this.answer),
        field(T.least, this.least),
        field(T.most, this.most),
        field(T.sort, this.sort),
      ),
      h("div", { class: "row-line" }, this.count, this.update),
      this.scroller,
      h("nav", { class: "pages", "aria-label": T.pages }, this.previous, this.place, this.next),
    );
  }

  /** @param {Results} results */
  show(results) {
    this.#results = results;
    this.#fresh.clear();
    this.#elements.clear();
    this.question.replaceChildren(...results.ids.map((id, i) => h("option", { value: i }, id)));
    const columns = [T.row, results.table.text, ...results.ids];
    this.head.replaceChildren(...columns.map((name) => h("th", { scope: "col" }, name)));
    this.#offerAnswers();
  }

  /** A row is done. @param {number} row */
  done(row) {
    this.#fresh.add(row);
    this.#timer ??= setTimeout(() => this.#refresh(), REFRESH_MS);
  }

  /** The run is over or paused: all rows are where they belong. */
  settle() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#arrange(false);
  }

  #offerAnswers() {
    const { questions } = /** @type {Results} */ (this.#results);
    const { names } = questions[Number(this.question.value)];
    this.answer.replaceChildren(
      h("option", { value: ANY }, T.any),
      ...names.map((name, i) => h("option", { value: i }, name)),
      h("option", { value: REJECTS }, T.rejected),
      h("option", { value: OPENS }, T.open),
    );
    this.#arrange();
  }

  /** @returns {boolean} whether all rows are shown in the order of the file */
  get #plain() {
    return (
      this.answer.value === ANY && this.sort.value === "row" && this.#bounds[0] <= 0 && this.#bounds[1] >= 1
    );
  }

  /** @returns {[number, number]} */
  get #bounds() {
    const [least, most] = [this.least.valueAsNumber, this.most.valueAsNumber];
    return [Number.isNaN(least) ? 0 : least, Number.isNaN(most) ? 1 : most];
  }

  /** @param {boolean} [first] whether to go to the first page */
  #arrange(first = true) {
    const results = this.#results;
    if (!results) return;
    this.#order = this.#sorted(results, this.#filtered(results));
    this.#seen = results.answered + results.rejected;
    const pages = Math.max(1, Math.ceil(this.#order.length / PAGE));
    this.#page = first ? 0 : Math.min(this.#page, pages - 1);
    this.#fresh.clear();
    this.#draw();
  }

  /** @param {Results} results */
  #filtered(results) {
    const question = Number(this.question.value);
    const [least, most] = this.#bounds;
    const wanted = this.answer.value;
    const bounded = least > 0 || most < 1;
    const option = Number(wanted);
    const rows = [];
    for (let row = 0; row < results.status.length; row += 1) {
      const status = results.status[row];
      if (wanted === REJECTS || wanted === OPENS) {
        if (status === (wanted === REJECTS ? REJECTED : OPEN)) rows.push(row);
      } else if (status !== ANSWERED) {
        if (wanted === ANY && !bounded) rows.push(row);
      } else if (wanted === ANY || results.choice(row, question) === option) {
        const confidence = results.confidence(row, question);
        if (confidence >= least && confidence <= most) rows.push(row);
      }
    }
    return Uint32Array.from(rows);
  }

  /** What has no answer comes last. @param {Results} results @param {Uint32Array} rows */
  #sorted(results, rows) {
    const sort = /** @type {Sort} */ (this.sort.value);
    if (sort === "row") return rows;
    const question = Number(this.question.value);
    const keys = new Float64Array(results.status.length).fill(Infinity);
    for (const row of rows) {
      if (results.status[row] !== ANSWERED) continue;
      if (sort === "answer") keys[row] = results.choice(row, question);
      else keys[row] = results.confidence(row, question) * (sort === "highest" ? -1 : 1);
    }
    return rows.sort((a, b) => (keys[a] === keys[b] ? a - b : keys[a] - keys[b]));
  }

  /** @param {HTMLButtonElement} button @param {number} step */
  #turn(button, step) {
    if (isOff(button)) return;
    this.#page += step;
    this.#draw();
    this.scroller.scrollTop = 0;
  }

  /** @returns {Uint32Array} rows of the page that is shown */
  get #shown() {
    return this.#order.subarray(this.#page * PAGE, (this.#page + 1) * PAGE);
  }

  #draw() {
    const results = /** @type {Results} */ (this.#results);
    // Rows that were there stay as they are, opened and with the focus in them.
    const shown = [...this.#shown].map((row) => /** @type {const} */ ([row, this.#row(results, row)]));
    this.#elements = new Map(shown);
    const rows = shown.map(([, element]) => element);
    rows.forEach((element, i) => element.setAttribute("aria-rowindex", String(this.#page * PAGE + i + 2)));
    const empty = h("tr", {}, h("td", { colspan: results.ids.length + 2, class: "hint" }, T.noRows));
    setChildren(this.body, rows.length === 0 ? [empty] : rows);
    this.table.setAttribute("aria-rowcount", String(this.#order.length + 1));
    this.count.textContent = T.matching(this.#order.length, results.status.length);
    const start = this.#page * PAGE;
    this.place.textContent = T.page(start + 1, start + rows.length, this.#order.length);
    setOff(this.previous, this.#page === 0);
    setOff(this.next, start + PAGE >= this.#order.length);
    this.#offerUpdate();
  }

  /** Fills in what is done of the rows that are shown; filtered and sorted ones keep their places until asked. */
  #refresh() {
    this.#timer = undefined;
    const results = /** @type {Results} */ (this.#results);
    for (const row of this.#fresh) if (this.#elements.has(row)) this.#row(results, row);
    this.#fresh.clear();
    this.#offerUpdate();
  }

  #offerUpdate() {
    const results = /** @type {Results} */ (this.#results);
    const unseen = results.answered + results.rejected - this.#seen;
    this.update.hidden = this.#plain || unseen === 0;
    this.update.textContent = T.update(unseen);
  }

  /**
   * What is shown of a row, made once, with what is known of it by now.
   * @param {Results} results
   * @param {number} row
   */
  #row(results, row) {
    const element = this.#elements.get(row) ?? makeRow(results, row);
    const status = String(results.status[row]);
    if (element.dataset.status === status) return element;
    element.dataset.status = status;
    while (element.children.length > 2) element.lastElementChild?.remove();
    element.append(...answerCells(results, row));
    return element;
  }
}

/** A row's number and text. @param {Results} results @param {number} row */
function makeRow({ table }, row) {
  const read = table.rows[row];
  const cell = table.cell(read, table.text);
  // Without such a cell the whole row says more than nothing.
  const text = cell === undefined ? table.content(read) : typeof cell === "string" ? cell : cell.json;
  return h(
    "tr",
    { "data-row": read.number },
    h("th", { scope: "row" }, String(read.number)),
    h("td", { class: "row-text" }, shorten(text)),
  );
}

/** What is known of a row. @param {Results} results @param {number} row */
function answerCells(results, row) {
  const fault = results.fault(row);
  if (fault) {
    const said = T.fault(fault.column, fault.reason);
    return [h("td", { colspan: results.ids.length, class: "row-fault" }, said)];
  }
  const answered = results.status[row] === ANSWERED;
  return results.ids.map((_, i) => (answered ? answerCell(results, row, i) : openCell()));
}

/** @param {Results} results @param {number} row @param {number} question */
function answerCell(results, row, question) {
  const { names } = results.questions[question];
  const confidence = results.confidence(row, question);
  const place = results.choice(row, question);
  const p = formatProbability(results.probabilities(row, question)[place]);
  const abstains = results.abstains(row, question) ? h("span", { class: "abstains" }, T.abstains) : null;
  return h(
    "td",
    { class: "row-answer", "data-confidence": confidence },
    h("span", { class: "row-choice" }, names[place]),
    h("span", { class: "hint" }, `${p}, ${S.confidence(confidence)}`),
    abstains,
  );
}

function openCell() {
  return h("td", { class: "hint" }, T.openRow);
}

/** @param {string} text */
function shorten(text) {
  if (text.length <= SHORT) return text;
  // Not between the two halves of a character.
  const start = text.slice(0, SHORT).replace(/[\ud800-\udbff]$/, "");
  const rest = text.slice(start.length);
  return h("details", {}, h("summary", {}, start, h("span", { class: "ellipsis" }, "…")), rest);
}

/** @param {string} label @param {HTMLElement} control */
function field(label, control) {
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control);
}
