"""Attention, and KV caches: rows at positions, in slots of a table, and in pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from liveshape.check.meanings.meaning_table import meaning
from liveshape.ops.strided_attention import ADDED, SEEN, AttentionSizes, axes_from, strides_from


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
    """Attention to the rows up to the newest one; with a mask of several keys to as many rows as it has."""
    rows = q.shape[1]
    seen = start + rows if mask is None or mask.shape[-1] == 1 else mask.shape[-1]
    allowed = mask
    if causal:
        below = np.arange(seen)[None] <= start + np.arange(rows)[:, None]
        if mask is None:
            allowed = below
        else:
            allowed = below & mask if mask.dtype == bool else np.where(below, mask, -np.inf)
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


@meaning("liveshape.update_caches")
def _update_caches(k: Any, v: Any, k_cache: Any, v_cache: Any, start: Any) -> Sequence[Any]:
    return [_written(k_cache, k, start), _written(v_cache, v, start)]


@meaning("liveshape.record")
def _record(tokens: Any, start: Any, history: Any) -> Sequence[Any]:
    return [_written(history, tokens, start)]


@meaning("liveshape.copy_pages")
def _copy_pages(pool: Any, copies: Any, page_size: int) -> Sequence[Any]:
    """One after the other: a page may be the target of one and the source of the next."""
    made = pool.copy()
    for source, target in copies * page_size:
        made[:, target : target + page_size] = made[:, source : source + page_size].copy()
    return [made]


def _written(cache: Any, new: Any, start: Any) -> Any:
    """A cache with new rows from a position on, or each in the slot that a table says, if it has one."""
    made = cache.copy()
    if isinstance(start, np.ndarray):
        slots = start[:, 1]
        there = (slots >= 0) & (slots < cache.shape[1])
        made[:, slots[there]] = new[:, there]
    else:
        made[:, start : start + new.shape[1]] = new
    return made


@meaning("liveshape.attention")
def _attention_of_strides(
    q: Any, k: Any, v: Any, mask: Any, masking: int, masked: float, guarded: bool, scale: float,
    sizes: Any, of_queries: Any, of_keys: Any, of_values: Any, of_mask: Any, axes: Any, causal: bool, bias: Any,
    of_bias: Any,
) -> Sequence[Any]:  # fmt: skip
    """What softmax(q @ k * scale + bias + mask) @ v gives, of tensors along strides; a row that sees nothing is NaN or
    0."""
    call = AttentionSizes.of(sizes, [each.shape for each in (q, k, v, mask, bias) if each is not None])
    heads = call.key_heads * call.group
    queries = _strided(q, of_queries, (call.batch, heads, call.queries, call.size))
    keys, values = (
        np.repeat(_strided(each, numbers, (call.batch, call.key_heads, call.keys, size)), call.group, axis=1)
        for each, numbers, size in ((k, of_keys, call.size), (v, of_values, call.value_size))
    )
    scores = queries.astype(np.float64) @ np.swapaxes(keys, -1, -2).astype(np.float64) * scale
    if bias is not None:
        scores = scores + _repeated(bias, of_bias, scores.shape, call.bias_batches)
    if mask is not None:
        seen = _repeated(mask, of_mask, scores.shape, call.mask_batches)
        scores = scores + seen if masking == ADDED else np.where(seen == (masking == SEEN), scores, masked)
    if causal:
        scores = np.where(np.arange(call.keys) <= np.arange(call.queries)[:, None], scores, -np.inf)
    most = scores.max(-1, keepdims=True, initial=-np.inf)
    unseen = most == -np.inf
    weights = np.exp(scores - np.where(unseen, 0.0, most))
    shares = weights / np.where(unseen, 1.0, weights.sum(-1, keepdims=True))
    out = shares @ values + np.where(unseen & (call.keys > 0) & (not guarded), np.nan, 0.0)
    order = axes_from(axes)
    shape = tuple(int(np.prod([out.shape[digit] for digit in axis])) for axis in order)
    digits = [digit for axis in order for digit in axis]
    return [out.transpose([*digits, *(digit for digit in range(4) if digit not in digits)]).reshape(shape)]


def _repeated(array: Any, numbers: Any, shape: tuple[int, ...], batches: int) -> Any:
    """A mask of scores, which is repeated after so many batches."""
    own = _strided(array, numbers, (min(batches, shape[0]), *shape[1:]))
    return own[np.arange(shape[0]) % batches]


def _strided(array: Any, numbers: Any, shape: tuple[int, ...]) -> Any:
    """Elements of an array from a start on, along strides of its own axes."""
    start, *steps = strides_from(numbers).of(array.shape)
    flat = np.ascontiguousarray(array).reshape(-1)[start:]
    return np.lib.stride_tricks.as_strided(flat, shape, [step * flat.itemsize for step in steps], writeable=False)
