// Makes dist/: the JavaScript, Pyodide with the part of Python's library that runs programs, and liveshape.zip, the
// package compiled to bytecode with its kernels. Everything that a page needs, and nothing from elsewhere.

import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import zlib from "node:zlib";
import { loadPyodide } from "pyodide";

const here = import.meta.dirname;
const root = path.join(here, "..");
const dist = path.join(here, "dist");
const resolve = createRequire(import.meta.url).resolve;
const pyodide = path.dirname(resolve("pyodide/package.json"));

fs.rmSync(dist, { recursive: true, force: true });
fs.mkdirSync(path.join(dist, "pyodide"), { recursive: true });

for (const name of fs.readdirSync(path.join(here, "src"))) {
  const text = fs.readFileSync(path.join(here, "src", name), "utf8");
  fs.writeFileSync(path.join(dist, name), text.replace('"@huggingface/tokenizers"', '"./tokenizers.js"'));
}
fs.copyFileSync(path.join(root, "liveshape/device/page_gpu.js"), path.join(dist, "page_gpu.js"));
const tokenizers = path.join(path.dirname(resolve("@huggingface/tokenizers")), "tokenizers.min.mjs");
fs.copyFileSync(tokenizers, path.join(dist, "tokenizers.js"));
for (const name of ["pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "pyodide-lock.json"]) {
  fs.copyFileSync(path.join(pyodide, name), path.join(dist, "pyodide", name));
}

const python = await loadPyodide();
python.mountNodeFS("/source", root);
python.mountNodeFS("/dist", dist);
python.mountNodeFS("/packages", process.argv[2]); // with jinja2, markupsafe and flatbuffers
python.FS.writeFile("/stdlib.zip", fs.readFileSync(path.join(pyodide, "python_stdlib.zip")));
try {
  python.runPython(fs.readFileSync(path.join(here, "archives.py"), "utf8"));
} catch (error) {
  console.error(error.message);
  process.exit(1);
}

if (!process.argv.includes("--sizes")) process.exit();
let total = 0;
const rows = [];
for (const name of fs.readdirSync(dist, { recursive: true })) {
  const file = path.join(dist, name);
  if (!fs.statSync(file).isFile() || name === "node.js" || name.endsWith(".d.ts")) continue;
  const params = { [zlib.constants.BROTLI_PARAM_QUALITY]: 11, [zlib.constants.BROTLI_PARAM_LGWIN]: 24 };
  const bytes = zlib.brotliCompressSync(fs.readFileSync(file), { params }).length;
  total += bytes;
  rows.push([name, bytes]);
}
for (const [name, bytes] of rows.sort((a, b) => b[1] - a[1])) console.log(String(bytes).padStart(9), name);
console.log(String(total).padStart(9), "bytes with brotli in all");
