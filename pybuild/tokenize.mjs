// Encodes strings with a bundle's own tokenizer, as its page does: one JSON string a line in, one JSON list of ids a
// line out. Knows two paths, given as arguments: the bundle's tokenizer module and its tokenizer.json.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [modulePath, tokenizerPath] = process.argv.slice(2);
const { Tokenizer } = await import(pathToFileURL(modulePath).href);
const tokenizer = new Tokenizer(JSON.parse(readFileSync(tokenizerPath, "utf8")), {});

for await (const line of createInterface({ input: process.stdin })) {
  const { ids } = tokenizer.encode(JSON.parse(line), { add_special_tokens: false });
  process.stdout.write(`${JSON.stringify(ids)}\n`);
}
