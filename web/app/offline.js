// Registers the service worker, by which the page opens without a network and is cross-origin isolated on any host.
// Knows neither the engine nor the view.

const RELOADED = "typedecide-reloaded";

/** Milliseconds that the page waits for its service worker to take over before it goes on without. */
const PATIENCE = 30_000;

/** Milliseconds that a service worker may take to answer. */
const ANSWER_MS = 5000;

/**
 * Call it before anything is loaded.
 * @returns {Promise<boolean>} whether the page is being loaded anew, so that nothing should be started in this one
 */
export async function prepare() {
  const container = navigator.serviceWorker;
  if (!container) return false;
  let used = false;
  for (const type of ["pointerdown", "keydown"]) addEventListener(type, () => (used = true), { once: true });
  let registration;
  try {
    registration = await container.register(new URL("../sw.js", import.meta.url));
  } catch {
    return false; // no secure context, or the browser keeps no site data
  }
  if (!registration) return false; // a browser under test, whose tool keeps service workers out
  const { waiting } = registration;
  if (waiting && container.controller && (await isAlone(waiting)) && !used) {
    // Nothing is loaded before it took over: what is under way then would get no answer.
    const taken = changed(container, waiting, PATIENCE);
    waiting.postMessage({ activate: true });
    if (await taken) return reload();
  }
  if (crossOriginIsolated) {
    sessionStorage.removeItem(RELOADED);
    return false;
  }
  // Once only: a reload that did not help would not help again. And never under the hands of a person.
  if (sessionStorage.getItem(RELOADED)) return false;
  const next = registration.installing ?? registration.waiting ?? registration.active;
  if (!container.controller && !(await changed(container, next, PATIENCE))) return false;
  if (used) return false;
  sessionStorage.setItem(RELOADED, "1");
  return reload();
}

/**
 * Have the runtime that this browser uses kept as well: it may have been loaded before the service worker was there.
 * @param {string} build
 */
export async function keepRuntime(build) {
  const registration = await navigator.serviceWorker?.ready;
  registration?.active?.postMessage({ keep: build });
}

function reload() {
  location.reload();
  return true;
}

/**
 * Ask a service worker whether this page is alone; no answer means no.
 * @param {ServiceWorker} worker
 * @returns {Promise<boolean>}
 */
function isAlone(worker) {
  const { port1, port2 } = new MessageChannel();
  return new Promise((resolve) => {
    setTimeout(() => resolve(false), ANSWER_MS);
    port1.onmessage = ({ data }) => resolve(data);
    worker.postMessage({ alone: true }, [port2]);
  });
}

/**
 * @param {ServiceWorkerContainer} container
 * @param {ServiceWorker | null} next
 * @param {number} ms
 * @returns {Promise<boolean>} whether `next` took over within so many milliseconds; false at once where it cannot
 */
function changed(container, next, ms) {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), ms);
    const end = (/** @type {boolean} */ taken) => (clearTimeout(timer), resolve(taken));
    container.addEventListener("controllerchange", () => end(true), { once: true });
    next?.addEventListener("statechange", () => next.state === "redundant" && end(false));
  });
}
