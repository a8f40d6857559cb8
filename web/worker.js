/**
 * The worker: one request after another around the engine, so that nothing runs on the page's main thread.
 *
 * Messages in:  {id, op, args} or {abort: id}.
 * Messages out: {id, progress}, {id, result} or {id, error: {code, message, data}}; at the start {alive: lock}, the name
 * of a lock that this worker holds for as long as it lives.
 */

import { Decider } from "./decider.js";
import { AbortedError, InvalidStateError, TypedecideError } from "./errors.js";

/** @type {Decider | null} */
let decider = null;

/** Controllers of the requests that wait or run, by id. @type {Map<number, AbortController>} */
const pending = new Map();

/** Tail of the queue: requests run in the order they came. */
let queue = Promise.resolve();

function loaded() {
  if (!decider) throw new InvalidStateError("the engine is not loaded");
  return decider;
}

/** `recall` is the channel's own. @type {Record<import("./types.js").Operation | "recall", (args: any[], id: number, signal: AbortSignal) => Promise<unknown>>} */
const OPERATIONS = {
  load: async ([settings], id, signal) => {
    decider = await Decider.load(settings, (progress) => postMessage({ id, progress }), signal);
    return decider.info;
  },
  prefill: ([state], _, signal) => loaded().prefill(state, () => signal.aborted),
  score: ([question, options], _, signal) => loaded().score(question, options, () => signal.aborted),
  scoreAll: ([questions, options], id, signal) =>
    loaded().scoreAll(questions, options, streamTo(id), () => signal.aborted),
  decide: ([state, questions, options], id, signal) =>
    loaded().decide(state, questions, options, streamTo(id), () => signal.aborted),
  states: async () => loaded().states.list(),
  memory: async () => loaded().memory(),
  release: async () => loaded().release(),
  recall: async ([state]) => loaded().recall(state),
  scoreFull: ([state, question, readout], _, signal) =>
    loaded().scoreFull(state, question, readout, () => signal.aborted),
};

/**
 * Sends each answer as soon as it is there.
 * @param {number} id
 * @returns {(index: number, answer: unknown) => void}
 */
function streamTo(id) {
  return (index, answer) => postMessage({ id, progress: { index, answer } });
}

const lock = `typedecide/worker/${crypto.randomUUID()}`;
// Where locks are not to be had, only an event tells of a worker that ended.
navigator.locks
  ?.request(lock, () => {
    postMessage({ alive: lock });
    return new Promise(() => {});
  })
  .catch(() => {});

addEventListener("message", ({ data }) => {
  if ("abort" in data) {
    pending.get(data.abort)?.abort();
    return;
  }
  const { id, op, args } = data;
  const controller = new AbortController();
  pending.set(id, controller);
  queue = queue.then(() => run(id, op, args, controller.signal));
});

/**
 * @param {number} id
 * @param {keyof typeof OPERATIONS} op
 * @param {unknown[]} args
 * @param {AbortSignal} signal
 */
async function run(id, op, args, signal) {
  try {
    // A message that came while the previous request ran is seen only once the event loop has turned.
    await new Promise((resolve) => setTimeout(resolve));
    if (signal.aborted) throw new AbortedError(`${op} was aborted before it began`);
    postMessage({ id, result: await OPERATIONS[op](args, id, signal) });
  } catch (error) {
    postMessage({ id, error: plain(error) });
  } finally {
    pending.delete(id);
  }
}

/** @param {unknown} error */
function plain(error) {
  if (error instanceof TypedecideError) {
    return { code: error.code, message: error.message, data: error.data };
  }
  const message = error instanceof Error ? error.message : String(error);
  return { code: "ERROR", message, data: {} };
}
