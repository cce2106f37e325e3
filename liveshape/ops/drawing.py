"""A counter-based random number generator: a function of the tensor, of the call, and of the index.

A program that is loaded anew draws the same again, call by call; they are not the numbers that torch would draw. Inside
one call a loop draws the same in each of its iterations.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator
from typing import Any

from liveshape.errors import ShapeError
from liveshape.graph import Shape
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import Role
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import CallCount, Scratch
from liveshape.ops.copies import copy_values
from liveshape.ops.creation import fill
from liveshape.ops.pointwise import apply
from liveshape.ops.registry import Ints, Tensors, op
from liveshape.ops.sorting import argsort

DRAW = Kernel.load("elementwise/draw")

Steps = Generator[Dispatch | Scratch | CallCount, Any, None]


def _draw(
    function: str, shape: Shape, out: LiveTensor, low: int = 0, span: int = 1, high: float = 0.0
) -> Generator[Dispatch | CallCount, Any, None]:
    """Fill out with draws; `low` and `span` are of integers, `high` is the probability of a flag."""
    call: int = (yield CallCount()) or 0  # none while nothing runs yet
    out.shape = shape
    yield DRAW(
        out,
        count=out.numel,
        stream=zlib.crc32(out.name.encode()),
        call=call % (1 << 32),
        bits=11 if out.dtype == "float16" else 24,  # what the type holds below one
        low=low,
        span=span,
        high=high,
        OP=function,
        threads=out.numel,
    )


def _register(name: str, function: str) -> None:
    @op(f"aten.{name}.default", reads_data=True, role=Role.DRAW)
    def drawn(size: Ints, dtype: Any, layout: Any, device: Any, pin_memory: Any, out: LiveTensor) -> Steps:
        yield from _draw(function, size, out)

    @op(f"aten::{name}.out", reads_data=True, role=Role.DRAW)
    def drawn_out(size: Ints, out: LiveTensor) -> Steps:
        yield from _draw(function, size, out)

    @op(f"aten.{name}_like.default", reads_data=True, role=Role.DRAW)
    def like(
        x: LiveTensor, dtype: Any, layout: Any, device: Any, pin_memory: Any, order: Any, out: LiveTensor
    ) -> Steps:
        yield from _draw(function, x.shape, out)

    @op(f"aten::{name}_like.out", reads_data=True, role=Role.DRAW)
    def like_out(x: LiveTensor, order: Any, out: LiveTensor) -> Steps:
        yield from _draw(function, x.shape, out)


_register("rand", "UNIFORM")
_register("randn", "NORMAL")


@op("aten::randint.low_out", reads_data=True, role=Role.DRAW)
def randint(low: int, high: int, size: Ints, out: LiveTensor) -> Steps:
    if not low < high:
        raise ShapeError(f"randint from {low} up to {high}: there is no number between them")
    yield from _draw("INTEGER", size, out, low, high - low)


@op("aten::randint.out", reads_data=True, role=Role.DRAW)
def randint_below(high: int, size: Ints, out: LiveTensor) -> Steps:
    yield from randint(0, high, size, out)


@op("aten::randperm.out", reads_data=True, role=Role.DRAW)
def randperm(n: int, out: LiveTensor) -> Steps:
    """A random permutation: the argsort of as many draws."""
    keys: LiveTensor = yield Scratch("int32", out.max_shape)
    yield from _draw("INTEGER", (n,), keys, span=0)
    yield from argsort(keys, 0, False, out)


@op("aten.native_dropout.default", "aten::native_dropout.out", reads_data=True, role=Role.DRAW)
def native_dropout(x: LiveTensor, p: float, train: bool | None, out: Tensors) -> Steps:
    """Outside of training, which is when it is told so, x itself and a mask of ones."""
    result, mask = out
    scaled: LiveTensor = yield Scratch(x.dtype, x.max_shape)
    result.shape = x.shape
    if train is False:
        yield from _untouched(x, result, mask)
        return
    yield from _draw("FLAG", x.shape, mask, high=1.0 - p)
    yield from apply("mul", x, 1.0 / (1.0 - p) if p < 1 else 0.0, out=scaled)
    yield from apply("where", mask, scaled, 0.0, out=result)


def _untouched(x: LiveTensor, out: LiveTensor, mask: LiveTensor) -> Iterator[Dispatch]:
    yield from copy_values(x, out)
    yield from fill(x.shape, 1, mask)
