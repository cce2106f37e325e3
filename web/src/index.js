// liveshape in a page: programs and language models on the user's own GPU, in a worker.

import { cacheFolder } from "./cache.js";
import { topFiles } from "./model_files.js";
import { LanguageModel, Model, snake } from "./models.js";
import { WorkerRunner } from "./worker_runner.js";

export { LanguageModel, Model };

let running = null;
let latest = null; // the runner of the last boot
let chosen = {}; // of the device

// Boots the worker at the first use, and again after `stop` or a failure.
async function runner() {
  running ??= boot();
  const mine = running;
  try {
    return await mine;
  } catch (error) {
    if (running === mine) running = null;
    throw error;
  }
}

async function boot() {
  if (!globalThis.navigator?.gpu) {
    throw new Error(
      globalThis.isSecureContext === false
        ? "WebGPU needs a secure page: serve it by https, or from localhost"
        : "this browser has no WebGPU: use a current Chrome, Edge, Safari or Firefox; on Linux Chrome may need " +
            "chrome://flags/#enable-unsafe-webgpu",
    );
  }
  const made = new WorkerRunner(new URL("./worker.js", import.meta.url), () => {
    if (latest === made) running = null;
  });
  latest = made;
  try {
    made.device = await made.call("boot", chosen);
    return made;
  } catch (error) {
    made.fail(error);
    throw error;
  }
}

// Opens the device, with what is asked of it; what was asked stays for the workers after this one.
export async function device(options) {
  if (options) {
    if (running && JSON.stringify(options) !== JSON.stringify(chosen)) {
      throw new Error("the device is open already: call stop() before it is opened otherwise");
    }
    chosen = options;
  }
  return (await runner()).device;
}

export async function memory() {
  return running ? (await runner()).call("memory") : 0;
}

export async function stop() {
  const mine = running;
  running = null;
  const made = await mine?.catch(() => null);
  made?.fail(new Error("liveshape was stopped; load the model again"));
}

// A program: a URL, a File, or bytes.
export async function load(source, options = {}) {
  const [made, { sourcing, watching, others }] = [await runner(), parted(options)];
  const folder = await made.tell("folder", [{ "model.pte": absolute(source) }, sourcing], watching);
  return new Model(made, await loaded(made, folder, "load", [`${folder}/model.pte`, others], watching));
}

// A language model: the URL of its folder or of a GGUF file, a File, several Files, or files by name.
export async function loadLanguageModel(source, options = {}) {
  const [made, { sourcing, watching, others }] = [await runner(), parted(options)];
  const folder = await made.tell("modelFolder", [sendable(source), location.href, sourcing], watching);
  return new LanguageModel(made, await loaded(made, folder, "loadLanguageModel", [folder, snake(others)], watching));
}

// A load frees its folder if it fails; one that was aborted before it began does not.
async function loaded(made, folder, name, given, watching) {
  if (watching.signal?.aborted) await made.call("discard", folder).catch(() => {});
  return made.tell(name, given, watching);
}

// What is kept of downloads: { url, bytes, size, complete } each.
export async function cached() {
  return (await cacheFolder())?.list() ?? [];
}

export async function clearCache() {
  await (await cacheFolder())?.clear();
}

// Options of the download, what is told meanwhile, and the others, which are Python's.
function parted({ cache, credentials, headers, onProgress, signal, ...others }) {
  return { sourcing: { cache, request: { credentials, headers } }, watching: { onProgress, signal }, others };
}

const absolute = (source) => (typeof source === "string" ? new URL(source, location.href).href : source instanceof URL ? source.href : source);

// What a worker can be sent of a model's source: URLs as texts, the Files of an input as a list.
function sendable(source) {
  if (typeof source === "string" || source instanceof URL || source instanceof Blob) return absolute(source);
  if (Symbol.iterator in source) return topFiles([...source]);
  return Object.fromEntries(Object.entries(source).map(([name, each]) => [name, absolute(each)]));
}
