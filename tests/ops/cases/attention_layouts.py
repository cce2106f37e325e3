"""Attention as programs spell it, of tensors as they lie: layouts, shared heads, masks, rows that see nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from liveshape.ops.strided_attention import ADDED, HIDDEN, NO_MASK, SEEN, Extent, Stride, Strides, encoded
from tests.support.graphs import In, OpCase, Out

Shape = tuple[int, ...]
HALF = {"atol": 4e-3, "rtol": 3e-3}
SIZES = (1, 2, 5, 17, 33)
LEAST = float(np.finfo(np.float32).min)

# Where batch, head, row and column lie in a tensor: its shape, its strides, and torch's view of it as (B, H, N, D).
Layout = tuple[Callable[[int, int, int, int], Shape], Callable[[int, int], Strides], Callable[..., torch.Tensor]]
LAYOUTS: dict[str, Layout] = {
    "heads first": (
        lambda b, h, n, d: (b, h, n, d),
        lambda h, d: Strides(Stride(), Stride(0, 1), Stride(1, 1), Stride(2, 1), Stride(3, 1)),
        lambda x, h: x,
    ),
    "rows first": (
        lambda b, h, n, d: (b, n, h * d),
        lambda h, d: Strides(Stride(), Stride(0, 1), Stride(2, d), Stride(1, 1), Stride(2, 1)),
        lambda x, h: x.unflatten(2, (h, -1)).transpose(1, 2),
    ),
    "length first": (
        lambda b, h, n, d: (n, b, h, d),
        lambda h, d: Strides(Stride(), Stride(1, 1), Stride(2, 1), Stride(0, 1), Stride(3, 1)),
        lambda x, h: x.permute(1, 2, 0, 3),
    ),
    "second of three": (
        lambda b, h, n, d: (b, n, 3, h * d),
        lambda h, d: Strides(Stride(2, 1), Stride(0, 1), Stride(3, d), Stride(1, 1), Stride(3, 1)),
        lambda x, h: x[:, :, 1].unflatten(2, (h, -1)).transpose(1, 2),
    ),
}
WINDOWS = 2  # members of the batch after which a mask of windows is repeated
# Axes of the batch and of the rows.
_EXTENTS = {
    "heads first": (0, 2),
    "rows first": (0, 1),
    "length first": (1, 0),
    "second of three": (0, 1),
}
_NOTHING = Strides(*[Stride()] * 5)

# Axes of the result, by the digits that each has: heads next to each other in a row, heads first, the length first.
MERGED, APART, TURNED = (0, -1, 2, -1, 1, 3), (0, -1, 1, -1, 2, -1, 3), (2, -1, 0, -1, 1, 3)


def _mask(kind: str) -> tuple[Callable[[int, int, int], Shape], Strides, str, int]:
    """Shape at (batch, queries, keys), strides, dtype, and how it hides."""
    across = Strides(Stride(), Stride(), Stride(), Stride(2, 1), Stride(3, 1))
    padding = Strides(Stride(), Stride(0, 1), Stride(), Stride(), Stride(1, 1))
    rows: dict[str, tuple[Callable[[int, int, int], Shape], Strides, str, int]] = {
        "": (lambda b, n, m: (), _NOTHING, "", NO_MASK),
        "added": (lambda b, n, m: (1, 1, n, m), across, "float32", ADDED),
        "windows": (lambda b, n, m: (WINDOWS, 1, n, m), across._replace(batch=Stride(0, 1)), "float32", ADDED),
        "seen": (lambda b, n, m: (1, 1, n, m), across, "bool", SEEN),
        "hidden": (lambda b, n, m: (b, m), padding, "bool", HIDDEN),
    }
    return rows[kind]


def _some(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    """Now and then a row of a mask hides all keys."""
    drawn = generator.random(shape) < 0.7
    return np.asarray(drawn & (generator.random((*shape[:-1], 1)) > 0.15))


def _biases(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    return np.where(_some(generator, shape), generator.standard_normal(shape), -np.inf)


def attention(
    layouts: tuple[str, str, str] = ("rows first",) * 3,
    *,
    dtype: str = "float32",
    heads: int = 2,
    group: int = 1,
    size: int = 16,
    value_size: int = 0,
    biased: bool = False,
    axes: tuple[int, ...] = MERGED,
    mask: str = "",
    masked: float = -np.inf,
    guarded: bool = False,
    causal: bool = False,
    keys: Callable[[int], int] = lambda s: s,
    scale: float = 0.25,
    make: Any = None,
    atol: float = 2e-5,
) -> OpCase:
    """`heads` are those of keys, of which each serves `group` of the queries; the batch moves with the length."""
    counts = (heads * group, heads, heads)
    shape_of, strides, kind, hides = _mask(mask)
    batch, rows = _EXTENTS[layouts[0]]
    counted = [Extent(0, batch), *map(Extent.literal, (heads, group))]
    widths = (size, size, value_size or size)
    lengths_of = [Extent(0, rows), Extent(1, _EXTENTS[layouts[1]][1])]
    repeats = [Extent.literal(WINDOWS) if mask == "windows" else Extent(0, batch), Extent(0, batch)]
    sizes = encoded([*counted, *lengths_of, *map(Extent.literal, widths[1:]), *repeats])
    of_bias = encoded(Strides(Stride(), Stride(), Stride(0, 1), Stride(1, 1), Stride(2, 1))) if biased else ()

    def batches(s: int) -> int:
        return min(4, (s + 1) // 2)

    def args(s: int) -> list[Any]:
        lengths = (s, keys(s), keys(s))
        given = [
            In(dtype, LAYOUTS[name][0](batches(s), count, length, width), make)
            for name, count, length, width in zip(layouts, counts, lengths, widths, strict=True)
        ]
        seen = In(kind, shape_of(batches(s), s, keys(s)), _some if kind == "bool" else _biases) if kind else None
        added = In("float32", (counts[0], s, keys(s))) if biased else None
        digits = (batches(s), counts[0], s, widths[2])
        parts: list[list[int]] = [[]]
        for number in axes:
            if number < 0:
                parts.append([])
            else:
                parts[-1].append(digits[number])
        out = Out(dtype, tuple(int(np.prod(part)) for part in parts))
        read = [
            encoded(LAYOUTS[name][1](count, width)) for name, count, width in zip(layouts, counts, widths, strict=True)
        ]
        how = (hides, masked, guarded, scale, sizes, *read, encoded(strides), axes, causal)
        return [*given, seen, *how, added, of_bias, out]

    def golden(q: Any, k: Any, v: Any, *rest: Any) -> torch.Tensor:
        s = rest[-1]
        queries, *others = (
            LAYOUTS[name][2](x.double(), count) for name, x, count in zip(layouts, (q, k, v), counts, strict=True)
        )
        keyed, values = (x.repeat_interleave(group, 1) for x in others)
        scores = queries @ keyed.transpose(2, 3) * scale
        if biased:
            scores = scores + rest[-2 if mask else 0].double()
        if mask == "windows":
            scores = scores + rest[0].double()[torch.arange(batches(s)) % WINDOWS]
        elif hides == ADDED:
            scores = scores + rest[0].double()
        elif hides != NO_MASK:
            seen = rest[0] if hides == SEEN else ~rest[0]
            scores = torch.where(seen if seen.dim() == 4 else seen[:, None, None], scores, masked)
        if causal:
            scores = scores.masked_fill(~torch.ones(s, keys(s), dtype=torch.bool).tril(), -np.inf)
        shares = torch.softmax(scores, -1)
        if guarded:
            shares = torch.where((scores == -np.inf).all(-1, keepdim=True), 0.0, shares)
        digits = [number for number in axes if number >= 0]
        return (shares @ values).permute(digits).reshape(args(s)[-1].shape)

    marks = [dtype, f"{counts[0]} of {heads} heads of {size}", *dict.fromkeys(layouts), mask and f"{mask} mask"]
    marks += ["guarded" if guarded else "", "causal" if causal else "", "finite" if masked == LEAST else ""]
    marks += [f"values of {value_size}" if value_size else "", "biased" if biased else ""]
    marks += ["length first" if axes == TURNED else "heads apart" if axes == APART else ""]
    return OpCase(
        f"attention along strides {', '.join(mark for mark in marks if mark)}",
        "liveshape.attention",
        args,
        golden,
        sizes=SIZES,
        **(HALF if dtype == "float16" else {"atol": atol, "rtol": 2e-5}),
    )


def _sharp(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    """Scores far beyond what exp takes."""
    return generator.standard_normal(shape) * 12


def _not_numbers(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    return np.where(generator.random(shape) < 0.02, np.nan, generator.standard_normal(shape))


CASES = [
    attention(),
    attention(("heads first",) * 3, axes=APART, group=3, size=8, mask="added"),
    attention(("rows first", "length first", "heads first"), size=12, axes=TURNED),
    attention(("second of three",) * 3, size=6, mask="seen", guarded=True),
    attention(("length first",) * 3, size=5, mask="seen"),
    attention(("heads first", "rows first", "second of three"), size=32, causal=True),
    attention(("rows first", "heads first", "heads first"), size=7, group=2, causal=True, mask="added", guarded=True),
    attention(size=64, heads=1, mask="hidden", masked=LEAST, keys=lambda s: 2 * s + 1),
    attention(size=20, mask="hidden", keys=lambda s: s // 2 + 1),
    attention(("heads first",) * 3, size=9, axes=APART, make=_sharp, atol=3e-4),
    attention(size=8, make=_not_numbers, mask="added"),
    attention(size=128, heads=1, group=2),
    attention(size=144, heads=1),
    attention(size=8, value_size=12, mask="windows"),
    attention(("heads first",) * 3, size=24, value_size=7, axes=APART, group=2, guarded=True, mask="seen", biased=True),
    attention(size=6, value_size=40, causal=True, mask="added", biased=True),
    attention(size=64, value_size=16, heads=1, mask="hidden", masked=LEAST, biased=True),
    attention(dtype="float16", size=16, mask="added"),
    attention(("heads first",) * 3, dtype="float16", size=24, axes=APART, group=2, causal=True),
    attention(("second of three",) * 3, dtype="float16", size=7, mask="seen", guarded=True),
]
