// The GPU of a page, or of Node through Dawn, as liveshape/device/page_device.py calls it: handles are integers, a step
// is one flat array that is kept, and what the host waits for is a promise. Nothing here knows of graphs or operators.

const NO_PARAMS = 0xffffffff;
const ROW = 5; // of a dispatch: its bind group, the offset of its params, and the grid
const MOVED = 4; // of a row whose grid moved: its place, and the grid
const COPY = 5; // source, offset, target, offset, bytes
const PADDED = 16; // bytes: tensors begin at multiples of it, and are read to the next one
const SOFTWARE = /swiftshader|llvmpipe|lavapipe|softpipe|software|basic render/i;
const LIMITS = [
  "maxComputeWorkgroupsPerDimension",
  "maxComputeInvocationsPerWorkgroup",
  "maxComputeWorkgroupSizeX",
  "maxStorageBufferBindingSize",
  "maxBufferSize",
  "maxStorageBuffersPerShaderStage",
  "maxComputeWorkgroupStorageSize",
];
const SMALLER = "close other models or tabs, or load a smaller model or a smaller maxContext";
const MATRICES = "chromium-experimental-subgroup-matrix"; // of Chromium with --enable-unsafe-webgpu
const FEATURES = ["shader-f16", "subgroups", MATRICES];

function known(kind, given, all) {
  const other = given.find((name) => !all.includes(name));
  if (other) throw new Error(`there is no ${kind} ${JSON.stringify(other)} to ask for: there is ${all.join(", ")}`);
}

// A product of matrix units, as Dawn names it in Python.
const products = ({ componentType, resultComponentType, M, N, K }) => ({
  component_type: componentType,
  result_component_type: resultComponentType,
  m: M,
  n: N,
  k: K,
});

export class PageGpu {
  #device;
  #queue;
  #buffers = new Map();
  #pipelines = new Map();
  #groups = new Map();
  #steps = new Map();
  #next = 1;
  #compiling = new Set(); // promises of pipelines
  #maps = new Map(); // of staging buffers that a submit writes to: { bytes, mapped }

  // Opens the adapter that the browser prefers, with all of its limits, since WebGPU's defaults bind 128 MiB; `features`
  // are the only ones to use, and `limits` the most to ask for.
  static async open(gpu = globalThis.navigator?.gpu, { powerPreference = "high-performance", features, limits = {} } = {}) {
    if (!gpu) throw new Error("there is no WebGPU here");
    known("feature", features ?? [], FEATURES);
    known("limit", Object.keys(limits), LIMITS);
    const adapter = await gpu.requestAdapter({ powerPreference });
    if (!adapter) {
      throw new Error(
        "WebGPU offers no adapter: the browser has blocked this GPU or its driver, or hardware acceleration is off; " +
          "look at chrome://gpu, or about:support in Firefox",
      );
    }
    const requiredLimits = {};
    for (const name of LIMITS) requiredLimits[name] = Math.min(adapter.limits[name], limits[name] ?? Infinity);
    const wanted = features ?? FEATURES;
    const requiredFeatures = FEATURES.filter((name) => adapter.features.has(name) && wanted.includes(name));
    const device = await adapter.requestDevice({ requiredLimits, requiredFeatures });
    return new PageGpu(adapter, device);
  }

  constructor(adapter, device) {
    this.#device = device;
    this.#queue = device.queue;
    this.lost = ""; // why the device is lost
    this.error = ""; // the first error that no call could tell
    this.onLost = null;
    device.lost.then((info) => {
      this.lost = info.message || info.reason || "unknown";
      this.onLost?.(this.lost);
    });
    device.onuncapturederror = (event) => {
      this.error ||= event.error.message;
    };
    const { vendor, architecture, device: name, description, isFallbackAdapter } = adapter.info;
    const { subgroupMinSize, subgroupMaxSize, subgroupMatrixConfigs } = adapter.info;
    const words = [vendor, architecture, name, description].filter(Boolean);
    this.info = JSON.stringify({
      name: name || description || [vendor, architecture].filter(Boolean).join(" ") || "WebGPU adapter",
      driver: words.join(" "),
      software: Boolean(isFallbackAdapter) || words.some((word) => SOFTWARE.test(word)),
      subgroupMinSize: subgroupMinSize ?? 0,
      subgroupMaxSize: subgroupMaxSize ?? 0,
      matrices: device.features.has(MATRICES) ? [...(subgroupMatrixConfigs ?? [])].map(products) : [],
      features: FEATURES.filter((each) => device.features.has(each)),
      limits: {
        ...Object.fromEntries(LIMITS.map((each) => [each, device.limits[each]])),
        minUniformBufferOffsetAlignment: device.limits.minUniformBufferOffsetAlignment,
      },
    });
  }

  // Memory

  buffer(bytes, kind, label) {
    const usage = {
      storage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC,
      uniform: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
      staging: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
    }[kind];
    this.#device.pushErrorScope("out-of-memory");
    const made = this.#device.createBuffer({ size: bytes, usage, label });
    this.#device.popErrorScope().then(
      (error) => {
        if (error) this.error ||= `could not allocate ${bytes} bytes for ${label} (${error.message}); ${SMALLER}`;
      },
      () => {},
    );
    return this.#keep(this.#buffers, made);
  }

  free(id) {
    this.#buffers.get(id)?.destroy();
    this.#buffers.delete(id);
    this.#maps.delete(id);
  }

  // `data` is a buffer of Python, or bytes of JavaScript.
  write(id, offset, data) {
    if (data instanceof Uint8Array) {
      this.#queue.writeBuffer(this.#buffers.get(id), offset, data);
      return;
    }
    const view = data.getBuffer("u8");
    try {
      this.#queue.writeBuffer(this.#buffers.get(id), offset, view.data, 0, view.nbytes);
    } finally {
      view.release();
    }
  }

  // Kernels

  // `writes` has a letter per binding: w where the kernel writes, r where it only reads.
  pipeline(label, code, writes, paramBytes) {
    const visibility = GPUShaderStage.COMPUTE;
    const entries = [...writes].map((each, binding) => ({
      binding,
      visibility,
      buffer: { type: each === "w" ? "storage" : "read-only-storage" },
    }));
    if (paramBytes) {
      const buffer = { type: "uniform", hasDynamicOffset: true, minBindingSize: paramBytes };
      entries.push({ binding: entries.length, visibility, buffer });
    }
    const layout = this.#device.createBindGroupLayout({ entries });
    const id = this.#next++;
    const module = this.#device.createShaderModule({ code, label });
    const descriptor = {
      label,
      layout: this.#device.createPipelineLayout({ bindGroupLayouts: [layout] }),
      compute: { module, entryPoint: "main" },
    };
    const made = { layout, pipeline: null, descriptor };
    this.#pipelines.set(id, made);
    const compiled = this.#device
      .createComputePipelineAsync(descriptor)
      .then((pipeline) => {
        made.pipeline ??= pipeline;
        made.descriptor = null;
        this.#compiling.delete(compiled);
      })
      .catch(async (error) => {
        this.#compiling.delete(compiled);
        const { messages } = await module.getCompilationInfo();
        const told = messages.map((each) => `line ${each.lineNum}: ${each.message}`).join("; ");
        this.error ||= `kernel ${label} does not compile: ${told || error.message}`;
      });
    this.#compiling.add(compiled);
    return id;
  }

  get compiling() {
    return this.#compiling.size;
  }

  // Resolves when every kernel is compiled; `tell` gets how many are, and of how many.
  async ready(tell) {
    let most = 0;
    while (this.#compiling.size) {
      most = Math.max(most, this.#compiling.size);
      await Promise.race(this.#compiling);
      tell?.(most - this.#compiling.size, most);
    }
  }

  // `windows` are triples of a buffer, an offset and bytes.
  bind(id, windows) {
    const view = windows.getBuffer("f64");
    const entries = [];
    for (let at = 0; at < view.data.length; at += 3) {
      const [buffer, offset, size] = view.data.subarray(at, at + 3);
      entries.push({ binding: at / 3, resource: { buffer: this.#buffers.get(buffer), offset, size } });
    }
    view.release();
    const kernel = this.#pipelines.get(id);
    const group = this.#device.createBindGroup({ layout: kernel.layout, entries });
    return this.#keep(this.#groups, { kernel, group });
  }

  drop(kind, id) {
    ({ group: this.#groups, pipeline: this.#pipelines, step: this.#steps })[kind].delete(id);
  }

  // Work

  // Whether there is something to wait for or to tell: one question in place of three at every call.
  get attention() {
    return Boolean(this.#compiling.size || this.lost || this.error);
  }

  // The dispatches of a step, kept until they are dropped: `rows` is a buffer of Python.
  step(rows) {
    const view = rows.getBuffer("u32");
    const data = view.data.slice();
    view.release();
    const groups = [];
    for (let at = 0; at < data.length; at += ROW) groups.push(this.#groups.get(data[at]));
    return this.#keep(this.#steps, { data, groups });
  }

  // Copies, the dispatches of a step in one pass, copies. The numbers are the grids that moved, by row, and the copies.
  submit(label, id, moved, before, ...numbers) {
    const { data, groups } = this.#steps.get(id) ?? { groups: [] };
    const staged = this.#staged(numbers, moved + before);
    for (const target of staged.keys()) this.#unmap(target);
    for (let at = 0; at < moved; at += MOVED) data.set(numbers.slice(at + 1, at + MOVED), numbers[at] * ROW + 2);
    const encoder = this.#device.createCommandEncoder({ label });
    this.#copies(encoder, numbers, moved, moved + before);
    if (groups.length) {
      const pass = encoder.beginComputePass();
      const offsets = new Uint32Array(1);
      let current = null;
      for (let row = 0, at = 0; row < groups.length; row++, at += ROW) {
        const { kernel, group } = groups[row];
        if (kernel !== current) {
          current = kernel;
          // A host that cannot wait submits before `ready`: then the browser waits for the compiler.
          kernel.pipeline ??= this.#device.createComputePipeline(kernel.descriptor);
          pass.setPipeline(kernel.pipeline);
        }
        if (data[at + 1] === NO_PARAMS) pass.setBindGroup(0, group);
        else {
          offsets[0] = data[at + 1];
          pass.setBindGroup(0, group, offsets, 0, 1);
        }
        pass.dispatchWorkgroups(data[at + 2], data[at + 3], data[at + 4]);
      }
      pass.end();
    }
    this.#copies(encoder, numbers, moved + before, numbers.length);
    this.#queue.submit([encoder.finish()]);
    for (const [target, bytes] of staged) this.#map(target, bytes);
  }

  #copies(encoder, numbers, start, end) {
    for (let at = start; at < end; at += COPY) {
      const [source, begin, target, place, bytes] = numbers.slice(at, at + COPY);
      encoder.copyBufferToBuffer(this.#buffers.get(source), begin, this.#buffers.get(target), place, bytes);
    }
  }

  // The staging buffers that copies write to, and how far.
  #staged(numbers, start) {
    const found = new Map();
    for (let at = start; at < numbers.length; at += COPY) {
      const [target, place, bytes] = numbers.slice(at + 2, at + COPY);
      const { usage, size } = this.#buffers.get(target);
      if (!(usage & GPUBufferUsage.MAP_READ)) continue;
      const end = Math.min(Math.ceil((place + bytes) / PADDED) * PADDED, size);
      found.set(target, Math.max(found.get(target) ?? 0, end));
    }
    return found;
  }

  // A browser tells only milliseconds later that a map is done: it begins with the submit, and steps that are ahead hide
  // it. Who reads is told if it fails.
  #map(id, bytes) {
    const mapped = this.#buffers.get(id).mapAsync(GPUMapMode.READ, 0, bytes);
    mapped.catch(() => {});
    const made = { bytes, mapped };
    this.#maps.set(id, made);
    return made;
  }

  #unmap(id) {
    if (this.#maps.delete(id)) this.#buffers.get(id).unmap();
  }

  // The first bytes of a staging buffer, after all submits so far.
  async read(id, bytes) {
    let map = this.#maps.get(id);
    if (!map || map.bytes < bytes) {
      this.#unmap(id);
      map = this.#map(id, bytes);
    }
    try {
      await map.mapped;
      return new Uint8Array(this.#buffers.get(id).getMappedRange(0, bytes)).slice();
    } finally {
      if (this.#maps.get(id) === map) this.#unmap(id);
    }
  }

  async idle() {
    await this.#queue.onSubmittedWorkDone();
  }

  // After work that failed: waits for all that it began, and forgets its errors.
  async settle() {
    await this.ready();
    await this.idle();
    this.error = "";
  }

  destroy() {
    this.#device.destroy();
  }

  #keep(kept, made) {
    const id = this.#next++;
    kept.set(id, made);
    return id;
  }
}
