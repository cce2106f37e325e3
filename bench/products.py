"""Products of floats with constant weights by rows x depth x columns: time, FLOP/s and bandwidth of every choice.

Run: python -m bench.products [--shape 128x768x768 ...] [--activations float16] [--ways all] [--seconds 0.2]
With float16 activations rows are halves, and inputs of products may be rounded to them, for matrix units (Dawn).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.gpu_time import gpu_seconds, warm_up
from liveshape import ops
from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.graph import Graph, Limits, Tensor, Value
from liveshape.ops import matrix_heuristics, product_tiles
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor

# Rows of the layers of an encoder of BERT-base's size: a few, one sequence, eight images, and batches of 32.
ROWS = (1, 4, 16, 128, 1576, 4096, 16384)
FEW_ROWS = 32  # whose time is that of their weights: more of these than an L2 cache has
CACHE = 1 << 28
LAYERS = ((768, 768), (768, 3072), (3072, 768))


class Way(NamedTuple):
    """Constants of a module of heuristics other than they are."""

    module: ModuleType
    constants: dict[str, Any]


PLANNED = "as planned"
WAYS = {
    PLANNED: Way(matrix_heuristics, {}),
    "small matrix tiles": Way(matrix_heuristics, {"LARGE_TILES": 1 << 30}),
    "large matrix tiles": Way(matrix_heuristics, {"LARGE_TILES": 0}),
    "small tiles": Way(product_tiles, {"ENOUGH_TILES": 1 << 30}),
    "large tiles": Way(product_tiles, {"ENOUGH_TILES": 0}),
}


@contextmanager
def patched(way: Way) -> Iterator[None]:
    """With a way's constants in place of those that are."""
    before = {name: getattr(way.module, name) for name in way.constants}
    for name, value in way.constants.items():
        setattr(way.module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(way.module, name, value)


def layers_of(layers: int, rows: int, weight: Any, dtype: str) -> Graph:
    """The same rows of that dtype through many layers of the same weight, each with a buffer of its own for it."""
    columns, depth = weight.shape
    x = Tensor("x", dtype, (rows, depth))
    values: list[Value] = [x]
    nodes = []
    for index in range(layers):
        # Copied, since views of the same bytes would be one buffer.
        constant = Tensor(f"weight {index}", "float32", weight.shape, constant=memoryview(weight.copy()).cast("B"))
        out = Tensor(f"output {index}", "float32", (rows, columns))
        nodes.append(ops.OPS["aten.linear.default"].bind(index, f"linear {index}", (x, constant, None, out)))
        values += [constant, out]
    return Graph("layers", tuple(nodes), tuple(values), (x,), (out,))


def measure(device: Device, limits: Limits, way: Way, sizes: tuple[int, int, int], dtype: str, enough: float) -> float:
    """Seconds of the device for a layer, whose values are compared with numpy's for a few rows and columns."""
    rows, depth, columns = sizes
    drawn = np.random.default_rng(1).standard_normal((min(rows, 61), depth)).astype(dtype)
    x = np.resize(drawn, (rows, depth))  # drawing all of them takes longer than everything else
    layers = 1 if rows > FEW_ROWS else max(1, CACHE // (4 * depth * columns))
    weight = np.random.default_rng(0).standard_normal((columns, depth)).astype(np.float32)
    graph = layers_of(layers, rows, weight, dtype)
    with patched(way):
        executor = Executor(compile(graph, limits), device)
        (found,) = executor.execute([x])
    few_rows, few_columns = slice(None, None, max(1, rows // 7)), slice(None, None, max(1, columns // 7))
    expected = x[few_rows].astype(np.float64) @ weight[few_columns].T.astype(np.float64)
    error = np.abs(np.asarray(found)[few_rows, few_columns] - expected).max() / depth**0.5
    assert error < (2e-3 if limits.half_inputs else 1e-5), f"wrong by {error:.1e} at {sizes}"
    commands = executor.encoder.commands(executor.live, 0, len(executor.graph.nodes))
    once = warm_up(device, commands, enough)
    return gpu_seconds(device, commands, max(1, min(1000, round(enough / 4 / once))), 2) / layers


def sizes_of(shape: str) -> tuple[int, int, int]:
    """Rows, depth and columns of "128x768x3072"."""
    rows, depth, columns = (int(size) for size in shape.split("x"))
    return rows, depth, columns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--shape", nargs="*", help="rows x depth x columns")
    parser.add_argument("--activations", choices=("float32", "float16"), default="float32")
    parser.add_argument("--ways", nargs="*", choices=("all", *WAYS), default=[PLANNED])
    parser.add_argument(
        "--seconds", type=float, default=0.3, help="that the device is kept busy before each measurement"
    )
    options = parser.parse_args()
    half = options.activations == "float16"
    device = open_device(backend="dawn" if half else None)
    limits = replace(device.limits, half_inputs=half)
    shapes = [sizes_of(shape) for shape in options.shape or ()] or [
        (rows, *sizes) for rows in ROWS for sizes in LAYERS if rows < 128 or not device.adapter.software
    ]
    title = f"linear layers, {options.activations} activations, {device.adapter.name}"
    table = Table("rows x depth x columns", "way", "us", "TFLOP/s", "weight GB/s", title=title)
    for shape in shapes:
        for name in WAYS if "all" in options.ways else options.ways:
            each = measure(device, limits, WAYS[name], shape, options.activations, options.seconds)
            rows, depth, columns = shape
            speed, bandwidth = (
                2 * rows * depth * columns / each / 1e12,
                depth * columns * (2 if half else 4) / each / 1e9,
            )
            table.add_row("x".join(map(str, shape)), name, f"{each * 1e6:.1f}", f"{speed:.2f}", f"{bandwidth:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
