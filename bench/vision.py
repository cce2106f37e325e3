"""The convolutions of MobileNetV2 and ResNet18, layer by layer, beside a GEMM of the same size and torch.

Run: python -m bench.vision [--network resnet18] [--batch 1] [--size 224]
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from bench.gpu_time import gpu_seconds
from liveshape import ops
from liveshape.device.backends import open_device
from liveshape.graph import Graph, Tensor
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor

ENOUGH = 0.1  # seconds of work per measurement


class Layer(NamedTuple):
    """One convolution, padded by half of its kernel."""

    channels: int
    outputs: int
    size: int
    kernel: int
    stride: int
    groups: int

    @property
    def kind(self) -> str:
        return "depthwise" if self.groups > 1 else "pointwise" if self.kernel == self.stride == 1 else "general"

    @property
    def side(self) -> int:
        return (self.size - 1) // self.stride + 1

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


NETWORKS: dict[str, Callable[[int], Iterator[Layer]]] = {"resnet18": resnet18, "mobilenet_v2": mobilenet_v2}


def constant(name: str, *shape: int) -> Tensor:
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return Tensor(name, "float32", shape, constant=memoryview(values).cast("B"))


def convolution(layer: Layer, batch: int) -> Graph:
    x = Tensor("x", "float32", (batch, layer.channels, layer.size, layer.size))
    weight = constant("weight", layer.outputs, layer.channels // layer.groups, layer.kernel, layer.kernel)
    bias = constant("bias", layer.outputs)
    out = Tensor("out", "float32", (batch, layer.outputs, layer.side, layer.side))
    pair = (layer.stride,) * 2, (layer.kernel // 2,) * 2, (1, 1)
    args = (x, weight, bias, *pair, False, (0, 0), layer.groups, 0.0, 6.0, out)
    node = ops.OPS["et_vk.conv_with_clamp.default"].bind(0, "convolution", args)
    return Graph("layer", (node,), (x, weight, bias, out), (x,), (out,))


def same_product(layer: Layer, batch: int) -> Graph:
    """The GEMM of the layer after im2col."""
    x = Tensor("x", "float32", (layer.depth, batch * layer.side**2))
    weight = constant("weight", layer.outputs, layer.depth)
    out = Tensor("out", "float32", (layer.outputs, batch * layer.side**2))
    node = ops.OPS["aten.mm.default"].bind(0, "product", (weight, x, out))
    return Graph("product", (node,), (x, weight, out), (x,), (out,))


def seconds(graph: Graph, tries: int) -> float:
    device = open_device()
    executor = Executor(compile(graph, device.limits), device)
    (x,) = graph.inputs
    assert isinstance(x, Tensor)
    executor.execute([np.random.default_rng(1).standard_normal(x.max_shape).astype(np.float32)])
    commands = executor.encoder.commands(executor.live, 0, len(graph.nodes))
    once = gpu_seconds(device, commands, 1, 2)
    return gpu_seconds(device, commands, max(1, min(200, round(ENOUGH / once))), tries)


def torch_seconds(layer: Layer, batch: int, tries: int) -> float:
    module = torch.nn.Conv2d(
        layer.channels, layer.outputs, layer.kernel, layer.stride, layer.kernel // 2, groups=layer.groups
    )
    x = torch.randn(batch, layer.channels, layer.size, layer.size)
    best = float("inf")
    with torch.inference_mode():
        module(x)
        for _ in range(tries):
            start = time.perf_counter()
            module(x)
            best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--network", choices=NETWORKS, nargs="*", default=list(NETWORKS))
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--size", type=int, help="of the image (default: 224, and 64 on a software adapter)")
    parser.add_argument("--tries", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(2)
    size = options.size or (64 if open_device().adapter.software else 224)
    for network in options.network:
        report(network, options.batch, size, options.tries)


def report(network: str, batch: int, size: int, tries: int) -> None:
    title = f"{network}, {batch} x {size}², on {open_device().adapter.name}"
    table = Table(
        "layer", "times", "kernel", "ms", "GFLOP/s", "against a product", "against torch, 2 threads", title=title
    )
    totals: dict[str, Counter[str]] = {}
    for layer, times in Counter(NETWORKS[network](size)).items():
        ours, theirs = seconds(convolution(layer, batch), tries), torch_seconds(layer, batch, tries)
        work = 2 * batch * layer.side**2 * layer.outputs * layer.depth
        product: Any = "" if layer.groups > 1 else ours / seconds(same_product(layer, batch), tries)
        total = totals.setdefault(layer.kind, Counter())
        total.update({"times": times, "work": work * times})
        total["ours"] += ours * times  # type: ignore[assignment]
        total["theirs"] += theirs * times  # type: ignore[assignment]
        table.add_row(str(layer), *_row(times, layer.kind, ours, work, theirs, product))
    table.add_section()
    for kind, total in totals.items():
        table.add_row("all", *_row(total["times"], kind, total["ours"], total["work"], total["theirs"], ""))
    Console().print(table)


def _row(times: int, kind: str, ours: float, work: float, theirs: float, product: Any) -> tuple[str, ...]:
    beside = f"{product:.2f}x" if product else ""
    return str(times), kind, f"{ours * 1e3:.3f}", f"{work / ours / 1e9:.2f}", beside, f"{ours / theirs:.2f}x"


if __name__ == "__main__":
    main()
