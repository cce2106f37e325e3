"""What the operators mean that torch does not have: in numpy, in float64, as plainly as can be.

A meaning takes the arguments of a node, tensors as arrays at their live shapes, and gives what the node writes, in the
order of `Node.written`: its outputs, then what it mutates. None stands for a result without a meaning of its own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from liveshape.errors import UnsupportedError
from liveshape.run.host import find_on_host

Meaning = Callable[..., Sequence[Any]]

MEANINGS: dict[str, Meaning] = {}


def meaning(*names: str) -> Callable[[Meaning], Meaning]:
    """Register a function as the meaning of operators.

    Example: `@meaning("et_vk.prepack.default")`.
    """

    def register(function: Meaning) -> Meaning:
        MEANINGS.update(dict.fromkeys(names, function))
        return function

    return register


# Writes to one place twice, of which any may win: torch leaves it open, and so does a device

TWICE = "it writes several values to one place, and any may win"


def _puts_twice(x: Any, indices: Sequence[Any], values: Any, accumulate: bool) -> bool:
    given = [each for each in indices if each is not None]
    if accumulate or any(each.dtype == bool for each in given):
        return False
    rows = np.stack([each.reshape(-1) for each in np.broadcast_arrays(*given)])
    return bool(np.unique(rows, axis=1).shape[1] < rows.shape[1])


def _scatters_twice(x: Any, dim: int, index: Any, values: Any) -> bool:
    in_order = np.sort(index, axis=dim) if index.ndim else index
    return bool(index.ndim and (np.diff(in_order, axis=dim) == 0).any())


ANY_WINS: dict[str, Callable[..., bool]] = {
    **dict.fromkeys(
        ("aten.index_put.default", "aten::index_put.out", "aten.index_put_.default", "aten::index_put_"), _puts_twice
    ),
    **dict.fromkeys(("aten.scatter.src", "aten::scatter.src_out"), _scatters_twice),
}


# Scalars

_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "truediv": operator.truediv,
    "neg": operator.neg,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "sym_max": max,
    "sym_min": min,
    "sym_not": operator.not_,
    "sym_float": float,
    "sym_int": int,
}


def _of_scalars(function: Callable[..., Any]) -> Meaning:
    return lambda *given: [function(*given)]


for _name, _function in _ARITHMETIC.items():
    for _spelled in (_name, f"executorch_prim::{_name}.Scalar"):
        MEANINGS[_spelled] = _of_scalars(_function)


@meaning("sym_size.int", "aten::sym_size.int")
def _size(x: Any, dim: int) -> Sequence[Any]:
    return [x.shape[dim]]


@meaning("sym_numel", "aten::sym_numel")
def _numel(x: Any) -> Sequence[Any]:
    return [x.size]


@meaning("et_vk.select_as_symint.default")
def _element(x: Any, dim: int, index: int) -> Sequence[Any]:
    return [int(np.take(x, index, dim).reshape(-1)[0])]


# Copies


@meaning("et_vk.prepack.default", "liveshape.move", "liveshape.assign")
def _same(x: Any) -> Sequence[Any]:
    return [x]


# Normalization and rotary embeddings


@meaning("et_vk.rms_norm.default")
def _rms_norm(x: Any, weight: Any, eps: float) -> Sequence[Any]:
    wide = x.astype(np.float64)
    return [wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + eps) * weight]


def _turned(x: Any, cosine: Any, sine: Any) -> Any:
    """Pairs of neighbours of (..., rows, heads, size), by angles of (rows, size / 2)."""
    wide = x.astype(np.float64)
    even, odd, cosine, sine = wide[..., ::2], wide[..., 1::2], cosine[:, None], sine[:, None]
    return np.stack([even * cosine - odd * sine, even * sine + odd * cosine], -1).reshape(x.shape)


@meaning("et_vk.apply_rotary_emb.default")
def _rotary(xq: Any, xk: Any, cosine: Any, sine: Any) -> Sequence[Any]:
    return [_turned(each, cosine, sine) for each in (xq, xk)]


@meaning("et_vk.apply_rotary_emb_hf.default")
def _rotary_by_halves(xq: Any, xk: Any, cosine: Any, sine: Any, start: int) -> Sequence[Any]:
    def turned(x: Any) -> Any:
        rows, half = slice(start, start + x.shape[1]), x.shape[-1] // 2
        wide = x.astype(np.float64)
        crossed = np.concatenate([-wide[..., half:], wide[..., :half]], -1)
        return wide * cosine[rows][:, None] + crossed * sine[rows][:, None]

    return [turned(xq), turned(xk)]


# Convolutions


@meaning("et_vk.conv_with_clamp.default")
def _conv_with_clamp(*arguments: Any) -> Sequence[Any]:
    *of_convolution, least, most = arguments
    operator = find_on_host("aten.convolution.default")
    if isinstance(operator, str):
        raise UnsupportedError(operator)
    (result,) = operator.function(of_convolution, ["float32"])
    return [np.clip(result, -np.inf if least is None else least, np.inf if most is None else most)]


# Quantized weights


def _codes(weight: Any) -> Any:
    """Codes (columns, depth): bytes with a sign (columns, groups, group), or nibbles offset by 8, the low one first."""
    if weight.ndim == 3:
        return weight.view(np.int8).reshape(len(weight), -1).astype(np.float64)
    raw = weight.view(np.uint8)
    return np.stack([raw & 15, raw >> 4], -1).reshape(len(raw), -1).astype(np.float64) - 8


def _weight(weight: Any, scales: Any, group: int) -> Any:
    """weight[n, k] = codes[n, k] * scales[k // group, n], plus a minimum where scales are (groups, 2, columns)."""
    codes = _codes(weight)

    def spread(of_groups: Any) -> Any:
        return np.repeat(of_groups[:, : len(codes)].T.astype(np.float64), codes.shape[1] // len(scales), axis=1)

    if scales.ndim == 2:
        return codes * spread(scales)
    return codes * spread(scales[:, 0]) + spread(scales[:, 1])


@meaning("et_vk.linear_q4gsw.default")
def _linear_q4gsw(x: Any, weight: Any, scales: Any, group: int, bias: Any) -> Sequence[Any]:
    product = x.astype(np.float64) @ _weight(weight, scales, group).T
    return [product if bias is None else product + bias[: product.shape[-1]]]


@meaning("aten._weight_int8pack_mm.default", "aten::_weight_int8pack_mm.out")
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
    product = (codes * by_row) @ _weight(weight, scales, group).T
    return [product if bias is None else product + bias[: product.shape[-1]]]


@meaning("et_vk.embedding_q4gsw.default")
def _embedding_q4gsw(weight: Any, scales: Any, group: int, indices: Any, is_linear_weight: bool) -> Sequence[Any]:
    raw = weight.view(np.uint8)[indices]
    pair = (raw & 15, raw >> 4) if is_linear_weight else (raw >> 4, raw & 15)
    codes = np.stack(pair, -1).reshape(*indices.shape, -1).astype(np.float64) - 8
    return [codes * np.repeat(scales[indices].astype(np.float64), group, axis=-1)]


# Quantization


def _quantized(x: Any, scale: Any, zero_point: Any, least: int, most: int) -> Sequence[Any]:
    codes = np.rint(x.astype(np.float32) * (np.float32(1) / np.asarray(scale, np.float32))) + zero_point
    return [np.clip(codes, least, most)]


def _dequantized(x: Any, scale: Any, zero_point: Any) -> Sequence[Any]:
    return [(x.astype(np.float64) - zero_point) * np.asarray(scale, np.float64)]


@meaning(
    "quantized_decomposed.quantize_per_tensor.default",
    "quantized_decomposed.quantize_per_tensor.tensor",
    "quantized_decomposed::quantize_per_tensor.out",
    "quantized_decomposed::quantize_per_tensor.Tensor_out",
)
def _quantize_per_tensor(x: Any, scale: Any, zero_point: Any, least: int, most: int, *dtype: Any) -> Sequence[Any]:
    return _quantized(x, scale, zero_point, least, most)


@meaning(
    "quantized_decomposed.dequantize_per_tensor.default",
    "quantized_decomposed.dequantize_per_tensor.tensor",
    "quantized_decomposed::dequantize_per_tensor.out",
    "quantized_decomposed::dequantize_per_tensor.Tensor_out",
)
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


# Attention


def _attended(queries: Any, keys: Any, values: Any, mask: Any, scale: float | None) -> Any:
    """Softmax attention of (..., heads, rows, size); heads of keys may be shared, and rows that see nothing are 0."""
    shared = queries.shape[-3] // keys.shape[-3]
    keys, values = (np.repeat(each.astype(np.float64), shared, axis=-3) for each in (keys, values))
    factor = queries.shape[-1] ** -0.5 if scale is None else scale
    scores = queries.astype(np.float64) @ np.swapaxes(keys, -1, -2) * factor
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    most = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(most), most, 0.0))
    return weights @ values / np.maximum(weights.sum(-1, keepdims=True), np.finfo(np.float64).tiny)


@meaning("et_vk.sdpa.default")
def _sdpa(q: Any, k: Any, v: Any, mask: Any, scale: float | None) -> Sequence[Any]:
    return [_attended(q, k, v, mask, scale)]


def _attended_to_cache(q: Any, k_cache: Any, v_cache: Any, start: int, mask: Any, causal: bool, scale: Any) -> Any:
    rows = q.shape[1]
    seen = start + rows
    allowed = None if mask is None else mask[..., :seen]
    if causal:
        below = np.arange(seen)[None] <= start + np.arange(rows)[:, None]
        allowed = below if allowed is None else np.where(below, allowed, -np.inf)
    queries, keys, values = (np.swapaxes(each, 1, 2) for each in (q, k_cache[:, :seen], v_cache[:, :seen]))
    return np.swapaxes(_attended(queries, keys, values, allowed, scale), 1, 2)


@meaning("custom_sdpa.default", "llama::custom_sdpa.out")
def _custom_sdpa(
    q: Any, k_cache: Any, v_cache: Any, start: int, mask: Any, dropout: float, causal: bool, scale: Any
) -> Sequence[Any]:
    return [_attended_to_cache(q, k_cache, v_cache, start, mask, causal, scale)]


@meaning("sdpa_with_kv_cache.default", "llama::sdpa_with_kv_cache.out")
def _sdpa_with_kv_cache(
    q: Any, k: Any, v: Any, k_cache: Any, v_cache: Any, start: int, rows: int, mask: Any, dropout: float, causal: bool,
    scale: Any,
) -> Sequence[Any]:  # fmt: skip
    keys, values = _written(k_cache, k, start), _written(v_cache, v, start)
    return [_attended_to_cache(q, keys, values, start, mask, causal, scale), keys, values]


@meaning("update_cache.default", "llama::update_cache.out")
def _update_cache(value: Any, cache: Any, start: int) -> Sequence[Any]:
    return [None, _written(cache, value, start)]


def _written(cache: Any, new: Any, start: int) -> Any:
    made = cache.copy()
    made[:, start : start + new.shape[1]] = new
    return made
