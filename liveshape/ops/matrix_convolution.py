"""Convolutions by matrix units: the weight and the images as halves in scratch that layers share, then implicit GEMM.

Each output channel of the weight is divided by a power of two first, and all images by another one, since the sums of a
pixel are of its neighbours, too. Numbers that are float16 stay as they are.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from liveshape.graph import Limits
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import Scratch
from liveshape.ops.matrix_heuristics import (
    HALVES_THREADS,
    MAX_FLOAT_SPLITS,
    MAX_MATRIX_SUMS,
    float_matrix_tiles,
    gains_by_matrices,
    halving_threads,
    matrix_shape,
)
from liveshape.ops.shapes import ceil_div

HALF_WEIGHT = Kernel.load("convolution/half_weight")
HALF_IMAGE = Kernel.load("convolution/half_image")
MATRIX_TILES = Kernel.load("convolution/matrix_tiles")
COMBINE = Kernel.load("convolution/combine_splits")

MIN_CHANNELS = 3  # of the input: fewer leave most of a vector of eight empty
MAX_PARTS = 256  # of the input, whose largest numbers every workgroup reads that needs that of all
PART_VECTORS = 8 * HALVES_THREADS  # of a part, at least
MAX_DEEP = 8  # vectors of channels that a workgroup turns


class ImageHalves(NamedTuple):
    """Scratch for images and weight as halves, for what they were divided by, and for the partial sums of split-K."""

    image: LiveTensor
    weight: LiveTensor
    factors: LiveTensor
    image_factor: LiveTensor
    sums: LiveTensor


def image_halves_of(
    x: LiveTensor, weight: LiveTensor, out: LiveTensor, limits: Limits
) -> Generator[Scratch, Any, ImageHalves | None]:
    """Scratch for a convolution that takes matrix units at some of its live sizes; None where it never does."""
    if x.dtype != weight.dtype or x.dtype != out.dtype or matrix_shape(limits, x.dtype) is None:
        return None
    (images, channels, *extents), (rows, _, *kernel) = x.max_shape, weight.max_shape
    outputs = out.max_shape[0] * prod(out.max_shape[2:])
    if channels < MIN_CHANNELS or not gains_by_matrices(1, rows, outputs, padded_depth(channels, prod(kernel))):
        return None
    halves = [16 * count * ceil_div(channels, 8) for count in (images * prod(extents), rows * prod(kernel))]
    if max(halves) > limits.max_binding_bytes:
        return None
    return ImageHalves(
        (yield Scratch("int8", (halves[0],))),
        (yield Scratch("int8", (halves[1],))),
        (yield Scratch("float32", (rows + MAX_PARTS,))),
        (yield Scratch("float32", (1,))),
        (yield Scratch("float32", (min(MAX_MATRIX_SUMS, MAX_FLOAT_SPLITS * prod(out.max_shape)),))),
    )


def padded_depth(channels: int, taps: int) -> int:
    """The depth of the product, with channels in whole vectors.

    >>> padded_depth(3, 49)
    392
    """
    return 8 * ceil_div(channels, 8) * taps


def matrix_convolution(
    x: LiveTensor,
    weight: LiveTensor,
    bias: LiveTensor | None,
    out: LiveTensor,
    halves: ImageHalves,
    implicit_gemm: dict[str, Any],
    end: dict[str, Any],
    limits: Limits,
) -> Iterator[Dispatch]:
    """A convolution of one group; `implicit_gemm` has its sizes, `end` the clamp that follows."""
    images, channels, *extents = x.shape
    rows, taps, pixels = weight.shape[0], prod(weight.shape[2:]), prod(out.shape[2:])
    scaled, threads = x.dtype != "float16", halving_threads(limits)
    lanes = 4 if x.numel % 4 == 0 else 1
    parts = min(MAX_PARTS, ceil_div(x.numel // lanes, PART_VECTORS)) if scaled else 0
    yield HALF_WEIGHT(
        halves.weight, halves.factors, weight, x, rows=rows, channels=channels, taps=taps, vectors=x.numel // lanes,
        parts=parts, VEC=lanes, WG=threads, SCALED=scaled, groups=rows + parts,
    )  # fmt: skip
    eights = ceil_div(channels, 8)
    deep = min(MAX_DEEP, 1 << (eights - 1).bit_length())
    bands = ceil_div(images * prod(extents), threads // deep) * ceil_div(eights, deep)
    yield HALF_IMAGE(
        halves.image, halves.image_factor, x, halves.factors, images=images, channels=channels, pixels=prod(extents),
        first_part=rows, parts=parts, DEEP=deep, WG=threads, SCALED=scaled, groups=bands,
    )  # fmt: skip
    tiles, splits = float_matrix_tiles(1, rows, images * pixels, padded_depth(channels, taps), limits)
    values = {
        "batch": 1,
        "rows": rows,
        "columns": images * pixels,
        "channels": channels,
        "splits": splits,
        "split_stride": out.numel,
        **implicit_gemm,
        **tiles,
    }
    # An absent bias still needs a buffer in its place; the weight is there and only read.
    addend = weight if bias is None else bias
    read = (halves.image, halves.weight, addend, halves.factors, halves.image_factor)
    if splits == 1:
        yield MATRIX_TILES(out, *read, **values, **end, BIAS=bias is not None)
        return
    yield MATRIX_TILES(halves.sums, *read, **values, low=0.0, high=0.0)
    yield COMBINE(
        out, halves.sums, addend, count=out.numel, splits=splits, channels=rows, pixels=pixels, **end,
        BIAS=bias is not None, threads=out.numel,
    )  # fmt: skip
