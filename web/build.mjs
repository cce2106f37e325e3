// Makes dist/: the JavaScript, Pyodide with the part of Python's library that runs programs, and liveshape.zip, the
// package compiled to bytecode with its kernels. Everything that a page needs, and nothing from elsewhere; sizes.mjs
// weighs it.

import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
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
for (const name of ["pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm"]) {
  fs.copyFileSync(path.join(pyodide, name), path.join(dist, "pyodide", name));
}
// Pyodide's own packages are not offered: its lock names none of them.
const { info } = JSON.parse(fs.readFileSync(path.join(pyodide, "pyodide-lock.json"), "utf8"));
fs.writeFileSync(path.join(dist, "pyodide", "pyodide-lock.json"), JSON.stringify({ info, packages: {} }));

const python = await loadPyodide({ env: { PYTHONNODEBUGRANGES: "1" } }); // lines of frames, no columns
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

process.exit();
