// How the Proof tab looks: its controls, and a part for each thing measured. All rows are there from the start of a run, so
// that figures come in without anything moving. Knows what was measured, not how.

import { makeChart } from "../chart.js";
import { h, setBar, setOff } from "../dom.js";
import { figuresTable, showTable } from "../figures.js";
import { candidates } from "../panel.js";
import { S, formatDifference, formatMs, formatProbability, formatRatio, formatCount } from "../strings.js";
import { EFFORTS, WAYS, flipWays } from "./measure.js";

/** @typedef {import("../../index.js").Info} Info */
/** @typedef {import("../figures.js").Cell} Cell */
/** @typedef {import("./measure.js").Plan} Plan */
/** @typedef {import("./measure.js").Found} Found */
/** @typedef {import("./measure.js").Effort} Effort */
/** @typedef {import("./checks.js").Check} Check */

/**
 * What is read of a bundle's manifest.
 * @typedef {object} Manifest
 * @property {string} typedecide
 * @property {{tolerance: number}} selftest
 * @property {string} readout
 * @property {string} default_format
 * @property {Record<string, {bytes: number, drift: Drift, tolerance?: number}>} formats
 * @property {Gate} [shallow_gate]
 */
/** @typedef {{prompts: number, max: number, mean: number, flips: number, large: boolean}} Drift */
/** @typedef {"effect_error" | "accuracy_loss" | "agreement"} Figure */
/**
 * A shallow form of the model, as it was measured; `faults` are the limits of the gate that it does not meet.
 * @typedef {Record<Figure, number> & {k: number, anchor: string, n: number, texts: number, faults: string[],
 *   intervals: Record<Figure, [number, number] | null>}} Form
 */
/**
 * What the gate found of the model's shallow forms; it chose none where none met its limits.
 * @typedef {object} Gate
 * @property {string} suite
 * @property {Record<Figure, number>} limits
 * @property {{k: number, anchor: string} | null} chosen
 * @property {Form[]} rows
 */

const P = S.proof;

/** @type {import("../chart_data.js").Axis} */
const QUESTIONS = { title: P.questionsAxis, log: true };

export class ProofView {
  /**
   * @param {{onMeasure: () => void, onStop: () => void, onDownload: () => void, onCopy: () => void,
   *   onCompare: () => void, onEffort: () => void}} events
   */
  constructor(events) {
    this.events = events;
    this.measure = h("button", { type: "button", class: "primary", onclick: events.onMeasure }, P.measure);
    this.stop = h("button", { type: "button", onclick: events.onStop }, P.stop);
    this.download = h("button", { type: "button", onclick: events.onDownload }, P.download);
    this.copy = h("button", { type: "button", onclick: events.onCopy }, P.copy);
    this.status = h("span", { class: "proof-status" }, P.idle);
    this.fill = h("span", { class: "fill" });
    this.bar = h(
      "div",
      {
        class: "track thin",
        role: "progressbar",
        "aria-label": P.progressLabel,
        "aria-valuemin": 0,
        "aria-valuemax": 100,
      },
      this.fill,
    );
    this.of = h("p", { class: "hint proof-of" });
    this.checks = h("ul", { class: "checks" });
    this.selfTest = h("div", {});
    this.shared = h("div", {});
    this.packingHint = h("p", { class: "hint" });
    this.packing = h("div", {});
    this.packingNotes = h("p", { class: "hint" });
    this.order = h("div", {});
    this.memory = h("dl", { class: "facts" });
    this.driftHint = h("p", { class: "hint" });
    this.drift = h("dl", { class: "facts" });
    this.compare = h("button", { type: "button", hidden: true, onclick: events.onCompare });
    this.comparison = h("p", { class: "proof-comparison" });
    this.shallow = h("dl", { class: "facts" });
    this.shallowPart = part("shallow", P.shallowHeading, null, this.shallow);
    this.shallowPart.hidden = true;
    setOff(this.stop, true);
    this.setExportable(false);
    this.setProgress(P.idle, 0);
  }

  /**
   * Draw the empty charts and put everything into the panel.
   * @param {HTMLElement} panel
   */
  async mount(panel) {
    this.timeChart = await makeChart(timeChart([], []));
    this.costChart = await makeChart(costChart([], [], null));
    panel.append(
      this.#controls(),
      h(
        "div",
        { class: "proof-parts" },
        part("checks", P.checksHeading, null, this.checks),
        part("selftest", P.selfTestHeading, S.candidatesHint, this.selfTest),
        wide(part("shared", P.sharedHeading, P.sharedHint, this.shared)),
        wide(part("packing", P.packingHeading, this.packingHint, this.packing, this.packingNotes)),
        part("time", null, null, this.timeChart.element),
        part("cost", null, null, this.costChart.element, h("p", { class: "hint" }, P.costHint)),
        part("order", P.orderHeading, P.orderHint, this.order),
        part("memory", P.memoryHeading, null, this.memory),
        part("drift", P.driftHeading, this.driftHint, this.drift, this.compare, this.comparison),
        this.shallowPart,
      ),
    );
  }

  #controls() {
    const efforts = /** @type {Effort[]} */ (Object.keys(EFFORTS)).map((effort) => {
      const [id, hint] = [`effort-${effort}`, `effort-hint-${effort}`];
      const attributes = { type: "radio", name: "effort", id, value: effort, "aria-describedby": hint };
      return h(
        "div",
        { class: "effort" },
        h("input", { ...attributes, checked: effort === "normal" }),
        h("label", { for: id }, P.efforts[effort].label),
        h("span", { class: "hint", id: hint }, P.efforts[effort].hint),
      );
    });
    this.efforts = h(
      "fieldset",
      { class: "efforts", onchange: this.events.onEffort },
      h("legend", {}, P.effortLegend),
      ...efforts,
    );
    return h(
      "div",
      { class: "proof-controls" },
      h("h2", {}, P.heading),
      h("p", { class: "hint" }, P.intro),
      this.efforts,
      h("div", { class: "proof-buttons" }, this.measure, this.stop, this.status),
      this.bar,
      this.of,
      h(
        "div",
        { class: "proof-buttons" },
        this.download,
        this.copy,
        h("span", { class: "hint" }, P.exportHint),
      ),
    );
  }

  /** @returns {Effort} */
  get effort() {
    const chosen = /** @type {HTMLFieldSetElement} */ (this.efforts).querySelector("input:checked");
    return /** @type {Effort} */ (/** @type {HTMLInputElement} */ (chosen).value);
  }

  /** @param {boolean} busy */
  setBusy(busy) {
    setOff(this.measure, busy);
    setOff(this.stop, !busy);
    setOff(this.compare, busy);
  }

  /** @param {boolean} exportable */
  setExportable(exportable) {
    setOff(this.download, !exportable);
    setOff(this.copy, !exportable);
  }

  /** @param {string} text @param {number} fraction */
  setProgress(text, fraction) {
    this.setStatus(text);
    this.bar.setAttribute("aria-valuenow", String(Math.floor(fraction * 100)));
    this.bar.setAttribute("aria-valuetext", text);
    setBar(this.fill, fraction);
  }

  /** @param {string} text beside the buttons */
  setStatus(text) {
    this.status.textContent = text;
  }

  /** @param {string} text what the figures are about */
  setOf(text) {
    this.of.textContent = text;
  }

  /**
   * What is known before anything is measured: by the manifest, and once the engine is loaded by it.
   * @param {Manifest} manifest
   * @param {Info | null} info
   */
  showBundle(manifest, info) {
    const format = info?.format ?? manifest.default_format;
    const { drift } = manifest.formats[format];
    this.selfTest.replaceChildren(...(info ? [runsOn(info), candidates(info.selfTest)] : []));
    this.driftHint.textContent = P.driftHint(format);
    this.drift.replaceChildren(
      fact(P.drift.format, drift.large ? `${format}, ${P.lossy}` : format),
      fact(P.drift.prompts, formatCount(drift.prompts)),
      fact(P.drift.max, formatDifference(drift.max), drift.max),
      fact(P.drift.mean, formatDifference(drift.mean), drift.mean),
      fact(P.drift.flips, P.flips(drift.flips, drift.prompts), drift.flips),
    );
    const reference = format === "fp32" ? undefined : manifest.formats.fp32;
    this.compare.hidden = reference === undefined;
    if (reference) this.compare.textContent = P.compare(reference.bytes);
    const { shallow_gate: gate } = manifest;
    const shallow = info?.shallow ?? null;
    this.shallowPart.hidden = shallow === null && (info === null || gate === undefined);
    if (shallow) this.shallow.replaceChildren(...shallowFacts(shallow, gate));
    else if (gate) this.shallow.replaceChildren(...wholeFacts(gate));
  }

  /**
   * What is measured by now.
   * @param {Plan} plan
   * @param {Found} found
   * @param {readonly Check[]} checks
   * @param {{weights: number, token: number | null}} bytes of the weights, and of a token of a text
   */
  show(plan, found, checks, bytes) {
    this.checks.replaceChildren(...checks.map(checkRow));
    showTable(this.shared, sharedTable(plan, found));
    this.packingHint.textContent = P.packingHint(plan.readout);
    showTable(this.packing, packingTable(plan, found));
    const more = Math.max(0, ...plan.counts) - plan.own.length;
    this.packingNotes.textContent = [...(more > 0 ? [P.moreQuestions(more)] : []), P.aboutHint].join(" ");
    this.timeChart?.update(timeChart(plan.counts, found.packing ?? []));
    this.costChart?.update(costChart(plan.counts, found.packing ?? [], found.prefill?.ms ?? null));
    showTable(this.order, orderTable(plan, found));
    this.#showMemory(bytes, found.memory);
  }

  /** @param {{weights: number, token: number | null}} bytes @param {Found["memory"]} memory */
  #showMemory({ weights, token }, memory) {
    const { states = [], pageHeap, wasmBytes, gpu } = memory ?? {};
    const tokens = states.reduce((sum, state) => sum + state.tokens, 0);
    const bytes = states.reduce((sum, state) => sum + state.bytes, 0);
    const buffers = gpu ? P.gpuBuffers(gpu.buffers, gpu.bytes) : P.noGpu;
    const told = pageHeap === null ? P.notTold : P.bytes(pageHeap ?? 0);
    this.memory.replaceChildren(
      fact(P.memory.weights, P.bytes(weights), weights),
      fact(P.memory.token, token === null ? S.none : P.bytes(token), token),
      fact(P.memory.states, memory ? P.states(states.length, tokens, bytes) : S.none, memory && bytes),
      fact(P.memory.wasm, memory ? P.bytes(wasmBytes ?? 0) : S.none, wasmBytes),
      fact(P.memory.gpu, memory ? buffers : S.none, gpu?.bytes),
      fact(P.memory.pageHeap, memory ? told : S.none, pageHeap),
    );
  }
}

/**
 * @param {string} id
 * @param {string | null} heading
 * @param {string | HTMLElement | null} hint
 * @param {...HTMLElement} content
 */
function part(id, heading, hint, ...content) {
  const names = { heading: `proof-title-${id}`, part: `proof-${id}` };
  const about = typeof hint === "string" ? h("p", { class: "hint" }, hint) : hint;
  if (heading === null) return h("div", { class: "proof-part", id: names.part }, about, ...content);
  return h(
    "section",
    { class: "proof-part", id: names.part, "aria-labelledby": names.heading },
    h("h3", { id: names.heading }, heading),
    about,
    ...content,
  );
}

/** @param {HTMLElement} element */
function wide(element) {
  element.classList.add("wide");
  return element;
}

/** @param {string} term @param {string} text @param {number | null} [value] */
function fact(term, text, value) {
  return h("div", {}, h("dt", {}, term), h("dd", { "data-value": value }, text));
}

/**
 * What the candidate that was chosen runs on.
 * @param {Info} info
 */
function runsOn({ device, adapter, format, threads, ort }) {
  const { facts } = S;
  return h(
    "dl",
    { class: "facts" },
    fact(facts.device, S.devices[device]),
    device === "webgpu" ? fact(facts.adapter, adapter ?? S.none) : fact(facts.threads, formatCount(threads)),
    fact(facts.format, format),
    fact(facts.runtime, `${ort.version} (${ort.build})`),
  );
}

/** @param {Check} check */
function checkRow({ id, found, allowed, passed }) {
  const [verdict, word] =
    passed === null ? ["open", P.open] : passed ? ["chosen", P.passed] : ["rejected", P.notPassed];
  return h(
    "li",
    { "data-check": id, "data-passed": passed === null ? "open" : String(passed) },
    h("span", { class: `verdict-badge ${verdict}` }, word),
    h("span", {}, P.checks[id]),
    h("span", { class: "numbers" }, found === null ? S.none : P.limit(found, allowed)),
  );
}

/** @param {number} value @param {(value: number) => string} format @returns {Cell} */
function number(value, format) {
  return { text: format(value), value };
}

/** @param {Plan} plan @param {Found} found */
function sharedTable(plan, found) {
  const rows = plan.own.map(({ id }) => {
    const row = found.shared?.find((one) => one.id === id);
    if (!row) return { id, cells: [id, ...Array(6).fill(S.none)] };
    const { difference, shared, full } = row;
    /** @type {Cell[]} */
    const cells = [
      number(difference, formatDifference),
      number(shared.tokens, formatCount),
      number(shared.ms, formatMs),
      number(full.tokens, formatCount),
      number(full.ms, formatMs),
      number(full.ms / shared.ms, formatRatio),
    ];
    return { id, cells: [id, ...cells] };
  });
  return figuresTable(P.sharedHeading, Object.values(P.sharedHead), rows);
}

/** @param {Plan} plan @param {Found} found */
function packingTable(plan, found) {
  const { tokens, ms, questions, runs, fullRatio, sequentialRatio, difference } = P.packingHead;
  const ways = WAYS.flatMap((way) => [`${P.ways[way]}: ${tokens}`, ms]);
  const head = [questions, ...ways, runs, fullRatio, sequentialRatio, difference];
  const rows = plan.counts.map((count) => {
    const row = found.packing?.find((one) => one.questions === count);
    const id = String(count);
    if (!row) return { id, cells: [id, ...Array(head.length - 1).fill(S.none)] };
    const about = (/** @type {Cell} */ cell) =>
      typeof cell === "string" ? cell : { ...cell, text: row.timed < count ? P.about(cell.text) : cell.text };
    const { full, sequential, packed } = row.ways;
    /** @type {Cell[]} */
    const cells = [
      about(number(full.tokens, formatCount)),
      about(number(full.ms, formatMs)),
      number(sequential.tokens, formatCount),
      number(sequential.ms, formatMs),
      number(packed.tokens, formatCount),
      number(packed.ms, formatMs),
      number(row.runs, formatCount),
      number(full.ms / packed.ms, formatRatio),
      number(sequential.ms / packed.ms, formatRatio),
      number(row.difference, formatDifference),
    ];
    return { id, cells: [id, ...cells] };
  });
  return figuresTable(P.packingHeading, head, rows);
}

/** @param {Plan} plan @param {Found} found */
function orderTable(plan, found) {
  const rows = flipWays(plan.readout).map(({ readout, orderings = null }, i) => {
    const id = orderings === null ? String(readout) : `${readout}-${orderings}`;
    const letters = orderings === 1 ? P.oneOrder : P.severalOrders;
    const name = P.readouts[/** @type {keyof typeof P.readouts} */ (readout)];
    const way = orderings === null ? name : `${name}, ${letters}`;
    const row = found.flips?.[i];
    if (!row) return { id, cells: [way, S.none, S.none, S.none] };
    const { questions, flipped, change } = row;
    const cells = [
      { text: P.flips(flipped.length, questions), value: flipped.length },
      number(flipped.length / questions, formatProbability),
      number(change, formatDifference),
    ];
    return { id, cells: [way, ...cells] };
  });
  return figuresTable(P.orderHeading, Object.values(P.orderHead), rows);
}

/**
 * @param {readonly number[]} counts
 * @param {readonly import("./measure.js").PackingRow[]} rows
 * @returns {import("../chart_data.js").ChartSpec}
 */
function timeChart(counts, rows) {
  return {
    title: P.packingTitle,
    x: axis(counts),
    y: { title: P.timeAxis, unit: "ms", log: true },
    series: WAYS.map((way) => ({
      name: P.ways[way],
      kind: "line",
      points: rows.map(({ questions, ways }) => [questions, ways[way].ms]),
    })),
  };
}

/**
 * @param {readonly number[]} counts
 * @param {readonly import("./measure.js").PackingRow[]} rows
 * @param {number | null} prefill milliseconds that reading the text takes
 * @returns {import("../chart_data.js").ChartSpec}
 */
function costChart(counts, rows, prefill) {
  /** @param {string} name @param {(row: import("./measure.js").PackingRow) => number} ms */
  const series = (name, ms) => ({
    name,
    kind: /** @type {const} */ ("line"),
    points: rows.map((row) => /** @type {[number, number]} */ ([row.questions, ms(row) / row.questions])),
  });
  return {
    title: P.costTitle,
    x: axis(counts),
    y: { title: P.costAxis, unit: "ms", log: true },
    series: [
      series(P.ways.full, ({ ways }) => ways.full.ms),
      series(P.withPrefill, ({ ways }) => ways.packed.ms + (prefill ?? 0)),
      series(P.ways.packed, ({ ways }) => ways.packed.ms),
    ],
  };
}

/** @param {readonly number[]} counts @returns {import("../chart_data.js").Axis} */
function axis(counts) {
  if (counts.length === 0) return QUESTIONS;
  const ends = { low: Math.min(...counts), high: Math.max(...counts) };
  return { ...QUESTIONS, ticks: counts, range: [ends.low / 1.2, ends.high * 1.2] };
}

/**
 * @param {NonNullable<Info["shallow"]>} shallow
 * @param {Gate | undefined} gate
 */
function shallowFacts({ k, layers, anchor, agreement }, gate) {
  const facts = [fact(P.shallow.layers, P.layers(k, layers)), fact(P.shallow.anchor, anchor)];
  const row = gate?.rows.find((form) => form.k === k && form.anchor === anchor);
  if (!gate || !row) {
    const measured = agreement === null ? P.notMeasured : formatProbability(agreement);
    return [...facts, fact(P.shallow.agreement, measured, agreement)];
  }
  return [...facts, ...formFacts(row, gate)];
}

/**
 * Why the whole model is used: what the gate found of the form that came nearest to its limits.
 * @param {Gate} gate
 */
function wholeFacts(gate) {
  const nearest = gate.rows.reduce((best, form) => (form.effect_error < best.effect_error ? form : best));
  return [
    fact(P.shallow.layers, P.allLayers),
    fact(P.shallow.chosen, gate.chosen ? P.form(gate.chosen) : P.noneChosen(gate.rows.length)),
    fact(P.shallow.nearest, P.form(nearest)),
    ...formFacts(nearest, gate),
  ];
}

/**
 * @param {Form} form
 * @param {Gate} gate
 */
function formFacts(form, gate) {
  const measured = (/** @type {string} */ term, /** @type {Figure} */ name) =>
    fact(term, P.withInterval(form[name], form.intervals[name]), form[name]);
  return [
    measured(P.shallow.agreement, "agreement"),
    measured(P.shallow.effect, "effect_error"),
    measured(P.shallow.loss, "accuracy_loss"),
    fact(P.shallow.data, P.gateData(form.n, form.texts, gate.suite)),
    fact(P.shallow.gate, form.faults.length === 0 ? P.gatePassed : form.faults.join("; ")),
  ];
}
