"""`liveshape demo`: the shipped model generates a story, then its logits at several lengths are compared with torch's.

Without the packages of the `llm` extra one transformer block is run instead, without a story.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from liveshape import model as models
from liveshape.device.protocol import Device
from liveshape.errors import counted
from liveshape.graph.activation_kinds import FLOAT32
from liveshape.llm.generation.generating import stream_generate
from liveshape.llm.generation.stats import Stats, first_token_seconds
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.run.array_files import read_arrays
from liveshape.tools.console import kernel_bar, upload_bar
from liveshape.tools.wrapping import Words

PROMPT = "Once upon a time, a little robot"
TOLERANCE = 1e-3  # absolute; logits range from about -15 to 15, the block's outputs from -5 to 5
_TOKENS, _TEMPERATURE, _SEED = 160, 0.6, 3


Row = tuple[str, str, float, float]  # length, position, seconds, max absolute error


def demo(device: str | None = None, prompt: str = PROMPT) -> int:
    """Generate a story and print the table; exit code 0 if all outputs are within the tolerance, else 1."""
    console = Console()
    shipped = resources.files("liveshape.demo")
    if find_spec("tokenizers") is None:
        lacking = "a story needs tokenizers (pip install 'liveshape[llm]'): here is one block of a model instead\n"
        console.print(lacking, markup=False)
        with resources.as_file(shipped.joinpath("block.pte")) as file, models.load(file, device=device) as block:
            golden = read_arrays(file.with_name("golden.npz"))
            title = f"one graph (at most {block.inputs[0].bounds[1]} rows a call)"
            return _shown(
                block.device, title, ("rows", "of the input", "largest error"), _of_block(block, golden), console
            )
    with resources.as_file(shipped.joinpath("story")) as folder:
        with upload_bar() as progress:
            model = LanguageModel.load(folder, device=device, activations=FLOAT32, progress=progress)
        tokenizer = Tokenizer.load(folder)
        with kernel_bar() as kernels:
            model.warm_up([tokenizer.generation.sampling(temperature=_TEMPERATURE)], kernels)
        speed = _tell(model, tokenizer, prompt)
        console.print(f"\n[dim]{speed}[/]\n")
        title = f"one graph (at most {model.max_seq_len} tokens a call, {model.max_context} in its cache)"
        return _shown(
            model.device,
            title,
            ("tokens", "at position", "largest error of the logits"),
            _of_story(model, folder),
            console,
        )


def _tell(model: LanguageModel, tokenizer: Tokenizer, prompt: str) -> str:
    """Stream a story to the terminal; returns a line about its speed."""
    words = Words(sys.stdout)
    words.put(prompt)
    stats, last = Stats(), None
    for last in stream_generate(
        model, tokenizer, prompt, max_tokens=_TOKENS, temperature=_TEMPERATURE, seed=_SEED, stats=stats
    ):
        words.put(last.text)
    words.end()
    sys.stdout.write("\n")
    if last is None:
        return ""
    return (
        f"first token of a prompt of {counted(last.prompt_tokens, 'token')} after {first_token_seconds(stats):,.1f} s, "
        f"story {counted(last.generation_tokens, 'token')} at {last.generation_tps:,.1f} tokens/s"
    )


def _of_story(model: LanguageModel, folder: Path) -> Iterator[Row | None]:
    """Compare logits with torch's golden logits at every length of the shipped calls, on one graph."""
    golden = read_arrays(folder / "golden.npz")
    ids, calls, expected = golden["ids"].tolist(), golden["calls"].tolist(), golden["logits"]
    for _ in range(2):  # generation read no logits back: allocate their two staging buffers now
        model.reset()
        model.prefill(ids[:1])
        model.logits()
    model.reset()
    yield None
    start = 0
    for count, logits in zip(calls, expected, strict=True):
        began = time.perf_counter()
        model.prefill(ids[start : start + count])
        got = model.logits()
        yield str(count), str(start), time.perf_counter() - began, float(np.abs(got - logits).max())
        start += count


def _of_block(block: models.Model, golden: Mapping[str, Any]) -> Iterator[Row | None]:
    """Compare with torch's golden outputs at growing and shrinking numbers of rows, on one graph."""
    x = golden["input"]
    lengths = sorted(int(name.split()[1]) for name in golden if name.startswith("answer"))
    for _ in range(2):  # as above
        block(x)
    yield None
    for rows in (*lengths, *lengths[-2::-1]):
        began = time.perf_counter()
        got = block(x[:, :rows])
        elapsed = time.perf_counter() - began
        yield str(rows), f"{rows} of {x.shape[1]}", elapsed, float(np.abs(got - golden[f"answer {rows}"]).max())


def _shown(
    device: Device, title: str, columns: tuple[str, str, str], rows: Iterable[Row | None], console: Console
) -> int:
    """Print the table; exit code 0 if all are right and nothing was compiled or allocated after the None."""
    counters = device.counters
    table = Table(*columns[:2], "time", columns[2], title=title)
    worst = 0.0
    made = counters.buffers, counters.pipelines
    for row in rows:
        if row is None:
            made = counters.buffers, counters.pipelines
            continue
        count, place, seconds, error = row
        worst = max(worst, error)
        table.add_row(count, place, f"{1e3 * seconds:.1f} ms", f"{error:.1e}")
    console.print(table)
    created = counters.buffers - made[0], counters.pipelines - made[1]
    console.print(f"while it served them: {created[0]} buffers created, {created[1]} pipelines compiled")
    if device.adapter.software:
        console.print(
            "[dim]that was by us: this adapter's driver compiles a kernel when it first runs, and keeps it[/]"
        )
    if worst <= TOLERANCE and not any(created):
        console.print(f"[green]right at every live shape[/] (largest error {worst:.1e}, allowed {TOLERANCE:.0e})")
        return 0
    console.print(f"[red]wrong[/]: the largest error is {worst:.1e}, allowed are {TOLERANCE:.0e} and nothing created")
    return 1
