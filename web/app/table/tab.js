// The Table tab: the same questions about every row of a table. Wires the session to its views; what is here only starts,
// pauses, and shows what comes back.

import { parseQuestions } from "../../questions.js";
import { download } from "../clipboard.js";
import { h, isOff, setBar, setChildren, setOff } from "../dom.js";
import { describeError } from "../failure.js";
import { READINGS } from "../readings.js";
import { S } from "../strings.js";
import { guardLeaving, mayLose } from "./losses.js";
import { RowsView } from "./rows_view.js";
import { sessionOf } from "./session.js";
import { Setup, Source } from "./setup_view.js";

/** @typedef {import("../workbench.js").Workbench} Workbench */

const T = S.table;
/** How often the figures of a run are brought up to date. */
const FIGURES_MS = 250;
/** How long the room for a file is not shown at most, while it is looked up whether a run is kept. */
const LOOK_MS = 300;

class TableTab {
  #figuresDue = 0;
  /** @type {import("./results.js").Results | null} */
  #shown = null;
  /** @type {import("./read.js").Read | null} */
  #read = null;

  /** @param {HTMLElement} panel @param {Workbench} workbench */
  constructor(panel, workbench) {
    this.panel = panel;
    this.workbench = workbench;
    this.session = sessionOf(workbench);
    this.source = new Source((file, name) => this.#open(file, name));
    this.setup = new Setup(this.session);
    this.rows = new RowsView();
    this.main = h("button", {
      type: "button",
      class: "primary",
      // The second click of a double click, or a key that is held, is no wish to pause what the first one started.
      onclick: (event) => event.detail < 2 && this.#main(),
      onkeydown: (event) => event.repeat && event.preventDefault(),
    });
    this.again = h("button", { type: "button", onclick: () => this.#start() }, T.again);
    this.keep = h("input", { type: "checkbox", id: "table-keep-run", checked: true });
    this.holds = h("span", {});
    this.holdsLine = h(
      "p",
      {},
      this.holds,
      " ",
      h("button", { type: "button", class: "quiet", onclick: () => this.#forget() }, T.forget),
    );
    this.notKept = h("p", { class: "advice" });
    this.held = h("div", { class: "held" });
    this.status = h("span", { class: "run-status" });
    this.fill = h("span", { class: "fill" });
    this.bar = h(
      "div",
      { class: "track", role: "progressbar", "aria-label": T.progressLabel, "aria-valuemin": 0 },
      this.fill,
    );
    this.csv = h("button", { type: "button", class: "primary", onclick: () => this.#download() }, T.download);
    this.rejects = h("button", { type: "button", onclick: () => this.#downloadRejects() }, T.downloadRejects);
    this.discard = h(
      "button",
      { type: "button", class: "quiet danger", onclick: () => this.#discard() },
      T.discard,
    );
    this.reading = h("p", { class: "hint", role: "status" });
    this.setUp = h("section", { class: "sheet", "aria-label": T.sourceHeading }, ...this.#setUpParts());
    this.answers = h(
      "section",
      { class: "answers", "aria-labelledby": "table-answers" },
      h(
        "div",
        { class: "part-head" },
        h("h2", { id: "table-answers" }, T.resultsHeading),
        h("div", { class: "buttons" }, this.csv, this.rejects, this.discard),
      ),
      h("p", { class: "hint" }, T.downloadHint),
      this.rows.element,
    );
    panel.append(h("h2", {}, T.sourceHeading), this.source.element, this.reading, this.setUp, this.answers);
  }

  #setUpParts() {
    const kept = h(
      "div",
      { class: "check" },
      this.keep,
      h("label", { for: "table-keep-run" }, T.keepRun),
      h("p", { class: "hint" }, T.keepHint),
    );
    return [
      this.setup.element,
      kept,
      h("div", { class: "buttons" }, this.main, this.again),
      h("div", { class: "run-line" }, this.bar, this.status),
      this.held,
      this.setup.commandElement,
    ];
  }

  start() {
    const { session, workbench } = this;
    guardLeaving(session);
    session.addEventListener("status", () => this.#show());
    session.addEventListener("columns", () => this.#showSetup());
    session.addEventListener("rows", (event) =>
      this.#rowDone(/** @type {CustomEvent<number>} */ (event).detail),
    );
    for (const change of ["questions", "reading"])
      workbench.addEventListener(change, () => this.#showSetup());
    this.#show();
    const known = this.#look();
    this.#attempt("file", async () => {
      await session.restore().finally(known);
      if (session.results) workbench.announce(T.restored);
    });
  }

  /**
   * A kept run that comes back moves nothing: the room for a file is shown once it is known whether there is one.
   * @returns {() => void} to be called at the latest when it is back
   */
  #look() {
    const { classList } = this.source.element;
    classList.add("unseen");
    const known = () => {
      classList.remove("unseen");
      clearTimeout(timer);
      if (this.session.status === "reading") this.source.recede();
    };
    const timer = setTimeout(() => classList.remove("unseen"), LOOK_MS);
    this.session.addEventListener("status", known, { once: true });
    return known;
  }

  /**
   * @param {Blob} file
   * @param {string} name
   */
  #open(file, name) {
    this.#attempt("file", async () => {
      if (await mayLose(this.session, "open")) await this.session.open(file, name);
    });
  }

  /**
   * @param {"file" | "table"} kind
   * @param {() => Promise<void>} work
   */
  async #attempt(kind, work) {
    this.workbench.clearAlerts();
    try {
      await work();
    } catch (error) {
      this.workbench.alert(kind, error);
    }
  }

  #main() {
    if (isOff(this.main)) return;
    const { session } = this;
    if (session.status === "running") return session.pause();
    if (session.status === "paused") return this.#attempt("table", () => session.go());
    return this.#start();
  }

  #start() {
    if (isOff(this.again)) return;
    return this.#attempt("table", async () => {
      if (await mayLose(this.session, "start")) await this.session.start(this.keep.checked);
    });
  }

  async #download() {
    const { results, read } = this.session;
    if (!results || !read) return;
    const { answered } = results;
    download(outName(read.name), await results.toCsv(), "text/csv");
    // What is kept stays: nobody knows whether the browser, or its user, really took the file.
    this.session.saved(results, answered);
  }

  async #downloadRejects() {
    const { results, read } = this.session;
    if (!results || !read) return;
    download(`${outName(read.name)}.rejects.jsonl`, await results.toRejects(), "application/jsonl");
  }

  async #discard() {
    if (isOff(this.discard) || !(await mayLose(this.session, "discard"))) return;
    await this.session.discard();
  }

  async #forget() {
    await this.session.forget();
    this.workbench.announce(T.forgotten);
  }

  #show() {
    const { session } = this;
    const { status, read, results } = session;
    const focused = this.panel.contains(document.activeElement) ? document.activeElement : null;
    this.reading.textContent = status === "reading" ? T.reading : session.elsewhere ? T.elsewhere : "";
    if (read && read !== this.#read) this.source.recede();
    this.#read = read;
    this.setUp.hidden = !read || status === "reading";
    this.answers.hidden = !results || status === "reading";
    this.main.textContent = { running: T.pause, paused: T.resume }[/** @type {string} */ (status)] ?? T.start;
    this.main.hidden = status === "done";
    this.again.hidden = status !== "paused" && status !== "done";
    this.rejects.hidden = !results || results.rejected === 0;
    this.keep.disabled = status === "running";
    setOff(this.discard, status === "running");
    if (results && results !== this.#shown) this.rows.show(results);
    else if (status === "paused" || status === "done") this.rows.settle();
    this.#shown = results;
    this.#showSetup();
    this.#showHeld();
    this.#showFigures();
    if (status === "paused" || status === "done") this.workbench.announce(this.status.textContent ?? "");
    if (focused && isGone(focused)) this.#refocus();
  }

  /** What had the focus is gone: what comes next gets it. */
  #refocus() {
    const next = [this.main, this.csv, this.source.input].find((control) => !isGone(control));
    next?.focus();
  }

  #showSetup() {
    const { session, workbench, setup } = this;
    setup.show();
    if (!session.results) {
      const ids = Object.keys(workbench.questions);
      setup.showQuestions(ids);
      setOff(this.main, session.status === "ready" && !this.#askable());
    } else setOff(this.main, false);
    const reading = session.results ? session.reading : workbench.reading;
    const { readout, orderings } = reading ? READINGS[reading] : {};
    const named = (/** @type {string} */ name, /** @type {unknown} */ value) =>
      value ? ` --${name} ${value}` : "";
    setup.showCommand(named("readout", readout) + named("orderings", orderings));
  }

  #askable() {
    try {
      parseQuestions(new Map(Object.entries(this.workbench.questions)));
      return true;
    } catch {
      // Pressed all the same, the button says why; it is off only where there is nothing to ask.
      return Object.keys(this.workbench.questions).length > 0;
    }
  }

  #showHeld() {
    const { holds, notKept, results } = this.session;
    if (holds !== null) this.holds.textContent = results ? T.holds : T.holdsOther(holds);
    if (notKept) this.notKept.textContent = `${T.notKept} ${describeError(notKept).message}`;
    const parts = [holds !== null && this.holdsLine, notKept !== null && this.notKept];
    setChildren(
      this.held,
      parts.filter((part) => part !== false),
    );
  }

  /** @param {number} row */
  #rowDone(row) {
    this.rows.done(row);
    const now = performance.now();
    if (now < this.#figuresDue) return;
    this.#figuresDue = now + FIGURES_MS;
    this.#showFigures();
  }

  #showFigures() {
    const { status, results, stretch } = this.session;
    this.bar.hidden = this.status.hidden = !results;
    if (!results) return;
    const [all, done] = [results.status.length, results.answered + results.rejected];
    this.bar.setAttribute("aria-valuemax", String(all));
    this.bar.setAttribute("aria-valuenow", String(done));
    setBar(this.fill, all === 0 ? 1 : done / all);
    const parts = [T.progress(done, all, results.rejected)];
    const rows = done - stretch.rows;
    if (status === "running" && rows > 0) {
      const rate = rows / ((performance.now() - stretch.began) / 1000);
      parts.push(T.rate(rate), T.left(results.open / rate));
    } else if (status === "running") parts.push(this.session.waits ? T.waitingForProof : T.waiting);
    else if (status === "paused") parts.unshift(T.paused);
    else if (status === "done") parts.unshift(T.done);
    this.status.textContent = parts.join(" · ");
    this.rejects.hidden = results.rejected === 0;
  }
}

/** Whether nobody can see an element any more. @param {Element} element */
function isGone(element) {
  return !element.isConnected || element.closest("[hidden]") !== null;
}

/** @param {string} name of the table */
function outName(name) {
  return name.replace(/\.[^.]+$/, ".answers.csv");
}

/** @param {HTMLElement} panel @param {Workbench} workbench */
export async function mount(panel, workbench) {
  new TableTab(panel, workbench).start();
  return {};
}
