// liveshape in a page: programs and language models on the user's own GPU, in a worker.

import { modelFiles } from "./model_files.js";
import { LanguageModel, Model, snake } from "./models.js";

export { LanguageModel, Model };

class WorkerRunner {
  #worker;
  #waiting = new Map();
  #next = 1;
  #failed = null;

  constructor(url) {
    this.#worker = new Worker(url, { type: "module" });
    this.#worker.onmessage = ({ data }) => {
      const { resolve, reject, onProgress } = this.#waiting.get(data.id);
      if (data.progress) return onProgress(data.progress);
      this.#waiting.delete(data.id);
      if (data.error) reject(Object.assign(new Error(data.error.message), data.error));
      else resolve(data.result);
    };
    this.#worker.onerror = (event) => this.fail(new Error(`the worker of liveshape has failed: ${event.message}`));
  }

  fail(error) {
    this.#failed = error;
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }

  call(name, ...given) {
    return this.tell(name, given);
  }

  tell(name, given, onProgress) {
    if (this.#failed) return Promise.reject(this.#failed);
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject, onProgress });
      this.#worker.postMessage({ id, name, given, progress: Boolean(onProgress) });
    });
  }

  terminate() {
    this.#worker.terminate();
    this.fail(new Error("liveshape was stopped; load the model again"));
  }
}

let running = null;

// Boots the worker at the first use, and again after `stop` or a failure.
async function runner() {
  running ??= (async () => {
    if (!globalThis.navigator?.gpu) {
      throw new Error(
        "this browser has no WebGPU: use a current Chrome, Edge, Safari or Firefox; on Linux Chrome may need " +
          "chrome://flags/#enable-unsafe-webgpu",
      );
    }
    const made = new WorkerRunner(new URL("./worker.js", import.meta.url));
    made.device = await made.call("boot");
    return made;
  })();
  try {
    return await running;
  } catch (error) {
    running = null;
    throw error;
  }
}

export async function device() {
  return (await runner()).device;
}

export async function memory() {
  return (await runner()).call("memory");
}

export async function stop() {
  const made = await running;
  running = null;
  made?.terminate();
}

// A program: a URL, a File, or bytes.
export async function load(source, { onProgress, ...options } = {}) {
  const made = await runner();
  const folder = await made.call("folder", { "model.pte": absolute(source) });
  return new Model(made, await made.tell("load", [`${folder}/model.pte`, options], onProgress));
}

// A language model: the URL of its folder or of a GGUF file, a File, or Files by name.
export async function loadLanguageModel(source, { onProgress, ...options } = {}) {
  const made = await runner();
  const folder = await made.call("folder", await modelFiles(source, location.href));
  return new LanguageModel(made, await made.tell("loadLanguageModel", [folder, snake(options)], onProgress));
}

const absolute = (source) => (typeof source === "string" ? new URL(source, location.href).href : source instanceof URL ? source.href : source);
