// The ways to run a model, by name, and which of them a caller wants. Knows no bundle and no device.

import { UnsupportedError } from "./errors.js";

/**
 * A way to run the model. Listed fastest first.
 * @typedef {object} Candidate
 * @property {string} name
 * @property {"webgpu" | "wasm"} device
 * @property {string} graph graph variant of the bundle
 * @property {boolean} subgroups whether the GPU device has the `subgroups` feature
 */

/** @type {readonly Candidate[]} */
const CANDIDATES = Object.freeze([
  { name: "webgpu-gqa", device: "webgpu", graph: "gqa", subgroups: true },
  { name: "webgpu-gqa-nosubgroups", device: "webgpu", graph: "gqa", subgroups: false },
  { name: "webgpu-explicit", device: "webgpu", graph: "explicit", subgroups: false },
  { name: "wasm", device: "wasm", graph: "explicit", subgroups: false },
]);

/**
 * The candidates to try, in order.
 * @param {"auto" | "webgpu" | "wasm"} device
 * @param {readonly string[]} [names] default: all that fit the device
 * @returns {readonly Candidate[]}
 * @throws {UnsupportedError} there is no such name
 */
export function choose(device, names) {
  if (!names) return CANDIDATES.filter((c) => device === "auto" || c.device === device);
  return names.map((name) => {
    const found = CANDIDATES.find((c) => c.name === name);
    if (found) return found;
    const known = CANDIDATES.map((c) => c.name).join(", ");
    throw new UnsupportedError(`there is no candidate ${JSON.stringify(name)}; known: ${known}`, {
      candidate: name,
    });
  });
}
