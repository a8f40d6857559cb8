// Loads code of a bundle by its address. Knows no bundle.

import { BundleError } from "./errors.js";

/**
 * A module whose address is known only in the browser: build tools must leave this import as it is.
 * @param {URL} url
 * @returns {Promise<any>}
 * @throws {BundleError}
 */
export async function importModule(url) {
  try {
    return await import(/* webpackIgnore: true */ /* @vite-ignore */ String(url));
  } catch (error) {
    throw new BundleError(`cannot load the module ${url}: ${error}`, { url: String(url) });
  }
}
