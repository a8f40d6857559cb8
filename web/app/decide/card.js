// One question as a card: shown with its answer's bars, or as a form. Knows questions as drafts and answers as
// the library returns them; knows nothing of the engine or of the other cards.

import { h, isOff, setOff } from "../dom.js";
import { describeError } from "../failure.js";
import { icon } from "../icons.js";
import { S } from "../strings.js";
import { bars, foot, verdict } from "./answer.js";
import { wireFromDraft } from "./draft.js";
import { QuestionForm } from "./form.js";

const D = S.decide;

/** @typedef {import("./answer.js").Outcome} Outcome */
/** @typedef {import("./answer.js").Phase} Phase */
/** @typedef {import("./draft.js").Draft} Draft */
/** @typedef {import("./draft.js").WireQuestion} WireQuestion */

/**
 * What a card tells of itself.
 * @typedef {object} Events
 * @property {() => void} onChange its question has changed
 * @property {(card: QuestionCard) => void} onRemove
 * @property {(card: QuestionCard) => void} onDuplicate
 * @property {(card: QuestionCard, step: -1 | 1) => void} onMove
 * @property {(id: string, card: QuestionCard) => boolean} isTaken whether another card has an id
 */

let cardCount = 0;

export class QuestionCard {
  /**
   * @param {Draft} draft
   * @param {Events} events
   */
  constructor(draft, events) {
    this.draft = draft;
    this.events = events;
    /** @type {QuestionForm | null} */
    this.form = null;
    this.removed = false;
    /** @type {Phase} */
    this.phase = "idle";
    /** @type {Outcome | null} */
    this.outcome = null;
    /** @type {{wire: string, error: unknown} | null} */
    this.failure = null;
    this.currentState = "";
    this.place = { index: 0, count: 1 };
    this.titleId = `question-title-${++cardCount}`;
    this.element = h("article", {
      class: "card",
      "aria-labelledby": this.titleId,
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

  /** @param {number} index among the cards @param {number} count of cards */
  setPlace(index, count) {
    this.place = { index, count };
    for (const [role, off] of Object.entries(this.#ends())) {
      const button = this.#tool(role);
      if (button) setOff(button, off);
    }
  }

  /** By the button that leads further: whether the card is at that end. @returns {Record<string, boolean>} */
  #ends() {
    return { up: this.place.index === 0, down: this.place.index === this.place.count - 1 };
  }

  /** @returns {boolean} whether the answer is one for an earlier text */
  #isOld() {
    return this.outcome !== null && this.outcome.state !== this.currentState;
  }

  /** Opens the form and puts the cursor into it. */
  edit() {
    this.form = new QuestionForm(this.draft, {
      onChange: () => this.#changed(),
      isTaken: (id) => this.events.isTaken(id, this),
    });
    this.render();
    this.form.focus();
  }

  /** Closes the form, unless the question is not valid: then the form says why and stays. */
  close() {
    if (!this.form) return;
    const hadFocus = this.element.contains(document.activeElement);
    try {
      this.form.check();
    } catch (error) {
      this.failure = { wire: JSON.stringify(this.wire), error };
      return this.#refresh();
    }
    this.failure = null;
    this.form = null;
    this.render();
    if (hadFocus) this.focusTools();
  }

  /** Puts the focus on the button that opens the form, or on the one of a given role. @param {string} [role] */
  focusTools(role = "edit") {
    this.#tool(role)?.focus();
  }

  /** @param {string} role @returns {HTMLElement | null} */
  #tool(role) {
    return this.element.querySelector(`.tools .${role}`);
  }

  /** Builds the card anew, as a form or as an answer. */
  render() {
    this.element.classList.toggle("editing", this.form !== null);
    this.element.dataset.question = this.draft.id;
    this.element.replaceChildren(this.#header(), ...(this.form ? [this.form.element] : this.#answer()));
    this.#refresh();
  }

  /** Shows in the header what was typed into the form, and tells the others. */
  #changed() {
    this.failure = null;
    this.element.dataset.question = this.draft.id;
    for (const [selector, text] of Object.entries({
      h3: this.title,
      ".kind": S.kinds[this.draft.kind],
      ".id": this.draft.id,
    })) {
      const part = this.element.querySelector(`.card-head ${selector}`);
      if (part) part.textContent = text;
    }
    this.#refresh();
    this.events.onChange();
  }

  /** Updates what a run changes, and leaves a form that is open alone. */
  #refresh() {
    this.element.setAttribute("aria-busy", String(this.phase === "running"));
    if (!this.form) return this.#refreshAnswer();
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
    if (event.key === "Escape" && this.form) {
      event.preventDefault();
      this.close();
    } else if (event.altKey && !this.form && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
      event.preventDefault();
      this.events.onMove(this, event.key === "ArrowUp" ? -1 : 1);
    }
  }

  #header() {
    const { title, draft } = this;
    const tools = this.form
      ? [h("button", { type: "button", class: "quiet", onclick: () => this.close() }, D.done)]
      : [
          this.#button("up", D.moveUpNamed(title), () => this.events.onMove(this, -1), "Alt+ArrowUp"),
          this.#button("down", D.moveDownNamed(title), () => this.events.onMove(this, 1), "Alt+ArrowDown"),
          this.#button("copy", D.duplicateNamed(title), () => this.events.onDuplicate(this)),
          this.#button("edit", D.editNamed(title), () => this.edit()),
          this.#button("remove", D.removeNamed(title), () => this.events.onRemove(this)),
        ];
    return h(
      "header",
      { class: "card-head" },
      h("span", { class: "kind" }, S.kinds[draft.kind]),
      h("code", { class: "id", title: D.idHint }, draft.id),
      h("div", { class: "tools" }, ...tools),
      h("h3", { id: this.titleId }, title),
    );
  }

  /**
   * @param {keyof typeof D.tools} role
   * @param {string} label
   * @param {() => void} act
   * @param {string} [keys]
   */
  #button(role, label, act, keys) {
    const button = h(
      "button",
      {
        type: "button",
        class: `square ${role}`,
        "aria-label": label,
        "aria-keyshortcuts": keys,
        title: D.tools[role],
        onclick: () => {
          if (!isOff(button)) act();
        },
      },
      icon(role),
    );
    setOff(button, this.#ends()[role] ?? false);
    return button;
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
    const parts = [
      verdict(outcome, this.outcome !== null),
      bars(this.draft, outcome),
      foot(outcome, old, this.phase),
    ];
    return failure ? [...parts, failure] : parts;
  }
}
