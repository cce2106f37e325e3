// Reads of page_gpu.js on a WebGPU that only keeps the state of buffers, as tests/web/test_page_maps.py asks for them: a
// submit that uses a buffer while it is mapped is an error, as in a browser.

globalThis.GPUBufferUsage = { STORAGE: 128, COPY_DST: 8, COPY_SRC: 4, UNIFORM: 64, MAP_READ: 1 };
globalThis.GPUMapMode = { READ: 1 };
const { PageGpu } = await import("../../liveshape/device/page_gpu.js");

const events = [];
const mapping = []; // maps that are not told yet
process.on("unhandledRejection", (error) => events.push(`unhandled ${error.message}`));

class Buffer {
  constructor({ size, usage, label }) {
    Object.assign(this, { size, usage, label, state: "unmapped", bytes: new Uint8Array(size) });
  }
  mapAsync(mode, offset, bytes) {
    if (this.state !== "unmapped") return Promise.reject(new Error(`${this.label} is ${this.state}`));
    events.push(`map ${this.label} ${bytes}`);
    this.state = "pending";
    return new Promise((resolve, reject) => {
      this.reject = reject;
      mapping.push(() => {
        if (this.reject !== reject || this.state !== "pending") return; // it was cancelled
        this.state = "mapped";
        this.mapped = bytes;
        resolve();
      });
    });
  }
  getMappedRange(offset, bytes) {
    if (this.state !== "mapped" || bytes > this.mapped) throw new Error(`${this.label} is ${this.state}`);
    return this.bytes.buffer.slice(0, bytes);
  }
  unmap() {
    if (this.state === "pending") this.reject(new Error("unmapped"));
    this.state = "unmapped";
    events.push(`unmap ${this.label}`);
  }
  destroy() {
    if (this.state === "pending") this.reject(new Error("destroyed"));
    this.state = "destroyed";
  }
}

const device = {
  limits: {},
  features: new Set(),
  lost: new Promise(() => {}),
  pushErrorScope() {},
  popErrorScope: async () => null,
  createBuffer: (given) => new Buffer(given),
  createCommandEncoder: () => {
    const copies = [];
    return { copyBufferToBuffer: (...given) => copies.push(given), finish: () => copies };
  },
  queue: {
    submit([copies]) {
      events.push("submit");
      for (const [source, from, target, to, bytes] of copies) {
        for (const { state, label } of [source, target]) if (state !== "unmapped") throw new Error(`${label} is ${state}`);
        target.bytes.set(source.bytes.slice(from, from + bytes), to);
      }
    },
  },
};
const gpu = new PageGpu({ info: {} }, device);
const source = gpu.buffer(64, "storage", "source");
const other = gpu.buffer(64, "storage", "other");
const staging = gpu.buffer(64, "staging", "staging");
const copy = (to, bytes, at = 0) => gpu.submit("step", 0, 0, 0, source, 0, to, at, bytes);
const told = () => mapping.splice(0).forEach((tell) => tell());
const read = async (bytes) => {
  const reading = gpu.read(staging, bytes);
  told();
  return (await reading).length;
};

const tasks = {
  async begun() {
    copy(staging, 4);
    told(); // before anybody reads
    return read(16);
  },
  async written_again() {
    copy(staging, 4);
    copy(staging, 4, 20);
    return read(32);
  },
  async more_than_written() {
    copy(staging, 4);
    return read(48);
  },
  async twice() {
    copy(staging, 8);
    return [await read(8), await read(8)];
  },
  async not_staged() {
    copy(other, 64);
    return mapping.length;
  },
  async freed() {
    const mine = gpu.buffer(16, "staging", "mine");
    copy(mine, 16);
    const reading = gpu.read(mine, 16).catch((error) => error.message);
    gpu.free(mine);
    copy(staging, 4);
    return [await reading, await read(4)];
  },
  async left_unread() {
    const mine = gpu.buffer(16, "staging", "mine");
    copy(mine, 16);
    gpu.free(mine);
    await new Promise((turned) => setTimeout(turned));
    return null;
  },
};

const found = {};
for (const [name, task] of Object.entries(tasks)) found[name] = { result: await task(), events: events.splice(0) };
console.log(JSON.stringify(found));
