// Text to the clipboard and into files. Knows nothing of what it says.

import { h } from "./dom.js";

/**
 * @param {string} text
 * @returns {Promise<boolean>} false where the browser does not let the page write to the clipboard
 */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/**
 * Gives the user a file, through the browser's own download.
 * @param {string} name
 * @param {BlobPart} content
 * @param {string} type
 */
export function download(name, content, type) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = h("a", { href: url, download: name });
  link.click();
  // The download has begun by then; until it has, the address must stay.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
