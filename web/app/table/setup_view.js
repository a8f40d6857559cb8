// Where a table comes from and what is to be done with it: file, columns, questions, and whether the run is kept. Knows no
// engine; what is chosen it tells.

import { h } from "../dom.js";
import { S } from "../strings.js";
import { ENDINGS } from "./read.js";

/** @typedef {import("./session.js").Session} Session */

const T = S.table;
let boxes = 0;

/** Takes a file by drop, choice or paste. */
export class Source {
  /** @param {(file: Blob, name: string) => void} take */
  constructor(take) {
    this.take = take;
    this.input = h("input", {
      type: "file",
      id: "table-file",
      class: "visually-hidden",
      accept: ENDINGS.join(","),
      onchange: () => this.#choose(),
    });
    this.pasted = h("textarea", { id: "table-pasted", rows: 6, spellcheck: "false" });
    this.problem = h("p", { class: "advice", role: "status" });
    this.zone = h(
      "div",
      {
        class: "drop-zone",
        ondragover: (event) => this.#over(event, true),
        ondragleave: (event) => this.#over(event, false),
      },
      h("span", {}, T.drop),
      this.input,
      h("label", { for: "table-file", class: "button primary" }, T.choose),
    );
    this.zone.addEventListener("drop", (event) => this.#drop(event));
    this.hint = h("p", { class: "hint" }, T.brokenHint);
    this.pasteSummary = h("summary", {}, T.paste);
    this.paste = h(
      "details",
      { class: "paste" },
      this.pasteSummary,
      h("label", { for: "table-pasted", class: "field-label" }, T.pasteLabel),
      this.pasted,
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", onclick: () => this.#paste() }, T.pasteUse),
        this.problem,
      ),
    );
    this.element = h("div", { class: "source" }, this.zone, this.hint, this.paste);
  }

  /** There is a table now: what follows is of more use than the room for another one. */
  recede() {
    this.element.classList.add("receded");
    this.hint.hidden = true;
    if (this.paste.contains(document.activeElement)) this.pasteSummary.focus();
    this.paste.open = false;
  }

  #choose() {
    const file = this.input.files?.[0];
    if (file) this.take(file, file.name);
    // The same file may be chosen again once it is put right.
    this.input.value = "";
  }

  /** @param {DragEvent} event @param {boolean} over */
  #over(event, over) {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    this.zone.classList.toggle("over", over);
  }

  /** @param {DragEvent} event */
  #drop(event) {
    this.#over(event, false);
    const file = event.dataTransfer?.files[0];
    if (file) this.take(file, file.name);
  }

  #paste() {
    const text = this.pasted.value;
    this.problem.textContent = text.trim() === "" ? T.nothingPasted : "";
    if (text.trim() === "") return;
    const first = text.trimStart().split("\n", 1)[0];
    const ending = first.startsWith("{") ? "jsonl" : first.includes("\t") ? "tsv" : "csv";
    this.take(new Blob([text]), `${T.pasted}.${ending}`);
  }
}

/** Says what the table is, and lets columns be chosen. */
export class Setup {
  /** The table whose columns are offered. @type {import("./read.js").Read | null} */
  #offered = null;

  /** @param {Session} session */
  constructor(session) {
    this.session = session;
    this.summary = h("p", { class: "table-summary" });
    this.text = h("select", { id: "table-text", onchange: () => this.#chosen() });
    this.keepSummary = h("summary", {});
    this.columns = h("div", { class: "keep-columns" });
    this.keepFields = h(
      "fieldset",
      {},
      h("legend", { class: "visually-hidden" }, T.keepLegend),
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", class: "quiet", onclick: () => this.#checkAll(true) }, T.all),
        h("button", { type: "button", class: "quiet", onclick: () => this.#checkAll(false) }, T.noneOfThem),
      ),
      this.columns,
    );
    this.questions = h("span", { class: "asked" });
    this.outdated = h("p", { class: "advice" });
    this.command = h("code", { class: "command", tabindex: 0 });
    this.element = h(
      "div",
      { class: "setup" },
      this.summary,
      h("div", { class: "field" }, h("label", { for: "table-text" }, T.textColumn), this.text),
      h("details", { class: "keep" }, this.keepSummary, this.keepFields),
      h("p", {}, h("strong", {}, T.questions), " ", this.questions, " ", h("a", { href: "#decide" }, T.edit)),
      this.outdated,
    );
    this.commandElement = h(
      "details",
      { class: "on-command-line" },
      h("summary", {}, T.command),
      this.command,
      h("p", { class: "hint" }, T.commandHint),
    );
  }

  /** Shows what the session has now. */
  show() {
    const { read, text, keep, status, results, questions, outdated } = this.session;
    if (!read) return;
    const fixed = status === "running" || results !== null;
    if (read !== this.#offered) this.#offer(read);
    this.summary.textContent = T.summary(read.name, read.rows.length, read.columns.length);
    this.text.value = text;
    this.text.disabled = this.keepFields.disabled = fixed;
    const boxes = this.columns.querySelectorAll("input");
    for (const box of boxes) box.checked = keep.includes(box.value);
    this.keepSummary.textContent = T.keepSummary(keep.length, boxes.length);
    this.questions.textContent = T.asked([...(questions?.keys() ?? [])]);
    this.outdated.textContent = outdated ? T.outdated : "";
  }

  /**
   * Columns are offered once for each table: whoever stands on one of them stays there.
   * @param {import("./read.js").Read} read
   */
  #offer(read) {
    this.#offered = read;
    const unique = [...new Set(read.columns)];
    this.text.replaceChildren(...unique.map((name) => h("option", { value: name }, name)));
    this.columns.replaceChildren(...unique.map((name) => checkbox(name, () => this.#chosen())));
  }

  /** @param {readonly string[]} ids of the questions that a run would have */
  showQuestions(ids) {
    this.questions.textContent = T.asked(ids);
  }

  /** @param {string} options of the command that say how answers are read */
  showCommand(options) {
    const { read, text, keep } = this.session;
    if (!read) return;
    const kept = keep.map((column) => ` --keep ${shell(column)}`).join("");
    const out = shell(read.name.replace(/\.[^.]+$/, ".answers.csv"));
    this.command.textContent =
      `python -m typedecide batch ${shell(read.name)} --questions questions.json --text ${shell(text)}${kept}` +
      `${options} --engine page --out ${out}`;
  }

  #chosen() {
    const checked = /** @type {NodeListOf<HTMLInputElement>} */ (
      this.columns.querySelectorAll("input:checked")
    );
    this.session.choose(
      this.text.value,
      [...checked].map(({ value }) => value),
    );
  }

  /** @param {boolean} on */
  #checkAll(on) {
    for (const box of this.columns.querySelectorAll("input")) box.checked = on;
    this.#chosen();
  }
}

/** @param {string} value @param {() => void} onchange */
function checkbox(value, onchange) {
  const id = `table-keep-${++boxes}`;
  return h(
    "span",
    { class: "check" },
    h("input", { type: "checkbox", id, value, onchange }),
    h("label", { for: id }, value),
  );
}

/** A word of a shell command. @param {string} word */
function shell(word) {
  return /^[\w.,:/@%+-]+$/.test(word) && !word.startsWith("-") ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
