"""Rows of many sequences: rotary embeddings and caches by a table of a position and a slot for each row."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.support.graphs import In, InOut, OpCase, Out, Unused

POSITIONS, SLOTS, PAGE = 64, 60, 5
SIZES = (1, 2, 3, 7, 29, 42, 43)


def _places(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Positions anywhere, some of them outside of the tables, and different slots, some of them none."""
    positions = generator.integers(-3, POSITIONS + 3, shape[0])
    slots = generator.permutation(np.arange(-6, SLOTS + 4))[: shape[0]]
    return np.stack([positions, np.where(slots < 0, -1, slots)], 1)


def table(rows: int) -> In:
    return In("int32", (rows, 2), _places)


def _rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """[B, S, H, D], the first elements of each head as many as the tables have."""
    rows = places[:, 0].clamp(0, POSITIONS - 1).long()
    width = cosine.shape[-1]
    rest, x = x.double()[..., width:], x.double()[..., :width]
    other = torch.cat((-x[..., width // 2 :], x[..., : width // 2]), -1)
    cosine, sine = (each.double()[..., rows, :].unsqueeze(-2) for each in (cosine, sine))
    return torch.cat((x * cosine + other * sine, rest), -1)


def _written(cache: torch.Tensor, rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    cache = cache.clone()
    for row, slot in enumerate(places[:, 1].tolist()):
        if 0 <= slot < SLOTS:
            cache[:, slot] = rows[:, row].to(cache.dtype)
    return cache


def _tolerance(dtype: str) -> dict[str, float]:
    return {"atol": 4e-3, "rtol": 2e-3} if dtype == "float16" else {"atol": 1e-5, "rtol": 1e-5}


def _rotary(dtype: str, batch: int, heads: tuple[int, int], size: int, width: int) -> OpCase:
    def golden(q: Any, k: Any, cosine: Any, sine: Any, places: Any, _: int) -> Any:
        return tuple(_rotated(x, cosine, sine, places) for x in (q, k))

    return OpCase(
        name=f"rotary by a table of rows {dtype} {batch}x{heads}x{size} turning {width}",
        op="et_vk.apply_rotary_emb_hf.default",
        args_at=lambda s: [
            *(In(dtype, (batch, s, count, size)) for count in heads),
            In(dtype, (POSITIONS, width)),
            In(dtype, (POSITIONS, width)),
            table(s),
            tuple(Out(dtype, (batch, s, count, size)) for count in heads),
        ],
        golden=golden,
        sizes=SIZES,
        **_tolerance(dtype),
    )


def _heads_first() -> OpCase:
    """Queries and keys [B, H, S, D], with tables of each member of a batch."""

    def golden(q: Any, k: Any, cosine: Any, sine: Any, places: Any, _: int) -> Any:
        return tuple(_rotated(x.transpose(1, 2), cosine, sine, places).transpose(1, 2) for x in (q, k))

    return OpCase(
        name="rotary by a table of rows, heads first",
        op="et_vk.apply_rotary_emb_hf.default",
        args_at=lambda s: [
            *(In("float32", (2, count, s, 10)) for count in (3, 1)),
            In("float32", (2, POSITIONS, 6)),
            In("float32", (2, POSITIONS, 6)),
            table(s),
            tuple(Out("float32", (2, count, s, 10)) for count in (3, 1)),
        ],
        golden=golden,
        sizes=SIZES,
    )


def _update(dtype: str, batch: int) -> OpCase:
    return OpCase(
        name=f"update_cache by a table of rows {dtype} {batch}",
        op="update_cache.default",
        args_at=lambda s: [
            In(dtype, (batch, s, 3, 5)),
            InOut(dtype, (batch, SLOTS, 3, 5)),
            table(s),
            Unused(dtype, (1,)),
        ],
        golden=lambda value, cache, places, _: _written(cache, value, places),
        atol=0,
        rtol=0,
        sizes=SIZES,
    )


def _update_both(dtype: str, cache: str, batch: int) -> OpCase:
    def golden(k: Any, v: Any, k_cache: Any, v_cache: Any, places: Any, _: int) -> Any:
        return _written(k_cache, k, places), _written(v_cache, v, places)

    return OpCase(
        name=f"update_caches {dtype} into {cache} of {batch}",
        op="liveshape.update_caches",
        args_at=lambda s: [
            *(In(dtype, (batch, s, 2, 6)) for _ in range(2)),
            *(InOut(cache, (batch, SLOTS, 2, 6)) for _ in range(2)),
            table(s),
            None,
        ],
        golden=golden,
        atol=0,
        rtol=0,
        sizes=SIZES,
    )


def _record(dtype: str) -> OpCase:
    return OpCase(
        name=f"record {dtype} at slots",
        op="liveshape.record",
        args_at=lambda s: [In(dtype, (1, s)), table(s), InOut("int32", (1, SLOTS)), None],
        golden=lambda tokens, places, history, _: _written(history, tokens, places),
        sizes=SIZES,
    )


def _copies(dtype: str) -> OpCase:
    """In their order: a page may be the target of one and the source of the next, and the other way round."""

    def golden(pool: torch.Tensor, copies: torch.Tensor, _: int) -> torch.Tensor:
        pages = pool.clone().reshape(SLOTS // PAGE, -1)
        for source, target in copies.tolist():
            pages[target] = pages[source]
        return pages.reshape(pool.shape)

    def pages(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return generator.integers(0, SLOTS // PAGE, shape)

    return OpCase(
        name=f"copy_pages {dtype}",
        op="liveshape.copy_pages",
        args_at=lambda s: [InOut(dtype, (1, SLOTS, 3, 5)), In("int32", (s, 2), pages), PAGE, None],
        golden=golden,
        atol=0,
        rtol=0,
        sizes=(0, *SIZES),
    )


CASES = [
    _rotary("float32", 1, (4, 2), 16, 16),
    _rotary("float32", 2, (3, 1), 10, 6),
    _rotary("float16", 1, (4, 2), 16, 8),
    _heads_first(),
    _update("float32", 2),
    _update("float16", 1),
    _update_both("float32", "float32", 2),
    _update_both("float32", "float16", 1),
    _record("int64"),
    *(_copies(dtype) for dtype in ("float32", "float16", "int32")),
]
