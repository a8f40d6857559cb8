// Texts with questions to begin with, one file for each domain. Knows where they lie, not what is done with them.

/** @typedef {{state: string, questions: Record<string, import("../index.js").Question>}} Sample */

/**
 * @param {string} name
 * @returns {Promise<Sample>}
 */
export async function fetchSample(name) {
  const response = await fetch(new URL(`./decide/samples/${name}.json`, import.meta.url));
  if (!response.ok) throw new Error(`${response.url}: ${response.status} ${response.statusText}`);
  return response.json();
}
