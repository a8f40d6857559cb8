// Builds elements from data. Text goes in as text nodes only, so nothing that a user types is ever markup,
// and no style attribute is set, so the page's content security policy can forbid inline styles.

/** @typedef {string | number | boolean | null | undefined | ((event: any) => void)} Attribute */

/**
 * An element with attributes, listeners (`onclick: fn`) and children. `false`, `null` and `undefined` leave
 * an attribute out, `true` sets it empty.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, Attribute>} [attributes]
 * @param {...(Node | string | null)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/**
 * Sets the length of a bar, between 0 and 1, through the CSSOM.
 * @param {HTMLElement} element
 * @param {number} fraction
 */
export function setBar(element, fraction) {
  element.style.setProperty("--fill", String(Math.min(1, Math.max(0, fraction))));
}

/**
 * Turns a control off without taking it out of the tab order, so that focus on it is not lost.
 * @param {HTMLElement} control
 * @param {boolean} off
 */
export function setOff(control, off) {
  control.setAttribute("aria-disabled", String(off));
}

/**
 * @param {HTMLElement} control
 * @returns {boolean}
 */
export function isOff(control) {
  return control.getAttribute("aria-disabled") === "true";
}

/**
 * Sets the children of an element; those that stay are not touched, as one that is taken out loses the focus.
 * @param {Element} parent
 * @param {readonly Element[]} children
 */
export function setChildren(parent, children) {
  const wanted = new Set(children);
  children.forEach((child, i) => {
    const there = parent.children[i];
    if (there === child) return;
    if (there && !wanted.has(there)) there.replaceWith(child);
    else parent.insertBefore(child, there ?? null);
  });
  while (parent.children.length > children.length) parent.lastElementChild?.remove();
}
