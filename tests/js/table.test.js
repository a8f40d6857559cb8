// Tables in the page against those of `python -m typedecide batch`: tests/vectors/tables.json.

import assert from "node:assert/strict";
import { test } from "node:test";

import papa from "papaparse";

import { csvLine, floatText } from "../../web/app/table/format.js";
import { readTable } from "../../web/app/table/read.js";
import { Results } from "../../web/app/table/results.js";
import { Table } from "../../web/app/table/table.js";
import { load } from "./vectors.js";

const { numbers, lines, tables } = load("tables.json");

test("numbers are written as Python writes them", () => {
  assert.ok(numbers.length > 50);
  for (const { value, expect } of numbers) assert.equal(floatText(value), expect);
});

test("lines of CSV", () => {
  for (const { cells, expect } of lines) assert.equal(csvLine(cells), expect);
});

for (const { name, file, content, text, keep, expect, refused } of tables) {
  test(`a table: ${name}`, async () => {
    const bytes = Uint8Array.from(content, (/** @type {string} */ one) => one.charCodeAt(0));
    const read = () => new Table(readTable(file, bytes, papa), text, keep);
    if (refused) return assert.throws(read, { code: "INPUT", message: refused });
    const table = read();
    const results = new Results(table, new Map());
    const rows = [];
    for (const [place, row] of table.rows.entries()) {
      const fault = table.fault(row);
      if (fault) results.reject(place, fault);
      else
        rows.push([
          row.number,
          table.textOf(row),
          ...keep.map((/** @type {string} */ one) => table.kept(row, one)),
        ]);
    }
    assert.deepEqual(rows, expect.rows);
    const rejects = await (await results.toRejects()).text();
    assert.deepEqual(rejects.split("\n").slice(0, -1), expect.rejects);
  });
}
