// The current questions and text as programs that ask them. Pure: data in, source text out; knows neither the page nor
// an engine.

import { draftFromWire } from "../decide/draft.js";
import { portable } from "../decide/exchange.js";
import { jsConstant, jsKey, jsValue, pyConstant, pyGroup, quote } from "./literals.js";

/** @typedef {import("../../index.js").Question} Question */
/** @typedef {import("../../index.js").ScoreAllOptions} ScoreAllOptions */

/**
 * What a program is to do.
 * @typedef {object} Task
 * @property {string} text
 * @property {Readonly<Record<string, Question>>} questions by id, in the System One form
 * @property {Pick<ScoreAllOptions, "readout" | "orderings">} options none: the bundle's own way of reading
 * @property {string} bundle address of a bundle's folder, with a slash at its end
 */

/** @typedef {keyof typeof GENERATORS} Language */

/** @param {Task} task */
function jsQuestions({ questions }) {
  const entries = Object.entries(questions).map(
    ([id, question]) => `  ${jsKey(id)}: ${jsValue(portable(question), "  ")},\n`,
  );
  return `{\n${entries.join("")}}`;
}

/** The constants that the JavaScript programs begin with. @param {Task} task */
function jsTask(task) {
  return `${jsConstant("state", task.text)}\n\nconst questions = ${jsQuestions(task)};\n`;
}

/** The options of a call, as its last argument with a comma before it. @param {Task} task */
function jsOptions({ options }) {
  return Object.keys(options).length === 0 ? "" : `, ${jsValue(options)}`;
}

/** @param {Task} task */
function jsCall(task) {
  return `const { answers } = await engine.decide({ state, questions }${jsOptions(task)});`;
}

const JS_LOOP = `for (const [id, { choice, value, probabilities, confidence }] of Object.entries(answers)) {
  console.log(id, choice, value, probabilities, confidence);
}
`;

/** @param {Task} task */
function npm(task) {
  return `import { createEngine } from "typedecide";

${jsTask(task)}
const engine = await createEngine({ bundle: "/typedecide/" });
${jsCall(task)}
${JS_LOOP}`;
}

/** @param {Task} task */
function script(task) {
  const code = `import { createEngine } from ${quote(`${task.bundle}index.js`)};

${jsTask(task)}
const engine = await createEngine();
${jsCall(task)}
document.querySelector("pre").textContent = JSON.stringify(answers, null, 2);
`;
  // In a string "<" may be written like this, and code of ours has none elsewhere: nothing can end the script early.
  return `<!doctype html>
<html lang="en">
  <meta charset="utf-8" />
  <title>typedecide</title>
  <pre>Loading …</pre>
  <script type="module">
${code.replaceAll("<", "\\u003c")}  </script>
</html>
`;
}

/** @param {Task} task */
function react(task) {
  const options = Object.keys(task.options).length === 0 ? "" : `, OPTIONS`;
  const constant = options === "" ? "" : `\nconst OPTIONS = ${jsValue(task.options)};\n`;
  return `import { useEffect, useState } from "react";
import { useDecider } from "typedecide/react";

${jsConstant("STATE", task.text)}

const QUESTIONS = ${jsQuestions(task)};
${constant}
export function Answers({ state = STATE, questions = QUESTIONS }) {
  const { status, progress, error, decide, retry } = useDecider({ bundle: "/typedecide/" });
  const [answers, setAnswers] = useState(null);
  const [failure, setFailure] = useState(null);
  useEffect(() => {
    // Loading failed: retry makes it null again, and all is asked anew.
    if (error) return;
    let wanted = true;
    setFailure(null);
    decide(state, questions${options}).then(
      (done) => wanted && setAnswers(done.answers),
      (reason) => wanted && setFailure(reason),
    );
    // A reply to an earlier text, or that it was aborted, is nothing to show.
    return () => {
      wanted = false;
    };
  }, [decide, state, questions, error]);
  if (error) return <button onClick={retry}>{error.message}</button>;
  if (failure) return <p role="alert">{failure.message}</p>;
  if (!answers) return <p role="status">{progress?.message ?? status}</p>;
  return (
    <dl>
      {Object.entries(answers).map(([id, { choice, confidence }]) => (
        <div key={id}>
          <dt>{id}</dt>
          <dd>
            {choice} ({confidence.toFixed(2)})
          </dd>
        </div>
      ))}
    </dl>
  );
}
`;
}

/**
 * Options of a question: names, or names with what they mean.
 * @param {readonly {name: string, description: string}[]} options
 * @param {string} indent
 */
function pyOptions(options, indent) {
  if (options.every(({ description }) => description === "")) {
    return pyGroup(
      "[",
      options.map(({ name }) => quote(name)),
      "]",
      indent,
    );
  }
  const entries = options.map(({ name, description }) => `${quote(name)}: ${quote(description)}`);
  return pyGroup("{", entries, "}", indent);
}

/** @param {Question} question @param {string} indent */
function pyQuestion(question, indent) {
  const { kind, question: text, options, yes, no } = draftFromWire("", question);
  const inner = `${indent}    `;
  if (kind === "noul") {
    const meanings = yes || no ? [`yes=${quote(yes)}`, `no=${quote(no)}`] : [];
    return pyGroup("Noul(", [quote(text), ...meanings], ")", indent);
  }
  const name = kind === "choice" ? "Choice" : "Score";
  return pyGroup(`${name}(`, [quote(text), pyOptions(options, inner)], ")", indent);
}

/** @param {Task} task @param {string} imports what else is imported */
function pyTask({ text, questions }, imports) {
  const kinds = new Set(
    Object.values(questions).map(({ type }) => ({ choice: "Choice", noul: "Noul", score: "Score" })[type]),
  );
  const entries = Object.entries(questions).map(
    ([id, question]) => `    ${quote(id)}: ${pyQuestion(question, "    ")},\n`,
  );
  return `from typedecide import ${[...kinds].sort().join(", ")}${imports}

${pyConstant("text", text)}
questions = {
${entries.join("")}}
`;
}

/** @param {Task} task */
function pyArguments({ options }) {
  return [
    "text",
    "questions",
    ...Object.entries(options).map(([name, value]) => `${name}=${quoted(value)}`),
  ].join(", ");
}

/** @param {unknown} value */
function quoted(value) {
  return typeof value === "string" ? quote(value) : String(value);
}

const PY_LOOP = `for name, found in done.answers.items():
    answer = found.answer
    print(name, answer.choice, answer.value, answer.confidence)
`;

/** @param {Task} task */
function python(task) {
  return `from pathlib import Path

${pyTask(task, "\nfrom typedecide.native import NativeEngine")}
with NativeEngine(Path("dist")) as engine:
    done = engine.decide(${pyArguments(task)})
${PY_LOOP}`;
}

/** @param {Task} task */
function pyodide(task) {
  return `${pyTask(task, ", browser")}
engine = await browser.connect()
done = await engine.decide(${pyArguments(task)})
${PY_LOOP}`;
}

/**
 * A question as the API takes it, whose levels are texts.
 * @param {Question} question
 */
function apiQuestion(question) {
  const wire = portable(question);
  if (wire.type !== "score") return wire;
  const { options } = draftFromWire("", question);
  const levels = options.map(({ name, description }) =>
    description === "" ? name : `${name}: ${description}`,
  );
  return { ...wire, criteria: levels };
}

/** @param {Task} task */
function curl({ text, questions }) {
  const asked = Object.entries(questions).map(([id, question]) => [id, apiQuestion(question)]);
  // Object.fromEntries makes an own property of any id, __proto__ too. quote escapes what JSON.stringify alone leaves.
  const body = JSON.stringify({ state: text, questions: Object.fromEntries(asked) }, null, 2);
  const safe = body.replace(/"(?:[^"\\]|\\.)*"/g, (found) => quote(JSON.parse(found)));
  return `# In another terminal: python -m typedecide serve
curl http://127.0.0.1:8787/v1/systemone \\
  --header "Content-Type: application/json" \\
  --data-binary @- << 'END'
${safe}
END
`;
}

const GENERATORS = { npm, script, react, python, pyodide, curl };

export const LANGUAGES = /** @type {Language[]} */ (Object.keys(GENERATORS));

/**
 * The program of one language.
 * @param {Language} language
 * @param {Task} task
 * @returns {string}
 */
export function generate(language, task) {
  return GENERATORS[language](task);
}
