// web/stock.js without a runtime: float16, what is read of logits, and how long runs are.

import assert from "node:assert/strict";
import { test } from "node:test";

import { chunkTokens, half, stockReads } from "../../web/stock.js";

test("float16 by its bits", () => {
  /** @type {[number, number][]} */
  const cases = [
    [0x0000, 0],
    [0x3c00, 1],
    [0xc000, -2],
    [0x7bff, 65504],
    [0x0001, 2 ** -24],
    [0x0400, 2 ** -14],
    [0x3555, 0.333251953125],
    [0x7c00, Infinity],
    [0xfc00, -Infinity],
  ];
  for (const [bits, value] of cases) assert.equal(half(bits), value);
  assert.ok(Number.isNaN(half(0x7e00)));
});

test("labels and normalizers are read of the rows asked for", () => {
  const logits = Float32Array.of(0, 0, 0, 1, 2, 3, 1000, 1001, 999);
  const reads = { rows: [1, 2], labels: [2, 0], whole: [1] };
  const found = stockReads(logits, 3, reads);
  assert.deepEqual([...found.label_logits], [3, 1, 999, 1000]);
  assert.ok(Math.abs(found.normalizers[0] - 1001.407606) < 1e-3);
  const bits = Uint16Array.of(0, 0, 0, 0x3c00, 0x4000, 0x4200);
  assert.deepEqual([...stockReads(bits, 3, { rows: [1], labels: [2, 0], whole: [] }).label_logits], [3, 1]);
});

test("a prefill's runs are as long as their logits allow", () => {
  assert.equal(chunkTokens(320, 512, 4), 512);
  assert.equal(chunkTokens(151_936, 512, 4), 108);
  assert.equal(chunkTokens(10 ** 9, 512, 4), 4);
});
