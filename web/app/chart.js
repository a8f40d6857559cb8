// A chart: uPlot on a canvas, a legend, and the same numbers as a table for who cannot see it or cannot use a pointer.
// Colours and fonts are those of the page's style sheets, and follow a switch between light and dark. Knows nothing of
// what is drawn.

import { importModule } from "../modules.js";
import {
  align,
  axisTitle,
  formatValue,
  logTicks,
  sideBySide,
  tableOf,
  xRange,
  yRange,
} from "./chart_data.js";
import { h } from "./dom.js";
import { figuresTable, showTable } from "./figures.js";
import { S } from "./strings.js";

/** @typedef {import("./chart_data.js").ChartSpec} ChartSpec */
/** @typedef {import("./chart_data.js").Axis} Axis */
/** @typedef {import("./chart_data.js").Series} Series */
/** @typedef {typeof import("uplot")} UPlot */
/** @typedef {import("uplot")} Plot */

const MODULE = new URL("../vendor/uplot/uPlot.esm.js", import.meta.url);
const STYLES = ["../vendor/uplot/uPlot.min.css", "./chart.css"].map((path) => new URL(path, import.meta.url));

/** How lines of several series differ besides their colour, in CSS pixels. */
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [4, 2], [12, 5]];
/** A line with more points than this is drawn without marks. */
const MOST_MARKS = 60;

/** @type {Promise<UPlot> | null} */
let library = null;

/**
 * The charting library, loaded with its style sheets when the first chart is made; a failed load is forgotten.
 * @returns {Promise<UPlot>}
 */
function load() {
  library ??= Promise.all([importModule(MODULE), ...STYLES.map(linkStyle)]).then(
    ([module]) => module.default,
  );
  library.catch(() => (library = null));
  return library;
}

/**
 * @param {URL} url
 * @returns {Promise<void>} once it is there
 */
function linkStyle({ href }) {
  return new Promise((resolve, reject) => {
    const link = h("link", { rel: "stylesheet", href, onload: () => resolve() });
    link.addEventListener("error", () => {
      link.remove();
      reject(new Error(S.notFetched(href)));
    });
    document.head.append(link);
  });
}

/**
 * A chart of some data; put its `element` into the page.
 *
 * @example
 * const chart = await makeChart({
 *   title: "Time by number of questions",
 *   x: { title: "questions", log: true, ticks: [1, 4, 11, 32] },
 *   y: { title: "time", unit: "ms", log: true },
 *   series: [{ name: "packed", kind: "line", points: [[1, 40], [4, 70]] }],
 * });
 * panel.append(chart.element);
 * chart.update({ ...spec, series });
 *
 * @param {ChartSpec} spec
 * @returns {Promise<Chart>}
 * @throws {import("../errors.js").BundleError} the library cannot be loaded
 */
export async function makeChart(spec) {
  return new Chart(await load(), spec);
}

export class Chart {
  /** @type {Plot | null} */
  #plot = null;
  #library;
  #spec;
  #caption = h("figcaption", { class: "chart-title" });
  #canvas = h("div", { class: "chart-plot", role: "img" });
  #legend = h("ul", { class: "chart-legend" });
  #details = h("details", {}, h("summary", {}, S.chart.table));
  #sizes = new ResizeObserver(() => this.#fit());
  #schemes = ["(prefers-color-scheme: dark)", "(forced-colors: active)"].map((query) => matchMedia(query));
  #recolour = () => this.#plot?.redraw(false);

  /**
   * @param {UPlot} library
   * @param {ChartSpec} spec
   */
  constructor(library, spec) {
    this.#library = library;
    this.#spec = spec;
    this.element = h("figure", { class: "chart" }, this.#caption, this.#canvas, this.#legend, this.#details);
    this.#sizes.observe(this.#canvas);
    for (const scheme of this.#schemes) scheme.addEventListener("change", this.#recolour);
    this.update(spec);
  }

  /**
   * Draw other data.
   * @param {ChartSpec} spec
   */
  update(spec) {
    this.#spec = spec;
    this.#caption.textContent = spec.title;
    this.#canvas.setAttribute("aria-label", S.chart.label(spec.title, axisTitle(spec.x), axisTitle(spec.y)));
    this.#legend.replaceChildren(...(spec.series.length > 1 ? legend(spec.series) : []));
    const { head, rows } = tableOf(spec, S.none);
    const table = figuresTable(
      S.chart.tableLabel(spec.title),
      head,
      rows.map((cells) => ({ cells })),
    );
    showTable(this.#details, table);
    this.#draw();
  }

  /** Free what the page would keep; the element may be removed then. */
  destroy() {
    this.#sizes.disconnect();
    for (const scheme of this.#schemes) scheme.removeEventListener("change", this.#recolour);
    this.#plot?.destroy();
    this.#plot = null;
  }

  /** What has no size, as in a tab that is hidden, is drawn once it has one. */
  #fit() {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    if (width === 0 || height === 0) return;
    if (!this.#plot) this.#draw();
    else if (this.#plot.width !== width || this.#plot.height !== height)
      this.#plot.setSize({ width, height });
  }

  #draw() {
    this.#plot?.destroy();
    this.#plot = null;
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    if (width === 0 || height === 0) return;
    const { series, barWidth } = sideBySide(this.#spec.series);
    const spec = { ...this.#spec, series };
    const options = {
      ...plotOptions(this.#library, spec, this.#canvas, barWidth),
      ...{ width, height },
    };
    // uPlot's type asks for null, and means gaps by it; undefined is what it skips.
    const data = /** @type {import("uplot").AlignedData} */ (/** @type {unknown} */ (align(series)));
    this.#plot = new this.#library(options, data, this.#canvas);
  }
}

/**
 * @param {UPlot} library
 * @param {ChartSpec} spec
 * @param {HTMLElement} element whose styles hold
 * @param {number} barWidth
 * @returns {Omit<import("uplot").Options, "width" | "height">}
 */
function plotOptions(library, spec, element, barWidth) {
  const [x, y] = [xRange(spec), yRange(spec)];
  // Without data there are no values to name.
  const yAxis = spec.series.some(({ points }) => points.length > 0) ? spec.y : { ...spec.y, ticks: [] };
  const looks = lookOf(spec.series);
  return {
    legend: { show: false },
    cursor: { show: false },
    // Room for the outermost tick's text.
    padding: [10, 16, 0, 0],
    scales: {
      x: { time: false, range: () => x, distr: spec.x.log ? 3 : 1 },
      y: { range: () => y, distr: spec.y.log ? 3 : 1 },
    },
    axes: [
      { ...axisOptions(spec.x, element), size: sizeOf(element) * 2.2 },
      { ...axisOptions(yAxis, element), size: axisSize(element) },
    ],
    series: [{}, ...spec.series.map((one, i) => seriesOptions(library, one, looks[i], element, barWidth))],
  };
}

/** @typedef {{name: string, dash: number[], width: number}} Look a series' CSS variable, and how its line is drawn */

/**
 * @param {readonly Series[]} series
 * @returns {Look[]}
 */
function lookOf(series) {
  let own = 0;
  return series.map(({ reference }) => {
    if (reference) return { name: "reference", dash: [4, 4], width: 1 };
    const place = own++ % DASHES.length;
    return { name: String(place + 1), dash: DASHES[place], width: 2 };
  });
}

/**
 * @param {UPlot} library
 * @param {Series} series
 * @param {Look} look
 * @param {HTMLElement} element
 * @param {number} barWidth
 * @returns {import("uplot").Series}
 */
function seriesOptions(library, { kind, points }, { name, dash, width }, element, barWidth) {
  const stroke = () => colour(element, `--series-${name}`);
  const { bars } = library.paths;
  if (kind === "bars") {
    return {
      stroke,
      fill: stroke,
      width: 0,
      paths: bars?.({ size: [barWidth, 80] }),
      points: { show: false },
    };
  }
  const marks = { show: kind === "points" || (points.length <= MOST_MARKS && name !== "reference"), size: 7 };
  const options = { stroke, width, spanGaps: true, points: { ...marks, fill: stroke, width: 0 } };
  return kind === "points" ? { ...options, paths: () => null } : { ...options, dash };
}

/**
 * @param {Axis} axis
 * @param {HTMLElement} element
 * @returns {import("uplot").Axis}
 */
function axisOptions(axis, element) {
  const { ticks, names, log } = axis;
  const font = fontOf(element);
  const line = { stroke: () => colour(element, "--line"), width: 1 };
  const places = ticks ?? names?.map((_, i) => i);
  return {
    stroke: () => colour(element, "--muted"),
    font,
    label: axisTitle(axis),
    labelFont: font,
    labelSize: sizeOf(element) * 1.8,
    grid: line,
    ticks: { ...line, size: 5 },
    values: (_, splits) => splits.map((value) => formatValue(axis, value)),
    // Without it a logarithmic axis drops all but powers of ten.
    filter: (_, splits) => splits,
    ...(places
      ? { splits: () => [...places] }
      : log
        ? { splits: (_, __, low, high) => logTicks(low, high) }
        : {}),
  };
}

/**
 * As wide as the widest tick's text.
 * @param {HTMLElement} element
 * @returns {import("uplot").Axis.Size}
 */
function axisSize(element) {
  return (plot, values) => {
    plot.ctx.save();
    plot.ctx.font = fontOf(element);
    const widths = (values ?? []).map((text) => plot.ctx.measureText(text).width);
    plot.ctx.restore();
    return Math.ceil(Math.max(0, ...widths)) + 16;
  };
}

/** @param {HTMLElement} element */
function sizeOf(element) {
  return parseFloat(getComputedStyle(element).fontSize);
}

/** @param {HTMLElement} element */
function fontOf(element) {
  return `${sizeOf(element)}px ${getComputedStyle(element).fontFamily}`;
}

/**
 * A colour as the style sheets have it now.
 * @param {HTMLElement} element
 * @param {string} variable
 */
function colour(element, variable) {
  return getComputedStyle(element).getPropertyValue(variable).trim();
}

/** @param {readonly Series[]} series */
function legend(series) {
  const looks = lookOf(series);
  return series.map(({ name, kind }, i) => h("li", {}, swatch(kind, looks[i]), name));
}

const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {Series["kind"]} kind
 * @param {Look} look
 */
function swatch(kind, { name, dash, width }) {
  const shapes = {
    bars: { tag: "rect", x: 8, y: 1, width: 10, height: 10 },
    points: { tag: "circle", cx: 13, cy: 6, r: 4 },
    line: {
      tag: "line",
      x1: 0,
      y1: 6,
      x2: 26,
      y2: 6,
      "stroke-width": width,
      "stroke-dasharray": dash.join(" "),
    },
  };
  const { tag, ...attributes } = shapes[kind];
  const icon = svg("svg", { class: `swatch series-${name}`, viewBox: "0 0 26 12", "aria-hidden": true });
  icon.append(svg(tag, attributes));
  return icon;
}

/**
 * @param {string} tag
 * @param {Record<string, string | number | boolean>} attributes
 */
function svg(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}
