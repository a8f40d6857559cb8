// A bounded store by key: what was used longest ago goes first.
//
// Knows nothing of what it holds. typedecide/recent.py is its twin.

/** How many questions an engine remembers something of: scores under blank evidence, priors. */
export const KEPT_QUESTIONS = 1024;

/**
 * At most `limit` values, by key.
 * @template Value
 */
export class Recent {
  /** @type {Map<string, Value>} in the order of their last use */
  #kept = new Map();

  /**
   * @param {number} limit how many values are kept
   * @param {() => Value} make what makes the value of a key that is not here
   */
  constructor(limit, make) {
    this.limit = limit;
    this.make = make;
  }

  get size() {
    return this.#kept.size;
  }

  /**
   * The value of a key, made where there is none; it counts as used now.
   * @param {string} key
   * @returns {Value}
   */
  get(key) {
    const kept = this.#kept.get(key);
    const value = kept === undefined ? this.make() : kept;
    this.#kept.delete(key);
    this.#kept.set(key, value);
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > this.limit) this.#kept.delete(oldest);
    return value;
  }

  /** Drop all. */
  clear() {
    this.#kept.clear();
  }
}
