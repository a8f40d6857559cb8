// The Decide tab: wires its view, its question cards and the workbench's engine. What is here only starts the work,
// stops it, and shows what comes back.

import { errorCode } from "../failure.js";
import { isOff } from "../dom.js";
import { readingFor } from "../readings.js";
import { S } from "../strings.js";
import { QuestionCard } from "./card.js";
import { draftFromWire, newDraft } from "./draft.js";
import { Scoring } from "./run.js";
import { View } from "./view.js";

/** @typedef {import("../workbench.js").Workbench} Workbench */
/** @typedef {import("./run.js").Engine} Engine */
/** @typedef {import("./run.js").Job} Job */

const D = S.decide;

class Decide {
  /** @param {HTMLElement} panel @param {Workbench} workbench */
  constructor(panel, workbench) {
    this.panel = panel;
    this.workbench = workbench;
    this.view = new View({ onReading: (reading) => (workbench.reading = reading) });
    /** @type {QuestionCard[]} */
    this.cards = [];
    /** @type {AbortController | null} */
    this.running = null;
  }

  start() {
    const { view, workbench } = this;
    view.mount(this.panel);
    view.state.addEventListener("input", () => (workbench.text = view.state.value));
    view.decide.addEventListener("click", () => this.decide());
    view.stop.addEventListener("click", () => this.stop());
    view.add.addEventListener("click", () => this.#addQuestion());
    document.addEventListener("keydown", (event) => this.#onKeydown(event));
    workbench.addEventListener("decide", () => this.decide());
    workbench.addEventListener("loading", () => this.#loadingChanged());
    workbench.addEventListener("text", () => this.#textChanged());
    workbench.addEventListener("questions", () => this.#questionsChanged());
    this.#loadingChanged();
    this.#textChanged();
    this.#questionsChanged();
  }

  /** @param {KeyboardEvent} event */
  #onKeydown(event) {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.isComposing) return;
    if (this.panel.hidden) return;
    event.preventDefault();
    this.decide();
  }

  #loadingChanged() {
    const { loading, reading } = this.workbench;
    if (loading.status === "ready") this.view.offerReadings(loading.info, reading);
    this.#showBusy();
  }

  #showBusy() {
    this.view.setBusy(this.running !== null, this.workbench.loading.status === "loading");
  }

  #textChanged() {
    const { text } = this.workbench;
    if (this.view.state.value !== text) this.view.state.value = text;
    this.view.setCharacters(text);
    for (const card of this.cards) card.setState(text);
  }

  /** Shows the workbench's questions, unless they are those of the cards. */
  #questionsChanged() {
    const { questions } = this.workbench;
    if (JSON.stringify(questions) !== JSON.stringify(this.#wires())) {
      for (const card of this.cards.splice(0)) this.#drop(card);
      for (const [id, wire] of Object.entries(questions)) this.#append(draftFromWire(id, wire));
    }
    this.view.setQuestionCount(this.cards.length);
  }

  #wires() {
    return Object.fromEntries(this.cards.map((card) => [card.draft.id, card.wire]));
  }

  /** Tells the workbench what the cards say. */
  #publish() {
    this.workbench.setQuestions(this.#wires());
  }

  /**
   * @param {import("./draft.js").Draft} draft
   * @returns {QuestionCard}
   */
  #append(draft) {
    const card = new QuestionCard(draft, {
      onRemove: (removed) => this.#remove(removed),
      onChange: () => this.#publish(),
    });
    card.setState(this.workbench.text);
    this.cards.push(card);
    this.view.cards.append(card.element);
    return card;
  }

  /** @param {QuestionCard} card */
  #drop(card) {
    card.removed = true;
    card.element.remove();
  }

  #addQuestion() {
    const card = this.#append(newDraft(new Set(this.cards.map((one) => one.draft.id))));
    this.#publish();
    card.edit();
  }

  /** @param {QuestionCard} card */
  #remove(card) {
    const index = this.cards.indexOf(card);
    this.cards.splice(index, 1);
    this.#drop(card);
    this.#publish();
    this.workbench.announce(D.removed(card.title));
    const next = this.cards[Math.min(index, this.cards.length - 1)];
    if (next) next.focusTools();
    else this.view.add.focus();
  }

  stop() {
    if (isOff(this.view.stop)) return;
    this.workbench.stopLoading();
    this.running?.abort();
  }

  /** Answers every question about the text, all as they and the way of reading stand now. */
  async decide() {
    const { view, workbench } = this;
    if (this.running) return;
    if (this.cards.length === 0) return this.#say(D.noQuestions, 0);
    for (const card of this.cards) card.close();
    const { text: state, reading } = workbench;
    /** @type {Job[]} */
    const jobs = this.cards.map((card) => ({ card, wire: card.wire }));
    this.running = new AbortController();
    this.#showBusy();
    workbench.clearAlerts();
    view.stats.clear();
    for (const { card } of jobs) card.setPhase("waiting");
    try {
      await this.#run(jobs, { state, reading, signal: this.running.signal });
    } finally {
      for (const { card } of jobs) card.setPhase("idle");
      this.running = null;
      this.#showBusy();
    }
  }

  /**
   * @param {readonly Job[]} jobs
   * @param {{state: string, reading: import("../readings.js").Reading | null, signal: AbortSignal}} options a reading of
   *   null is the bundle's own
   */
  async #run(jobs, options) {
    const { view } = this;
    const { state, signal } = options;
    /** @type {"load" | "run"} */
    let step = "load";
    let answered = 0;
    try {
      view.setRun(D.waitingForModel, 0);
      const engine = await this.workbench.engine();
      step = "run";
      signal.throwIfAborted();
      await this.#prefill(engine, state, signal);
      const present = jobs.filter(({ card }) => !card.removed);
      view.setRun(D.answering(0, present.length), 0);
      const onProgress = () => {
        answered = scoring.answered;
        view.setRun(D.answering(answered, present.length), (answered + scoring.failed) / present.length);
        view.stats.showTime(scoring.ms);
      };
      const reading = readingFor(engine.info, options.reading);
      const scoring = new Scoring(engine, { ...options, reading, onProgress });
      await scoring.run(present);
      const ms = scoring.ms;
      view.stats.showTime(ms);
      view.stats.showCost(scoring.cost);
      this.#say(D.finished(answered, scoring.failed, ms), 1);
    } catch (error) {
      this.#runFailed(error, step, signal, answered, jobs.length);
    }
  }

  /**
   * Reads the text; the engine keeps texts that it has read.
   * @param {Engine} engine @param {string} state @param {AbortSignal} signal
   */
  async #prefill(engine, state, signal) {
    this.view.setRun(D.readingText, 0);
    this.view.stats.showPrefill(await engine.prefill(state, { signal }));
  }

  /**
   * @param {unknown} error @param {"load" | "run"} step @param {AbortSignal} signal
   * @param {number} answered @param {number} all
   */
  #runFailed(error, step, signal, answered, all) {
    if (signal.aborted || errorCode(error) === "ABORTED") return this.#say(D.stopped(answered, all), 0);
    if (errorCode(error) === "DEVICE_LOST") this.workbench.discardEngine();
    this.#say(D.runFailed, 0);
    this.workbench.alert(step, error, () => this.#retryRun());
  }

  #retryRun() {
    this.view.decide.focus();
    this.decide();
  }

  /** @param {string} text @param {number} fraction */
  #say(text, fraction) {
    this.view.setRun(text, fraction);
    this.workbench.announce(text);
  }
}

/**
 * @param {HTMLElement} panel
 * @param {Workbench} workbench
 * @returns {Promise<import("../tabs.js").Mounted>}
 */
export async function mount(panel, workbench) {
  new Decide(panel, workbench).start();
  return {};
}
