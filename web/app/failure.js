// What the page says about an error: its code, its message, what to do. Knows no engine.

import { TypedecideError } from "../errors.js";
import { S, UNEXPECTED, adviceFor } from "./strings.js";

/**
 * @param {unknown} error
 * @returns {{code: string, message: string, advice: string}}
 */
export function describeError(error) {
  const code = errorCode(error);
  const message = error instanceof Error && error.message !== "" ? error.message : S.unknownCause;
  return { code, message: message + foundText(error), advice: adviceFor(code) };
}

/**
 * The library's code of an error; every other error is unexpected here.
 * @param {unknown} error
 * @returns {string}
 */
export function errorCode(error) {
  return error instanceof TypedecideError ? error.code : UNEXPECTED;
}

/**
 * The offending value of an invalid question, where there is something to see.
 * @param {unknown} error
 * @returns {string}
 */
function foundText(error) {
  const value =
    error instanceof TypedecideError && error.code === "INVALID_QUESTION" ? error.data.value : null;
  if (typeof value === "number") return S.found(String(value));
  return typeof value === "string" && value.trim() !== "" ? S.found(value) : "";
}
