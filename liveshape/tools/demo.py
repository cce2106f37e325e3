"""`liveshape demo`: one shipped program, one graph, several live shapes, each against torch's shipped answer."""

from __future__ import annotations

import time
from importlib import resources

import numpy as np
from rich.console import Console
from rich.table import Table

from liveshape.device import open_device
from liveshape.executor import Executor
from liveshape.formats import open_program
from liveshape.lowering import lower

TOLERANCE = 1e-4
_ROUNDS = 5


def demo(device: str | None = None) -> int:
    """Run the demo and print its table; 0 if every answer is right, 1 if not."""
    console = Console()
    chosen = open_device(device)
    folder = resources.files("liveshape.demo")
    golden = np.load(folder.joinpath("golden.npz").open("rb"))
    program = open_program(folder.joinpath("block.pte").read_bytes())
    executor = Executor(lower(program, "forward", {}, chosen.limits), chosen)
    x = golden["input"]
    bound = x.shape[1]
    lengths = sorted(int(name.split()[1]) for name in golden.files if name.startswith("answer"))
    title = f"one graph, built at {x.shape}, on {chosen.adapter.name}"
    table = Table("live shape", "time", "largest error", title=title)
    # Up, then down again: a graph that remembers a larger shape would show it here.
    order = [*lengths, *reversed(lengths[:-1])]
    executor.execute([x])
    made = chosen.counters.buffers, chosen.counters.pipelines
    worst = 0.0
    for length in order:
        part = np.ascontiguousarray(x[:, :length])
        elapsed = []
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            (answer,) = executor.execute([part])
            elapsed.append(time.perf_counter() - start)
        error = float(np.abs(answer - golden[f"answer {length}"]).max())
        worst = max(worst, error)
        table.add_row(str(answer.shape), f"{1e3 * min(elapsed):.2f} ms", f"{error:.1e}")
    created = chosen.counters.buffers - made[0], chosen.counters.pipelines - made[1]
    console.print(f"A transformer block that ExecuTorch exported with a dynamic length of at most {bound}")
    console.print(table)
    console.print(f"since the first call: {created[0]} buffers created, {created[1]} pipelines compiled")
    if worst <= TOLERANCE:
        console.print(f"[green]right at every live shape[/] (largest error {worst:.1e}, allowed {TOLERANCE:.0e})")
        return 0
    console.print(f"[red]wrong[/]: the largest error is {worst:.1e}, allowed are {TOLERANCE:.0e}")
    return 1
