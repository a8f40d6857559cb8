/**
 * Picks device, ONNX Runtime build and graph by a self-test on the user's own device.
 *
 * Several combinations of adapter and kernel give wrong numbers without any error, so nothing is trusted: the fastest
 * candidate is tried first, and the first one that reproduces the bundle's golden logits is taken. Knows
 * sessions and golden token ids, not questions.
 */

import { Engine } from "./engine.js";
import { AbortedError, DeviceLostError, TypedecideError, UnsupportedError } from "./errors.js";
import { countBuffers, countingMemories } from "./meter.js";
import { importModule } from "./modules.js";
import { scores } from "./pointer.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./store.js").Format} Format */

/**
 * A way to run the model. Listed fastest first.
 * @typedef {object} Candidate
 * @property {string} name
 * @property {"webgpu" | "wasm"} device
 * @property {string} graph graph variant of the bundle
 * @property {boolean} subgroups whether the GPU device has the `subgroups` feature
 */

/** @type {readonly Candidate[]} */
export const CANDIDATES = Object.freeze([
  { name: "webgpu-gqa", device: "webgpu", graph: "gqa", subgroups: true },
  { name: "webgpu-gqa-nosubgroups", device: "webgpu", graph: "gqa", subgroups: false },
  { name: "webgpu-explicit", device: "webgpu", graph: "explicit", subgroups: false },
  { name: "wasm", device: "wasm", graph: "explicit", subgroups: false },
]);

/** @typedef {import("./types.js").Trial} Trial */

/**
 * @typedef {object} Options
 * @property {"auto" | "webgpu" | "wasm"} device
 * @property {string} format
 * @property {number} [threads] WASM threads; default: the processor's, at most 8
 * @property {string[]} [candidates] names, in the order to try; default: all that fit `device`
 * @property {(phase: string, message: string, file?: string, loaded?: number, total?: number) => void} report
 * @property {AbortSignal} [signal]
 */

/**
 * @typedef {object} Started
 * @property {Engine} engine
 * @property {Candidate} candidate
 * @property {string} reason
 * @property {Trial[]} selfTest
 * @property {number} threads
 * @property {string | null} adapter
 * @property {{version: string, build: string}} ort
 * @property {(() => import("./meter.js").Buffers) | null} gpu what it holds on the GPU; null where it uses none
 */

/**
 * Start the first candidate that passes the self-test.
 * @param {Store} store
 * @param {Options} options
 * @returns {Promise<Started>}
 * @throws {UnsupportedError} no candidate is left; `data.selfTest` says what each one did
 */
export async function start(store, options) {
  const wanted = choose(options);
  const format = store.manifest.formats[options.format];
  const adapter = wanted.some((c) => c.device === "webgpu") ? await findAdapter() : null;
  const context = { store, format, options, adapter, weights: /** @type {Weights | null} */ (null) };
  /** @type {Trial[]} */
  const trials = [];
  for (const candidate of wanted) {
    if (options.signal?.aborted) throw new AbortedError("starting the engine was aborted");
    const missing = unavailable(candidate, adapter, options, format);
    if (missing) {
      trials.push({
        candidate: candidate.name,
        verdict: "unavailable",
        maxError: null,
        ms: null,
        reason: missing,
      });
      continue;
    }
    const { trial, engine, ort, threads, gpu } = await tryCandidate(candidate, context);
    trials.push(trial);
    if (!engine) continue;
    const rest = wanted.slice(trials.length).map((c) => notTried(c, candidate));
    return {
      engine,
      candidate,
      reason: explain(trials),
      selfTest: [...trials, ...rest],
      threads,
      adapter: candidate.device === "webgpu" && adapter ? describe(adapter) : null,
      ort,
      gpu,
    };
  }
  throw new UnsupportedError(`no way to run the model is left on this device: ${explain(trials)}`, {
    device: options.device,
    selfTest: trials,
  });
}

/** @typedef {{path: string, data: Uint8Array}[]} Weights */

/**
 * @param {Candidate} candidate
 * @param {{store: Store, format: Format, options: Options, adapter: GPUAdapter | null, weights: Weights | null}} context
 * @returns {Promise<{trial: Trial, engine: Engine | null} & Pick<Started, "ort" | "threads" | "gpu">>}
 */
async function tryCandidate(candidate, context) {
  const { store, format, options, adapter } = context;
  const began = performance.now();
  const build = candidate.device === "wasm" ? "wasm" : webgpuBuild();
  const threads = threadCount(store.base, options.threads);
  const trial = { candidate: candidate.name, maxError: /** @type {number | null} */ (null) };
  /** @type {Engine | null} */
  let engine = null;
  let ortVersion = store.manifest.runtime.ort;
  try {
    const ort = await loadOrt(store, build, threads, options.report);
    ortVersion = ort.env.versions.web ?? ortVersion;
    const weights = (context.weights ??= await store.assemble(format.data, (file, loaded, total) =>
      options.report("download", "Downloading the model", file, loaded, total),
    ));
    options.report("session", `Preparing ${candidate.name}`);
    const device = await openDevice(candidate, adapter);
    const gpu = device && countBuffers(device);
    engine = await countingMemories(() => open(candidate, ort, device, context, weights));
    options.report("selftest", `Checking ${candidate.name} against golden values`);
    const tolerance = format.tolerance ?? store.manifest.selftest.tolerance;
    trial.maxError = await selfTest(engine, format, tolerance, options.signal);
    const ms = performance.now() - began;
    const numbers = `largest logit error ${trial.maxError.toPrecision(2)}, allowed ${tolerance}`;
    if (trial.maxError <= tolerance) {
      return {
        trial: { ...trial, verdict: "chosen", ms, reason: `right: ${numbers}` },
        engine,
        ort: { version: ortVersion, build },
        threads: candidate.device === "wasm" ? threads : 1,
        gpu,
      };
    }
    await engine.release();
    return failed({ ...trial, verdict: "rejected", ms, reason: `wrong numbers: ${numbers}` });
  } catch (error) {
    await engine?.release().catch(() => {});
    // Faults of the bundle or an abort are not the candidate's: trying the next one would hide them.
    if (error instanceof TypedecideError && !(error instanceof DeviceLostError)) throw error;
    const ms = performance.now() - began;
    return failed({ ...trial, verdict: "rejected", ms, reason: `failed: ${firstLine(error)}` });
  }
}

/** @param {Trial} trial */
function failed(trial) {
  return { trial, engine: null, ort: { version: "", build: "" }, threads: 0, gpu: null };
}

/**
 * Largest difference between the engine's logits and the golden ones; stops at the first wrong case.
 * @param {Engine} engine
 * @param {Format} format
 * @param {number} tolerance
 * @param {AbortSignal} [signal]
 */
async function selfTest(engine, format, tolerance, signal) {
  let worst = 0;
  for (const golden of format.golden) {
    if (signal?.aborted) throw new AbortedError("the self-test was aborted");
    const cache = await prefilled(engine, golden);
    const suffixes = golden.suffixes.map((one) =>
      one.branches ? one : { ...one, labelIds: golden.label_ids },
    );
    const { logits } = await engine.score(cache, suffixes).finally(() => cache.release());
    logits.forEach((found, i) => {
      const { branches } = suffixes[i];
      const row =
        branches && found.every(Number.isFinite) ? scores(found, branches.length) : Array.from(found);
      row.forEach((value, j) => {
        const error = Math.abs(value - golden.logits[i][j]);
        worst = Math.max(worst, Number.isFinite(error) ? error : Infinity);
      });
    });
    if (worst > tolerance) break;
  }
  return worst;
}

/**
 * The prefix of a golden case; the anchor of a shallow model is computed before the rest, as engines do.
 * @param {Engine} engine
 * @param {import("./store.js").Golden} golden
 */
async function prefilled(engine, { prefix, anchor = 0 }) {
  if (anchor === 0) return engine.prefill(prefix);
  const base = await engine.prefill(prefix.slice(0, anchor), { anchor });
  return engine.prefill(prefix, { base, anchor }).finally(() => base.release());
}

/**
 * @param {Candidate} candidate
 * @param {Ort} ort
 * @param {GPUDevice | null} device
 * @param {{store: Store, format: Format}} context
 * @param {Weights} weights
 */
async function open(candidate, ort, device, { store, format }, weights) {
  const graph = await store.bytes(/** @type {string} */ (graphOf(candidate, format)));
  const session = await ort.InferenceSession.create(graph, {
    executionProviders: [device ? /** @type {any} */ ({ name: "webgpu", device }) : "wasm"],
    externalData: weights,
    graphOptimizationLevel: "all",
    logSeverityLevel: 3,
  });
  const { shape, shallow } = store.manifest.model;
  return new Engine({
    ort,
    session,
    shape: { ...shape, shallow: shallow?.layers },
    device,
    ...(store.manifest.stock
      ? { vocabulary: /** @type {number} */ (store.manifest.model.vocab), grouped: "gqa" in format.graphs }
      : {}),
  });
}

// -- devices ----------------------------------------------------------------------------------------------------

async function findAdapter() {
  return (await globalThis.navigator?.gpu?.requestAdapter({ powerPreference: "high-performance" })) ?? null;
}

/**
 * A device of our own, so that the features it has are known and its loss is noticed; null for WASM.
 * @param {Candidate} candidate
 * @param {GPUAdapter | null} adapter
 */
async function openDevice(candidate, adapter) {
  if (candidate.device === "wasm") return null;
  // An adapter gives one device only; each candidate asks for its own.
  const own = (await findAdapter()) ?? /** @type {GPUAdapter} */ (adapter);
  const useful = ["subgroups", "shader-f16", "timestamp-query"];
  const features = useful.filter((f) => own.features.has(f) && (f !== "subgroups" || candidate.subgroups));
  const limits = /** @type {const} */ ([
    "maxBufferSize",
    "maxStorageBufferBindingSize",
    "maxComputeInvocationsPerWorkgroup",
    "maxComputeWorkgroupSizeX",
    "maxComputeWorkgroupSizeY",
    "maxComputeWorkgroupSizeZ",
    "maxComputeWorkgroupStorageSize",
    "maxComputeWorkgroupsPerDimension",
    "maxStorageBuffersPerShaderStage",
  ]);
  return own.requestDevice({
    requiredFeatures: /** @type {GPUFeatureName[]} */ (features),
    requiredLimits: Object.fromEntries(limits.map((limit) => [limit, own.limits[limit]])),
  });
}

/** @param {GPUAdapter} adapter */
function describe({ info }) {
  return [info.vendor, info.architecture, info.device, info.description].filter(Boolean).join(" ");
}

/**
 * Why a candidate cannot even be tried, or null.
 * @param {Candidate} candidate
 * @param {GPUAdapter | null} adapter
 * @param {Options} options
 * @param {Format} format
 */
function unavailable(candidate, adapter, options, format) {
  if (format.devices && !format.devices.includes(candidate.device)) {
    return `the format ${options.format} is for ${format.devices.join(", ")}`;
  }
  if (!graphOf(candidate, format)) return `this bundle has no ${candidate.graph} graph`;
  if (candidate.device === "wasm") return null;
  if (!globalThis.navigator?.gpu) return "this browser has no WebGPU";
  if (!adapter) return "WebGPU finds no adapter here";
  if (options.device === "auto" && !options.candidates && adapter.info.isFallbackAdapter) {
    return "the adapter is a software one: WASM is faster";
  }
  return null;
}

/**
 * The path of the graph that a candidate runs: WASM runs any, of which a stock export has one.
 * @param {Candidate} candidate
 * @param {Format} format
 * @returns {string | undefined}
 */
function graphOf({ device, graph }, { graphs }) {
  return graphs[graph] ?? (device === "wasm" ? graphs.gqa : undefined);
}

/** @param {Options} options */
function choose({ device, candidates }) {
  if (!candidates) return CANDIDATES.filter((c) => device === "auto" || c.device === device);
  return candidates.map((name) => {
    const found = CANDIDATES.find((c) => c.name === name);
    if (found) return found;
    const known = CANDIDATES.map((c) => c.name).join(", ");
    throw new UnsupportedError(`there is no candidate ${JSON.stringify(name)}; known: ${known}`, {
      candidate: name,
    });
  });
}

/**
 * @param {URL} bundle
 * @param {number} [asked]
 */
function threadCount(bundle, asked) {
  // WASM threads need SharedArrayBuffer, which a page has only when it is cross-origin isolated; and each is a worker,
  // whose script must be of the page's own origin.
  if (!globalThis.crossOriginIsolated || bundle.origin !== globalThis.location?.origin) return 1;
  return asked ?? Math.min(globalThis.navigator?.hardwareConcurrency ?? 1, 8);
}

// -- ONNX Runtime Web -------------------------------------------------------------------------------------------

/** @typedef {typeof import("onnxruntime-common")} Ort */

/** The build for WebGPU: the smaller JSPI one where the browser can suspend WebAssembly. */
function webgpuBuild() {
  return "Suspending" in WebAssembly ? "jspi" : "webgpu";
}

/**
 * @param {Store} store
 * @param {string} build
 * @param {number} threads
 * @param {Options["report"]} report
 * @returns {Promise<Ort>}
 */
async function loadOrt(store, build, threads, report) {
  const files = store.manifest.runtime.builds[build];
  if (!files) {
    throw new UnsupportedError(`this bundle lacks the ${build} build of ONNX Runtime Web`, { build });
  }
  const module = await importModule(store.url(files.module));
  /** @type {Ort} */
  const ort = module.default ?? module;
  if (!ort.env.wasm.wasmBinary) {
    const wasm = await store.gunzip(files.wasm, (file, loaded, total) =>
      report("download", "Downloading the runtime", file, loaded, total),
    );
    ort.env.wasm.wasmBinary = wasm.buffer;
    ort.env.wasm.wasmPaths = { mjs: String(store.url(files.loader)) };
    ort.env.wasm.numThreads = threads;
    ort.env.logLevel = "error";
  }
  return ort;
}

// -- words ------------------------------------------------------------------------------------------------------

/**
 * @param {Candidate} candidate
 * @param {Candidate} chosen
 * @returns {Trial}
 */
function notTried(candidate, chosen) {
  const reason = `${chosen.name} comes first and is right`;
  return { candidate: candidate.name, verdict: "not tried", maxError: null, ms: null, reason };
}

/** @param {Trial[]} trials */
function explain(trials) {
  return trials.map((t) => `${t.candidate} ${t.verdict} (${t.reason})`).join("; ");
}

/** @param {unknown} error */
function firstLine(error) {
  const text = error instanceof Error ? error.message : String(error);
  return text.split("\n", 1)[0].slice(0, 300);
}
