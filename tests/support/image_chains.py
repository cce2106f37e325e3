"""A builder for chains of image operators, each with what it gives in torch's float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from liveshape.graph import Graph, Tensor
from tests.support.chains import Chain

ONE = (1, 1)
Function = Callable[..., torch.Tensor]


class Images(Chain):
    """Adds nodes by what they do; `golden` evaluates the chain for images."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.random = np.random.default_rng(seed)
        self.steps: list[tuple[Tensor, Function, tuple[Tensor, ...]]] = []

    def step(self, operator: str, function: Function, read: tuple[Tensor, ...], *args: Any) -> Tensor:
        """A node with these arguments but the output, which has the shape that `function` gives at the bound."""
        shape = tuple(function(*(torch.zeros(each.max_shape) for each in read)).shape)
        out = self.tensor(shape)
        self.node(operator, *args, out)
        self.steps.append((out, function, read))
        return out

    def write(self, target: Tensor, source: Tensor | None = None) -> Tensor:
        """Overwrite a tensor in place: with another one, or with a constant row."""
        if source is None:
            row, held = self.numbers(target.max_shape[-1])
            self.node("aten.copy_.default", target, held, False, target)
            self.steps.append((target, lambda there: row.to(there.dtype).expand_as(there), (target,)))
        else:
            self.node("aten.copy_.default", target, source, False, target)
            self.steps.append((target, lambda there: there, (source,)))
        return target

    def numbers(self, *shape: int, scale: float = 1.0) -> tuple[torch.Tensor, Tensor]:
        """A constant, and what it holds."""
        array = (scale * self.random.standard_normal(shape)).astype(np.float32)
        return torch.from_numpy(array), self.constant(array)

    def convolution(
        self, x: Tensor, rows: int, kernel: int | tuple[int, int] = 3, stride: int = 1, padding: int = 0,
        dilation: int = 1, bias: bool = True, clamp: tuple[float | None, float | None] | None = None,
    ) -> Tensor:  # fmt: skip
        sizes = (kernel, kernel) if isinstance(kernel, int) else kernel
        channels = x.max_shape[1]
        weight, w = self.numbers(rows, channels, *sizes, scale=(channels * sizes[0] * sizes[1]) ** -0.5)
        addend, b = self.numbers(rows) if bias else (None, None)

        def function(image: torch.Tensor) -> torch.Tensor:
            kind = image.dtype
            added = None if addend is None else addend.to(kind)
            made = functional.conv2d(image, weight.to(kind), added, stride, padding, dilation)
            return made if clamp is None else made.clamp(*clamp)

        args = (x, w, b, (stride,) * 2, (padding,) * 2, (dilation,) * 2, False, (0, 0), 1)
        if clamp is None:
            return self.step("aten::convolution.out", function, (x,), *args)
        return self.step("et_vk.conv_with_clamp.default", function, (x,), *args, *clamp)

    def convolution_along(self, x: Tensor, rows: int, kernel: int, stride: int = 1, padding: int = 0) -> Tensor:
        """Of rows of numbers with channels."""
        channels = x.max_shape[1]
        weight, w = self.numbers(rows, channels, kernel, scale=(channels * kernel) ** -0.5)
        addend, b = self.numbers(rows)

        def function(row: torch.Tensor) -> torch.Tensor:
            return functional.conv1d(row, weight.to(row.dtype), addend.to(row.dtype), stride, padding)

        args = (x, w, b, (stride,), (padding,), (1,), False, (0,), 1)
        return self.step("aten.convolution.default", function, (x,), *args)

    def gelu(self, x: Tensor) -> Tensor:
        return self.step("aten.gelu.default", functional.gelu, (x,), x, "none")

    def relu(self, x: Tensor) -> Tensor:
        return self.step("aten.relu.default", torch.relu, (x,), x)

    def silu(self, x: Tensor) -> Tensor:
        y = self.step("aten.sigmoid.default", torch.sigmoid, (x,), x)
        return self.step("aten.mul.Tensor", torch.mul, (x, y), x, y)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self.step("aten.add.Tensor", torch.add, (x, y), x, y, 1)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        return self.step("aten.mul.Tensor", torch.mul, (x, y), x, y)

    def max_pool(self, x: Tensor, kernel: int, stride: int, padding: int, ceil: bool = False) -> Tensor:
        def function(image: torch.Tensor) -> torch.Tensor:
            return functional.max_pool2d(image, kernel, stride, padding, ceil_mode=ceil)

        args = (x, (kernel,) * 2, (stride,) * 2, (padding,) * 2, ONE, ceil)
        return self.step("aten.max_pool2d.default", function, (x,), *args)

    def average_pool(self, x: Tensor, kernel: int, padding: int = 0, whole: bool = True) -> Tensor:
        def function(image: torch.Tensor) -> torch.Tensor:
            return functional.avg_pool2d(image, kernel, kernel, padding, False, whole)

        args = (x, (kernel,) * 2, (), (padding,) * 2, False, whole, None)
        return self.step("aten.avg_pool2d.default", function, (x,), *args)

    def mean(self, x: Tensor) -> Tensor:
        return self.step("aten.mean.dim", lambda image: image.mean((2, 3), True), (x,), x, (-1, -2), True, None)

    def enlarge(self, x: Tensor) -> Tensor:
        def function(image: torch.Tensor) -> torch.Tensor:
            return functional.interpolate(image, scale_factor=2.0, mode="nearest")

        return self.step("aten.upsample_nearest2d.vec", function, (x,), x, None, (2.0, 2.0))

    def group_norm(self, x: Tensor, groups: int, affine: bool = True) -> Tensor:
        channels = x.max_shape[1]
        (weight, w), (bias, b) = (self.numbers(channels), self.numbers(channels)) if affine else ((None, None),) * 2

        def function(image: torch.Tensor) -> torch.Tensor:
            given = (None if each is None else each.to(image.dtype) for each in (weight, bias))
            return functional.group_norm(image, groups, *given, 1e-5)

        return self.step("liveshape.group_norm", function, (x,), x, w, b, 1, channels, 1, groups, 1e-5)

    def cat(self, *images: Tensor) -> Tensor:
        return self.step("aten.cat.default", lambda *each: torch.cat(each, 1), images, images, 1)

    def linear(self, x: Tensor, columns: int) -> Tensor:
        depth = x.max_shape[-1]
        weight, w = self.numbers(columns, depth, scale=depth**-0.5)
        return self.step("aten.linear.default", lambda rows: rows @ weight.to(rows.dtype).T, (x,), x, w, None)

    def rows(self, x: Tensor) -> Tensor:
        """The pixels of images of whole size as rows of channels."""
        batch = self.node("sym_size.int", x, 0, self.scalar())
        channels, *sizes = x.max_shape[1:]
        pixels = sizes[0] * sizes[1]
        flat = self.step("aten.view_copy.default", lambda image: image.flatten(2), (x,), x, (batch, channels, pixels))
        return self.step("aten.transpose_copy.int", lambda each: each.transpose(1, 2), (flat,), flat, 1, 2)

    def image(self, x: Tensor, height: int, width: int) -> Tensor:
        """Rows of channels as images."""
        batch = self.node("sym_size.int", x, 0, self.scalar())
        turned = self.step("aten.permute_copy.default", lambda each: each.transpose(1, 2), (x,), x, (0, 2, 1))
        sizes = (batch, x.max_shape[2], height, width)
        return self.step(
            "aten.view_copy.default", lambda each: each.unflatten(2, (height, width)), (turned,), turned, sizes
        )

    def golden(self, graph: Graph, *arrays: np.ndarray) -> list[np.ndarray]:
        """The outputs of a graph for its inputs, in float64."""
        known = dict(zip(graph.inputs, (torch.from_numpy(each).double() for each in arrays), strict=True))
        for out, function, read in self.steps:
            known[out] = function(*(known[each] for each in read))
        return [known[out].numpy() for out in graph.outputs]
