"""A language model in Chromium on a GPU, beside Python on the same one: load, prompts, tokens a second, which tokens.

Run: python -m bench.web_gpu [--shape story|135m|1b] [--prompt 512] [--tokens 128] [--json FILE]

`make web` comes before. Nothing but Chromium is needed (LIVESHAPE_CHROMIUM names another than the system's), neither
Playwright nor a display: the page tells its results to a server of this process. Weights are random but those of the
story model, in 4 bits. Chromium opens matrix units and, on NVIDIA, f16 only by flags, which are given here.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Empty, Queue
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.random_llama import RandomLlama
from liveshape.export.folder import Settings, export_folder
from liveshape.export.sources.opening import open_checkpoint
from liveshape.graph.activation_kinds import ACTIVATIONS
from liveshape.llm import LanguageModel, Sampling
from liveshape.model import load, program_file
from liveshape.shipped import shipped, shipped_model
from liveshape.tools.web_page.site_server import site_server

DIST = Path(__file__).parents[1] / "web" / "dist"
SHAPES = {
    "135m": RandomLlama(30, 576, 1536, 9, 3, 49152, 2048),
    "1b": RandomLlama(16, 2048, 8192, 32, 8, 128256, 2048),
}
SIZES = (128, 1, 7, 31, 64, 127, 1)  # of the block program
FLAGS = (
    "--headless=new --no-sandbox --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --ignore-gpu-blocklist --enable-unsafe-webgpu --enable-features=Vulkan --use-vulkan=native "
    "--disable-vulkan-surface --use-angle=gl-egl --disable-gpu-watchdog "
    "--enable-dawn-features=allow_unsafe_apis,vulkan_enable_f16_on_nvidia"
)
_PAGE = """<!doctype html><meta charset="utf-8"><script type="module">
const given = %s;
const tell = (what) => fetch(given.results, { method: "POST", body: JSON.stringify(what) });
const now = () => performance.now() / 1000;
let frames = 0;
const count = () => { frames += 1; requestAnimationFrame(count); };
requestAnimationFrame(count);
try {
  const liveshape = await import("./dist/index.js");
  const device = await liveshape.device();
  await tell({ device });
  for (const activations of given.activations) {
    let begin = now();
    const model = await liveshape.loadLanguageModel("model/", { activations, maxContext: given.context });
    const load = now() - begin;
    const found = { activations: model.activations, load, prompts: [], rates: [], frames: [], tokens: [] };
    for (let turn = 0; turn < given.turns; turn++) {
      const [options, times] = [{ maxTokens: given.tokens, temperature: 0 }, []];
      found.tokens = [];
      frames = 0;
      begin = now();
      for await (const { token } of model.stream(given.ids, options)) {
        found.tokens.push(token);
        times.push(now());
      }
      found.frames.push(frames / (now() - begin));
      found.prompts.push(times[0] - begin);
      found.rates.push((times.length - 1) / (times.at(-1) - times[0]));
    }
    await model.close();
    await tell({ found });
  }
  const block = await liveshape.load("demo/block.pte");
  const outputs = [];
  for (const size of given.sizes) {
    const data = Float32Array.from({ length: size * 64 }, (_, place) => Math.sin(place));
    outputs.push([...(await block.run({ data, shape: [1, size, 64] })).data]);
  }
  await block.close();
  await tell({ outputs, memory: await liveshape.memory() });
  await tell({ end: true });
} catch (error) {
  await tell({ error: `${error.name}: ${error.message}` });
}
</script>"""


def made_model(shape: str, folder: Path) -> Path:
    """A folder of `liveshape export`."""
    if shape == "story":
        return shipped_model()
    SHAPES[shape].write_gguf(folder / "random.gguf")
    export_folder(open_checkpoint(str(folder / "random.gguf")), folder / "model", Settings())
    (folder / "random.gguf").unlink()
    return folder / "model"


@contextmanager
def results() -> Iterator[tuple[str, Queue[dict[str, Any]]]]:
    """A server that a page tells what it found, and what it told."""
    told: Queue[dict[str, Any]] = Queue()

    class Told(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.send_header("Access-Control-Allow-Origin", "*")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Told) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", told
        server.shutdown()


def in_chromium(model: Path, given: dict[str, Any], flags: Sequence[str], patience: float) -> dict[str, Any]:
    """What the page told: the device, and a row for each kind of activations."""
    browser = os.environ.get("LIVESHAPE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("there is no Chromium here: LIVESHAPE_CHROMIUM names one")
    files = {f"dist/{each.relative_to(DIST).as_posix()}": each for each in DIST.rglob("*") if each.is_file()}
    files |= {f"model/{each.name}": each for each in model.iterdir() if each.is_file()}
    files["demo/block.pte"] = program_file(shipped("demo"))
    with results() as (address, told), tempfile.TemporaryDirectory() as profile:
        page = (_PAGE % json.dumps({**given, "results": address})).encode()
        with site_server({**files, "index.html": page}) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            command = [browser, *flags, f"--user-data-dir={profile}", server.url]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
                try:
                    return _heard(told, patience)
                except Empty:
                    process.kill()
                    words = process.stderr.read() if process.stderr else ""
                    sys.exit(f"the page said nothing for {patience:.0f} s; Chromium did:\n{words[-3000:]}")
                finally:
                    process.kill()
                    server.shutdown()


def _heard(told: Queue[dict[str, Any]], patience: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while "end" not in (line := told.get(timeout=patience)):
        if "error" in line:
            sys.exit(f"the page failed: {line['error']}")
        if "found" in line:
            found[line["found"]["activations"]] = line["found"]
        else:
            found |= line
    return found


def in_python(model: Path, given: dict[str, Any], activations: str, backend: str | None) -> dict[str, Any]:
    """The same in this process."""
    begin = time.perf_counter()
    with LanguageModel.load(model, activations=activations, max_context=given["context"], backend=backend) as opened:
        found: dict[str, Any] = {"load": time.perf_counter() - begin, "device": repr(opened.device)}
        found |= {"backend": opened.device.adapter.library, "prompts": [], "rates": []}
        for _ in range(given["turns"]):
            opened.reset()
            begin = time.perf_counter()
            stream = iter(opened.stream(given["ids"], Sampling(), max_tokens=given["tokens"]))
            found["tokens"] = [next(stream)]
            first = time.perf_counter()
            found["tokens"] += stream
            found["prompts"].append(first - begin)
            found["rates"].append((len(found["tokens"]) - 1) / (time.perf_counter() - first))
    return found


def largest_error(outputs: list[list[float]]) -> float:
    """Of the block program at all live shapes, beside Python's, relative to the largest value."""
    found = 0.0
    with load(shipped("demo")) as model:
        for size, output in zip(SIZES, outputs, strict=True):
            wanted = model(np.sin(np.arange(size * 64)).astype(np.float32).reshape(1, size, 64)).reshape(-1)
            found = max(found, float(np.abs(np.float32(output) - wanted).max() / np.abs(wanted).max()))
    return found


def table(shape: str, page: dict[str, Any], python: dict[str, Any]) -> Table:
    """A row for each kind of activations and each side."""
    made = Table("activations", "where", "load", "prompt", "tokens/s", "tokens", title=f"{shape}: a page and Python")
    for kind, mine in python.items():
        for where, side in (("Chromium", page.get(kind)), (f"Python, {mine['backend']}", mine)):
            if side is not None:
                same = "the same" if side["tokens"] == mine["tokens"] else "others"
                numbers = f"{side['load']:.2f} s", f"{1000 * min(side['prompts']):.1f} ms", f"{max(side['rates']):.0f}"
                made.add_row(kind, where, *numbers, same)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--shape", choices=("story", *SHAPES), default="135m")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--turns", type=int, default=4, help="the first of them warms up, the best counts")
    parser.add_argument("--activations", default=",".join(ACTIVATIONS))
    parser.add_argument("--backend", help="of Python (default: the one that it takes)")
    parser.add_argument(
        "--flags", default=FLAGS, help="of Chromium (default: its GPU through Vulkan, without a display)"
    )
    parser.add_argument("--patience", type=float, default=180.0, metavar="SECONDS")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = made_model(options.shape, Path(folder))
        ids = np.random.default_rng(0).integers(3, 400, options.prompt).tolist()
        kinds = options.activations.split(",")
        given = {"ids": ids, "tokens": options.tokens, "turns": options.turns, "activations": kinds, "sizes": SIZES}
        given["context"] = options.prompt + options.tokens + 1
        page = in_chromium(model, given, options.flags.split(), options.patience)
        python = {kind: in_python(model, given, kind, options.backend) for kind in kinds}
    Console(width=120).print(table(options.shape, page, python))
    frames = {kind: round(min(row["frames"])) for kind, row in page.items() if kind in kinds}
    print(f"frames a second while it streams, the fewest of a turn: {json.dumps(frames)}")
    print(f"block program at {len(SIZES)} live shapes: largest difference {largest_error(page.pop('outputs')):.1e}")
    print(f"{json.dumps(page['device'])}; {page.pop('memory')} bytes left after the models were closed")
    if options.json is not None:
        document = {"page": page, "python": python, "medians": _medians(page, python)}
        options.json.write_text(json.dumps(document, indent=2), encoding="utf-8")


def _medians(page: dict[str, Any], python: dict[str, Any]) -> dict[str, Any]:
    sides = {"page": page, "python": python}
    return {
        f"{name}, {kind}": {what: median(row[what][1:] or row[what]) for what in ("prompts", "rates")}
        for name, side in sides.items()
        for kind, row in side.items()
        if kind != "device"
    }


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
