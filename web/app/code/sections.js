// A program in sections: most of it, and the values at its start that are so long that nobody would see what is done with
// them. Knows lines, not grammar.

/** @typedef {"text" | "questions"} Value */
/** @typedef {{source: string, value: Value | null}} Section null for what is to be shown whole */

/** Lines of a value that are shown whole. */
const SHORT = 8;

/** @type {Readonly<Record<string, Value>>} */
const NAMES = { state: "text", text: "text", questions: "questions" };

const DEFINITION = /^(?:const )?(state|text|questions) =/i;

/**
 * The sections of a program, whose sources joined are the program.
 * @param {string} source
 * @returns {Section[]}
 */
export function sections(source) {
  /** @type {Section[]} */
  const found = [{ source: "", value: null }];
  const lines = source.split(/(?<=\n)/);
  for (let at = 0; at < lines.length;) {
    const name = DEFINITION.exec(lines[at])?.[1];
    found[found.length - 1].source += lines[at++];
    if (name === undefined) continue;
    let end = at;
    while (lines[end]?.startsWith(" ")) end += 1;
    const value = lines.slice(at, end).join("");
    if (end - at > SHORT) {
      found.push({ source: value, value: NAMES[name.toLowerCase()] }, { source: "", value: null });
    } else found[found.length - 1].source += value;
    at = end;
  }
  return found;
}
