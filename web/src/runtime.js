// Python in WebAssembly that plans, on the GPU of this page: boots it once, and calls into it.

import { Tokenizer } from "@huggingface/tokenizers";
import { PageGpu } from "./page_gpu.js";
import { constantOf, upload } from "./constants.js";
import { BytesSource, mount } from "./sources.js";
import { VirtualProgram } from "./virtual_program.js";

const NUMBERS = {
  bool: Uint8Array,
  int8: Int8Array,
  uint8: Uint8Array,
  int16: Int16Array,
  uint16: Uint16Array,
  int32: Int32Array,
  uint32: Uint32Array,
  int64: BigInt64Array,
  uint64: BigUint64Array,
  float32: Float32Array,
  float64: Float64Array,
  ...(globalThis.Float16Array ? { float16: Float16Array } : { float16: Uint16Array }),
};

// Other arrays that have the numbers of a dtype, as bits; all of them may come as bytes.
const BITS = { float16: [Uint16Array], uint8: [Uint8ClampedArray], bool: [Uint8ClampedArray] };

export class Runtime {
  #python;
  #page;
  #made = 0; // folders so far
  #sources = new Map(); // by their paths in Python
  #folders = new Map(); // of models, by their numbers
  #turn = Promise.resolve(); // the end of the calls so far
  #gone = null; // why no call can succeed

  // `archive` are the bytes of liveshape.zip, or their promise; `gpu` is navigator.gpu or what stands for it, `device` what
  // is asked of it, `began` when all this began. `onGone` gets the error of a device that is lost, or of Python's end.
  static async boot({ loadPyodide, options, archive, gpu, device, onGone, began = performance.now() }) {
    const bootMs = {};
    const timed = async (name, made) => {
      const found = await made;
      bootMs[name] = Math.round(performance.now() - began);
      return found;
    };
    const parts = [timed("python", loadPyodide(options)), timed("gpu", PageGpu.open(gpu, device)), timed("archive", archive)];
    const runtime = new Runtime(...(await Promise.all(parts)), onGone);
    return Object.assign(runtime, { device: { ...(await timed("ready", runtime.#start())), bootMs } });
  }

  constructor(python, gpu, archive, onGone) {
    this.#python = python;
    this.gpu = gpu;
    this.onGone = onGone;
    gpu.onLost = (reason) => this.#end("DeviceError", lostText(JSON.parse(gpu.info).name, reason));
    python.FS.writeFile("/liveshape.zip", new Uint8Array(archive), { canOwn: true }); // imported from as it is
    const uploaded = (parts, tree) => {
      const constant = constantOf(JSON.parse(tree), this.#sources);
      upload((id, offset, bytes) => gpu.write(id, offset, bytes), JSON.parse(parts), constant);
    };
    const mountProgram = (folder, stored, description) => {
      this.folder({ "model.pte": new VirtualProgram(stored, JSON.parse(description), this.#sources) }, folder);
    };
    python.registerJsModule("liveshape_js", { gpu, makeTokenizer, mountProgram, upload: uploaded, turn });
    // Not from the current folder, where a file of anybody might be.
    python.runPython(`import sys; sys.path[:] = ["/liveshape.zip", *filter(None, sys.path)]`);
  }

  // Imports the package, which may ask the device: so by a call that can wait.
  async #start() {
    try {
      await this.#python.runPythonAsync("import liveshape_page");
    } catch (error) {
      throw asError(error);
    }
    this.#page = this.#python.pyimport("liveshape_page");
    return { ...JSON.parse(this.#page.about_device()), waits: JSPI() };
  }

  // Calls run one after the other: Python has one stack for each, and models are not made for two at once.
  #call(name, ...given) {
    const called = this.#turn.then(() => this.#called(name, given));
    this.#turn = called.catch(() => {});
    return called;
  }

  async #called(name, given) {
    if (this.#gone) throw this.#gone;
    const called = this.#page[name];
    for (const source of this.#sources.values()) source.failure = null;
    try {
      // Without JSPI Python cannot wait: what does not need to works, and the rest says so.
      return await (JSPI() ? called.callPromising(...given) : called(...given));
    } catch (error) {
      if (this.#gone) throw this.#gone;
      this.#check(error);
      if (name.startsWith("load_")) await this.gpu.settle(); // errors of what was freed are not those of the next call
      const made = asError(error);
      made.message = [...this.#sources.values()].find((source) => source.failure)?.failure ?? made.message;
      throw made;
    } finally {
      if (!this.#gone) called.destroy();
    }
  }

  // An error that is not Python's may be the end of it, as WebAssembly that ran out of memory.
  #check(error) {
    if (error.name === "PythonError") return;
    try {
      this.#python.runPython("None");
    } catch {
      this.#end("Error", `Python has failed in this page: ${error.message}; load the model again`);
      throw this.#gone;
    }
  }

  get gone() {
    return this.#gone !== null;
  }

  #end(name, message) {
    if (this.#gone) return;
    this.#gone = Object.assign(new Error(message), { name });
    this.onGone?.(this.#gone);
  }

  // Files are sources by name, or their bytes where they are small.
  folder(files, folder = `/models/${++this.#made}`) {
    const leads = Object.keys(files).find((name) => /^\.{0,2}$|[/\\\0]/.test(name));
    if (leads !== undefined) throw new TypeError(`${JSON.stringify(leads)} is no name of a model's file`);
    for (const [name, given] of Object.entries(files)) {
      const weights = given instanceof Uint8Array && /\.(pte|gguf|safetensors)$/.test(name);
      const source = weights ? new BytesSource(given) : given;
      if (!(source instanceof Uint8Array)) {
        mount(this.#python.FS, folder, name, source);
        this.#sources.set(`${folder}/${name}`, source);
      } else {
        this.#python.FS.mkdirTree(folder);
        this.#python.FS.writeFile(`${folder}/${name}`, source);
      }
    }
    return folder;
  }

  // Closes the sources of a folder and removes its files.
  #release(folder) {
    const { FS } = this.#python;
    for (const [path, source] of this.#sources) {
      if (!path.startsWith(`${folder}/`)) continue;
      source.close?.();
      this.#sources.delete(path);
    }
    if (this.#gone || !FS.analyzePath(folder).exists) return;
    for (const name of FS.readdir(folder)) if (name !== "." && name !== "..") FS.unlink(`${folder}/${name}`);
    FS.rmdir(folder);
  }

  // Frees the result of a call that nobody waits for any more: a folder, or a model.
  async discard(result) {
    if (typeof result === "string") this.#release(result);
    else if (result?.id) await this.close(result.id);
  }

  async load(path, { method = "forward", ...watching } = {}) {
    return this.#loaded(path.replace(/\/[^/]*$/, ""), "load_program", () => [path, method], watching);
  }

  async loadLanguageModel(folder, { onProgress, signal, ...options } = {}) {
    return this.#loaded(folder, "load_language_model", () => [folder, optionsText(options)], { onProgress, signal });
  }

  // `given` makes the arguments, and may refuse them: whatever fails frees the folder.
  async #loaded(folder, name, given, { onProgress, signal }) {
    // Whether to stop is what it returns.
    const tell = (stage, done, total) => {
      if (stage) onProgress?.({ stage, done, total });
      return Boolean(signal?.aborted);
    };
    try {
      const found = JSON.parse(await this.#call(name, ...given(), tell));
      this.#folders.set(found.id, folder);
      this.#sources.get(`${folder}/model.pte`)?.release?.(); // what a virtual program keeps for reads to come
      if (!signal?.aborted) return found;
      await this.close(found.id);
      throw signal.reason;
    } catch (error) {
      this.#release(folder);
      throw signal?.aborted ? signal.reason : error;
    }
  }

  async run(id, inputs) {
    const rows = await this.#call("run_program", id, inputs.map(asRow));
    return rows.map(fromRow);
  }

  async begin(id, prompt, options) {
    return this.#call("begin_stream", id, JSON.stringify(prompt), optionsText(options));
  }

  async next(stream) {
    const found = await this.#call(JSPI() ? "next_response" : "next_response_async", stream);
    return found === undefined ? null : JSON.parse(found);
  }

  async end(stream) {
    await this.#call("end_stream", stream);
  }

  async encode(id, text) {
    return JSON.parse(await this.#call("encode", id, text));
  }

  async close(id) {
    await this.#call("close", id);
    this.#release(this.#folders.get(id));
    this.#folders.delete(id);
  }

  async memory() {
    return this.#call("memory");
  }
}

// Whether WebAssembly can be suspended here (JSPI).
const JSPI = () => typeof WebAssembly.Suspending === "function";

const lostText = (name, reason) => `the device was lost: ${name} stopped, or was taken away (${reason}); load the model again`;

// A turn of the event loop, in which messages come; timers of a tab in the background would be late.
function turn() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}

// The error of the package by its own name, without the frames of Python above it.
function asError(error) {
  const lines = String(error.message ?? error).trimEnd().split("\n");
  const last = lines.findLastIndex((line) => /^[\w.]+(Error|Exception|Closed|Full|Interrupt)\b/.test(line));
  if (last < 0) return error;
  const [, name, text] = lines.slice(last).join("\n").match(/^([\w.]+): ?([\s\S]*)$/) ?? [null, lines[last], ""];
  const made = new Error(text || name);
  made.name = name.split(".").at(-1);
  made.stack = error.message;
  return made;
}

// Options as Python reads them. JSON has no NaN and no infinity: they would be null, which is the default.
function optionsText(options) {
  return JSON.stringify(options, (name, value) => {
    if (typeof value !== "number" || Number.isFinite(value)) return value;
    const told = name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
    throw new TypeError(`${told} must be a finite number, ${value} was given`);
  });
}

// An input as it is now: in Node the call comes to it later.
function asRow(given, place) {
  if (typeof given === "number" || typeof given === "boolean") return ["number", "[]", given];
  const { data, shape } = given ?? {};
  const dtype = given?.dtype ?? Object.keys(NUMBERS).find((name) => name !== "bool" && data instanceof NUMBERS[name]);
  if (!dtype || !Array.isArray(shape) || !ArrayBuffer.isView(data)) {
    throw new TypeError(`input ${place}: a number, or { data, shape } with a typed array is needed`);
  }
  const wrong = shape.find((size) => !Number.isInteger(size) || size < 0);
  if (wrong !== undefined) throw new TypeError(`input ${place}: ${JSON.stringify(shape)} is no shape`);
  const fitting = [NUMBERS[dtype], Uint8Array, ...(BITS[dtype] ?? [])];
  if (Object.hasOwn(NUMBERS, dtype) && !fitting.some((kind) => data instanceof kind)) {
    const [needed, found] = [NUMBERS[dtype].name, data.constructor.name];
    throw new TypeError(`input ${place}: numbers of ${dtype} come as ${needed}, and ${found} was given`);
  }
  const bytes = shape.reduce((product, size) => product * size, NUMBERS[dtype]?.BYTES_PER_ELEMENT ?? 0);
  if (bytes && data instanceof Uint8Array && data.byteLength !== bytes) {
    const told = `${JSON.stringify(shape)} of ${dtype} takes ${bytes} bytes, and ${data.byteLength} were given`;
    throw new TypeError(`input ${place}: ${told}`);
  }
  return [dtype, JSON.stringify(shape), new Uint8Array(data.buffer, data.byteOffset, data.byteLength).slice()];
}

function fromRow([dtype, shape, bytes]) {
  if (dtype === "number") return bytes;
  const copy = bytes.slice();
  return { data: new NUMBERS[dtype](copy.buffer), shape: JSON.parse(shape), dtype };
}

function makeTokenizer(text) {
  const made = new Tokenizer(JSON.parse(text), {});
  return {
    encode: (given, special) => made.encode(given, { add_special_tokens: special }).ids,
    decode: (ids, skip) => made.decode(JSON.parse(ids), { skip_special_tokens: skip, clean_up_tokenization_spaces: false }),
    token_to_id: (token) => made.token_to_id(token),
    id_to_token: (id) => made.id_to_token(id),
  };
}
