"""4-bit linear layers by rows, GEMV to GEMM: many layers in one submit, with more weights than an L2 cache holds.

Run: python -m bench.gemv [--group 32] [--weights minima] [--activations int8] [--shape 1x2048x8192 ...]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.gpu_time import gpu_seconds
from liveshape import ops
from liveshape.device.backends import open_device
from liveshape.graph import Graph, Tensor
from liveshape.ops.quantized_rows import quantized_shape
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor

CACHE = 1 << 28  # bytes of weights, more than any L2 cache
ENOUGH = 0.1  # seconds of work per measurement
OPERATOR = "et_vk.linear_q4gsw.default"
# M x K x N: the layers of a 1B Llama, then more rows of one of them.
SHAPES = ("1x2048x8192", "1x8192x2048", "1x2048x2048", "1x2048x512", "4x2048x8192", "16x2048x8192", "64x2048x8192")
MORE_ON_A_GPU = ("1x2048x128256", "128x2048x8192", "512x2048x8192", "512x8192x2048", "512x2048x2048", "512x2048x512")


WEIGHTS = ("4", "minima", "8")  # bits, or 4 bits with a minimum per group


def row_of_layers(
    layers: int, rows: int, depth: int, columns: int, group: int, int8: bool = False, weights: str = "4"
) -> Graph:
    """The same input through many layers, each with a weight of its own."""
    generator = np.random.default_rng(0)
    packed: Any = generator.integers(0, 256, (columns, depth // 2), np.uint8)
    scales: Any = generator.random((depth // group, columns), np.float32)
    if weights == "8":
        packed = generator.integers(0, 256, (columns, depth // group, group), np.uint8)
    elif weights == "minima":
        scales = np.stack([scales, -scales], axis=1)

    def constant(name: str, array: Any) -> Tensor:
        # Copied, since views of the same bytes would be one buffer.
        return Tensor(name, str(array.dtype), array.shape, constant=memoryview(array.copy()).cast("B"))

    x = Tensor("input 0", "float32", (rows, depth))
    values: list[Tensor] = [x]
    nodes = []
    taken = x
    if int8:
        taken = Tensor("bytes", "int8", quantized_shape((rows, depth)))
        values.append(taken)
        nodes.append(ops.OPS["liveshape.quantize_rows"].bind(0, "quantize_rows", (x, None, None, taken)))
    for index in range(len(nodes), layers + len(nodes)):
        out = Tensor(f"output {index}", "float32", (rows, columns))
        weight, scale = constant(f"weight {index}", packed), constant(f"scales {index}", scales)
        values += [weight, scale, out]
        nodes.append(ops.OPS[OPERATOR].bind(index, f"linear {index}", (taken, weight, scale, group, None, out)))
    return Graph("layers", tuple(nodes), tuple(values), (x,), (values[-1],))


def seconds(executor: Executor, x: Any, tries: int) -> float:
    """Seconds of one layer."""
    executor.execute([x])
    begin = 1 if executor.graph.nodes[0].name == "liveshape.quantize_rows" else 0
    commands = executor.encoder.commands(executor.live, begin, len(executor.graph.nodes))
    once = gpu_seconds(executor.device, commands, 1, 2)
    turns = max(1, min(200, round(ENOUGH / once)))
    return gpu_seconds(executor.device, commands, turns, tries) / (len(executor.graph.nodes) - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--group", type=int, default=32, help="group size: weights that share a scale")
    parser.add_argument("--weights", choices=WEIGHTS, default="4", help="bits, or 4 with minima")
    parser.add_argument("--activations", choices=("float32", "int8"), default="float32")
    parser.add_argument("--tries", type=int, default=4)
    parser.add_argument("--shape", nargs="*", help="rows x depth x columns")
    options = parser.parse_args()
    device = open_device()
    software = device.adapter.software
    shapes = options.shape or (SHAPES if software else SHAPES + MORE_ON_A_GPU)
    table = Table(
        "rows x depth x columns",
        "ms",
        "GB/s",
        "TFLOP/s",
        title=f"linear layers, weights of {options.weights}, {options.activations} activations, {device.adapter.name}",
    )
    for shape in shapes:
        rows, depth, columns = (int(size) for size in shape.split("x"))
        per_group = {"4": options.group // 2 + 4, "minima": options.group // 2 + 8, "8": options.group + 4}
        nbytes = columns * depth // options.group * per_group[options.weights]
        layers = 2 if software else max(2, min(64, CACHE // nbytes))
        x = np.random.default_rng(1).standard_normal((rows, depth)).astype(np.float32)
        int8 = options.activations == "int8"
        graph = row_of_layers(layers, rows, depth, columns, options.group, int8, options.weights)
        each = seconds(Executor(compile(graph, device.limits), device), x, options.tries)
        work = 2 * rows * depth * columns
        table.add_row(shape, f"{each * 1e3:.3f}", f"{nbytes / each / 1e9:.1f}", f"{work / each / 1e12:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
