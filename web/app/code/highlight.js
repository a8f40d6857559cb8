// Source text as elements with classes, for the eye only: strings, comments, numbers and keywords. Knows words, not
// grammar, and never changes the text.

import { h } from "../dom.js";

const WORDS = {
  js: "import from export const await async function for of new return if null true false instanceof",
  py: "from import with as for in await def return None True False print",
  sh: "curl",
};

/** @type {Readonly<Record<import("./generate.js").Language, keyof typeof WORDS>>} */
const DIALECTS = { npm: "js", script: "js", react: "js", python: "py", pyodide: "py", curl: "sh" };

/**
 * @param {string} source
 * @param {import("./generate.js").Language} language
 * @returns {(string | HTMLElement)[]}
 */
export function highlight(source, language) {
  const dialect = DIALECTS[language];
  const words = WORDS[dialect].replaceAll(" ", "|");
  const comment = dialect === "js" ? "(?!)" : "^#.*$";
  const string = '"(?:[^"\\\\\\n]|\\\\.)*"';
  const token = new RegExp(
    `(?<comment>${comment})|(?<string>${string})|(?<keyword>\\b(?:${words})\\b)|(?<number>\\b\\d+(?:\\.\\d+)?\\b)`,
    "gm",
  );
  /** @type {(string | HTMLElement)[]} */
  const parts = [];
  let end = 0;
  for (const match of source.matchAll(token)) {
    const [kind, text] = Object.entries(match.groups ?? {}).find(([, found]) => found !== undefined) ?? [
      "",
      "",
    ];
    parts.push(source.slice(end, match.index), h("span", { class: `token-${kind}` }, text));
    end = match.index + text.length;
  }
  parts.push(source.slice(end));
  return parts;
}
