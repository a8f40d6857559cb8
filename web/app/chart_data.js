// What charts compute: series put on one x axis, ranges, ticks, and the rows of a chart's table. Knows no DOM.

/**
 * @typedef {object} Axis
 * @property {string} title
 * @property {string} [unit] is shown behind the title
 * @property {boolean} [log] a logarithmic scale; all values must be above 0 then
 * @property {readonly [low: number, high: number]} [range] default: what the values take, on a linear y axis with 0
 * @property {readonly number[]} [ticks] default: round numbers
 * @property {readonly string[]} [names] of the places 0, 1, 2, … where the axis has no numbers
 * @property {(value: number) => string} [format] of ticks and of numbers in the table
 */

/**
 * @typedef {object} Series
 * @property {string} name
 * @property {"line" | "points" | "bars"} kind
 * @property {readonly (readonly [x: number, y: number])[]} points in any order; several may have one x
 * @property {boolean} [reference] what others are to be compared with, such as a limit: drawn thin
 */

/**
 * @typedef {object} ChartSpec
 * @property {string} title
 * @property {Axis} x
 * @property {Axis} y
 * @property {readonly Series[]} series
 */

/**
 * All series over one ascending row of x, as uPlot takes them; `undefined` where a series has no value. An x that a
 * series has several values at comes several times.
 * @param {readonly Series[]} series
 * @returns {[number[], ...(number | undefined)[][]]}
 */
export function align(series) {
  const byX = series.map(({ points }) => {
    const found = /** @type {Map<number, number[]>} */ (new Map());
    for (const [x, y] of points) found.set(x, [...(found.get(x) ?? []), y]);
    return found;
  });
  const xs = [...new Set(byX.flatMap((found) => [...found.keys()]))].sort((a, b) => a - b);
  const rows = xs.flatMap((x) => {
    const columns = byX.map((found) => found.get(x) ?? []);
    const most = Math.max(...columns.map((ys) => ys.length));
    return Array.from({ length: most }, (_, i) => ({ x, ys: columns.map((ys) => ys[i]) }));
  });
  return [rows.map(({ x }) => x), ...series.map((_, i) => rows.map(({ ys }) => ys[i]))];
}

/** How much of the distance between two places bars take together. */
const BARS = 0.8;

/**
 * The series as they are drawn: bars of several series stand side by side.
 * @param {readonly Series[]} series
 * @returns {{series: Series[], barWidth: number}} the width as a share of the distance between two places
 */
export function sideBySide(series) {
  const bars = series.filter(({ kind }) => kind === "bars");
  const step = leastStep(bars.flatMap(({ points }) => points.map(([x]) => x)));
  const width = BARS / Math.max(1, bars.length);
  const moved = series.map((one) => {
    const place = bars.indexOf(one);
    if (place < 0) return one;
    const offset = (place - (bars.length - 1) / 2) * width * step;
    return {
      ...one,
      points: one.points.map(([x, y]) => /** @type {[number, number]} */ ([x + offset, y])),
    };
  });
  return { series: moved, barWidth: width };
}

/**
 * The least distance of two different values; 1 where there are no two.
 * @param {readonly number[]} values
 */
function leastStep(values) {
  const sorted = [...new Set(values)].sort((a, b) => a - b);
  const steps = sorted.slice(1).map((value, i) => value - sorted[i]);
  return steps.length === 0 ? 1 : Math.min(...steps);
}

/** Room beside the outermost values, as a share of what they span. */
const MARGIN = 0.05;

/**
 * The range of an axis.
 * @param {Axis} axis
 * @param {readonly number[]} values
 * @param {{zero?: boolean, step?: number}} [how] whether 0 belongs to it; the distance of the places that bars stand at
 * @returns {[low: number, high: number]}
 */
export function rangeOf({ range, log = false }, values, { zero = false, step = 0 } = {}) {
  if (range) return [...range];
  const from = log ? values.filter((value) => value > 0) : values;
  if (from.length === 0) return log ? [1, 10] : [0, 1];
  const low = from.reduce((least, value) => Math.min(least, value));
  const high = from.reduce((most, value) => Math.max(most, value));
  if (log) {
    const factor = Math.max((high / low) ** MARGIN, 1.15);
    return [low / factor, high * factor];
  }
  if (step > 0) return [low - step / 2, high + step / 2];
  const [bottom, top] = zero ? [Math.min(0, low), Math.max(0, high)] : [low, high];
  const margin = (top - bottom) * MARGIN || Math.abs(top) * MARGIN || 1;
  return [zero && bottom === 0 ? 0 : bottom - margin, zero && top === 0 ? 0 : top + margin];
}

/**
 * The range of the x axis.
 * @param {ChartSpec} spec
 * @returns {[low: number, high: number]}
 */
export function xRange({ x, series }) {
  const of = (/** @type {readonly Series[]} */ some) =>
    some.flatMap(({ points }) => points.map(([at]) => at));
  const bars = of(series.filter(({ kind }) => kind === "bars"));
  return rangeOf(x, of(series), { step: bars.length > 0 ? leastStep(bars) : 0 });
}

/**
 * The range of the y axis.
 * @param {ChartSpec} spec
 * @returns {[low: number, high: number]}
 */
export function yRange({ y, series }) {
  const values = series.flatMap(({ points }) => points.map(([, value]) => value));
  return rangeOf(y, values, { zero: true });
}

/**
 * Round numbers for a logarithmic axis, at most `most` of them.
 * @param {number} low above 0
 * @param {number} high
 * @param {number} [most]
 */
export function logTicks(low, high, most = 8) {
  const decades = /** @type {number[]} */ ([]);
  // Starts one below: 5 times it may already be in range.
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    decades.push(power);
  /** @param {readonly number[]} multiples @param {number} each */
  const ticks = (multiples, each) =>
    decades
      .filter((power) => power % each === 0)
      // Through text: 10 ** -5 is not 0.00001.
      .flatMap((power) => multiples.map((multiple) => Number(`${multiple}e${power}`)))
      .filter((tick) => tick >= low && tick <= high);
  const levels = [ticks([1, 2, 5], 1), ticks([1], 1), ticks([1], 2), ticks([1], 4)];
  return levels.find((found) => found.length <= most) ?? levels[levels.length - 1];
}

/**
 * An axis in words.
 * @param {Axis} axis
 */
export function axisTitle({ title, unit }) {
  return unit === undefined ? title : `${title} (${unit})`;
}

/**
 * A value as ticks and table say it.
 * @param {Axis} axis
 * @param {number} value
 */
export function formatValue({ names, format }, value) {
  if (names) return names[value] ?? "";
  return format ? format(value) : plain.format(value);
}

const plain = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });

/**
 * What a chart shows as a table: its head, and its rows as text, `none` where a series has no value.
 * @param {ChartSpec} spec
 * @param {string} none
 * @returns {{head: string[], rows: string[][]}}
 */
export function tableOf({ x, y, series }, none) {
  const [xs, ...columns] = align(series);
  const rows = xs.map((at, row) => {
    const cells = columns.map((column) => {
      const value = column[row];
      return value === undefined ? none : formatValue(y, value);
    });
    return [formatValue(x, at), ...cells];
  });
  const named = series.map(({ name }) => axisTitle({ title: name, unit: y.unit }));
  return { head: [axisTitle(x), ...named], rows };
}
