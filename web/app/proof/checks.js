// Which measured figures are as they must be. Knows no DOM and no engine.

import { ROUNDING } from "./measure.js";

/** @typedef {import("./measure.js").Found} Found */

/**
 * A figure and the most that it may be; `found` and `passed` are null while it is not measured.
 * @typedef {object} Check
 * @property {"selfTest" | "shared" | "packed" | "order"} id
 * @property {number | null} found
 * @property {number} allowed
 * @property {boolean | null} passed
 */

/**
 * @param {import("../../index.js").Info | null} info of the engine, once it is loaded
 * @param {number} tolerance of the self-test
 * @param {string} readout letters stand in an order, which may count; the other readouts know none
 * @param {Found} found
 * @returns {Check[]}
 */
export function checksOf(info, tolerance, readout, { shared, packing, flips }) {
  const chosen = info?.selfTest.find(({ verdict }) => verdict === "chosen");
  const own = flips?.find((row) => row.readout === readout);
  const checks = [
    check("selfTest", chosen?.maxError ?? null, tolerance),
    check("shared", most(shared), ROUNDING),
    check("packed", most(packing), ROUNDING),
  ];
  return readout === "labels" ? checks : [...checks, check("order", own?.change ?? null, ROUNDING)];
}

/** @param {readonly {difference: number}[] | undefined} rows */
function most(rows) {
  return rows && rows.length > 0 ? Math.max(...rows.map(({ difference }) => difference)) : null;
}

/**
 * @param {Check["id"]} id
 * @param {number | null} found
 * @param {number} allowed
 * @returns {Check}
 */
function check(id, found, allowed) {
  // Not a number is not "at most" anything.
  return { id, found, allowed, passed: found === null ? null : found <= allowed };
}
