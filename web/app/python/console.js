// One Python, in a worker, as the tab uses it: start it, run code, stop it. Knows neither the editor nor how anything
// looks.

import { TypedecideError } from "../../errors.js";
import { lend } from "../../port.js";
import { S } from "../strings.js";

/** @typedef {import("../../index.js").Engine} Engine */
/** @typedef {"done" | "failed" | "stopped"} Ending */
/** @typedef {{stream: "stdout" | "stderr", text: string}} Output */
/** @typedef {"stuck" | "broken"} Loss why a session is gone: it did not stop, or Python itself failed */
/** @typedef {{id: number, begun: boolean, end: (how: Ending) => void}} Run */

/** Milliseconds after which what does not stop is interrupted, and after which Python is given up. */
const PATIENCE = [300, 3000];

const PYODIDE = new URL("../../pyodide/", import.meta.url);
const WORKER = new URL("./worker.js", import.meta.url);

const INTERRUPT = 2; // the number of the signal SIGINT

export class Console {
  /** @type {Worker | null} */
  #worker = null;
  /** @type {Promise<string> | null} */
  #started = null;
  /** Written to by the page while Python is busy, where memory can be shared. @type {Uint8Array | null} */
  #interrupt = null;
  /** What runs, or waits for Python to start. @type {Run | null} */
  #run = null;
  /** The engine that Python has, and how to take it back. @type {{engine: Engine, end: () => void} | null} */
  #loan = null;
  /** @type {(error: Error) => void} */
  #refuse = () => {};
  #id = 0;
  #engine;
  #onOutput;
  #onLoss;

  /**
   * @param {() => Promise<Engine>} engine what Python is lent when it connects
   * @param {(output: Output) => void} onOutput
   * @param {(why: Loss) => void} onLoss told that the session is gone with all its names; `start` makes another
   */
  constructor(engine, onOutput, onLoss) {
    this.#engine = engine;
    this.#onOutput = onOutput;
    this.#onLoss = onLoss;
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
   * Run code in the session, which keeps its names from run to run; where Python is not there yet, once it is. One at a
   * time.
   * @param {string} code
   * @returns {Promise<Ending>}
   */
  async run(code) {
    const id = ++this.#id;
    /** @type {Promise<Ending>} */
    const ended = new Promise((resolve) => {
      const end = (/** @type {Ending} */ how) => {
        this.#run = null;
        resolve(how);
      };
      this.#run = { id, begun: false, end };
    });
    // Ended before the start is over where somebody stops it.
    await Promise.race([this.start(), ended]);
    if (this.#run?.id === id) {
      this.#run.begun = true;
      if (this.#interrupt) this.#interrupt[0] = 0;
      this.#worker?.postMessage({ run: { id, code } });
    }
    return ended;
  }

  /** Stop what runs: what waits is cancelled, what is busy interrupted, and where nothing helps, Python is given up. */
  async stop() {
    const run = this.#run;
    if (!run) return;
    if (!run.begun) return run.end("stopped");
    const [soon, late] = PATIENCE;
    this.#worker?.postMessage({ stop: true });
    if (await this.#ended(run, soon)) return;
    if (this.#interrupt) {
      this.#interrupt[0] = INTERRUPT;
      if (await this.#ended(run, late)) return;
    }
    this.#lose("stuck");
  }

  /** @param {Run} run @param {number} ms @returns {Promise<boolean>} whether it is over, after so long at most */
  async #ended(run, ms) {
    const last = performance.now() + ms;
    while (this.#run === run && performance.now() < last) {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    return this.#run !== run;
  }

  /** @param {Loss} why */
  #lose(why) {
    const run = this.#run;
    this.#giveUp();
    run?.end(why === "stuck" ? "stopped" : "failed");
    this.#onLoss(why);
  }

  #giveUp() {
    this.#worker?.terminate();
    // What it asked would hold up the page's own questions.
    this.#loan?.end();
    this.#worker = this.#started = this.#interrupt = this.#run = this.#loan = null;
  }

  /** @returns {Promise<string>} */
  #begin() {
    const shared = globalThis.crossOriginIsolated ? new SharedArrayBuffer(1) : null;
    this.#interrupt = shared && new Uint8Array(shared);
    const worker = new Worker(WORKER, { type: "module", name: "python" });
    this.#worker = worker;
    return new Promise((resolve, reject) => {
      this.#refuse = reject;
      worker.addEventListener("message", ({ data }) => this.#receive(worker, data, resolve));
      worker.addEventListener("error", (event) => {
        event.preventDefault();
        reject(new Error(event.message || S.notFetched(WORKER.href)));
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
    else if ("broken" in data) {
      this.#onOutput({ stream: "stderr", text: `${data.broken}\n` });
      this.#lose("broken");
    } else if ("ended" in data) {
      const run = this.#run;
      if (run?.id === data.ended.id) run?.end(data.ended.how);
    } else
      for (const stream of /** @type {const} */ (["stdout", "stderr"])) {
        if (stream in data) this.#onOutput({ stream, text: data[stream] });
      }
  }

  /** One port for each engine: Python may connect as often as it likes. @param {Worker} worker */
  async #lend(worker) {
    try {
      const engine = await this.#engine();
      if (worker !== this.#worker) return;
      const { info } = engine;
      if (engine === this.#loan?.engine) return worker.postMessage({ engine: { info } });
      this.#loan?.end();
      const { port1, port2 } = new MessageChannel();
      this.#loan = { engine, end: lend(engine, port1) };
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
