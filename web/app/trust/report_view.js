// The figures of the Trust tab as the page shows them, with the threshold picker. Knows no labels and no engine.

import { makeChart } from "../chart.js";
import { h } from "../dom.js";
import { S } from "../strings.js";
import { atThreshold, widest } from "./metrics.js";

/** @typedef {import("../chart.js").Chart} Chart */
/** @typedef {import("../chart_data.js").ChartSpec} ChartSpec */
/** @typedef {ReturnType<typeof import("./figures.js").figures> & {names: readonly string[], count: number}} Figures */

const T = S.trust;
/** An axis of shares. */
const SHARES = { range: /** @type {const} */ ([0, 1]), ticks: [0, 0.25, 0.5, 0.75, 1], format: T.tick };
/** A curve is drawn with so many points at most. */
const MOST_POINTS = 200;
/** Below this share of the answers the errors among them are too few to be drawn. */
const LEAST_COVERAGE = 0.05;

export class ReportView {
  /** @type {Figures | null} */
  #figures = null;
  /** @type {Map<string, Promise<Chart>>} */
  #charts = new Map();

  constructor() {
    this.figures = h("dl", { class: "trust-figures" });
    this.calibration = h("div", { class: "calibration" });
    this.coverage = h("div", {});
    this.confusion = h("table", { class: "confusion" });
    const change = () => this.#setThreshold(this.threshold.valueAsNumber);
    const slide = () => this.#setThreshold(this.slider.valueAsNumber);
    const bounds = { min: 0, max: 1, step: 0.001, value: 0 };
    this.threshold = h("input", { type: "number", id: "trust-threshold", ...bounds, oninput: change });
    this.slider = h("input", { type: "range", ...bounds, "aria-label": T.threshold, oninput: slide });
    this.errorRate = h("input", { type: "number", id: "trust-error", min: 0, max: 100, step: 0.5, value: 5 });
    this.kept = h("p", { class: "kept", role: "status" });
    const find = h("button", { type: "button", onclick: () => this.#find() }, T.findThreshold);
    this.element = h(
      "div",
      { class: "report", hidden: true },
      this.figures,
      part(T.calibrationTitle, T.calibrationHint, this.calibration),
      part(
        T.thresholdTitle,
        T.thresholdHint,
        h(
          "div",
          { class: "picker" },
          h("div", { class: "field" }, h("label", { for: "trust-error" }, T.errorRate), this.errorRate),
          find,
          h("div", { class: "field" }, h("label", { for: "trust-threshold" }, T.threshold), this.threshold),
          this.slider,
        ),
        this.kept,
        this.coverage,
      ),
      part(
        T.confusionTitle,
        T.confusionHint,
        h(
          "div",
          { class: "confusion-scroller", role: "region", tabindex: 0, "aria-label": T.confusionTitle },
          this.confusion,
        ),
      ),
    );
  }

  clear() {
    this.#figures = null;
    this.element.hidden = true;
  }

  /** @param {Figures} found */
  async show(found) {
    this.#figures = found;
    this.element.hidden = false;
    this.#showFigures(found);
    this.#showConfusion(found);
    this.#showKept();
    await Promise.all([
      this.#draw(this.calibration, calibrationChart(found)),
      this.#draw(this.coverage, coverageChart(found)),
    ]);
  }

  /** @param {[number, number]} range of the accuracy */
  showInterval([low, high]) {
    const place = this.figures.querySelector('[data-figure="accuracy"] .hint');
    if (place) place.textContent = T.interval(low, high);
  }

  /** @param {Figures} found */
  #showFigures({ accuracy, majority, chance, error }) {
    const one = (/** @type {keyof typeof T.figures} */ name, /** @type {number | null} */ value, hint = "") =>
      h(
        "div",
        { "data-figure": name, "data-value": value },
        h("dt", {}, T.figures[name]),
        h("dd", {}, value === null ? S.none : T.share(value)),
        h("dd", { class: "hint" }, hint),
      );
    this.figures.replaceChildren(
      one("accuracy", accuracy),
      one("majority", majority),
      one("chance", chance),
      one("error", error, T.errorHint),
    );
  }

  /** @param {Figures} found */
  #showConfusion({ names, confusion }) {
    const head = [h("td", {}, T.trueCorner), ...names.map((name) => h("th", { scope: "col" }, name))];
    const rows = confusion.map((counts, truth) => {
      const all = counts.reduce((sum, count) => sum + count, 0);
      const cells = counts.map((count, given) => confusionCell(count, all, given === truth));
      return h(
        "tr",
        {},
        h("th", { scope: "row" }, names[truth]),
        ...cells,
        h("td", { class: "total" }, String(all)),
      );
    });
    this.confusion.replaceChildren(
      h("caption", { class: "visually-hidden" }, T.confusionTitle),
      h("thead", {}, h("tr", {}, ...head, h("th", { scope: "col" }, T.total))),
      h("tbody", {}, ...rows),
    );
  }

  #find() {
    if (!this.#figures) return;
    const percentage = this.errorRate.valueAsNumber;
    const found = widest(this.#figures.thresholds, percentage / 100);
    if (found) this.#setThreshold(found.threshold);
    else this.kept.textContent = T.noThreshold(percentage);
  }

  /** @param {number} threshold */
  #setThreshold(threshold) {
    if (Number.isNaN(threshold)) return;
    if (this.threshold.valueAsNumber !== threshold) this.threshold.value = String(threshold);
    this.slider.value = String(threshold);
    this.#showKept();
  }

  #showKept() {
    if (!this.#figures) return;
    const { thresholds, count } = this.#figures;
    const threshold = this.threshold.valueAsNumber;
    const { kept, wrong } = atThreshold(thresholds, Number.isNaN(threshold) ? 0 : threshold);
    this.kept.textContent = T.kept(kept, count, wrong);
    this.kept.setAttribute("data-kept", String(kept));
    this.kept.setAttribute("data-wrong", String(wrong));
  }

  /** @param {HTMLElement} place @param {ChartSpec} spec */
  async #draw(place, spec) {
    const known = this.#charts.get(spec.title);
    if (known) return (await known).update(spec);
    const made = makeChart(spec);
    this.#charts.set(spec.title, made);
    made.catch(() => this.#charts.delete(spec.title));
    place.append((await made).element);
  }
}

/** @param {string} title @param {string} hint @param {...HTMLElement} content */
function part(title, hint, ...content) {
  return h(
    "section",
    { class: "trust-part" },
    h("h3", {}, title),
    h("p", { class: "hint" }, hint),
    ...content,
  );
}

/** @param {number} count @param {number} all of the row @param {boolean} right */
function confusionCell(count, all, right) {
  const cell = h("td", { class: right ? "right" : "wrong" }, String(count));
  cell.style.setProperty("--share", String(all === 0 ? 0 : count / all));
  return cell;
}

/** @param {Figures} found @returns {ChartSpec} */
function calibrationChart({ curve }) {
  return {
    title: T.calibrationChart,
    x: { title: T.probability, ...SHARES },
    y: { title: T.right, ...SHARES },
    series: [
      { name: T.measured, kind: "line", points: curve.map((one) => [one.confidence, one.accuracy]) },
      {
        name: T.perfect,
        kind: "line",
        reference: true,
        points: [
          [0, 0],
          [1, 1],
        ],
      },
    ],
  };
}

/** @param {Figures} found @returns {ChartSpec} */
function coverageChart({ thresholds, count }) {
  const kept = thresholds.filter((one) => one.kept >= Math.max(1, LEAST_COVERAGE * count));
  const step = Math.ceil(kept.length / MOST_POINTS);
  const points = kept
    .filter((_, i) => i % step === 0)
    .map((one) => /** @type {[number, number]} */ ([one.kept / count, one.wrong / one.kept]));
  return {
    title: T.coverageTitle,
    x: { title: T.coverage, ...SHARES },
    y: { title: T.errors, format: T.tick },
    series: [{ name: T.errors, kind: "line", points }],
  };
}
