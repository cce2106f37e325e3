// The cells of notebook.js in Node, on Dawn: `notebook.mjs WHEEL NUMPY CELLS [plain]`, where CELLS is a file of JSON.

import fs from "node:fs";
import path from "node:path";
import { loadPyodide } from "pyodide";
import { create, globals } from "webgpu";
import { runCells } from "./notebook.js";

const [wheel, numpy, cells, kind] = process.argv.slice(2);
Object.assign(globalThis, globals);
const gpu = create([]);
Object.defineProperty(navigator, "gpu", { value: gpu });

const texts = fs.readdirSync(numpy).filter((name) => name.endsWith(".py"));
const found = await runCells({
  loadPyodide,
  wheel: new Uint8Array(fs.readFileSync(wheel)),
  numpy: Object.fromEntries(texts.map((name) => [name, fs.readFileSync(path.join(numpy, name), "utf8")])),
  cells: JSON.parse(fs.readFileSync(cells, "utf8")),
  suspending: kind !== "plain",
});
for (const each of found) console.log(JSON.stringify(each));
await new Promise((resolve) => process.stdout.write("", resolve)); // a pipe takes its time
process.exit();
