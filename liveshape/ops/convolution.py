"""Convolutions of one, two and three dimensions as implicit GEMM: none of them unfolds its input (no im2col in memory).

The output channels of a group are rows, the pixels of the batch columns, and the weight [channels, taps] is the left
factor as the file has it. Where a window is one pixel, or the whole image, it is a plain
product. Where a channel sees one channel there is no depth to speak of, and that has a kernel of its own. Both have
another one for devices with few threads, such as software adapters: subgroups share there what they load.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph import Limits, Shape
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import Product
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import GetLimits, Prepack, Prepacked, Scratch
from liveshape.ops.matmul import DEPTH_STEP, ENOUGH_TILES, FEW_ROWS, TILE_COLUMNS, depth_parts, routed_product, tiling
from liveshape.ops.matrix_convolution import COMBINE, ImageHalves, gemm_of, image_halves_of, matrix_convolution
from liveshape.ops.matrix_heuristics import gains_by_matrices
from liveshape.ops.matrix_products import Halves, halves_of
from liveshape.ops.operations import convolved
from liveshape.ops.product_tiles import RegisterTile, split_sums
from liveshape.ops.registry import Ints, Number, op
from liveshape.ops.row_rules import first_axis
from liveshape.ops.scalars import float_of
from liveshape.ops.shapes import ceil_div, in_three
from liveshape.ops.windows import check_windows, convolved_size, for_each, transposed_size

TILED = Kernel.load("matmul/tiled", FACTORS="convolution")
REGISTER_TILES = Kernel.load("matmul/register_tiles", FACTORS="convolution")
LANE_TILES = Kernel.load("convolution/lane_tiles")
DEPTHWISE = Kernel.load("convolution/depthwise")
LANE_DEPTHWISE = Kernel.load("convolution/lane_depthwise")

AXES = 3  # of the kernels: fewer dimensions have a size of one in front
LOW_TILE = 8  # rows of the tile, twice as wide as the others, that few channels get
FEW_CHANNELS = 4  # of an input channel: up to here a depthwise kernel may read the input again for each
SPLIT_DEPTH = 256  # what a tile should have of the depth at least
MAX_SPLITS = 16
SPLIT_TILES = 128  # below this split-K fills a device better, where no thread has a large part of a tile
TILE_ELEMENTS = 16 * TILE_COLUMNS  # of the tiles that there are where there are few
LARGE_REGISTERS = RegisterTile(128, 64, 2, 2, unrolled=4, ahead=True, split_depth=128)
SMALL_REGISTERS = RegisterTile(64, 64, 2, 1, ahead=True, split_depth=128)
LOW_REGISTERS = RegisterTile(32, 64, 2, 1, ahead=True, split_depth=128)
LOW_REGISTER_TILE = 16  # rows up to which tiles of half of the height are better
MAX_QUOTIENT = 1 << 20  # common/quotient.wgsl
LANE_PIXELS = 4  # that a lane has in registers
LANE_ROWS = (4, 8, 16)  # output channels that it has of each
LANE_HEIGHT = 4  # of its block of pixels, where a channel sees one channel
LANE_TAPS = 4  # of a depthwise kernel that it keeps
LANE_SPAN = 16  # of a row of the input that it has in registers at most

Memory = Scratch | Prepacked | Prepack
Steps = Generator[Dispatch | Memory | GetLimits, Any, None]


class Window(NamedTuple):
    """Kernel size, stride, padding and dilation, three ints each."""

    kernel: Shape
    stride: Shape
    padding: Shape
    dilation: Shape
    transposed: bool

    def outputs(self, extents: Shape, more: Shape) -> Shape:
        """The size of the result; a transposed one may be asked for `more` of it."""
        axes = zip(extents, self.kernel, self.stride, self.padding, more, self.dilation, strict=True)
        if self.transposed:
            return tuple(transposed_size(*axis) for axis in axes)
        return tuple(convolved_size(size, kernel, step, pad, dilation) for size, kernel, step, pad, _, dilation in axes)


class Layer(NamedTuple):
    """A convolution at its live sizes; `end` is the clamp that follows."""

    x: LiveTensor
    weight: LiveTensor
    bias: LiveTensor | None
    out: LiveTensor
    window: Window
    extents: Shape
    outputs: Shape
    groups: int
    end: dict[str, Any]
    many: bool  # whether threads are there by the thousand, which too few tiles would leave idle
    lanes: int  # of a subgroup, where threads are few and its shuffles cheaper than loads; else 0
    parts: int  # of the depth, at least
    registers: bool  # whether the device has the threads of tiles in registers

    @property
    def rows(self) -> int:
        """Output channels of a group."""
        return self.out.shape[1] // self.groups

    @property
    def enough(self) -> int:
        """Tiles that keep a device busy."""
        return ENOUGH_TILES if self.many else 1

    @property
    def depth(self) -> int:
        """What a sum is made of."""
        return self.x.shape[1] // self.groups * prod(self.window.kernel)

    @property
    def plain(self) -> bool:
        """Whether every tap of every window lies in the image, and sees all channels."""
        return self.groups == 1 and not self.window.transposed and not any(self.window.padding)

    @property
    def pointwise(self) -> bool:
        """Whether a window is one pixel, and every pixel has one."""
        return prod(self.window.kernel) == prod(self.window.stride) == 1

    @property
    def block(self) -> Shape | None:
        """What each pixel becomes where the convolution is transposed and its windows fill the output side by side."""
        window = self.window
        side_by_side = window.transposed and window.kernel == window.stride and not any(window.padding)
        sizes = tuple(size * step for size, step in zip(self.extents, window.stride, strict=True))
        return window.stride if side_by_side and self.outputs == sizes else None

    @property
    def gains_by_matrices(self) -> bool:
        """Whether implicit GEMM is large enough for matrix units."""
        return gemm_of(self.x.shape, self.weight.shape, self.out.shape, self.block).gains_by_matrices

    @property
    def matrix_windows(self) -> dict[str, Any]:
        """Params of the im2col indices for matrix units; columns are pixels of the input where these become blocks."""
        if self.block is None:
            return self.implicit_gemm
        pixels = (*self.extents, prod(self.extents))
        single = {"kernel": (1, 1, 1, 1), "stride": (1, 1, 1), "padding": (0, 0, 0), "dilation": (1, 1, 1)}
        return {"extents": pixels, "outputs": pixels, **single}

    @property
    def implicit_gemm(self) -> dict[str, Any]:
        """Params of the im2col indices: sizes with their product, and strides."""
        return {
            "extents": (*self.extents, prod(self.extents)),
            "outputs": (*self.outputs, prod(self.outputs)),
            "kernel": (*self.window.kernel, prod(self.window.kernel)),
            "stride": self.window.stride,
            "padding": self.window.padding,
            "dilation": self.window.dilation,
        }

    @property
    def addend(self) -> LiveTensor:
        """An absent bias still needs a buffer in its place; the weight is there and only read."""
        return self.weight if self.bias is None else self.bias


@op(
    "aten.convolution.default",
    "aten::convolution.out",
    rows=first_axis("x", rank="weight"),
    product=Product(convolved),
    epilogues=True,
    channels_last="liveshape.channels_last_convolution",
)
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
    yield from conv_with_clamp(
        x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, None, None, out
    )


@op(
    "et_vk.conv_with_clamp.default",
    rows=first_axis("x", rank="weight"),
    product=Product(convolved),
    epilogues=True,
)
def conv_with_clamp(
    x: LiveTensor,
    weight: LiveTensor,
    bias: LiveTensor | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
    output_min: Number | None,
    output_max: Number | None,
    out: LiveTensor,
) -> Steps:
    rank = x.rank - 2
    if not 1 <= rank <= AXES:
        raise UnsupportedError(f"a convolution of {x.shape}: inputs [batch, channels, 1 to 3 sizes] are what there is")
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    _check(x, weight, bias, channels, groups, transposed)
    steps = in_three(for_each("stride", stride, rank))
    pads = in_three(for_each("padding", padding, rank), 0)
    dilations = in_three(for_each("dilation", dilation, rank))
    window = Window(in_three(weight.shape[2:]), steps, pads, dilations, transposed)
    extents = in_three(x.shape[2:])
    outputs = window.outputs(extents, in_three(for_each("output padding", output_padding, rank), 0))
    # As in torch: of no images at all, a transposed convolution may give an image of nothing.
    least = 0 if transposed and x.shape[0] == 0 else 1
    check_windows(outputs, x.shape[2:], weight.shape[2:], padding, dilation, least)
    out.shape = (x.shape[0], channels, *outputs[AXES - rank :])
    end = {
        "low": -math.inf if output_min is None else float_of(output_min),
        "high": math.inf if output_max is None else float_of(output_max),
        "CLAMP": output_min is not None or output_max is not None,
    }
    limits: Limits = yield GetLimits()
    # The kernel of lanes has no split-K, and a turn for each element of the depth, beside those of its taps.
    depth, taps = x.shape[1] // groups * prod(window.kernel), prod(window.kernel)
    lanes = limits.few_threads_lanes if depth + AXES * taps <= limits.max_turns else 0
    many, parts = limits.has_many_threads, 1 if lanes else depth_parts(depth, limits)
    registers = many and limits.max_invocations >= LARGE_REGISTERS.threads and not transposed and depth < MAX_QUOTIENT
    layer = Layer(x, weight, bias, out, window, extents, outputs, groups, end, many, lanes, parts, registers)
    # Asked for before the live sizes select a kernel, as any of them may come to need it.
    sums: LiveTensor | None = None
    results, most = prod(out.max_shape), depth_parts(x.max_shape[1] // groups * taps, limits)
    room = most * results if most > 1 and (layer.plain or not lanes) else 0
    if layer.registers and layer.depth >= 2 * LARGE_REGISTERS.split_depth:
        room = max(room, split_sums(results))
    elif layer.many and layer.depth >= 2 * SPLIT_DEPTH:
        room = max(room, min(2 * SPLIT_TILES * TILE_ELEMENTS, MAX_SPLITS * results))
    if room:
        sums = yield Scratch("float32", (room,))
    halves = yield from _halves(layer, limits)
    if isinstance(halves, ImageHalves) and layer.gains_by_matrices:
        windows, block = layer.matrix_windows, layer.block
        yield from matrix_convolution(x, weight, bias, out, halves, windows, block, end, limits)
    else:
        yield from _planned(layer, sums, None if isinstance(halves, ImageHalves) else halves, limits)


def _halves(layer: Layer, limits: Limits) -> Generator[Memory, Any, Halves | ImageHalves | None]:
    """Scratch for matrix units, where the layer may take them: as the product that it is, or by implicit GEMM."""
    x, weight, out = layer.x, layer.weight, layer.out
    if layer.groups > 1 or (layer.window.transposed and layer.block is None):
        return None
    if layer.plain and layer.window.kernel == in_three(x.max_shape[2:]):
        return (yield from halves_of(x, weight, out, layer.rows, layer.depth, limits, transposed=True))
    if layer.plain and layer.pointwise:
        return (yield from halves_of(weight, x, out, prod(layer.outputs), layer.depth, limits, transposed=False))
    return (yield from image_halves_of(x, weight, out, layer.block, limits))


def _planned(layer: Layer, sums: LiveTensor | None, halves: Halves | None, limits: Limits) -> Iterator[Dispatch]:
    x, weight, bias, out, window, extents, outputs, _, end, *_ = layer
    batch, channels = out.shape[:2]
    pixels = prod(outputs)
    by_matrices = halves is not None and gains_by_matrices(batch, channels, pixels, layer.depth)
    if layer.plain and window.kernel == extents:
        whole = halves if window.kernel == in_three(x.max_shape[2:]) else None  # else it is of the other order
        yield from routed_product(
            x, weight, out, 1, batch, channels, layer.depth, limits, whole, sums, transposed=True,
            addend=bias, enough=layer.enough, **end,
        )  # fmt: skip
    elif layer.plain and layer.pointwise and (by_matrices or not _gain(layer)):
        yield from routed_product(
            weight, x, out, batch, channels, pixels, layer.depth, limits, halves, sums, transposed=False,
            addend=bias, addend_strides=(0, 1, 0), enough=layer.enough, **end,
        )  # fmt: skip
    elif not window.transposed and weight.shape[1] == 1 and layer.rows <= FEW_CHANNELS:
        yield _depthwise(layer)
    else:
        yield from _tiled(layer, sums)


def _depthwise(layer: Layer) -> Dispatch:
    """Every output channel sees one input channel."""
    window, outputs, lanes = layer.window, layer.outputs, layer.lanes
    planes, fours = prod(layer.out.shape[:2]), ceil_div(outputs[2], 4)
    tensors = layer.out, layer.x, layer.weight, layer.addend
    values: dict[str, Any] = {
        "fours": fours,
        "channels": layer.out.shape[1],
        "multiple": layer.rows,
        **layer.implicit_gemm,
        **layer.end,
        "BIAS": layer.bias is not None,
        "WIDTH": window.kernel[2],
        "STRIDE": window.stride[2],
        "DILATION": window.dilation[2],
    }
    span = 3 * window.stride[2] + (window.kernel[2] - 1) * window.dilation[2] + 1
    if prod(window.kernel) <= LANE_TAPS * lanes and span <= LANE_SPAN:
        blocks = outputs[0] * ceil_div(outputs[1], LANE_HEIGHT) * fours
        return LANE_DEPTHWISE(
            *tensors, **values, count=planes, ROW_STRIDE=window.stride[1], ROW_DILATION=window.dilation[1],
            WG=lanes, groups=planes * ceil_div(blocks, lanes),
        )  # fmt: skip
    count = planes * outputs[0] * outputs[1] * fours
    return DEPTHWISE(*tensors, **values, count=count, threads=count)


def _gain(layer: Layer) -> bool:
    """Whether 1x1 windows gain by implicit GEMM: images of a batch share its tiles, and it has split-K and lanes."""
    if layer.lanes or (layer.registers and layer.rows > LOW_REGISTER_TILE):
        return True
    batch, pixels = layer.out.shape[0], prod(layer.outputs)
    if layer.rows <= FEW_ROWS:
        return False
    per_image, per_batch = batch * ceil_div(pixels, TILE_COLUMNS), ceil_div(batch * pixels, TILE_COLUMNS)
    return 2 * per_batch <= per_image or _tiles(layer, 1, pixels).splits > 1


def _tiled(layer: Layer, sums: LiveTensor | None) -> Iterator[Dispatch]:
    """The tiles of a product, by phases where it is transposed; few deep ones have split-K and a reduction."""
    x, weight, bias, out, window, _, outputs, groups, end, _, lanes, *_ = layer
    tap_step, pace, phases, pixels = (1,) * AXES, window.dilation, 1, prod(outputs)
    if window.transposed:
        common = tuple(math.gcd(*pair) for pair in zip(window.stride, window.dilation, strict=True))
        tap_step = tuple(step // divisor for step, divisor in zip(window.stride, common, strict=True))
        pace = tuple(step // divisor for step, divisor in zip(window.dilation, common, strict=True))
        phases = prod(window.stride)
        pixels = prod(ceil_div(size, step) for size, step in zip(outputs, window.stride, strict=True))
    tiles = _tiles(layer, phases, pixels)
    splits = 1 if sums is None else tiles.splits
    values: dict[str, Any] = {
        "batch": x.shape[0],
        "divisions": groups,
        "rows": layer.rows,
        "channels": x.shape[1] // groups,
        "columns": x.shape[0] * pixels,
        "splits": splits,
        "split_depth": ceil_div(layer.depth, splits * DEPTH_STEP) * DEPTH_STEP,
        "split_stride": out.numel,
        "tap_step": tap_step,
        "pace": pace,
        **layer.implicit_gemm,
        "TRANSPOSED": window.transposed,
        "groups": tiles.total * splits,
    }
    if lanes:
        yield LANE_TILES(
            out, x, weight, layer.addend, **values, **end, BIAS=bias is not None, TILE_ROWS=tiles.rows, WG=lanes
        )
        return
    kernel = TILED if tiles.registers is None else REGISTER_TILES
    values |= {"VEC": 4 if layer.depth % 4 == 0 and not window.transposed else 1, **tiles.constants}
    if sums is None or splits == 1:
        yield kernel(out, x, weight, layer.addend, **values, **end, BIAS=bias is not None)
        return
    yield kernel(sums, x, weight, layer.addend, **values, low=0.0, high=0.0)
    yield COMBINE(
        out, sums, layer.addend, count=out.numel, splits=splits, channels=out.shape[1], pixels=prod(outputs),
        **end, BIAS=bias is not None, threads=out.numel,
    )  # fmt: skip


class Tiles(NamedTuple):
    """The size of a tile, how many there are, and their split-K."""

    rows: int
    columns: int
    total: int
    splits: int
    registers: RegisterTile | None  # where a thread has a large part of it in registers

    @property
    def constants(self) -> dict[str, int]:
        """Those of its kernel."""
        if self.registers is None:
            return {"TILE_ROWS": self.rows, "TILE_COLUMNS": self.columns}
        return self.registers.constants(transposed=False)


def _tiles(layer: Layer, phases: int, pixels: int) -> Tiles:
    batch, columns = layer.groups * phases, layer.out.shape[0] * pixels
    if layer.lanes:
        height = next((rows for rows in LANE_ROWS if layer.rows <= rows), LANE_ROWS[-1])
        width = LANE_PIXELS * layer.lanes
        total = batch * ceil_div(layer.rows, height) * ceil_div(columns, width)
    elif layer.rows <= LOW_TILE:
        height, width = LOW_TILE, 2 * TILE_COLUMNS
        total = batch * ceil_div(columns, width)
    elif layer.registers and layer.rows > LOW_REGISTER_TILE:
        registers = _register_tile(batch, layer.rows, columns, layer.depth)
        height, width, total = registers.rows, registers.columns, registers.covering(batch, layer.rows, columns)
        return Tiles(height, width, total, max(layer.parts, registers.splits(total, layer.depth)), registers)
    else:
        width = TILE_COLUMNS
        height, total = tiling(batch, layer.rows, columns, layer.enough)
    splits = layer.parts
    while (
        layer.many and splits < MAX_SPLITS and splits * total < SPLIT_TILES and layer.depth >= 2 * splits * SPLIT_DEPTH
    ):
        splits = splits * 2
    return Tiles(height, width, total, splits, None)


def _register_tile(batch: int, rows: int, columns: int, depth: int) -> RegisterTile:
    """The tile that the rows half fill, a large one where these and the splits of their depth keep a device busy.

    >>> [_register_tile(1, *sizes).rows for sizes in ((256, 1568, 2304), (256, 196, 2304), (32, 9, 9))]
    [128, 64, 32]
    """
    many = LARGE_REGISTERS.covering(batch, rows, columns) * LARGE_REGISTERS.most_splits(depth) >= ENOUGH_TILES
    if many and 2 * rows > LARGE_REGISTERS.rows:
        return LARGE_REGISTERS
    return SMALL_REGISTERS if 2 * rows > SMALL_REGISTERS.rows else LOW_REGISTERS


def _check(
    x: LiveTensor, weight: LiveTensor, bias: LiveTensor | None, channels: int, groups: int, transposed: bool
) -> None:
    """The kernels trust these sizes: nothing else keeps them inside the tensors."""
    fits = weight.rank == x.rank and groups >= 1 and channels % groups == 0 and x.shape[1] % groups == 0
    if not fits or x.shape[1] != (weight.shape[0] if transposed else weight.shape[1] * groups):
        raise ShapeError(
            f"a weight {weight.shape} in {groups} groups does not fit an input {x.shape}; it takes "
            f"{'[channels, channels of the output / groups, ...]' if transposed else '[..., channels / groups, ...]'}"
        )
    if bias is not None and bias.shape != (channels,):
        raise ShapeError(f"the bias {bias.shape} of a convolution to {channels} channels should be ({channels},)")
