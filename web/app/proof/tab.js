// The Proof tab: starts what is measured, stops it, shows what comes back, and gives it away as JSON.

import { createEngine } from "../../index.js";
import { copyText, download } from "../clipboard.js";
import { isOff } from "../dom.js";
import { errorCode } from "../failure.js";
import { S, formatMs } from "../strings.js";
import { checksOf } from "./checks.js";
import { compareFormats, measure, planOf, stepsOf } from "./measure.js";
import { ProofView } from "./view.js";

/** @typedef {import("../workbench.js").Workbench} Workbench */
/** @typedef {import("../../index.js").Engine} Engine */
/** @typedef {import("../../index.js").Info} Info */
/** @typedef {import("./measure.js").Plan} Plan */
/** @typedef {import("./measure.js").Found} Found */
/** @typedef {import("./measure.js").FormatDrift} FormatDrift */
/** @typedef {import("./view.js").Manifest} Manifest */

const P = S.proof;

class Proof {
  /**
   * @param {Workbench} workbench
   * @param {Manifest} manifest
   * @param {Record<string, import("../../index.js").Question>} more questions, where the page's are too few
   */
  constructor(workbench, manifest, more) {
    this.workbench = workbench;
    this.manifest = manifest;
    this.more = more;
    /** @type {AbortController | null} */
    this.running = null;
    /** @type {Info | null | undefined} of the engine that is shown, undefined at the start */
    this.shown = undefined;
    /** @type {{info: Info, plan: Plan, found: Found, date: string, formats: FormatDrift | null} | null} */
    this.last = null;
    this.view = new ProofView({
      onMeasure: () => this.measure(),
      onStop: () => !isOff(this.view.stop) && this.running?.abort(),
      onDownload: () => !isOff(this.view.download) && this.#download(),
      onCopy: () => !isOff(this.view.copy) && this.#copy(),
      onCompare: () => this.compare(),
      onEffort: () => this.#changed(),
    });
  }

  /** @param {HTMLElement} panel */
  async start(panel) {
    const { view, workbench } = this;
    await view.mount(panel);
    for (const event of ["text", "questions"]) {
      workbench.addEventListener(event, () => {
        // Nothing says that a comparison is about the earlier ones.
        if (!this.running) view.comparison.textContent = "";
        this.#changed();
      });
    }
    workbench.addEventListener("loading", () => this.#loadingChanged());
    this.#loadingChanged();
  }

  /** The text or the questions are others: figures that are there are of the earlier ones, and say so. */
  #changed() {
    if (this.last) this.#showOf();
    else this.#show(this.#plan(this.workbench.info), {});
  }

  /** Shows what is known of the engine, when it is another one than before; most events only say how far a load is. */
  #loadingChanged() {
    const { info } = this.workbench;
    if (info === this.shown) return;
    this.shown = info;
    this.view.showBundle(this.manifest, info);
    // What was measured stays, unless another engine took the place of the one that it is of.
    if (this.last && info && this.last.info !== info && !this.running) {
      this.last = null;
      this.view.setOf("");
      this.view.setExportable(false);
    }
    if (!this.last) this.#show(this.#plan(info), {});
  }

  /** @param {Info | null} info null while the engine is not loaded: the bundle's own way of reading is meant then */
  #plan(info) {
    const { readout: own } = this.manifest;
    const { text, questions } = this.workbench;
    const { readout = own } = info ? this.workbench.askOptions(info) : {};
    return planOf({ text, questions, more: this.more, readout, effort: this.view.effort });
  }

  /** @param {Plan} plan @param {Found} found */
  #show(plan, found) {
    const { info } = this.workbench;
    const { selftest, formats, default_format: usual } = this.manifest;
    const format = formats[info?.format ?? usual];
    const checks = checksOf(info, format.tolerance ?? selftest.tolerance, plan.readout, found);
    const bytes = { weights: format.bytes, token: info?.tokenBytes ?? null };
    this.view.show(plan, found, checks, bytes);
  }

  /** Says what the figures are about, and whether that is still what the Decide tab has. */
  #showOf() {
    if (!this.last) return;
    const { plan, found, info } = this.last;
    const { text, own, invalid, readout } = plan;
    const words = [
      P.measuredOn({
        characters: text.length,
        tokens: found.prefill?.tokens ?? null,
        questions: own.length,
        readout,
      }),
      ...(invalid.length > 0 ? [P.invalid(invalid)] : []),
      ...(asksTheSame(plan, this.#plan(info)) ? [] : [P.outdated]),
    ];
    this.view.setOf(words.join(" "));
  }

  /** Measures the text and the questions as they stand once nothing else needs the engine alone. */
  async measure() {
    const { view, workbench } = this;
    if (this.running) return;
    await this.#busy(
      () => this.measure(),
      (signal) => {
        const onWait = () => {
          view.setProgress(P.waitingForTable, 0);
          workbench.announce(P.waitingForTable);
        };
        return workbench.alone(() => this.#measure(signal), signal, onWait);
      },
    );
  }

  /** @param {AbortSignal} signal @returns {Promise<string>} what is said of its end */
  async #measure(signal) {
    const { view, workbench } = this;
    view.setProgress(P.waitingForModel, 0);
    const engine = await workbench.engine();
    signal.throwIfAborted();
    const { info } = engine;
    const plan = this.#plan(info);
    if (plan.own.length === 0) return P.noQuestions;
    const last = (this.last = { info, plan, found: {}, date: new Date().toISOString(), formats: null });
    view.comparison.textContent = "";
    this.#show(plan, {});
    this.#showOf();
    view.setExportable(false);
    workbench.announce(P.progressLabel);
    const [began, steps] = [performance.now(), stepsOf(plan)];
    const onStep = (/** @type {number} */ done, /** @type {Found} */ found) => {
      last.found = found;
      this.#show(plan, found);
      view.setProgress(P.progress(done, steps), done / steps);
      view.setExportable(true);
    };
    await measure(engine, plan, { signal, onStep });
    this.#showOf();
    return P.finished(performance.now() - began);
  }

  /** Asks the questions in fp32 too, where the bundle has it. */
  async compare() {
    const { view, workbench } = this;
    if (this.running) return;
    await this.#busy(
      () => this.compare(),
      async (signal) => {
        view.setProgress(P.comparing, 0);
        const engine = await workbench.engine();
        const { device, candidate } = engine.info;
        const plan = this.#plan(engine.info);
        if (plan.own.length === 0) return P.noQuestions;
        const options = { device, candidates: [candidate], format: "fp32", keepWeights: false, signal };
        const reference = await createEngine(options);
        try {
          const drift = await compareFormats(engine, reference, plan, signal);
          view.comparison.textContent = P.comparison(drift);
          // Figures of other questions do not get it.
          const { last } = this;
          const same = last !== null && last.info === engine.info && last.plan.readout === plan.readout;
          if (same && asksTheSame(last.plan, plan)) last.formats = drift;
        } finally {
          reference.close();
        }
        return P.compared;
      },
    );
  }

  /**
   * Does what can be stopped, and says how it ended.
   * @param {() => void} again
   * @param {(signal: AbortSignal) => Promise<string>} work gives what is said of its end
   */
  async #busy(again, work) {
    const { view, workbench } = this;
    this.running = new AbortController();
    const { signal } = this.running;
    view.setBusy(true);
    workbench.clearAlerts();
    let end = P.failed;
    let fraction = 0;
    try {
      end = await work(signal);
      fraction = 1;
    } catch (error) {
      if (signal.aborted || errorCode(error) === "ABORTED") end = P.stopped;
      else {
        if (errorCode(error) === "DEVICE_LOST") workbench.discardEngine();
        workbench.alert("proof", error, again);
      }
    } finally {
      this.running = null;
      view.setBusy(false);
    }
    view.setProgress(end, fraction);
    workbench.announce(end);
  }

  /** What was measured, without the text and without what was asked. */
  #json() {
    if (!this.last) return "";
    const { info, plan, found, date, formats } = this.last;
    const { typedecide, formats: known, selftest } = this.manifest;
    const result = {
      typedecide,
      date,
      browser: navigator.userAgent,
      cores: navigator.hardwareConcurrency,
      engine: info,
      effort: { name: plan.effort, counts: plan.counts, repeats: plan.repeats },
      readout: plan.readout,
      text: { characters: plan.text.length, tokens: found.prefill?.tokens ?? null },
      questions: plan.own.map(({ id }) => id),
      invalid: plan.invalid,
      checks: checksOf(info, known[info.format].tolerance ?? selftest.tolerance, plan.readout, found),
      ...found,
      drift: known[info.format].drift,
      against_fp32: formats,
    };
    return JSON.stringify(result, null, 2);
  }

  #download() {
    download("typedecide-proof.json", this.#json(), "application/json");
  }

  async #copy() {
    const said = (await copyText(this.#json())) ? P.copied : P.notCopied;
    this.workbench.announce(said);
    this.view.setStatus(said);
  }
}

/** @param {Plan} one @param {Plan} other @returns {boolean} whether both ask the same questions about one text */
function asksTheSame(one, other) {
  return one.text === other.text && JSON.stringify(one.own) === JSON.stringify(other.own);
}

/**
 * @param {string} path relative to this module
 * @returns {Promise<any>}
 */
async function fetchJson(path) {
  const response = await fetch(new URL(path, import.meta.url));
  if (!response.ok) throw new Error(S.notFetched(response.url));
  return response.json();
}

/**
 * @param {HTMLElement} panel
 * @param {Workbench} workbench
 * @returns {Promise<import("../tabs.js").Mounted>}
 */
export async function mount(panel, workbench) {
  const [manifest, more] = await Promise.all(
    ["../../manifest.json", "./more_questions.json"].map((path) => fetchJson(path)),
  );
  await new Proof(workbench, manifest, more).start(panel);
  return {};
}
