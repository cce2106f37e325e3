"""Reductions over any dimensions: neighbours that are kept or reduced together merge, the rest goes by strides."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph import Limits, Shape
from liveshape.graph.elements import is_complex, prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import GetLimits
from liveshape.ops.registry import Ints, Number, Tensors, op
from liveshape.ops.row_rules import but_dims
from liveshape.ops.shapes import MAX_RANK, axis_of, merge_dims, strides_of

REDUCE = Kernel.load("reduction/reduce")
REDUCE_PAIRS = Kernel.load("reduction/reduce", ELEMENTS="complex")
EXTREMUM = Kernel.load("reduction/extremum")
MANY_UNITS = 16384  # that fill a device with a thread each
ALL_UNITS = 1 << 20  # of a workgroup, whose threads alternate: see reduction/across_threads.wgsl
SUM, MEAN, PRODUCT, ANY, ALL, VARIANCE = range(6)
KINDS = {"float16": 0, "bfloat16": 0, "float32": 0, "float64": 0, "int32": 1, "int64": 1, "bool": 2}

Steps = Generator[Dispatch | GetLimits, Any, None]


def reduction_threads(units: int, count: int, inner: bool, limits: Limits) -> dict[str, Any]:
    """How many threads reduce one unit of `count` elements, and whether these are contiguous (`inner`)."""
    many_units = units >= MANY_UNITS and not limits.one_order
    if count <= 8 or (not inner and many_units):
        unit_threads = 1
    else:
        unit_threads = 256 if inner and count > 512 else 16
    return {"UNIT_THREADS": unit_threads, "ALTERNATING": 1 if inner else ALL_UNITS, "cooperative_units": units}


def _layout(
    x: LiveTensor, dims: Ints | None, keepdim: bool, limits: Limits, *outputs: LiveTensor, pairs: bool = False
) -> dict[str, Any]:
    """Set the outputs' shape; the sizes and strides of what is kept and of what is reduced."""
    if x.dtype not in KINDS and not (pairs and is_complex(x.dtype)):
        raise UnsupportedError(f"this reduction of {x.dtype} is not supported; cast to int32 or a float before export")
    axes = [axis_of(dim, x.rank) for dim in dims] if dims else [*range(x.rank)]
    if len(set(axes)) != len(axes):
        raise ShapeError(f"dimensions {dims} name one of them twice")
    for out in outputs:
        out.shape = tuple(
            1 if axis in axes else size for axis, size in enumerate(x.shape) if keepdim or axis not in axes
        )
    shape = (*x.shape, 2) if is_complex(x.dtype) else x.shape  # the parts of complex numbers are kept apart
    kept_sizes, kept_strides = _merged(shape, [axis for axis in range(len(shape)) if axis not in axes])
    sizes, strides = _merged(shape, [axis for axis in range(x.rank) if axis in axes])
    units, count = prod(kept_sizes), prod(sizes)
    padding = (0,) * (MAX_RANK - len(kept_sizes))
    return {
        "units": units,
        "count": count,
        "kept_rank": len(kept_sizes),
        "reduced_rank": len(sizes),
        "sizes": kept_sizes + padding + sizes,
        "strides": kept_strides + padding + strides,
        **reduction_threads(units, count, strides[-1:] == (1,), limits),
    }


def _merged(shape: Shape, axes: list[int]) -> tuple[Shape, Shape]:
    strides = strides_of(shape)
    sizes, (steps,) = merge_dims(tuple(shape[axis] for axis in axes), tuple(strides[axis] for axis in axes))
    return sizes, steps


def reduce(code: int, x: LiveTensor, dims: Ints | None, keepdim: bool, out: LiveTensor) -> Steps:
    """out = code(x) over the dimensions, all of them where none are named."""
    limits: Limits = yield GetLimits()
    layout = _layout(x, dims, keepdim, limits, out, pairs=code in (SUM, MEAN))
    kernel = REDUCE_PAIRS if is_complex(x.dtype) else REDUCE
    yield kernel(out, x, **layout, divisor=layout["count"], OP=code)


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
    layout = _layout(x, dims, keepdim, limits, *(out for out, _ in outputs))
    if layout["count"] == 0:
        raise ShapeError(f"shape {x.shape} has nothing in dimensions {dims or 'all'} to take an extremum of")
    for out, index in outputs:
        yield EXTREMUM(out, x, **layout, MINIMUM=least, INDEX=index, KIND=KINDS[x.dtype])


@op("aten.sum.dim_IntList", "aten::sum.IntList_out", rows=but_dims("x", "dim", keepdim="keepdim"))
def sum_dim(x: LiveTensor, dim: Ints | None, keepdim: bool, dtype: Any, out: LiveTensor) -> Steps:
    yield from reduce(SUM, x, dim, keepdim, out)


@op("aten.sum.default", "aten::sum.out")
def sum_all(x: LiveTensor, dtype: Any, out: LiveTensor) -> Steps:
    yield from reduce(SUM, x, None, False, out)


@op("aten.mean.dim", "aten::mean.out", rows=but_dims("x", "dim", keepdim="keepdim"))
def mean_dim(x: LiveTensor, dim: Ints | None, keepdim: bool, dtype: Any, out: LiveTensor) -> Steps:
    yield from reduce(MEAN, x, dim, keepdim, out)


@op("aten.mean.default", "aten::mean.dtype_out")
def mean_all(x: LiveTensor, dtype: Any, out: LiveTensor) -> Steps:
    yield from reduce(MEAN, x, None, False, out)


@op("aten.prod.dim_int", "aten::prod.int_out", rows=but_dims("x", "dim", keepdim="keepdim"))
def prod_dim(x: LiveTensor, dim: int, keepdim: bool, dtype: Any, out: LiveTensor) -> Steps:
    yield from reduce(PRODUCT, x, (dim,), keepdim, out)


@op("aten.prod.default", "aten::prod.out")
def prod_all(x: LiveTensor, dtype: Any, out: LiveTensor) -> Steps:
    yield from reduce(PRODUCT, x, None, False, out)


@op(
    "aten.any.dim", "aten::any.out", "aten.any.dims", "aten::any.dims_out", rows=but_dims("x", "dim", keepdim="keepdim")
)
def any_dim(x: LiveTensor, dim: Ints | None, keepdim: bool, out: LiveTensor) -> Steps:
    yield from reduce(ANY, x, dim, keepdim, out)


@op("aten.any.default", "aten::any.all_out")
def any_all(x: LiveTensor, out: LiveTensor) -> Steps:
    yield from reduce(ANY, x, None, False, out)


@op(
    "aten.all.dim", "aten::all.out", "aten.all.dims", "aten::all.dims_out", rows=but_dims("x", "dim", keepdim="keepdim")
)
def all_dim(x: LiveTensor, dim: Ints | None, keepdim: bool, out: LiveTensor) -> Steps:
    yield from reduce(ALL, x, dim, keepdim, out)


@op("aten.all.default", "aten::all.all_out")
def all_all(x: LiveTensor, out: LiveTensor) -> Steps:
    yield from reduce(ALL, x, None, False, out)


@op("aten.var.correction", "aten::var.correction_out", rows=but_dims("x", "dim", keepdim="keepdim"))
def var(x: LiveTensor, dim: Ints | None, correction: Number | None, keepdim: bool, out: LiveTensor) -> Steps:
    limits: Limits = yield GetLimits()
    layout = _layout(x, dim, keepdim, limits, out)
    divisor = layout["count"] - (1 if correction is None else correction)
    yield REDUCE(out, x, **layout, divisor=divisor if divisor > 0 else 0, OP=VARIANCE)


@op("aten.var.dim", "aten::var.out", rows=but_dims("x", "dim", keepdim="keepdim"))
def var_dim(x: LiveTensor, dim: Ints | None, unbiased: bool, keepdim: bool, out: LiveTensor) -> Steps:
    yield from var(x, dim, 1 if unbiased else 0, keepdim, out)


@op("aten.var_mean.correction", "aten::var_mean.correction_out", rows=but_dims("x", "dim", keepdim="keepdim"))
def var_mean(x: LiveTensor, dim: Ints | None, correction: Number | None, keepdim: bool, out: Tensors) -> Steps:
    yield from var(x, dim, correction, keepdim, out[0])
    yield from reduce(MEAN, x, dim, keepdim, out[1])


@op("aten.amax.default", "aten::amax.out", rows=but_dims("x", "dim", keepdim="keepdim"), any_size=True)
def amax(x: LiveTensor, dim: Ints | None, keepdim: bool, out: LiveTensor) -> Steps:
    yield from _extremum(x, dim, keepdim, out, None, least=False)


@op("aten.amin.default", "aten::amin.out", rows=but_dims("x", "dim", keepdim="keepdim"))
def amin(x: LiveTensor, dim: Ints | None, keepdim: bool, out: LiveTensor) -> Steps:
    yield from _extremum(x, dim, keepdim, out, None, least=True)


@op("aten.max.default", "aten::max.unary_out")
def max_all(x: LiveTensor, out: LiveTensor) -> Steps:
    yield from _extremum(x, None, False, out, None, least=False)


@op("aten.min.default", "aten::min.unary_out")
def min_all(x: LiveTensor, out: LiveTensor) -> Steps:
    yield from _extremum(x, None, False, out, None, least=True)


@op("aten.argmax.default", "aten::argmax.out", rows=but_dims("x", "dim", keepdim="keepdim"))
def argmax(x: LiveTensor, dim: Ints | None, keepdim: bool, out: LiveTensor) -> Steps:
    yield from _extremum(x, dim, keepdim, None, out, least=False)


@op("aten.argmin.default", "aten::argmin.out", rows=but_dims("x", "dim", keepdim="keepdim"))
def argmin(x: LiveTensor, dim: Ints | None, keepdim: bool, out: LiveTensor) -> Steps:
    yield from _extremum(x, dim, keepdim, None, out, least=True)


@op("aten.max.dim", "aten::max.dim_max", rows=but_dims("x", "dim", keepdim="keepdim"))
def max_dim(x: LiveTensor, dim: int, keepdim: bool, out: Tensors) -> Steps:
    yield from _extremum(x, (dim,), keepdim, *out, least=False)


@op("aten.min.dim", "aten::min.dim_min", rows=but_dims("x", "dim", keepdim="keepdim"))
def min_dim(x: LiveTensor, dim: int, keepdim: bool, out: Tensors) -> Steps:
    yield from _extremum(x, (dim,), keepdim, *out, least=True)
