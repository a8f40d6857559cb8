// The dialog that shows all questions as JSON, to be edited, pasted over, opened from a file, copied and kept. Knows
// text, not questions: what is wrong with it, it is told.

import { copyText, download } from "../clipboard.js";
import { h } from "../dom.js";
import { S } from "../strings.js";

const D = S.decide.json;

/** @typedef {import("./exchange.js").Fault} Fault */

export class ExchangeDialog {
  /** @param {{onApply: (text: string) => readonly Fault[], announce: (text: string) => void}} events */
  constructor(events) {
    this.events = events;
    const hint = h("p", { id: "json-hint", class: "hint" }, D.hint);
    this.text = h("textarea", {
      id: "json-text",
      class: "json",
      rows: 18,
      spellcheck: "false",
      "aria-describedby": "json-hint",
    });
    this.faults = h("div", { class: "faults", role: "alert" });
    this.file = h("input", {
      type: "file",
      accept: ".json,application/json",
      hidden: true,
      onchange: () => this.#read(),
    });
    const button = (/** @type {string} */ label, /** @type {() => void} */ act, kind = "") =>
      h("button", { type: "button", class: kind, onclick: act }, label);
    this.element = h(
      "dialog",
      { class: "exchange", "aria-labelledby": "json-heading", onkeydown: (event) => this.#onKeydown(event) },
      h("h2", { id: "json-heading" }, D.heading),
      hint,
      h("label", { class: "visually-hidden", for: "json-text" }, D.label),
      this.text,
      this.faults,
      h(
        "div",
        { class: "buttons" },
        button(D.open, () => this.file.click()),
        button(D.copy, () => this.#copy()),
        button(D.download, () => download("questions.json", this.text.value, "application/json")),
        h("span", { class: "spacer" }),
        button(D.cancel, () => this.element.close()),
        button(D.apply, () => this.#apply(), "primary"),
      ),
      this.file,
    );
  }

  /** @param {string} text the questions as they are */
  show(text) {
    this.text.value = text;
    this.faults.replaceChildren();
    this.element.showModal();
    this.text.focus();
    this.text.setSelectionRange(0, 0);
    this.text.scrollTop = 0;
  }

  /** @param {KeyboardEvent} event */
  #onKeydown(event) {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.isComposing) return;
    event.preventDefault();
    // Not the page's Decide as well.
    event.stopPropagation();
    this.#apply();
  }

  #apply() {
    const faults = this.events.onApply(this.text.value);
    if (faults.length === 0) return this.element.close();
    this.#refuse(faults);
  }

  /** @param {readonly Fault[]} faults */
  #refuse(faults) {
    const rows = faults.map(({ place, message }) =>
      h("li", {}, place === "" ? null : h("code", {}, place), place === "" ? null : " ", message),
    );
    const box = h("div", { class: "failure" }, h("p", {}, D.refused(faults.length)), h("ul", {}, ...rows));
    this.faults.replaceChildren(box);
  }

  async #copy() {
    if (await copyText(this.text.value)) return this.events.announce(D.copied);
    this.text.select();
    this.events.announce(D.notCopied);
  }

  async #read() {
    const [file] = this.file.files ?? [];
    this.file.value = "";
    if (!file) return;
    this.faults.replaceChildren();
    try {
      this.text.value = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      this.text.focus();
    } catch (error) {
      this.#refuse([{ place: file.name, message: D.notText(String(error)) }]);
    }
  }
}
