"""To integers of eight bits and back, and the choice of their scales."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from liveshape.check.meanings.meaning_table import meaning
from liveshape.formats.dtypes import SCALAR_TYPES


def _quantized(x: Any, scale: Any, zero_point: Any, least: int, most: int) -> Sequence[Any]:
    codes = np.rint(x.astype(np.float32) * (np.float32(1) / np.asarray(scale, np.float32))) + zero_point
    return [np.clip(codes, least, most)]


def _dequantized(x: Any, scale: Any, zero_point: Any) -> Sequence[Any]:
    return [(x.astype(np.float64) - zero_point) * np.asarray(scale, np.float64)]


@meaning("quantized_decomposed.quantize_per_tensor.tensor", "quantized_decomposed::quantize_per_tensor.Tensor_out")
def _quantize_per_tensor(x: Any, scale: Any, zero_point: Any, least: int, most: int, *dtype: Any) -> Sequence[Any]:
    return _quantized(x, scale, zero_point, least, most)


@meaning("quantized_decomposed.dequantize_per_tensor.tensor", "quantized_decomposed::dequantize_per_tensor.Tensor_out")
def _dequantize_per_tensor(x: Any, scale: Any, zero_point: Any, *range_and_dtypes: Any) -> Sequence[Any]:
    return _dequantized(x, scale, zero_point)


def _along(of_channels: Any, axis: int, rank: int) -> Any:
    return np.asarray(of_channels).reshape([-1 if dim == axis % rank else 1 for dim in range(rank)])


@meaning("quantized_decomposed.quantize_per_channel.default", "quantized_decomposed::quantize_per_channel.out")
def _quantize_per_channel(
    x: Any, scales: Any, zero_points: Any, axis: int, least: int, most: int, *dtype: Any
) -> Sequence[Any]:
    return _quantized(x, _along(scales, axis, x.ndim), _along(zero_points, axis, x.ndim), least, most)


@meaning("quantized_decomposed.dequantize_per_channel.default", "quantized_decomposed::dequantize_per_channel.out")
def _dequantize_per_channel(x: Any, scales: Any, zero_points: Any, axis: int, *range_and_dtypes: Any) -> Sequence[Any]:
    zero = 0 if zero_points is None else _along(zero_points, axis, x.ndim)
    return _dequantized(x, _along(scales, axis, x.ndim), zero)


@meaning("quantized_decomposed.quantize_per_token.default", "quantized_decomposed::quantize_per_token.out")
def _quantize_per_token(x: Any, scales: Any, zero_points: Any, least: int, most: int, *dtype: Any) -> Sequence[Any]:
    scale, zero = (each.reshape(*x.shape[:-1], 1) for each in (scales, zero_points))
    codes = np.rint(x.astype(np.float32) * (np.float32(1) / scale.astype(np.float32)) + zero.astype(np.float32))
    return [np.clip(codes, least, most)]


@meaning("quantized_decomposed.dequantize_per_token.default", "quantized_decomposed::dequantize_per_token.out")
def _dequantize_per_token(x: Any, scales: Any, zero_points: Any, *range_and_dtypes: Any) -> Sequence[Any]:
    scale, zero = (each.reshape(*x.shape[:-1], 1) for each in (scales, zero_points))
    return _dequantized(x, scale, zero)


# Blocks of a tensor, as torchao has them


def _by_blocks(of_blocks: Any, shape: Sequence[int], block: Sequence[int]) -> Any:
    """Numbers of blocks as those of their elements."""
    counts = [size // part for size, part in zip(shape, block, strict=True)]
    made = np.asarray(of_blocks).reshape(counts)
    for axis, part in enumerate(block):
        made = np.repeat(made, part, axis)
    return made


def _range(dtype: Any, least: Any, most: Any) -> tuple[int, int]:
    low, high = (0, 255) if dtype is not None and SCALAR_TYPES[dtype] == "uint8" else (-128, 127)
    return low if least is None else least, high if most is None else most


@meaning("torchao.quantize_affine.default")
def _quantize_affine(
    x: Any, block: Sequence[int], scale: Any, zero_point: Any, dtype: Any, least: Any, most: Any
) -> Sequence[Any]:
    zero = 0 if zero_point is None else _by_blocks(zero_point, x.shape, block)
    return _quantized(x, _by_blocks(scale, x.shape, block), zero, *_range(dtype, least, most))


@meaning("torchao.dequantize_affine.default")
def _dequantize_affine(
    x: Any, block: Sequence[int], scale: Any, zero_point: Any, *range_and_dtypes: Any
) -> Sequence[Any]:
    zero = 0 if zero_point is None else _by_blocks(zero_point, x.shape, block)
    return _dequantized(x, _by_blocks(scale, x.shape, block), zero)


@meaning("torchao.choose_qparams_affine.default")
def _choose_qparams_affine(
    x: Any, mapping: str, block: Sequence[int], dtype: Any, least: Any, most: Any, eps: Any, *rest: Any
) -> Sequence[Any]:
    *_, keepdim = rest
    low, high = _range(dtype, least, most)
    sizes: list[int] = []
    inner: list[int] = []
    for size, part in zip(x.shape, block, strict=True):
        inner.append(len(sizes) + 1)
        sizes += [size // part, part]
    lowest, highest = _extremes(x.reshape(sizes), tuple(inner))
    smallest = np.finfo(x.dtype).eps if eps is None else eps
    if mapping == "ASYMMETRIC":
        scale = np.maximum((highest - lowest) / np.float32(high - low), smallest)
        zero = np.clip(low - np.rint(lowest / scale), low, high)
    else:
        if mapping == "SYMMETRIC":
            scale = np.maximum(highest, -lowest) / np.float32((high - low) / 2)
        else:  # the scale at which neither end is clipped
            scale = np.maximum(lowest / low, highest / high)
        scale = np.maximum(scale, smallest)
        zero = np.full(scale.shape, (high + low + 1) // 2)
    if not keepdim:
        whole = [axis for axis, (size, part) in enumerate(zip(x.shape, block, strict=True)) if size == part > 1]
        scale, zero = np.squeeze(scale, tuple(whole)), np.squeeze(zero, tuple(whole))
    return [scale, zero]


def _extremes(x: Any, axes: tuple[int, ...] | None) -> tuple[Any, Any]:
    """The smallest and the largest number, zero among them, in float32."""
    wide = x.astype(np.float32)
    return np.minimum(wide.min(axes, initial=0), 0), np.maximum(wide.max(axes, initial=0), 0)


@meaning("quantized_decomposed.choose_qparams.tensor", "quantized_decomposed::choose_qparams.Tensor_out")
def _choose_qparams(x: Any, least: int, most: int, eps: float, *dtype: Any) -> Sequence[Any]:
    lowest, highest = _extremes(x, None)
    scale = np.maximum((highest - lowest) / np.float32(most - least), np.float32(eps))
    zero = np.clip(least - np.rint(lowest / scale), least, most)
    return [np.reshape(scale, 1), np.reshape(zero, 1)]


@meaning(
    "quantized_decomposed.choose_qparams_per_token_asymmetric.default",
    "quantized_decomposed::choose_qparams_per_token_asymmetric.out",
)
def _choose_qparams_per_token(x: Any, *dtype: Any) -> Sequence[Any]:
    """The zero point is that of the end which it misses by less."""
    lowest, highest = (each[..., None] for each in _extremes(x, (x.ndim - 1,)))
    scale = np.maximum((highest - lowest) / np.float32(255), np.finfo(np.float32).eps)
    from_lowest, from_highest = lowest / scale, highest / scale
    nearer_lowest = (-128 + from_lowest) + (127 + from_highest) > 0
    zero = np.where(nearer_lowest, -128 - from_lowest, 127 - from_highest)
    return [scale, np.rint(np.clip(zero, -128, 127))]
