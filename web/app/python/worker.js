/**
 * Python in a worker: the page stays responsive, and a loop without an end can be stopped.
 *
 * Messages in:  {start: {pyodide, session, interrupt}}, {run: {id, code}}, {stop: true}, and {engine: {port}} or
 * {engine: {error}} as the answer to {wanted: true}.
 * Messages out: {started: version}, {failed: message}, {wanted: true}, {stdout: text}, {stderr: text} and
 * {ended: {id, how}}, `how` being `done`, `failed` or `stopped`.
 */

import { reviveError } from "../../errors.js";
import { borrow } from "../../port.js";

/** @typedef {import("../../errors.js").PlainError} PlainError */

/** When what was printed is sent on. */
const PIECE = { ms: 50, characters: 16_384 };

/** Send what was printed and not sent. @type {(() => void)[]} */
const flushes = [];

/** @type {any} the module of session.py */
let session = null;

/** Who waits for the page's engine. @type {((given: {port?: MessagePort, error?: PlainError}) => void)[]} */
const waiting = [];

/** @type {Record<string, (given: any) => unknown>} */
const OPERATIONS = {
  start,
  run: async ({ id, code }) => {
    const how = await session.run(code);
    for (const flush of flushes) flush();
    postMessage({ ended: { id, how } });
  },
  stop: () => session?.stop(),
  engine: (given) => waiting.splice(0).forEach((tell) => tell(given)),
};

addEventListener("message", ({ data }) => {
  for (const [name, given] of Object.entries(data)) OPERATIONS[name](given);
});

/** @param {{pyodide: string, session: string, interrupt: SharedArrayBuffer | null}} given */
async function start({ pyodide, session: address, interrupt }) {
  try {
    const { loadPyodide } = await import(`${pyodide}pyodide.mjs`);
    const [python, source] = await Promise.all([loadPyodide({ indexURL: pyodide }), text(address)]);
    if (interrupt) python.setInterruptBuffer(new Uint8Array(interrupt));
    await python.loadPackage("typedecide", { messageCallback: () => {} });
    python.setStdout({ write: printer("stdout") });
    python.setStderr({ write: printer("stderr") });
    python.FS.writeFile("/home/pyodide/_session.py", source);
    session = python.pyimport("_session");
    python.pyimport("typedecide.browser").offer(engine);
    postMessage({ started: python.runPython("import platform; platform.python_version()") });
  } catch (error) {
    postMessage({ failed: String(error) });
  }
}

/**
 * What Python writes to, in pieces that the page can keep up with: a loop that prints is faster than any page.
 * @param {"stdout" | "stderr"} name
 * @returns {(bytes: Uint8Array) => number}
 */
function printer(name) {
  const decoder = new TextDecoder();
  let [text, last, timed] = ["", 0, false];
  const flush = () => {
    last = performance.now();
    if (text) postMessage({ [name]: text });
    text = "";
  };
  flushes.push(flush);
  const later = () => {
    timed = false;
    flush();
  };
  return (bytes) => {
    text += decoder.decode(bytes, { stream: true });
    if (text.length > PIECE.characters || performance.now() - last > PIECE.ms) flush();
    else if (!timed) timed = Boolean(setTimeout(later, PIECE.ms));
    return bytes.length;
  };
}

/** The page's own engine: the model is loaded once, whoever asks. */
async function engine() {
  const { port, error } = await new Promise((resolve) => {
    waiting.push(resolve);
    postMessage({ wanted: true });
  });
  if (error) throw reviveError(error);
  return borrow(port);
}

/** @param {string} address */
async function text(address) {
  const response = await fetch(address);
  if (!response.ok) throw new Error(`${address}: HTTP ${response.status}`);
  return response.text();
}
