/**
 * The service worker of the demo page: the page opens without a network after one visit, and has the headers that WASM
 * threads need also where the host cannot set any. Only the page registers it; the library does without.
 *
 * Knows the page's own files, by hash; the model's are the store's. The build puts `self.BUNDLE` in front of this file,
 * so a new bundle is a new service worker, with a cache of its own: a page never sees files of two bundles.
 */

/**
 * @typedef {object} Bundle
 * @property {string} version
 * @property {string} policy the page's Content-Security-Policy
 * @property {Record<string, string>} shell sha256 of each file that the page needs, by path
 * @property {Record<string, Record<string, string>>} runtime the same of each build of ONNX Runtime Web
 * @property {Record<string, string>} used the same of what is kept only once it was asked for
 */

const worker = /** @type {ServiceWorkerGlobalScope & {BUNDLE: Bundle}} */ (/** @type {unknown} */ (self));
const { version, policy, shell, runtime, used } = worker.BUNDLE;
const scope = worker.registration.scope;

const MANIFEST = "manifest.json";
/** Caches belong to an origin, on which other bundles may lie too. */
const OURS = `typedecide ${scope} `;
const CACHE = OURS + version;

/** @type {Record<string, string>} */
const HASHES = Object.assign({}, shell, used, ...Object.values(runtime));

/** How often, and after how many milliseconds, a second window is looked for again. */
const LEAVING = { tries: 10, ms: 50 };

const HEADERS = {
  "Content-Security-Policy": policy,
  "Cross-Origin-Embedder-Policy": "require-corp",
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Resource-Policy": "same-origin",
  "X-Content-Type-Options": "nosniff",
};

worker.addEventListener("install", (event) => event.waitUntil(install()));
worker.addEventListener("activate", (event) => event.waitUntil(activate()));
worker.addEventListener("message", (event) => event.waitUntil(obey(event.data, event.ports[0])));
worker.addEventListener("fetch", (event) => {
  const path = event.request.method === "GET" ? pathOf(event.request.url) : null;
  if (path !== null && (path === MANIFEST || Object.hasOwn(HASHES, path))) event.respondWith(answer(path));
});

/** Take all of the page's files, which must be those of one bundle. */
async function install() {
  const response = await load(MANIFEST);
  const manifest = await response.clone().json();
  if (manifest.build.version !== version)
    throw new Error(`the manifest is of another bundle than ${version}`);
  const cache = await caches.open(CACHE);
  await cache.put(urlOf(MANIFEST), response);
  await Promise.all(Object.keys(shell).map((path) => keep(path)));
}

async function activate() {
  const names = await caches.keys();
  const old = names.filter((name) => name.startsWith(OURS) && name !== CACHE);
  await Promise.all(old.map((name) => caches.delete(name)));
  await worker.clients.claim();
}

/**
 * @param {{keep?: string, alone?: boolean, activate?: boolean}} message a build of the runtime to keep; or whether the
 *   page that asks is alone, answered through `port`; or to take over from the service worker before, which only a page
 *   that is alone may ask for: another one would go on with files of two bundles
 * @param {MessagePort} [port]
 */
async function obey({ keep: build, alone: asked, activate: takeOver }, port) {
  if (build !== undefined) await Promise.all(Object.keys(runtime[build] ?? {}).map((path) => keep(path)));
  if (asked) port?.postMessage(await alone());
  if (takeOver) await worker.skipWaiting();
}

/** Whether no more than one window shows the page; one that is being left counts for a moment more. */
async function alone() {
  for (let tries = 1; ; tries++) {
    const windows = await worker.clients.matchAll({ type: "window", includeUncontrolled: true });
    if (windows.filter(({ url }) => url.startsWith(scope)).length <= 1) return true;
    if (tries === LEAVING.tries) return false;
    await new Promise((resolve) => setTimeout(resolve, LEAVING.ms));
  }
}

/** @param {string} path */
async function answer(path) {
  const found = (await kept(path)) ?? (await keep(path));
  const headers = new Headers(found.headers);
  // What the host says itself counts.
  for (const [name, value] of Object.entries(HEADERS)) if (!headers.has(name)) headers.set(name, value);
  return new Response(found.body, { status: found.status, headers });
}

/** @param {string} path */
async function kept(path) {
  return (await caches.open(CACHE)).match(urlOf(path));
}

/**
 * A file from the network, kept from now on if it is the right one.
 * @param {string} path
 */
async function keep(path) {
  const before = await kept(path);
  if (before) return before;
  const response = await load(path);
  const bytes = await response.clone().arrayBuffer();
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const found = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  if (path !== MANIFEST && found !== HASHES[path]) throw new Error(`${path} is not a file of ${version}`);
  await (await caches.open(CACHE)).put(urlOf(path), response.clone());
  return response;
}

/** @param {string} path */
async function load(path) {
  const response = await fetch(urlOf(path), { cache: "no-cache" });
  if (!response.ok) throw new Error(`${path}: HTTP ${response.status}`);
  return response;
}

/** @param {string} path */
function urlOf(path) {
  return new URL(path, scope).href;
}

/** @param {string} address */
function pathOf(address) {
  const url = new URL(address);
  url.search = url.hash = "";
  if (!url.href.startsWith(scope)) return null;
  return decodeURIComponent(url.href.slice(scope.length)) || "index.html";
}
