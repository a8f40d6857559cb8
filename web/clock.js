// Notes when the steps of some work ran. Knows no step by name.

/**
 * When a step ran, in milliseconds since the work began.
 * @typedef {{from: number, to: number}} Span
 */

export class Clock {
  #began = performance.now();

  /** The steps that have ended; of one that was done again, the last time. @type {Record<string, Span>} */
  steps = {};

  /** Milliseconds since the work began. */
  get ms() {
    return performance.now() - this.#began;
  }

  /**
   * Do a step, and note when it ran.
   * @template T
   * @param {string} step
   * @param {() => Promise<T>} work
   * @returns {Promise<T>}
   */
  async during(step, work) {
    const from = this.ms;
    const done = await work();
    this.steps[step] = { from, to: this.ms };
    return done;
  }
}
