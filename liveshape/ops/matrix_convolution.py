"""Convolutions by matrix units: the weight and the images as halves, then implicit GEMM. Constant weights are prepacked
at load, others and images are written to scratch that layers share.

Each output channel of the weight is divided by a power of two first, and all images by another one, since the sums of a
pixel are of its neighbours, too. Numbers that are float16 stay as they are.

A transposed convolution whose windows do not overlap is a product, too: its rows are the taps of all output channels,
and each pixel of the input becomes a block of the output.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from liveshape.graph import Limits, Shape
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import Prepack, Prepacked, Scratch
from liveshape.ops.matrix_heuristics import (
    HALVES_THREADS,
    MAX_FLOAT_SPLITS,
    MAX_MATRIX_SUMS,
    check_sums,
    float_matrix_tiles,
    gains_by_matrices,
    halving_threads,
    matrix_shape,
)
from liveshape.ops.matrix_products import MAX_PREPACKED
from liveshape.ops.shapes import ceil_div

HALF_WEIGHT = Kernel.load("convolution/half_weight")
IMAGE_PARTS = Kernel.load("convolution/image_parts")
HALF_IMAGE = Kernel.load("convolution/half_image")
MATRIX_TILES = Kernel.load("convolution/matrix_tiles")
COMBINE = Kernel.load("convolution/combine_splits")

MIN_CHANNELS = 3  # of the input: fewer leave most of a vector of eight empty
MAX_PARTS = 1024  # of the input, whose largest numbers every workgroup reads that needs that of all
PART_VECTORS = 2 * HALVES_THREADS  # of a part, at least
MAX_DEPTH = 8 << 20  # vectors of eight are divided as floats
MAX_DEEP = 8  # vectors of channels that a workgroup turns


class Gemm(NamedTuple):
    """The product that a convolution of one group is."""

    rows: int
    columns: int
    channels: int  # of the input
    taps: int  # each with all channels in the depth
    row_stride: int  # of the weight, in which taps are neighbours
    channel_stride: int

    @property
    def depth(self) -> int:
        """With channels in whole vectors."""
        return 8 * ceil_div(self.channels, 8) * self.taps

    @property
    def gains_by_matrices(self) -> bool:
        """Whether it is large enough for matrix units."""
        return gains_by_matrices(1, self.rows, self.columns, self.depth)


def gemm_of(x: Shape, weight: Shape, out: Shape, block: Shape | None) -> Gemm:
    """Of an input, a weight and an output; `block` is what a pixel becomes where the convolution is transposed.

    >>> gemm_of((1, 3, 8, 8), (64, 3, 7, 7), (1, 64, 4, 4), None).depth
    392
    >>> gemm_of((1, 16, 8, 8), (16, 5, 2, 2), (1, 5, 16, 16), (1, 2, 2))
    Gemm(rows=20, columns=64, channels=16, taps=1, row_stride=1, channel_stride=20)
    """
    channels = x[1]
    if block is not None:
        rows = prod(weight[1:])
        return Gemm(rows, x[0] * prod(x[2:]), channels, 1, 1, rows)
    taps = prod(weight[2:])
    return Gemm(weight[0], out[0] * prod(out[2:]), channels, taps, channels * taps, taps)


class ImageHalves(NamedTuple):
    """Images and weight as halves, what they were divided by, and the partial sums of split-K: scratch, but for a
    weight that is prepacked."""

    weight: LiveTensor
    factors: LiveTensor
    prepacked: bool
    image: LiveTensor
    parts: LiveTensor
    image_factor: LiveTensor
    sums: LiveTensor


def image_halves_of(
    x: LiveTensor, weight: LiveTensor, out: LiveTensor, block: Shape | None, limits: Limits
) -> Generator[Scratch | Prepacked | Prepack, Any, ImageHalves | None]:
    """Memory for a convolution that takes matrix units at some of its live sizes; None where it never does."""
    if x.dtype != weight.dtype or x.dtype != out.dtype or matrix_shape(limits, x.dtype) is None:
        return None
    gemm = gemm_of(x.max_shape, weight.max_shape, out.max_shape, block)
    if gemm.channels < MIN_CHANNELS or gemm.depth > MAX_DEPTH or not gemm.gains_by_matrices:
        return None
    pixels = x.max_shape[0] * prod(x.max_shape[2:])
    image, kernel = (16 * count * ceil_div(gemm.channels, 8) for count in (pixels, gemm.rows * gemm.taps))
    if max(image, kernel) > limits.max_binding_bytes:
        return None
    halves: LiveTensor | None = (yield Prepacked(weight, "int8", (kernel,))) if kernel <= MAX_PREPACKED else None
    prepacked = halves is not None
    if halves is not None:
        factors = yield Prepacked(weight, "float32", (gemm.rows,))
        yield Prepack(half_weight(weight, halves, factors, gemm, limits))
    else:
        halves = yield Scratch("int8", (kernel,))
        factors = yield Scratch("float32", (gemm.rows,))
    return ImageHalves(
        halves,
        factors,
        prepacked,
        (yield Scratch("int8", (image,))),
        (yield Scratch("float32", (MAX_PARTS,))),
        (yield Scratch("float32", (1,))),
        (yield Scratch("float32", (min(MAX_MATRIX_SUMS, MAX_FLOAT_SPLITS * prod(out.max_shape)),))),
    )


def half_weight(weight: LiveTensor, halves: LiveTensor, factors: LiveTensor, gemm: Gemm, limits: Limits) -> Dispatch:
    """The weight of a product as halves, of each output channel the taps.

    Example: `yield Prepack(half_weight(weight, halves, factors, gemm, limits))`.
    """
    return HALF_WEIGHT(
        halves, factors, weight, rows=gemm.rows, channels=gemm.channels, taps=gemm.taps, row_stride=gemm.row_stride,
        channel_stride=gemm.channel_stride, WG=halving_threads(limits), SCALED=_is_scaled(weight), groups=gemm.rows,
    )  # fmt: skip


def _is_scaled(tensor: LiveTensor) -> bool:
    """Whether numbers are divided by a power of two on their way to halves."""
    return tensor.dtype != "float16"


def matrix_convolution(
    x: LiveTensor,
    weight: LiveTensor,
    bias: LiveTensor | None,
    out: LiveTensor,
    halves: ImageHalves,
    windows: dict[str, Any],
    block: Shape | None,
    end: dict[str, Any],
    limits: Limits,
) -> Iterator[Dispatch]:
    """A convolution of one group; `windows` has the params of its columns, `end` the clamp that follows."""
    gemm = gemm_of(x.shape, weight.shape, out.shape, block)
    rows, channels, pixels = gemm.rows, gemm.channels, prod(x.shape[2:])
    if not halves.prepacked:
        yield half_weight(weight, halves.weight, halves.factors, gemm, limits)
    threads, parts = halving_threads(limits), 0
    if _is_scaled(x):
        lanes = 4 if x.numel % 4 == 0 else 1
        vectors = x.numel // lanes
        parts = min(MAX_PARTS, ceil_div(vectors, PART_VECTORS))
        yield IMAGE_PARTS(halves.parts, x, vectors=vectors, parts=parts, VEC=lanes, WG=threads, groups=parts)
    eights = ceil_div(channels, 8)
    deep = min(MAX_DEEP, 1 << (eights - 1).bit_length())
    bands = ceil_div(x.shape[0] * pixels, threads // deep) * ceil_div(eights, deep)
    yield HALF_IMAGE(
        halves.image, halves.image_factor, x, halves.parts, images=x.shape[0], channels=channels, pixels=pixels,
        parts=parts, DEEP=deep, WG=threads, SCALED=_is_scaled(x), groups=bands,
    )  # fmt: skip
    tiles, splits = float_matrix_tiles(1, rows, gemm.columns, gemm.depth, limits)
    values = {
        "batch": 1,
        "rows": rows,
        "columns": gemm.columns,
        "channels": channels,
        "splits": splits,
        "split_stride": out.numel,
        "block": (1, 1, 1, 1) if block is None else (*block, prod(block)),
        "SPREAD": block is not None,
        **windows,
        **tiles,
    }
    # An absent bias still needs a buffer in its place; the weight is there and only read.
    addend = weight if bias is None else bias
    read = (halves.image, halves.weight, addend, halves.factors, halves.image_factor)
    if splits == 1:
        yield MATRIX_TILES(out, *read, **values, **end, BIAS=bias is not None)
        return
    check_sums(splits, out.numel, halves.sums.max_shape[0])
    yield MATRIX_TILES(halves.sums, *read, **values, low=0.0, high=0.0)
    yield COMBINE(
        out, halves.sums, addend, count=out.numel, splits=splits, channels=out.shape[1], pixels=prod(out.shape[2:]),
        **end, BIAS=bias is not None, threads=out.numel,
    )  # fmt: skip
