/**
 * Python in a worker: the page stays responsive, and a loop without an end can be stopped.
 *
 * Messages in:  {start: {pyodide, session, interrupt}}, {run: {id, code}}, {stop: true}, and as the answers to
 * {wanted: true}, in their order, {engine: {port}}, {engine: {info}} for the one that was lent before, or
 * {engine: {error}}.
 * Messages out: {started: version}, {failed: message}, {wanted: true}, {stdout: text}, {stderr: text},
 * {ended: {id, how}}, `how` being `done`, `failed` or `stopped`, and {broken: message} once Python can do nothing more.
 */

import { reviveError } from "../../errors.js";
import { borrow } from "../../port.js";

/** @typedef {import("../../errors.js").PlainError} PlainError */
/** @typedef {import("../../index.js").Engine} Engine */
/** @typedef {import("../../index.js").Info} Info */

/** When what was printed is sent on. */
const PIECE = { ms: 50, characters: 16_384 };

/** Send what was printed and not sent. @type {(() => void)[]} */
const flushes = [];

/** @type {any} the module of session.py */
let session = null;

/** Who waits for the page's engine. @type {((given: {port?: MessagePort, info?: Info, error?: PlainError}) => void)[]} */
const waiting = [];

/** The page's engine, as it was last lent. @type {Promise<Engine> | null} */
let borrowed = null;

/** @type {Record<string, (given: any) => unknown>} */
const OPERATIONS = {
  start,
  run: async ({ id, code }) => {
    let how = "failed";
    try {
      how = await session.run(code);
    } catch (error) {
      // Such as an interrupt that came just after the code.
      flushAll();
      postMessage({ stderr: `${error}\n` });
    }
    flushAll();
    postMessage({ ended: { id, how } });
  },
  stop: () => session?.stop(),
  engine: (given) => waiting.shift()?.(given),
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
    python._api.on_fatal = (/** @type {unknown} */ error) => {
      flushAll();
      postMessage({ broken: String(error) });
    };
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

function flushAll() {
  for (const flush of flushes) flush();
}

/** The page's own engine: the model is loaded once, whoever asks, and however often. */
async function engine() {
  const { port, info, error } = await new Promise((resolve) => {
    waiting.push(resolve);
    postMessage({ wanted: true });
  });
  if (error) throw reviveError(error);
  if (port) borrowed = borrow(port);
  const found = /** @type {Engine} */ (await borrowed);
  // The page's may have restarted itself since.
  if (info) found.info = Object.freeze(info);
  return found;
}

/** @param {string} address */
async function text(address) {
  const response = await fetch(address);
  if (!response.ok) throw new Error(`${address}: HTTP ${response.status}`);
  return response.text();
}
