"""Peers of a page, each with one program beside liveshape, in one run of Chromium: onnxruntime-web with the block
program, wllama with a small random Llama, which it computes on the processor unless it is told otherwise.

`python -m bench.web --peers FOLDER` runs them; FOLDER has their node_modules. Nothing is fetched from elsewhere. A peer
that is not there, or does not run, is reported in a line. transformers.js runs models by onnxruntime-web, so that its
row would be that of onnxruntime-web again.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bench.onnx_file import onnx_file
from liveshape.shipped import shipped
from tests.export.gguf_files import write_gguf

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
_LLAMA = """async ([url, tokens]) => {
  const liveshape = await import(`${url}/dist/index.js`);
  let begin = performance.now();
  const model = await liveshape.loadLanguageModel(`${url}/made/llama/`);
  const found = { liveshape: { load_ms: performance.now() - begin } };
  let first, count = 0;
  for await (const _ of model.stream([1, 5, 6, 7], { maxTokens: tokens, temperature: 0 })) {
    first ??= performance.now();
    count += 1;
  }
  found.liveshape.rate = (1000 * (count - 1)) / (performance.now() - first);
  await model.close();
  await liveshape.stop();
  const { Wllama } = await import(`${url}/peers/@wllama/wllama/esm/index.js`);
  const peer = new Wllama({ default: `${url}/peers/@wllama/wllama/esm/wasm/wllama.wasm` });
  begin = performance.now();
  const file = await (await fetch(`${url}/made/llama.gguf`)).blob();
  await peer.loadModel([file], { n_ctx: 256, n_threads: 1 });
  found.peer = { load_ms: performance.now() - begin };
  first = undefined;
  count = 0;
  const onData = () => {
    first ??= performance.now();
    count += 1;
  };
  await peer.createCompletion({ prompt: "a b c", max_tokens: tokens, temperature: 0, stream: true, onData });
  found.peer.rate = (1000 * (count - 2)) / (performance.now() - first); // the last one says why it stopped
  return found;
}"""


def random_gguf(path: Path) -> None:
    """A Llama of two layers in float32, with a vocabulary of bytes and numbers."""
    layers, hidden, ffn, heads, kv_heads, words = 2, 256, 768, 8, 4, 2048
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens += [f"\u2581{number}" for number in range(words - len(tokens))]
    metadata = {
        "general.architecture": "llama",
        "general.name": "random",
        "llama.block_count": layers,
        "llama.context_length": 256,
        "llama.embedding_length": hidden,
        "llama.feed_forward_length": ffn,
        "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": kv_heads,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": hidden // heads,
        "llama.vocab_size": words,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [-float(place) for place in range(words)],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (words, hidden), "output_norm": (hidden,)}
    shapes["output"] = (words, hidden)
    narrow = hidden * kv_heads // heads
    for layer in range(layers):
        rows = {"attn_norm": (hidden,), "attn_q": (hidden, hidden), "attn_k": (narrow, hidden)}
        rows |= {"attn_v": (narrow, hidden), "attn_output": (hidden, hidden), "ffn_norm": (hidden,)}
        rows |= {"ffn_gate": (ffn, hidden), "ffn_up": (ffn, hidden), "ffn_down": (hidden, ffn)}
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in rows.items()}
    random = np.random.default_rng(0)
    tensors = {}
    for name, shape in shapes.items():
        noise = random.standard_normal(shape).astype(np.float32)
        weight = 1 + noise / 10 if len(shape) == 1 else noise / np.float32(shape[1] ** 0.5)
        tensors[f"{name}.weight"] = (0, shape, weight.tobytes())
    write_gguf(path, metadata, tensors)


def make(folder: Path) -> None:
    """The programs, in each one's own format."""
    program = shipped("demo")
    assert program is not None
    (folder / "block.onnx").write_bytes(onnx_file(program))
    random_gguf(folder / "llama.gguf")
    command = [sys.executable, "-m", "liveshape", "export", str(folder / "llama.gguf"), "-o", str(folder / "llama")]
    subprocess.run([*command, "--quant", "none"], check=True, capture_output=True)


def measured(browser: Any, url: str, modules: Path, tokens: int, repeats: int) -> dict[str, Any]:
    """Each peer with its program; a line in place of figures where one does not run."""
    works = {
        "onnxruntime-web": (_BLOCK, [url, ROWS, repeats]),
        "@wllama/wllama": (_LLAMA, [url, tokens]),
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
