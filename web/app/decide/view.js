// The tab's fixed parts and how they are laid out. Knows no engine and keeps no state of the work.

import { h, setBar, setOff } from "../dom.js";
import { CHOICES, READINGS, readingFor } from "../readings.js";
import { S, formatCount, formatMs } from "../strings.js";

/** @typedef {import("../readings.js").Reading} Reading */
/** @typedef {import("../readings.js").Bundled} Bundled */

const D = S.decide;

export class View {
  /** @param {{onReading: (reading: Reading) => void}} events */
  constructor(events) {
    this.events = events;
    this.state = h("textarea", {
      id: "state",
      class: "state",
      rows: 16,
      placeholder: D.textPlaceholder,
      spellcheck: "false",
    });
    this.characters = h("span", { class: "hint" });
    this.decide = h(
      "button",
      { type: "button", class: "primary", "aria-keyshortcuts": "Control+Enter Meta+Enter" },
      D.decide,
    );
    this.stop = h("button", { type: "button" }, D.stop);
    this.run = h("span", { class: "run-status" });
    this.runFill = h("span", { class: "fill" });
    this.cards = h("div", { class: "cards" });
    this.count = h("span", { class: "hint" });
    this.add = h("button", { type: "button", class: "add" }, D.addQuestion);
    this.readings = new Map(CHOICES.map((reading) => [reading, this.#readingInput(reading)]));
    this.empty = h("p", { class: "hint", hidden: true }, D.noQuestions);
    this.stats = statList();
  }

  /** @param {HTMLElement} root */
  mount(root) {
    const desk = h("div", { class: "desk" }, this.#textPart(), this.#actions());
    root.replaceChildren(h("div", { class: "columns" }, desk, this.#questionPart()));
  }

  #textPart() {
    const label = h("label", { class: "visually-hidden", for: "state" }, D.textLabel);
    return h(
      "section",
      { class: "text-part", "aria-labelledby": "text-heading" },
      h("div", { class: "part-head" }, h("h2", { id: "text-heading" }, D.textHeading), this.characters),
      label,
      this.state,
      this.stats.element,
    );
  }

  #actions() {
    return h(
      "div",
      { class: "actions" },
      h("div", { class: "buttons" }, this.decide, this.stop, h("kbd", {}, D.decideHint)),
      h(
        "div",
        { class: "run-line" },
        this.run,
        h("span", { class: "track thin", "aria-hidden": "true" }, this.runFill),
      ),
    );
  }

  #questionPart() {
    return h(
      "section",
      { class: "question-part", "aria-labelledby": "questions-heading" },
      h("div", { class: "part-head" }, h("h2", { id: "questions-heading" }, D.questionsHeading), this.count),
      h(
        "fieldset",
        { class: "readings" },
        h("legend", {}, S.readingLegend),
        ...CHOICES.map((reading) => this.#readingChoice(reading)),
      ),
      this.empty,
      this.cards,
      this.add,
    );
  }

  /** @param {Reading} reading */
  #readingInput(reading) {
    const id = `reading-${reading}`;
    return h("input", {
      type: "radio",
      name: "reading",
      id,
      "aria-describedby": `${id}-hint`,
      onchange: () => this.events.onReading(reading),
    });
  }

  /** @param {Reading} reading */
  #readingChoice(reading) {
    const input = /** @type {HTMLInputElement} */ (this.readings.get(reading));
    const { label, hint } = S.readings[reading];
    return h(
      "div",
      { class: "reading" },
      input,
      h("label", { for: input.id }, label),
      h("p", { id: `${input.id}-hint`, class: "hint" }, hint),
    );
  }

  /**
   * Offers what the bundle has, with the one chosen that is used.
   * @param {Bundled} info
   * @param {Reading | null} chosen
   */
  offerReadings(info, chosen) {
    for (const [reading, input] of this.readings) {
      input.disabled = !info.readouts.includes(READINGS[reading].readout);
    }
    /** @type {HTMLInputElement} */ (this.readings.get(readingFor(info, chosen))).checked = true;
  }

  /**
   * @param {boolean} busy whether a run is under way, so that another one has to wait
   * @param {boolean} loading whether the model is loading, which can be stopped too
   */
  setBusy(busy, loading) {
    setOff(this.decide, busy);
    setOff(this.stop, !busy && !loading);
  }

  /**
   * @param {string} text what the run is doing
   * @param {number} fraction how much of it is done
   */
  setRun(text, fraction) {
    this.run.textContent = text;
    setBar(this.runFill, fraction);
  }

  /** @param {number} count */
  setQuestionCount(count) {
    this.count.textContent = D.questionCount(count);
    this.empty.hidden = count > 0;
  }

  /** @param {string} state */
  setCharacters(state) {
    this.characters.textContent = D.characters([...state].length);
  }
}

/** The figures of a run: fixed places, filled in as they become known. */
function statList() {
  const names = D.stats;
  const values = {
    tokens: stat(),
    prefill: stat(),
    answers: stat(),
    tokensRun: stat(),
    tokensSaved: stat(),
    runs: stat(),
  };
  values.tokensRun.title = names.tokensRunHint;
  values.tokensSaved.title = names.tokensSavedHint;
  const rows = /** @type {(keyof typeof values)[]} */ (Object.keys(values)).map((key) =>
    h("div", { "data-stat": key }, h("dt", {}, names[key]), values[key]),
  );
  const element = h("dl", { class: "stats", "aria-label": names.heading }, ...rows);
  return {
    element,
    /** @param {import("../../index.js").Prefilled} prefilled */
    showPrefill({ tokens, kept, ms }) {
      values.tokens.textContent = formatCount(tokens);
      values.prefill.textContent = kept ? `${formatMs(ms)} (${names.kept})` : formatMs(ms);
      values.prefill.title = kept ? names.keptHint : "";
    },
    /** @param {number} ms since the scoring began */
    showTime(ms) {
      values.answers.textContent = formatMs(ms);
    },
    /** @param {import("./run.js").Cost | null} cost null where it is not known */
    showCost(cost) {
      values.runs.textContent = cost ? formatCount(cost.runs) : S.none;
      values.tokensRun.textContent = cost ? formatCount(cost.tokensRun) : S.none;
      values.tokensSaved.textContent = cost ? formatCount(cost.tokensSaved) : S.none;
    },
    clear() {
      for (const value of Object.values(values)) value.textContent = S.none;
    },
  };
}

function stat() {
  return h("dd", {}, S.none);
}
