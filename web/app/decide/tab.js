// The Decide tab: wires its view, its question cards and the workbench's engine. What is here only starts the work,
// stops it, and shows what comes back.

import { errorCode } from "../failure.js";
import { isOff } from "../dom.js";
import { readingFor } from "../readings.js";
import { S } from "../strings.js";
import { fetchSample } from "../samples.js";
import { QuestionCard } from "./card.js";
import { copyDraft, draftFromWire, newDraft } from "./draft.js";
import { ExchangeDialog } from "./exchange_dialog.js";
import { ImportError, exportQuestions, importQuestions } from "./exchange.js";
import { Scoring } from "./run.js";
import { View } from "./view.js";

/** @typedef {import("../workbench.js").Workbench} Workbench */
/** @typedef {import("./run.js").Engine} Engine */
/** @typedef {import("./run.js").Job} Job */
/**
 * A step that can be undone, or done again: what was there before, the text only where the step changed it too.
 * @typedef {{what: string, undone: boolean, cards: QuestionCard[], text: string | null}} Step
 */

const D = S.decide;

class Decide {
  /** @param {HTMLElement} panel @param {Workbench} workbench */
  constructor(panel, workbench) {
    this.panel = panel;
    this.workbench = workbench;
    this.view = new View({
      onReading: (reading) => (workbench.reading = reading),
      onSample: (name) => this.#loadSample(name),
    });
    this.exchange = new ExchangeDialog({
      onApply: (text) => this.#import(text),
      announce: (text) => workbench.announce(text),
    });
    /** @type {QuestionCard[]} */
    this.cards = [];
    /** What the last large step took away, or the last undo. @type {Step | null} */
    this.other = null;
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
    view.undo.addEventListener("click", () => this.#undo());
    view.json.addEventListener("click", () => this.exchange.show(exportQuestions(this.#wires())));
    this.panel.append(this.exchange.element);
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
    if (JSON.stringify(questions) === JSON.stringify(this.#wires())) return;
    const drafts = Object.entries(questions).map(([id, wire]) => draftFromWire(id, wire));
    this.#lay(drafts.map((draft) => this.#makeCard(draft)));
  }

  #wires() {
    return Object.fromEntries(this.cards.map((card) => [card.draft.id, card.wire]));
  }

  /** Tells the workbench what the cards say. */
  #publish() {
    this.workbench.setQuestions(this.#wires());
  }

  /**
   * Shows these cards, in this order; one that was there before keeps its answer.
   * @param {readonly QuestionCard[]} cards
   */
  #lay(cards) {
    for (const card of this.cards) card.removed = true;
    this.cards = [...cards];
    this.cards.forEach((card, index) => {
      card.removed = false;
      card.setState(this.workbench.text);
      card.setPlace(index, cards.length);
    });
    this.view.cards.replaceChildren(...cards.map((card) => card.element));
    this.view.setQuestionCount(cards.length);
  }

  /**
   * Lays other cards and tells the workbench.
   * @param {readonly QuestionCard[]} cards
   */
  #change(cards) {
    this.#lay(cards);
    this.#publish();
  }

  /**
   * @param {import("./draft.js").Draft} draft
   * @returns {QuestionCard}
   */
  #makeCard(draft) {
    return new QuestionCard(draft, {
      onChange: () => this.#publish(),
      onRemove: (card) => this.#remove(card),
      onDuplicate: (card) => this.#duplicate(card),
      onMove: (card, step) => this.#move(card, step),
      isTaken: (id, card) => this.cards.some((other) => other !== card && other.draft.id === id),
    });
  }

  #ids() {
    return new Set(this.cards.map((card) => card.draft.id));
  }

  #addQuestion() {
    const card = this.#makeCard(newDraft(this.#ids()));
    this.#forget();
    this.#change([...this.cards, card]);
    card.edit();
  }

  /** @param {QuestionCard} card */
  #duplicate(card) {
    const copy = this.#makeCard(copyDraft(card.draft, this.#ids()));
    const index = this.cards.indexOf(card);
    this.#forget();
    this.#change(this.cards.toSpliced(index + 1, 0, copy));
    copy.edit();
    this.workbench.announce(D.duplicated(card.title));
  }

  /** @param {QuestionCard} card @param {-1 | 1} step */
  #move(card, step) {
    const index = this.cards.indexOf(card);
    const to = index + step;
    if (to < 0 || to >= this.cards.length) return;
    this.#change(this.cards.toSpliced(index, 1).toSpliced(to, 0, card));
    card.focusTools(step < 0 ? "up" : "down");
    card.element.scrollIntoView({ block: "nearest" });
    this.workbench.announce(D.moved(card.title, to + 1, this.cards.length));
  }

  /** @param {QuestionCard} card */
  #remove(card) {
    const index = this.cards.indexOf(card);
    this.#remember(D.removed(card.title), null);
    this.#change(this.cards.toSpliced(index, 1));
    this.workbench.announce(D.removed(card.title));
    const next = this.cards[Math.min(index, this.cards.length - 1)];
    if (next) next.focusTools();
    else this.view.add.focus();
  }

  /** Keeps what a step is about to take away. @param {string} what @param {string | null} text where it goes too */
  #remember(what, text) {
    this.#offer({ what, undone: false, cards: this.cards, text });
  }

  #forget() {
    this.#offer(null);
  }

  /** @param {Step | null} step */
  #offer(step) {
    this.other = step;
    this.view.setUndo(step?.what ?? null, step?.undone ?? false);
  }

  /** Undoes the last large step, or does it again: what is there takes the place of what was, and nothing is lost. */
  #undo() {
    if (!this.other) return;
    const { what, undone, cards, text } = this.other;
    const { workbench } = this;
    this.#offer({ what, undone: !undone, cards: this.cards, text: text === null ? null : workbench.text });
    if (text !== null) workbench.text = text;
    this.#change(cards);
    workbench.announce(undone ? D.redone : D.undone);
  }

  /** @param {import("./view.js").SampleName} name */
  async #loadSample(name) {
    this.workbench.clearAlerts();
    try {
      const sample = await fetchSample(name);
      this.#replace(sample.questions, sample.state, D.sampleLoaded(D.samples[name]));
    } catch (error) {
      this.workbench.alert("sample", error, () => this.#loadSample(name));
    }
  }

  /**
   * @param {string} text
   * @returns {readonly import("./exchange.js").Fault[]} what is wrong with it; nothing was changed then
   */
  #import(text) {
    try {
      const { questions, state } = importQuestions(text);
      this.#replace(questions, state, D.json.applied(Object.keys(questions).length));
      return [];
    } catch (error) {
      if (error instanceof ImportError) return error.faults;
      throw error;
    }
  }

  /**
   * @param {Record<string, import("../../index.js").Question>} questions
   * @param {string | null} state the text, null to leave it
   * @param {string} what happened
   */
  #replace(questions, state, what) {
    this.#remember(what, state === null ? null : this.workbench.text);
    if (state !== null) this.workbench.text = state;
    this.workbench.setQuestions(questions);
    this.workbench.announce(what);
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
