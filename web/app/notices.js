// What the page says beside its parts: alerts above the open tab, and a line for screen readers.

import { h } from "./dom.js";
import { describeError } from "./failure.js";
import { S } from "./strings.js";

/** @typedef {keyof typeof S.errorHeadings} AlertKind what went wrong, as a heading of `S.errorHeadings` */

export class Notices {
  /** @param {() => void} refocus where the focus goes when an alert that had it is gone */
  constructor(refocus) {
    this.refocus = refocus;
    this.alerts = h("div", { class: "alerts" });
    this.announcer = h("p", { class: "visually-hidden", role: "status" });
  }

  /** @param {string} text said by a screen reader; for starts and ends, not for every step */
  announce(text) {
    this.announcer.textContent = text;
  }

  clearAlerts() {
    this.alerts.replaceChildren();
  }

  /**
   * Says what failed, its code, and what to do; it takes the place of the alert before.
   * @param {AlertKind} kind
   * @param {unknown} error
   * @param {() => void} [retry]
   */
  alert(kind, error, retry) {
    const { code, message, advice } = describeError(error);
    const alert = h(
      "div",
      { class: "alert", role: "alert", "data-code": code },
      h("p", {}, h("strong", {}, S.errorHeadings[kind]), " ", h("code", {}, code)),
      h("p", {}, message),
      h("p", { class: "advice" }, advice),
    );
    const again = retry
      ? h("button", { type: "button", onclick: () => this.#close(alert, retry) }, S.retry)
      : null;
    const dismiss = h(
      "button",
      { type: "button", class: "quiet", onclick: () => this.#close(alert) },
      S.dismiss,
    );
    alert.append(h("div", { class: "buttons" }, again, dismiss));
    this.alerts.replaceChildren(alert);
    alert.scrollIntoView({ block: "nearest" });
  }

  /** @param {HTMLElement} alert @param {() => void} [then] */
  #close(alert, then) {
    alert.remove();
    this.refocus();
    then?.();
  }
}
