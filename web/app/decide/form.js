// The form of a question: writes into its draft as the user types. Knows nothing of answers or of other questions.

import { InvalidQuestionError } from "../../errors.js";
import { parseQuestions } from "../../questions.js";
import { h, isOff, setOff } from "../dom.js";
import { S } from "../strings.js";
import { wireFromDraft } from "./draft.js";

const D = S.decide;

/** @typedef {import("./draft.js").Draft} Draft */
/** @typedef {import("./draft.js").Kind} Kind */

/** @type {Kind[]} */
const KINDS = ["choice", "noul", "score"];
let formCount = 0;

export class QuestionForm {
  /**
   * @param {Draft} draft
   * @param {{onChange: () => void, isTaken: (id: string) => boolean}} events `isTaken`: whether another question has an
   *   id
   */
  constructor(draft, events) {
    this.draft = draft;
    this.events = events;
    this.number = ++formCount;
    /** An id as it is written, which may not be one that the draft can have. */
    this.id = draft.id;
    this.options = h("div", { class: "options-slot" });
    this.question = this.#textarea(`question-text-${this.number}`);
    this.element = h(
      "div",
      { class: "form" },
      this.#kindPicker(),
      this.#label(this.question, D.questionLabel),
      this.question,
      this.options,
      ...this.#idField(),
    );
    this.#renderOptions();
  }

  focus() {
    this.question.focus();
  }

  /** @throws {InvalidQuestionError} what is written is no question, or its id is another's */
  check() {
    const { id } = this;
    if (this.events.isTaken(id)) throw new InvalidQuestionError(D.idTaken, { value: id, loc: [id] });
    parseQuestions(new Map([[id, wireFromDraft(this.draft)]]));
  }

  /** @param {HTMLElement} field @param {string} text */
  #label(field, text) {
    return h("label", { class: "field-label", for: field.id }, text);
  }

  /** @param {string} id */
  #textarea(id) {
    const field = h("textarea", {
      id,
      rows: 2,
      oninput: () => {
        this.draft.question = field.value;
        this.events.onChange();
      },
    });
    field.value = this.draft.question;
    return field;
  }

  #idField() {
    const id = `question-id-${this.number}`;
    const attributes = { id, class: "question-id", spellcheck: "false", "aria-describedby": `${id}-hint` };
    const field = textInput(attributes, this.id, (text) => {
      this.id = text;
      if (text !== "" && !this.events.isTaken(text)) this.draft.id = text;
      this.events.onChange();
    });
    const hint = h("p", { id: `${id}-hint`, class: "hint" }, D.idHint);
    return [this.#label(field, D.idLabel), field, hint];
  }

  #kindPicker() {
    const choices = KINDS.map((kind) =>
      h(
        "label",
        {},
        h("input", {
          type: "radio",
          name: `kind-${this.number}`,
          value: kind,
          checked: this.draft.kind === kind,
          onchange: () => this.#setKind(kind),
        }),
        h("span", {}, S.kinds[kind]),
      ),
    );
    return h("fieldset", { class: "kinds" }, h("legend", {}, D.kindLegend), ...choices);
  }

  /** @param {Kind} kind */
  #setKind(kind) {
    this.draft.kind = kind;
    while (kind !== "noul" && this.draft.options.length < 2)
      this.draft.options.push({ name: "", description: "" });
    this.#optionsChanged();
  }

  #optionsChanged() {
    this.#renderOptions();
    this.events.onChange();
  }

  #renderOptions() {
    this.options.replaceChildren(
      this.draft.kind === "noul" ? this.#noulForm() : this.#optionsForm(this.draft.kind),
    );
  }

  #noulForm() {
    const { draft } = this;
    /** @param {"yes" | "no"} side */
    const meaning = (side) =>
      textInput({ "aria-label": D.meaning[side], placeholder: D.meaning[side] }, draft[side], (text) => {
        draft[side] = text;
        this.events.onChange();
      });
    return h(
      "div",
      { class: "meanings" },
      meaning("yes"),
      meaning("no"),
      h("p", { class: "hint" }, D.noulHint),
    );
  }

  /** @param {"choice" | "score"} kind */
  #optionsForm(kind) {
    const { options } = this.draft;
    const add = h(
      "button",
      { type: "button", class: "quiet", onclick: () => this.#addOption(options.length) },
      D.addOption[kind],
    );
    return h(
      "fieldset",
      { class: "options" },
      h("legend", {}, D.optionsLegend[kind]),
      h("ol", {}, ...options.map((_, index) => this.#optionRow(kind, index))),
      add,
    );
  }

  /**
   * @param {"choice" | "score"} kind
   * @param {number} index
   */
  #optionRow(kind, index) {
    const option = this.draft.options[index];
    const word = D.optionWord[kind];
    const position = index + 1;
    const label = D.optionName(word, position);
    const name = textInput(
      { class: "option-name", "aria-label": label, placeholder: label },
      option.name,
      (text) => {
        option.name = text;
        this.events.onChange();
      },
    );
    name.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.ctrlKey || event.metaKey || event.isComposing) return;
      event.preventDefault();
      this.#addOption(position);
    });
    const about = {
      "aria-label": D.optionDescription(word, position),
      placeholder: D.descriptionPlaceholder,
    };
    const description = textInput({ class: "option-description", ...about }, option.description, (text) => {
      option.description = text;
      this.events.onChange();
    });
    const last = this.draft.options.length - 1;
    const tools = [
      optionButton("up", "↑", D.moveOptionUp(word, position), index === 0, () => this.#moveOption(index, -1)),
      optionButton("down", "↓", D.moveOptionDown(word, position), index === last, () =>
        this.#moveOption(index, 1),
      ),
      optionButton("drop", "×", D.removeOption(word, position), false, () => this.#removeOption(index)),
    ];
    return h("li", {}, name, description, h("div", { class: "option-tools" }, ...tools));
  }

  /** @param {number} at */
  #addOption(at) {
    this.draft.options.splice(at, 0, { name: "", description: "" });
    this.#optionsChanged();
    this.#focusOption(at, ".option-name");
  }

  /** @param {number} index @param {number} step */
  #moveOption(index, step) {
    const [option] = this.draft.options.splice(index, 1);
    this.draft.options.splice(index + step, 0, option);
    this.#optionsChanged();
    this.#focusOption(index + step, step < 0 ? ".up" : ".down");
  }

  /** @param {number} index */
  #removeOption(index) {
    this.draft.options.splice(index, 1);
    this.#optionsChanged();
    this.#focusOption(Math.min(index, this.draft.options.length - 1), ".drop");
  }

  /**
   * Focuses a control of an option's row, or the button that adds one when no row is left.
   * @param {number} index @param {string} selector
   */
  #focusOption(index, selector) {
    const row = this.element.querySelectorAll(".options li")[index];
    const target = row ? row.querySelector(selector) : this.element.querySelector(".options > button");
    /** @type {HTMLElement | null} */ (target)?.focus();
  }
}

/**
 * @param {Record<string, string>} attributes
 * @param {string} value
 * @param {(text: string) => void} tell
 */
function textInput(attributes, value, tell) {
  const input = h("input", {
    type: "text",
    autocomplete: "off",
    ...attributes,
    oninput: () => tell(input.value),
  });
  input.value = value;
  return input;
}

/**
 * @param {string} role @param {string} sign @param {string} label @param {boolean} off @param {() => void} act
 */
function optionButton(role, sign, label, off, act) {
  const button = h(
    "button",
    {
      type: "button",
      class: `square ${role}`,
      "aria-label": label,
      title: label,
      onclick: () => {
        if (!isOff(button)) act();
      },
    },
    h("span", { "aria-hidden": "true" }, sign),
  );
  setOff(button, off);
  return button;
}
