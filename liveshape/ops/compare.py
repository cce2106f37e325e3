"""What decides: compares, logic, bits, where and masks, with broadcasting."""

from __future__ import annotations

from typing import Any

from liveshape.errors import UnsupportedError
from liveshape.graph import SymInt
from liveshape.graph.expression import is_whole
from liveshape.graph.live import LiveTensor
from liveshape.ops.pointwise import TWO, WITH_NUMBER, Build, Term, direct, pointwise
from liveshape.ops.registry import Number, exported
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
    # The exporter's sliding-window masks compare so; elsewhere the number may be the context itself.
    @pointwise(*exported(name, "Scalar"), any_size=name in ("lt", "ge"))
    def compare_with(e: Build, x: LiveTensor, value: Number) -> Term:
        return compared(e, name, x, value)


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    direct(_name, *exported(_name, "Tensor"), given=TWO)
    _register_compare(_name)
for _name in ("logical_and", "logical_or", "logical_xor"):
    direct(_name, *exported(_name), given=TWO, any_size=True)
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    direct(_name, *exported(_name, "Tensor"), given=TWO)
    direct(_name, *exported(_name, "Scalar"), given=WITH_NUMBER)
for _side in ("left", "right"):
    _long, _short = f"bitwise_{_side}_shift", f"__{_side[0]}shift__"
    direct(f"{_side}_shift", *exported(_long, "Tensor"), *exported(_short, "Tensor"), given=TWO)
    direct(f"{_side}_shift", *exported(_long, "Tensor_Scalar"), *exported(_short, "Scalar"), given=WITH_NUMBER)
direct(
    "where",
    *exported("where", "self"),
    given={"condition": LiveTensor, "a": LiveTensor, "b": LiveTensor},
    any_size=True,
)


@pointwise(*exported("logical_not"))
def logical_not(e: Build, x: LiveTensor) -> Term:
    return e.call("eq", x, 0)


@pointwise(*exported("bitwise_not"))
def bitwise_not(e: Build, x: LiveTensor) -> Term:
    # All bits of a boolean are its one bit.
    return e.call("bitwise_xor", x, 1) if x.dtype == "bool" else e.call("bitwise_not", x)


@pointwise(*exported("masked_fill", "Tensor"))
@pointwise(*exported("masked_fill", "Scalar"), given={"value": Number})
def masked_fill(e: Build, x: LiveTensor, mask: LiveTensor, value: LiveTensor) -> Term:
    return e.call("where", mask, value, x)
