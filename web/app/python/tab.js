// The Python tab: an editor, what it prints, and the Python that runs it, all fetched when the tab is first opened. What
// is here starts and stops, and shows what comes back.

import { h, isOff, setOff } from "../dom.js";
import { S } from "../strings.js";
import { Console } from "./console.js";

/** @typedef {import("../workbench.js").Workbench} Workbench */
/** @typedef {{text: string, focus(): void}} Editor */

const P = S.python;

const SAMPLES = /** @type {const} */ (["decide", "stream", "limit"]);

/** Characters of output that are kept: a loop that prints must not fill the page. */
const MOST = 20_000;

const SHOW_MS = 100;

/**
 * @param {HTMLElement} panel
 * @param {Workbench} workbench
 */
export async function mount(panel, workbench) {
  const tab = new PythonTab(panel, workbench);
  await tab.start();
  return {};
}

class PythonTab {
  /** @param {HTMLElement} panel @param {Workbench} workbench */
  constructor(panel, workbench) {
    this.panel = panel;
    this.workbench = workbench;
    this.console = new Console(
      () => workbench.engine(),
      ({ stream, text }) => this.#print(stream, text),
      (why) => {
        this.#print("stderr", P.lost[why]);
        this.#prepare();
      },
    );
    this.running = false;
    this.run = h(
      "button",
      { type: "button", class: "primary", "aria-keyshortcuts": "Control+Enter Meta+Enter" },
      P.run,
    );
    this.stop = h("button", { type: "button" }, P.stop);
    this.sample = h(
      "select",
      { id: "python-sample" },
      ...SAMPLES.map((name) => h("option", { value: name }, P.samples[name])),
    );
    this.status = h("p", { class: "python-status", role: "status" });
    this.output = h("pre", { class: "python-output", tabindex: "0", role: "log", "aria-label": P.output });
    this.frame = h("div", { class: "python-editor" });
    /** @type {Editor | null} */
    this.editor = null;
    /** The sample last shown, and whether nobody has changed it. @type {string} */
    this.shown = SAMPLES[0];
    this.untouched = true;
    /** What was printed. @type {{stream: "stdout" | "stderr", text: string}[]} */
    this.pieces = [];
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
  }

  async start() {
    const manifest = await (await fetch(new URL("../../manifest.json", import.meta.url))).json();
    if (!manifest.python) return this.panel.append(h("p", {}, P.missing));
    const editing = import(String(new URL("../../vendor/codemirror/editor.js", import.meta.url)));
    const [{ createEditor }, text] = await Promise.all([editing, this.#fetchSample(SAMPLES[0])]);
    const picker = h(
      "div",
      { class: "python-sample" },
      h("label", { for: "python-sample" }, P.sample),
      this.sample,
    );
    this.panel.append(
      h("p", { class: "hint" }, P.about),
      h("div", { class: "python-bar" }, picker, h("div", { class: "buttons" }, this.run, this.stop)),
      this.frame,
      this.status,
      h("h2", {}, P.output),
      this.output,
    );
    const root = await this.#frame();
    this.editor = createEditor(root, {
      text,
      label: P.editor,
      describedBy: "keys",
      onRun: () => this.#run(),
      onChange: () => (this.untouched = false),
    });
    this.run.addEventListener("click", () => this.#run());
    this.stop.addEventListener("click", () => this.#stop());
    this.sample.addEventListener("change", () => this.#showSample());
    setOff(this.stop, true);
    this.#prepare();
  }

  /**
   * The editor's shadow root, which has its own stylesheet.
   * @returns {Promise<HTMLElement>} where the editor goes
   */
  async #frame() {
    const root = this.frame.attachShadow({ mode: "open" });
    const link = h("link", { rel: "stylesheet", href: new URL("./editor.css", import.meta.url).href });
    const loaded = new Promise((resolve) => {
      for (const type of ["load", "error"]) link.addEventListener(type, resolve, { once: true });
    });
    const frame = h("div", { class: "frame" });
    root.append(link, frame, h("p", { class: "hint", id: "keys" }, P.keys));
    await loaded;
    return frame;
  }

  /** Starts Python before anybody runs anything. */
  async #prepare() {
    this.status.textContent = P.starting;
    try {
      const version = await this.console.start();
      if (!this.running) this.status.textContent = P.ready(version);
    } catch (error) {
      this.status.textContent = P.noStart;
      this.workbench.alert("python", error, () => this.#prepare());
    }
  }

  async #run() {
    if (this.running || !this.editor) return;
    this.running = true;
    setOff(this.run, true);
    setOff(this.stop, false);
    this.workbench.clearAlerts();
    this.pieces.length = 0;
    this.#show();
    this.status.textContent = P.running;
    const before = performance.now();
    try {
      const how = await this.console.run(this.editor.text);
      this.#show();
      this.status.textContent = P.ended[how](performance.now() - before);
    } catch (error) {
      this.status.textContent = P.noStart;
      this.workbench.alert("python", error, () => this.#run());
    } finally {
      this.running = false;
      setOff(this.run, false);
      setOff(this.stop, true);
    }
  }

  async #stop() {
    if (isOff(this.stop)) return;
    setOff(this.stop, true);
    this.status.textContent = P.stopping;
    await this.console.stop();
  }

  async #showSample() {
    const { editor, sample } = this;
    if (!editor) return;
    if (!this.untouched && !confirm(P.replace)) {
      sample.value = this.shown;
      return;
    }
    try {
      editor.text = await this.#fetchSample(sample.value);
      this.shown = sample.value;
      this.untouched = true;
    } catch (error) {
      this.workbench.alert("sample", error);
    }
  }

  /** @param {string} name */
  async #fetchSample(name) {
    const url = new URL(`./samples/${name}.py`, import.meta.url);
    const response = await fetch(url);
    if (!response.ok) throw new Error(S.notFetched(url.href));
    return response.text();
  }

  /**
   * Shown a moment later, and of much only the end: a loop that prints is faster than any page.
   * @param {"stdout" | "stderr"} stream
   * @param {string} text
   */
  #print(stream, text) {
    const { pieces } = this;
    const last = pieces.at(-1);
    if (last?.stream === stream) last.text = (last.text + text).slice(-MOST);
    else pieces.push({ stream, text: text.slice(-MOST) });
    let total = pieces.reduce((sum, piece) => sum + piece.text.length, 0);
    while (total > MOST && pieces.length > 1) total -= pieces.shift()?.text.length ?? 0;
    this.timer ??= setTimeout(() => this.#show(), SHOW_MS);
  }

  #show() {
    clearTimeout(this.timer);
    this.timer = undefined;
    const { output, pieces } = this;
    output.replaceChildren(...pieces.map(({ stream, text }) => h("span", { class: stream }, text)));
    output.scrollTop = output.scrollHeight;
  }
}
