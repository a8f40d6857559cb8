// The tab's fixed parts and how they are laid out. Knows no engine and keeps no state of the work.

import { h, setBar, setOff } from "../dom.js";
import { CHOICES, READINGS, readingFor } from "../readings.js";
import { S, formatCount, formatMs } from "../strings.js";

/** @typedef {import("../readings.js").Reading} Reading */
/** @typedef {import("../readings.js").Bundled} Bundled */
/** @typedef {keyof typeof S.decide.samples} SampleName */

const D = S.decide;

export class View {
  /**
   * @param {object} events
   * @param {(reading: Reading) => void} events.onReading
   * @param {(name: SampleName) => void} events.onSample
   */
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
    this.undo = h("button", { type: "button", class: "quiet", hidden: true }, D.undo);
    this.json = h("button", { type: "button", class: "quiet" }, D.json.button);
    this.readings = new Map(CHOICES.map((reading) => [reading, this.#readingInput(reading)]));
    this.readingHint = h("p", { class: "hint reading-hint", "aria-hidden": "true" }, D.readingUnknown);
    this.empty = h("p", { class: "hint", hidden: true }, D.noQuestions);
    this.stats = statList();
  }

  /** @param {HTMLElement} root */
  mount(root) {
    const desk = h("div", { class: "desk" }, this.#textPart(), this.#actions());
    root.replaceChildren(this.#samples(), h("div", { class: "columns" }, desk, this.#questionPart()));
  }

  #samples() {
    const names = /** @type {SampleName[]} */ (Object.keys(D.samples));
    const buttons = names.map((name) =>
      h(
        "button",
        { type: "button", class: "chip", "data-sample": name, onclick: () => this.events.onSample(name) },
        D.samples[name],
      ),
    );
    return h(
      "div",
      { class: "samples", role: "group", "aria-labelledby": "samples-label" },
      h("span", { id: "samples-label", class: "samples-label" }, D.samplesLabel),
      ...buttons,
      h("span", { class: "hint" }, D.samplesHint),
    );
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
    const heading = h("h2", { id: "questions-heading" }, D.questionsHeading);
    const tools = h("div", { class: "part-tools" }, this.undo, this.json);
    return h(
      "section",
      { class: "question-part", "aria-labelledby": "questions-heading" },
      h("div", { class: "part-head" }, heading, this.count, tools),
      h(
        "fieldset",
        { class: "readings" },
        h("legend", {}, S.readingLegend),
        h("div", { class: "segments" }, ...CHOICES.map((reading) => this.#readingChoice(reading))),
        this.readingHint,
      ),
      this.empty,
      this.cards,
      this.add,
    );
  }

  /** @param {Reading} reading */
  #readingInput(reading) {
    return h("input", {
      type: "radio",
      name: "reading",
      "aria-describedby": `reading-${reading}-hint`,
      onchange: () => {
        this.readingHint.textContent = S.readings[reading].hint;
        this.events.onReading(reading);
      },
    });
  }

  /** @param {Reading} reading */
  #readingChoice(reading) {
    const input = /** @type {HTMLInputElement} */ (this.readings.get(reading));
    const { label, hint } = S.readings[reading];
    // Each has its hint for screen readers; the one that is chosen is also shown, in a place that is always there.
    const description = h("span", { id: `reading-${reading}-hint`, hidden: true }, hint);
    return h("label", { class: "segment" }, input, h("span", {}, label), description);
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
    const used = readingFor(info, chosen);
    /** @type {HTMLInputElement} */ (this.readings.get(used)).checked = true;
    this.readingHint.textContent = S.readings[used].hint;
  }

  /**
   * @param {boolean} busy whether a run is under way, so that another one has to wait
   * @param {boolean} loading whether the model is loading, which can be stopped too
   */
  setBusy(busy, loading) {
    setOff(this.decide, busy);
    setOff(this.stop, !busy && !loading);
  }

  /** @param {string | null} what can be undone, null for nothing @param {boolean} undone done again, rather */
  setUndo(what, undone) {
    this.undo.hidden = what === null;
    this.undo.textContent = undone ? D.redo : D.undo;
    if (what !== null) this.undo.setAttribute("aria-label", undone ? D.redoNamed(what) : D.undoNamed(what));
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
