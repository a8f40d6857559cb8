// The page's fixed parts and how they are laid out. Knows no engine and keeps no state of the work.

import { h, setBar, setOff } from "./dom.js";
import { DevicePanel, LoadingStrip } from "./panel.js";
import { S, formatCount, formatMs } from "./strings.js";
import { describeError } from "./failure.js";
import { READINGS } from "./run.js";

/** @typedef {"load" | "run" | "sample"} AlertKind */
/** @typedef {import("./run.js").Reading} Reading */
/** @typedef {Pick<import("../index.js").Info, "readout" | "readouts">} Bundled the readouts of a bundle */

const CHOICES = /** @type {Reading[]} */ (Object.keys(READINGS));

export class View {
  constructor() {
    this.loading = new LoadingStrip();
    this.panel = new DevicePanel();
    this.alerts = h("div", { class: "alerts" });
    this.state = h("textarea", {
      id: "state",
      class: "state",
      rows: 16,
      placeholder: S.textPlaceholder,
      spellcheck: "false",
    });
    this.characters = h("span", { class: "hint" });
    this.decide = h(
      "button",
      { type: "button", class: "primary", "aria-keyshortcuts": "Control+Enter Meta+Enter" },
      S.decide,
    );
    this.stop = h("button", { type: "button" }, S.stop);
    this.run = h("span", { class: "run-status" });
    this.runFill = h("span", { class: "fill" });
    this.announcer = h("p", { class: "visually-hidden", role: "status" });
    this.cards = h("div", { class: "cards" });
    this.count = h("span", { class: "hint" });
    this.add = h("button", { type: "button", class: "add" }, S.addQuestion);
    /** @type {Reading | null} null until it is chosen: by the user, or else by the bundle */
    this.reading = null;
    this.readings = new Map(CHOICES.map((reading) => [reading, this.#readingInput(reading)]));
    this.empty = h("p", { class: "hint", hidden: true }, S.noQuestions);
    this.stats = statList();
  }

  /** @param {HTMLElement} root */
  mount(root) {
    root.replaceChildren(
      h(
        "header",
        { class: "masthead" },
        h("div", { class: "brand" }, h("h1", {}, S.title), h("p", {}, S.tagline)),
        this.loading.element,
      ),
      h(
        "main",
        {},
        this.alerts,
        h(
          "div",
          { class: "columns" },
          h("div", { class: "desk" }, this.#textPart(), this.#actions()),
          this.#questionPart(),
        ),
        this.panel.element,
      ),
      this.announcer,
    );
  }

  #textPart() {
    const label = h("label", { class: "visually-hidden", for: "state" }, S.textLabel);
    return h(
      "section",
      { class: "text-part", "aria-labelledby": "text-heading" },
      h("div", { class: "part-head" }, h("h2", { id: "text-heading" }, S.textHeading), this.characters),
      label,
      this.state,
      this.stats.element,
    );
  }

  #actions() {
    return h(
      "div",
      { class: "actions" },
      h("div", { class: "buttons" }, this.decide, this.stop, h("kbd", {}, S.decideHint)),
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
      h("div", { class: "part-head" }, h("h2", { id: "questions-heading" }, S.questionsHeading), this.count),
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
      onchange: () => (this.reading = reading),
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
   * Offers what the bundle has, and chooses its own way unless the user has chosen one that it has.
   * @param {Bundled} info
   */
  offerReadings(info) {
    for (const [reading, input] of this.readings) {
      input.disabled = !info.readouts.includes(READINGS[reading].readout);
    }
    this.reading = this.readingFor(info, this.reading);
    /** @type {HTMLInputElement} */ (this.readings.get(this.reading)).checked = true;
  }

  /**
   * The way to read that was chosen, where the bundle has it; else the one that is best for its model.
   * @param {Bundled} info
   * @param {Reading | null} chosen
   */
  readingFor({ readout, readouts }, chosen) {
    if (chosen && readouts.includes(READINGS[chosen].readout)) return chosen;
    return /** @type {Reading} */ (CHOICES.find((reading) => READINGS[reading].readout === readout));
  }

  /** @param {boolean} busy whether something can be stopped, and another run has to wait */
  setBusy(busy) {
    setOff(this.decide, busy);
    setOff(this.stop, !busy);
  }

  /** @param {boolean} loading whether the model is loading, which can be stopped too */
  setLoading(loading) {
    setOff(this.stop, !loading);
  }

  /**
   * @param {string} text what the run is doing
   * @param {number} fraction how much of it is done
   */
  setRun(text, fraction) {
    this.run.textContent = text;
    setBar(this.runFill, fraction);
  }

  /** @param {string} text said by a screen reader; for starts and ends, not for every step */
  announce(text) {
    this.announcer.textContent = text;
  }

  /** @param {number} count */
  setQuestionCount(count) {
    this.count.textContent = S.questionCount(count);
    this.empty.hidden = count > 0;
  }

  /** @param {string} state */
  setCharacters(state) {
    this.characters.textContent = S.characters([...state].length);
  }

  clearAlerts() {
    this.alerts.replaceChildren();
  }

  /**
   * Says what failed, its code, and what to do.
   * @param {AlertKind} kind
   * @param {unknown} error
   * @param {() => void} [retry]
   */
  showAlert(kind, error, retry) {
    const { code, message, advice } = describeError(error);
    const alert = h(
      "div",
      { class: "alert", role: "alert", "data-code": code },
      h("p", {}, h("strong", {}, S.errorHeadings[kind]), " ", h("code", {}, code)),
      h("p", {}, message),
      h("p", { class: "advice" }, advice),
    );
    const again = retry ? h("button", { type: "button", onclick: retry }, S.retry) : null;
    const dismiss = h(
      "button",
      { type: "button", class: "quiet", onclick: () => this.#dismiss(alert) },
      S.dismiss,
    );
    alert.append(h("div", { class: "buttons" }, ...(again ? [again, dismiss] : [dismiss])));
    this.alerts.replaceChildren(alert);
    alert.scrollIntoView({ block: "nearest" });
  }

  /** @param {HTMLElement} alert */
  #dismiss(alert) {
    alert.remove();
    this.state.focus();
  }
}

/** The figures of a run: fixed places, filled in as they become known. */
function statList() {
  const names = S.stats;
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
    /** @param {import("../index.js").Prefilled} prefilled */
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
