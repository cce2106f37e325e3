"""Layers between integers of eight bits: dequantized, computed in float64, quantized again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from liveshape.check.meanings.meaning_table import meaning


def _values32(codes: Any, scale: float, zero_point: int) -> Any:
    """In float32, as the exporter defines operators on elements: of ties in float64 it decides others."""
    return (codes.astype(np.float32) - np.float32(zero_point)) * np.float32(scale)


def _codes32(values: Any, inverse_scale: float, zero_point: int) -> Sequence[Any]:
    return [np.clip(np.rint(values * np.float32(inverse_scale)) + zero_point, -128, 127)]


def _values(codes: Any, scale: float, zero_point: int) -> Any:
    return (codes.astype(np.float64) - zero_point) * scale


def _codes(values: Any, scale: float, zero_point: int, activation: str = "none") -> Sequence[Any]:
    shown = np.maximum(values, 0) if activation == "relu" else values
    return [np.clip(np.rint(shown / scale) + zero_point, -128, 127)]


@meaning("et_vk.q8ta_pixel_shuffle.default")
def _pixel_shuffle(x: Any, scale: float, zero: int, inverse_scale: float, out_zero: int, factor: int) -> Sequence[Any]:
    *lead, channels, height, width = x.shape
    parts = _values32(x, scale, zero).reshape(*lead, channels // factor**2, factor, factor, height, width)
    at = len(lead) + 1  # (..., channels, down, across, height, width)
    order = [*range(at), at + 2, at, at + 3, at + 1]
    moved = parts.transpose(order).reshape(*lead, channels // factor**2, height * factor, width * factor)
    return _codes32(moved, inverse_scale, out_zero)


def _linear(x: Any, weight: Any, scales: Any, bias: Any) -> Any:
    columns, depth = len(weight), x.shape[-1]
    factor = weight[:, :depth].astype(np.float64) * scales[:columns, None]
    return x @ factor.T + (0 if bias is None else bias[:columns])


@meaning("et_vk.linear_q8ta_q8csw.default")
def _linear_q8ta_q8csw(
    x: Any, scale: float, zero: int, weight: Any, sums: Any, scales: Any, bias: Any
) -> Sequence[Any]:
    return [_linear(_values(x, scale, zero), weight, scales, bias)]


@meaning("et_vk.q8ta_linear.default", "et_vk.q8ta_linear_gemv.default")
def _q8ta_linear(
    x: Any, scale: float, zero: int, weight: Any, sums: Any, scales: Any, out_scale: float, out_zero: int, bias: Any,
    activation: str,
) -> Sequence[Any]:  # fmt: skip
    return _codes(_linear(_values(x, scale, zero), weight, scales, bias), out_scale, out_zero, activation)


# Convolutions: weights (out channels, in channels of a group, height, width)


def _grouped(x: Any, groups: int) -> Any:
    return x.reshape(len(x), groups, -1, *x.shape[2:])


def _convolved(
    x: Any, weight: Any, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int
) -> Any:
    """A convolution as the sum of its taps, each of which is a product with a shifted image."""
    kernel = weight.shape[2:]
    padded = _grouped(np.pad(x, [(0, 0), (0, 0), *((each, each) for each in padding)]), groups)
    high, wide = (
        (size - step * (taps - 1) - 1) // by + 1
        for size, taps, by, step in zip(padded.shape[3:], kernel, stride, dilation, strict=True)
    )
    taps = weight.reshape(groups, -1, *weight.shape[1:])
    total = np.zeros((len(x), groups, taps.shape[1], high, wide))
    for down, across in np.ndindex(*kernel):
        top, left = down * dilation[0], across * dilation[1]
        shifted = padded[..., top : top + high * stride[0] : stride[0], left : left + wide * stride[1] : stride[1]]
        total += np.einsum("ngchw,goc->ngohw", shifted[..., :high, :wide], taps[..., down, across])
    return total.reshape(len(x), -1, high, wide)


def _transposed(
    x: Any, weight: Any, stride: Sequence[int], padding: Sequence[int], extra: Sequence[int], dilation: Sequence[int],
    groups: int,
) -> Any:  # fmt: skip
    """A transposed convolution: every tap adds its product to places a stride apart, and the padding is cut off."""
    kernel, given = weight.shape[2:], _grouped(x, groups)
    high, wide = given.shape[3:]
    taps = weight.reshape(groups, -1, *weight.shape[1:])
    full = [
        (size - 1) * by + step * (each - 1) + 1 + more
        for size, each, by, step, more in zip((high, wide), kernel, stride, dilation, extra, strict=True)
    ]
    total = np.zeros((len(x), groups, taps.shape[1], *full))
    for down, across in np.ndindex(*kernel):
        top, left = down * dilation[0], across * dilation[1]
        rows = slice(top, top + (high - 1) * stride[0] + 1, stride[0])
        columns = slice(left, left + (wide - 1) * stride[1] + 1, stride[1])
        total[..., rows, columns] += np.einsum("ngchw,goc->ngohw", given, taps[..., down, across])
    cut = total[..., padding[0] : full[0] - padding[0], padding[1] : full[1] - padding[1]]
    return cut.reshape(len(x), -1, *cut.shape[3:])


def _channels_last(weight: Any, kernel: Sequence[int], inner: int) -> Any:
    """Rows of (height, width, channels), padded to whole words, as (out, channels, height, width)."""
    taps = weight[:, : kernel[0] * kernel[1] * inner].reshape(len(weight), *kernel, inner)
    return taps.transpose(0, 3, 1, 2).astype(np.float64)


def _shown(total: Any, scales: Any, bias: Any, out_scale: float, out_zero: int, activation: str) -> Sequence[Any]:
    channels = total.shape[1]
    values = total * scales[:channels, None, None]
    if bias is not None:
        values = values + bias[:channels, None, None]
    return _codes(values, out_scale, out_zero, activation)


@meaning("et_vk.q8ta_conv2d.default", "et_vk.q8ta_conv2d_pw.default")
def _conv2d(
    x: Any, scale: float, zero: int, weight: Any, sums: Any, scales: Any, out_scale: float, out_zero: int, bias: Any,
    kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int,
    activation: str,
) -> Sequence[Any]:  # fmt: skip
    taps = _channels_last(weight, kernel, x.shape[1] // groups)
    total = _convolved(_values(x, scale, zero), taps, stride, padding, dilation, groups)
    return _shown(total, scales, bias, out_scale, out_zero, activation)


@meaning("et_vk.q8ta_conv2d_dw.default")
def _conv2d_depthwise(
    x: Any, scale: float, zero: int, weight: Any, sums: Any, scales: Any, out_scale: float, out_zero: int, bias: Any,
    kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int,
    activation: str,
) -> Sequence[Any]:  # fmt: skip
    """Weights (height, width, channels), padded to whole words."""
    taps = weight.reshape(*kernel, -1)[..., :groups].transpose(2, 0, 1)[:, None].astype(np.float64)
    total = _convolved(_values(x, scale, zero), taps, stride, padding, dilation, groups)
    return _shown(total, scales, bias, out_scale, out_zero, activation)


@meaning("et_vk.q8ta_conv2d_transposed.default")
def _conv2d_transposed(
    x: Any, scale: float, zero: int, weight: Any, sums: Any, scales: Any, out_scale: float, out_zero: int, bias: Any,
    kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], extra: Sequence[int], dilation: Sequence[int],
    groups: int, activation: str,
) -> Sequence[Any]:  # fmt: skip
    """All groups have the scales of the first."""
    taps = _channels_last(weight, kernel, x.shape[1] // groups)
    total = _transposed(_values(x, scale, zero), taps, stride, padding, extra, dilation, groups)
    of_all = np.tile(scales[: len(weight) // groups], groups)
    return _shown(total, of_all, bias, out_scale, out_zero, activation)
