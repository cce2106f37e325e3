"""The npm package in Chromium beside Python, on one software adapter: start, load, host, tokens a second.

Run: python -m bench.web [--starts 3] [--tokens 40] [--peers FOLDER] [--json FILE]

`make web` comes before. Chromium brings SwiftShader; Python takes the same driver where Chromium's folder has it, else
its own, and the table says which. The host's cost of a token is that of random weights in the shape of SmolLM2-135M, on
a WebGPU that does nothing, in Node. FOLDER has the node_modules of onnxruntime-web, @huggingface/transformers and
@wllama/wllama, each beside liveshape with one program; bench/web_peers.py has them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench import web_peers
from bench.host import Decoding
from liveshape import load
from liveshape.export.folder import Settings, export_folder
from liveshape.export.model.checkpoint import Checkpoint, expected_tensors
from liveshape.export.sources.huggingface_config import from_hugging_face
from liveshape.llm import LanguageModel, Sampling
from liveshape.shipped import shipped, shipped_model
from liveshape.tools.measuring.random_llamas import SHAPES
from tests.support.browser import WEBGPU_FLAGS, chromium, node
from tests.web.page_host import hosted
from tests.web.test_node import WEB

IDS = [1, 403, 407, 261]
SIZES = (128, 1)  # of the block program
SMOLLM: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100000.0,
    "tie_word_embeddings": True,
}
_START = "async (url) => (await (await import(`${url}/dist/index.js`)).device())"
_MEASURE = """async ([url, ids, tokens, sizes, repeats]) => {
  const liveshape = await import(`${url}/dist/index.js`);
  await liveshape.device();
  const now = () => performance.now() / 1000;
  let begin = now();
  const story = await liveshape.loadLanguageModel(`${url}/story/`);
  const found = { load: now() - begin };
  begin = now();
  let first, count = 0;
  for await (const _ of story.stream(ids, { maxTokens: tokens, temperature: 0 })) {
    first ??= now();
    count += 1;
  }
  found.first = first - begin;
  found.rate = (count - 1) / (now() - first);
  await story.close();
  const block = await liveshape.load(`${url}/demo/block.pte`);
  for (const size of sizes) {
    const input = { data: new Float32Array(size * 64).fill(0.5), shape: [1, size, 64] }, times = [];
    for (let turn = 0; turn < repeats; turn++) {
      begin = now();
      await block.run(input);
      times.push(now() - begin);
    }
    found[`block ${size}`] = times.sort((a, b) => a - b)[repeats >> 1];
  }
  await liveshape.stop();
  return found;
}"""


def started(browser: Any, url: str, turns: int) -> list[dict[str, float]]:
    """The phases of starts, each in a page of its own."""
    found = []
    for _ in range(turns):
        page = browser.new_page()
        page.set_default_timeout(600_000)
        page.goto(f"{url}/dist/models.js")
        found.append(page.evaluate(_START, url)["bootMs"])
        page.close()
    return found


def in_chromium(browser: Any, url: str, tokens: int, repeats: int) -> dict[str, float]:
    """Loading, generating and running in a page."""
    page = browser.new_page()
    page.set_default_timeout(1_800_000)
    page.goto(f"{url}/dist/models.js")
    found: dict[str, float] = page.evaluate(_MEASURE, [url, IDS, tokens, list(SIZES), repeats])
    page.close()
    return found


def in_python(tokens: int, repeats: int) -> dict[str, float | str]:
    """The same in this process."""
    found: dict[str, float | str] = {}
    begin = time.perf_counter()
    with LanguageModel.load(shipped_model()) as model:
        found |= {"load": time.perf_counter() - begin, "adapter": model.device.name}
        begin = time.perf_counter()
        stream = iter(model.stream(IDS, Sampling(), max_tokens=tokens))
        next(stream)
        first = time.perf_counter()
        count = sum(1 for _ in stream)
        found |= {"first": first - begin, "rate": count / (time.perf_counter() - first)}
    with load(shipped("demo")) as block:
        for size in SIZES:
            x = np.full((1, size, 64), 0.5, np.float32)
            found[f"block {size}"] = median(timed(lambda x=x: block(x)) for _ in range(repeats))
    return found


def timed(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def native(tokens: int, repeats: int) -> dict[str, Any]:
    """`in_python` in a process of its own, on Chromium's driver where there is one."""
    environment = dict(os.environ)
    browser = os.environ.get("LIVESHAPE_CHROMIUM") or shutil.which("chromium") or ""
    folders = (Path(browser).resolve().parent, Path("/usr/lib/chromium"))
    driver = next(filter(Path.exists, (each / "vk_swiftshader_icd.json" for each in folders)), None)
    if driver is not None:
        environment["VK_DRIVER_FILES"] = str(driver)
    command = [sys.executable, "-m", "bench.web", "--native", str(tokens), str(repeats)]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def random_model(folder: Path) -> Path:
    """A program of SmolLM2-135M's shape: speed does not depend on the values of weights."""
    config = from_hugging_face(SMOLLM)
    block = np.random.default_rng(0).standard_normal(1 << 20).astype(np.float32) / 24
    shapes = dict(expected_tensors(config))
    export_folder(Checkpoint(config, shapes, lambda name: np.resize(block, shapes[name])), folder, Settings())
    return folder / "model.pte"


def host_cost(tokens: int) -> dict[str, Any]:
    """A token of the 135M graph without a GPU: in WebAssembly, and in Python before encoding."""
    with tempfile.TemporaryDirectory() as folder:
        program = random_model(Path(folder) / "model")
        command = [
            node(),
            str(WEB / "test" / "host_cost.mjs"),
            str(program),
            str(tokens),
        ]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    decoding = Decoding(SHAPES["135m"])
    decoding.tokens(50)
    return found | {"native_median_ms": 1e3 * median(timed(decoding.token) for _ in range(tokens))}


def beside_peers(browser: Any, modules: Path, tokens: int, repeats: int) -> dict[str, Any]:
    """Each peer and liveshape with the same program."""
    program = shipped("demo")
    assert program is not None
    with tempfile.TemporaryDirectory() as folder:
        web_peers.make(Path(folder))
        roots = {"dist": WEB / "dist", "demo": program.parent, "made": Path(folder), "peers": modules}
        with hosted(**roots) as (url, _):
            return web_peers.measured(browser, url, modules, tokens, repeats)


def table(results: dict[str, Any]) -> Table:
    """Everything in one table."""
    starts, page, python, host = (results[name] for name in ("start", "chromium", "python", "host"))
    best = min(starts, key=lambda start: start["ready"])
    adapter = python["adapter"]
    made = Table("what", "Chromium", f"Python on {adapter}", title="The same files in a page and in Python")
    phases = ", ".join(f"{name} after {best[name] / 1000:.2f}" for name in ("gpu", "archive", "python"))
    made.add_row(f"start, the best of {len(starts)}", f"{best['ready'] / 1000:.2f} s ({phases})", "")
    made.add_row("story model: load", f"{page['load']:.2f} s", f"{python['load']:.2f} s")
    made.add_row("story model: first token", f"{page['first']:.2f} s", f"{python['first']:.2f} s")
    made.add_row("story model: tokens/s", f"{page['rate']:.1f}", f"{python['rate']:.1f}")
    for size in SIZES:
        milliseconds = [f"{1000 * side[f'block {size}']:.1f} ms" for side in (page, python)]
        made.add_row(f"block program, {size} rows", *milliseconds)
    cost = f"{host['median_ms']:.2f} ms (in Node, {host['dispatches']:.0f} dispatches)"
    made.add_row("host of a token, 135M", cost, f"{host['native_median_ms']:.2f} ms (without encoding and reading)")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=9, help="of the block program")
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="with the node_modules of peers")
    parser.add_argument("--json", metavar="FILE", help="write the results here, too")
    parser.add_argument("--native", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.native:
        print(json.dumps(in_python(*options.native)))
        return
    program = shipped("demo")
    assert program is not None
    results: dict[str, Any] = {}
    roots = {"dist": WEB / "dist", "story": shipped_model(), "demo": program.parent}
    with hosted(**roots) as (url, _), chromium(WEBGPU_FLAGS) as browser:
        results["browser"] = browser.version
        results["start"] = started(browser, url, options.starts)
        results["chromium"] = in_chromium(browser, url, options.tokens, options.repeats)
        if options.peers is not None:
            results["peers"] = beside_peers(browser, options.peers / "node_modules", options.tokens, options.repeats)
    results["python"] = native(options.tokens, options.repeats)
    results["host"] = host_cost(300)
    console = Console()
    console.print(table(results))
    for name, found in results.get("peers", {}).items():
        console.print(f"{name}: {found if isinstance(found, str) else json.dumps(found)}")
    if options.json is not None:
        Path(options.json).write_text(json.dumps(results, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
