// One question as a card: shown with its answer's bars, or as a form. Knows questions as drafts and answers as
// the library returns them; knows nothing of the engine or of the other cards.

import { parseQuestion } from "../../questions.js";
import { wireFromDraft } from "./draft.js";
import { h, isOff, setBar, setOff } from "../dom.js";
import { describeError } from "../failure.js";
import { READINGS } from "../readings.js";
import { S, formatProbability } from "../strings.js";

const D = S.decide;

/** @typedef {import("./draft.js").Draft} Draft */
/** @typedef {import("./draft.js").Kind} Kind */
/** @typedef {import("./draft.js").WireQuestion} WireQuestion */
/** @typedef {import("../../index.js").Ordered} Answer */

/**
 * @typedef {object} Outcome
 * @property {string} wire the question that this is the answer to
 * @property {string} state the text that it is about
 * @property {import("../readings.js").Reading} reading how it was read
 * @property {Answer} answer
 * @property {number} ms from the start of the scoring until the answer was there
 */
/** @typedef {"idle" | "waiting" | "running"} Phase */

/** Above this many options the list scrolls inside its card. */
const SCROLL_ABOVE = 12;
/** @type {Kind[]} */
const KINDS = ["choice", "noul", "score"];
let cardCount = 0;

/**
 * The option names to show before there is an answer.
 * @param {Draft} draft
 * @returns {string[]}
 */
function namesOf(draft) {
  return draft.kind === "noul" ? [S.yes, S.no] : draft.options.map((option) => option.name);
}

/**
 * How many orders of the options were read, and how many of them have the card's answer first. Empty where the
 * options were not listed, and so had no order.
 * @param {Outcome | null} outcome
 */
function orders(outcome) {
  if (!outcome || READINGS[outcome.reading].readout !== "labels") return h("span", { class: "orders" });
  const { orderings_used: used, flip_rate: flipRate } = outcome.answer;
  const attributes = { class: "orders", "data-orders": used, "data-flip-rate": flipRate };
  return h("span", { ...attributes, title: D.ordersHint }, D.orders(used, Math.round(used * (1 - flipRate))));
}

export class QuestionCard {
  /**
   * @param {Draft} draft
   * @param {{onRemove: (card: QuestionCard) => void, onChange: () => void}} events
   */
  constructor(draft, events) {
    this.draft = draft;
    this.events = events;
    this.number = ++cardCount;
    this.editing = false;
    this.removed = false;
    /** @type {Phase} */
    this.phase = "idle";
    /** @type {Outcome | null} */
    this.outcome = null;
    /** @type {{wire: string, error: unknown} | null} */
    this.failure = null;
    this.currentState = "";
    this.titleId = `question-title-${this.number}`;
    this.element = h("article", {
      class: "card",
      "aria-labelledby": this.titleId,
      "data-question": draft.id,
      onkeydown: (event) => this.#onKeydown(event),
    });
    this.render();
  }

  /** @returns {WireQuestion} */
  get wire() {
    return wireFromDraft(this.draft);
  }

  /** @returns {string} the question's text, or a name for one that has none yet */
  get title() {
    return this.draft.question.trim() === "" ? D.untitled : this.draft.question;
  }

  /** @param {Phase} phase */
  setPhase(phase) {
    this.phase = phase;
    this.#refresh();
  }

  /** @param {Outcome} outcome */
  setOutcome(outcome) {
    this.outcome = outcome;
    this.failure = null;
    this.setPhase("idle");
  }

  /**
   * Shows why this question has no answer. An answer that it had stays.
   * @param {WireQuestion} wire the question that failed
   * @param {unknown} error
   */
  setFailure(wire, error) {
    this.failure = { wire: JSON.stringify(wire), error };
    this.setPhase("idle");
  }

  /** @param {string} state the text as it stands in the page */
  setState(state) {
    const wasOld = this.#isOld();
    this.currentState = state;
    if (this.#isOld() !== wasOld) this.#refresh();
  }

  /** @returns {boolean} whether the answer is one for an earlier text */
  #isOld() {
    return this.outcome !== null && this.outcome.state !== this.currentState;
  }

  /** Opens the form and puts the cursor into it. */
  edit() {
    this.editing = true;
    this.render();
    this.element.querySelector("textarea")?.focus();
  }

  /** Closes the form, unless the question is not valid: then the form says why and stays. */
  close() {
    if (!this.editing) return;
    const hadFocus = this.element.contains(document.activeElement);
    const wire = this.wire;
    try {
      parseQuestion(wire);
      this.failure = null;
      this.editing = false;
    } catch (error) {
      this.failure = { wire: JSON.stringify(wire), error };
    }
    if (this.editing) return this.#refresh();
    this.render();
    if (hadFocus) this.focusTools();
  }

  /** Puts the focus on the first of the card's buttons. */
  focusTools() {
    /** @type {HTMLElement | null} */ (this.element.querySelector(".tools button"))?.focus();
  }

  /** Builds the card anew, as a form or as an answer. */
  render() {
    this.element.classList.toggle("editing", this.editing);
    this.element.replaceChildren(this.#header(), ...(this.editing ? this.#form() : this.#answer()));
  }

  /** Updates what a run changes, and leaves a form that is open alone. */
  #refresh() {
    this.element.setAttribute("aria-busy", String(this.phase === "running"));
    if (!this.editing) return this.#refreshAnswer();
    this.element.querySelector(".failure")?.remove();
    const failure = this.#failure();
    if (failure) this.element.append(failure);
  }

  /** Replaces the answer but keeps the header, so that a button in it does not lose the focus. */
  #refreshAnswer() {
    const [header, ...rest] = [...this.element.children];
    for (const old of rest) old.remove();
    header.after(...this.#answer());
  }

  /** @param {KeyboardEvent} event */
  #onKeydown(event) {
    if (event.key !== "Escape" || !this.editing) return;
    event.preventDefault();
    this.close();
  }

  #header() {
    const first = this.editing
      ? h("button", { type: "button", class: "quiet", onclick: () => this.close() }, D.done)
      : h(
          "button",
          {
            type: "button",
            class: "quiet",
            "aria-label": D.editNamed(this.title),
            onclick: () => this.edit(),
          },
          D.edit,
        );
    const remove = h(
      "button",
      {
        type: "button",
        class: "quiet danger",
        "aria-label": D.removeNamed(this.title),
        onclick: () => this.events.onRemove(this),
      },
      D.remove,
    );
    return h(
      "header",
      { class: "card-head" },
      h("span", { class: `kind kind-${this.draft.kind}` }, S.kinds[this.draft.kind]),
      h("div", { class: "tools" }, first, remove),
      h("h3", { id: this.titleId }, this.title),
    );
  }

  /** @returns {Outcome | null} the outcome, if it belongs to the question as it stands */
  #matchingOutcome() {
    return this.outcome && this.outcome.wire === JSON.stringify(this.wire) ? this.outcome : null;
  }

  /** @returns {HTMLElement | null} */
  #failure() {
    if (!this.failure || this.failure.wire !== JSON.stringify(this.wire)) return null;
    const { code, message, advice } = describeError(this.failure.error);
    return h(
      "div",
      { class: "failure", role: "alert", "data-code": code },
      h("p", {}, h("code", {}, code), " ", message),
      h("p", { class: "advice" }, advice),
    );
  }

  #answer() {
    const outcome = this.#matchingOutcome();
    const failure = this.#failure();
    const old = outcome !== null && this.#isOld();
    this.element.classList.toggle("old", old);
    const parts = [this.#verdict(outcome), this.#bars(outcome), this.#foot(outcome, old)];
    return failure ? [...parts, failure] : parts;
  }

  /** @param {Outcome | null} outcome */
  #verdict(outcome) {
    if (!outcome) return h("p", { class: "verdict empty" }, this.outcome ? D.edited : D.notDecided);
    const { answer } = outcome;
    const word = answer.kind === "noul" ? (answer.choice === "yes" ? S.yes : S.no) : answer.choice;
    const mean = answer.kind === "score" ? `${D.mean(Number(answer.value), answer.names.length - 1)}, ` : "";
    return h(
      "p",
      { class: "verdict" },
      h("strong", {}, word),
      " ",
      h("span", { class: "confidence" }, mean + S.confidence(answer.confidence)),
    );
  }

  /** @param {Outcome | null} outcome */
  #bars(outcome) {
    const answer = outcome?.answer;
    const names = namesOf(this.draft);
    const best = answer ? answer.names.indexOf(answer.choice) : -1;
    const scrolls = names.length > SCROLL_ABOVE;
    const list = h("ul", {
      class: scrolls ? "bars scrolls" : "bars",
      "aria-label": D.optionsRegion,
      tabindex: scrolls ? 0 : null,
    });
    names.forEach((name, index) => {
      const p = answer ? answer.probabilities[index] : null;
      const fill = h("span", { class: "fill" });
      setBar(fill, p ?? 0);
      list.append(
        h(
          "li",
          { class: index === best ? "bar best" : "bar", "data-p": p },
          h("span", { class: "name" }, name.trim() === "" ? D.emptyOption : name),
          h("span", { class: "p" }, p === null ? S.none : formatProbability(p)),
          h("span", { class: "track", "aria-hidden": "true" }, fill),
        ),
      );
    });
    return list;
  }

  /**
   * @param {Outcome | null} outcome
   * @param {boolean} old
   */
  #foot(outcome, old) {
    return h("footer", { class: "card-foot" }, orders(outcome), this.#note(outcome, old));
  }

  /**
   * When the answer came, or else what is more important to know.
   * @param {Outcome | null} outcome
   * @param {boolean} old
   */
  #note(outcome, old) {
    const time = outcome ? D.answeredAfter(outcome.ms) : S.none;
    const texts = { idle: old ? D.olderText : time, waiting: D.waiting, running: D.running };
    const title = outcome ? D.answeredAfterHint : null;
    return h("span", { class: `note ${this.phase}`, "data-ms": outcome?.ms, title }, texts[this.phase]);
  }

  #form() {
    const question = h("textarea", {
      id: `question-text-${this.number}`,
      rows: 2,
      oninput: () => {
        this.draft.question = question.value;
        const title = this.element.querySelector("h3");
        if (title) title.textContent = this.title;
        this.events.onChange();
      },
    });
    question.value = this.draft.question;
    const parts = [
      this.#kindPicker(),
      h("label", { class: "field-label", for: question.id }, D.questionLabel),
      question,
      h("div", { class: "options-slot" }, this.#optionsForm()),
    ];
    const failure = this.#failure();
    return failure ? [...parts, failure] : parts;
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
    const badge = this.element.querySelector(".kind");
    if (badge) {
      badge.className = `kind kind-${kind}`;
      badge.textContent = S.kinds[kind];
    }
    this.#optionsChanged();
  }

  #optionsChanged() {
    this.element.querySelector(".options-slot")?.replaceChildren(this.#optionsForm());
    this.#refresh();
    this.events.onChange();
  }

  #optionsForm() {
    const { kind, options } = this.draft;
    if (kind === "noul") return h("p", { class: "hint" }, D.noulHint);
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
    const name = h("input", {
      type: "text",
      class: "option-name",
      autocomplete: "off",
      "aria-label": D.optionName(word, position),
      placeholder: D.optionName(word, position),
      oninput: () => {
        option.name = name.value;
        this.events.onChange();
      },
      onkeydown: (event) => {
        if (event.key !== "Enter" || event.ctrlKey || event.metaKey || event.isComposing) return;
        event.preventDefault();
        this.#addOption(position);
      },
    });
    name.value = option.name;
    const description = h("input", {
      type: "text",
      class: "option-description",
      autocomplete: "off",
      "aria-label": D.optionDescription(word, position),
      placeholder: D.descriptionPlaceholder,
      oninput: () => {
        option.description = description.value;
        this.events.onChange();
      },
    });
    description.value = option.description;
    const last = this.draft.options.length - 1;
    return h(
      "li",
      {},
      name,
      description,
      h(
        "div",
        { class: "option-tools" },
        this.#optionButton("up", "↑", D.moveUp(word, position), index === 0, () =>
          this.#moveOption(index, -1),
        ),
        this.#optionButton("down", "↓", D.moveDown(word, position), index === last, () =>
          this.#moveOption(index, 1),
        ),
        this.#optionButton("drop", "×", D.removeOption(word, position), false, () =>
          this.#removeOption(index),
        ),
      ),
    );
  }

  /**
   * @param {string} role @param {string} sign @param {string} label @param {boolean} off @param {() => void} act
   */
  #optionButton(role, sign, label, off, act) {
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
