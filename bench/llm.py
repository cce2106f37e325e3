"""Prefill and decode of a Llama with random 4-bit weights on one graph, and where the time goes, host's and device's.

Run: python -m bench.llm [--shape tiny|135m|1b|8b] [--prompt 512] [--tokens 128] [--repeats 3]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.gpu_time import gpu_seconds
from liveshape.device.webgpu import Command, Device, open_device
from liveshape.llm.engine import Engine
from liveshape.llm.model import LanguageModel
from liveshape.llm.origin import Origin
from liveshape.llm.program import token_graph
from liveshape.llm.sampling import Sampling
from liveshape.runtime import memory_of
from liveshape.tools.shapes import SHAPES, llama_graph

_TURNS = 20  # of a token's commands in one submit


class Clock:
    """Adds up the time inside of chosen methods."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)

    def watch(self, owner: Any, method: str, name: str) -> None:
        """Count every call of a method under a name."""
        inner: Callable[..., Any] = getattr(owner, method)

        def timed(*args: Any, **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return inner(*args, **named)
            finally:
                self.spent[name] += time.perf_counter() - start

        setattr(owner, method, timed)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    shape = SHAPES[options.shape]
    device = open_device()
    began = time.perf_counter()
    engine = Engine(token_graph(llama_graph(shape, device.limits), {}), device)
    model = LanguageModel(engine, Origin("random"))
    loaded = time.perf_counter() - began
    clock = Clock()
    executor = engine.executor
    clock.watch(executor.live, "walk", "plan")
    clock.watch(executor.encoder, "commands", "commands")
    clock.watch(device._recorder, "record", "encode")
    clock.watch(device, "submit", "encode, finish and submit")
    clock.watch(device, "read", "wait")
    ids = np.random.default_rng(0).integers(0, shape.vocabulary, options.prompt).tolist()
    prompts, decodes = [], []
    for turn in range(options.repeats + 1):
        model.reset()
        start = time.perf_counter()
        stream = model.stream(ids, Sampling(), max_tokens=options.tokens + 1)
        next(stream)
        first = time.perf_counter()
        clock.spent.clear()
        made = device.counters.buffers, device.counters.pipelines, device.counters.bind_groups
        count = sum(1 for _ in stream)
        end = time.perf_counter()
        assert made == (device.counters.buffers, device.counters.pipelines, device.counters.bind_groups)
        if turn:  # the first turn warms up
            prompts.append(options.prompt / (first - start))
            decodes.append(count / (end - first))
    table = Table("what", "value", title=f"{options.shape} on {device.name}, {len(executor.graph.nodes)} nodes")
    table.add_row("load and compile", f"{loaded:.1f} s")
    table.add_row("GPU memory", f"{memory_of(executor.plan).total / 1e6:,.0f} MB")
    table.add_row(f"prefill of {options.prompt}, first token read", f"{statistics.median(prompts):,.0f} tokens/s")
    table.add_row(f"decode of {options.tokens} from {options.prompt}", f"{statistics.median(decodes):,.1f} tokens/s")
    commands = executor.encoder.commands(executor.live, 0, len(executor.graph.nodes))
    table.add_row("dispatches per token", f"{len(commands)}")
    for name, seconds in clock.spent.items():
        table.add_row(f"  host, {name}", f"{1e6 * seconds / count:,.0f} us per token")
    Console().print(table)
    print_kernels(device, commands)


def print_kernels(device: Device, commands: list[Command]) -> None:
    """What the device does for a token, kernel by kernel; one that runs once per token has the cost of a pass in it."""
    kinds: dict[str, list[Command]] = defaultdict(list)
    for command in commands:
        kinds[command.label.rpartition(" ")[2]].append(command)
    whole = gpu_seconds(device, commands, _TURNS)
    table = Table("kernel", "times", "us each", "us", title=f"a token on the device: {1e6 * whole:,.0f} us")
    for name, row in sorted(kinds.items(), key=lambda item: -len(item[1])):
        spent = 1e6 * gpu_seconds(device, row, _TURNS)
        table.add_row(name, f"{len(row)}", f"{spent / len(row):,.1f}", f"{spent:,.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
