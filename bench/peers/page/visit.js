// One visit: an empty page opens a subject and asks it questions about texts. Times are in milliseconds.

let engine;

/** Open a subject, and ask it about a text. */
export async function open({ module, options, state, questions }) {
  const began = performance.now();
  engine = await (await import(`./${module}.js`)).open(options);
  const openMs = performance.now() - began;
  return { openMs, ...(await timed(began, state, questions)) };
}

/** Ask the open subject about a text. */
export function ask({ state, questions }) {
  return timed(performance.now(), state, questions);
}

/** `eachMs` are the times after which there were one, two and more answers. */
async function timed(began, state, questions) {
  const eachMs = [];
  const answers = await engine.ask(state, questions, () => eachMs.push(performance.now() - began));
  return { ms: performance.now() - began, eachMs, answers, note: engine.note ?? null };
}
