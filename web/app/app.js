// The page: starts the workbench, its masthead and its tabs.
//
// Address parameters: device=auto|webgpu|wasm, format=NAME, candidates=A,B (self-test candidates to allow),
// auto=1 (decide at once). The part after # names the open tab.

import { h } from "./dom.js";
import { Notices } from "./notices.js";
import { prepare } from "./offline.js";
import { DevicePanel, LoadingStrip } from "./panel.js";
import { fetchSample } from "./samples.js";
import { S } from "./strings.js";
import { Tabs } from "./tabs.js";
import { Workbench } from "./workbench.js";

/** @typedef {import("../index.js").EngineOptions} EngineOptions */

/**
 * The engine's options from the page's address.
 * @param {URLSearchParams} parameters
 * @returns {EngineOptions}
 */
function optionsFromAddress(parameters) {
  /** @type {EngineOptions} */
  const options = {};
  const device = parameters.get("device");
  const format = parameters.get("format");
  const candidates = parameters.get("candidates");
  // An unknown device is not replaced by a default here: the library refuses it and says so.
  if (device !== null) options.device = /** @type {EngineOptions["device"]} */ (device);
  if (format !== null) options.format = format;
  if (candidates !== null) options.candidates = candidates.split(",");
  return options;
}

/**
 * Shows how far the model is loaded, as it changes.
 * @param {Workbench} workbench
 * @param {LoadingStrip} strip
 * @param {DevicePanel} panel
 */
function showLoading(workbench, strip, panel) {
  const { loading } = workbench;
  if (loading.status === "loading") {
    if (loading.progress) return strip.show(loading.progress);
    panel.clear();
    workbench.announce(S.loadingLabel);
  } else if (loading.status === "ready") {
    strip.showReady(loading.info);
    panel.show(loading.info);
    workbench.announce(S.ready);
  } else if (loading.status !== "idle") {
    strip.showHalted(loading.status === "stopped" ? S.loadStopped : S.loadFailed);
    if (loading.error) panel.showFailure(loading.error);
  }
}

/**
 * A file that is dropped where nothing takes it would be opened in the place of the page, with all that is on it.
 * @param {DragEvent} event
 */
function refuseFiles(event) {
  const { dataTransfer } = event;
  if (event.defaultPrevented || !dataTransfer?.types.includes("Files")) return;
  event.preventDefault();
  dataTransfer.dropEffect = "none";
}

async function main() {
  for (const type of /** @type {const} */ (["dragover", "drop"])) addEventListener(type, refuseFiles);
  const parameters = new URLSearchParams(location.search);
  const tabs = new Tabs();
  tabs.fetch();
  const notices = new Notices(() => tabs.focus());
  const workbench = new Workbench(optionsFromAddress(parameters), notices);
  const [strip, panel] = [new LoadingStrip(), new DevicePanel()];
  workbench.addEventListener("loading", () => showLoading(workbench, strip, panel));
  const brand = h("div", { class: "brand" }, h("h1", {}, S.title), h("p", {}, S.tagline));
  const content = h("main", { hidden: true }, notices.alerts, ...tabs.panels, panel.element);
  document.body.replaceChildren(
    h("header", { class: "masthead" }, brand, strip.element, tabs.element),
    content,
    notices.announcer,
  );
  try {
    const sample = await fetchSample("support");
    workbench.text = sample.state;
    workbench.setQuestions(sample.questions);
  } catch (error) {
    notices.alert("sample", error);
  }
  // What lies below a tab would move when the tab comes in: both come at once.
  const opened = tabs.start(workbench).then(() => (content.hidden = false));
  const [reloads] = await Promise.all([prepare(), opened]);
  if (reloads) return;
  if (parameters.get("auto") === "1") workbench.dispatchEvent(new Event("decide"));
  // Unless something is being decided, and so loads it already.
  if (workbench.loading.status === "idle") workbench.preload();
}

main();
