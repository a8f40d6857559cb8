// UTF-8 as Python decodes it with `surrogateescape`: a byte that is no UTF-8 becomes a lone surrogate, so that it is the
// fault of its row, which can say which byte it was, and not of the file.

const NEWLINE = 0x0a;

/**
 * @param {Uint8Array} bytes
 * @returns {string} with a byte order mark, where there is one
 */
export function decode(bytes) {
  const whole = utf8(bytes);
  if (whole !== null) return whole;
  const lines = [];
  for (let start = 0; start < bytes.length;) {
    const found = bytes.indexOf(NEWLINE, start);
    const end = found < 0 ? bytes.length : found + 1;
    const line = bytes.subarray(start, end);
    lines.push(utf8(line) ?? escaped(line));
    start = end;
  }
  return lines.join("");
}

/**
 * The byte that a lone surrogate of a decoded text stands for.
 * @param {string} surrogate
 */
export function byteOf(surrogate) {
  return `0x${(surrogate.charCodeAt(0) & 0xff).toString(16).padStart(2, "0")}`;
}

/**
 * @param {Uint8Array} bytes
 * @returns {string | null} null where they are no UTF-8
 */
function utf8(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}

/** @param {Uint8Array} bytes */
function escaped(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length;) {
    const length = lengthFrom(bytes[at]);
    const character = length && at + length <= bytes.length ? utf8(bytes.subarray(at, at + length)) : null;
    text += character ?? String.fromCharCode(0xdc00 + bytes[at]);
    at += character === null ? 1 : length;
  }
  return text;
}

/**
 * Bytes of the character that a byte begins; 0 where it begins none.
 * @param {number} byte
 */
function lengthFrom(byte) {
  if (byte < 0x80) return 1;
  if (byte < 0xc2) return 0;
  if (byte < 0xe0) return 2;
  return byte < 0xf0 ? 3 : byte < 0xf5 ? 4 : 0;
}
