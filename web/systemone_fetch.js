// A `fetch` that answers the System One paths from an engine in this page, so that official clients need no server.
// Knows requests and responses of the Fetch standard; systemone.js knows what is in them.

import { AbortedError, TypedecideError } from "./errors.js";
import * as systemone from "./systemone.js";
import { dump } from "./wire_json.js";

/** @typedef {import("./systemone.js").Reply} Reply */

/**
 * What an engine needs to have.
 * @typedef {object} Answering
 * @property {import("./types.js").Info} info
 * @property {(request: {state: string, questions: Map<string, import("./types.js").Question>}, options: {signal: AbortSignal}) =>
 *   Promise<import("./systemone.js").Decided>} decide
 */

/**
 * A `fetch` for `engine`: whatever the host, paths that end in `/v1/systemone` (POST) and `/v1/models` (GET) are answered,
 * others are 404. Nothing leaves the page, and keys are neither needed nor read.
 * @param {Answering} engine
 * @returns {(input: RequestInfo | URL, init?: RequestInit) => Promise<Response>}
 */
export function makeFetch(engine) {
  return async (input, init) => {
    const request = new Request(input, init);
    request.signal.throwIfAborted();
    try {
      return toResponse(await route(engine, request));
    } catch (error) {
      // As fetch does: who aborts gets the reason of the signal.
      if (error instanceof AbortedError) request.signal.throwIfAborted();
      if (error instanceof TypedecideError) return toResponse(systemone.refused(error));
      throw error;
    }
  };
}

/**
 * @param {Answering} engine
 * @param {Request} request
 * @returns {Promise<Reply>}
 */
async function route(engine, request) {
  const { pathname } = new URL(request.url);
  const { method } = request;
  if (pathname.endsWith(systemone.PATH)) {
    return method === "POST" ? decide(engine, request) : systemone.notAllowed(method, "POST");
  }
  if (pathname.endsWith(systemone.MODELS_PATH)) {
    return method === "GET" ? systemone.models(engine.info) : systemone.notAllowed(method, "GET");
  }
  return systemone.notFound(pathname);
}

/**
 * @param {Answering} engine
 * @param {Request} request
 */
async function decide(engine, request) {
  const asked = systemone.parseRequest(await request.arrayBuffer());
  const name = String(engine.info.model.name);
  systemone.checkModel(asked, name);
  const { state, questions } = asked;
  const done = await engine.decide({ state, questions }, { signal: request.signal });
  return systemone.answered(asked, name, done);
}

/** @param {Reply} reply */
function toResponse({ status, body, headers }) {
  return new Response(dump(body), { status, headers: { "Content-Type": "application/json", ...headers } });
}
