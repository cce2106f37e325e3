"""Images: pixel shuffle and unshuffle, grid_sample, grid priors."""

from __future__ import annotations

from collections.abc import Iterator

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.ops.copies import copy_strided
from liveshape.ops.registry import op
from liveshape.ops.row_rules import first_axis, leading
from liveshape.ops.scalars import float_of
from liveshape.ops.shapes import Strided, strides_of

GRID_SAMPLER = Kernel.load("image/grid_sampler")
GRID_PRIORS = Kernel.load("image/grid_priors")
# As PyTorch numbers them.
_FILTERS = ("BILINEAR", "NEAREST", "BICUBIC")
_PADDING_MODES = ("ZEROS", "BORDER", "REFLECTION")


@op("aten.pixel_shuffle.default", "aten::pixel_shuffle.out", rows=leading("x", own=3))
def pixel_shuffle(x: LiveTensor, factor: int, out: LiveTensor) -> Iterator[Dispatch]:
    if x.rank < 3 or factor < 1 or x.shape[-3] % (factor * factor):
        raise ShapeError(f"the channels of {x.shape} are not a multiple of {factor} times {factor}")
    *lead, channels, height, width = x.shape
    kept = channels // (factor * factor)
    out.shape = (*lead, kept, height * factor, width * factor)
    planes = prod(lead) * kept
    # Channel, row and column in a pixel, row, column: x has them in this order, out in another.
    plane, down, along, row, column = strides_of((planes, factor, factor, height, width))
    shape = (planes, height, factor, width, factor)
    yield from copy_strided(x, out, Strided(shape, (plane, row, down, column, along)))


@op("aten.pixel_unshuffle.default", "aten::pixel_unshuffle.out", rows=leading("x", own=3))
def pixel_unshuffle(x: LiveTensor, factor: int, out: LiveTensor) -> Iterator[Dispatch]:
    if x.rank < 3 or factor < 1 or x.shape[-2] % factor or x.shape[-1] % factor:
        raise ShapeError(f"height and width of {x.shape} are not multiples of {factor}")
    *lead, channels, tall, wide = x.shape
    height, width = tall // factor, wide // factor
    out.shape = (*lead, channels * factor * factor, height, width)
    planes = prod(lead) * channels
    plane, row, down, column, along = strides_of((planes, height, factor, width, factor))
    shape = (planes, factor, factor, height, width)
    yield from copy_strided(x, out, Strided(shape, (plane, down, along, row, column)))


@op("aten.grid_sampler_2d.default", "aten::grid_sampler_2d.out", rows=first_axis("x", "grid"))
def grid_sampler_2d(
    x: LiveTensor, grid: LiveTensor, interpolation: int, padding: int, align_corners: bool, out: LiveTensor
) -> Iterator[Dispatch]:
    if x.rank != 4 or grid.rank != 4 or grid.shape[0] != x.shape[0] or grid.shape[3] != 2 or 0 in x.shape[1:]:
        raise ShapeError(f"pictures of {x.shape} cannot be sampled at a grid of {grid.shape}; pairs per picture fit")
    if interpolation not in range(3) or padding not in range(3):
        raise UnsupportedError(f"interpolation {interpolation} and padding {padding} are not both one of 0, 1 and 2")
    batch, channels, height, width = x.shape
    out.shape = (batch, channels, grid.shape[1], grid.shape[2])
    yield GRID_SAMPLER(
        out,
        x,
        grid,
        count=out.numel,
        channels=channels,
        points=grid.shape[1] * grid.shape[2],
        height=height,
        width=width,
        FILTER=_FILTERS[interpolation],
        PADDING_MODE=_PADDING_MODES[padding],
        ALIGN_CORNERS=align_corners,
        threads=out.numel,
    )


@op("et_vk.grid_priors.default")
def grid_priors(x: LiveTensor, stride: int, offset: float, out: LiveTensor) -> Iterator[Dispatch]:
    if x.rank < 2:
        raise ShapeError(f"{x.shape} has no height and width")
    height, width = x.shape[-2:]
    out.shape = (height * width, 2)
    yield GRID_PRIORS(
        out, count=height * width, width=width, stride=float_of(stride), offset=float_of(offset), threads=height * width
    )
