"""The convolutions of image networks, layer by layer, beside a GEMM and a 4-bit layer of the same size, and torch.

Run: python -m bench.vision [--network resnet18 unet] [--batch 1] [--size 224] [--cpu-time] [--activations float16]

On a software adapter that shares its cores with other work, --cpu-time with LP_NUM_THREADS=1 gives rates of one core.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from bench.gemv import row_of_layers
from bench.gpu_time import cpu_seconds, gpu_seconds
from liveshape import ops
from liveshape.device.backends import open_device
from liveshape.graph import Graph, Tensor
from liveshape.graph.activation_kinds import FLOAT16, FLOAT32, with_rounding
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor

ENOUGH = 0.1  # seconds of work per measurement
QUANT_GROUP = 32  # of the 4-bit layer


class Layer(NamedTuple):
    """One convolution, padded by half of its kernel, or a transposed one, not padded."""

    channels: int
    outputs: int
    size: int
    kernel: int
    stride: int
    groups: int
    transposed: bool = False

    @property
    def kind(self) -> str:
        if self.transposed:
            return "transposed"
        if self.groups > 1:
            return "depthwise" if self.groups == self.channels else "grouped"
        return "pointwise" if self.kernel == self.stride == 1 else "general"

    @property
    def padding(self) -> int:
        return 0 if self.transposed else self.kernel // 2

    @property
    def side(self) -> int:
        if self.transposed:
            return (self.size - 1) * self.stride + self.kernel
        return (self.size - 1) // self.stride + 1

    @property
    def weight(self) -> tuple[int, ...]:
        pair = (self.channels, self.outputs) if self.transposed else (self.outputs, self.channels)
        return pair[0], pair[1] // self.groups, self.kernel, self.kernel

    @property
    def gemm(self) -> tuple[int, int, int]:
        """Columns, depth and rows of the product of as many operations; each pixel of a transposed one is a column."""
        if self.transposed:
            return self.size**2, self.channels // self.groups, self.outputs * self.kernel**2
        return self.side**2, self.depth, self.outputs

    @property
    def depth(self) -> int:
        return self.channels // self.groups * self.kernel**2

    def __str__(self) -> str:
        return f"{self.channels} to {self.outputs}, {self.size}², kernel {self.kernel}, stride {self.stride}"


def resnet18(size: int) -> Iterator[Layer]:
    yield Layer(3, 64, size, 7, 2, 1)
    size, channels = (size + 3) // 4, 64
    for outputs in (64, 128, 256, 512):
        stride = 1 if outputs == channels else 2
        yield Layer(channels, outputs, size, 3, stride, 1)
        if stride == 2:
            yield Layer(channels, outputs, size, 1, 2, 1)
        size, channels = (size - 1) // stride + 1, outputs
        yield from (Layer(channels, channels, size, 3, 1, 1) for _ in range(3))


def mobilenet_v2(size: int) -> Iterator[Layer]:
    yield Layer(3, 32, size, 3, 2, 1)
    size, channels = (size + 1) // 2, 32
    blocks = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expansion, outputs, count, first_stride in blocks:
        for stride in (first_stride, *(1,) * (count - 1)):
            hidden = channels * expansion
            if expansion > 1:
                yield Layer(channels, hidden, size, 1, 1, 1)
            yield Layer(hidden, hidden, size, 3, stride, hidden)
            size = (size - 1) // stride + 1
            yield Layer(hidden, outputs, size, 1, 1, 1)
            channels = outputs
    yield Layer(channels, 1280, size, 1, 1, 1)


def unet(size: int) -> Iterator[Layer]:
    """That of bench.networks."""
    widths = (32, 64, 128, 256)
    for level, (channels, outputs) in enumerate(zip((3, *widths), widths, strict=False)):
        yield from (Layer(inside, outputs, size >> level, 3, 1, 1) for inside in (channels, outputs))
    for level, outputs in reversed([*enumerate(widths[:-1])]):
        yield Layer(2 * outputs, outputs, size >> level + 1, 2, 2, 1, transposed=True)
        yield from (Layer(inside, outputs, size >> level, 3, 1, 1) for inside in (2 * outputs, outputs))
    yield Layer(widths[0], 2, size, 1, 1, 1)


def resnext50(size: int) -> Iterator[Layer]:
    """32 groups of 4 channels and more."""
    return bottlenecks(size, 128, 32)


def resnet50(size: int) -> Iterator[Layer]:
    return bottlenecks(size, 64, 1)


def bottlenecks(size: int, first_width: int, groups: int) -> Iterator[Layer]:
    yield Layer(3, 64, size, 7, 2, 1)
    size, channels = (size + 3) // 4, 64
    for stage, count in enumerate((3, 4, 6, 3)):
        width, outputs = first_width << stage, 256 << stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            yield Layer(channels, width, size, 1, 1, 1)
            yield Layer(width, width, size, 3, stride, groups)
            if not block:
                yield Layer(channels, outputs, size, 1, stride, 1)
            size, channels = (size - 1) // stride + 1, outputs
            yield Layer(width, outputs, size, 1, 1, 1)


NETWORKS: dict[str, Callable[[int], Iterator[Layer]]] = {
    "resnet18": resnet18,
    "mobilenet_v2": mobilenet_v2,
    "unet": unet,
    "resnet50": resnet50,
    "resnext50": resnext50,
}


def constant(name: str, *shape: int) -> Tensor:
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return Tensor(name, "float32", shape, constant=memoryview(values).cast("B"))


def convolution(layer: Layer, batch: int) -> Graph:
    x = Tensor("x", "float32", (batch, layer.channels, layer.size, layer.size))
    weight = constant("weight", *layer.weight)
    bias = constant("bias", layer.outputs)
    out = Tensor("out", "float32", (batch, layer.outputs, layer.side, layer.side))
    pair = (layer.stride,) * 2, (layer.padding,) * 2, (1, 1)
    args = (x, weight, bias, *pair, layer.transposed, (0, 0), layer.groups, 0.0, 6.0, out)
    node = ops.OPS["et_vk.conv_with_clamp.default"].bind(0, "convolution", args)
    return Graph("layer", (node,), (x, weight, bias, out), (x,), (out,))


def same_product(layer: Layer, batch: int) -> Graph:
    """The GEMM of the layer after im2col."""
    columns, depth, rows = layer.gemm
    x = Tensor("x", "float32", (depth, batch * columns))
    weight = constant("weight", rows, depth)
    out = Tensor("out", "float32", (rows, batch * columns))
    node = ops.OPS["aten.mm.default"].bind(0, "product", (weight, x, out))
    return Graph("product", (node,), (x, weight, out), (x,), (out,))


def same_linear(layer: Layer, batch: int) -> tuple[Graph, int]:
    """The 4-bit layer of that size, its depth in whole groups; and its operations."""
    rows, depth, columns = batch * layer.gemm[0], -(-layer.gemm[1] // QUANT_GROUP) * QUANT_GROUP, layer.gemm[2]
    return row_of_layers(1, rows, depth, columns, QUANT_GROUP), 2 * rows * depth * columns


def seconds(graph: Graph, tries: int, cpu_time: bool, activations: str) -> float:
    device = open_device()
    executor = Executor(compile(graph, with_rounding(device.limits, activations)), device)
    (x,) = graph.inputs
    assert isinstance(x, Tensor)
    executor.execute([np.random.default_rng(1).standard_normal(x.max_shape).astype(np.float32)])
    commands = executor.encoder.commands(executor.live, 0, len(graph.nodes))
    if cpu_time:
        return cpu_seconds(device, commands, tries)
    once = gpu_seconds(device, commands, 1, 2)
    return gpu_seconds(device, commands, max(1, min(200, round(ENOUGH / once))), tries)


def torch_seconds(layer: Layer, batch: int, tries: int, cpu_time: bool) -> float:
    kind: Any = torch.nn.ConvTranspose2d if layer.transposed else torch.nn.Conv2d
    module = kind(layer.channels, layer.outputs, layer.kernel, layer.stride, layer.padding, groups=layer.groups)
    x = torch.randn(batch, layer.channels, layer.size, layer.size)
    clock = time.process_time if cpu_time else time.perf_counter
    best = float("inf")
    with torch.inference_mode():
        module(x)
        for _ in range(tries):
            start = clock()
            module(x)
            best = min(best, clock() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--network", choices=NETWORKS, nargs="*", default=list(NETWORKS))
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--size", type=int, help="of the image (default: 224, and 64 on a software adapter)")
    parser.add_argument("--tries", type=int, default=4)
    parser.add_argument("--cpu-time", action="store_true", help="of the driver, where other work shares its cores")
    parser.add_argument("--activations", choices=(FLOAT32, FLOAT16), default=FLOAT32)
    options = parser.parse_args()
    torch.set_num_threads(1 if options.cpu_time else 2)
    size = options.size or (64 if open_device().adapter.software else 224)
    for network in options.network:
        report(network, options.batch, size, options.tries, options.cpu_time, options.activations)


def report(network: str, batch: int, size: int, tries: int, cpu_time: bool, activations: str) -> None:
    title = f"{network}, {batch} x {size}², {activations}, on {open_device().adapter.name}"
    columns = "layer", "times", "kernel", "ms", "GFLOP/s", "a product", "a 4-bit layer", "torch"
    table = Table(*columns, title=title, caption="the last four are GFLOP/s, of as many operations")
    totals: dict[str, Counter[str]] = {}
    for layer, times in Counter(NETWORKS[network](size)).items():
        work = 2 * batch * math.prod(layer.gemm)
        took = {
            "ours": seconds(convolution(layer, batch), tries, cpu_time, activations),
            "torch": torch_seconds(layer, batch, tries, cpu_time),
        }
        beside = {}
        if layer.groups == 1:
            linear, linear_work = same_linear(layer, batch)
            took["product"] = seconds(same_product(layer, batch), tries, cpu_time, activations)
            beside["linear"] = linear_work / seconds(linear, tries, cpu_time, activations)
        beside |= {name: work / value for name, value in took.items()}
        total = totals.setdefault(layer.kind, Counter())
        total.update({"times": times, "work": work * times})
        total["ours"] += took["ours"] * times  # type: ignore[assignment]
        table.add_row(str(layer), *_row(times, layer.kind, took["ours"], beside))
    table.add_section()
    for kind, total in totals.items():
        table.add_row("all", *_row(total["times"], kind, total["ours"], {"ours": total["work"] / total["ours"]}))
    Console().print(table)


def _row(times: int, kind: str, ours: float, rates: dict[str, float]) -> tuple[str, ...]:
    shown = (f"{rates[name] / 1e9:.2f}" if name in rates else "" for name in ("ours", "product", "linear", "torch"))
    return str(times), kind, f"{ours * 1e3:.3f}", *shown


if __name__ == "__main__":
    main()
