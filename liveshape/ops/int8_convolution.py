"""Convolutions between tensors of eight bits: exact sums of integers, as in `int8`.

What lies outside of x is its zero point. The input is made channels-last first, so that a word holds four of
them; a depthwise convolution reads x as it is.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph import Limits
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import Product
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops.int8 import check_columns, check_depth, is_relu
from liveshape.ops.matrix_heuristics import VECTOR_BYTES, byte_matrix_tiles
from liveshape.ops.movement import moved, permute_copy
from liveshape.ops.operations import convolved, convolved_transposed
from liveshape.ops.registry import Ints, op
from liveshape.ops.row_rules import first_axis
from liveshape.ops.shapes import ceil_div
from liveshape.ops.windows import check_windows, convolved_size, transposed_size

INT8_CONVOLUTION = Kernel.load("int8/convolution")
INT8_MATRIX_CONVOLUTION = Kernel.load("int8/matrix_convolution", FACTORS="bytes")
INT8_DEPTHWISE = Kernel.load("int8/convolution", CHANNELWISE="depthwise")

CHANNELS_LAST = (0, 2, 3, 1)

Steps = Generator[Dispatch | Scratch | GetLimits, Any, None]


@op("et_vk.q8ta_conv2d.default", "et_vk.q8ta_conv2d_pw.default", rows=first_axis("x"), product=Product(convolved))
def q8ta_conv2d(
    x: LiveTensor,
    input_scale: float,
    input_zero_point: int,
    weight: LiveTensor,
    weight_sums: LiveTensor,
    weight_scales: LiveTensor,
    output_scale: float,
    output_zero_point: int,
    bias: LiveTensor | None,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    activation: str,
    out: LiveTensor,
) -> Steps:
    """The weight is [out channels, kernel * channels of a group], its rows padded to whole words."""
    _check(x, kernel_size, stride, padding, dilation)
    out.shape = (x.shape[0], weight.shape[0], *_convolved(x, kernel_size, stride, padding, dilation))
    values = _values(input_scale, input_zero_point, output_scale, output_zero_point, bias, activation)
    sizes = _sizes(kernel_size, stride, padding, dilation)
    yield from _over_channels(x, weight, weight_sums, weight_scales, bias, groups, out, **values, **sizes)


@op("et_vk.q8ta_conv2d_transposed.default", rows=first_axis("x"), product=Product(convolved_transposed))
def q8ta_conv2d_transposed(
    x: LiveTensor,
    input_scale: float,
    input_zero_point: int,
    weight: LiveTensor,
    weight_sums: LiveTensor,
    weight_scales: LiveTensor,
    output_scale: float,
    output_zero_point: int,
    bias: LiveTensor | None,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    output_padding: Ints,
    dilation: Ints,
    groups: int,
    activation: str,
    out: LiveTensor,
) -> Steps:
    """The weight is as in q8ta_conv2d; the groups have the same scales, one for each out channel of a group."""
    _check(x, kernel_size, stride, padding, dilation, output_padding)
    rows = zip(x.shape[2:], kernel_size, stride, padding, output_padding, dilation, strict=True)
    sizes = tuple(transposed_size(*row) for row in rows)
    check_windows(sizes, x.shape[2:], kernel_size, padding, dilation)
    out.shape = (x.shape[0], weight.shape[0], *sizes)
    values = _values(input_scale, input_zero_point, output_scale, output_zero_point, bias, activation)
    window = _sizes(kernel_size, stride, padding, dilation)
    yield from _over_channels(
        x, weight, weight_sums, weight_scales, bias, groups, out, repeated=True, TRANSPOSED=True, **values, **window
    )


@op("et_vk.q8ta_conv2d_dw.default", rows=first_axis("x"), product=Product(convolved))
def q8ta_conv2d_dw(
    x: LiveTensor,
    input_scale: float,
    input_zero_point: int,
    weight: LiveTensor,
    weight_sums: LiveTensor,
    weight_scales: LiveTensor,
    output_scale: float,
    output_zero_point: int,
    bias: LiveTensor | None,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    activation: str,
    out: LiveTensor,
) -> Steps:
    """The weight is [height, width, channels], its rows padded to whole words."""
    _check(x, kernel_size, stride, padding, dilation)
    images, channels, *_ = x.shape
    if weight.rank != 3 or weight.shape[:2] != tuple(kernel_size) or weight.shape[2] < channels or groups != channels:
        raise ShapeError(f"a weight of {weight.shape} in {groups} groups does not fit {x.shape} and {kernel_size}")
    check_columns(channels, weight_scales, bias)
    out.shape = (images, channels, *_convolved(x, kernel_size, stride, padding, dilation))
    words = ceil_div(out.numel, 4)
    yield INT8_DEPTHWISE(
        out, x, weight, weight_sums, weight_scales, weight_scales if bias is None else bias, count=words,
        elements=out.numel, channels=channels, out_channels=channels, group_channels=1, group_out_channels=1,
        scale_period=channels, pitch=weight.shape[2], size=x.shape[2:], out_size=out.shape[2:], threads=words,
        **_values(input_scale, input_zero_point, output_scale, output_zero_point, bias, activation),
        **_sizes(kernel_size, stride, padding, dilation),
    )  # fmt: skip


def _over_channels(
    x: LiveTensor,
    weight: LiveTensor,
    sums: LiveTensor,
    scales: LiveTensor,
    bias: LiveTensor | None,
    groups: int,
    out: LiveTensor,
    repeated: bool = False,
    **values: Any,
) -> Steps:
    images, channels, *_ = x.shape
    out_channels, pitch = weight.shape
    if groups < 1 or channels % groups or out_channels % groups:
        raise ShapeError(f"{groups} groups do not divide {channels} channels and {out_channels} of the output")
    group_channels, group_out_channels = channels // groups, out_channels // groups
    depth = prod(values["kernel"]) * group_channels
    if pitch < depth:
        raise ShapeError(f"a weight of {weight.shape} is too narrow for {depth} products")
    period = group_out_channels if repeated else out_channels
    check_columns(out_channels, sums, bias)
    check_columns(period, scales)
    check_depth(depth)
    channels_last: LiveTensor = yield Scratch("int8", tuple(x.max_shape[axis] for axis in CHANNELS_LAST))
    yield from moved(permute_copy, x, CHANNELS_LAST, channels_last)
    pixels = prod(out.shape[2:])
    tensors = (out, channels_last, weight, sums, scales, scales if bias is None else bias)
    extents: dict[str, Any] = {"size": x.shape[2:], "out_size": out.shape[2:], "pitch": pitch, "scale_period": period}
    limits: Limits = yield GetLimits()
    tiles = byte_matrix_tiles(out_channels, images * pixels, depth, limits)
    if tiles is not None and groups == 1 and not repeated and _has_vectors(channels, pitch, pixels):
        sizes = {"batch": 1, "rows": out_channels, "columns": images * pixels, "channels": channels, "splits": 1}
        yield INT8_MATRIX_CONVOLUTION(*tensors, **sizes, **extents, **tiles, **values)
        return
    # Four channels of four pixels use each word four times; the pixels must be one word, the channels of one group.
    thread_channels = 4 if pixels % 4 == 0 and out_channels > 1 and (groups == 1 or group_out_channels % 4 == 0) else 1
    units = (
        images * ceil_div(out_channels, thread_channels) * (pixels // 4)
        if thread_channels > 1
        else ceil_div(out.numel, 4)
    )
    yield INT8_CONVOLUTION(
        *tensors, count=units, elements=out.numel, channels=channels, out_channels=out_channels,
        group_channels=group_channels, group_out_channels=group_out_channels, CHANNELS=thread_channels,
        ALIGNED=group_channels % 4 == 0 and pitch % 4 == 0, threads=units, turns=2 * depth, **extents, **values,
    )  # fmt: skip


def _has_vectors(channels: int, pitch: int, pixels: int) -> bool:
    """Whether matrix units can load x and the weight in whole vectors, and four pixels are a word of the output."""
    return channels % VECTOR_BYTES == 0 and pitch % VECTOR_BYTES == 0 and pixels % 4 == 0


def _convolved(x: LiveTensor, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Ints:
    rows = zip(x.shape[2:], kernel_size, stride, padding, dilation, strict=True)
    sizes = tuple(convolved_size(*row) for row in rows)
    check_windows(sizes, x.shape[2:], kernel_size, padding, dilation)
    return sizes


def _check(x: LiveTensor, *pairs: Ints) -> None:
    if x.dtype != "int8":
        raise UnsupportedError(f"x of dtype {x.dtype}: it must be int8, as a quantizer leaves it")
    if x.rank != 4 or any(len(pair) != 2 for pair in pairs):
        raise ShapeError(f"x {x.shape} must be [N, C, H, W], and sizes {pairs} of its height and width")
    if any(number < 1 for pair in (pairs[0], pairs[1], pairs[3]) for number in pair):
        raise ShapeError(f"kernel {pairs[0]}, stride {pairs[1]} and dilation {pairs[3]} must be at least 1")


def _sizes(kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> dict[str, Any]:
    return {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}


def _values(
    scale: float, zero: int, output_scale: float, output_zero: int, bias: LiveTensor | None, activation: str
) -> dict[str, Any]:
    return {
        "x_scale": scale,
        "x_zero": zero,
        "inverse": 1.0 / output_scale,
        "zero": output_zero,
        "BIAS": bias is not None,
        "RELU": is_relu(activation),
    }
