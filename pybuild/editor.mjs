// Makes one module of editor.js and what it imports: `node editor.mjs OUT`. Node.js is only the tool here.

import { fileURLToPath } from "node:url";

import { build } from "vite";

const here = (name) => fileURLToPath(new URL(name, import.meta.url));

await build({
  configFile: false,
  root: here(".."),
  publicDir: false,
  logLevel: "error",
  build: {
    outDir: process.argv[2],
    emptyOutDir: true,
    target: "es2022",
    minify: true,
    // Not as a library, whose white space would stay.
    rolldownOptions: {
      input: here("editor.js"),
      preserveEntrySignatures: "strict",
      output: { format: "es", entryFileNames: "editor.js", minify: true },
    },
  },
});
