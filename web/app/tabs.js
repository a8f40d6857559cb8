// The tabs: which are there, which one is open, and their modules, fetched when they are first opened. Knows nothing of
// what is in them.
//
// A tab is a folder NAME with NAME.css and tab.js, which exports
// `mount(panel: HTMLElement, workbench: Workbench): Promise<Mounted>`; the page's address names it as #NAME.

import { h } from "./dom.js";
import { S } from "./strings.js";

/** @typedef {import("./workbench.js").Workbench} Workbench */
/** @typedef {{shown?(): void, hidden?(): void}} Mounted what a tab is told when it is opened and left */
/** @typedef {{id: string, label: string}} Named */
/**
 * @typedef {object} Tab
 * @property {string} id
 * @property {HTMLAnchorElement} link
 * @property {HTMLElement} panel
 * @property {Promise<any> | null} module null until it is fetched, together with the stylesheet
 * @property {Promise<Mounted> | null} mounted null until it is opened
 */

/** @type {readonly Named[]} */
const TABS = [
  { id: "decide", label: S.tabs.decide },
  { id: "table", label: S.tabs.table },
  { id: "trust", label: S.tabs.trust },
  { id: "proof", label: S.tabs.proof },
  { id: "code", label: S.tabs.code },
  { id: "python", label: S.tabs.python },
];

const STEPS = new Map([
  ["ArrowRight", 1],
  ["ArrowLeft", -1],
]);

export class Tabs {
  constructor() {
    this.tabs = TABS.map((named) => makeTab(named));
    this.open = this.tabs[0];
    this.element = h(
      "div",
      {
        class: "tabs",
        role: "tablist",
        "aria-label": S.tabsLabel,
        onkeydown: (event) => this.#onKeydown(event),
      },
      ...this.tabs.map(({ link }) => link),
    );
    this.panels = this.tabs.map(({ panel }) => panel);
  }

  /** Begins to fetch the tab that `start` will open; what goes wrong is said there. */
  fetch() {
    fetchModule(this.#named()).catch(() => null);
  }

  /**
   * Opens the tab that the address names, or else the first one, and those it names from now on.
   * @param {Workbench} workbench
   */
  async start(workbench) {
    addEventListener("hashchange", () => this.#show(this.#named(), workbench));
    await this.#show(this.#named(), workbench);
  }

  /** Puts the focus on the open tab's name. */
  focus() {
    this.open.link.focus();
  }

  #named() {
    return this.tabs.find(({ id }) => `#${id}` === location.hash) ?? this.tabs[0];
  }

  /** @param {Tab} next @param {Workbench} workbench */
  async #show(next, workbench) {
    const before = this.open;
    this.open = next;
    for (const tab of this.tabs) {
      const selected = tab === next;
      tab.link.setAttribute("aria-selected", String(selected));
      tab.link.tabIndex = selected ? 0 : -1;
      tab.panel.hidden = !selected;
    }
    // What is left may still be loading: nothing waits for it.
    if (before !== next) this.#leave(before);
    try {
      next.mounted ??= mount(next, workbench);
      const mounted = await next.mounted;
      if (this.open === next) mounted.shown?.();
    } catch (error) {
      next.mounted = null;
      if (this.open === next) workbench.alert("tab", error, () => this.#show(next, workbench));
    }
  }

  /** Tells a tab that it is left, once it is there and unless it is open again by then. @param {Tab} tab */
  async #leave(tab) {
    // A tab that failed to open has said so.
    const mounted = await tab.mounted?.catch(() => null);
    if (this.open !== tab) mounted?.hidden?.();
  }

  /** The arrows move the focus, and Enter or the space bar opens. @param {KeyboardEvent} event */
  #onKeydown(event) {
    const links = this.tabs.map(({ link }) => link);
    const at = links.findIndex((link) => link === document.activeElement);
    if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = STEPS.get(event.key);
    let to = null;
    if (step !== undefined) to = links.at((at + step) % links.length);
    else if (event.key === "Home") to = links[0];
    else if (event.key === "End") to = links.at(-1);
    else if (event.key !== " ") return;
    event.preventDefault();
    if (to) to.focus();
    else links[at].click();
  }
}

/** @param {Named} named @returns {Tab} */
function makeTab({ id, label }) {
  const names = { tab: `tab-${id}`, panel: `panel-${id}` };
  const link = h(
    "a",
    {
      role: "tab",
      id: names.tab,
      href: `#${id}`,
      "aria-controls": names.panel,
      "aria-selected": "false",
      "data-label": label,
    },
    label,
  );
  const panel = h("section", {
    role: "tabpanel",
    id: names.panel,
    "aria-labelledby": names.tab,
    hidden: true,
  });
  return { id, link, panel, module: null, mounted: null };
}

/** @param {Tab} tab @param {Workbench} workbench @returns {Promise<Mounted>} */
async function mount(tab, workbench) {
  const { panel } = tab;
  panel.setAttribute("aria-busy", "true");
  panel.replaceChildren(h("p", { class: "hint opening" }, S.opening));
  const module = await fetchModule(tab);
  panel.replaceChildren();
  const mounted = await module.mount(panel, workbench);
  panel.removeAttribute("aria-busy");
  return mounted;
}

/** A tab's module, once its stylesheet is there too; a failure is forgotten. @param {Tab} tab */
function fetchModule(tab) {
  const { id } = tab;
  if (!tab.module) {
    const parts = Promise.all([import(`./${id}/tab.js`), loadStyle(`./${id}/${id}.css`)]);
    tab.module = parts.then(([module]) => module);
    tab.module.catch(() => (tab.module = null));
  }
  return tab.module;
}

/**
 * A stylesheet, awaited so that nothing is seen without it.
 * @param {string} path relative to this module
 * @returns {Promise<void>}
 */
function loadStyle(path) {
  const link = h("link", { rel: "stylesheet", href: new URL(path, import.meta.url).href });
  return new Promise((resolve, reject) => {
    link.addEventListener("load", () => resolve());
    link.addEventListener("error", () => {
      link.remove();
      reject(new Error(S.notFetched(link.href)));
    });
    document.head.append(link);
  });
}
