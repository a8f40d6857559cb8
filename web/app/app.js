// The page: wires the view, the questions and the engine. All of the work happens behind createEngine, in a
// worker; what is here only starts it, stops it, and shows what comes back.
//
// Address parameters: device=auto|webgpu|wasm, format=NAME, candidates=A,B (self-test candidates to allow),
// auto=1 (decide at once).

import { createEngine } from "../index.js";
import { QuestionCard } from "./card.js";
import { draftFromWire, newDraft } from "./draft.js";
import { errorCode } from "./failure.js";
import { isOff } from "./dom.js";
import { keepRuntime, prepare } from "./offline.js";
import { Scoring } from "./run.js";
import { S } from "./strings.js";
import { View } from "./view.js";

/** @typedef {import("./run.js").Engine} Engine */
/** @typedef {import("./run.js").Job} Job */
/** @typedef {import("./draft.js").SampleQuestion} SampleQuestion */
/** @typedef {import("../index.js").EngineOptions} EngineOptions */

/**
 * The engine's options from the page's address.
 * @param {URLSearchParams} parameters
 * @returns {EngineOptions}
 */
function optionsFromAddress(parameters) {
  /** @type {EngineOptions} */
  const options = {};
  const device = parameters.get("device");
  const format = parameters.get("format");
  const candidates = parameters.get("candidates");
  // An unknown device is not replaced by a default here: the library refuses it and says so.
  if (device !== null) options.device = /** @type {EngineOptions["device"]} */ (device);
  if (format !== null) options.format = format;
  if (candidates !== null) options.candidates = candidates.split(",");
  return options;
}

class Page {
  /** @param {URLSearchParams} parameters */
  constructor(parameters) {
    this.options = optionsFromAddress(parameters);
    this.view = new View();
    /** @type {QuestionCard[]} */
    this.cards = [];
    /** @type {Promise<Engine> | null} */
    this.engine = null;
    /** @type {AbortController | null} */
    this.running = null;
    /** @type {AbortController | null} */
    this.loadingControl = null;
  }

  /** @param {{state: string, questions: Record<string, SampleQuestion>}} sample */
  start(sample) {
    const { view } = this;
    view.mount(document.body);
    view.setBusy(false);
    view.state.value = sample.state;
    view.state.addEventListener("input", () => this.#stateChanged());
    view.decide.addEventListener("click", () => this.decide());
    view.stop.addEventListener("click", () => this.stop());
    view.add.addEventListener("click", () => this.#addQuestion());
    document.addEventListener("keydown", (event) => this.#onKeydown(event));
    for (const [id, wire] of Object.entries(sample.questions)) this.#append(draftFromWire(id, wire));
    this.#stateChanged();
  }

  /** @param {KeyboardEvent} event */
  #onKeydown(event) {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.isComposing) return;
    event.preventDefault();
    this.decide();
  }

  #stateChanged() {
    const state = this.view.state.value;
    this.view.setCharacters(state);
    for (const card of this.cards) card.setState(state);
  }

  /**
   * @param {import("./draft.js").Draft} draft
   * @returns {QuestionCard}
   */
  #append(draft) {
    const card = new QuestionCard(draft, { onRemove: (removed) => this.#remove(removed) });
    card.setState(this.view.state.value);
    this.cards.push(card);
    this.view.cards.append(card.element);
    this.view.setQuestionCount(this.cards.length);
    return card;
  }

  #addQuestion() {
    this.#append(newDraft(new Set(this.cards.map((card) => card.draft.id)))).edit();
  }

  /** @param {QuestionCard} card */
  #remove(card) {
    const index = this.cards.indexOf(card);
    this.cards.splice(index, 1);
    card.removed = true;
    card.element.remove();
    this.view.setQuestionCount(this.cards.length);
    this.view.announce(S.removed(card.title));
    const next = this.cards[Math.min(index, this.cards.length - 1)];
    if (next) next.focusTools();
    else this.view.add.focus();
  }

  /**
   * The engine, loaded once; a load that failed is forgotten, so that the next call tries again.
   * @returns {Promise<Engine>}
   */
  load() {
    if (this.engine) return this.engine;
    this.engine = this.#load();
    this.engine.catch(() => (this.engine = null));
    return this.engine;
  }

  /** @returns {Promise<Engine>} */
  async #load() {
    const { view } = this;
    this.loadingControl = new AbortController();
    view.setLoading(true);
    view.panel.clear();
    view.announce(S.loadingLabel);
    try {
      const { signal } = this.loadingControl;
      const engine = await this.#create(signal);
      keepRuntime(engine.info.ort.build);
      view.loading.showReady(engine.info);
      view.panel.show(engine.info);
      view.offerReadings(engine.info);
      view.announce(S.ready);
      return engine;
    } catch (error) {
      const aborted = errorCode(error) === "ABORTED";
      view.loading.showHalted(aborted ? S.loadStopped : S.loadFailed);
      view.panel.showFailure(error);
      throw error;
    } finally {
      this.loadingControl = null;
      view.setLoading(this.running !== null);
    }
  }

  /**
   * An engine that keeps its weights, or one that does not where the browser has no room for them.
   * @param {AbortSignal} signal
   */
  async #create(signal) {
    /** @type {EngineOptions} */
    const options = {
      ...this.options,
      signal,
      onProgress: (progress) => this.view.loading.show(progress),
    };
    try {
      return await createEngine(options);
    } catch (error) {
      if (errorCode(error) !== "QUOTA") throw error;
      return createEngine({ ...options, keepWeights: false });
    }
  }

  /** Loads the model before anybody asks for an answer; what goes wrong is shown. */
  async preload() {
    try {
      await this.load();
    } catch (error) {
      // A run that waits for the model reports its own failure.
      if (errorCode(error) !== "ABORTED" && !this.running)
        this.view.showAlert("load", error, () => this.#retryLoad());
    }
  }

  #retryLoad() {
    this.view.clearAlerts();
    this.view.decide.focus();
    this.preload();
  }

  stop() {
    if (isOff(this.view.stop)) return;
    this.loadingControl?.abort();
    this.running?.abort();
  }

  /** Answers every question about the text, all as they and the way of reading stand now. */
  async decide() {
    const { view } = this;
    if (this.running) return;
    if (this.cards.length === 0) return this.#say(S.noQuestions, 0);
    for (const card of this.cards) card.close();
    const state = view.state.value;
    const reading = view.reading;
    /** @type {Job[]} */
    const jobs = this.cards.map((card) => ({ card, wire: card.wire }));
    this.running = new AbortController();
    view.setBusy(true);
    view.clearAlerts();
    view.stats.clear();
    for (const { card } of jobs) card.setPhase("waiting");
    try {
      await this.#run(jobs, { state, reading, signal: this.running.signal });
    } finally {
      for (const { card } of jobs) card.setPhase("idle");
      this.running = null;
      view.setBusy(false);
    }
  }

  /**
   * @param {readonly Job[]} jobs
   * @param {{state: string, reading: import("./run.js").Reading | null, signal: AbortSignal}} options a reading of null
   *   is the bundle's own
   */
  async #run(jobs, options) {
    const { view } = this;
    const { state, signal } = options;
    /** @type {"load" | "run"} */
    let step = "load";
    let answered = 0;
    try {
      view.setRun(S.waitingForModel, 0);
      const engine = await this.load();
      step = "run";
      signal.throwIfAborted();
      await this.#prefill(engine, state, signal);
      const present = jobs.filter(({ card }) => !card.removed);
      view.setRun(S.answering(0, present.length), 0);
      const onProgress = () => {
        answered = scoring.answered;
        view.setRun(S.answering(answered, present.length), (answered + scoring.failed) / present.length);
        view.stats.showTime(scoring.ms);
      };
      const reading = view.readingFor(engine.info, options.reading);
      const scoring = new Scoring(engine, { ...options, reading, onProgress });
      await scoring.run(present);
      const ms = scoring.ms;
      view.stats.showTime(ms);
      view.stats.showCost(scoring.cost);
      this.#say(S.finished(answered, scoring.failed, ms), 1);
    } catch (error) {
      this.#runFailed(error, step, signal, answered, jobs.length);
    }
  }

  /**
   * Reads the text; the engine keeps texts that it has read.
   * @param {Engine} engine @param {string} state @param {AbortSignal} signal
   */
  async #prefill(engine, state, signal) {
    this.view.setRun(S.readingText, 0);
    this.view.stats.showPrefill(await engine.prefill(state, { signal }));
  }

  /**
   * @param {unknown} error @param {"load" | "run"} step @param {AbortSignal} signal
   * @param {number} answered @param {number} all
   */
  #runFailed(error, step, signal, answered, all) {
    if (signal.aborted || errorCode(error) === "ABORTED") return this.#say(S.stopped(answered, all), 0);
    if (errorCode(error) === "DEVICE_LOST") {
      this.engine?.then((engine) => engine.close());
      this.engine = null;
      this.view.loading.showHalted(S.loadFailed);
    }
    this.#say(S.runFailed, 0);
    this.view.showAlert(step, error, () => this.#retryRun());
  }

  #retryRun() {
    this.view.decide.focus();
    this.decide();
  }

  /** @param {string} text @param {number} fraction */
  #say(text, fraction) {
    this.view.setRun(text, fraction);
    this.view.announce(text);
  }
}

/** @returns {Promise<{state: string, questions: Record<string, SampleQuestion>}>} */
async function fetchSample() {
  const response = await fetch(new URL("./sample.json", import.meta.url));
  if (!response.ok) throw new Error(`${response.url}: ${response.status} ${response.statusText}`);
  return response.json();
}

async function main() {
  const parameters = new URLSearchParams(location.search);
  const page = new Page(parameters);
  try {
    page.start(await fetchSample());
  } catch (error) {
    page.start({ state: "", questions: {} });
    page.view.showAlert("sample", error);
  }
  if (await prepare()) return;
  if (parameters.get("auto") === "1") page.decide();
  else page.preload();
}

main();
