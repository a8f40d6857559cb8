// The typed errors that every part of the page throws, with codes shared with Python (typedecide/errors.py).
// Knows nothing about questions, tensors or files: an error is a message, a code, and the values at fault.

/**
 * Base of all errors of this package. `code` is stable and the same in Python; `data` holds the offending values.
 */
export class TypedecideError extends Error {
  /** @type {string} */
  static code = "ERROR";

  /**
   * @param {string} message what went wrong, for a person
   * @param {Record<string, unknown>} [data] the offending values, by name
   */
  constructor(message, data = {}) {
    super(message);
    this.name = new.target.name;
    /** @type {string} */
    this.code = new.target.code;
    this.data = data;
  }

  /**
   * The form that crosses the worker border.
   * @returns {PlainError}
   */
  toJSON() {
    return { code: this.code, message: this.message, data: this.data };
  }
}

/** @typedef {{code: string, message: string, data: Record<string, unknown>}} PlainError */

/** This machine, browser, model or file cannot be used; `data` says which and why. */
export class UnsupportedError extends TypedecideError {
  /** @override */
  static code = "UNSUPPORTED";
}

/** A file or a number is not what it must be: a wrong hash, a wrong golden value, a non-finite logit. */
export class IntegrityError extends TypedecideError {
  /** @override */
  static code = "INTEGRITY";
}

/**
 * The cached prefix is not a token-level prefix of the full prompt. `data.position` is the first token index at which
 * they differ, `data.prefix_token` the cached id there and `data.full_token` the full prompt's; null where that sequence
 * is already over.
 */
export class PrefixMismatchError extends TypedecideError {
  /** @override */
  static code = "PREFIX_MISMATCH";
}

/** A text does not fit the context: `data.tokens` tokens, where `data.limit` would fit. Nothing is ever cut. */
export class TooLongError extends TypedecideError {
  /** @override */
  static code = "TOO_LONG";
}

/** A question does not validate: `data.loc` is the path to the fault, `data.value` what was found there. */
export class InvalidQuestionError extends TypedecideError {
  /** @override */
  static code = "INVALID_QUESTION";
}

/** A request does not validate: each of `data.faults` says where (`loc`), what is wrong (`msg`) and of which `type`. */
export class InvalidRequestError extends TypedecideError {
  /** @override */
  static code = "INVALID_REQUEST";
}

/** The state is not a string, or it holds a lone surrogate, which UTF-8 cannot carry. */
export class InvalidStateError extends TypedecideError {
  /** @override */
  static code = "INVALID_STATE";
}

/** A bundle is missing, malformed, or of another schema version. */
export class BundleError extends TypedecideError {
  /** @override */
  static code = "BUNDLE";
}

/**
 * Weights do not fit the browser's storage: they need `data.needed` bytes more, and
 * `data.available` are free; null where the browser does not know.
 */
export class QuotaError extends TypedecideError {
  /** @override */
  static code = "QUOTA";
}

/** The GPU device, the runtime or the worker failed during the work, and so did another one put in its place. */
export class DeviceLostError extends TypedecideError {
  /** @override */
  static code = "DEVICE_LOST";
}

/** The caller cancelled the work. */
export class AbortedError extends TypedecideError {
  /** @override */
  static code = "ABORTED";
}

/**
 * Every error class by its code.
 * @type {ReadonlyMap<string, typeof TypedecideError>}
 */
export const ERRORS = new Map(
  [
    UnsupportedError,
    IntegrityError,
    PrefixMismatchError,
    TooLongError,
    InvalidQuestionError,
    InvalidRequestError,
    InvalidStateError,
    BundleError,
    QuotaError,
    DeviceLostError,
    AbortedError,
  ].map((error) => [error.code, error]),
);

/**
 * The error that `toJSON` (or Python's `to_dict`) described, of the right class. An unknown code gives a plain
 * `TypedecideError` that carries that code.
 * @param {PlainError} plain
 * @returns {TypedecideError}
 */
export function reviveError({ code, message, data }) {
  const known = ERRORS.get(code);
  if (known) return new known(message, data);
  const error = new TypedecideError(message, data);
  error.code = code;
  return error;
}
