// The GPU of a page, or of Node through Dawn, as liveshape/device/page_device.py calls it: handles are integers, a step
// is one flat array, and what the host waits for is a promise. Nothing here knows of graphs or operators.

const NO_PARAMS = 0xffffffff;
const ROW = 5; // of a dispatch: its bind group, the offset of its params, and the grid
const COPY = 5; // source, offset, target, offset, bytes
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
const FEATURES = ["shader-f16", "subgroups"];

export class PageGpu {
  #device;
  #queue;
  #buffers = new Map();
  #pipelines = new Map();
  #groups = new Map();
  #next = 1;
  #compiling = new Set(); // promises of pipelines

  // Opens the adapter that the browser prefers, with all of its limits: WebGPU's defaults bind 128 MiB.
  static async open(gpu = globalThis.navigator?.gpu, options = { powerPreference: "high-performance" }) {
    if (!gpu) throw new Error("there is no WebGPU here");
    const adapter = await gpu.requestAdapter(options);
    if (!adapter) throw new Error("WebGPU offers no adapter");
    const requiredLimits = {};
    for (const name of LIMITS) requiredLimits[name] = adapter.limits[name];
    const requiredFeatures = FEATURES.filter((name) => adapter.features.has(name));
    const device = await adapter.requestDevice({ requiredLimits, requiredFeatures });
    return new PageGpu(adapter, device);
  }

  constructor(adapter, device) {
    this.#device = device;
    this.#queue = device.queue;
    this.lost = ""; // why the device is lost
    this.error = ""; // the first error that no call could tell
    device.lost.then((info) => {
      this.lost = info.message || info.reason || "unknown";
    });
    device.onuncapturederror = (event) => {
      this.error ||= event.error.message;
    };
    const { vendor, architecture, device: name, description, subgroupMinSize, isFallbackAdapter } = adapter.info;
    const words = [vendor, architecture, name, description].filter(Boolean);
    this.info = JSON.stringify({
      name: name || description || [vendor, architecture].filter(Boolean).join(" ") || "WebGPU adapter",
      driver: words.join(" "),
      software: Boolean(isFallbackAdapter) || words.some((word) => SOFTWARE.test(word)),
      subgroupMinSize: subgroupMinSize ?? 0,
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
        if (error) this.error ||= `could not allocate ${bytes} bytes for ${label}: ${error.message}`;
      },
      () => {},
    );
    return this.#keep(this.#buffers, made);
  }

  free(id) {
    this.#buffers.get(id)?.destroy();
    this.#buffers.delete(id);
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

  // `writes` has a letter per binding: w where the kernel writes, r where it only reads. `now` is for those who cannot
  // wait: what is wrong with the kernel is then an error that no call could tell.
  pipeline(label, code, writes, paramBytes, now = false) {
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
    const made = { layout, pipeline: null };
    this.#pipelines.set(id, made);
    const module = this.#device.createShaderModule({ code, label });
    const wanted = {
      label,
      layout: this.#device.createPipelineLayout({ bindGroupLayouts: [layout] }),
      compute: { module, entryPoint: "main" },
    };
    if (now) {
      made.pipeline = this.#device.createComputePipeline(wanted);
      return id;
    }
    const compiled = this.#device
      .createComputePipelineAsync(wanted)
      .then((pipeline) => {
        made.pipeline = pipeline;
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

  // Resolves when every kernel is compiled.
  async ready() {
    while (this.#compiling.size) await Promise.all(this.#compiling);
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
    (kind === "group" ? this.#groups : this.#pipelines).delete(id);
  }

  // Work

  // Copies, dispatches in one pass, copies: `rows` and the copies are buffers of Python.
  submit(rows, before, after, label) {
    const encoder = this.#device.createCommandEncoder({ label });
    this.#copies(encoder, before);
    const view = rows.getBuffer("u32");
    const data = view.data;
    if (data.length) {
      const pass = encoder.beginComputePass();
      const offsets = new Uint32Array(1);
      let current = null;
      for (let at = 0; at < data.length; at += ROW) {
        const { kernel, group } = this.#groups.get(data[at]);
        if (kernel !== current) pass.setPipeline((current = kernel).pipeline);
        if (data[at + 1] === NO_PARAMS) pass.setBindGroup(0, group);
        else {
          offsets[0] = data[at + 1];
          pass.setBindGroup(0, group, offsets, 0, 1);
        }
        pass.dispatchWorkgroups(data[at + 2], data[at + 3], data[at + 4]);
      }
      pass.end();
    }
    view.release();
    this.#copies(encoder, after);
    this.#queue.submit([encoder.finish()]);
  }

  #copies(encoder, copies) {
    const view = copies.getBuffer("f64");
    for (let at = 0; at < view.data.length; at += COPY) {
      const [source, start, target, place, bytes] = view.data.subarray(at, at + COPY);
      encoder.copyBufferToBuffer(this.#buffers.get(source), start, this.#buffers.get(target), place, bytes);
    }
    view.release();
  }

  // The first bytes of a staging buffer, after all submits so far.
  async read(id, bytes) {
    const buffer = this.#buffers.get(id);
    await buffer.mapAsync(GPUMapMode.READ, 0, bytes);
    const found = new Uint8Array(buffer.getMappedRange(0, bytes)).slice();
    buffer.unmap();
    return found;
  }

  async idle() {
    await this.#queue.onSubmittedWorkDone();
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
