"""`liveshape demo`: the shipped model tells a story, then its answers at several lengths stand beside torch's."""

from __future__ import annotations

import sys
import time
from importlib import resources
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from liveshape.llm.generate import stream_generate
from liveshape.llm.model import LanguageModel
from liveshape.llm.tokenizer import Tokenizer

PROMPT = "Once upon a time, a little robot"
TOLERANCE = 1e-3  # of logits that reach from about -15 to 15
_TOKENS, _TEMPERATURE, _SEED = 160, 0.6, 3


def demo(device: str | None = None, prompt: str = PROMPT) -> int:
    """Tell a story and print the table; 0 if every answer is right, 1 if not."""
    console = Console()
    with resources.as_file(resources.files("liveshape.demo").joinpath("story")) as folder:
        model = LanguageModel.load(folder, device=device)
        tokenizer = Tokenizer.load(folder)
        speed = _tell(model, tokenizer, prompt)
        console.print(f"\n[dim]{speed}[/]\n")
        return 0 if _check(model, folder, console) else 1


def _tell(model: LanguageModel, tokenizer: Tokenizer, prompt: str) -> str:
    """Stream a story to the terminal; says how fast it was."""
    sys.stdout.write(prompt)
    last = None
    for last in stream_generate(model, tokenizer, prompt, max_tokens=_TOKENS, temperature=_TEMPERATURE, seed=_SEED):
        sys.stdout.write(last.text)
        sys.stdout.flush()
    sys.stdout.write("\n")
    if last is None:
        return ""
    return (
        f"prompt {last.prompt_tokens} tokens at {last.prompt_tps:,.1f} tokens/s, "
        f"story {last.generation_tokens} tokens at {last.generation_tps:,.1f} tokens/s"
    )


def _check(model: LanguageModel, folder: Path, console: Console) -> bool:
    """The same graph at every length of the shipped calls, against the logits that torch gave."""
    golden = np.load(folder / "golden.npz")
    ids, calls, expected = golden["ids"].tolist(), golden["calls"].tolist(), golden["logits"]
    counters = model.device.counters
    for _ in range(2):  # logits do not travel while a story is told: their two staging buffers are made now
        model.reset()
        model.prefill(ids[:1])
        model.logits()
    model.reset()
    made = counters.buffers, counters.pipelines, counters.bind_groups
    title = f"one graph (at most {model.max_seq_len} tokens a call, {model.max_context} in its cache)"
    table = Table("tokens", "at position", "time", "largest error of the logits", title=title)
    worst, start = 0.0, 0
    for count, logits in zip(calls, expected, strict=True):
        began = time.perf_counter()
        model.prefill(ids[start : start + count])
        got = model.logits()
        elapsed = time.perf_counter() - began
        error = float(np.abs(got - logits).max())
        worst = max(worst, error)
        table.add_row(str(count), str(start), f"{1e3 * elapsed:.1f} ms", f"{error:.1e}")
        start += count
    console.print(table)
    now = counters.buffers, counters.pipelines, counters.bind_groups
    created = [after - before for before, after in zip(made, now, strict=True)]
    console.print(f"while it served them: {created[0]} buffers created, {created[1]} pipelines compiled")
    if worst <= TOLERANCE and not any(created[:2]):
        console.print(f"[green]right at every live shape[/] (largest error {worst:.1e}, allowed {TOLERANCE:.0e})")
        return True
    console.print(f"[red]wrong[/]: the largest error is {worst:.1e}, allowed are {TOLERANCE:.0e} and nothing created")
    return False
