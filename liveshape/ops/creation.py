"""Fills and ranges: tensors from nothing but a size, which may be live, and a scalar."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from typing import Any

from liveshape.errors import ShapeError
from liveshape.graph import Shape, SymInt
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch
from liveshape.kernels.requests import Scratch
from liveshape.ops.copies import as_dtype, copy_strided
from liveshape.ops.pointwise import Build, Ramp, Term, evaluate
from liveshape.ops.registry import Ints, Number, op
from liveshape.ops.row_rules import elementwise
from liveshape.ops.shapes import ceil_div, strides_of


def fill(shape: Shape, first: Number, out: LiveTensor, step: Number = 0) -> Iterator[Any]:
    """Element i of out, in memory order, becomes first + i * step."""
    e = Build(out.dtype)
    if step == 0:
        filled(e, first)
    else:
        e.call("add_scaled", first, Ramp(shape, strides_of(shape)), step)
    yield from evaluate(e.made(), out, shape=shape)


def filled(e: Build, value: Any) -> Term:
    """A number in the place of a tensor that is filled with it."""
    if e.out != "bool":
        return e.call("copy", value)
    return e.call("to_bool", value if isinstance(value, SymInt) else int(value != 0))


def filled_after(e: Build, _: Any, value: Any, *rest: Any) -> Term:
    return filled(e, value)


def filled_with(value: int) -> Callable[..., Term]:
    return lambda e, *_: filled(e, value)


FACTORY = "dtype layout device pin_memory"  # what a new tensor is told, and ours are anyway


@op("aten.full.default", schema=f"size value {FACTORY} out", pointwise=filled_after)
@op("aten::full.out", pointwise=filled_after)
def full(size: Ints, value: Number, out: LiveTensor) -> Iterator[Dispatch]:
    yield from fill(size, value, out)


@op(
    "aten.full_like.default",
    schema=f"x value {FACTORY} memory_format out",
    rows=elementwise("x"),
    pointwise=filled_after,
)
@op("aten::full_like.out", schema="x value memory_format out", rows=elementwise("x"), pointwise=filled_after)
@op("aten::fill.Scalar_out", rows=elementwise("x"), pointwise=filled_after)
def full_like(x: LiveTensor, value: Number, out: LiveTensor) -> Iterator[Dispatch]:
    yield from fill(x.shape, value, out)


@op("aten.fill.Tensor", "aten::fill.Tensor_out", rows=elementwise("x"))
def fill_tensor(x: LiveTensor, value: LiveTensor, out: LiveTensor) -> Generator[Dispatch | Scratch, Any, None]:
    if value.numel != 1:
        raise ShapeError(f"a tensor is filled with one element, {value.shape} was given")
    one = yield from as_dtype(value, out.dtype)
    out.shape = shape = x.shape
    yield from copy_strided(one, out, shape, (0, (0,) * x.rank), (0, strides_of(shape)))


# Zeros, so that a program that reads what it never wrote still gives the same answer every time.
@op("aten::empty.out", "dim_order_ops::_empty_dim_order.out", schema="size order out")
@op("aten.zeros.default", schema=f"size {FACTORY} out", pointwise=filled_with(0))
@op("aten::zeros.out", pointwise=filled_with(0))
def zeros(size: Ints, out: LiveTensor) -> Iterator[Dispatch]:
    yield from fill(size, 0, out)


@op("aten.ones.default", schema=f"size {FACTORY} out", pointwise=filled_with(1))
@op("aten::ones.out", pointwise=filled_with(1))
def ones(size: Ints, out: LiveTensor) -> Iterator[Dispatch]:
    yield from fill(size, 1, out)


_LIKE = f"x {FACTORY} memory_format out"


@op("aten.zeros_like.default", schema=_LIKE, rows=elementwise("x"), pointwise=filled_with(0))
def zeros_like(x: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    yield from fill(x.shape, 0, out)


@op("aten.ones_like.default", schema=_LIKE, rows=elementwise("x"), pointwise=filled_with(1))
def ones_like(x: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    yield from fill(x.shape, 1, out)


@op("aten.scalar_tensor.default", schema=f"value {FACTORY} out", pointwise=lambda e, value, *_: filled(e, value))
@op("aten::scalar_tensor.out", pointwise=filled)
def scalar_tensor(value: Number, out: LiveTensor) -> Iterator[Dispatch]:
    yield from fill((), value, out)


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
