"""Operators on a software adapter beside torch's CPU: milliseconds of each, and of its first call, which compiles.

Run: LP_NUM_THREADS=1 python -m bench.operators [--only top-k,sum] [--tries 5]

Set VK_DRIVER_FILES to the driver to measure. Times are those that a processor computes, so that others who work on the
machine do not count: ours of the driver's threads, torch's of its only one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional

from bench.gpu_time import cpu_seconds, gpu_seconds, warm_up
from liveshape import ops
from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.graph import Graph, Tensor
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.run.executor import Executor

ENOUGH = 0.2  # seconds of each measurement


@dataclass(frozen=True)
class Operator:
    """An operator over float32 inputs: `arguments` follow the first input, an input by its shape as a list."""

    name: str
    operator: str
    shape: tuple[int, ...]
    arguments: tuple[Any, ...]
    reference: Callable[..., Any]
    index_outputs: tuple[int, ...] = ()


def _rows(shape: tuple[int, ...]) -> list[Operator]:
    width = shape[-1]
    affine = [width], [width]
    return [
        Operator("softmax", "aten._softmax.default", shape, (-1, False), lambda x: torch.softmax(x, -1)),
        Operator(
            "layer_norm", "aten.native_layer_norm.default", shape, ((width,), *affine, 1e-5),
            lambda x, weight, bias: torch.native_layer_norm(x, (width,), weight, bias, 1e-5),
        ),
        Operator(
            "rms_norm", "et_vk.rms_norm.default", shape, (affine[0], 1e-5),
            lambda x, weight: functional.rms_norm(x, (width,), weight, 1e-5),
        ),
        Operator("sum, last", "aten.sum.dim_IntList", shape, ((-1,), False, None), lambda x: x.sum(-1)),
        Operator("mean, last", "aten.mean.dim", shape, ((-1,), False, None), lambda x: x.mean(-1)),
        Operator("sum, first", "aten.sum.dim_IntList", shape, ((0,), False, None), lambda x: x.sum(0)),
        Operator("mean, first", "aten.mean.dim", shape, ((0,), False, None), lambda x: x.mean(0)),
        Operator("var, last", "aten.var.correction", shape, ((-1,), 1, False), lambda x: x.var(-1)),
        Operator("amax, last", "aten.amax.default", shape, ((-1,), False), lambda x: x.amax(-1)),
        Operator("argmax, last", "aten.argmax.default", shape, (-1, False), lambda x: x.argmax(-1), (0,)),
        Operator("argmax, first", "aten.argmax.default", shape, (0, False), lambda x: x.argmax(0), (0,)),
        Operator("cumsum, last", "aten.cumsum.default", shape, (-1, None), lambda x: x.cumsum(-1)),
        Operator("cumsum, first", "aten.cumsum.default", shape, (0, None), lambda x: x.cumsum(0)),
    ]  # fmt: skip


IMAGE = (4, 64, 56, 56)
CHANNELS = ([IMAGE[1]],) * 2
HEADS = [1, 8, 512, 64]
OPERATORS = [
    Operator("product", "aten.mm.default", (256, 1024), ([1024, 1024],), torch.mm),
    Operator(
        "attention", "et_vk.sdpa.default", tuple(HEADS), (HEADS, HEADS, None, None),
        functional.scaled_dot_product_attention,
    ),
    Operator(
        "top-k of 16", "aten.topk.default", (16, 10_000), (16, -1, True, True), lambda x: torch.topk(x, 16), (1,)
    ),
    Operator("sort", "aten.sort.default", (16, 10_000), (-1, False), lambda x: torch.sort(x), (1,)),
    *_rows((4000, 512)),
    *_rows((16, 32_000)),
    Operator("softmax over 49 x 49", "aten._softmax.default", (1536, 49), (-1, False), lambda x: torch.softmax(x, -1)),
    Operator("gelu", "aten.gelu.default", (4000, 512), ("none",), functional.gelu),
    Operator("add", "aten.add.Tensor", (4000, 512), ([4000, 512], 1), lambda x, y: x + y),
    Operator("sum of all", "aten.sum.default", (1 << 20,), (None,), lambda x: x.sum()),
    Operator("pool to 1 x 1", "aten.mean.dim", IMAGE, ((-1, -2), True, None), lambda x: x.mean((-1, -2), True)),
    Operator(
        "batch_norm", "aten._native_batch_norm_legit_no_training.default", IMAGE,
        (*CHANNELS, *CHANNELS, 0.1, 1e-5),
        lambda x, weight, bias, mean, variance: torch.batch_norm(
            x, weight, bias, mean, variance.abs(), False, 0.1, 1e-5, False
        ),
    ),
    Operator(
        "group_norm of 32", "aten.native_group_norm.default", IMAGE, (*CHANNELS, 4, 64, 56 * 56, 32, 1e-5),
        lambda x, weight, bias: torch.native_group_norm(x, weight, bias, 4, 64, 56 * 56, 32, 1e-5),
    ),
]  # fmt: skip


def inputs_of(each: Operator) -> list[np.ndarray]:
    """What an operator reads, drawn."""
    random = np.random.default_rng(1)
    shapes = [each.shape, *(tuple(value) for value in each.arguments if isinstance(value, list))]
    return [np.abs(random.standard_normal(shape, np.float32)) for shape in shapes]


def graph_of(each: Operator, inputs: list[np.ndarray]) -> Graph:
    """A graph of one operator at one size."""
    tensors = [Tensor(f"input {place}", "float32", array.shape) for place, array in enumerate(inputs)]
    given = iter(tensors)
    args = [next(given), *(next(given) if isinstance(value, list) else value for value in each.arguments)]
    results = each.reference(*map(torch.from_numpy, inputs))
    single = not ops.OPS[each.operator].many
    results = (results,) if isinstance(results, torch.Tensor) else tuple(results)
    outputs = [
        Tensor(f"output {place}", "int64" if place in each.index_outputs else "float32", tuple(result.shape))
        for place, result in enumerate(results)
    ]
    if "batch_norm" in each.operator:
        outputs += [Tensor(f"saved {place}", "float32", (0,)) for place in range(2)]
    node = ops.OPS[each.operator].bind(0, each.name, (*args, outputs[0] if single else tuple(outputs)))
    return Graph(each.name, (node,), (*tensors, *outputs), tuple(tensors), tuple(outputs[: len(results)]))


def reference_seconds(each: Operator, inputs: list[np.ndarray], tries: int) -> float:
    """The minimum time of torch's operator."""
    tensors, best, spent = [*map(torch.from_numpy, inputs)], 1e9, 0.0
    with torch.no_grad():
        while tries > 0 or spent < ENOUGH:
            begin = time.thread_time()
            each.reference(*tensors)
            took = time.thread_time() - begin
            best, tries, spent = min(best, took), tries - 1, spent + took
    return best


def measured(device: Device, each: Operator, tries: int) -> tuple[float, float, list[Any], str]:
    """Seconds of ours, seconds of compilation, results, and kernels."""
    inputs = inputs_of(each)
    executor = Executor(compile(graph_of(each, inputs), device.limits, Choices(warm=False)), device)
    began = time.perf_counter()
    results = executor.execute(inputs)
    first = time.perf_counter() - began
    commands = executor.encoder.commands(executor.live, 0, 1)
    kernels = " + ".join(dict.fromkeys(command.label.rpartition(" ")[2] for command in commands))
    if device.adapter.software:
        once = cpu_seconds(device, commands, 2)
        turns = max(1, min(200, round(ENOUGH / tries / once)))
        return cpu_seconds(device, [*commands] * turns, tries) / turns, max(first - once, 0.0), results, kernels
    once = warm_up(device, commands)
    turns = max(1, min(200, round(ENOUGH / tries / once)))
    return gpu_seconds(device, commands, turns, tries), max(first - once, 0.0), results, kernels


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", help="parts of names, separated by commas")
    parser.add_argument("--tries", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = open_device()
    names = options.only.split(",")
    table = Table("operator", "shape", "ours, ms", "torch, ms", "ratio", "error", "first call, s", "kernels")
    for each in OPERATORS:
        if not any(name in each.name for name in names):
            continue
        inputs = inputs_of(each)
        ours, first, results, kernels = measured(device, each, options.tries)
        theirs = reference_seconds(each, inputs, options.tries)
        expected = each.reference(*(torch.from_numpy(array).double() for array in inputs))
        expected = (expected,) if isinstance(expected, torch.Tensor) else expected
        worst = max(
            float(np.max(np.abs(result - want.numpy()) / (np.abs(want.numpy()) + 1e-3), initial=0.0))
            for result, want in zip(results, expected, strict=True)
        )
        shape = " x ".join(map(str, each.shape))
        cells = f"{ours * 1e3:.3f}", f"{theirs * 1e3:.3f}", f"{ours / theirs:.1f}", f"{worst:.1e}", f"{first:.2f}"
        table.add_row(each.name, shape, *cells, kernels)
    table.title = f"{device.adapter.name}, {device.adapter.driver}"
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
