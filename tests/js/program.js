// For tests/programs.py: `generate` writes the programs of the Code tab for a task, `run` runs one of JavaScript and
// tells what it asks, `exchange` takes questions as the page's dialog does. JSON on standard input and output.

import { ImportError, exportQuestions, importQuestions } from "../../web/app/decide/exchange.js";
import { LANGUAGES, generate } from "../../web/app/code/generate.js";

/** @param {any} task */
function programs(task) {
  return Object.fromEntries(LANGUAGES.map((language) => [language, generate(language, task)]));
}

/**
 * Runs a program with a library that answers nothing and notes what it is asked.
 * @param {string} source
 */
async function run(source) {
  /** @type {any[]} */
  const asked = [];
  const createEngine = async (/** @type {unknown} */ given) => ({
    decide: async (/** @type {any} */ request, /** @type {unknown} */ options) => {
      asked.push({ given, options, state: request.state, questions: Object.entries(request.questions) });
      return { answers: {} };
    },
  });
  Object.assign(globalThis, { createEngine, document: { querySelector: () => ({}) } });
  const body = source.replace(/^import \{ createEngine \} from .*$/m, "");
  await import(`data:text/javascript,${encodeURIComponent(body)}`);
  return asked;
}

/** @param {string} text */
function exchange(text) {
  try {
    const { questions, state } = importQuestions(text);
    return { questions, state, exported: exportQuestions(questions) };
  } catch (error) {
    if (error instanceof ImportError) return { faults: error.faults };
    throw error;
  }
}

/** @type {Record<string, (input: any) => unknown>} */
const COMMANDS = { generate: programs, run, exchange };

let input = "";
for await (const chunk of process.stdin) input += chunk;
process.stdout.write(JSON.stringify(await COMMANDS[process.argv[2]](JSON.parse(input))));
