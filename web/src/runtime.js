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

export class Runtime {
  #python;
  #page;
  #folders = 0;
  #sources = new Map(); // by their paths in Python

  // `archive` are the bytes of liveshape.zip, or their promise; `gpu` is navigator.gpu or what stands for it, and `began`
  // is when all this began.
  static async boot({ loadPyodide, options, archive, gpu, began = performance.now() }) {
    const bootMs = {};
    const timed = async (name, made) => {
      const found = await made;
      bootMs[name] = Math.round(performance.now() - began);
      return found;
    };
    const parts = [timed("python", loadPyodide(options)), timed("gpu", PageGpu.open(gpu)), timed("archive", archive)];
    const runtime = new Runtime(...(await Promise.all(parts)));
    return Object.assign(runtime, { device: { ...(await timed("ready", runtime.#start())), bootMs } });
  }

  constructor(python, gpu, archive) {
    this.#python = python;
    this.gpu = gpu;
    python.FS.writeFile("/liveshape.zip", new Uint8Array(archive), { canOwn: true }); // imported from as it is
    const uploaded = (parts, tree) => {
      const constant = constantOf(JSON.parse(tree), this.#sources);
      upload((id, offset, bytes) => gpu.write(id, offset, bytes), JSON.parse(parts), constant);
    };
    const mountProgram = (folder, stored, description) => {
      this.folder({ "model.pte": new VirtualProgram(stored, JSON.parse(description), this.#sources) }, folder);
    };
    python.registerJsModule("liveshape_js", { gpu, makeTokenizer, mountProgram, upload: uploaded });
    python.runPython(`import sys; sys.path.insert(0, "/liveshape.zip")`);
  }

  // Imports the package, which may ask the device: so by a call that can wait.
  async #start() {
    try {
      await this.#python.runPythonAsync("import liveshape_page");
    } catch (error) {
      throw asError(error);
    }
    this.#page = this.#python.pyimport("liveshape_page");
    return JSON.parse(this.#page.about_device());
  }

  async #call(name, ...given) {
    const called = this.#page[name];
    for (const source of this.#sources.values()) source.failure = null;
    try {
      return await called.callPromising(...given);
    } catch (error) {
      const made = asError(error);
      made.message = [...this.#sources.values()].find((source) => source.failure)?.failure ?? made.message;
      throw made;
    } finally {
      called.destroy();
    }
  }

  // Files are sources by name, or their bytes where they are small.
  folder(files, folder = `/models/${++this.#folders}`) {
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

  async load(path, { method = "forward", onProgress } = {}) {
    return JSON.parse(await this.#call("load_program", path, method, told(onProgress)));
  }

  async run(id, inputs) {
    const rows = await this.#call("run_program", id, inputs.map(asRow));
    return rows.map(fromRow);
  }

  async loadLanguageModel(folder, { onProgress, ...options } = {}) {
    try {
      return JSON.parse(await this.#call("load_language_model", folder, JSON.stringify(options), told(onProgress)));
    } finally {
      this.#sources.get(`${folder}/model.pte`)?.release?.();
    }
  }

  async begin(id, prompt, options) {
    return this.#call("begin_stream", id, JSON.stringify(prompt), JSON.stringify(options));
  }

  async next(stream) {
    const found = await this.#call("next_response", stream);
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
  }

  async memory() {
    return this.#call("memory");
  }
}

// What Python tells, as a page gets it.
const told = (onProgress) => onProgress && ((done, total) => onProgress({ done, total }));

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

function asRow(given, place) {
  if (typeof given === "number" || typeof given === "boolean") return ["number", "[]", given];
  const { data, shape } = given ?? {};
  const dtype = given?.dtype ?? Object.keys(NUMBERS).find((name) => name !== "bool" && data instanceof NUMBERS[name]);
  if (!dtype || !Array.isArray(shape)) {
    throw new TypeError(`input ${place}: a number, or { data, shape } with a typed array is needed`);
  }
  return [dtype, JSON.stringify(shape), new Uint8Array(data.buffer, data.byteOffset, data.byteLength)];
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
