// What a browser must have for any of this to work, asked before anything is fetched. Knows no bundle.

import { choose } from "./candidates.js";
import { UnsupportedError } from "./errors.js";

/** A module whose only function holds a SIMD instruction. */
const SIMD = Uint8Array.of(
  ...[
    0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98,
    11,
  ],
);

/** Not written where it is used: build tools take that for a script to find. */
const NO_ADDRESS = "http://[";

/** @type {readonly [feature: string, isThere: () => boolean][]} */
const NEEDED = [
  ["WebAssembly", () => typeof WebAssembly === "object"],
  ["WebAssembly SIMD", () => typeof WebAssembly === "object" && WebAssembly.validate(SIMD)],
  ["BigInt64Array", () => typeof BigInt64Array === "function"],
  ["DecompressionStream", () => typeof DecompressionStream === "function"],
  ["module workers", hasModuleWorkers],
  ["crypto.subtle (open the page over HTTPS or from localhost)", () => Boolean(globalThis.crypto?.subtle)],
];

/**
 * @param {"auto" | "webgpu" | "wasm"} device
 * @param {readonly string[]} [candidates]
 * @throws {UnsupportedError} there is no such candidate, or `data.missing` names what this browser lacks
 */
export async function requireSupport(device, candidates) {
  const wanted = choose(device, candidates);
  const missing = NEEDED.filter(([, isThere]) => !isThere()).map(([feature]) => feature);
  if (wanted.every((c) => c.device === "webgpu")) {
    if (!globalThis.navigator?.gpu) missing.push("WebGPU");
    else if (!(await findAdapter())) missing.push("a WebGPU adapter");
  }
  if (missing.length === 0) return;
  throw new UnsupportedError(`this browser lacks ${missing.join(", ")}`, { missing });
}

/** The GPU to take; null where there is none, or a page may not have it. */
export async function findAdapter() {
  return (await globalThis.navigator?.gpu?.requestAdapter({ powerPreference: "high-performance" })) ?? null;
}

/** Whether workers can be modules: then their `type` is read, here for a worker that no address lets begin. */
function hasModuleWorkers() {
  let asked = false;
  const options = {
    get type() {
      asked = true;
      return /** @type {const} */ ("module");
    },
  };
  try {
    new Worker(NO_ADDRESS, options).terminate();
  } catch {
    // The address is none.
  }
  return asked;
}
