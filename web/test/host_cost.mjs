// The host's cost of a token, for bench/web.py: a folder's program decodes on a WebGPU that does nothing, so that what is
// left is planning in WebAssembly, the calls into JavaScript and their loops. Says a line of JSON.

import fs from "node:fs";
import { constantOf, upload } from "../dist/constants.js";
import { PageGpu } from "../dist/page_gpu.js";
import { loadPyodide } from "../dist/pyodide/pyodide.mjs";
import { NodeSource, mount } from "../dist/sources.js";

const [program, tokens] = process.argv.slice(2);
const dist = `${import.meta.dirname}/../dist/`;
const nothing = () => {};
const later = async () => ({});
const made = () => ({});

globalThis.GPUBufferUsage = { STORAGE: 128, COPY_DST: 8, COPY_SRC: 4, UNIFORM: 64, MAP_READ: 1 };
globalThis.GPUShaderStage = { COMPUTE: 4 };
globalThis.GPUMapMode = { READ: 1 };
const pass = { setPipeline: nothing, setBindGroup: nothing, dispatchWorkgroups: () => (dispatches += 1), end: nothing };
const encoder = { beginComputePass: () => pass, copyBufferToBuffer: nothing, finish: made };
let dispatches = 0;
const buffer = {
  usage: GPUBufferUsage.MAP_READ,
  size: 1 << 20,
  destroy: nothing,
  mapAsync: later,
  getMappedRange: (offset, bytes) => new ArrayBuffer(bytes), // token 0
  unmap: nothing,
};
const limits = {
  maxComputeWorkgroupsPerDimension: 65535,
  maxComputeInvocationsPerWorkgroup: 1024,
  maxComputeWorkgroupSizeX: 1024,
  maxStorageBufferBindingSize: 2 ** 31 - 4,
  maxBufferSize: 2 ** 31,
  maxStorageBuffersPerShaderStage: 16,
  maxComputeWorkgroupStorageSize: 32768,
  minUniformBufferOffsetAlignment: 256,
};
const device = {
  limits,
  features: new Set(),
  lost: new Promise(nothing),
  queue: { writeBuffer: nothing, submit: nothing, onSubmittedWorkDone: later },
  pushErrorScope: nothing,
  popErrorScope: async () => null,
  createBuffer: () => buffer,
  createBindGroupLayout: made,
  createPipelineLayout: made,
  createShaderModule: made,
  createComputePipelineAsync: later,
  createBindGroup: made,
  createCommandEncoder: () => encoder,
};
const gpu = new PageGpu({ info: { vendor: "none" } }, device);

const python = await loadPyodide({ indexURL: `${dist}pyodide/` });
python.FS.writeFile("/liveshape.zip", new Uint8Array(fs.readFileSync(`${dist}liveshape.zip`)));
const source = new NodeSource(fs, program);
mount(python.FS, "/model", "model.pte", source);
const sources = new Map([["/model/model.pte", source]]);
const uploaded = (parts, tree) => {
  upload((id, offset, bytes) => gpu.write(id, offset, bytes), JSON.parse(parts), constantOf(JSON.parse(tree), sources));
};
const cpu = () => Object.values(process.threadCpuUsage()).reduce((sum, each) => sum + each) / 1000;
python.registerJsModule("liveshape_js", { gpu, makeTokenizer: nothing, mountProgram: nothing, upload: uploaded, turn: later });
python.globals.set("cpu", cpu);
await python.runPythonAsync(`import sys; sys.path.insert(0, "/liveshape.zip"); import liveshape_page`);
const counted = () => dispatches;
python.globals.set("dispatched", counted);
console.log(
  await python.runPythonAsync(`
import json
import time

from liveshape.llm import LanguageModel, Sampling


def decoded(count):
    times = []
    stream = iter(model.stream([1, 2, 3], Sampling(), max_tokens=count))
    for _ in range(count):
        begin = time.perf_counter()
        next(stream)
        times.append(1e3 * (time.perf_counter() - begin))
    model.reset()
    return sorted(times)


begin = cpu()
model = LanguageModel.load("/model")
load_ms = cpu() - begin
decoded(${tokens})  # V8 compiles what is hot
begin, before = cpu(), dispatched()
times = decoded(${tokens})
json.dumps(
    {
        "median_ms": times[len(times) // 2],
        "cpu_ms": (cpu() - begin) / len(times),
        "dispatches": (dispatched() - before) / len(times),
        "load_cpu_ms": load_ms,
    }
)
`),
);
process.exit();
