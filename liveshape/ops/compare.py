"""What decides: compares, logic, bits, where and masks, with broadcasting."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import Scratch
from liveshape.ops.binary import BINARY_SCALAR, binary, binary_scalar
from liveshape.ops.broadcasting import broadcast_layout
from liveshape.ops.creation import fill
from liveshape.ops.registry import Number, op
from liveshape.ops.row_rules import elementwise
from liveshape.ops.scalars import INT32_MAX, INT32_MIN, are_integers, float_of, int_of
from liveshape.ops.shapes import broadcast_shapes, ceil_div

WHERE = Kernel.load("elementwise/where")
_COMPARES = {
    "eq": "EQUAL",
    "ne": "NOT_EQUAL",
    "lt": "LESS",
    "le": "LESS_EQUAL",
    "gt": "GREATER",
    "ge": "GREATER_EQUAL",
}


def compare_scalar(function: str, x: LiveTensor, value: Number, out: LiveTensor) -> Iterator[Dispatch]:
    """out = function(x, value); an integer that no element can equal compares as an infinite float."""
    out.shape = x.shape
    inside = INT32_MIN <= value <= INT32_MAX
    integral = are_integers(x) and inside and value % 1 == 0
    if not inside and are_integers(x):
        value = value * float("inf")
    vectors = ceil_div(x.numel, 4)
    yield BINARY_SCALAR(
        out,
        x,
        count=vectors,
        number=0.0 if integral else float_of(value),
        whole=int_of(value) if integral else 0,
        OP=function,
        INTEGER=integral,
        SCALAR_FIRST=False,
        threads=vectors,
    )


def _register_compare(name: str, function: str) -> None:
    @op(f"aten.{name}.Tensor", f"aten::{name}.Tensor_out", rows=elementwise())
    def compare(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
        yield from binary(function, a, b, out)

    # The exporter's sliding-window masks compare so; elsewhere the number may be the context itself.
    of_windows = name in ("lt", "ge")

    @op(f"aten.{name}.Scalar", f"aten::{name}.Scalar_out", rows=elementwise(), any_size=of_windows)
    def compare_with(x: LiveTensor, value: Number, out: LiveTensor) -> Iterator[Dispatch]:
        yield from compare_scalar(function, x, value, out)


def _register_logical(name: str, function: str) -> None:
    @op(f"aten.{name}.default", f"aten::{name}.out", rows=elementwise(), any_size=True)
    def logical(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
        yield from binary(function, a, b, out)


def _register_bitwise(name: str, function: str) -> None:
    @op(f"aten.{name}.Tensor", f"aten::{name}.Tensor_out", rows=elementwise())
    def bitwise(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
        yield from binary(function, a, b, out)

    @op(f"aten.{name}.Scalar", f"aten::{name}.Scalar_out", rows=elementwise())
    def bitwise_with(x: LiveTensor, value: Number, out: LiveTensor) -> Iterator[Dispatch]:
        yield from binary_scalar(function, x, value, out)


def _register_shift(side: str) -> None:
    name, other = f"bitwise_{side}_shift", f"__{side[0]}shift__"

    @op(
        f"aten.{name}.Tensor", f"aten::{name}.Tensor_out", f"aten.{other}.Tensor", f"aten::{other}.Tensor_out",
        rows=elementwise(),
    )  # fmt: skip
    def shift(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
        yield from binary(f"{side.upper()}_SHIFT", a, b, out)

    @op(
        f"aten.{name}.Tensor_Scalar", f"aten::{name}.Tensor_Scalar_out",
        f"aten.{other}.Scalar", f"aten::{other}.Scalar_out", rows=elementwise())  # fmt: skip
    def shift_by(x: LiveTensor, value: Number, out: LiveTensor) -> Iterator[Dispatch]:
        yield from binary_scalar(f"{side.upper()}_SHIFT", x, value, out)


for _name, _function in _COMPARES.items():
    _register_compare(_name, _function)
for _name in ("logical_and", "logical_or", "logical_xor"):
    _register_logical(_name, _name.upper())
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    _register_bitwise(_name, _name.upper())
for _name in ("left", "right"):
    _register_shift(_name)


@op("aten.logical_not.default", "aten::logical_not.out", rows=elementwise())
def logical_not(x: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    yield from compare_scalar("EQUAL", x, 0, out)


@op("aten.bitwise_not.default", "aten::bitwise_not.out", rows=elementwise())
def bitwise_not(x: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    # All bits of a boolean are its one bit.
    yield from binary_scalar("BITWISE_XOR", x, 1 if x.dtype == "bool" else -1, out)


@op("aten.where.self", "aten::where.self_out", rows=elementwise(), any_size=True)
def where(condition: LiveTensor, a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    are_integers(condition, a, b, out)
    out.shape = shape = broadcast_shapes(condition.shape, a.shape, b.shape)
    yield WHERE(out, condition, a, b, **broadcast_layout(shape, condition.shape, a.shape, b.shape))


@op("aten.masked_fill.Tensor", "aten::masked_fill.Tensor_out", rows=elementwise())
def masked_fill_tensor(x: LiveTensor, mask: LiveTensor, value: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    yield from where(mask, value, x, out)


@op("aten.masked_fill.Scalar", "aten::masked_fill.Scalar_out", rows=elementwise())
def masked_fill(
    x: LiveTensor, mask: LiveTensor, value: Number, out: LiveTensor
) -> Generator[Dispatch | Scratch, Any, None]:
    filling: LiveTensor = yield Scratch(out.dtype, ())
    yield from fill((), value, filling)
    yield from where(mask, filling, x, out)
