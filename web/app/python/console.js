// One Python, in a worker, as the tab uses it: start it, run code, stop it. Knows neither the editor nor how anything
// looks.

import { TypedecideError } from "../../errors.js";
import { lend } from "../../port.js";
import { S } from "../strings.js";

/** @typedef {import("../../index.js").Engine} Engine */
/** @typedef {"done" | "failed" | "stopped"} Ending */
/** @typedef {{stream: "stdout" | "stderr", text: string}} Output */

/** Milliseconds after which what does not stop is interrupted, and after which Python is given up. */
const PATIENCE = [300, 3000];

const PYODIDE = new URL("../../pyodide/", import.meta.url);

const INTERRUPT = 2; // the number of the signal SIGINT

export class Console {
  /** @type {Worker | null} */
  #worker = null;
  /** @type {Promise<string> | null} */
  #started = null;
  /** Written to by the page while Python is busy, where memory can be shared. @type {Uint8Array | null} */
  #interrupt = null;
  /** @type {((how: Ending) => void) | null} */
  #end = null;
  /** @type {(error: Error) => void} */
  #refuse = () => {};
  #id = 0;
  #engine;
  #onOutput;

  /**
   * @param {() => Promise<Engine>} engine what Python is lent when it connects
   * @param {(output: Output) => void} onOutput
   */
  constructor(engine, onOutput) {
    this.#engine = engine;
    this.#onOutput = onOutput;
  }

  /**
   * Start Python, unless it is there already; a start that failed is forgotten.
   * @returns {Promise<string>} its version
   */
  start() {
    this.#started ??= this.#begin().catch((error) => {
      this.#giveUp();
      throw error;
    });
    return this.#started;
  }

  /**
   * Run code in the session, which keeps its names from run to run. One at a time.
   * @param {string} code
   * @returns {Promise<Ending>}
   */
  async run(code) {
    await this.start();
    const id = ++this.#id;
    return new Promise((resolve) => {
      this.#end = (how) => {
        this.#end = null;
        resolve(how);
      };
      if (this.#interrupt) this.#interrupt[0] = 0;
      this.#worker?.postMessage({ run: { id, code } });
    });
  }

  /**
   * Stop what runs: what waits is cancelled, what is busy interrupted, and where nothing helps, Python is given up.
   * @returns {Promise<boolean>} whether the session is still there
   */
  async stop() {
    const [soon, late] = PATIENCE;
    this.#worker?.postMessage({ stop: true });
    if (await this.#ended(soon)) return true;
    if (this.#interrupt) {
      this.#interrupt[0] = INTERRUPT;
      if (await this.#ended(late)) return true;
    }
    const end = this.#end;
    this.#giveUp();
    end?.("stopped");
    return false;
  }

  /** @param {number} ms @returns {Promise<boolean>} whether nothing runs, after so long at most */
  async #ended(ms) {
    const last = performance.now() + ms;
    while (this.#end && performance.now() < last) await new Promise((resolve) => setTimeout(resolve, 20));
    return this.#end === null;
  }

  #giveUp() {
    this.#worker?.terminate();
    this.#worker = this.#started = this.#interrupt = this.#end = null;
  }

  /** @returns {Promise<string>} */
  #begin() {
    const shared = globalThis.crossOriginIsolated ? new SharedArrayBuffer(1) : null;
    this.#interrupt = shared && new Uint8Array(shared);
    const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module", name: "python" });
    this.#worker = worker;
    return new Promise((resolve, reject) => {
      this.#refuse = reject;
      worker.addEventListener("message", ({ data }) => this.#receive(worker, data, resolve));
      worker.addEventListener("error", (event) => {
        event.preventDefault();
        reject(new Error(event.message || S.python.noWorker(PYODIDE.href)));
      });
      const session = new URL("./session.py", import.meta.url).href;
      worker.postMessage({ start: { pyodide: PYODIDE.href, session, interrupt: shared } });
    });
  }

  /** @param {Worker} worker @param {any} data @param {(version: string) => void} resolve */
  #receive(worker, data, resolve) {
    if (worker !== this.#worker) return;
    if ("started" in data) resolve(data.started);
    else if ("failed" in data) this.#refuse(new Error(data.failed));
    else if ("wanted" in data) this.#lend(worker);
    else if ("ended" in data) this.#end?.(data.ended.how);
    else
      for (const stream of /** @type {const} */ (["stdout", "stderr"])) {
        if (stream in data) this.#onOutput({ stream, text: data[stream] });
      }
  }

  /** @param {Worker} worker */
  async #lend(worker) {
    try {
      const engine = await this.#engine();
      const { port1, port2 } = new MessageChannel();
      lend(engine, port1);
      worker.postMessage({ engine: { port: port2 } }, [port2]);
    } catch (error) {
      const plain =
        error instanceof TypedecideError
          ? error.toJSON()
          : { code: "ERROR", message: String(error), data: {} };
      worker.postMessage({ engine: { error: plain } });
    }
  }
}
