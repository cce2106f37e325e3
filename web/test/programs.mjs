// Programs and a language model in Node, as tests/web/test_node.py asks for them: a line of JSON each.

import fs from "node:fs";
import * as liveshape from "../dist/node.js";
import { runCalls } from "./calls.js";

const say = (what) => console.log(JSON.stringify(what));
const [task, ...given] = process.argv.slice(2);

const tasks = {
  // A program at many live shapes: inputs are raw floats in a file, one behind the other.
  async shapes(program, inputs, width, sizes) {
    const numbers = new Float32Array(new Uint8Array(fs.readFileSync(inputs)).buffer); // a small file is a part of a pool
    const model = await liveshape.load(program, { onProgress: (progress) => say({ progress }) });
    say({ inputs: model.inputs });
    for (const size of sizes.split(",").map(Number)) {
      const data = numbers.slice(0, size * width);
      const out = await model.run({ data, shape: [1, size, Number(width)] });
      say({ size, shape: out.shape, dtype: out.dtype, data: [...out.data] });
    }
    await model.close();
    say({ memory: await liveshape.memory() });
  },

  // Many programs, each with its calls: a file of JSON has both.
  async calls(given) {
    for (const program of JSON.parse(fs.readFileSync(given, "utf8"))) say(await runCalls(liveshape, program));
  },

  // What a call with a wrong shape, a wrong dtype or too few inputs is told.
  async refusals(program) {
    const model = await liveshape.load(program);
    const data = new Float32Array(200 * 64);
    const wrong = [
      [{ data, shape: [1, 200, 64] }],
      [{ data: data.slice(0, 63), shape: [1, 1, 63] }],
      [{ data: new Int32Array(64), shape: [1, 1, 64] }],
      [],
    ];
    for (const inputs of wrong) {
      await model.run(...inputs).then(
        () => say({ error: null }),
        (error) => say({ name: error.name, error: error.message }),
      );
    }
    await liveshape.load(program.replace(/[^/]+$/, "tokenizer.json")).catch((error) => say({ error: error.message }));
    const out = await model.run({ data: data.slice(0, 64), shape: [1, 1, 64] });
    say({ size: out.data.length });
  },

  // Inputs that are not what they say, an input that changes after the call, and options that JSON does not have.
  async inputs(program, folder) {
    const model = await liveshape.load(program);
    const data = Float32Array.from({ length: 128 }, (_, place) => Math.sin(place));
    const shape = [1, 2, 64];
    const wrong = [
      { data: new Int32Array(128).fill(1), shape, dtype: "float32" },
      { data: [...data], shape, dtype: "float32" },
      { data: new Uint8Array(128), shape, dtype: "float32" },
      { data, shape: [1, 2.5, 64] },
      { data, shape: [1, -1, 64] },
      { data, shape: ["1", "2", "64"] },
    ];
    for (const each of wrong) await model.run(each).catch((error) => say({ name: error.name, error: error.message }));
    const before = await model.run({ data, shape });
    const bytes = await model.run({ data: new Uint8Array(data.slice().buffer), shape, dtype: "float32" });
    say({ same: `${bytes.data}` === `${before.data}` });
    const running = model.run({ data, shape });
    data.fill(0);
    say({ same: `${(await running).data}` === `${before.data}` });
    const language = await liveshape.loadLanguageModel(folder);
    for (const options of [{ temperature: NaN }, { maxTokens: Infinity }]) {
      await language.generate("a", options).catch((error) => say({ name: error.name, error: error.message }));
    }
    await liveshape.loadLanguageModel(folder, { maxContext: NaN }).catch((error) => say({ error: error.message }));
    say({ memory: (await model.close(), await language.close(), await liveshape.memory()) });
  },

  // Tokens of a prompt of ids.
  async ids(folder, ids, count, chosen = "{}") {
    const model = await liveshape.loadLanguageModel(folder, JSON.parse(chosen));
    const tokens = [];
    const options = { maxTokens: Number(count), temperature: 0 };
    for await (const { token } of model.stream(JSON.parse(ids), options)) tokens.push(token);
    say({ tokens, maxContext: model.maxContext });
  },

  // Tokens of a prompt of ids on matrix units, and how many kernels have some.
  async matrices(folder, ids, count) {
    const device = await liveshape.device();
    const [made, create] = [{ kernels: 0 }, GPUDevice.prototype.createShaderModule];
    GPUDevice.prototype.createShaderModule = function (descriptor) {
      made.kernels += descriptor.code.includes("subgroupMatrixMultiplyAccumulate(");
      return create.call(this, descriptor);
    };
    const model = await liveshape.loadLanguageModel(folder, { activations: "auto" });
    const tokens = [];
    const options = { maxTokens: Number(count), temperature: 0 };
    for await (const { token } of model.stream(JSON.parse(ids), options)) tokens.push(token);
    say({ device, activations: model.activations, ...made, tokens });
  },

  // Tokens of a prompt of ids, and of a text; then a stream that is aborted, and one after it.
  async tokens(folder, ids, count, text) {
    const model = await liveshape.loadLanguageModel(folder);
    say({ facts: { maxContext: model.maxContext, vocabSize: model.vocabSize, chat: model.chat } });
    const tokens = [];
    const options = { maxTokens: Number(count), temperature: 0 };
    for await (const { token } of model.stream(JSON.parse(ids), options)) tokens.push(token);
    say({ tokens });
    say({ ids: await model.encode(text), text: await model.generate(text, { ...options, maxTokens: 20, raw: true }) });
    const sampled = { maxTokens: 30, temperature: 0.8, topP: 0.9, seed: 7, raw: true };
    say({ sampled: await model.generate(text, sampled) });
    const stopping = new AbortController();
    let seen = 0;
    try {
      for await (const response of model.stream(text, { ...options, signal: stopping.signal })) {
        seen += 1;
        if (seen === 3) stopping.abort();
        if (!response) break;
      }
    } catch (error) {
      say({ aborted: error.name, seen });
    }
    say({ again: await model.generate(text, { ...options, maxTokens: 20, raw: true }) });
    await model.close();
    say({ memory: await liveshape.memory() });
  },

  // A conversation by the chat template of a folder.
  async chat(folder, messages) {
    const model = await liveshape.loadLanguageModel(folder);
    say({ chat: model.chat, text: await model.generate(JSON.parse(messages), { maxTokens: 12, temperature: 0 }) });
    const { bootMs } = await liveshape.device();
    say({ bootMs });
  },
};

await tasks[task](...given).catch((error) => say({ failed: error.message, stack: String(error.stack).slice(-1500) }));
await new Promise((resolve) => process.stdout.write("", resolve)); // a pipe takes its time
process.exit();
