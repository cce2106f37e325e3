"""Peers of a page, each with one program beside liveshape, in one run of Chromium: onnxruntime-web with the block
program; transformers.js and wllama with a small random Llama, which wllama computes on the processor by its own choice.

`python -m bench.web --peers FOLDER` runs them; FOLDER has their node_modules. Nothing is fetched from elsewhere. A peer
that is not there, or does not run, is reported in a line.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.onnx_file import onnx_file
from bench.random_llama import RandomLlama
from liveshape.shipped import shipped

ROWS = 128
_BLOCK = """async ([url, rows, repeats]) => {
  const data = Float32Array.from({ length: rows * 64 }, (_, place) => Math.sin(place));
  const timed = async (run) => {
    const times = [];
    for (let turn = 0; turn < repeats; turn++) {
      const begin = performance.now();
      await run();
      times.push(performance.now() - begin);
    }
    return times.sort((a, b) => a - b)[repeats >> 1];
  };
  const liveshape = await import(`${url}/dist/index.js`);
  let begin = performance.now();
  const model = await liveshape.load(`${url}/demo/block.pte`);
  const found = { liveshape: { load_ms: performance.now() - begin } };
  const input = { data, shape: [1, rows, 64] };
  const wanted = (await model.run(input)).data;
  found.liveshape.run_ms = await timed(() => model.run(input));
  await model.close();
  await liveshape.stop();
  const ort = await import(`${url}/peers/onnxruntime-web/dist/ort.jspi.min.mjs`);
  ort.env.wasm.wasmPaths = `${url}/peers/onnxruntime-web/dist/`;
  ort.env.wasm.numThreads = 1;
  begin = performance.now();
  const session = await ort.InferenceSession.create(`${url}/made/block.onnx`, { executionProviders: ["webgpu"] });
  const tensor = new ort.Tensor("float32", data, [1, rows, 64]);
  found.peer = { load_ms: performance.now() - begin };
  const output = (await session.run({ [session.inputNames[0]]: tensor }))[session.outputNames[0]].data;
  found.peer.run_ms = await timed(() => session.run({ [session.inputNames[0]]: tensor }));
  found.difference = output.reduce((most, each, place) => Math.max(most, Math.abs(each - wanted[place])), 0);
  return found;
}"""
# The Llama: liveshape's part, then that of a peer in place of PEER. `same` counts the tokens that both chose.
_LLAMA = """async ([url, tokens]) => {
  const prompt = [1, 5, 6, 7], wanted = [];
  const rate = (times) => (1000 * (times.length - 1)) / (times.at(-1) - times[0]);
  const liveshape = await import(`${url}/dist/index.js`);
  let begin = performance.now(), times = [];
  const model = await liveshape.loadLanguageModel(`${url}/made/llama/`);
  const found = { liveshape: { load_ms: performance.now() - begin } };
  for await (const { token } of model.stream(prompt, { maxTokens: tokens, temperature: 0 })) {
    times.push(performance.now());
    wanted.push(token);
  }
  found.liveshape.rate = rate(times);
  await model.close();
  await liveshape.stop();
  times = [];
  PEER
  return found;
}"""
_TRANSFORMERS = """
  const folder = `${url}/peers/@huggingface/transformers/dist`;
  const { AutoModelForCausalLM, Tensor, env } = await import(`${folder}/transformers.min.js`);
  const local = { allowRemoteModels: false, allowLocalModels: true, localModelPath: `${url}/made/` };
  Object.assign(env, local, { useBrowserCache: false });
  env.backends.onnx.wasm.wasmPaths = `${url}/peers/onnxruntime-web/dist/`;
  env.backends.onnx.wasm.numThreads = 1;
  begin = performance.now();
  const peer = await AutoModelForCausalLM.from_pretrained("llama-onnx", { device: "webgpu", dtype: "fp32" });
  found.peer = { load_ms: performance.now() - begin };
  const row = (numbers) => new Tensor("int64", BigInt64Array.from(numbers, BigInt), [1, numbers.length]);
  const streamer = { put: () => times.push(performance.now()), end: () => {} };
  const given = { inputs: row(prompt), attention_mask: row(prompt.map(() => 1)), do_sample: false, eos_token_id: null };
  await peer.generate({ ...given, max_new_tokens: 4 }); // compiles
  const ids = await peer.generate({ ...given, max_new_tokens: tokens, streamer });
  found.peer.rate = rate(times.slice(1)); // the first is the prompt
  const made = Array.from(ids.data, Number).slice(prompt.length);
  found.same = wanted.filter((id, place) => id === made[place]).length;
  await peer.dispose();
"""
_WLLAMA = """
  const { Wllama } = await import(`${url}/peers/@wllama/wllama/esm/index.js`);
  const peer = new Wllama({ default: `${url}/peers/@wllama/wllama/esm/wasm/wllama.wasm` });
  begin = performance.now();
  const file = await (await fetch(`${url}/made/llama.gguf`)).blob();
  await peer.loadModel([file], { n_ctx: 256, n_threads: 1 });
  found.peer = { load_ms: performance.now() - begin };
  const onData = () => times.push(performance.now());
  await peer.createCompletion({ prompt: "a b c", max_tokens: tokens, temperature: 0, stream: true, onData });
  found.peer.rate = rate(times.slice(0, -1)); // the last one says why it stopped
"""


def make(folder: Path) -> None:
    """The programs, in each one's own format."""
    program = shipped("demo")
    assert program is not None
    (folder / "block.onnx").write_bytes(onnx_file(program))
    llama = RandomLlama()
    llama.write_gguf(folder / "llama.gguf")
    llama.write_onnx(folder / "llama-onnx")
    command = [sys.executable, "-m", "liveshape", "export", str(folder / "llama.gguf"), "-o", str(folder / "llama")]
    subprocess.run([*command, "--quant", "none"], check=True, capture_output=True)


def measured(browser: Any, url: str, modules: Path, tokens: int, repeats: int) -> dict[str, Any]:
    """Each peer with its program; a line in place of figures where one does not run."""
    works = {
        "onnxruntime-web": (_BLOCK, [url, ROWS, repeats]),
        "@huggingface/transformers": (_LLAMA.replace("PEER", _TRANSFORMERS), [url, tokens]),
        "@wllama/wllama": (_LLAMA.replace("PEER", _WLLAMA), [url, tokens]),
    }
    found: dict[str, Any] = {}
    for name, (work, given) in works.items():
        if not (modules / name).exists():
            found[name] = f"not here: there is no {name} in {modules.name}"
            continue
        page = browser.new_page()
        page.set_default_timeout(1_800_000)
        page.goto(f"{url}/dist/models.js")
        try:
            found[name] = page.evaluate(work, given)
        except Exception as error:
            found[name] = f"does not run here: {str(error).splitlines()[0]}"
        page.close()
    return found
