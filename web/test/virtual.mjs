// Checkpoints in Node without a GPU, as tests/web/test_sources.py asks for them: the virtual model.pte of each, written to
// a file, and read again in odd pieces. A line of JSON each.

import fs from "node:fs";
import path from "node:path";
import { loadPyodide } from "../dist/pyodide/pyodide.mjs";
import { NodeSource, mount } from "../dist/sources.js";
import { VirtualProgram } from "../dist/virtual_program.js";

const dist = path.join(import.meta.dirname, "../dist");
const python = await loadPyodide({ indexURL: `${dist}/pyodide/` });
const sources = new Map();
let program;

const mountProgram = (folder, stored, description) => {
  program = new VirtualProgram(stored, JSON.parse(description), sources);
};
python.unpackArchive(new Uint8Array(fs.readFileSync(`${dist}/liveshape.zip`)), "zip", { extractDir: "/liveshape" });
python.registerJsModule("liveshape_js", { makeTokenizer: () => null, mountProgram });
python.runPython(`import sys; sys.path.insert(0, "/liveshape"); import liveshape_sources`);
const converted = python.pyimport("liveshape_sources").converted;

function mounted(source, folder) {
  const alone = !fs.statSync(source).isDirectory();
  const home = alone ? path.dirname(source) : source;
  let read = 0;
  for (const name of alone ? [path.basename(source)] : fs.readdirSync(home)) {
    const file = new NodeSource(fs, path.join(home, name));
    const counted = { size: file.size, read: (start, bytes) => ((read += bytes), file.read(start, bytes)) };
    mount(python.FS, folder, name, counted);
    sources.set(`${folder}/${name}`, counted);
  }
  return () => read;
}

// Whether bytes of a file read from many odd places, in odd lengths, are those of the whole.
function oddPieces(whole) {
  let wrong = 0;
  for (let turn = 0, at = 1; turn < 150; turn++, at = (at * 48271) % 2147483647) {
    const start = at % program.size;
    const piece = program.read(start, 1 + ((turn * 7919) % 30011));
    wrong += Buffer.compare(piece, whole.subarray(start, start + piece.length)) !== 0;
  }
  return wrong;
}

let number = 0;
for (const task of process.argv.slice(2)) {
  const [source, target, quant] = task.split("=");
  const folder = `/models/${++number}`;
  try {
    const read = mounted(source, folder);
    converted(folder, quant || undefined);
    const header = read();
    const whole = program.read(0, program.size);
    const bytes = read() - header;
    fs.mkdirSync(target, { recursive: true });
    fs.writeFileSync(`${target}/model.pte`, whole);
    for (const name of python.FS.readdir(folder).filter((each) => /\.(json|jinja)$/.test(each))) {
      fs.writeFileSync(`${target}/${name}`, python.FS.readFile(`${folder}/${name}`));
    }
    console.log(JSON.stringify({ source, header, bytes, wrong: oddPieces(whole) }));
  } catch (error) {
    console.log(JSON.stringify({ source, error: error.message.trimEnd().split("\n").at(-1) }));
  }
}
process.exit();
