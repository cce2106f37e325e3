"""Live scalars: sizes, elements and their arithmetic. They plan like every operator and dispatch nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from liveshape.errors import PlanError, ShapeError
from liveshape.graph.live import LiveScalar, LiveTensor
from liveshape.graph.traits import Role
from liveshape.kernels.requests import Read
from liveshape.ops.registry import Number, op
from liveshape.ops.shapes import axis_of

_INT32 = range(-(1 << 31), 1 << 31)


def _int32(value: Any) -> Any:
    if isinstance(value, int) and value not in _INT32:
        raise PlanError(f"the live scalar {value} does not fit 32 bits")
    return value


@op("sym_size.int", "aten::sym_size.int", role=Role.SIZE, any_size=True)
def sym_size(x: LiveTensor, dim: int, out: Any) -> None:
    if isinstance(out, LiveScalar):  # a size that the exporter folded has nothing to set
        out.value = x.shape[axis_of(dim, x.rank)]


@op("sym_numel", "aten::sym_numel")
def sym_numel(x: LiveTensor, out: Any) -> None:
    if isinstance(out, LiveScalar):
        out.value = x.numel


@op("et_vk.select_as_symint.default", reads_data=True, role=Role.SELECT, any_size=True)
def select_as_symint(x: LiveTensor, dim: int, index: int, out: LiveScalar) -> Iterator[Read]:
    # The element [0, .., index, .., 0]: every other dimension is read at its start.
    axis = axis_of(dim, x.rank)
    size = x.shape[axis]
    if not -size <= index < size:
        raise ShapeError(f"index {index} is outside dimension {dim} of the live shape {x.shape}")
    stride = 1
    for extent in x.shape[axis + 1 :]:
        stride = stride * extent
    out.value = _int32((yield Read(x, (index % size) * stride)))


@op("aten::_local_scalar_dense", "aten::item", reads_data=True, role=Role.FIRST, any_size=True)
def local_scalar_dense(x: LiveTensor, out: LiveScalar) -> Iterator[Read]:
    out.value = yield Read(x, 0)


@op("add", "executorch_prim::add.Scalar", role=Role.SUM, any_size=True)
def add(a: Number, b: Number, out: LiveScalar) -> None:
    out.value = _int32(a + b)


@op("sub", "executorch_prim::sub.Scalar", any_size=True)
def sub(a: Number, b: Number, out: LiveScalar) -> None:
    out.value = _int32(a - b)


@op("mul", "executorch_prim::mul.Scalar", any_size=True)
def mul(a: Number, b: Number, out: LiveScalar) -> None:
    out.value = _int32(a * b)


@op("floordiv", "executorch_prim::floordiv.Scalar", "executorch_prim::floordiv.int")
def floordiv(a: Number, b: Number, out: LiveScalar) -> None:
    if b == 0:
        raise PlanError(f"floordiv: {a} // 0")
    out.value = _int32(a // b)


@op("truediv", "executorch_prim::truediv.Scalar")
def truediv(a: Number, b: Number, out: LiveScalar) -> None:
    if b == 0:
        raise PlanError(f"truediv: {a} / 0")
    out.value = a / b


@op("pow")
def power(a: Number, b: Number, out: LiveScalar) -> None:
    if (a == 0 and b < 0) or (a < 0 and b != int(b)):
        raise PlanError(f"pow: {a} ** {b} is no number")
    out.value = _int32(a**b)


@op("mod", "executorch_prim::mod.Scalar", "executorch_prim::mod.int")
def mod(a: Number, b: Number, out: LiveScalar) -> None:
    if b == 0:
        raise PlanError(f"mod: {a} % 0")
    out.value = a % b


@op("neg", "executorch_prim::neg.Scalar")
def neg(a: Number, out: LiveScalar) -> None:
    out.value = _int32(-a)


@op("sym_max", "executorch_prim::sym_max.Scalar")
def sym_max(a: Number, b: Number, out: LiveScalar) -> None:
    out.value = a if a >= b else b


@op("sym_min", "executorch_prim::sym_min.Scalar")
def sym_min(a: Number, b: Number, out: LiveScalar) -> None:
    out.value = a if a <= b else b


@op("eq", "executorch_prim::eq.Scalar")
def eq(a: Number, b: Number, out: LiveScalar) -> None:
    out.value = a == b


@op("ne", "executorch_prim::ne.Scalar")
def ne(a: Number, b: Number, out: LiveScalar) -> None:
    out.value = a != b


@op("lt", "executorch_prim::lt.Scalar")
def lt(a: Number, b: Number, out: LiveScalar) -> None:
    out.value = a < b


@op("le", "executorch_prim::le.Scalar")
def le(a: Number, b: Number, out: LiveScalar) -> None:
    out.value = a <= b


@op("gt", "executorch_prim::gt.Scalar")
def gt(a: Number, b: Number, out: LiveScalar) -> None:
    out.value = a > b


@op("ge", "executorch_prim::ge.Scalar")
def ge(a: Number, b: Number, out: LiveScalar) -> None:
    out.value = a >= b


@op("ceil", "executorch_prim::ceil.Scalar")
def ceil(a: Number, out: LiveScalar) -> None:
    out.value = _int32(math.ceil(a))


@op("round", "executorch_prim::round.Scalar")
def round_half_even(a: Number, out: LiveScalar) -> None:
    out.value = _int32(round(a))


@op("trunc", "executorch_prim::trunc.Scalar", "sym_int", "executorch_prim::sym_int.Scalar")
def trunc(a: Number, out: LiveScalar) -> None:
    out.value = _int32(math.trunc(a))


@op("sym_float", "executorch_prim::sym_float.Scalar")
def sym_float(a: Number, out: LiveScalar) -> None:
    out.value = float(a)


@op("sym_not", "executorch_prim::sym_not.Scalar")
def sym_not(a: Number, out: LiveScalar) -> None:
    out.value = not a


@op("sym_ite", "executorch_prim::sym_ite.Scalar")
def sym_ite(condition: Number, a: Number, b: Number, out: LiveScalar) -> None:
    out.value = a if condition else b
