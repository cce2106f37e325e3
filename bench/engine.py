"""Host cost of one step on a chain of 300 nodes: planning after a change of nothing, one scalar or S, and encoding.

Run: python -m bench.engine [--nodes 300] [--repeats 200]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from liveshape import ops
from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.graph import Graph, SymInt, Tensor
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor

MAX, WIDTH = 128, 64


def chain(nodes: int) -> Graph:
    """x -> (rms_norm -> add) ... ending in a slice up to a live scalar."""
    row: list[Any] = []
    values: list[Any] = []

    def tensor(name: str, constant: Any = None) -> Tensor:
        shape = (WIDTH,) if constant is not None else (1, MAX, WIDTH)
        value = Tensor(name, "float32", shape, constant=constant)
        values.append(value)
        return value

    weight = tensor("weight", memoryview(np.ones(WIDTH, np.float32)).cast("B"))
    x, end = tensor("input 0"), SymInt("input 1", MAX)
    values.append(end)
    current = x
    for index in range(nodes - 1):
        out = tensor(f"value {index}")
        if index % 2 == 0:
            args: tuple[Any, ...] = (current, weight, 1e-6, out)
            operator = "et_vk.rms_norm.default"
        else:
            args, operator = (current, x, 1, out), "aten.add.Tensor"
        row.append(ops.OPS[operator].bind(index, f"{operator} (node {index})", args))
        current = out
    out = tensor("output 0")
    args = (current, 1, 0, end, 1, out)
    row.append(ops.OPS["aten.slice_copy.Tensor"].bind(nodes - 1, "slice", args))
    return Graph("chain", tuple(row), tuple(values), (x, end), (out,))


def median_us(work: Callable[[], Any], before: Callable[[int], Any], repeats: int) -> float:
    """The median of `work`, in microseconds, with `before(turn)` run untimed ahead of it."""
    times = []
    for turn in range(repeats):
        before(turn)
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def encoding_us(graph: Graph, device: Device, repeats: int) -> tuple[float, float]:
    """The medians of encoding and of `finish()`, in microseconds."""
    executor = Executor(compile(graph, device.limits), device)
    executor.execute([np.zeros((1, MAX, WIDTH), np.float32), MAX])
    commands = executor.encoder.commands(executor.live, 0, len(graph.nodes))
    with device.watched() as watched:
        for _ in range(repeats):
            device.submit(commands)
    # Two spans per submit: encoding, then finish(); the last two belong to the flush that ends `watched`.
    spans = [1e6 * (end - begin) for name, begin, end in watched.spans if name == "encode"][: 2 * repeats]
    return statistics.median(spans[::2]), statistics.median(spans[1::2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=200)
    options = parser.parse_args()
    device = open_device()
    graph = chain(options.nodes)
    executor = Executor(compile(graph, device.limits), device)
    x, end = graph.inputs
    live, count = executor.live, len(graph.nodes)
    executor.execute([np.zeros((1, MAX, WIDTH), np.float32), MAX])

    def plan() -> None:
        live.begin()
        live.walk(0, count, executor._read)

    def move_scalar(turn: int) -> None:
        live.set(end, 8 + turn % 2)

    def move_length(turn: int) -> None:
        live.set(end, 8)
        live.set(x, (1, 64 + turn % 2, WIDTH))

    table = Table("what", "median", title=f"{options.nodes} nodes on {device.adapter.name}")
    table.add_row("planning, nothing moved", f"{median_us(plan, lambda turn: None, options.repeats):.1f} us")
    table.add_row("planning, one scalar moved", f"{median_us(plan, move_scalar, options.repeats):.1f} us")
    whole = median_us(plan, move_length, options.repeats)
    table.add_row("planning, S moved", f"{whole:.0f} us ({whole / count:.2f} us per node)")

    def prepare() -> None:
        executor.encoder.commands(live, 0, count)

    def replan(turn: int) -> None:
        move_length(turn)
        plan()

    def whole_step() -> None:
        plan()
        prepare()

    step = median_us(whole_step, move_scalar, options.repeats)
    table.add_row("planning, params and commands, one scalar moved", f"{step:.1f} us")
    laid = median_us(prepare, replan, options.repeats)
    table.add_row("params and commands after S moved", f"{laid:.0f} us ({laid / count:.2f} us per node)")
    for calls, name in (("1", "raw C calls"), ("0", "wgpu-py")):
        os.environ["LIVESHAPE_RAW"] = calls
        cost, finish = encoding_us(graph, open_device(limits=device.limits), options.repeats)
        table.add_row(
            f"encoding by {name}, {count} dispatches",
            f"{cost:.0f} us ({cost / count:.2f} us per dispatch, finish {finish / count:.2f})",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
