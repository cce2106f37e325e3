// What goes wrong in Node, as tests/web/test_node_faults.py asks for it: a line of JSON each.

import { create, globals } from "webgpu";

Object.assign(globalThis, globals);
const [task, demo, story] = process.argv.slice(2);
if (task === "withoutSuspending") delete WebAssembly.Suspending;
const liveshape = await import("../dist/node.js");

const say = (what) => console.log(JSON.stringify(what));
const told = (promise) => promise.then(() => null, (error) => `${error.name}: ${error.message}`);
const row = (size) => ({ data: new Float32Array(size * 64).map((_, at) => Math.sin(at)), shape: [1, size, 64] });
const run = async (model, size) => [...(await model.run(row(size))).data];
const tokens = async (model, count, options) => {
  const found = [];
  const chosen = { maxTokens: count, temperature: 0, ...options };
  for await (const { token } of model.stream([1, 403, 407, 261], chosen)) found.push(token);
  return found;
};

// Devices as they are made, and pipelines as they are compiled, seen from outside of the package.
const devices = [];
const compiled = { ahead: 0, late: 0 };
const probe = create([]);
const adapter = await probe.requestAdapter();
const Adapter = Object.getPrototypeOf(adapter);
const Device = Object.getPrototypeOf(await adapter.requestDevice());
const { requestDevice } = Adapter;
Adapter.requestDevice = async function (...given) {
  const made = await requestDevice.apply(this, given);
  devices.push(made);
  return made;
};
const { createComputePipelineAsync, createComputePipeline, popErrorScope } = Device;
Device.createComputePipelineAsync = function (...given) {
  compiled.ahead += 1;
  return createComputePipelineAsync.apply(this, given);
};
Device.createComputePipeline = function (...given) {
  compiled.late += 1;
  return createComputePipeline.apply(this, given);
};

const tasks = {
  async lost() {
    const model = await liveshape.load(demo);
    const before = await run(model, 7);
    const running = model.run(row(128));
    devices.at(-1).destroy();
    say({ running: await told(running), after: await told(model.run(row(1))), closing: await told(model.close()) });
    const again = await liveshape.load(demo);
    const after = await run(again, 7);
    say({ same: JSON.stringify(before) === JSON.stringify(after), devices: devices.length });
    await again.close();
    say({ memory: await liveshape.memory() });
  },

  async denied() {
    let left = 20;
    Device.popErrorScope = function () {
      const found = popErrorScope.call(this);
      return left-- === 0 ? found.then(() => ({ message: "Out of memory" })) : found;
    };
    say({ program: await told(liveshape.load(demo)), memory: await liveshape.memory() });
    const model = await liveshape.load(demo);
    say({ size: (await run(model, 7)).length });
    left = 20;
    say({ language: await told(liveshape.loadLanguageModel(story)) });
    await model.close();
    say({ memory: await liveshape.memory() });
  },

  async limits() {
    const given = JSON.parse(process.argv[5]);
    say({ device: await liveshape.device(given), granted: [...devices.at(-1).features] });
    say({ other: await told(liveshape.device({ features: ["subgroups", "shader-f16"] })) });
    const model = await liveshape.load(demo);
    say({ outputs: [await run(model, 128), await run(model, 7)] });
    const language = await liveshape.loadLanguageModel(story);
    say({ tokens: await tokens(language, 30) });
  },

  // Several models, closed in any order; calls that nobody awaited; streams of one model.
  async several() {
    const [first, second] = await Promise.all([liveshape.load(demo), liveshape.load(demo)]);
    const language = await liveshape.loadLanguageModel(story);
    const alone = [await run(first, 7), await run(second, 31), await tokens(language, 10)];
    const together = await Promise.all([run(first, 7), run(second, 31), tokens(language, 10), run(first, 128)]);
    say({ together: JSON.stringify(together.slice(0, 3)) === JSON.stringify(alone) });
    const streams = await Promise.allSettled([tokens(language, 10), tokens(language, 10)]);
    say({ streams: streams.map(({ value, reason }) => value ?? `${reason.name}: ${reason.message}`) });
    say({ after: JSON.stringify(await tokens(language, 10)) === JSON.stringify(alone[2]) });
    const abandoned = language.stream("Once", { maxTokens: 50, raw: true });
    await abandoned.next();
    await first.close();
    await first.close();
    await language.close();
    say({ closed: await told(first.run(row(1))), stream: await told(abandoned.next()) });
    say({ goes: JSON.stringify(await run(second, 31)) === JSON.stringify(alone[1]) });
    await second.close();
    say({ memory: await liveshape.memory() });
  },

  async aborted() {
    for (const [stage, after] of [["upload", 1], ["upload", 5], ["compile", 1]]) {
      const stopping = new AbortController();
      let seen = 0;
      const onProgress = (row) => row.stage === stage && ++seen === after && stopping.abort();
      const options = { onProgress, signal: stopping.signal };
      say({ stage, error: await told(liveshape.loadLanguageModel(story, options)), memory: await liveshape.memory() });
    }
    say({ before: await told(liveshape.load(demo, { signal: AbortSignal.abort() })) });
    const model = await liveshape.loadLanguageModel(story);
    const stopping = new AbortController();
    let seen = 0;
    const began = [];
    const reading = (async () => {
      for await (const _ of model.stream("Once", { raw: true, signal: stopping.signal })) if (++seen === 3) began.push(0);
    })();
    while (!began.length) await new Promise((resolve) => setTimeout(resolve, 1));
    stopping.abort();
    say({ stream: await told(reading), seen });
    say({ tokens: (await tokens(model, 5)).length });
  },

  // Every kernel is compiled at load, at once, and none later.
  async pipelines() {
    const stages = [];
    const model = await liveshape.load(demo, { onProgress: (row) => stages.push(row) });
    const language = await liveshape.loadLanguageModel(story, { onProgress: (row) => stages.push(row) });
    const { ahead } = compiled;
    for (let size = 1; size <= 128; size += 1) await run(model, size);
    await tokens(language, 60);
    await tokens(language, 40, { temperature: 0.8, topK: 20, topP: 0.9, seed: 3, repetitionPenalty: 1.1 });
    await language.generate("Once upon a time there was a small dog. ".repeat(6), { maxTokens: 5, raw: true });
    say({ stages, ahead, later: compiled.ahead - ahead, late: compiled.late });
  },

  async withoutSuspending() {
    const model = await liveshape.load(demo);
    say({ outputs: [await run(model, 128), await run(model, 7), await run(model, 1)], late: compiled.late });
    say({ twice: (await Promise.all([run(model, 7), run(model, 5)])).map((found) => found.length) });
    const language = await liveshape.loadLanguageModel(story);
    say({ tokens: await tokens(language, 20), sampled: await tokens(language, 12, { temperature: 0.8, seed: 3 }) });
    for await (const { token } of language.stream([1, 403, 407, 261], { maxTokens: 20, temperature: 0 })) {
      if (token) break; // a stream that is left, with steps ahead
    }
    say({ after: await tokens(language, 8), long: await tokens(language, 40) });
    await language.close();
    await model.close();
    say({ memory: await liveshape.memory() });
  },
};

await tasks[task]().catch((error) => say({ failed: error.message, stack: String(error.stack).slice(-1500) }));
await new Promise((resolve) => process.stdout.write("", resolve)); // a pipe takes its time
process.exit();
