// What is wrong with a file that cannot be read as a table at all. typedecide/inputs.py has the same error.

import { TypedecideError } from "../../errors.js";

export class InputError extends TypedecideError {
  /** @override */
  static code = "INPUT";
}
