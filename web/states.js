/**
 * Prefilled states, kept while memory allows: a second round of questions on the same text pays no prefill.
 *
 * Knows texts and caches, not what is in them. The least recently used state goes first.
 */

/** @typedef {{text: string, ids: number[], cache: import("./engine.js").Cache}} State */

export class States {
  /** @type {Map<string, State>} in the order of their last use */
  #kept = new Map();

  /** @param {number} limit bytes that the states may take together; the one in use always stays */
  constructor(limit) {
    this.limit = limit;
  }

  /** Bytes taken. */
  get bytes() {
    return [...this.#kept.values()].reduce((sum, state) => sum + state.cache.bytes, 0);
  }

  /**
   * The state of a text, which counts as used now.
   * @param {string} text
   */
  get(text) {
    const state = this.#kept.get(text);
    if (state) {
      this.#kept.delete(text);
      this.#kept.set(text, state);
    }
    return state;
  }

  /**
   * Keep a state, and release others until all fit.
   * @param {State} state
   */
  add(state) {
    this.#kept.set(state.text, state);
    for (const other of [...this.#kept.values()]) {
      if (this.bytes <= this.limit || other === state) return;
      this.#kept.delete(other.text);
      other.cache.release();
    }
  }

  /**
   * Keep a state no longer; its cache is the caller's.
   * @param {State} state
   */
  remove(state) {
    if (this.#kept.get(state.text) === state) this.#kept.delete(state.text);
  }

  /** Tokens and bytes of each state, the least recently used one first. */
  list() {
    return [...this.#kept.values()].map(({ cache }) => ({ tokens: cache.length, bytes: cache.bytes }));
  }

  /** Release all. */
  clear() {
    for (const { cache } of this.#kept.values()) cache.release();
    this.#kept.clear();
  }
}
