// web/app/chart_data.js: what a chart draws and says, without drawing it.

import assert from "node:assert/strict";
import { test } from "node:test";

import { align, logTicks, rangeOf, sideBySide, tableOf, xRange, yRange } from "../../web/app/chart_data.js";

/** @typedef {import("../../web/app/chart_data.js").Series} Series */

/** @type {Series} */
const LINE = {
  name: "packed",
  kind: "line",
  points: [
    [4, 70],
    [1, 40],
  ],
};

test("series share one ascending x, and repeats are kept", () => {
  /** @type {Series} */
  const repeats = {
    name: "runs",
    kind: "points",
    points: [
      [4, 69],
      [4, 71],
      [2, 5],
    ],
  };
  assert.deepEqual(align([LINE, repeats]), [
    [1, 2, 4, 4],
    [40, undefined, 70, undefined],
    [undefined, 5, 69, 71],
  ]);
  assert.deepEqual(align([]), [[]]);
});

test("a table has the numbers of the chart, with units", () => {
  const x = { title: "questions" };
  const y = { title: "time", unit: "ms", format: (/** @type {number} */ ms) => ms.toFixed(1) };
  /** @type {Series} */
  const other = { name: "full prompts", kind: "line", points: [[4, 700.25]] };
  assert.deepEqual(tableOf({ title: "t", x, y, series: [LINE, other] }, "–"), {
    head: ["questions", "packed (ms)", "full prompts (ms)"],
    rows: [
      ["1", "40.0", "–"],
      ["4", "70.0", "700.3"],
    ],
  });
  /** @type {Series} */
  const bars = {
    name: "share",
    kind: "bars",
    points: [
      [0, 0.25],
      [1, 0.75],
    ],
  };
  const named = { title: "option", names: ["no", "yes"] };
  const { head, rows } = tableOf({ title: "t", x: named, y: { title: "share" }, series: [bars] }, "–");
  assert.deepEqual(head, ["option", "share"]);
  assert.deepEqual(rows, [
    ["no", "0.25"],
    ["yes", "0.75"],
  ]);
});

test("ranges hold all values: zero for amounts, never for logarithms, half a place beside bars", () => {
  /** @param {[number, number]} range @param {readonly number[]} values */
  const holds = ([low, high], values) => assert.ok(values.every((value) => low <= value && value <= high));
  const spec = { title: "t", x: { title: "x" }, y: { title: "y" }, series: [LINE] };
  holds(xRange(spec), [1, 4]);
  assert.equal(yRange(spec)[0], 0);
  holds(yRange(spec), [0, 70]);
  const [low, high] = yRange({ ...spec, y: { title: "y", log: true } });
  assert.ok(low > 0 && low < 40 && high > 70);
  assert.deepEqual(rangeOf({ title: "y", range: [0, 1] }, [0.5]), [0, 1]);
  assert.deepEqual(rangeOf({ title: "y" }, []), [0, 1]);
  assert.deepEqual(rangeOf({ title: "y", log: true }, [0]), [1, 10]);
  holds(rangeOf({ title: "y" }, [0], { zero: true }), [0]);
  holds(rangeOf({ title: "y" }, [-3, 2], { zero: true }), [-3, 0, 2]);
  /** @type {Series} */
  const bars = { ...LINE, kind: "bars" };
  assert.deepEqual(xRange({ ...spec, series: [bars] }), [-0.5, 5.5]);
});

test("bars of several series stand side by side, within their places", () => {
  /** @type {(name: string) => Series} */
  const bars = (name) => ({
    name,
    kind: "bars",
    points: [
      [0, 1],
      [1, 2],
    ],
  });
  const { series, barWidth } = sideBySide([bars("a"), LINE, bars("b")]);
  assert.equal(barWidth, 0.4);
  assert.deepEqual(
    series.map(({ points }) => points.map(([x]) => Number(x.toFixed(6)))),
    [
      [-0.2, 0.8],
      [4, 1],
      [0.2, 1.2],
    ],
  );
  // Where there is one series, it stands in the middle.
  assert.deepEqual(sideBySide([bars("a")]).series, [bars("a")]);
});

test("logarithmic ticks are round, in range and few", () => {
  assert.deepEqual(logTicks(1, 40), [1, 2, 5, 10, 20]);
  assert.deepEqual(logTicks(0.9, 1100), [1, 10, 100, 1000]);
  assert.deepEqual(logTicks(4, 60), [5, 10, 20, 50]);
  for (const [low, high] of [
    [1e-9, 1],
    [3e-7, 2e9],
  ]) {
    const ticks = logTicks(low, high);
    assert.ok(ticks.length >= 2 && ticks.length <= 8, String(ticks));
    assert.ok(ticks.every((tick) => low <= tick && tick <= high));
  }
});
