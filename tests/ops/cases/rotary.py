"""Rotary embeddings in their four layouts, with live rows, live positions and heads that are rotated in part."""

from __future__ import annotations

from typing import Any

import torch

from tests.support.graphs import MAX, In, OpCase, Out, Sym

POSITIONS = 64


def _tolerance(dtype: str) -> dict[str, float]:
    return {"atol": 4e-3, "rtol": 2e-3} if dtype == "float16" else {"atol": 1e-5, "rtol": 1e-5}


def _heads(dtype: str, batch: int, rows: int, heads: tuple[int, int], size: int, kind: Any) -> list[Any]:
    return [kind(dtype, (batch, rows, count, size)) for count in heads]


def _neighbours(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    rotated = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    rotated = rotated * torch.complex(cosine.double(), sine.double()).unsqueeze(1)
    return torch.view_as_real(rotated).flatten(-2)


def _plain(dtype: str, angles: str, batch: int, heads: tuple[int, int], size: int) -> OpCase:
    def golden(q: torch.Tensor, k: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, _: int) -> Any:
        return _neighbours(q, cosine, sine), _neighbours(k, cosine, sine)

    return OpCase(
        name=f"rotary {dtype} {angles} {batch}x{heads}x{size}",
        op="et_vk.apply_rotary_emb.default",
        args_at=lambda s: [
            *_heads(dtype, batch, s, heads, size, In),
            In(angles, (s, size // 2)),
            In(angles, (s, size // 2)),
            tuple(_heads(dtype, batch, s, heads, size, Out)),
        ],
        golden=golden,
        **_tolerance(dtype),
    )


def _position(rows: int) -> int:
    return (rows * 11) % (POSITIONS - rows + 1)


def _turn_halves(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """The first elements of each head as many as the tables have, by angles that all heads share."""
    width = cosine.shape[-1]
    rest, x = x.double()[..., width:], x.double()[..., :width]
    other = torch.cat((-x[..., width // 2 :], x[..., : width // 2]), -1)
    return torch.cat((x * cosine.double().unsqueeze(1) + other * sine.double().unsqueeze(1), rest), -1)


def _halves(dtype: str, angles: str, batch: int, heads: tuple[int, int], size: int, width: int) -> OpCase:
    def golden(q: torch.Tensor, k: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, rows: int) -> Any:
        live = slice(_position(rows), _position(rows) + rows)
        return tuple(_turn_halves(x, cosine[live], sine[live]) for x in (q, k))

    return OpCase(
        name=f"rotary halves {dtype} {angles} {batch}x{heads}x{size} turning {width}",
        op="et_vk.apply_rotary_emb_hf.default",
        args_at=lambda s: [
            *_heads(dtype, batch, s, heads, size, In),
            In(angles, (POSITIONS, width)),
            In(angles, (POSITIONS, width)),
            Sym(_position(s)),
            tuple(_heads(dtype, batch, s, heads, size, Out)),
        ],
        golden=golden,
        **_tolerance(dtype),
    )


def _heads_first(dtype: str, angles: str, batch: int, tables: int, size: int, width: int, extra: int = 0) -> OpCase:
    """Queries and keys [B, H, S, D] with tables [B or 1, S, rotated elements], as transformers has them."""
    heads = (3, 2)

    def golden(q: torch.Tensor, k: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, rows: int) -> Any:
        live = slice(extra, extra + rows)
        return tuple(_turn_halves(x, cosine[:, live], sine[:, live]) for x in (q, k))

    return OpCase(
        name=f"rotary heads first {dtype} {angles} {batch} by {tables} x{size} turning {width} from {extra}",
        op="et_vk.apply_rotary_emb_hf.default",
        args_at=lambda s: [
            *(In(dtype, (batch, count, s, size)) for count in heads),
            In(angles, (tables, s + extra, width)),
            In(angles, (tables, s + extra, width)),
            extra,
            tuple(Out(dtype, (batch, count, s, size)) for count in heads),
        ],
        golden=golden,
        **_tolerance(dtype),
    )


def _complex(dtype: str, batch: int, width: int, angles: Any) -> OpCase:
    def golden(x: torch.Tensor, table: torch.Tensor, rows: int) -> torch.Tensor:
        rotation = torch.view_as_complex(table.double().reshape(rows, width // 2, 2))
        return torch.view_as_real(torch.view_as_complex(x.double().unflatten(-1, (-1, 2))) * rotation).flatten(-2)

    return OpCase(
        name=f"rotary complex {dtype} {batch}x{width} by {angles(0)}",
        op="et_vk.apply_rotary_emb_interleaved.default",
        args_at=lambda s: [In(dtype, (batch, s, width)), In(dtype, angles(s)), Out(dtype, (batch, s, width))],
        golden=golden,
        **_tolerance(dtype),
    )


CASES = [
    *(
        _plain(dtype, angles, *form)
        for dtype, angles in (("float32", "float32"), ("float16", "float16"), ("float16", "float32"))
        for form in ((1, (4, 2), 16), (2, (3, 1), 6))
    ),
    _plain("float32", "float32", 1, (32, 8), 64),
    *(
        _halves(dtype, angles, *form)
        for dtype, angles in (("float32", "float32"), ("float16", "float16"), ("float16", "float32"))
        for form in ((1, (4, 2), 16, 16), (2, (3, 1), 10, 6), (1, (2, 2), 8, 2))
    ),
    _heads_first("float32", "float32", 1, 1, 16, 16),
    _heads_first("float32", "float32", 3, 3, 10, 6),
    _heads_first("float32", "float32", 2, 1, 8, 2, extra=5),
    _heads_first("float16", "float16", 2, 2, 10, 4),
    _heads_first("float16", "float32", 2, 1, 8, 8),
    *(
        _complex(dtype, *form)
        for dtype in ("float32", "float16")
        for form in ((1, 8, lambda s: (s, 8)), (3, 6, lambda s: (1, s, 3, 2)))
    ),
]

assert all(0 <= _position(rows) <= POSITIONS - rows for rows in range(1, MAX + 1))
