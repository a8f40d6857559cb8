// Every text that the page shows, in one place. Knows nothing of the DOM or the engine.

const percent = new Intl.NumberFormat("en", {
  style: "percent",
  minimumFractionDigits: 1,
  maximumFractionDigits: 1,
});
const decimal = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const integer = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const oneDigit = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

/**
 * A probability as a percentage; what would round to 0 or 100 % without being it is shown as a bound.
 * @param {number} p
 * @returns {string}
 */
export function formatProbability(p) {
  if (p > 0 && p < 0.0005) return "< 0.1%";
  if (p < 1 && p >= 0.9995) return "> 99.9%";
  return percent.format(p);
}

/**
 * @param {number} ms
 * @returns {string}
 */
export function formatMs(ms) {
  if (ms >= 9999.5) return `${oneDigit.format(ms / 1000)} s`;
  return ms < 9.95 ? `${oneDigit.format(ms)} ms` : `${integer.format(ms)} ms`;
}

/**
 * @param {number} count
 * @returns {string}
 */
export function formatCount(count) {
  return integer.format(count);
}

/**
 * @param {number} bytes
 * @returns {string}
 */
function megabytes(bytes) {
  return oneDigit.format(bytes / 1e6);
}

/** An error of a kind that the library does not name. */
export const UNEXPECTED = "UNEXPECTED";

/**
 * In how many of several orders the answer shown comes first.
 * @param {number} used at least two
 * @param {number} agreeing
 */
function agreement(used, agreeing) {
  if (agreeing === used) return used === 2 ? "both agree" : "all agree";
  if (agreeing === 0) return "none agrees";
  return agreeing === 1 ? "1 agrees" : `${formatCount(agreeing)} agree`;
}

export const S = {
  title: "typedecide",
  tagline: "Typed questions about a text, answered by a language model inside this page. Nothing leaves it.",
  none: "–",

  tabsLabel: "Parts of the workbench",
  tabs: { decide: "Decide", table: "Table", trust: "Trust", proof: "Proof", code: "Code", python: "Python" },
  opening: "Opening …",
  /** @param {string} url */
  notFetched: (url) => `${url} could not be fetched`,

  kinds: { choice: "Choice", noul: "Yes / no", score: "Score" },
  yes: "Yes",
  no: "No",
  /** @param {number} confidence */
  confidence: (confidence) => `confidence ${decimal.format(confidence)}`,
  readings: {
    compared: {
      label: "Trained comparison",
      hint: "Compares each option with the answer. Options are read side by side, so they have no order. For models tuned for it.",
    },
    texts: {
      label: "Option texts",
      hint: "Weighs each option's own name as the answer. No list, so no order; descriptions are not read. Best for small models that are not tuned.",
    },
    orders: {
      label: "Letters, several orders",
      hint: "Lists the options under letters, in up to four orders, and pools the answers: small models favour places in a list.",
    },
    order: {
      label: "Letters, one order",
      hint: "Lists the options under letters once, as they stand, so their places count too.",
    },
  },
  readingLegend: "How answers are read",

  idle: "Loading starts …",
  ready: "Ready",
  loadStopped: "Loading stopped",
  loadFailed: "The model is not loaded",

  loadingLabel: "Loading the model",
  phases: {
    manifest: "Reading the bundle's manifest",
    download: "Downloading",
    session: "Preparing the model",
    selftest: "Testing this device",
    ready: "Ready",
  },
  /** @param {number} loaded @param {number} total */
  bytes: (loaded, total) => `${megabytes(loaded)} of ${megabytes(total)} MB`,

  panelHeading: "Device and self-test",
  panelLoading: "loading",
  panelNone: "Nothing is loaded yet: this shows what the model runs on once it is.",
  facts: {
    model: "Model",
    licence: "Licence of the model",
    format: "Weight format",
    device: "Device",
    candidate: "Way of running it",
    reason: "Why",
    adapter: "Graphics adapter",
    threads: "Threads",
    runtime: "ONNX Runtime Web",
    shallow: "Approximation",
    context: "Longest prompt",
    loadMs: "Loaded in",
    storage: "Weights",
  },
  /** @param {{k: number, layers: number, anchor: string, agreement: number | null}} shallow */
  shallow: ({ k, layers, anchor, agreement }) =>
    `the text is read by ${k} of ${layers} layers (anchor: ${anchor}); agreement with the whole model: ${
      agreement === null ? "not measured" : formatProbability(agreement)
    }`,
  kept: "kept in this browser for the next visit",
  devices: { webgpu: "WebGPU", wasm: "WebAssembly (CPU)" },
  /** @param {number} tokens */
  contextTokens: (tokens) => `${formatCount(tokens)} tokens`,
  verdicts: { chosen: "chosen", rejected: "rejected", unavailable: "unavailable", "not tried": "not tried" },
  candidatesHeading: "Candidates, in the order tried",
  candidatesHint: "Each runs prompts whose right answer is known. The first that agrees is used.",
  /** @param {number} error */
  maxError: (error) => `largest error ${error.toExponential(1)}`,
  switchDevice: "Load again on:",
  switchTargets: { auto: "the best that works", webgpu: "WebGPU", wasm: "WebAssembly" },

  retry: "Try again",
  dismiss: "Dismiss",
  errorHeadings: {
    load: "The model could not be loaded.",
    run: "The text could not be decided.",
    sample: "The sample could not be loaded.",
    tab: "This part of the page could not be opened.",
    python: "Python could not be started.",
  },
  /** @param {string} value */
  found: (value) => ` Found: ${value}`,
  unknownCause: "Something failed without saying why.",
  advice: {
    UNSUPPORTED: "Use a current Chrome, Edge, Firefox or Safari, or load the page with ?device=wasm.",
    INTEGRITY:
      "A file or a result is not what it should be. Reload the page; if it stays, build or copy the bundle again.",
    BUNDLE: "The folder is not a complete bundle. Build or copy it again.",
    PREFIX_MISMATCH:
      "The question changes how the text is cut into tokens. Change the end of the text or the start of the question.",
    TOO_LONG: "Shorten the text, the question or its options.",
    INVALID_QUESTION:
      "Edit the question so that it has a text and at least two different, non-empty options.",
    INVALID_STATE: "The text holds characters that are not valid Unicode. Paste it again from its source.",
    QUOTA: "Free some disk space, or delete what other sites keep in this browser.",
    DEVICE_LOST:
      "The graphics device went away. Try again; if it happens twice, load the page with ?device=wasm.",
    ABORTED: "It was stopped.",
    UNEXPECTED: "Reload the page. If it happens again, report it together with this message.",
  },

  // ---- Decide
  decide: {
    textHeading: "Text",
    textLabel: "The text to decide about",
    textPlaceholder: "Paste a message, a ticket, a clause …",
    /** @param {number} count */
    characters: (count) => `${formatCount(count)} ${count === 1 ? "character" : "characters"}`,

    decide: "Decide",
    decideHint: "Ctrl or ⌘ + Enter",
    stop: "Stop",

    questionsHeading: "Questions",
    /** @param {number} count */
    questionCount: (count) => (count === 1 ? "1 question" : `${formatCount(count)} questions`),
    addQuestion: "Add a question",
    noQuestions: "No question yet. Add one to decide.",
    untitled: "New question",
    edit: "Edit",
    /** @param {string} question */
    editNamed: (question) => `Edit: ${question}`,
    remove: "Delete",
    /** @param {string} question */
    removeNamed: (question) => `Delete: ${question}`,
    /** @param {string} question */
    removed: (question) => `Deleted: ${question}`,
    done: "Done",

    kindLegend: "Kind of answer",
    noulHint: "The answer is the probability of yes.",
    questionLabel: "Question",
    optionsLegend: { choice: "Options", score: "Levels, from low to high" },
    optionWord: { choice: "Option", score: "Level" },
    /** @param {string} word @param {number} position */
    optionName: (word, position) => `${word} ${position}`,
    /** @param {string} word @param {number} position */
    optionDescription: (word, position) => `Description of ${word.toLowerCase()} ${position} (not required)`,
    descriptionPlaceholder: "Description (not required)",
    /** @param {string} word @param {number} position */
    moveUp: (word, position) => `Move ${word.toLowerCase()} ${position} up`,
    /** @param {string} word @param {number} position */
    moveDown: (word, position) => `Move ${word.toLowerCase()} ${position} down`,
    /** @param {string} word @param {number} position */
    removeOption: (word, position) => `Remove ${word.toLowerCase()} ${position}`,
    addOption: { choice: "Add an option", score: "Add a level" },
    emptyOption: "(empty)",

    notDecided: "Not decided yet",
    edited: "Edited, decide again",
    waiting: "Waiting",
    running: "Deciding …",
    olderText: "For the earlier text",
    /** @param {number} value @param {number} top */
    mean: (value, top) => `mean ${decimal.format(value)} of ${top}`,
    /** @param {number} ms since the scoring of all questions began */
    answeredAfter: (ms) => `after ${formatMs(ms)}`,
    answeredAfterHint:
      "From the start of the scoring until this answer was there. Questions share runs of the model, so answers come in groups.",
    /** @param {number} used @param {number} agreeing */
    orders: (used, agreeing) =>
      used === 1 ? "1 order read" : `${formatCount(used)} orders read, ${agreement(used, agreeing)}`,
    ordersHint: "Orders of the options that were read; those that agree give this answer on their own too.",
    optionsRegion: "Options and their probabilities",

    stats: {
      heading: "Cost of this run",
      tokens: "Text tokens",
      prefill: "Text read in",
      answers: "All answers in",
      tokensRun: "Tokens run",
      tokensSaved: "Tokens saved",
      runs: "Packed runs",
      kept: "kept",
      keptHint: "This text was read before and is still in memory, so it was not read again.",
      tokensRunHint:
        "Tokens of all questions, with every option text or order that was read, without those saved.",
      tokensSavedHint:
        "Questions, option texts and orders that start alike share those tokens: they are run once.",
    },

    readingText: "Reading the text …",
    waitingForModel: "Decides as soon as the model is ready",
    /** @param {number} done @param {number} all */
    answering: (done, all) => `${done} of ${all} answered`,
    /** @param {number} answered @param {number} failed @param {number} ms */
    finished: (answered, failed, ms) =>
      `${answered} answered${failed > 0 ? `, ${failed} failed` : ""} in ${formatMs(ms)}`,
    /** @param {number} done @param {number} all */
    stopped: (done, all) => `Stopped: ${done} of ${all} answered`,
    runFailed: "Not decided",
  },

  // ---- Table: its texts go into `table: { … }` here

  // ---- Trust: its texts go into `trust: { … }` here

  // ---- Proof: its texts go into `proof: { … }` here

  // ---- Code: its texts go into `code: { … }` here

  // ---- Python
  python: {
    about:
      "Python in this page, with typedecide and the standard library. It asks the model that the other tabs use. What runs" +
      " here stays in this browser; names stay from run to run, and nothing is kept when the page is closed.",
    missing: "This bundle was built without Python (--no-python).",
    sample: "Sample",
    samples: { decide: "Decide", stream: "Answers as they come", limit: "Time limit and errors" },
    replace: "Replace what you have written with the sample?",
    editor: "Python code",
    keys: "Ctrl+Enter runs. Tab indents; press Escape, then Tab, to leave the editor.",
    run: "Run",
    stop: "Stop",
    output: "Output",
    starting: "Python is starting: 13 MB, fetched once …",
    /** @param {string} version */
    ready: (version) => `Python ${version} is ready.`,
    noStart: "Python could not be started.",
    running: "Running …",
    stopping: "Stopping …",
    restarted: "Python did not stop and was started anew: all names are gone.\n",
    ended: {
      /** @param {number} ms */
      done: (ms) => `Done in ${formatMs(ms)}.`,
      /** @param {number} ms */
      failed: (ms) => `Failed after ${formatMs(ms)}.`,
      /** @param {number} ms */
      stopped: (ms) => `Stopped after ${formatMs(ms)}.`,
    },
  },
};

/**
 * What to do about an error code.
 * @param {string} code
 * @returns {string}
 */
export function adviceFor(code) {
  const advice = /** @type {Record<string, string>} */ (S.advice);
  return Object.hasOwn(advice, code) ? advice[code] : advice[UNEXPECTED];
}
