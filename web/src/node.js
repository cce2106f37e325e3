// liveshape in Node, on Dawn (npm's `webgpu`): `npm install webgpu`, and a Node with JSPI (24 with a flag, 25 without).

import fs from "node:fs";
import path from "node:path";
import { LanguageModel, Model, snake } from "./models.js";
import { loadPyodide } from "./pyodide/pyodide.mjs";
import { Runtime } from "./runtime.js";
import { NodeSource } from "./sources.js";

const here = import.meta.dirname;
let booted = null;
let latest = null; // the runtime of the last boot
let chosen = {}; // of the device
let instance; // of Dawn, which must outlive its devices

// Boots at the first use, and again after a failure.
async function runtime() {
  booted ??= boot();
  const mine = booted;
  try {
    return await mine;
  } catch (error) {
    if (booted === mine) booted = null;
    throw error;
  }
}

async function boot() {
  const { create, globals } = await import("webgpu");
  Object.assign(globalThis, globals);
  instance ??= create(process.env.LIVESHAPE_DAWN_FLAGS?.split(",") ?? []);
  const archive = new Uint8Array(fs.readFileSync(path.join(here, "liveshape.zip")));
  const options = { indexURL: path.join(here, "pyodide/") };
  let made = null;
  const onGone = () => {
    if (made && latest === made) booted = null;
  };
  made = await Runtime.boot({ loadPyodide, options, archive, gpu: instance, device: chosen, onGone });
  latest = made;
  // Calls of a model go to the runtime that loaded it, lost or not.
  made.call = (name, ...given) => made[name](...given);
  return made;
}

// Opens the device, with what is asked of it.
export async function device(options) {
  if (options) {
    if (booted && JSON.stringify(options) !== JSON.stringify(chosen)) {
      throw new Error("the device is open already, and cannot be opened otherwise");
    }
    chosen = options;
  }
  return (await runtime()).device;
}

export async function memory() {
  return booted ? (await runtime()).memory() : 0;
}

export async function load(file, options = {}) {
  options.signal?.throwIfAborted();
  const made = await runtime();
  const folder = made.folder({ "model.pte": new NodeSource(fs, file) });
  return new Model(made, await made.load(`${folder}/model.pte`, options));
}

// A folder of `liveshape export`, one of Hugging Face, or a GGUF file.
export async function loadLanguageModel(source, options = {}) {
  options.signal?.throwIfAborted();
  const made = await runtime();
  const files = {};
  const alone = source.endsWith(".gguf") && !fs.statSync(source).isDirectory();
  const folder = alone ? path.dirname(source) : source;
  for (const name of alone ? [path.basename(source)] : fs.readdirSync(folder)) {
    const file = path.join(folder, name);
    if (/\.(pte|gguf|safetensors)$/.test(name)) files[name] = new NodeSource(fs, file);
    else if (/\.(json|jinja)$/.test(name)) files[name] = new Uint8Array(fs.readFileSync(file));
  }
  const { onProgress, signal, ...others } = options;
  const found = await made.loadLanguageModel(made.folder(files), { onProgress, signal, ...snake(others) });
  return new LanguageModel(made, found);
}
