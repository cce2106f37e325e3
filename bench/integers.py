"""Layers and convolutions between integers of eight bits: by matrix units beside by threads, in one run.

Run: python -m bench.integers [--linear 512x2048x8192 ...] [--convolution 128x128x28x3 ...]
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.gpu_time import gpu_seconds, warm_up
from liveshape import ops
from liveshape.device.backends import open_device
from liveshape.graph import Graph, Node, Tensor
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor

LINEAR = ("64x2048x2048", "512x2048x2048", "512x2048x8192", "4096x2048x2048")  # rows, depth, columns
CONVOLUTION = ("64x64x56x3", "128x128x28x3", "256x256x14x3", "256x1024x14x1")  # channels, outputs, side, kernel
ENOUGH = 0.05  # seconds of work per measurement


def constant(name: str, array: Any) -> Tensor:
    return Tensor(name, str(array.dtype), array.shape, constant=memoryview(array).cast("B"))


def factors(columns: int, depth: int) -> tuple[Tensor, Tensor, Tensor]:
    """A weight, its sums and its scales."""
    weight = np.random.default_rng(0).integers(-127, 128, (columns, depth)).astype(np.int8)
    sums = weight.astype(np.int32).sum(1).astype(np.int32)
    return constant("weight", weight), constant("sums", sums), constant("scales", np.full(columns, 1e-3, np.float32))


def linear(rows: int, depth: int, columns: int) -> tuple[Graph, int]:
    """The layer as a graph, and its multiply-adds."""
    x, out = Tensor("x", "int8", (rows, depth)), Tensor("out", "int8", (rows, columns))
    given = factors(columns, depth)
    node = ops.OPS["et_vk.q8ta_linear.default"].bind(0, "linear", (x, 0.1, 3, *given, 0.1, -4, None, "none", out))
    return graph_of(node, x, out), rows * depth * columns


def convolution(channels: int, outputs: int, side: int, kernel: int) -> tuple[Graph, int]:
    x, out = Tensor("x", "int8", (1, channels, side, side)), Tensor("out", "int8", (1, outputs, side, side))
    given, depth, pad = factors(outputs, channels * kernel**2), channels * kernel**2, kernel // 2
    sizes = ((kernel, kernel), (1, 1), (pad, pad), (1, 1), 1, "relu")
    node = ops.OPS["et_vk.q8ta_conv2d.default"].bind(0, "conv", (x, 0.1, 3, *given, 0.1, -4, None, *sizes, out))
    return graph_of(node, x, out), outputs * side**2 * depth


def graph_of(node: Node, x: Tensor, out: Tensor) -> Graph:
    return Graph("layer", (node,), tuple(dict.fromkeys((*node.inputs, *node.written))), (x,), (out,))


def seconds(graph: Graph, matrices: bool) -> tuple[float, Any]:
    """Of one call, and what it gives."""
    device = open_device()
    limits = device.limits if matrices else replace(device.limits, matrices=())
    executor = Executor(compile(graph, limits), device)
    (x,) = graph.inputs
    assert isinstance(x, Tensor)
    (result,) = executor.execute([np.random.default_rng(1).integers(-128, 128, x.max_shape).astype(np.int8)])
    commands = executor.encoder.commands(executor.live, 0, 1)
    turns = max(1, min(2000, round(ENOUGH / warm_up(device, commands))))
    found = gpu_seconds(device, commands, turns)
    executor.close()
    return found, result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--linear", nargs="*", default=LINEAR, help="rows x depth x columns")
    parser.add_argument("--convolution", nargs="*", default=CONVOLUTION, help="channels x outputs x side x kernel")
    options = parser.parse_args()
    table = Table("layer", "matrix units, us", "Top/s", "threads, us", "Top/s", title=open_device().name)
    for kind, shapes in ((linear, options.linear), (convolution, options.convolution)):
        for shape in shapes:
            graph, products = kind(*(int(size) for size in shape.split("x")))
            (by_matrices, one), (by_threads, other) = seconds(graph, True), seconds(graph, False)
            np.testing.assert_array_equal(one, other)
            rates = (f"{2 * products / each / 1e12:.2f}" for each in (by_matrices, by_threads))
            times = (f"{each * 1e6:.1f}" for each in (by_matrices, by_threads))
            row = (text for pair in zip(times, rates, strict=True) for text in pair)
            table.add_row(f"{kind.__name__} {shape}", *row)
    Console().print(table)


if __name__ == "__main__":
    main()
