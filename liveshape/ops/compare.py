"""What decides: compares, logic, bits, where and masks, with broadcasting."""

from __future__ import annotations

from typing import Any

from liveshape.errors import UnsupportedError
from liveshape.graph import SymInt
from liveshape.graph.expression import is_whole
from liveshape.graph.live import LiveTensor
from liveshape.ops.pointwise import Build, Term, pointwise
from liveshape.ops.registry import Number
from liveshape.ops.scalars import INT32_MAX, INT32_MIN


def compared(e: Build, function: str, x: Any, value: Number) -> Term:
    """function(x, value); an integer that no element can equal compares as an infinite float."""
    if not is_whole(x.dtype):
        return e.call(function, x, value)
    if isinstance(value, SymInt):
        raise UnsupportedError("whether a live number is one of the elements' integers is known at a call")
    inside = INT32_MIN <= value <= INT32_MAX
    if inside and value % 1 == 0:
        return e.call(function, x, value)
    return e.call(function, e.call("copy", x, dtype="float32"), value if inside else value * float("inf"))


def _register_compare(name: str) -> None:
    @pointwise(f"aten.{name}.Tensor", f"aten::{name}.Tensor_out")
    def compare(e: Build, a: LiveTensor, b: LiveTensor) -> Term:
        return e.call(name, a, b)

    # The exporter's sliding-window masks compare so; elsewhere the number may be the context itself.
    of_windows = name in ("lt", "ge")

    @pointwise(f"aten.{name}.Scalar", f"aten::{name}.Scalar_out", any_size=of_windows)
    def compare_with(e: Build, x: LiveTensor, value: Number) -> Term:
        return compared(e, name, x, value)


def _register_logical(name: str) -> None:
    @pointwise(f"aten.{name}.default", f"aten::{name}.out", any_size=True)
    def logical(e: Build, a: LiveTensor, b: LiveTensor) -> Term:
        return e.call(name, a, b)


def _register_bits(function: str, names: tuple[str, ...], with_numbers: tuple[str, ...]) -> None:
    @pointwise(*names)
    def bits(e: Build, a: LiveTensor, b: LiveTensor) -> Term:
        return e.call(function, a, b)

    @pointwise(*with_numbers)
    def bits_with(e: Build, x: LiveTensor, value: Number) -> Term:
        return e.call(function, x, value)


def _names(operator: str, overload: str) -> tuple[str, str]:
    return f"aten.{operator}.{overload}", f"aten::{operator}.{overload}_out"


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _register_compare(_name)
for _name in ("logical_and", "logical_or", "logical_xor"):
    _register_logical(_name)
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    _register_bits(_name, _names(_name, "Tensor"), _names(_name, "Scalar"))
for _side in ("left", "right"):
    _long, _short = f"bitwise_{_side}_shift", f"__{_side[0]}shift__"
    _register_bits(
        f"{_side}_shift",
        (*_names(_long, "Tensor"), *_names(_short, "Tensor")),
        (*_names(_long, "Tensor_Scalar"), *_names(_short, "Scalar")),
    )


@pointwise("aten.logical_not.default", "aten::logical_not.out")
def logical_not(e: Build, x: LiveTensor) -> Term:
    return e.call("eq", x, 0)


@pointwise("aten.bitwise_not.default", "aten::bitwise_not.out")
def bitwise_not(e: Build, x: LiveTensor) -> Term:
    # All bits of a boolean are its one bit.
    return e.call("bitwise_xor", x, 1) if x.dtype == "bool" else e.call("bitwise_not", x)


@pointwise("aten.where.self", "aten::where.self_out", any_size=True)
def where(e: Build, condition: LiveTensor, a: LiveTensor, b: LiveTensor) -> Term:
    return e.call("where", condition, a, b)


@pointwise("aten.masked_fill.Tensor", "aten::masked_fill.Tensor_out")
def masked_fill_tensor(e: Build, x: LiveTensor, mask: LiveTensor, value: LiveTensor) -> Term:
    return e.call("where", mask, value, x)


@pointwise("aten.masked_fill.Scalar", "aten::masked_fill.Scalar_out")
def masked_fill(e: Build, x: LiveTensor, mask: LiveTensor, value: Number) -> Term:
    return e.call("where", mask, value, x)
