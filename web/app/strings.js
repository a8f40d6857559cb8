// Every text that the page shows, in one place. Knows nothing of the DOM or the engine.

const percent = new Intl.NumberFormat("en", {
  style: "percent",
  minimumFractionDigits: 1,
  maximumFractionDigits: 1,
});
const decimal = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const integerPercent = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 0 });
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
 * A difference of two probabilities or logits; what is nothing to the last bit is said so.
 * @param {number} value
 * @returns {string}
 */
export function formatDifference(value) {
  return value === 0 ? "0" : value.toExponential(1);
}

/**
 * @param {number} ratio
 * @returns {string}
 */
export function formatRatio(ratio) {
  return ratio < 100 ? oneDigit.format(ratio) : integer.format(ratio);
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
 * A number of answers, of which ties may count in part.
 * @param {number} count
 */
function countOf(count) {
  return Number.isInteger(count) ? integer.format(count) : oneDigit.format(count);
}

/**
 * @param {number} seconds
 * @returns {string}
 */
function duration(seconds) {
  const whole = Math.ceil(seconds);
  if (whole < 60) return `${whole} s`;
  const minutes = Math.ceil(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
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
      hint: "Compares each option with the answer, side by side, so they have no order. For models tuned for it.",
    },
    texts: {
      label: "Option texts",
      hint: "Weighs each option's own name as the answer: no list, no order, no descriptions. For small models not tuned.",
    },
    orders: {
      label: "Letters, several orders",
      hint: "Lists the options under letters in up to four orders and pools them: small models favour places in a list.",
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
  switchDevice: "Load again on:",
  switchTargets: { auto: "the best that works", webgpu: "WebGPU", wasm: "WebAssembly" },

  chart: {
    table: "Numbers as a table",
    /** @param {string} title */
    tableLabel: (title) => `Numbers of the chart: ${title}`,
    /** @param {string} title @param {string} x @param {string} y */
    label: (title, x, y) => `Chart: ${title}; ${y} by ${x}. The table below has its numbers.`,
  },

  retry: "Try again",
  dismiss: "Dismiss",
  cancel: "Cancel",
  errorHeadings: {
    load: "The model could not be loaded.",
    run: "The text could not be decided.",
    sample: "The sample could not be loaded.",
    tab: "This part of the page could not be opened.",
    file: "The file could not be read.",
    table: "The table could not be answered.",
    labels: "The labels could not be used.",
    proof: "The measuring did not end.",
    python: "Python could not be started.",
  },
  /** @param {string} value */
  found: (value) => ` Found: ${value}`,
  unknownCause: "Something failed without saying why.",
  advice: {
    KEPT_RUN: "Reload this page to go on with that run here, or start again: that deletes it.",
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
    OTHER_MODEL: "Load the page as it was then, with the same address, or start again.",
    INPUT: "Correct the file and load it again.",
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
    undo: "Undo",
    /** @param {string} what */
    undoNamed: (what) => `Undo: ${what}`,
    undone: "Undone",
    redo: "Redo",
    /** @param {string} what */
    redoNamed: (what) => `Redo: ${what}`,
    redone: "Done again",
    untitled: "New question",
    tools: { up: "Move up", down: "Move down", copy: "Duplicate", edit: "Edit", remove: "Delete" },
    /** @param {string} question */
    moveUpNamed: (question) => `Move up: ${question}`,
    /** @param {string} question */
    moveDownNamed: (question) => `Move down: ${question}`,
    /** @param {string} question @param {number} position @param {number} count */
    moved: (question, position, count) => `Moved: ${question}, now ${position} of ${count}`,
    /** @param {string} question */
    duplicateNamed: (question) => `Duplicate: ${question}`,
    /** @param {string} question */
    duplicated: (question) => `Duplicated: ${question}`,
    /** @param {string} question */
    editNamed: (question) => `Edit: ${question}`,
    /** @param {string} question */
    removeNamed: (question) => `Delete: ${question}`,
    /** @param {string} question */
    removed: (question) => `Deleted: ${question}`,
    done: "Done",

    kindLegend: "Kind of answer",
    noulHint: "The answer is the probability of yes.",
    meaning: { yes: "What yes means (not required)", no: "What no means (not required)" },
    idLabel: "Id",
    idHint: "Names the answer in code and in tables.",
    idTaken: "Another question has this id.",
    questionLabel: "Question",
    optionsLegend: { choice: "Options", score: "Levels, from low to high" },
    optionWord: { choice: "Option", score: "Level" },
    /** @param {string} word @param {number} position */
    optionName: (word, position) => `${word} ${position}`,
    /** @param {string} word @param {number} position */
    optionDescription: (word, position) => `Description of ${word.toLowerCase()} ${position} (not required)`,
    descriptionPlaceholder: "Description (not required)",
    /** @param {string} word @param {number} position */
    moveOptionUp: (word, position) => `Move ${word.toLowerCase()} ${position} up`,
    /** @param {string} word @param {number} position */
    moveOptionDown: (word, position) => `Move ${word.toLowerCase()} ${position} down`,
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
    /** @param {number} used @param {number} rate */
    flips: (used, rate) =>
      used === 1
        ? "1 order read"
        : `${formatCount(used)} orders read, flip rate ${integerPercent.format(rate)}`,
    flipsHint: "Flip rate: the share of the orders that were read whose own answer is another one.",
    orderFree: "no order to flip",
    orderFreeHint: "Options were not read as a list, so their order cannot change the answer.",
    abstains: "abstains",
    abstainsHint: "its probability is not above the threshold of the calibration, so better ask a person",
    approximate: "approximate",
    /** @param {{k: number, anchor: string, agreement: number | null}} shallow */
    approximateHint: ({ k, anchor, agreement }) =>
      `only the first ${formatCount(k)} layers read the text (anchor: ${anchor}); agreement with the whole model: ${
        agreement === null ? "not measured" : formatProbability(agreement)
      }`,
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

    readingUnknown: "Known once the model is loaded.",
    samplesLabel: "Samples",
    samples: {
      support: "Support ticket",
      moderation: "Moderation",
      contract: "Contract clause",
      triage: "Triage note",
      review: "Product review",
    },
    samplesHint: "All invented. No substitute for advice by a lawyer or a doctor.",
    /** @param {string} name */
    sampleLoaded: (name) => `Sample: ${name}`,

    json: {
      button: "Import / export",
      heading: "Questions as JSON",
      label: "Questions as JSON, in the System One form",
      hint: "In the System One form, as the library, the command line and the API take them. Edit them, paste others, or open a file; nothing changes until you use them.",
      open: "Open a file",
      copy: "Copy",
      copied: "Copied",
      notCopied: "The browser did not let the page copy. The text is selected: copy it yourself.",
      download: "Download",
      cancel: "Cancel",
      apply: "Use these",
      /** @param {number} count */
      applied: (count) => `${count === 1 ? "1 question" : `${formatCount(count)} questions`} from JSON`,
      /** @param {number} count */
      refused: (count) =>
        count === 1 ? "Not used, because of one fault:" : `Not used, because of ${count} faults:`,
      /** @param {string} reason */
      notText: (reason) => `This is not a text in UTF-8. ${reason}`,
      noQuestions: "There must be an object of questions by id.",
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

  // ---- Table
  table: {
    sourceHeading: "Table",
    drop: "Drop a CSV, TSV or JSONL file here, or",
    choose: "Choose a file",
    brokenHint:
      "A broken row is rejected with its number, and all others are answered. Only where a stray quote hides where the next row begins is the whole file refused; the message then names the row.",
    paste: "Or paste rows",
    pasteLabel: "Rows with a header, as CSV or tab separated, or JSON lines",
    pasteUse: "Use these rows",
    nothingPasted: "Paste some rows first.",
    pasted: "pasted",
    reading: "Reading the file …",
    /** @param {string} name @param {number} rows @param {number} columns */
    summary: (name, rows, columns) =>
      `${name}: ${formatCount(rows)} ${rows === 1 ? "row" : "rows"}, ${formatCount(columns)} ${columns === 1 ? "column" : "columns"}`,

    textColumn: "Column of the texts",
    /** @param {number} chosen @param {number} all */
    keepSummary: (chosen, all) => `Columns copied into the result: ${chosen} of ${all}`,
    keepLegend: "Columns copied into the result",
    all: "All",
    noneOfThem: "None",

    questions: "Questions",
    /** @param {readonly string[]} ids */
    asked: (ids) => (ids.length === 0 ? "none yet" : `${formatCount(ids.length)}: ${ids.join(", ")}`),
    edit: "Edit them in Decide",
    outdated:
      "The questions were edited since this run began: it goes on with those that it began with. Start again to use the new ones.",

    keepRun: "Keep this run in the browser, so that it survives a reload",
    keepHint:
      "The file, the questions and the finished rows are then stored on this device, and nowhere else, until you delete them, discard the answers or start again.",
    holds: "This browser keeps this run: file, questions and finished rows.",
    /** @param {string} name */
    holdsOther: (name) =>
      `This browser keeps a run of ${name}, which comes back with a reload. Starting another deletes it.`,
    losing: {
      heading: {
        open: "Open another table?",
        start: "Start again?",
        discard: "Discard the answers?",
      },
      /** @param {number} rows */
      unsaved: (rows) =>
        rows === 1
          ? "One answered row is not downloaded."
          : `${formatCount(rows)} answered rows are not downloaded.`,
      gone: "They are gone then.",
      comesBack:
        "This browser keeps them: they come back with a reload, until another run is started or they are deleted.",
      replace: "Delete the run that is kept?",
      /** @param {string} name */
      elsewhere: (name) =>
        `This browser keeps a run of ${name}, which is not downloaded. Starting another deletes it.`,
      yes: { open: "Open it", start: "Start again", discard: "Discard" },
      start: "Start",
    },
    /** @param {string} name */
    keptRun: (name) => `This browser keeps a run of ${name}, which another tab began.`,
    keptElsewhere: "Another tab of this page keeps one.",
    elsewhere:
      "Another tab of this page has the run that this browser keeps. It goes on there, and runs of this tab are not kept beside it. Once that tab is closed, its run comes here with a reload.",
    forget: "Delete what is kept",
    forgotten: "Deleted what the browser kept of the run",
    notKept: "The browser does not keep this run, so a reload loses it:",
    strayReturn: "a carriage return stands outside of quotes",
    /** @param {string} column */
    columnTwice: (column) =>
      `Two columns of the result would have the name '${column}': choose other ids, or copy other columns.`,
    /** @param {number} row */
    rowDone: (row) => `row ${row} is done already`,
    otherModel: "The rows that are done were answered by another model, or on another device.",
    command: "The same on the command line",
    commandHint:
      "With questions.json from Decide, this writes the same file, byte for byte. Without --engine page it is faster, and probabilities differ by some millionths.",

    start: "Start",
    pause: "Pause",
    resume: "Resume",
    again: "Start again",
    restored: "Took up the run that this browser kept",
    waiting: "Starts as soon as the model is ready",
    waitingForProof: "Starts as soon as the Proof tab has measured",
    /** @param {number} done @param {number} all @param {number} rejected */
    progress: (done, all, rejected) =>
      `${formatCount(done)} of ${formatCount(all)} rows${rejected > 0 ? `, ${formatCount(rejected)} rejected` : ""}`,
    /** @param {number} rate rows a second */
    rate: (rate) => `${rate < 9.95 ? oneDigit.format(rate) : integer.format(rate)} rows/s`,
    /** @param {number} seconds */
    left: (seconds) => `${duration(seconds)} left`,
    paused: "Paused",
    done: "Done",
    progressLabel: "Rows done",

    resultsHeading: "Answers",
    filterQuestion: "Question",
    filterAnswer: "Answer",
    any: "Any",
    rejected: "Rejected rows",
    open: "Not answered yet",
    least: "Confidence from",
    most: "to",
    sort: "Sort by",
    sorts: { row: "Row", lowest: "Least confident first", highest: "Most confident first", answer: "Answer" },
    /** @param {number} shown @param {number} all */
    matching: (shown, all) =>
      shown === all ? `${formatCount(all)} rows` : `${formatCount(shown)} of ${formatCount(all)} rows`,
    /** @param {number} count */
    update: (count) => `Show ${formatCount(count)} more`,
    caption: "Rows and their answers",
    row: "Row",
    openRow: "…",
    /** @param {string | null} column @param {string} reason */
    fault: (column, reason) => `Rejected: ${column === null ? "" : `${column} `}${reason}`,
    abstains: "abstains",
    noRows: "No row is like that.",
    pages: "Pages of the table",
    previous: "Previous",
    next: "Next",
    /** @param {number} from @param {number} to @param {number} all */
    page: (from, to, all) =>
      all === 0 ? "0 of 0" : `${formatCount(from)}–${formatCount(to)} of ${formatCount(all)}`,
    download: "Download CSV",
    downloadHint: "One row for each answered row, with a probability column for every option, in UTF-8.",
    downloadRejects: "Download rejected rows",
    discard: "Discard the answers",
  },

  // ---- Trust
  trust: {
    heading: "How far to trust the answers",
    intro: "Compares the answers of the Table tab with true answers that you have.",
    noTable: "Load a table first, and answer its rows.",
    toTable: "Go to Table",
    noAnswers: "No row is answered yet.",
    runNow: "Answer the rows now",
    question: "Question",
    source: "True answers",
    /** @param {string} column */
    column: (column) => `Column “${column}” of the table`,
    given: "Paste them, or load a file",
    pasteLabel: "True answers, one a line in the order of the rows; an empty line is a row without one",
    usePasted: "Use these",
    chooseFile: "Choose a file",
    fileHint:
      "A CSV, TSV or JSONL file: a column named like the question, “label” or “gold”, and a column “row” with row numbers, unless it has all rows in their order.",
    /** @param {number} used @param {number} missing @param {number} open */
    used: (used, missing, open) =>
      [
        `${formatCount(used)} answered ${used === 1 ? "row has" : "rows have"} a true answer`,
        missing > 0 ? `${formatCount(missing)} rows have none` : "",
        open > 0 ? `${formatCount(open)} rows with one are not answered` : "",
      ]
        .filter(Boolean)
        .join("; ") + ".",
    /** @param {number} count @param {string} first */
    unknown: (count, first) =>
      `${formatCount(count)} ${count === 1 ? "label is" : "labels are"} none of the options and not used: ${first}`,
    /** @param {number} row @param {string} label */
    unknownOne: (row, label) => `row ${row} “${label}”`,
    few: "With fewer than 100 true answers all of this is rough.",
    /** @param {number} found @param {number} wanted */
    wrongCount: (found, wanted) =>
      `There are ${found} labels for ${wanted} rows: give one for each row, or a table with a column "row".`,
    /** @param {string} name of the file @param {string} id of the question */
    noLabels: (name, id) => `${name}: no column is named "${id}", "label" or "gold".`,

    figures: {
      accuracy: "Accuracy",
      majority: "Always the most frequent answer",
      chance: "Guessing",
      error: "Expected calibration error",
    },
    /** @param {number} low @param {number} high */
    interval: (low, high) => `95% interval: ${percent.format(low)} to ${percent.format(high)}`,
    /** @param {number} share */
    share: (share) => percent.format(share),
    errorHint: "How far probabilities and hits lie apart on average; 0 is best",

    calibrationTitle: "Calibration curve",
    calibrationChart: "Right answers by probability",
    /** @param {number} share */
    tick: (share) => `${oneDigit.format(share * 100).replace(/\.0$/, "")}%`,
    calibrationHint:
      "Of answers with this probability, how many are right. On the dashed line, probabilities mean what they say.",
    probability: "probability of the answer",
    right: "right",
    perfect: "perfect calibration",
    measured: "these answers",

    thresholdTitle: "Threshold",
    thresholdHint:
      "Answers whose probability is not above the threshold are left to a person. It is looked for on these very rows, so expect slightly more errors on new ones; for a bound that holds, use the command “calibrate”.",
    errorRate: "Errors allowed among the answers kept, in %",
    findThreshold: "Find the threshold",
    threshold: "Threshold",
    /** @param {number} percentage */
    noThreshold: (percentage) => `No threshold keeps errors at ${percentage}% or below.`,
    /** @param {number} kept @param {number} all @param {number} wrong */
    kept: (kept, all, wrong) =>
      kept === 0
        ? `No answer is kept of ${formatCount(all)}.`
        : `${formatCount(kept)} of ${formatCount(all)} answers are kept (${percent.format(kept / all)}), ${countOf(wrong)} of them ${wrong === 1 ? "is" : "are"} wrong (${percent.format(wrong / kept)}).`,
    coverageTitle: "Errors by coverage",
    coverage: "answers kept",
    errors: "wrong among them",

    confusionTitle: "Confusion matrix",
    confusionHint: "Rows are true answers, columns the answers given.",
    trueCorner: "true, by given",
    total: "all",
  },

  // ---- Proof
  proof: {
    heading: "What this device does",
    intro:
      "Measured here and now, in this browser, on the text and the questions of the Decide tab. Nothing of it leaves the page.",
    effortLegend: "How much to measure",
    efforts: {
      quick: { label: "Quick", hint: "1 and 4 questions, once" },
      normal: { label: "Normal", hint: "1, 4 and 11 questions, three times" },
      thorough: { label: "Thorough", hint: "1, 4, 11 and 32 questions, three times" },
    },
    measure: "Measure",
    stop: "Stop",
    download: "Download JSON",
    copy: "Copy JSON",
    exportHint: "The figures, the device and the ids of the questions; neither the text nor what was asked.",
    copied: "The figures were copied",
    notCopied: "The browser did not let the page copy: download them instead",
    idle: "Not measured yet",
    waitingForModel: "Measures as soon as the model is ready",
    waitingForTable: "Measures as soon as the run of the Table tab is paused or done",
    noQuestions: "There is no question that can be asked: write one on the Decide tab",
    progressLabel: "Measuring",
    /** @param {number} done @param {number} all */
    progress: (done, all) => `Step ${formatCount(done)} of ${formatCount(all)}`,
    /** @param {number} ms */
    finished: (ms) => `Measured in ${formatMs(ms)}`,
    stopped: "Stopped: what was measured stays",
    failed: "Not measured",
    /** @param {{characters: number, tokens: number | null, questions: number, readout: string}} of */
    measuredOn: ({ characters, tokens, questions, readout }) =>
      `Of a text of ${formatCount(characters)} characters${
        tokens === null ? "" : ` (${formatCount(tokens)} tokens with what stands before it)`
      } and ${questions === 1 ? "1 question" : `${formatCount(questions)} questions`}, by the ${readout} readout.`,
    outdated: "The text or the questions were changed since.",
    /** @param {readonly string[]} ids */
    invalid: (ids) => `Left out, as they are not valid: ${ids.join(", ")}.`,

    checksHeading: "Checks",
    passed: "passed",
    notPassed: "failed",
    open: "not yet",
    checks: {
      selfTest: "Self-test: right answers of known prompts",
      shared: "Kept prefix: gives what whole prompts give",
      packed: "Packed questions: give what whole prompts give",
      order: "Order of the options: does not matter",
    },
    /** @param {number} found @param {number} allowed */
    limit: (found, allowed) => `${formatDifference(found)}, allowed ${formatDifference(allowed)}`,

    selfTestHeading: "Self-test",
    sharedHeading: "Kept prefix against whole prompts",
    sharedHint:
      "Each question twice: behind the text that was read once, and as one whole prompt without any cache. Probabilities may differ by the rounding of 32-bit sums only.",
    sharedHead: {
      id: "Question",
      difference: "Largest difference",
      sharedTokens: "Tokens",
      sharedMs: "Time",
      fullTokens: "Whole prompt: tokens",
      fullMs: "Time",
      ratio: "Times faster",
    },
    packingHeading: "Many questions at once",
    /** @param {string} readout */
    packingHint: (readout) =>
      `The same questions in three ways by turns, options in one order: whole prompts, one question after another behind the kept text, and packed into few runs.${
        readout === "text"
          ? " Whole prompts weigh each option against blank evidence every time; the other ways keep that."
          : ""
      }`,
    packingTitle: "Time by number of questions",
    costHeading: "Cost of one question",
    costHint:
      "What one of so many questions takes: as a whole prompt, and packed, without and with its share of reading the text.",
    costTitle: "Time of one question by their number",
    questionsAxis: "questions",
    timeAxis: "time",
    costAxis: "time of a question",
    ways: { full: "whole prompts", sequential: "one after another", packed: "packed" },
    withPrefill: "packed, with reading the text",
    packingHead: {
      questions: "Questions",
      tokens: "tokens",
      ms: "time",
      runs: "Packed runs",
      fullRatio: "Times faster than whole prompts",
      sequentialRatio: "Times faster than one after another",
      difference: "Largest difference",
    },
    /** @param {string} text of a figure that was reckoned */
    about: (text) => `about ${text}`,
    /** @param {number} more */
    moreQuestions: (more) =>
      `For the larger numbers, ${formatCount(more)} questions of the page's own are asked besides yours.`,
    aboutHint:
      "“about”: only some of the whole prompts were run; the time of the others is reckoned from theirs by token.",

    orderHeading: "Options in reverse",
    orderHint: "Your questions with their options as given and reversed: how many get another answer?",
    orderHead: { way: "Read by", flips: "Answers changed", rate: "Flip rate", change: "Largest difference" },
    readouts: {
      labels: "letters",
      text: "option texts",
      pointer: "trained comparison",
    },
    oneOrder: "one order",
    severalOrders: "several orders",
    /** @param {number} flips @param {number} all */
    flips: (flips, all) => `${formatCount(flips)} of ${formatCount(all)}`,

    memoryHeading: "Memory",
    memory: {
      pageHeap: "Page, JavaScript",
      wasm: "WebAssembly",
      states: "Kept texts",
      token: "One token of a text",
      gpu: "Buffers on the GPU",
      weights: "Weights",
    },
    notTold: "this browser does not tell",
    noGpu: "none: the GPU is not used",
    /** @param {number} bytes */
    bytes: (bytes) => (bytes < 1e5 ? `${formatCount(bytes)} bytes` : `${megabytes(bytes)} MB`),
    /** @param {number} texts @param {number} tokens @param {number} bytes */
    states: (texts, tokens, bytes) =>
      `${S.proof.bytes(bytes)} for ${formatCount(tokens)} tokens of ${texts === 1 ? "1 text" : `${formatCount(texts)} texts`}`,
    /** @param {number} buffers @param {number} bytes */
    gpuBuffers: (buffers, bytes) => `${S.proof.bytes(bytes)} in ${formatCount(buffers)} buffers`,

    driftHeading: "Cost of the weight format",
    /** @param {string} format */
    driftHint: (format) =>
      `Probabilities in ${format} against fp32 on fixed prompts, as found when the bundle was built.`,
    drift: {
      format: "Format",
      prompts: "Prompts",
      max: "Largest difference",
      mean: "Mean difference",
      flips: "Answers changed",
    },
    lossy: "lossy: some answers are far from those of fp32",
    /** @param {number} bytes */
    compare: (bytes) => `Compare with fp32 on your questions (loads ${megabytes(bytes)} MB)`,
    comparing: "Loading fp32 and asking both …",
    compared: "Compared with fp32",
    /** @param {{questions: number, max: number, mean: number, flipped: readonly string[]}} drift */
    comparison: ({ questions, max, mean, flipped }) =>
      `Your ${questions === 1 ? "question" : `${formatCount(questions)} questions`}: largest difference ${formatDifference(max)}, mean ${formatDifference(mean)}, ${
        flipped.length === 0 ? "no answer changed" : `changed: ${flipped.join(", ")}`
      }.`,

    shallowHeading: "Shallow reading",
    shallow: {
      layers: "Layers that read the text",
      anchor: "Anchor",
      agreement: "Same answers as the whole model",
      effect: "Effect error",
      loss: "Accuracy lost",
      data: "Measured on",
      gate: "Limits of the gate",
      chosen: "Chosen by the gate",
      nearest: "Least effect error",
    },
    allLayers: "all",
    /** @param {number} forms */
    noneChosen: (forms) => `none of ${formatCount(forms)} shallow forms: the text goes through all layers`,
    /** @param {{k: number, anchor: string}} form */
    form: ({ k, anchor }) => `${formatCount(k)} layers, anchor ${anchor}`,
    /** @param {number} k @param {number} layers */
    layers: (k, layers) => `${formatCount(k)} of ${formatCount(layers)}`,
    notMeasured: "not measured",
    /** @param {number} value @param {readonly [number, number] | null} interval */
    withInterval: (value, interval) =>
      interval === null
        ? percent.format(value)
        : `${percent.format(value)} (95% interval: ${percent.format(interval[0])} to ${percent.format(interval[1])})`,
    /** @param {number} n @param {number} texts @param {string} suite */
    gateData: (n, texts, suite) => `${formatCount(n)} answers about ${formatCount(texts)} texts of ${suite}`,
    gatePassed: "passes them all",
  },

  // ---- Code
  code: {
    heading: "The same in your own code",
    hint: "The questions and the text of Decide, as a program that asks them. It changes as they do.",
    languages: "Language",
    names: {
      npm: "JavaScript (npm)",
      script: "Plain HTML",
      react: "React",
      python: "Python",
      pyodide: "Python in the browser",
      curl: "curl",
    },
    notes: {
      npm: "Install the npm package typedecide, and serve the bundle's folder from your site, here as /typedecide/.",
      script:
        "One file, no build step. It takes library and model from the bundle that this page is part of: serve it from the same site.",
      react:
        "A component with the hook of the npm package. Serve the bundle's folder from your site, here as /typedecide/.",
      python: "CPython, with the package's extra native. It reads the bundle from a folder, here dist.",
      pyodide:
        "In Pyodide, JupyterLite, marimo or PyScript, or in the Python tab here. Answers come from the page's own engine.",
      curl: "For any language that speaks HTTP. The server runs on your machine and reads answers in the bundle's own way.",
    },
    region: "Source text",
    values: { text: "The text, as source text", questions: "The questions, as source text" },
    copy: "Copy",
    copied: "Copied",
    notCopied: "The browser did not let the page copy. The text is selected: copy it yourself.",
    download: "Download",
    invalid: "Put the questions right in Decide; then there is a program for them.",
  },

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
    lost: {
      stuck: "Python did not stop and was started anew: all names are gone.\n",
      broken: "Python broke down and was started anew: all names are gone.\n",
    },
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
