// The loading strip and the panel that says what the model runs on and why. Knows what the library reports
// (progress, info), not the engine itself.

import { TypedecideError } from "../errors.js";
import { h, setBar } from "./dom.js";
import { S, formatMs } from "./strings.js";

/** @typedef {import("../index.js").Info} Info */
/** @typedef {import("../index.js").Progress} Progress */

/** A line, a bar and a detail line of fixed height: nothing moves while the model loads. */
export class LoadingStrip {
  constructor() {
    this.label = h("span", { class: "load-label" }, S.idle);
    this.amount = h("span", { class: "load-amount" });
    this.detail = h("p", { class: "load-detail" });
    this.fill = h("span", { class: "fill" });
    this.bar = h(
      "div",
      {
        class: "track",
        role: "progressbar",
        "aria-label": S.loadingLabel,
        "aria-valuemin": 0,
        "aria-valuemax": 100,
      },
      this.fill,
    );
    this.element = h(
      "div",
      { class: "loading" },
      h("p", { class: "load-line" }, this.label, this.amount),
      this.bar,
      this.detail,
    );
  }

  /** @param {Progress} progress */
  show({ phase, file, loadedBytes = 0, totalBytes = 0, message }) {
    const measured = phase === "download" && totalBytes > 0;
    const fraction = phase === "ready" ? 1 : measured ? loadedBytes / totalBytes : null;
    const detail = file === undefined ? message : `${message}: ${file}`;
    this.#set(S.phases[phase], measured ? S.bytes(loadedBytes, totalBytes) : "", detail, fraction);
  }

  /** @param {Info} info */
  showReady(info) {
    this.#set(S.ready, "", [info.model.name, info.format, info.candidate].join(", "), 1);
  }

  /** @param {string} label a state in which nothing loads */
  showHalted(label) {
    this.#set(label, "", "", 0);
  }

  /**
   * @param {string} label @param {string} amount @param {string} detail
   * @param {number | null} fraction null where nobody knows how long it will take
   */
  #set(label, amount, detail, fraction) {
    this.label.textContent = label;
    this.amount.textContent = amount;
    this.detail.textContent = detail;
    this.detail.title = detail;
    this.bar.classList.toggle("unmeasured", fraction === null);
    this.bar.setAttribute("aria-valuetext", [label, amount].filter((part) => part !== "").join(", "));
    if (fraction === null) this.bar.removeAttribute("aria-valuenow");
    else this.bar.setAttribute("aria-valuenow", String(Math.floor(fraction * 100)));
    setBar(this.fill, fraction ?? 1);
  }
}

/** Device, format and the self-test's verdicts, in a part of the page that opens on demand. */
export class DevicePanel {
  constructor() {
    this.brief = h("span", { class: "panel-brief" }, S.panelLoading);
    this.body = h("div", { class: "panel-body" }, h("p", { class: "hint" }, S.panelNone));
    this.element = h(
      "details",
      { class: "panel", "aria-labelledby": "panel-title" },
      h("summary", {}, h("span", { id: "panel-title", class: "panel-title" }, S.panelHeading), this.brief),
      this.body,
      deviceLinks(),
    );
  }

  clear() {
    this.brief.textContent = S.panelLoading;
    this.body.replaceChildren(h("p", { class: "hint" }, S.panelNone));
  }

  /** @param {Info} info */
  show(info) {
    this.brief.textContent = [S.devices[info.device], info.format, String(info.model.name)].join(" · ");
    this.body.replaceChildren(factList(info), ...candidateList(info.selfTest));
  }

  /** @param {unknown} error why nothing was loaded; one from the self-test says what each candidate did */
  showFailure(error) {
    this.brief.textContent = S.loadFailed;
    const trials = error instanceof TypedecideError ? error.data.selfTest : undefined;
    if (Array.isArray(trials)) this.body.replaceChildren(...candidateList(trials));
  }
}

/** @param {Info} info */
function factList(info) {
  const facts = S.facts;
  /** @type {[string, string][]} */
  const rows = [
    [facts.model, String(info.model.name)],
    [facts.licence, String(info.model.licence)],
    [facts.format, info.format],
    [facts.device, S.devices[info.device]],
    [facts.candidate, info.candidate],
    [facts.reason, info.reason],
    [facts.adapter, info.adapter ?? S.none],
    [facts.threads, String(info.threads)],
    [facts.runtime, `${info.ort.version} (${info.ort.build})`],
    ...shallowRow(info),
    [facts.context, S.contextTokens(info.context)],
    [facts.loadMs, formatMs(info.loadMs)],
    [facts.storage, info.storage.note ?? S.kept],
  ];
  return h(
    "dl",
    { class: "facts" },
    ...rows.map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value))),
  );
}

/**
 * What is said where texts do not go through all layers.
 * @param {Info} info
 * @returns {[string, string][]}
 */
function shallowRow({ shallow }) {
  return shallow ? [[S.facts.shallow, S.shallow(shallow)]] : [];
}

/** @param {Info["selfTest"]} trials */
function candidateList(trials) {
  return [h("h3", {}, S.candidatesHeading), h("p", { class: "hint" }, S.candidatesHint), candidates(trials)];
}

/**
 * What the self-test found, in the order tried.
 * @param {Info["selfTest"]} trials
 */
export function candidates(trials) {
  return h("ol", { class: "candidates" }, ...trials.map(candidateRow));
}

/** @param {Info["selfTest"][number]} test */
function candidateRow(test) {
  // Its largest error is in the reason.
  return h(
    "li",
    { "data-candidate": test.candidate, "data-verdict": test.verdict },
    h("code", {}, test.candidate),
    h("span", { class: `verdict-badge ${test.verdict.replace(" ", "-")}` }, S.verdicts[test.verdict]),
    h("span", { class: "numbers" }, test.ms === null ? "" : formatMs(test.ms)),
    h("p", {}, test.reason),
  );
}

function deviceLinks() {
  const links = Object.entries(S.switchTargets).map(([device, label]) => {
    const url = new URL(location.href);
    url.searchParams.set("device", device);
    url.searchParams.delete("candidates");
    return h("li", {}, h("a", { href: url.href }, label));
  });
  return h(
    "nav",
    { class: "switch", "aria-label": S.switchDevice },
    h("span", {}, S.switchDevice),
    h("ul", {}, ...links),
  );
}
