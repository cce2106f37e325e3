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
from liveshape.ops.stages import (
    Units,
    is_long,
    merged,
    partial_results,
    partials_of,
    reduction_threads,
    stacked,
    walk_of_units,
)

REDUCE = Kernel.load("reduction/reduce")
REDUCE_PAIRS = Kernel.load("reduction/reduce", ELEMENTS="complex")
REDUCE_PARTS = Kernel.load("reduction/reduce", STAGE="parts")
REDUCE_PAIR_PARTS = Kernel.load("reduction/reduce", ELEMENTS="complex", STAGE="parts")
SQUARE_PARTS = Kernel.load("reduction/reduce", STAGE="parts", VALUES="squares")
EXTREMUM = Kernel.load("reduction/extremum")
EXTREMUM_PARTS = Kernel.load("reduction/extremum", STAGE="parts")
KEY_PARTS = Kernel.load("reduction/extremum", STAGE="parts", FROM="keys")
EXTREMUM_OF_KEYS = Kernel.load("reduction/extremum", FROM="keys")
SUM, MEAN, PRODUCT, ANY, ALL, VARIANCE, MAXIMUM, MINIMUM = range(8)
KINDS = {"float16": 0, "bfloat16": 0, "float32": 0, "float64": 0, "int32": 1, "int64": 1, "bool": 2}

Steps = Generator[Dispatch | GetLimits | Scratch, Any, None]


Layout = tuple[Units, dict[str, Any]]  # units, and the params that say where their elements lie


def _axes(x: LiveTensor, dims: Ints | None) -> list[int]:
    """The dimensions, all of them where none are named; a scalar has none, whatever PyTorch grants it."""
    axes = [axis_of(dim, x.rank) for dim in dims] if dims else [*range(x.rank)]
    return axes if x.rank else []


def _layout(x: LiveTensor, dims: Ints | None, keepdim: bool, *outputs: LiveTensor, pairs: bool = False) -> Layout:
    """Set the outputs' shape; the sizes and strides of what is kept and of what is reduced."""
    return _layout_of(x.dtype, x.shape, _set_shapes(x, dims, keepdim, *outputs, pairs=pairs))


def _set_shapes(
    x: LiveTensor, dims: Ints | None, keepdim: bool, *outputs: LiveTensor, pairs: bool = False
) -> list[int]:
    """Set the outputs' shape; the axes that are reduced."""
    if x.dtype not in KINDS and not (pairs and is_complex(x.dtype)):
        raise UnsupportedError(f"this reduction of {x.dtype} is not supported; cast to int32 or a float before export")
    axes = _axes(x, dims)
    if len(set(axes)) != len(axes):
        raise ShapeError(f"dimensions {dims} name one of them twice")
    for out in outputs:
        out.shape = tuple(
            1 if axis in axes else size for axis, size in enumerate(x.shape) if keepdim or axis not in axes
        )
    return axes


def _bound(x: LiveTensor, dims: Ints | None) -> Units:
    """The units of the largest input."""
    return _layout_of(x.dtype, x.max_shape, _axes(x, dims))[0]


def _layout_of(dtype: str, shape: Shape, axes: list[int]) -> Layout:
    if is_complex(dtype):
        shape = (*shape, 2)  # the parts of complex numbers are kept apart
    kept, reduced = merged(shape, [axis for axis in range(len(shape)) if axis not in axes]), merged(shape, axes)
    walk = walk_of_units(kept, reduced)
    return Units(walk["units"], walk["count"], reduced[1][-1:] == (1,)), walk


def reduce(code: int, x: LiveTensor, dims: Ints | None, keepdim: bool, out: LiveTensor) -> Steps:
    """out = code(x) over the dimensions, all of them where none are named."""
    limits: Limits = yield GetLimits()
    axes = _axes(x, dims)
    apart = not limits.has_many_threads or x.rank - 1 not in axes  # neighbours in memory are units
    if apart and not is_complex(x.dtype):
        yield from _by_lanes(code, x, dims, keepdim, out, limits)
        return
    partials = yield from partials_of(_bound(x, dims), _total_dtype(x, out), limits)
    layout = _layout(x, dims, keepdim, out, pairs=code in (SUM, MEAN))
    yield from _reduced(code, x, layout, out, partials, limits, layout[0].length)


def _by_lanes(code: int, x: LiveTensor, dims: Ints | None, keepdim: bool, out: LiveTensor, limits: Limits) -> Steps:
    """By threads that do not meet; a mean is a sum until the last of them."""
    axes = _axes(x, dims)
    partials = yield from lane_partials(x.max_shape, axes, _total_dtype(x, out), limits)
    _set_shapes(x, dims, keepdim, out)
    length = prod(x.shape[axis] for axis in axes)
    if code in (MAXIMUM, MINIMUM):
        _check_not_empty(x, dims)
    codes = (SUM if code == MEAN else code, code)
    yield from lane_reduce(codes, x, axes, out, partials, limits, length, FLOATS=KINDS[x.dtype] == 0)


def _total_dtype(x: LiveTensor, out: LiveTensor) -> str:
    """What partial results are kept in: no float is rounded between stages."""
    return out.dtype if KINDS.get(out.dtype) else "float32"


def _reduced(
    code: int,
    x: LiveTensor,
    layout: Layout,
    out: LiveTensor,
    partials: Tensors,
    limits: Limits,
    divisor: Number,
    means: LiveTensor | None = None,
) -> Steps:
    """In stages where units are long: a mean is a sum until the last; given means, of the squares around them."""
    units, walk = layout
    whole = REDUCE_PAIRS if is_complex(x.dtype) else REDUCE
    if not is_long(units, limits) and means is None:
        yield whole(out, x, **walk, **reduction_threads(units, limits), divisor=divisor, OP=code)
        return
    stage = {"divisor": 1, "OP": SUM if code == MEAN else code}

    def first(target: LiveTensor, parts: dict[str, Any]) -> Dispatch:
        if means is not None:
            return SQUARE_PARTS(target, x, means, **walk | parts, **stage)
        return (REDUCE_PAIR_PARTS if is_complex(x.dtype) else REDUCE_PARTS)(target, x, **walk | parts, **stage)

    def again(target: LiveTensor, source: LiveTensor, left: Units, parts: dict[str, Any]) -> Dispatch:
        return REDUCE_PARTS(target, source, **stacked(left) | parts, **stage)

    totals, units = yield from partial_results(units, partials, limits, first, again)
    yield whole(out, totals, **stacked(units), **reduction_threads(units, limits), divisor=divisor, OP=code)


Statistics = tuple[Tensors, LiveTensor, LiveTensor]  # scratch for partial results, means and variances of long rows


def row_statistics(bound: Units, limits: Limits) -> Generator[Scratch, Any, Statistics | None]:
    """Scratch for rows up to `bound`; None where one dispatch does."""
    partials = yield from partials_of(bound, "float32", limits)
    if not partials:
        return None
    means: LiveTensor = yield Scratch("float32", (bound.number,))
    variances: LiveTensor = yield Scratch("float32", (bound.number,))
    return partials, means, variances


def mean_and_variance(
    x: LiveTensor, rows: Units, scratch: Statistics, limits: Limits
) -> Generator[Any, Any, tuple[LiveTensor, LiveTensor]]:
    """The means and the variances, over all elements, of long rows of x, in stages."""
    layout = _layout_of(x.dtype, (rows.number, rows.length), [1])
    partials, means, variances = scratch
    yield from _reduced(MEAN, x, layout, means, partials, limits, rows.length)
    yield from _reduced(MEAN, x, layout, variances, partials, limits, rows.length, means)
    return means, variances


def _extremum(
    x: LiveTensor,
    dims: Ints | None,
    keepdim: bool,
    values: LiveTensor | None,
    indices: LiveTensor | None,
    *,
    least: bool,
) -> Steps:
    outputs = tuple((out, out is indices) for out in (values, indices) if out is not None)
    limits: Limits = yield GetLimits()
    if values is not None and indices is None and not limits.has_many_threads:
        yield from _by_lanes(MINIMUM if least else MAXIMUM, x, dims, keepdim, values, limits)
        return
    partials = yield from partials_of(_bound(x, dims), "int32", limits, lanes=2)
    units, walk = _layout(x, dims, keepdim, *(out for out, _ in outputs))
    _check_not_empty(x, dims)
    kind = {"MINIMUM": least, "KIND": KINDS[x.dtype]}
    if not is_long(units, limits):
        for out, index in outputs:
            yield EXTREMUM(out, x, **walk, **reduction_threads(units, limits), **kind, INDEX=index)
        return

    def first(target: LiveTensor, parts: dict[str, Any]) -> Dispatch:
        return EXTREMUM_PARTS(target, x, **walk | parts, **kind)

    def again(target: LiveTensor, source: LiveTensor, left: Units, parts: dict[str, Any]) -> Dispatch:
        return KEY_PARTS(target, source, **stacked(left) | parts, keys=left.length)

    keys, units = yield from partial_results(units, partials, limits, first, again)
    threads = reduction_threads(units, limits)
    for out, index in outputs:
        yield EXTREMUM_OF_KEYS(out, keys, x, **walk | threads, keys=units.length, INDEX=index)


def _check_not_empty(x: LiveTensor, dims: Ints | None) -> None:
    if prod(x.shape[axis] for axis in _axes(x, dims)) == 0:
        raise ShapeError(f"shape {x.shape} has nothing in dimensions {dims or 'all'} to take an extremum of")


_OVER_DIMS: dict[str, Any] = {"rows": but_dims("x", "dim", keepdim="keepdim"), "epilogues": True, "loads": "x"}
_BOTH: dict[str, Any] = {"rows": but_dims("x", "dim", keepdim="keepdim")}  # of two results
_OVER_ALL: dict[str, Any] = {"epilogues": True, "loads": "x"}


def _over_dims(code: int, *names: str, more: str = "", **traits: Any) -> None:
    """Register a reduction over some dimensions, whose schema has `more` than these."""

    @op(*names, schema=f"x dim keepdim {more} out", **_OVER_DIMS, **traits)
    def over_dims(x: LiveTensor, dim: Ints | None, keepdim: bool, out: LiveTensor) -> Steps:
        yield from reduce(code, x, dim, keepdim, out)


def _over_all(code: int, *names: str, more: str = "") -> None:
    @op(*names, schema=f"x {more} out", **_OVER_ALL)
    def over_all(x: LiveTensor, out: LiveTensor) -> Steps:
        yield from reduce(code, x, None, False, out)


_over_dims(SUM, "aten.sum.dim_IntList", "aten::sum.IntList_out", more="dtype")
_over_all(SUM, "aten.sum.default", "aten::sum.out", more="dtype")
_over_dims(MEAN, "aten.mean.dim", "aten::mean.out", more="dtype")
_over_all(MEAN, "aten.mean.default", "aten::mean.dtype_out", more="dtype")
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


@op("aten.prod.dim_int", "aten::prod.int_out", **_OVER_DIMS)
def prod_dim(x: LiveTensor, dim: int, keepdim: bool, dtype: Any, out: LiveTensor) -> Steps:
    yield from reduce(PRODUCT, x, (dim,), keepdim, out)


@op("aten.var.correction", "aten::var.correction_out", load_times=2, **_OVER_DIMS)
def var(x: LiveTensor, dim: Ints | None, correction: Number | None, keepdim: bool, out: LiveTensor) -> Steps:
    limits: Limits = yield GetLimits()
    scratch = yield from row_statistics(_bound(x, dim), limits)
    layout = units, walk = _layout(x, dim, keepdim, out)
    over = units.length - (1 if correction is None else correction)
    divisor = over if over > 0 else 0
    if scratch is None or not is_long(units, limits):
        yield REDUCE(out, x, **walk, **reduction_threads(units, limits), divisor=divisor, OP=VARIANCE)
        return
    partials, means, _ = scratch
    yield from _reduced(MEAN, x, layout, means, partials, limits, units.length)
    yield from _reduced(MEAN, x, layout, out, partials, limits, divisor, means)


@op("aten.var.dim", "aten::var.out", load_times=2, **_OVER_DIMS)
def var_dim(x: LiveTensor, dim: Ints | None, unbiased: bool, keepdim: bool, out: LiveTensor) -> Steps:
    yield from var(x, dim, 1 if unbiased else 0, keepdim, out)


@op(
    "aten.var_mean.correction", "aten::var_mean.correction_out", **_BOTH, first_alone="aten.var.correction",
)  # fmt: skip
def var_mean(x: LiveTensor, dim: Ints | None, correction: Number | None, keepdim: bool, out: Tensors) -> Steps:
    yield from var(x, dim, correction, keepdim, out[0])
    yield from reduce(MEAN, x, dim, keepdim, out[1])
