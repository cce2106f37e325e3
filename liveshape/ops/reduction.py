"""Reductions over any dimensions: neighbours that are kept or reduced together merge, the rest goes by strides."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph import Limits, Shape
from liveshape.graph.elements import is_complex, prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops.lane_reduction import lane_partials, lane_reduce
from liveshape.ops.registry import Ints, Number, Tensors, op
from liveshape.ops.row_rules import but_dims
from liveshape.ops.shapes import axis_of
from liveshape.ops.stages import REDUCE, Carry, Layout, Units, in_stages, is_long, merged, partials_of, walk_of

NUMBERS, PAIRS, EXTREMES = Carry.load("number"), Carry.load("number", ELEMENTS="complex"), Carry.load("extreme")
SQUARES = NUMBERS._replace(parts=Kernel.load(REDUCE, STAGE="squares"))
SUM, MEAN, PRODUCT, ANY, ALL, VARIANCE, MAXIMUM, MINIMUM = range(8)
KINDS = {"float16": 0, "bfloat16": 0, "float32": 0, "float64": 0, "int32": 1, "int64": 1, "bool": 2}

Steps = Generator[Dispatch | GetLimits | Scratch, Any, None]


def _axes(x: LiveTensor, dims: Ints | None) -> list[int]:
    """The dimensions, all of them where none are named; a scalar has none, whatever PyTorch grants it."""
    axes = [axis_of(dim, x.rank) for dim in dims] if dims else [*range(x.rank)]
    return axes if x.rank else []


def _set_shapes(
    x: LiveTensor, axes: list[int], keepdim: bool, *outputs: LiveTensor, pairs: bool = False, extreme: bool = False
) -> None:
    if x.dtype not in KINDS and not (pairs and is_complex(x.dtype)):
        raise UnsupportedError(f"this reduction of {x.dtype} is not supported; cast to int32 or a float before export")
    if len(set(axes)) != len(axes):
        raise ShapeError(f"dimensions {axes} of {x.shape} name one of them twice")
    if extreme and prod(x.shape[axis] for axis in axes) == 0:
        raise ShapeError(f"shape {x.shape} has nothing in dimensions {axes} to take an extremum of")
    for out in outputs:
        out.shape = tuple(
            1 if axis in axes else size for axis, size in enumerate(x.shape) if keepdim or axis not in axes
        )


def layout_of(dtype: str, shape: Shape, axes: list[int]) -> Layout:
    """The units of a reduction over axes, and the params that say where their elements lie.

    >>> layout_of("float32", (3, 8), [1])[0]
    Units(number=3, length=8, inner=True)
    """
    if is_complex(dtype):
        shape = (*shape, 2)  # the parts of complex numbers are kept apart
    kept, reduced = merged(shape, [axis for axis in range(len(shape)) if axis not in axes]), merged(shape, axes)
    return Units(prod(kept[0]), prod(reduced[0]), reduced[1][-1:] == (1,)), walk_of(kept, reduced)


def reduce(
    code: int, x: LiveTensor, dims: Ints | None, keepdim: bool, out: LiveTensor, carry: Carry = NUMBERS
) -> Steps:
    """out = code(x) over the dimensions, all of them where none are named; a mean is a sum until the last stage."""
    limits: Limits = yield GetLimits()
    axes = _axes(x, dims)
    apart = not limits.has_many_threads or x.rank - 1 not in axes  # neighbours in memory are units
    total = out.dtype if KINDS.get(out.dtype) else "float32"  # no float is rounded between stages
    if apart and carry is NUMBERS:
        stages = yield from lane_partials(x.max_shape, axes, total, limits)
    else:
        partials = yield from partials_of(layout_of(x.dtype, x.max_shape, axes)[0], limits, total, numbers=1)
    _set_shapes(x, axes, keepdim, out, pairs=carry is not NUMBERS, extreme=code in (MAXIMUM, MINIMUM))
    stage, length = SUM if code == MEAN else code, prod(x.shape[axis] for axis in axes)
    if apart and carry is NUMBERS:
        yield from lane_reduce((stage, code), x, axes, out, stages, limits, length, FLOATS=KINDS[x.dtype] == 0)
        return
    layout = layout_of(x.dtype, x.shape, axes)
    last = yield from in_stages(carry, (x,), layout, partials, limits, OP=stage)
    yield last(out, divisor=length, OP=code)


def _extremum(
    x: LiveTensor,
    dims: Ints | None,
    keepdim: bool,
    values: LiveTensor | None,
    indices: LiveTensor | None,
    *,
    least: bool,
) -> Steps:
    limits: Limits = yield GetLimits()
    if values is not None and indices is None and not limits.has_many_threads:
        yield from reduce(MINIMUM if least else MAXIMUM, x, dims, keepdim, values)
        return
    axes = _axes(x, dims)
    partials = yield from partials_of(layout_of(x.dtype, x.max_shape, axes)[0], limits, "int32")
    outputs = [out for out in (values, indices) if out is not None]
    _set_shapes(x, axes, keepdim, *outputs, extreme=True)
    layout, kind = layout_of(x.dtype, x.shape, axes), KINDS[x.dtype]
    last = yield from in_stages(EXTREMES, (x,), layout, partials, limits, kept=(x,), MINIMUM=least, KIND=kind)
    for out in outputs:
        yield last(out, INDEX=out is indices)


def _carried(code: int, x: LiveTensor) -> Carry:
    return PAIRS if code in (SUM, MEAN) and is_complex(x.dtype) else NUMBERS


_OVER_DIMS: dict[str, Any] = {"rows": but_dims("x", "dim", keepdim="keepdim"), "epilogues": True, "loads": "x"}
_BOTH: dict[str, Any] = {"rows": but_dims("x", "dim", keepdim="keepdim")}  # of two results
_OVER_ALL: dict[str, Any] = {"epilogues": True, "loads": "x"}


def _over_dims(code: int, *names: str, more: str = "", **traits: Any) -> None:
    """Register a reduction over some dimensions, whose schema has `more` than these."""

    @op(*names, schema=f"x dim keepdim {more} out", **_OVER_DIMS, **traits)
    def over_dims(x: LiveTensor, dim: Ints | None, keepdim: bool, out: LiveTensor) -> Steps:
        yield from reduce(code, x, dim, keepdim, out, _carried(code, x))


def _over_all(code: int, *names: str, more: str = "") -> None:
    @op(*names, schema=f"x {more} out", **_OVER_ALL)
    def over_all(x: LiveTensor, out: LiveTensor) -> Steps:
        yield from reduce(code, x, None, False, out, _carried(code, x))


_over_dims(SUM, "aten.sum.dim_IntList", "aten::sum.IntList_out", more="dtype")
_over_all(SUM, "aten.sum.default", "aten::sum.out", more="dtype")
_over_dims(MEAN, "aten.mean.dim", "aten::mean.out", more="dtype")
_over_all(MEAN, "aten.mean.default", "aten::mean.dtype_out", more="dtype")
_over_dims(PRODUCT, "aten.prod.dim_int", "aten::prod.int_out", more="dtype")
_over_all(PRODUCT, "aten.prod.default", "aten::prod.out", more="dtype")
_over_dims(ANY, "aten.any.dim", "aten::any.out", "aten.any.dims", "aten::any.dims_out")
_over_all(ANY, "aten.any.default", "aten::any.all_out")
_over_dims(ALL, "aten.all.dim", "aten::all.out", "aten.all.dims", "aten::all.dims_out")
_over_all(ALL, "aten.all.default", "aten::all.all_out")


def _register_extremum(word: str, least: bool) -> None:
    @op(f"aten.a{word}.default", f"aten::a{word}.out", any_size=not least, **_OVER_DIMS)
    def over_dims(x: LiveTensor, dim: Ints | None, keepdim: bool, out: LiveTensor) -> Steps:
        yield from _extremum(x, dim, keepdim, out, None, least=least)

    @op(f"aten.{word}.default", f"aten::{word}.unary_out", **_OVER_ALL)
    def over_all(x: LiveTensor, out: LiveTensor) -> Steps:
        yield from _extremum(x, None, False, out, None, least=least)

    @op(f"aten.arg{word}.default", f"aten::arg{word}.out", **_OVER_DIMS)
    def place(x: LiveTensor, dim: Ints | None, keepdim: bool, out: LiveTensor) -> Steps:
        yield from _extremum(x, dim, keepdim, None, out, least=least)

    @op(f"aten.{word}.dim", f"aten::{word}.dim_{word}", **_BOTH, first_alone=f"aten.a{word}.default")
    def both(x: LiveTensor, dim: int, keepdim: bool, out: Tensors) -> Steps:
        yield from _extremum(x, (dim,), keepdim, *out, least=least)


_register_extremum("max", least=False)
_register_extremum("min", least=True)


@op("aten.var.correction", "aten::var.correction_out", load_times=2, **_OVER_DIMS)
def var(x: LiveTensor, dim: Ints | None, correction: Number | None, keepdim: bool, out: LiveTensor) -> Steps:
    limits: Limits = yield GetLimits()
    axes = _axes(x, dim)
    bound = layout_of(x.dtype, x.max_shape, axes)[0]
    partials = yield from partials_of(bound, limits, numbers=1)
    means: LiveTensor = out if partials is None else (yield Scratch("float32", (bound.number,)))
    _set_shapes(x, axes, keepdim, out)
    layout = units, _ = layout_of(x.dtype, x.shape, axes)
    over = units.length - (1 if correction is None else correction)
    divisor = over if over > 0 else 0
    long = is_long(units, limits)
    last = yield from in_stages(NUMBERS, (x,), layout, partials, limits)
    if not long:
        yield last(out, divisor=divisor, OP=VARIANCE)
        return
    yield last(means, divisor=units.length, OP=MEAN)
    last = yield from in_stages(SQUARES, (x, means), layout, partials, limits, OP=VARIANCE)
    yield last(out, divisor=divisor, OP=MEAN)


@op("aten.var.dim", "aten::var.out", load_times=2, **_OVER_DIMS)
def var_dim(x: LiveTensor, dim: Ints | None, unbiased: bool, keepdim: bool, out: LiveTensor) -> Steps:
    yield from var(x, dim, 1 if unbiased else 0, keepdim, out)


@op(
    "aten.var_mean.correction", "aten::var_mean.correction_out", **_BOTH, first_alone="aten.var.correction",
)  # fmt: skip
def var_mean(x: LiveTensor, dim: Ints | None, correction: Number | None, keepdim: bool, out: Tensors) -> Steps:
    yield from var(x, dim, correction, keepdim, out[0])
    yield from reduce(MEAN, x, dim, keepdim, out[1])
