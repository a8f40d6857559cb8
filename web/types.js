// The shapes that callers pass and get, as types only: what the package's declarations are made of. No code, and no type
// of the runtime behind it, which callers need not have.

export {};

/** Options of a question: names in their order, with descriptions where they help. An object keeps the order of its keys
 * only where none is like an integer ("10"): use a list or a Map for those.
 * @typedef {readonly (string | readonly [name: string, description: string | null]
 *   | {readonly name: string, readonly description?: string | null})[]
 *   | Readonly<Record<string, string | null>> | ReadonlyMap<string, string | null>} OptionList
 */

/** @typedef {{readonly type: "choice", readonly instructions?: string | null, readonly criteria: OptionList}} ChoiceQuestion */
/** @typedef {{readonly type: "score", readonly instructions?: string | null, readonly criteria: OptionList}} ScoreQuestion */
/**
 * @typedef {{
 *   readonly type: "noul",
 *   readonly instructions?: string | null,
 *   readonly criteria?: string | null | {readonly true?: string | null, readonly false?: string | null},
 * }} NoulQuestion
 */

/**
 * A question in the System One form: one of 2 to 255 options, one of 2 to 10 levels from lowest to highest, or yes or no.
 * @typedef {ChoiceQuestion | ScoreQuestion | NoulQuestion} Question
 */

/**
 * An answer pooled over orders of the options; readouts that list no options have one order. `flip_rate` is the share of
 * the orders whose own answer differs from the pooled one, before a batch prior is taken out; `logits` of several orders
 * are log-probabilities. `prior` says what was done about the prior, where that was asked for, `calibration` and `abstain`
 * what calibration did, where there is one for the answer. `x_shallow` says of what kind of approximation it is, where the
 * model is shallow.
 * @typedef {import("./readout.js").Answer & {
 *   orderings_used: number,
 *   flip_rate: number,
 *   prior?: import("./prior.js").Prior,
 *   x_shallow?: import("./shallow.js").Shallow,
 * } & Partial<import("./calibration.js").Applied>} Ordered
 */

/**
 * The answer to a question of a known type.
 * @template Q
 * @typedef {Omit<Ordered, "value"> & {
 *   value: Q extends {type: "choice"} ? string : Q extends {type: "noul" | "score"} ? number : string | number,
 * }} AnswerTo
 */

/**
 * Answers by the ids of their questions.
 * @template Q
 * @typedef {Q extends Map<string, infer One>
 *   ? Record<string, AnswerTo<One>>
 *   : {[id in keyof Q]: AnswerTo<Q[id]>}} AnswersTo
 */

/** @typedef {Ordered & {tokens: number, ms: number}} Scored an answer, the tokens run for it, and milliseconds */

/** @typedef {{tokens: number, kept: boolean, ms: number}} Prefilled */

/** @typedef {{answers: Ordered[], tokens_run: number, tokens_saved: number, runs: number, ms: number}} ScoredAll */

/**
 * What `decide` gives.
 * @template Q
 * @typedef {Omit<ScoredAll, "answers"> & {answers: AnswersTo<Q>, prefill: Prefilled}} Decision
 */

/**
 * What an engine is asked by name, over a channel to its worker or over a port.
 * @typedef {"load" | "prefill" | "score" | "scoreAll" | "decide" | "states" | "memory" | "release" | "scoreFull"} Operation
 */

/**
 * @typedef {object} Progress
 * @property {"manifest" | "download" | "session" | "selftest" | "ready"} phase
 * @property {string} message
 * @property {string} [file]
 * @property {number} [loadedBytes]
 * @property {number} [totalBytes]
 */

/**
 * What the self-test found of one way to run the model.
 * @typedef {object} Trial
 * @property {string} candidate
 * @property {"chosen" | "rejected" | "unavailable" | "not tried"} verdict
 * @property {number | null} maxError largest difference from the golden logits
 * @property {number | null} ms
 * @property {string} reason
 */

/**
 * When the steps of a load ran, in milliseconds since it began. They overlap: files come while the runtime starts.
 *
 * `manifest`: what the bundle has; `tokenizer`: made of its file; `runtime`: the files of ONNX Runtime Web; `compile`: its
 * WebAssembly unpacked, compiled and started; `weights`: fetched or read, and checked; `session`: the graph made ready with
 * them; `selftest`: compared with golden values. Of the last five, those of the candidate that was chosen.
 * @typedef {Record<"manifest" | "tokenizer" | "runtime" | "compile" | "weights" | "session" | "selftest",
 *   import("./clock.js").Span>} Timings
 */

/**
 * Where the bytes of a load came from, and whether the next one finds them in the browser.
 * @typedef {object} Storage
 * @property {boolean} kept
 * @property {string | null} note why not
 * @property {number} downloadedBytes
 * @property {number} keptBytes bytes that were here before
 */

/**
 * What an engine holds, in bytes: its WebAssembly memory, which never shrinks; kept texts, beside it, or among the buffers
 * on the GPU; and all buffers on the GPU, null where none is used.
 * @typedef {{wasmBytes: number, stateBytes: number, gpu: {buffers: number, bytes: number} | null}} Memory
 */

/**
 * @typedef {object} Info
 * @property {Record<string, unknown>} model
 * @property {string} format
 * @property {"webgpu" | "wasm"} device
 * @property {string} candidate
 * @property {string} reason
 * @property {Trial[]} selfTest
 * @property {number} threads
 * @property {string | null} adapter
 * @property {{version: string, build: string}} ort
 * @property {number} context
 * @property {string} readout the bundle's own readout
 * @property {readonly string[]} readouts those that it has
 * @property {import("./calibration.js").Facts | null} calibration what is used of it
 * @property {(import("./shallow.js").Shallow & {layers: number}) | null} shallow null where texts go through all layers
 * @property {number} tokenBytes memory that one token of a text takes while it is kept
 * @property {Storage} storage where the weights came from, and whether they are kept
 * @property {number} loadMs
 * @property {Timings} timings what took how long of it
 */
