"""Images with their channels last [batch, height, width, channels]: the operators that `lower/image_layout.py` puts in
the place of those that a file has, between convolutions by matrix units. Arguments are those of a file's operators.

A convolution is implicit GEMM whose rows are pixels: a tap of a window is a vector of neighbouring channels, a result a
vector of neighbouring output channels, and nothing is copied before.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

from liveshape.errors import ShapeError
from liveshape.graph import Limits, Shape
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import Product
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import GetLimits, Prepack, Prepacked, Scratch
from liveshape.ops.matrix_convolution import Gemm, half_weight
from liveshape.ops.matrix_heuristics import (
    MAX_FLOAT_SPLITS,
    MAX_MATRIX_SUMS,
    check_sums,
    halving_threads,
    pixel_matrix_tiles,
)
from liveshape.ops.normalization import check_affine
from liveshape.ops.operations import convolved
from liveshape.ops.pooling import loop_turns, pool_windows
from liveshape.ops.registry import Ints, op
from liveshape.ops.resampling import nearest_steps
from liveshape.ops.scalars import int_of
from liveshape.ops.shapes import ceil_div
from liveshape.ops.windows import check_windows, convolved_size, for_each

CHANNELS_LAST = Kernel.load("image/channels_last")
TILES = {True: Kernel.load("convolution/pixel_tiles"), False: Kernel.load("convolution/pixel_tiles", STORES="ones")}
COMBINE = {
    True: Kernel.load("convolution/combine_pixels"),
    False: Kernel.load("convolution/combine_pixels", STORES="ones"),
}
POOL_AVERAGE = Kernel.load("image/pool_pixels")
POOL_MAX = Kernel.load("image/pool_pixels", POOL="maximum")
ENLARGE = Kernel.load("image/enlarge_pixels")
PATCHES = Kernel.load("image/patches")
PIXEL_NORM = {
    statistics: Kernel.load("normalization/pixel_norm", STATISTICS=statistics)
    for statistics in ("own", "parts", "found")
}

EIGHT = 8  # channels of a vector of halves
MAX_DEEP = 8  # vectors of channels that a workgroup turns
MAX_BAND = 8  # vectors of eight channels that a workgroup of a norm sums, unless a group has more
THREAD_PIXELS, MAX_NORM_PARTS = 4, 128  # that a thread sums, if an image has not too many parts then
WHOLE_PIXELS = 12  # of a thread, up to which a workgroup sums those of a whole image: a dispatch less

Memory = Scratch | Prepacked | Prepack | GetLimits
Steps = Generator[Dispatch | Memory, Any, None]


@op("liveshape.channels_last")
def channels_last(x: LiveTensor, out: LiveTensor) -> Steps:
    """Images as halves with their channels last, and with zeros behind these to whole vectors."""
    images, channels, *sizes = x.shape
    eights = ceil_div(channels, EIGHT)
    out.shape = (images, *sizes, EIGHT * eights)
    limits: Limits = yield GetLimits()
    threads, deep = halving_threads(limits), min(MAX_DEEP, 1 << (eights - 1).bit_length())
    bands = ceil_div(images * prod(sizes), threads // deep) * ceil_div(eights, deep)
    yield CHANNELS_LAST(
        out, x, images=images, channels=channels, pixels=prod(sizes), DEEP=deep, WG=threads, groups=bands
    )


@op("liveshape.patches")
def patches(x: LiveTensor, kernel: Ints, out: LiveTensor) -> Steps:
    """The windows of a convolution that lie side by side as pixels, whose channels are all that a window has."""
    images, channels, *extents = x.shape
    sizes = tuple(convolved_size(*each, 0, 1) for each in zip(extents, kernel, kernel, strict=True))
    check_windows(sizes, extents, kernel, (0, 0), (1, 1))
    depth = channels * prod(kernel)
    if depth % EIGHT:
        raise ShapeError(f"windows {kernel} of {channels} channels are not whole vectors of {EIGHT} halves")
    out.shape = (images, *sizes, depth)
    count = out.numel // 4
    yield PATCHES(
        out, x, size=tuple(extents), patch_size=tuple(kernel), patches=sizes, channels=channels, count=count,
        threads=count,
    )  # fmt: skip


@op("liveshape.channels_last_convolution", product=Product(convolved), epilogues=True)
def convolution(
    x: LiveTensor,
    weight: LiveTensor,
    bias: LiveTensor | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
    out: LiveTensor,
) -> Steps:
    """Of halves, whose channels may be followed by zeros; `out` is float32 or halves."""
    rows, channels, *kernel = weight.shape
    batch, *extents, depth = x.shape
    if transposed or groups != 1 or depth != EIGHT * ceil_div(channels, EIGHT):
        raise ShapeError(f"a weight {weight.shape} in {groups} groups does not fit images {x.shape}, channels last")
    given = ("stride", stride), ("padding", padding), ("dilation", dilation)
    steps, pads, gaps = (for_each(*each, 2) for each in given)
    sizes = tuple(convolved_size(*each) for each in zip(extents, kernel, steps, pads, gaps, strict=True))
    check_windows(sizes, extents, weight.shape[2:], padding, dilation)
    out.shape = (batch, *sizes, rows)
    taps = prod(kernel)
    gemm = Gemm(rows, batch * prod(sizes), channels, taps, channels * taps, taps)
    limits: Limits = yield GetLimits()
    halves: LiveTensor = yield Prepacked(weight, "int8", (2 * rows * gemm.depth,), alone=True)
    factors: LiveTensor = yield Prepacked(weight, "float32", (rows,))
    yield Prepack(half_weight(weight, halves, factors, gemm, limits))
    sums: LiveTensor = yield Scratch("float32", (min(MAX_MATRIX_SUMS, MAX_FLOAT_SPLITS * prod(out.max_shape)),))
    tiles, splits = pixel_matrix_tiles(gemm.columns, rows, gemm.depth, limits)
    values = {
        "batch": 1,
        "rows": gemm.columns,
        "columns": rows,
        "eights": depth // EIGHT,
        "splits": splits,
        "extents": (1, *extents, prod(extents)),
        "outputs": (1, *sizes, prod(sizes)),
        "kernel": (1, *kernel, taps),
        "stride": (1, *steps),
        "padding": (0, *pads),
        "dilation": (1, *gaps),
        "PIXELS": taps == prod(steps) == 1 and not any(pads),
        "WHOLE_STEPS": gemm.depth % (tiles["BLOCKS_DEEP"] * tiles["MATRIX_DEPTH"]) == 0,
        **tiles,
    }
    # An absent bias still needs a buffer in its place; the factors are there and only read.
    addend, fours = factors if bias is None else bias, rows % 4 == 0
    read = (addend, factors, x, halves)
    if splits == 1:
        yield TILES[fours](out, *read, **values, BIAS=bias is not None)
        return
    check_sums(splits, out.numel, sums.max_shape[0])
    yield TILES[fours](sums, *read, **values)
    at_once = 4 if fours else 1
    count, channels = out.numel // at_once, rows // at_once
    yield COMBINE[fours](
        out, sums, addend, count=count, splits=splits, channels=channels, BIAS=bias is not None, threads=count
    )


def _pooled(kernel: Kernel, x: LiveTensor, outs: Shape, places: dict[str, Any], out: LiveTensor, **more: Any) -> Steps:
    batch, _, _, channels = x.shape
    out.shape = (batch, *outs, channels)
    # Places of three dimensions, the first of which is one.
    flat = {name: places[name][1:] for name in ("sizes", "outs", "window", "stride", "padding", "dilation")}
    count = out.numel // 4
    given = {"divisor": 1, **more}
    yield kernel(
        out, x, **flat, **given, fours=channels // 4, count=count, turns=loop_turns(places["window"]), threads=count
    )


@op("liveshape.channels_last_max_pool", epilogues=True, moves_images=True)
def max_pool(
    x: LiveTensor, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool, out: LiveTensor
) -> Steps:
    outs, places = pool_windows(x.shape[1:3], kernel, stride, padding, dilation, ceil_mode)
    yield from _pooled(POOL_MAX, x, outs, places, out)


@op("liveshape.channels_last_average_pool", epilogues=True)
def average_pool(
    x: LiveTensor,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
    out: LiveTensor,
) -> Steps:
    outs, places = pool_windows(x.shape[1:3], kernel, stride, padding, (1,), ceil_mode)
    by: dict[str, Any]
    if divisor is None:
        by = {"DIVISOR": "PADDED" if count_include_pad else "INSIDE"}
    else:
        by = {"DIVISOR": "GIVEN", "divisor": int_of(divisor)}
    yield from _pooled(POOL_AVERAGE, x, outs, places, out, **by)


@op("liveshape.channels_last_nearest", epilogues=True, moves_images=True)
def nearest(x: LiveTensor, output_size: Ints | None, factors: tuple[float, ...] | None, out: LiveTensor) -> Steps:
    batch, *sizes, channels = x.shape
    outs, scales = nearest_steps(tuple(sizes), output_size, factors)
    out.shape = (batch, *outs, channels)
    count = out.numel // 4
    yield ENLARGE(out, x, sizes=tuple(sizes), outs=outs, scales=scales, fours=channels // 4, count=count, threads=count)


@op("liveshape.channels_last_group_norm", epilogues=True)
def group_norm(
    x: LiveTensor, weight: LiveTensor | None, bias: LiveTensor | None, group: int, eps: float, out: LiveTensor
) -> Steps:
    """Where a thread has few pixels, a workgroup has whole groups of an image; else others sum parts of it before."""
    batch, *sizes, channels = x.shape
    own, pixels = channels // group, prod(sizes)
    check_affine((channels,), weight, bias)
    out.shape = x.shape
    limits: Limits = yield GetLimits()
    threads = halving_threads(limits)
    band = norm_band(channels, own, threads)
    parts = norm_parts(pixels, band, threads)
    most = norm_parts(prod(x.max_shape[1:3]), band, threads)
    given = weight or bias
    absent = x if given is None else given  # what is absent still needs a buffer in its place
    read = (x, weight or absent, bias or absent)
    shares: dict[str, Any] = {
        "images": batch, "pixels": pixels, "eights": channels // EIGHT, "group": own, "band": band, "parts": parts,
        "share": ceil_div(pixels, parts), "WG": threads, "groups": batch * parts * (channels // EIGHT // band),
        "eps": eps, "AFFINE": (weight is not None) + 2 * (bias is not None),
    }  # fmt: skip
    sums: LiveTensor | None = None
    if most > 1:
        sums = yield Scratch("float32", (2 * x.max_shape[0] * group * most,))
    if sums is None or parts == 1:
        yield PIXEL_NORM["own"](out, *read, **shares)
        return
    yield PIXEL_NORM["found"](sums, x, **shares)
    yield PIXEL_NORM["parts"](out, *read, sums, **shares)


def norm_band(channels: int, group: int, threads: int) -> int:
    """Vectors of eight channels that a workgroup sums, whole groups of so many channels, a thread for each: they divide
    all that there are.

    >>> norm_band(320, 10, 256), norm_band(128, 4, 256), norm_band(2560, 80, 256), norm_band(128, 1, 32)
    (5, 8, 10, 4)
    """
    unit = math.lcm(group, EIGHT) // EIGHT
    eights = channels // EIGHT
    most = max(unit, min(MAX_BAND, threads * group // EIGHT))
    return max(width for width in range(unit, most + 1, unit) if eights % width == 0)


def norm_parts(pixels: int, band: int, threads: int) -> int:
    """Parts of so many pixels, each of a workgroup that has a few of them for every thread; one where few are left.

    >>> norm_parts(64, 8, 256), norm_parts(256, 10, 256), norm_parts(4096, 8, 256), norm_parts(1 << 20, 8, 256)
    (1, 1, 32, 128)
    """
    lines = threads // band
    return 1 if pixels <= lines * WHOLE_PIXELS else min(MAX_NORM_PARTS, ceil_div(pixels, lines * THREAD_PIXELS))
