/**
 * Picks device, ONNX Runtime build and graph by a self-test on the user's own device.
 *
 * Several combinations of adapter and kernel give wrong numbers without any error, so nothing is trusted: the fastest
 * candidate is tried first, and the first one that reproduces the bundle's golden logits is taken. Knows
 * sessions and golden token ids, not questions.
 */

import { choose } from "./candidates.js";
import { Engine } from "./engine.js";
import { AbortedError, DeviceLostError, TypedecideError, UnsupportedError } from "./errors.js";
import { countBuffers, countingMemories } from "./meter.js";
import { importModule } from "./modules.js";
import { scores } from "./pointer.js";
import { findAdapter } from "./support.js";

/** @typedef {import("./candidates.js").Candidate} Candidate */
/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./store.js").Format} Format */
/** @typedef {import("./types.js").Trial} Trial */

/**
 * @typedef {object} Options
 * @property {"auto" | "webgpu" | "wasm"} device
 * @property {string} format
 * @property {number} [threads] WASM threads; default: the processor's, at most 8
 * @property {string[]} [candidates] names, in the order to try; default: all that fit `device`
 * @property {(phase: string, message: string, file?: string, loaded?: number, total?: number) => void} report
 * @property {import("./clock.js").Clock} clock is told when each step ran
 * @property {AbortSignal} [signal]
 */

/**
 * The ways to run a bundle that are wanted, in order, each with why it cannot even be tried, or null; and the GPU.
 * @typedef {{ways: {candidate: Candidate, missing: string | null}[], adapter: GPUAdapter | null}} Survey
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
 * See what can be tried, before anything of the model is fetched.
 * @param {import("./store.js").Manifest} manifest
 * @param {Pick<Options, "device" | "format" | "candidates">} options
 * @returns {Promise<Survey>}
 * @throws {UnsupportedError} nothing can; `data.selfTest` says why
 */
export async function survey(manifest, options) {
  const wanted = choose(options.device, options.candidates);
  const format = manifest.formats[options.format];
  const adapter = wanted.some((c) => c.device === "webgpu") ? await findAdapter() : null;
  const ways = wanted.map((candidate) => ({
    candidate,
    missing: unavailable(candidate, adapter, options, format),
  }));
  const trials = ways.flatMap((way) =>
    way.missing === null ? [] : [notTriable(way.candidate, way.missing)],
  );
  if (trials.length === ways.length) throw nothingLeft(options.device, trials);
  return { ways, adapter };
}

/**
 * Start the first candidate that passes the self-test.
 * @param {Store} store
 * @param {Survey} survey of its manifest
 * @param {Options} options
 * @returns {Promise<Started>}
 * @throws {UnsupportedError} no candidate is left; `data.selfTest` says what each one did
 */
export async function start(store, { ways, adapter }, options) {
  const format = store.manifest.formats[options.format];
  /** @type {Context} */
  const context = { store, format, options, adapter, weights: null };
  /** @type {Trial[]} */
  const trials = [];
  for (const { candidate, missing } of ways) {
    if (options.signal?.aborted) throw new AbortedError("starting the engine was aborted");
    if (missing !== null) {
      trials.push(notTriable(candidate, missing));
      continue;
    }
    const { trial, engine, ort, threads, gpu } = await tryCandidate(candidate, context);
    trials.push(trial);
    if (!engine) continue;
    const rest = ways.slice(trials.length).map((way) => notTried(way.candidate, candidate));
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
  throw nothingLeft(options.device, trials);
}

/**
 * @param {string} device
 * @param {Trial[]} trials
 */
function nothingLeft(device, trials) {
  const message = `no way to run the model is left on this device: ${explain(trials)}`;
  return new UnsupportedError(message, { device, selfTest: trials });
}

/** @typedef {{path: string, data: Uint8Array}[]} Weights */

/**
 * What candidates share. The weights are on their way, or there, once one of them wanted them.
 * @typedef {{store: Store, format: Format, options: Options, adapter: GPUAdapter | null,
 *   weights: Promise<Weights> | null}} Context
 */

/**
 * @param {Candidate} candidate
 * @param {Context} context
 * @returns {Promise<{trial: Trial, engine: Engine | null} & Pick<Started, "ort" | "threads" | "gpu">>}
 */
async function tryCandidate(candidate, context) {
  const { store, format, options, adapter } = context;
  const { clock } = options;
  const began = performance.now();
  const build = candidate.device === "wasm" ? "wasm" : webgpuBuild();
  const threads = threadCount(store.base, options.threads);
  const trial = { candidate: candidate.name, maxError: /** @type {number | null} */ (null) };
  /** @type {Engine | null} */
  let engine = null;
  let ortVersion = store.manifest.runtime.ort;
  try {
    const runtime = await clock.during("runtime", () => loadOrt(store, build, threads, options.report));
    const { ort } = runtime;
    ortVersion = ort.env.versions.web ?? ortVersion;
    // The weights are the longest part: everything that does not need them happens meanwhile.
    context.weights ??= clock.during("weights", () =>
      store.assemble(format.data, (file, loaded, total) =>
        options.report("download", "Downloading the model", file, loaded, total),
      ),
    );
    const begun = clock.during("compile", () => begin(runtime));
    const path = /** @type {string} */ (graphOf(candidate, format));
    const [graph, weights] = await Promise.all([store.bytes(path), context.weights, begun]);
    options.report("session", `Preparing ${candidate.name}`);
    const device = await openDevice(candidate, adapter);
    const gpu = device && countBuffers(device);
    engine = await clock.during("session", () => open(ort, device, context, graph, weights));
    options.report("selftest", `Checking ${candidate.name} against golden values`);
    const tolerance = format.tolerance ?? store.manifest.selftest.tolerance;
    const made = engine;
    trial.maxError = await clock.during("selftest", () => selfTest(made, format, tolerance, options.signal));
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
 * Largest difference between the engine's logits and the golden ones; stops at the first wrong case. Benchmarks run it
 * on candidates that it would not let through.
 * @param {Engine} engine
 * @param {Format} format
 * @param {number} tolerance
 * @param {AbortSignal} [signal]
 */
export async function selfTest(engine, format, tolerance, signal) {
  let worst = 0;
  let told = "";
  /** @type {import("./engine.js").Cache | null} */
  let cache = null;
  try {
    for (const golden of format.golden) {
      if (signal?.aborted) throw new AbortedError("the self-test was aborted");
      const prefix = JSON.stringify([golden.prefix, golden.anchor]);
      // Cases with one prefix share it, as questions about one text do.
      if (prefix !== told) {
        cache?.release();
        cache = null;
      }
      cache ??= await prefilled(engine, golden);
      told = prefix;
      worst = Math.max(worst, await largestError(engine, cache, golden));
      if (worst > tolerance) break;
    }
  } finally {
    cache?.release();
  }
  return worst;
}

/**
 * @param {Engine} engine
 * @param {import("./engine.js").Cache} cache of the case's prefix
 * @param {import("./store.js").Golden} golden
 */
async function largestError(engine, cache, golden) {
  const suffixes = golden.suffixes.map((one) =>
    one.branches ? one : { ...one, labelIds: golden.label_ids },
  );
  const { logits } = await engine.score(cache, suffixes);
  let worst = 0;
  logits.forEach((found, i) => {
    const { branches } = suffixes[i];
    const row = branches && found.every(Number.isFinite) ? scores(found, branches.length) : Array.from(found);
    row.forEach((value, j) => {
      const error = Math.abs(value - golden.logits[i][j]);
      worst = Math.max(worst, Number.isFinite(error) ? error : Infinity);
    });
  });
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
 * @param {Ort} ort
 * @param {GPUDevice | null} device
 * @param {{store: Store, format: Format}} context
 * @param {Uint8Array} graph
 * @param {Weights} weights
 */
async function open(ort, device, { store, format }, graph, weights) {
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
 * @param {Pick<Options, "device" | "format" | "candidates">} options
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
 * The runtime before it runs. Of one that runs already there is nothing to unpack.
 * @typedef {{ort: Ort, packed: Uint8Array<ArrayBuffer> | null}} Runtime
 */

/** A graph that gives what it takes. */
const SMALLEST = Uint8Array.of(
  ...[8, 10, 58, 55, 10, 16, 10, 1, 97, 18, 1, 98, 34, 8, 73, 100, 101, 110, 116, 105, 116, 121, 18, 1, 103],
  ...[90, 15, 10, 1, 97, 18, 10, 10, 8, 8, 1, 18, 4, 10, 2, 8, 1, 98, 15, 10, 1, 98, 18, 10, 10, 8, 8, 1, 18],
  ...[4, 10, 2, 8, 1, 66, 4, 10, 0, 16, 21],
);

/**
 * Get the runtime's files.
 * @param {Store} store
 * @param {string} build
 * @param {number} threads
 * @param {Options["report"]} report
 * @returns {Promise<Runtime>}
 */
async function loadOrt(store, build, threads, report) {
  const files = store.manifest.runtime.builds[build];
  if (!files) {
    throw new UnsupportedError(`this bundle lacks the ${build} build of ONNX Runtime Web`, { build });
  }
  const module = await importModule(store.url(files.module), store.signal);
  /** @type {Ort} */
  const ort = module.default ?? module;
  if (ort.env.wasm.wasmBinary) return { ort, packed: null };
  // The runtime will import this itself, but waits for ever for a server that does not answer.
  await importModule(store.url(files.loader), store.signal);
  ort.env.wasm.wasmPaths = { mjs: String(store.url(files.loader)) };
  ort.env.wasm.numThreads = threads;
  ort.env.logLevel = "error";
  const packed = await store.bytes(files.wasm, (file, loaded, total) =>
    report("download", "Downloading the runtime", file, loaded, total),
  );
  return { ort, packed };
}

/**
 * Unpack the runtime's WebAssembly, compile it and start its threads. The runtime does that with the first session of all,
 * so it gets one.
 * @param {Runtime} runtime
 */
async function begin({ ort, packed }) {
  if (!packed) return;
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  ort.env.wasm.wasmBinary = await new Response(stream).arrayBuffer();
  await countingMemories(async () => {
    const session = await ort.InferenceSession.create(SMALLEST, { executionProviders: ["wasm"] });
    await session.release();
  });
}

// -- words ------------------------------------------------------------------------------------------------------

/**
 * @param {Candidate} candidate
 * @param {string} reason
 * @returns {Trial}
 */
function notTriable(candidate, reason) {
  return { candidate: candidate.name, verdict: "unavailable", maxError: null, ms: null, reason };
}

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
