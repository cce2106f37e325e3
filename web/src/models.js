// Programs and language models as a page uses them, whatever runs them: a worker, or this thread in Node.

export class Model {
  constructor(runner, { id, inputs, outputs }) {
    Object.assign(this, { inputs, outputs });
    this.runner = runner;
    this.id = id;
  }

  // A single output as it is, several as a list; inputs are { data, shape }, or numbers.
  async run(...inputs) {
    const outputs = await this.runner.call("run", this.id, inputs);
    return outputs.length === 1 ? outputs[0] : outputs;
  }

  async close() {
    await closed(this.runner, this.id);
  }
}

export class LanguageModel {
  constructor(runner, { id, ...facts }) {
    Object.assign(this, facts);
    this.runner = runner;
    this.id = id;
  }

  // Responses with { text, token, tokensPerSecond, finishReason }; a prompt is a text, messages or ids.
  async *stream(prompt, { signal, ...options } = {}) {
    signal?.throwIfAborted();
    const stream = await this.runner.call("begin", this.id, prompt, snake(options));
    try {
      for (;;) {
        const response = await unlessAborted(this.runner.call("next", stream), signal);
        if (response === null) return;
        yield response;
        signal?.throwIfAborted();
      }
    } finally {
      // Behind the token that is being made; nobody waits for it who has aborted.
      const ended = this.runner.call("end", stream);
      if (signal?.aborted) ended.catch(() => {});
      else await ended;
    }
  }

  async generate(prompt, options) {
    let text = "";
    for await (const response of this.stream(prompt, options)) text += response.text;
    return text;
  }

  async encode(text) {
    return this.runner.call("encode", this.id, text);
  }

  async close() {
    await closed(this.runner, this.id);
  }
}

// With a lost device or an ended worker all memory is free already.
async function closed(runner, id) {
  await runner.call("close", id).catch((error) => {
    if (!runner.gone) throw error;
  });
}

// A promise, or the reason of an abort as soon as it comes.
function unlessAborted(promise, signal) {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

// Options have JavaScript's names here and Python's there.
export function snake(options) {
  const named = Object.entries(options).map(([name, value]) => [name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`), value]);
  return Object.fromEntries(named);
}
