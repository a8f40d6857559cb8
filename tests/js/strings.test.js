// Every sentence that the page shows is in web/app/strings.js: looks for those that are written elsewhere.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";

import { parseAst } from "vite";

const APP = new URL("../../web/app/", import.meta.url);

/** Two words in a row, or one that trails off. */
const SENTENCE = /\p{L}{2,}[,.:;!?…]?\s+\S*\p{L}{2,}|\p{L}{2,} ?…/u;
const LETTER = /\p{L}/u;

/** Attributes that somebody reads or hears, and those whose words are no English. */
const READ = new Set(["aria-label", "title", "placeholder", "alt"]);
const NAMES = new Set(["class", "aria-keyshortcuts"]);

/** The one file of sentences, and those that write programs. */
const OTHERS = new Set(["strings.js", "code/generate.js", "code/highlight.js"]);

/** Words of a style sheet or a program. */
const FOREIGN = [
  /^\((prefers-color-scheme: dark|forced-colors: active)\)$/,
  /^\.options li$/,
  /^import platform; /,
  /^python -m | --\w/,
];

/** Files that say of a row what the command line says of it, in the words of this file: both write it into one more file. */
const TWINS = new Set(["table/read.js", "table/table.js"]);
const TWIN = readFileSync(new URL("../../typedecide/batch_tables.py", import.meta.url), "utf8");

/** @typedef {{node: any, key: string, index: number}} Around what a text is part of, and where in it */

/**
 * What a module says by itself.
 * @param {string} name of the file, from web/app
 * @param {string} source
 * @returns {string[]}
 */
function sentences(name, source) {
  /** @type {string[]} */
  const found = [];
  const exempt = (/** @type {string} */ text) =>
    FOREIGN.some((pattern) => pattern.test(text)) || (TWINS.has(name) && TWIN.includes(text));
  /** @param {any} node @param {Around} around */
  const look = (node, around) => {
    if (typeof node?.type !== "string") return;
    const text = textOf(node);
    if (text !== null && isRead(text, around) && !exempt(text)) {
      found.push(`${name}:${source.slice(0, node.start).split("\n").length}: ${text}`);
    }
    for (const [key, value] of Object.entries(node)) {
      [value]
        .flat()
        .forEach((child, index) => look(child, isPart(node, key) ? around : { node, key, index }));
    }
  };
  look(parseAst(source), { node: null, key: "", index: 0 });
  return found;
}

/** @param {any} node @returns {string | null} what a literal, or a piece of a template, holds */
function textOf(node) {
  if (node.type === "TemplateElement") return node.value.cooked;
  return node.type === "Literal" && typeof node.value === "string" ? node.value : null;
}

/** @param {any} node @param {string} key @returns {boolean} whether what is there may be the value of the node, or a part of it */
function isPart({ type, operator }, key) {
  if (type === "BinaryExpression") return operator === "+";
  if (type === "ConditionalExpression") return key !== "test";
  return type === "LogicalExpression" || (type === "TemplateLiteral" && key === "quasis");
}

/** @param {string} text @param {Around} around */
function isRead(text, { node, key, index }) {
  if (node?.type === "ImportDeclaration") return false;
  if (node?.type === "Property" && key === "value") {
    const attribute = node.key.name ?? node.key.value;
    if (NAMES.has(attribute)) return false;
    if (READ.has(attribute)) return LETTER.test(text);
  }
  const child =
    node?.type === "CallExpression" && node.callee.name === "h" && key === "arguments" && index > 1;
  const content = node?.type === "AssignmentExpression" && node.left.property?.name === "textContent";
  return (child || (content && key === "right") ? LETTER : SENTENCE).test(text);
}

test("no sentence is written outside of strings.js", () => {
  const files = readdirSync(APP, { recursive: true }).map((path) => String(path).replaceAll("\\", "/"));
  const modules = files.filter((path) => path.endsWith(".js") && !OTHERS.has(path)).sort();
  assert.ok(modules.length > 40);
  const found = modules.flatMap((name) => sentences(name, readFileSync(new URL(name, APP), "utf8")));
  assert.deepEqual(found, []);
});

for (const planted of [
  'throw new Error("the file is broken")',
  "reject(new Error(`${url} cannot be loaded`))",
  'h("p", { class: "hint big" }, "Loading")',
  'h("p", {}, busy ? "Wait" : name)',
  'h("button", { "aria-label": "Close" })',
  'status.textContent = busy ? "Busy" : ""',
]) {
  test(`it is seen: ${planted}`, () => assert.equal(sentences("x.js", planted).length, 1));
}

test("what nobody reads is none", () => {
  const code =
    'import x from "a b"; h("p", { class: "hint big" }, name, kind === "two" ? a : b); f("plain", "x-y z")';
  assert.deepEqual(sentences("x.js", code), []);
});
