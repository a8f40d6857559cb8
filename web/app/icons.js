// The page's small pictures, drawn in the colour of the text beside them. They say nothing to a screen reader: the
// control around one has the name.

const SVG = "http://www.w3.org/2000/svg";

/** Strokes on a field of 16 by 16. */
const PATHS = {
  up: "M8 13V3M3.5 7.5 8 3l4.5 4.5",
  down: "M8 3v10M3.5 8.5 8 13l4.5-4.5",
  copy: "M5.5 5.5V2.5h8v8h-3M2.5 5.5h8v8h-8z",
  edit: "M10.5 3 13 5.5 5.5 13l-3 .5.5-3zM9 4.5 11.5 7",
  remove: "M2.5 4.5h11M6.5 4.5v-2h3v2M4 4.5l.5 9h7l.5-9M6.75 7v4M9.25 7v4",
  done: "M3 8.5 6.5 12 13 4.5",
};

/** @typedef {keyof typeof PATHS} Icon */

/**
 * @param {Icon} name
 * @returns {SVGSVGElement}
 */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const attributes = { viewBox: "0 0 16 16", "aria-hidden": "true", class: "icon" };
  for (const [key, value] of Object.entries(attributes)) svg.setAttribute(key, value);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}
