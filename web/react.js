// The React hook. One engine serves all components that ask for the same one; knows React, the public API and how to wait.

import { useCallback, useEffect, useMemo, useRef, useSyncExternalStore } from "react";
import { unlessAborted } from "./abort.js";
import { DeviceLostError, createEngine } from "./index.js";

/** @typedef {import("./index.js").Engine} Engine */
/** @typedef {import("./index.js").EngineOptions} EngineOptions */
/** @typedef {import("./index.js").Progress} Progress */
/** @typedef {import("./index.js").Question} Question */
/** @typedef {import("./index.js").ScoreAllOptions} ScoreAllOptions */
/** @typedef {import("./index.js").Ordered} Ordered */

/** @typedef {Omit<EngineOptions, "signal" | "onProgress">} DeciderOptions */

/**
 * @typedef {{status: "loading", engine: null, progress: Progress | null, error: null}
 *   | {status: "ready", engine: Engine, progress: Progress | null, error: null}
 *   | {status: "error", engine: null, progress: Progress | null, error: Error}} DeciderState
 */

/** @typedef {{signal?: AbortSignal, onAnswer?: (id: string, answer: Ordered) => void} & ScoreAllOptions} DecideOptions */

/**
 * @typedef {<Q extends Readonly<Record<string, Question>> | Map<string, Question>>(
 *   state: string,
 *   questions: Q,
 *   options?: DecideOptions,
 * ) => Promise<import("./index.js").Decision<Q>>} Decide
 */

/** @type {DeciderState} */
const LOADING = Object.freeze({ status: "loading", engine: null, progress: null, error: null });

/** An engine that nobody uses is kept for so long: the next view may want it, and loading is slow. */
const KEPT_MS = 5000;

/** Progress of a download comes with every chunk: more often than this nobody sees it. */
const PROGRESS_MS = 100;

/**
 * Load a model once, and ask it from a component.
 *
 * Loading begins when the component is mounted, and not on a server. Components with equal options share one engine; it
 * ends a few seconds after the last of them, and the last call, is gone.
 *
 * @example
 * const { status, progress, error, decide } = useDecider({ bundle: "/typedecide/" });
 *
 * @param {DeciderOptions} [options] compared by value, so they may be written in the call
 * @returns {DeciderState & {decide: Decide, retry: () => void}} `decide(state, questions, options)` waits for the model.
 *   A component has one call under way: the next one, other options, and its end abort it, and its promise is then
 *   rejected with `ABORTED`. `retry` loads again after an error. `engine` has everything else.
 */
export function useDecider(options = {}) {
  const key = JSON.stringify(options);
  // By value: a new object that says the same is no reason to load again.
  const shared = useMemo(() => sharedBy(key, options), [key]);
  const state = useSyncExternalStore(shared.join, shared.current, () => LOADING);
  /** @type {import("react").RefObject<AbortController | null>} */
  const running = useRef(null);
  useEffect(() => () => running.current?.abort(), [shared]);
  const decide = useCallback(
    /** @type {Decide} */ (
      (text, questions, { signal, ...rest } = {}) => {
        running.current?.abort();
        const own = new AbortController();
        running.current = own;
        const either = signal ? AbortSignal.any([signal, own.signal]) : own.signal;
        const work = (/** @type {Engine} */ engine) =>
          engine.decide({ state: text, questions }, { ...rest, signal: either });
        return shared.use(work, either);
      }
    ),
    [shared],
  );
  return { ...state, decide, retry: shared.retry };
}

/** @type {Map<string, Shared>} */
const engines = new Map();

/**
 * @param {string} key
 * @param {DeciderOptions} options
 */
function sharedBy(key, options) {
  const shared = engines.get(key) ?? new Shared(options);
  engines.set(key, shared);
  return shared;
}

/** One engine, loaded while somebody uses it. */
class Shared {
  /** @type {DeciderState} */
  #state = LOADING;
  /** @type {Set<() => void>} */
  #users = new Set();
  /** Calls under way, also of those that are no users any more. */
  #calls = 0;
  /** @type {Promise<Engine> | null} */
  #engine = null;
  #stop = new AbortController();
  #shown = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #leaving;

  /** @param {DeciderOptions} options */
  constructor(options) {
    this.options = options;
  }

  current = () => this.#state;

  /** @param {() => void} onChange */
  join = (onChange) => {
    clearTimeout(this.#leaving);
    this.#users.add(onChange);
    this.retry();
    return () => {
      this.#users.delete(onChange);
      this.#leave();
    };
  };

  #leave() {
    if (this.#users.size > 0 || this.#calls > 0) return;
    clearTimeout(this.#leaving);
    this.#leaving = setTimeout(() => this.#end(), KEPT_MS);
  }

  /** Load, unless that is done or under way. */
  retry = () => {
    // A failure is in the state.
    this.#load()
      .catch(() => {})
      .finally(() => this.#leave());
  };

  /**
   * @template T
   * @param {(engine: Engine) => Promise<T>} work
   * @param {AbortSignal} signal ends the wait for the engine; what comes then is the work's to end
   */
  async use(work, signal) {
    clearTimeout(this.#leaving);
    this.#calls += 1;
    const loading = this.#load();
    try {
      return await work(
        await unlessAborted(loading, signal, "decide was aborted before the model was loaded"),
      );
    } catch (error) {
      if (error instanceof DeviceLostError && this.#engine === loading) this.#fail(error);
      throw error;
    } finally {
      this.#calls -= 1;
      this.#leave();
    }
  }

  #load() {
    if (this.#engine) return this.#engine;
    this.#show(LOADING);
    this.#stop = new AbortController();
    const { signal } = this.#stop;
    const loading = createEngine({ ...this.options, signal, onProgress: (p) => this.#progress(p) });
    this.#engine = loading;
    loading.then(
      (engine) =>
        this.#engine === loading && this.#show({ ...this.#state, status: "ready", engine, error: null }),
      (error) => this.#engine === loading && this.#fail(error),
    );
    return loading;
  }

  /** @param {Progress} progress */
  #progress(progress) {
    const now = performance.now();
    const { status, progress: last } = this.#state;
    if (status !== "loading") return;
    if (last?.phase === progress.phase && now - this.#shown < PROGRESS_MS) return;
    this.#shown = now;
    this.#show({ ...LOADING, progress });
  }

  /** @param {Error} error */
  #fail(error) {
    this.#close();
    this.#show({ ...this.#state, status: "error", engine: null, error });
  }

  #end() {
    this.#close();
    this.#show(LOADING);
  }

  #close() {
    this.#stop.abort();
    this.#engine?.then(
      (engine) => engine.close(),
      () => {},
    );
    this.#engine = null;
  }

  /** @param {DeciderState} state */
  #show(state) {
    this.#state = state;
    for (const onChange of this.#users) onChange();
  }
}
