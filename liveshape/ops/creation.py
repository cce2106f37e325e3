"""Fills and ranges: tensors from nothing but a size, which may be live, and a scalar."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from liveshape.errors import ShapeError
from liveshape.graph import Shape, SymInt
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch
from liveshape.ops.copies import conversion
from liveshape.ops.pointwise import Build, Term, Viewed, apply, evaluate, pointwise
from liveshape.ops.registry import Ints, Number, op
from liveshape.ops.row_rules import elementwise
from liveshape.ops.shapes import ceil_div


def fill(shape: Shape, first: Number, out: LiveTensor, step: Number = 0) -> Iterator[Any]:
    """Element i of out, in memory order, becomes first + i * step."""
    e = Build(out.dtype)
    if step == 0:
        filled(e, first)
    else:
        e.call("add_scaled", first, Viewed(None, shape), step)
    yield from evaluate(e.made(), out, shape=shape)


def filled(e: Build, value: Any) -> Term:
    """A number in the place of a tensor that is filled with it."""
    if e.out != "bool":
        return e.call("copy", value)
    return e.call("to_bool", value if isinstance(value, SymInt) else int(value != 0))


FACTORY = "dtype layout device pin_memory"  # what a new tensor is told, and ours are anyway
_SIZED: dict[str, Any] = {"rows": None, "shape": lambda size, *_: size}
_LIKE: dict[str, Any] = {"shape": lambda x, *_: x.shape}


@pointwise("aten.full.default", schema=f"size value {FACTORY} out", **_SIZED)
@pointwise("aten::full.out", **_SIZED)
def full(e: Build, size: Ints, value: Number, *_: Any) -> Term:
    return filled(e, value)


@pointwise("aten.full_like.default", schema=f"x value {FACTORY} memory_format out", **_LIKE)
@pointwise("aten::full_like.out", schema="x value memory_format out", **_LIKE)
@pointwise("aten::fill.Scalar_out", **_LIKE)
def full_like(e: Build, x: LiveTensor, value: Number, *_: Any) -> Term:
    return filled(e, value)


def _register(name: str, value: int) -> None:
    @pointwise(f"aten.{name}.default", schema=f"size {FACTORY} out", **_SIZED)
    @pointwise(f"aten::{name}.out", **_SIZED)
    def sized(e: Build, size: Ints, *_: Any) -> Term:
        return filled(e, value)

    @pointwise(f"aten.{name}_like.default", schema=f"x {FACTORY} memory_format out", **_LIKE)
    def like(e: Build, x: LiveTensor, *_: Any) -> Term:
        return filled(e, value)


_register("zeros", 0)
_register("ones", 1)


@pointwise("aten.scalar_tensor.default", schema=f"value {FACTORY} out", rows=None)
@pointwise("aten::scalar_tensor.out", rows=None)
def scalar_tensor(e: Build, value: Number, *_: Any) -> Term:
    return filled(e, value)


# Zeros, so that a program that reads what it never wrote still gives the same answer every time.
@op("aten::empty.out", "dim_order_ops::_empty_dim_order.out", schema="size order out")
def empty(size: Ints, out: LiveTensor) -> Iterator[Dispatch]:
    yield from fill(size, 0, out)


@op("aten.fill.Tensor", "aten::fill.Tensor_out", rows=elementwise("x"))
def fill_tensor(x: LiveTensor, value: LiveTensor, out: LiveTensor) -> Iterator[Any]:
    if value.numel != 1:
        raise ShapeError(f"a tensor is filled with one element, {value.shape} was given")
    yield from apply(conversion(value.dtype, out.dtype), Viewed(value, x.shape, (0,) * x.rank), out=out)


@op("aten.arange.start_step", schema=f"start end step {FACTORY} out", any_size=True)
@op("aten::arange.start_out")
def arange(start: Number, end: Number, step: Number, out: LiveTensor) -> Iterator[Dispatch]:
    if step == 0 or (end - start) * step < 0:
        raise ShapeError(f"arange from {start} to {end} never arrives in steps of {step}")
    length = end - start
    if isinstance(length, float) or isinstance(step, float):
        count = math.ceil(length / step)
    else:
        count = ceil_div(length, step)
    yield from fill((count,), start, out, step)


@op("aten::arange.out")
def arange_end(end: Number, out: LiveTensor) -> Iterator[Dispatch]:
    yield from arange(0, end, 1, out)
