// What can go wrong with tables, besides what the library knows.

import { TypedecideError } from "../../errors.js";

/** A file cannot be read as a table, or not be used. typedecide/inputs.py has the same error. */
export class InputError extends TypedecideError {
  /** @override */
  static code = "INPUT";
}

/** A run cannot be kept, because this browser keeps another one. */
export class KeptRunError extends TypedecideError {
  /** @override */
  static code = "KEPT_RUN";
}

/** The rows of a run that are done were answered by another model, or on another device, than the rest would be. */
export class OtherModelError extends TypedecideError {
  /** @override */
  static code = "OTHER_MODEL";
}
