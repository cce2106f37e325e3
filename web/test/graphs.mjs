// The calls of graphs.js in Node, on Dawn: `graphs.mjs GIVEN` with a file of JSON, an answer a line.

import fs from "node:fs";
import path from "node:path";
import { create, globals } from "webgpu";
import { loadPyodide } from "../dist/pyodide/pyodide.mjs";
import { openPython } from "./graphs.js";

const { given, ...wanted } = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
const dist = path.join(import.meta.dirname, "../dist");
Object.assign(globalThis, globals);
const gpu = create([]); // of Dawn, which must outlive its devices
const archive = new Uint8Array(fs.readFileSync(path.join(dist, "liveshape.zip")));
const options = { indexURL: path.join(dist, "pyodide/") };
const call = await openPython({ loadPyodide, options, archive, gpu, ...wanted });
for (const text of given) {
  const answer = await call(text);
  await new Promise((resolve) => process.stdout.write(`${answer}\n`, resolve)); // a pipe takes a part at a time
}
process.exit();
