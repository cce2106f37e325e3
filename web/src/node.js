// liveshape in Node, on Dawn (npm's `webgpu`): `npm install webgpu`, and a Node with JSPI (24 with a flag, 25 without).

import fs from "node:fs";
import path from "node:path";
import { LanguageModel, Model, snake } from "./models.js";
import { loadPyodide } from "./pyodide/pyodide.mjs";
import { Runtime } from "./runtime.js";
import { NodeSource } from "./sources.js";

const here = import.meta.dirname;
let booted;
let instance; // of Dawn, which must outlive its devices

async function runtime() {
  booted ??= (async () => {
    const { create, globals } = await import("webgpu");
    Object.assign(globalThis, globals);
    instance = create(process.env.LIVESHAPE_DAWN_FLAGS?.split(",") ?? []);
    const archive = new Uint8Array(fs.readFileSync(path.join(here, "liveshape.zip")));
    const options = { indexURL: path.join(here, "pyodide/") };
    return Runtime.boot({ loadPyodide, options, archive, gpu: instance });
  })();
  return booted;
}

const runner = {
  async call(name, ...given) {
    return (await runtime())[name](...given);
  },
};

export async function device() {
  return (await runtime()).device;
}

export async function memory() {
  return runner.call("memory");
}

export async function load(file, options = {}) {
  const made = await runtime();
  const folder = made.folder({ "model.pte": new NodeSource(fs, file) });
  return new Model(runner, await made.load(`${folder}/model.pte`, options));
}

// A folder of `liveshape export`, one of Hugging Face, or a GGUF file.
export async function loadLanguageModel(source, options = {}) {
  const made = await runtime();
  const files = {};
  const alone = source.endsWith(".gguf") && !fs.statSync(source).isDirectory();
  const folder = alone ? path.dirname(source) : source;
  for (const name of alone ? [path.basename(source)] : fs.readdirSync(folder)) {
    const file = path.join(folder, name);
    if (/\.(pte|gguf|safetensors)$/.test(name)) files[name] = new NodeSource(fs, file);
    else if (/\.(json|jinja)$/.test(name)) files[name] = new Uint8Array(fs.readFileSync(file));
  }
  const { onProgress, ...others } = options;
  return new LanguageModel(runner, await made.loadLanguageModel(made.folder(files), { onProgress, ...snake(others) }));
}
