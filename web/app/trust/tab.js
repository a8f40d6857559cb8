/** @param {HTMLElement} panel */
export async function mount(panel) {
  return {};
}
