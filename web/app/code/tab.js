// The Code tab: shows the program of a language for the workbench's questions and text, to be copied. Knows no engine.

import { parseQuestions } from "../../questions.js";
import { copyText, download } from "../clipboard.js";
import { h, isOff, setOff } from "../dom.js";
import { describeError } from "../failure.js";
import { READINGS } from "../readings.js";
import { S } from "../strings.js";
import { LANGUAGES, generate } from "./generate.js";
import { highlight } from "./highlight.js";
import { sections } from "./sections.js";

/** @typedef {import("../workbench.js").Workbench} Workbench */
/** @typedef {import("./generate.js").Language} Language */

const C = S.code;

/** @type {Readonly<Record<Language, string>>} */
const FILES = {
  npm: "decide.mjs",
  script: "decide.html",
  react: "Answers.jsx",
  python: "decide.py",
  pyodide: "decide_browser.py",
  curl: "decide.sh",
};

/** The bundle that this page is part of. */
const BUNDLE = new URL("../../", import.meta.url).href;

class Code {
  /** @param {HTMLElement} panel @param {Workbench} workbench */
  constructor(panel, workbench) {
    this.workbench = workbench;
    /** @type {Language} */
    this.language = "npm";
    this.shown = false;
    this.source = "";
    this.note = h("p", { class: "code-note", "aria-live": "polite" });
    this.code = h("code");
    this.block = h("pre", { class: "code", tabindex: 0, role: "region", "aria-label": C.region }, this.code);
    this.failure = h("div", { class: "failure", role: "alert", hidden: true });
    this.copyLabel = h("span", {}, C.copy);
    this.copy = h(
      "button",
      { type: "button", class: "primary", onclick: () => this.#copy() },
      this.copyLabel,
    );
    this.save = h("button", { type: "button", onclick: () => this.#save() }, C.download);
    panel.append(
      h("div", { class: "part-head" }, h("h2", {}, C.heading)),
      h("p", { class: "hint" }, C.hint),
      h(
        "fieldset",
        { class: "languages" },
        h("legend", { class: "visually-hidden" }, C.languages),
        h("div", { class: "segments" }, ...LANGUAGES.map((language) => this.#choice(language))),
      ),
      h("div", { class: "code-head" }, this.note, h("div", { class: "buttons" }, this.copy, this.save)),
      this.failure,
      this.block,
    );
    for (const type of ["questions", "text", "reading"]) {
      workbench.addEventListener(type, () => this.shown && this.show());
    }
  }

  /** @param {Language} language */
  #choice(language) {
    const input = h("input", {
      type: "radio",
      name: "language",
      checked: language === this.language,
      onchange: () => {
        this.language = language;
        this.block.scrollTo(0, 0);
        this.show();
      },
    });
    return h("label", { class: "segment" }, input, h("span", {}, C.names[language]));
  }

  /** Writes the program anew, or says why there is none. */
  show() {
    this.note.textContent = C.notes[this.language];
    this.copyLabel.textContent = C.copy;
    try {
      this.source = this.#generate();
      this.failure.hidden = true;
    } catch (error) {
      const { code, message } = describeError(error);
      this.failure.replaceChildren(
        h("p", {}, h("code", {}, code), " ", message),
        h("p", { class: "advice" }, C.invalid),
      );
      this.failure.hidden = false;
      this.source = "";
    }
    this.block.hidden = this.source === "";
    for (const button of [this.copy, this.save]) setOff(button, this.source === "");
    this.code.replaceChildren(...sections(this.source).flatMap((section) => this.#shown(section)));
  }

  /** Long values scroll in themselves, so that what is done with them is in sight. @param {import("./sections.js").Section} section */
  #shown({ source, value }) {
    const parts = highlight(source, this.language);
    if (value === null) return parts;
    const label = C.values[value];
    return [
      h("span", { class: `value ${value}`, tabindex: 0, role: "group", "aria-label": label }, ...parts),
    ];
  }

  #generate() {
    const { text, questions, reading } = this.workbench;
    parseQuestions(questions);
    return generate(this.language, {
      text,
      questions,
      options: reading ? READINGS[reading] : {},
      bundle: BUNDLE,
    });
  }

  async #copy() {
    if (isOff(this.copy)) return;
    const copied = await copyText(this.source);
    if (!copied) getSelection()?.selectAllChildren(this.code);
    this.copyLabel.textContent = copied ? C.copied : C.copy;
    this.workbench.announce(copied ? C.copied : C.notCopied);
  }

  #save() {
    if (isOff(this.save)) return;
    download(FILES[this.language], this.source, "text/plain");
  }
}

/**
 * @param {HTMLElement} panel
 * @param {Workbench} workbench
 * @returns {Promise<import("../tabs.js").Mounted>}
 */
export async function mount(panel, workbench) {
  const code = new Code(panel, workbench);
  return {
    shown() {
      code.shown = true;
      code.show();
    },
    hidden() {
      code.shown = false;
    },
  };
}
