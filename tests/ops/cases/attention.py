"""Attention with and without a cache: live rows at live positions, shared heads, masks, odd head sizes, both routes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.support.graphs import MAX, In, InOut, OpCase, Out, Sym, Unused

Shape = tuple[int, ...]


def _tolerance(*dtypes: str) -> dict[str, float]:
    return {"atol": 4e-3, "rtol": 3e-3} if "float16" in dtypes else {"atol": 2e-5, "rtol": 2e-5}


def _position(rows: int, capacity: int) -> int:
    """Somewhere a cache has room for that many rows: early, late and in between, as rows vary."""
    return (rows * 37 + capacity // 2) % (capacity - rows + 1)


def _attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, position: int | None, scale: Any
) -> torch.Tensor:
    """torch in float64 over [B, H, rows, D], heads repeated, the causal mask of a position spelt out."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(group, 1).expand(q.shape[0], -1, -1, -1) for x in (k, v))
    seen = torch.zeros(q.shape[2], k.shape[2], dtype=torch.float64)
    if position is not None:
        hidden = torch.arange(k.shape[2]) > position + torch.arange(q.shape[2]).unsqueeze(1)
        seen = seen.masked_fill(hidden, float("-inf"))
    if mask is not None:
        seen = seen + (torch.where(mask, 0.0, float("-inf")) if mask.dtype == torch.bool else mask.double())
    return torch.nn.functional.scaled_dot_product_attention(q.double(), k, v, attn_mask=seen, scale=scale)


def _seen(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    return generator.random(shape) < 0.6


def _holes(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    """An additive mask with keys that are not seen; now and then a row sees nothing."""
    values = np.where(generator.random(shape) < 0.5, -np.inf, generator.standard_normal(shape))
    return np.where(generator.random((*shape[:-1], 1)) < 0.1, -np.inf, values)


def _sharp(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    """Scores far beyond what exp can take."""
    return generator.standard_normal(shape) * 10


def _not_numbers(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    return np.where(generator.random(shape) < 0.05, np.nan, generator.standard_normal(shape))


def cached(
    name: str,
    dtype: str = "float32",
    cache: str = "",
    batch: int = 1,
    heads: tuple[int, int] = (4, 2),
    size: int = 16,
    capacity: int = 96,
    causal: bool = True,
    mask: Callable[[int], Any] | None = None,
    scale: float | None = None,
    make: Any = None,
    position: Callable[[int, int], int] = _position,
    **options: Any,
) -> OpCase:
    """sdpa_with_kv_cache; with a mask the whole cache is attended to."""
    cache = cache or dtype

    def new(count: int, rows: int) -> In:
        return In(dtype, (batch, rows, count, size), make)

    def golden(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, *rest: Any
    ) -> Any:
        *masks, rows = rest
        start = position(rows, capacity)
        caches = [k_cache.clone(), v_cache.clone()]
        for held, given in zip(caches, (k, v), strict=True):
            held[:, start : start + rows] = given
        context = capacity if masks and masks[0].shape[-1] > 1 else start + rows
        keys, values = (held[:, :context].transpose(1, 2) for held in caches)
        out = _attention(q.transpose(1, 2), keys, values, masks[0] if masks else None, start if causal else None, scale)
        return *caches, out.transpose(1, 2)

    return OpCase(
        name=f"sdpa_with_kv_cache {name} {dtype}{f' cache {cache}' if cache != dtype else ''}",
        op="sdpa_with_kv_cache.default",
        args_at=lambda s: [
            new(heads[0], s),
            new(heads[1], s),
            new(heads[1], s),
            InOut(cache, (batch, capacity, heads[1], size), make),
            InOut(cache, (batch, capacity, heads[1], size), make),
            Sym(position(s, capacity)),
            1,
            mask(s) if mask else None,
            0,
            causal,
            scale,
            Out(dtype, (batch, s, heads[0], size)),
        ],
        golden=golden,
        **{**_tolerance(dtype, cache), **options},
    )


def _custom(name: str, dtype: str, heads: tuple[int, int], size: int, capacity: int, causal: bool) -> OpCase:
    def golden(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: int) -> torch.Tensor:
        start = _position(rows, capacity)
        keys, values = (held[:, : start + rows].transpose(1, 2) for held in (k, v))
        return _attention(q.transpose(1, 2), keys, values, None, start if causal else None, None).transpose(1, 2)

    return OpCase(
        name=f"custom_sdpa {name} {dtype}",
        op="custom_sdpa.default",
        args_at=lambda s: [
            In(dtype, (1, s, heads[0], size)),
            In(dtype, (1, capacity, heads[1], size)),
            In(dtype, (1, capacity, heads[1], size)),
            Sym(_position(s, capacity)),
            None,
            0.0,
            causal,
            None,
            Out(dtype, (1, s, heads[0], size)),
        ],
        golden=golden,
        **_tolerance(dtype),
    )


def _update(dtype: str, batch: int, heads: int, size: int, capacity: int) -> OpCase:
    def golden(value: torch.Tensor, cache: torch.Tensor, rows: int) -> torch.Tensor:
        start = _position(rows, capacity)
        cache = cache.clone()
        cache[:, start : start + rows] = value
        return cache

    return OpCase(
        name=f"update_cache {dtype} {batch}x{heads}x{size}",
        op="update_cache.default",
        args_at=lambda s: [
            In(dtype, (batch, s, heads, size)),
            InOut(dtype, (batch, capacity, heads, size)),
            Sym(_position(s, capacity)),
            Unused(dtype, (1,)),
        ],
        golden=golden,
        atol=0,
        rtol=0,
    )


def _plain(
    name: str,
    dtype: str,
    queries: Callable[[int], Shape],
    keys: Callable[[int], Shape],
    mask: Callable[[int], Any] | None = None,
    scale: float | None = None,
    make: Any = None,
    **options: Any,
) -> OpCase:
    def golden(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any) -> torch.Tensor:
        return _attention(q, k, v, rest[0] if len(rest) > 1 else None, None, scale)

    return OpCase(
        name=f"sdpa {name} {dtype}",
        op="et_vk.sdpa.default",
        args_at=lambda s: [
            In(dtype, queries(s), make),
            In(dtype, keys(s)),
            In(dtype, keys(s)),
            mask(s) if mask else None,
            scale,
            Out(dtype, queries(s)),
        ],
        golden=golden,
        **{**_tolerance(dtype), **options},
    )


CASES = [
    cached("grouped"),
    cached("grouped", "float16"),
    cached("grouped", "float32", "float16"),
    cached("one row", heads=(8, 2), capacity=600, sizes=(1,)),
    cached("split", heads=(2, 1), capacity=400),
    cached("split", "float16", heads=(6, 2), size=8, capacity=433),
    cached("split, odd head", heads=(3, 3), size=7, capacity=400),
    cached("head of 6, batch", batch=2, heads=(4, 4), size=6),
    cached("head of 132", heads=(2, 1), size=132),
    cached("head of 300", heads=(2, 1), size=300, sizes=(1, 2, 5, 17, MAX)),
    cached("head of 1", heads=(2, 2), size=1),
    cached("many heads on one", heads=(24, 1), size=8, capacity=400),
    cached("batch", batch=3, heads=(6, 3), capacity=MAX),
    cached("not causal", causal=False, scale=0.3, capacity=310),
    cached("sharp", make=_sharp, atol=1e-3, rtol=1e-3),
    cached("mask", causal=False, mask=lambda s: In("float32", (s, 96), _holes)),
    cached("mask", "float16", causal=False, mask=lambda s: In("float16", (s, 96), _holes)),
    cached("mask per head, causal", mask=lambda s: In("float32", (1, 4, 1, 96))),
    cached("bool mask", causal=False, mask=lambda s: In("bool", (s, 96), _seen)),
    cached("bool mask, split", causal=False, capacity=300, batch=2, mask=lambda s: In("bool", (2, 1, s, 300), _seen)),
    cached("from the start", position=lambda rows, capacity: 0, capacity=MAX),
    cached("to the end", position=lambda rows, capacity: capacity - rows, capacity=290),
    _custom("grouped", "float32", (4, 2), 8, 120, True),
    _custom("not causal", "float16", (4, 1), 10, 96, False),
    _update("float32", 1, 2, 4, 60),
    _update("float16", 2, 3, 5, 60),
    *(
        _plain(f"{name}", dtype, *form)
        for dtype in ("float32", "float16")
        for name, form in {
            "self": (lambda s: (2, 3, s, 4), lambda s: (2, 3, s, 4)),
            "live queries": (lambda s: (1, 2, s, 3), lambda s: (1, 2, 9, 3)),
            "live keys": (lambda s: (1, 4, 5, 4), lambda s: (1, 4, 12 * s, 4)),
            "live keys, many rows": (lambda s: (1, 2, 70, 4), lambda s: (1, 2, s, 4)),
            "full mask": (
                lambda s: (2, 3, s, 4), lambda s: (2, 3, s, 4), lambda s: In("float32", (2, 3, s, s), _holes),
            ),
        }.items()
    ),
    _plain("live batch", "float32", lambda s: (s, 2, 6, 4), lambda s: (s, 2, 7, 4)),
    _plain("live heads", "float32", lambda s: (2, s, 3, 4), lambda s: (2, s, 7, 4)),
    _plain("shared keys", "float32", lambda s: (2, 4, s, 8), lambda s: (1, 1, 7, 8)),
    _plain(
        "bool mask", "float32", lambda s: (2, 2, s, 4), lambda s: (2, 2, 50, 4),
        lambda s: In("bool", (2, 1, s, 50), _seen), 0.7,
    ),
    _plain(
        "mask of keys", "float32", lambda s: (1, 2, 21, 4), lambda s: (1, 2, s, 4),
        lambda s: In("float32", (s,), _holes),
    ),
    _plain("tiles", "float32", lambda s: (1, 2, 3 * s, 64), lambda s: (1, 2, 200, 64), sizes=(1, 7, 29, MAX)),
    _plain("nan", "float32", lambda s: (1, 2, s, 3), lambda s: (1, 2, 9, 3), make=_not_numbers),
    _plain("no keys", "float32", lambda s: (1, 2, 3, 4), lambda s: (1, 2, s, 4), sizes=(0, 1, 5)),
    _plain("no queries", "float32", lambda s: (1, 2, s, 4), lambda s: (1, 2, 3, 4), sizes=(0, 1, 5)),
]  # fmt: skip
