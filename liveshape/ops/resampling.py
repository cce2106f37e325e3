"""Image resampling (upsample, interpolate): nearest, linear and cubic filters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from liveshape.errors import ShapeError
from liveshape.graph import Shape
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.ops.registry import Ints, op
from liveshape.ops.row_rules import leading
from liveshape.ops.scalars import float_of
from liveshape.ops.shapes import ceil_div, in_three

RESAMPLE = Kernel.load("image/resample")
_FAR = 1 << 20
NEAREST_LAST = "liveshape.channels_last_nearest"

Scales = tuple[float | None, ...]


@dataclass(frozen=True)
class Filter:
    """How elements are weighted, in how many dimensions."""

    kind: str
    dims: int
    antialias: bool = False


def _scale(filter: Filter, size: int, wanted: int, align_corners: bool, given: float | None) -> float:
    """How far a step in the result goes in x: rounded to f32 it is what PyTorch computes in f32."""
    if align_corners:
        return (size - 1) / (wanted - 1) if wanted > 1 else 0.0
    # In two dimensions PyTorch's nearest takes these sizes at their word, whatever factor is given with them.
    if filter.kind == "NEAREST" and filter.dims == 2 and wanted in (size, 2 * size):
        return size / wanted
    return 1.0 / given if given is not None and given > 0.0 else size / wanted


def _steps(filter: Filter, sizes: Shape, wanted: Shape, align_corners: bool, scales: Scales) -> tuple[float, ...]:
    if any(size < 1 for size in (*sizes, *wanted)):
        raise ShapeError(f"a picture of {sizes} cannot be resampled to {wanted}")
    return tuple(
        float_of(_scale(filter, size, target, align_corners, given))
        for size, target, given in zip(sizes, wanted, scales, strict=True)
    )


def nearest_steps(
    sizes: Shape, output_size: Ints | None, factors: tuple[float, ...] | None
) -> tuple[Shape, tuple[float, ...]]:
    """The size that a picture is resampled to by its nearest pixels, and how far a step there goes in the picture.

    >>> nearest_steps((3, 5), None, (2.0, 2.0))
    ((6, 10), (0.5, 0.5))
    """
    wanted, scales = _wanted(sizes, output_size, factors)
    return wanted, _steps(Filter("NEAREST", len(sizes)), sizes, wanted, False, scales)


def _wanted(sizes: Shape, output_size: Ints | None, factors: tuple[float, ...] | None) -> tuple[Shape, Scales]:
    """The size of a result that is given, or by factors of the live one; and the factors."""
    if output_size is not None:
        return output_size, (None,) * len(sizes)
    if factors is not None and len(factors) == len(sizes) and all(0.0 < factor < _FAR for factor in factors):
        return tuple(math.floor(size * factor) for size, factor in zip(sizes, factors, strict=True)), factors
    raise ShapeError(f"{sizes} are to be resampled by {factors}; a size or {len(sizes)} factors below {_FAR} fit")


def _resample(
    x: LiveTensor, filter: Filter, output_size: Ints, align_corners: bool, scales: Scales, out: LiveTensor
) -> Iterator[Dispatch]:
    dims = filter.dims
    if x.rank != dims + 2 or len(output_size) != dims:
        raise ShapeError(f"{x.shape} cannot be resampled to {output_size}; a batch, channels and {dims} sizes fit")
    sizes = x.shape[-dims:]
    steps = _steps(filter, sizes, output_size, align_corners, scales)
    out.shape = x.shape[:-dims] + output_size
    yield RESAMPLE(
        out,
        x,
        sizes=in_three(sizes),
        outs=in_three(output_size),
        scales=(1.0,) * (3 - dims) + steps,
        count=out.numel,
        FILTER=filter.kind,
        DIMS=dims,
        ALIGN_CORNERS=align_corners,
        ANTIALIAS=filter.antialias,
        threads=out.numel,
        turns=prod(4 * ceil_div(size, wanted) + 2 for size, wanted in zip(sizes, output_size, strict=True)),
    )


def _resample_by(
    x: LiveTensor,
    filter: Filter,
    output_size: Ints | None,
    align_corners: bool,
    factors: tuple[float, ...] | None,
    out: LiveTensor,
) -> Iterator[Dispatch]:
    """To a size, or by factors of the live one."""
    wanted, scales = _wanted(x.shape[-filter.dims :], output_size, factors)
    yield from _resample(x, filter, wanted, align_corners, scales, out)


def _portable(name: str) -> tuple[str, ...]:
    """The portable name of the form with factors, where PyTorch has one."""
    return (f"aten::{name}.vec_out",) if name in ("upsample_nearest2d", "upsample_bilinear2d") else ()


def _register_nearest(name: str, filter: Filter) -> None:
    last = NEAREST_LAST if filter == Filter("NEAREST", 2) else ""

    @op(f"aten.{name}.vec", *_portable(name), rows=leading("x", own=filter.dims), channels_last=last)
    def by(
        x: LiveTensor, output_size: Ints | None, factors: tuple[float, ...] | None, out: LiveTensor
    ) -> Iterator[Dispatch]:
        yield from _resample_by(x, filter, output_size, False, factors, out)

    def one(x: LiveTensor, output_size: Ints, scale: float | None, out: LiveTensor) -> Iterator[Dispatch]:
        yield from _resample(x, filter, output_size, False, (scale,), out)

    def two(
        x: LiveTensor, output_size: Ints, down: float | None, along: float | None, out: LiveTensor
    ) -> Iterator[Dispatch]:
        yield from _resample(x, filter, output_size, False, (down, along), out)

    def three(
        x: LiveTensor,
        output_size: Ints,
        deep: float | None,
        down: float | None,
        along: float | None,
        out: LiveTensor,
    ) -> Iterator[Dispatch]:
        yield from _resample(x, filter, output_size, False, (deep, down, along), out)

    rows = leading("x", own=filter.dims)
    op(f"aten.{name}.default", f"aten::{name}.out", rows=rows)((one, two, three)[filter.dims - 1])


def _register_smooth(name: str, filter: Filter) -> None:
    @op(f"aten.{name}.vec", *_portable(name), rows=leading("x", own=filter.dims))
    def by(
        x: LiveTensor, output_size: Ints | None, align_corners: bool, factors: tuple[float, ...] | None, out: LiveTensor
    ) -> Iterator[Dispatch]:
        yield from _resample_by(x, filter, output_size, align_corners, factors, out)

    def one(
        x: LiveTensor, output_size: Ints, align_corners: bool, scale: float | None, out: LiveTensor
    ) -> Iterator[Dispatch]:
        yield from _resample(x, filter, output_size, align_corners, (scale,), out)

    def two(
        x: LiveTensor, output_size: Ints, align_corners: bool, down: float | None, along: float | None, out: LiveTensor
    ) -> Iterator[Dispatch]:
        yield from _resample(x, filter, output_size, align_corners, (down, along), out)

    def three(
        x: LiveTensor,
        output_size: Ints,
        align_corners: bool,
        deep: float | None,
        down: float | None,
        along: float | None,
        out: LiveTensor,
    ) -> Iterator[Dispatch]:
        yield from _resample(x, filter, output_size, align_corners, (deep, down, along), out)

    rows = leading("x", own=filter.dims)
    op(f"aten.{name}.default", f"aten::{name}.out", rows=rows)((one, two, three)[filter.dims - 1])


for _dims in (1, 2, 3):
    _register_nearest(f"upsample_nearest{_dims}d", Filter("NEAREST", _dims))
    _register_nearest(f"_upsample_nearest_exact{_dims}d", Filter("NEAREST_EXACT", _dims))
    _register_smooth(f"upsample_{('linear', 'bilinear', 'trilinear')[_dims - 1]}{_dims}d", Filter("LINEAR", _dims))
_register_smooth("upsample_bicubic2d", Filter("CUBIC", 2))
_register_smooth("_upsample_bilinear2d_aa", Filter("LINEAR", 2, antialias=True))
_register_smooth("_upsample_bicubic2d_aa", Filter("CUBIC", 2, antialias=True))
