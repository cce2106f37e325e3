"""Layers and embeddings whose weights are of 2, 4 or 8 bits, with scales for groups of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from liveshape.check.meanings.meaning_table import meaning


def _codes(weight: Any) -> Any:
    """Codes (columns, depth): bytes with a sign (columns, groups, group), or nibbles, the low one first."""
    if weight.ndim == 3:
        return weight.view(np.int8).reshape(len(weight), -1).astype(np.float64)
    return _nibbles(weight, high_first=False)


def _nibbles(raw: Any, high_first: bool) -> Any:
    """Codes from -8 to 7, two of a byte."""
    raw = raw.view(np.uint8)
    pair = (raw >> 4, raw & 15) if high_first else (raw & 15, raw >> 4)
    return np.stack(pair, -1).reshape(*raw.shape[:-1], -1).astype(np.float64) - 8


def grouped_weight(weight: Any, scales: Any, group: int) -> Any:
    """weight[n, k] = codes[n, k] * scales[k // group, n], plus a minimum where scales are (groups, 2, columns).

    Example: `x @ grouped_weight(weight, scales, 32).T`.
    """
    codes = _codes(weight)[:, : len(scales) * group]  # without what pads a row to whole words

    def spread(of_groups: Any) -> Any:
        return np.repeat(of_groups[:, : len(codes)].T.astype(np.float64), group, axis=1)[:, : codes.shape[1]]

    if scales.ndim == 2:
        return codes * spread(scales)
    return codes * spread(scales[:, 0]) + spread(scales[:, 1])


@meaning("et_vk.linear_q4gsw.default")
def _linear_q4gsw(x: Any, weight: Any, scales: Any, group: int, bias: Any) -> Sequence[Any]:
    product = x.astype(np.float64) @ grouped_weight(weight, scales, group).T
    return [product if bias is None else product + bias[: product.shape[-1]]]


@meaning("aten._weight_int8pack_mm.default")
def _weight_int8pack_mm(x: Any, weight: Any, scales: Any) -> Sequence[Any]:
    return [x.astype(np.float64) @ (weight.astype(np.float64) * scales[:, None]).T]


@meaning("et_vk.linear_dq8ca_q4gsw.default")
def _linear_dq8ca_q4gsw(
    x: Any, scale: Any, zero_point: Any, weight: Any, sums: Any, scales: Any, group: int, bias: Any
) -> Sequence[Any]:
    """Rows quantized to int8, each with a scale and a zero point, dequantized again."""
    by_row = scale.reshape(*x.shape[:-1], 1).astype(np.float32)
    zero = zero_point.reshape(by_row.shape).astype(np.float64)
    codes = np.clip(np.rint(x.astype(np.float32) / by_row) + zero, -128, 127) - zero
    product = (codes * by_row) @ grouped_weight(weight, scales, group).T
    return [product if bias is None else product + bias[: product.shape[-1]]]


@meaning("et_vk.linear_qcs4w.default")
def _linear_qcs4w(x: Any, weight: Any, scales: Any) -> Sequence[Any]:
    """Nibbles offset by 8, the high one first, with a scale for each column."""
    codes = _nibbles(weight, high_first=True)[:, : x.shape[-1]]
    return [x.astype(np.float64) @ (codes * scales[: len(codes), None].astype(np.float64)).T]


def _spread(of_groups: Any, width: int) -> Any:
    """Numbers of groups of a row, (..., groups) or one for the row, as those of its elements."""
    wide = of_groups.astype(np.float64)
    return np.repeat(wide, width // wide.shape[-1], axis=-1)


def _rows(table: Any, indices: Any) -> Sequence[Any]:
    """Rows of a table; ids outside of it give NaN."""
    inside = (indices >= 0) & (indices < len(table))
    return [np.where(inside[..., None], table[np.where(inside, indices, 0)], np.nan)]


@meaning("et_vk.embedding_q4gsw.default")
def _embedding_q4gsw(weight: Any, scales: Any, group: int, indices: Any, is_linear_weight: bool) -> Sequence[Any]:
    codes = _nibbles(weight, not is_linear_weight)
    return _rows(codes * _spread(scales, codes.shape[-1]), indices)


@meaning("liveshape.embedding_with_minima")
def _embedding_with_minima(
    weight: Any, scales: Any, minima: Any, indices: Any, bits: int, is_linear_weight: bool
) -> Sequence[Any]:
    codes = weight.view(np.int8).astype(np.float64) if bits == 8 else _nibbles(weight, not is_linear_weight)
    width = codes.shape[-1]
    return _rows(codes * _spread(scales, width) + _spread(minima, width), indices)


def _embedded(codes: Any, scales: Any, zero_points: Any, indices: Any) -> Sequence[Any]:
    """Rows of a table whose groups have a scale and a zero point, or rows with one each."""
    width = codes.shape[-1]
    scale, zero = (None if each is None else each.reshape(len(codes), -1) for each in (scales, zero_points))
    shifted = codes if zero is None else codes - _spread(zero, width)
    return _rows(shifted * _spread(scale, width), indices)


@meaning(
    "quantized_decomposed.embedding_byte.dtype",
    "quantized_decomposed::embedding_byte.dtype_out",
    "quantized_decomposed::embedding_byte.out",
)
def _embedding_byte(
    weight: Any, scales: Any, zero_points: Any, least: Any, most: Any, indices: Any, *dtype: Any
) -> Sequence[Any]:
    return _embedded(weight.astype(np.float64), scales, zero_points, indices)


@meaning(
    "quantized_decomposed.embedding_4bit.dtype",
    "quantized_decomposed::embedding_4bit.dtype_out",
    "quantized_decomposed::embedding_4bit.out",
)
def _embedding_4bit(
    weight: Any, scales: Any, zero_points: Any, least: Any, most: Any, indices: Any, *dtype: Any
) -> Sequence[Any]:
    return _embedded(_nibbles(weight, high_first=True), scales, zero_points, indices)


@meaning(
    "quantized_decomposed.embedding_2bit.dtype",
    "quantized_decomposed::embedding_2bit.dtype_out",
    "quantized_decomposed::embedding_2bit.out",
)
def _embedding_2bit(
    weight: Any, scales: Any, zero_points: Any, least: Any, most: Any, indices: Any, *dtype: Any
) -> Sequence[Any]:
    """Codes from -2 to 1, four of a byte, the lowest bits first."""
    raw = weight.view(np.uint8)[..., None] >> np.array([0, 2, 4, 6], np.uint8) & 3
    return _embedded(raw.reshape(len(weight), -1).astype(np.float64) - 2, scales, zero_points, indices)
