// The Trust tab: the answers of the Table tab against true answers. What is here chooses labels and shows what
// figures.js makes of them.

import { h } from "../dom.js";
import { describeError } from "../failure.js";
import { S } from "../strings.js";
import { guardLeaving, mayLose } from "../table/losses.js";
import { readFile } from "../table/reader.js";
import { sessionOf } from "../table/session.js";
import { accuracyInterval, figures, labelled, seeded } from "./figures.js";
import { fit, fromColumn, fromLines, fromTable } from "./labels.js";
import { ReportView } from "./report_view.js";

/** @typedef {import("../table/read.js").Read} Read */
/** @typedef {import("../table/results.js").Results} Results */
/** @typedef {import("../workbench.js").Workbench} Workbench */
/** @typedef {{kind: "column", column: string} | {kind: "lines", text: string} | {kind: "table", read: Read}} Source */
/** @typedef {import("./labels.js").Labels} Labels */

const T = S.trust;
const GIVEN = "given";
/** Labels that are none of the options are told up to so many. */
const TOLD = 5;
/** How often a run that goes on is looked at. */
const REFRESH_MS = 2000;
/** Figures that somebody asked for just now, so that what is wrong is said aloud. */
const ASKED = true;

class TrustTab {
  /** @type {Results | null} */
  #results = null;
  /** @type {Source | null} pasted or loaded */
  #given = null;
  #turn = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #visible = false;

  /** @param {HTMLElement} panel @param {Workbench} workbench */
  constructor(panel, workbench) {
    this.workbench = workbench;
    this.session = sessionOf(workbench);
    this.question = h("select", { id: "trust-question", onchange: () => this.#questionChosen(ASKED) });
    this.source = h("select", { id: "trust-source", onchange: () => this.#sourceChosen(ASKED) });
    this.pasted = h("textarea", { id: "trust-pasted", rows: 5, spellcheck: "false" });
    this.file = h("input", {
      type: "file",
      id: "trust-file",
      class: "visually-hidden",
      accept: ".csv,.tsv,.jsonl",
      onchange: () => this.#load(),
    });
    this.given = h(
      "div",
      { class: "given", hidden: true },
      h("label", { for: "trust-pasted", class: "field-label" }, T.pasteLabel),
      this.pasted,
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", onclick: () => this.#paste() }, T.usePasted),
        this.file,
        h("label", { for: "trust-file", class: "button" }, T.chooseFile),
      ),
      h("p", { class: "hint" }, T.fileHint),
    );
    this.controls = h(
      "div",
      { class: "trust-controls" },
      h("div", { class: "field" }, h("label", { for: "trust-question" }, T.question), this.question),
      h("div", { class: "field" }, h("label", { for: "trust-source" }, T.source), this.source),
      this.given,
    );
    this.note = h("div", { class: "trust-note", role: "status" });
    this.run = h("button", { type: "button", class: "primary", onclick: () => this.#run() }, T.runNow);
    this.missing = h(
      "div",
      { class: "trust-missing" },
      h("p", {}),
      h("div", { class: "buttons" }, this.run, h("a", { href: "#table" }, T.toTable)),
    );
    this.report = new ReportView();
    panel.append(
      h("h2", {}, T.heading),
      h("p", { class: "hint" }, T.intro),
      this.missing,
      this.controls,
      this.note,
      this.report.element,
    );
  }

  start() {
    guardLeaving(this.session);
    this.session.addEventListener("status", () => this.refresh());
    this.session.addEventListener("rows", () => this.#later());
    this.session.restore().catch((error) => this.workbench.alert("file", error));
  }

  /** @param {boolean} visible */
  show(visible) {
    this.#visible = visible;
    if (visible) this.refresh();
  }

  #later() {
    if (this.#visible) this.#timer ??= setTimeout(() => this.refresh(), REFRESH_MS);
  }

  async #run() {
    this.workbench.clearAlerts();
    const { session } = this;
    try {
      if (session.results) await session.go();
      else if (await mayLose(session, "start")) await session.start(false);
    } catch (error) {
      this.workbench.alert("table", error);
    }
  }

  /** Brings all to what the session has now. */
  refresh() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (!this.#visible) return;
    const { results, read, status } = this.session;
    const answered = results !== null && results.answered > 0;
    this.missing.hidden = answered;
    this.controls.hidden = !answered;
    this.run.hidden = !read || status === "running";
    // Figures that change every other second are not read out each time.
    for (const place of [this.note, this.report.kept])
      place.setAttribute("aria-live", status === "running" ? "off" : "polite");
    /** @type {HTMLElement} */ (this.missing.firstElementChild).textContent = read ? T.noAnswers : T.noTable;
    if (results !== this.#results) {
      this.#results = results;
      this.#given = null;
      this.question.replaceChildren(...(results?.ids ?? []).map((id, i) => h("option", { value: i }, id)));
      this.#questionChosen();
    } else this.#compute();
  }

  /** @returns {Source | null} */
  get #chosen() {
    if (this.source.value === GIVEN) return this.#given;
    const column = this.#results?.table.read.columns[Number(this.source.value)];
    return column === undefined ? null : { kind: "column", column };
  }

  #questionChosen(asked = false) {
    const results = this.#results;
    if (!results) return this.#compute(asked);
    const { columns } = results.table.read;
    const others = columns
      .map((column, i) => ({ column, i }))
      .filter(({ column, i }) => column !== results.table.text && columns.indexOf(column) === i);
    const id = results.ids[Number(this.question.value)];
    const likely = others.find(({ column }) => column === id) ?? this.#fitting(others);
    this.source.replaceChildren(
      ...others.map(({ column, i }) =>
        h("option", { value: i, selected: i === likely?.i }, T.column(column)),
      ),
      h("option", { value: GIVEN, selected: !likely }, T.given),
    );
    this.#sourceChosen(asked);
  }

  /**
   * The column that holds the most labels of the question, where one holds any.
   * @param {readonly {column: string, i: number}[]} columns
   */
  #fitting(columns) {
    const results = /** @type {Results} */ (this.#results);
    const question = Number(this.question.value);
    const found = columns.map((one) => ({ ...one, hits: fit(results, question, one.column) }));
    const best = found.sort((a, b) => b.hits - a.hits)[0];
    return best && best.hits > 0 ? best : undefined;
  }

  #sourceChosen(asked = false) {
    this.given.hidden = this.source.value !== GIVEN;
    this.#compute(asked);
  }

  #paste() {
    this.workbench.clearAlerts();
    this.#given = { kind: "lines", text: this.pasted.value };
    this.#compute(ASKED);
  }

  async #load() {
    const file = this.file.files?.[0];
    this.file.value = "";
    if (!file) return;
    this.workbench.clearAlerts();
    try {
      const read = await readFile(file, file.name, new AbortController().signal);
      this.#given = { kind: "table", read };
      this.#compute(ASKED);
    } catch (error) {
      this.workbench.alert("labels", error);
    }
  }

  /** @param {Results} results @param {number} question @param {Source} source @returns {Labels} */
  #labels(results, question, source) {
    if (source.kind === "column") return fromColumn(results, question, source.column);
    if (source.kind === "lines") return fromLines(results, question, source.text);
    return fromTable(results, question, source.read);
  }

  async #compute(asked = false) {
    const turn = ++this.#turn;
    const [results, source] = [this.#results, this.#chosen];
    const question = Number(this.question.value);
    if (!results || !source || results.answered === 0) return this.#clear([]);
    let labels;
    try {
      labels = this.#labels(results, question, source);
    } catch (error) {
      // An alert of every look at a run would come again after it was dismissed.
      if (asked) this.workbench.alert("labels", error);
      return this.#clear([`${S.errorHeadings.labels} ${describeError(error).message}`]);
    }
    const found = labelled(results, question, labels);
    const lines = this.#noteLines(labels, found.gold.length);
    if (found.gold.length === 0) return this.#clear(lines);
    this.#showNote(lines);
    const { names } = results.questions[question];
    await this.report.show({ names, count: found.gold.length, ...figures(found, names.length) });
    const range = await accuracyInterval(found, seeded(0));
    if (turn === this.#turn && range) this.report.showInterval(range);
  }

  /** Takes the figures away. @param {readonly string[]} lines that say why */
  #clear(lines) {
    this.report.clear();
    this.#showNote(lines);
  }

  /** @param {Labels} labels @param {number} used */
  #noteLines({ gold, missing, unknown }, used) {
    const lines = [T.used(used, missing, gold.size - used)];
    if (unknown.length > 0) {
      const told = unknown.slice(0, TOLD).map(({ row, label }) => T.unknownOne(row, label));
      lines.push(T.unknown(unknown.length, told.join(", ") + (unknown.length > TOLD ? " …" : "")));
    }
    if (used > 0 && used < 100) lines.push(T.few);
    return lines;
  }

  /** Says what is new, and leaves alone what is not, as a screen reader would read it again. @param {readonly string[]} lines */
  #showNote(lines) {
    const shown = [...this.note.children].map((line) => line.textContent);
    if (JSON.stringify(shown) === JSON.stringify(lines)) return;
    this.note.replaceChildren(...lines.map((line) => h("p", {}, line)));
  }
}

/** @param {HTMLElement} panel @param {Workbench} workbench */
export async function mount(panel, workbench) {
  const tab = new TrustTab(panel, workbench);
  tab.start();
  return { shown: () => tab.show(true), hidden: () => tab.show(false) };
}
