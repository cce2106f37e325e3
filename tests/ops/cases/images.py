"""Pictures resampled, sampled at places, shuffled and padded, with live batches, heights, widths and live results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.ops.cases.movement import moved
from tests.support.graphs import SIZES, In, OpCase, Out, Sym
from tests.support.pictures import FLOATS, pictured

aten = torch.ops.aten
WIDE = tuple(size for size in SIZES if size > 3)  # what a mirror image of three needs


def _resampled(
    name: str, overload: str, shape: Callable[[int], tuple[int, ...]], args: list[Any], kind: str = "float32"
) -> OpCase:
    """Torch has the form without an out; its arguments are the same."""
    function = getattr(getattr(aten, name), overload.replace("vec_out", "vec").replace("out", "default"))
    return pictured(
        f"{name} {shape(7)} {args}", f"aten{'::' if 'out' in overload else '.'}{name}.{overload}",
        lambda s: [In(kind, shape(s))], args, lambda x: function(x, *args), wide=False,
    )  # fmt: skip


RESAMPLED = [
    *(_resampled("upsample_nearest2d", "vec", lambda s: (2, 3, s, 5), [None, (2.0, 1.7)], kind) for kind in FLOATS),
    _resampled("upsample_nearest2d", "vec_out", lambda s: (1, 2, 5, s), [(8, 11), None]),
    _resampled("upsample_nearest2d", "out", lambda s: (s, 1, 5, 3), [(9, 6), 1.9, 2.3]),
    _resampled("upsample_nearest1d", "vec", lambda s: (2, 2, s), [None, (1.4,)]),
    _resampled("upsample_nearest3d", "default", lambda s: (1, 2, s, 3, 4), [(5, 7, 2), None, None, None]),
    _resampled("_upsample_nearest_exact2d", "out", lambda s: (1, 2, s, 7), [(8, 3), None, None]),
    *(
        _resampled("upsample_bilinear2d", "vec", lambda s: (2, 3, s, 5), [None, False, (2.0, 1.7)], kind)
        for kind in FLOATS
    ),
    _resampled("upsample_bilinear2d", "vec", lambda s: (1, 2, s, 7), [(9, 14), True, None]),
    _resampled("upsample_bilinear2d", "vec_out", lambda s: (s, 2, 6, 5), [(3, 1), True, None]),
    _resampled("upsample_bilinear2d", "out", lambda s: (1, 2, 5, s), [(10, 11), False, 1.9, None]),
    _resampled("upsample_linear1d", "vec", lambda s: (2, 2, s), [None, False, (1.5,)]),
    _resampled("upsample_trilinear3d", "default", lambda s: (1, 2, s, 3, 4), [(5, 3, 7), False, None, None, 1.8]),
    _resampled("upsample_bicubic2d", "vec", lambda s: (2, 2, s, 5), [None, False, (1.5, 2.0)]),
    _resampled("upsample_bicubic2d", "out", lambda s: (1, 2, 4, s), [(9, 6), True, None, None]),
    *(
        _resampled("_upsample_bilinear2d_aa", "out", lambda s: (2, 2, s, 9), [(11, 4), aligned, None, None])
        for aligned in (False, True)
    ),
    _resampled("_upsample_bicubic2d_aa", "default", lambda s: (1, 2, s, 9), [(7, 5), False, None, None]),
    # Eager PyTorch reads beyond x where a given scale leads there; nothing is there, so nothing is the sum.
    pictured(
        "_upsample_bilinear2d_aa beyond",
        "aten._upsample_bilinear2d_aa.default",
        lambda s: [In("float32", (1, 2, s, 2))],
        [(3, 4), False, None, 1.0],
        lambda x: torch.constant_pad_nd(aten._upsample_bilinear2d_aa(x, (3, 2), False, None, None), (0, 2)),
        wide=False,
    ),
    pictured(
        "upsample_bilinear2d to a live size",
        "aten.upsample_bilinear2d.vec",
        lambda s: [In("float32", (1, 2, 5, 7))],
        lambda s: [(Sym(s), 9), False, None],
        lambda x, s: aten.upsample_bilinear2d.vec(x, (s, 9), False, None),
        wide=False,
    ),
]


def _places(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Inside of a picture and as far again outside of it."""
    return generator.uniform(-2.2, 2.2, shape)


def _sampled(
    op: str, picture: Callable[[int], Any], grid: Callable[[int], Any], args: list[Any], kind: str = "float32"
) -> OpCase:
    # A nearest element is chosen by rounding, so halves must be compared at the places that halves can say.
    return pictured(
        f"grid_sampler_2d {picture(7)} {args}", op, lambda s: [In(kind, picture(s)), In(kind, grid(s), _places)], args,
        lambda x, places: aten.grid_sampler_2d(x, places, *args), wide=False,
    )  # fmt: skip


SAMPLED = [
    *(
        _sampled("aten.grid_sampler_2d.default", lambda s: (2, 3, s, 5), lambda s: (2, 4, s, 2), [0, 1, True], kind)
        for kind in FLOATS
    ),
    _sampled("aten::grid_sampler_2d.out", lambda s: (s, 2, 4, 6), lambda s: (s, 3, 2, 2), [1, 2, False]),
    _sampled("aten::grid_sampler_2d.out", lambda s: (1, 2, 5, s), lambda s: (1, 3, 5, 2), [2, 2, True]),
    _sampled("aten::grid_sampler_2d.out", lambda s: (1, 2, 5, s), lambda s: (1, 7, 3, 2), [2, 0, False]),
    OpCase(
        "grid_priors float32",
        "et_vk.grid_priors.default",
        lambda s: [In("float32", (1, 2, 5, s)), 8, 0.5, Out("float32", (5 * s, 2))],
        lambda x, s: torch.stack(
            torch.meshgrid((torch.arange(s) + 0.5) * 8, (torch.arange(5) + 0.5) * 8, indexing="xy"), -1
        ).reshape(-1, 2),
    ),
]


def _padded(name: str, pad: tuple[int, ...], shape: Callable[[int], tuple[int, ...]], *kinds: str) -> list[OpCase]:
    function = getattr(aten, name)
    return moved(
        f"{name} {shape(7)} {pad}", f"aten::{name}.out", kinds, lambda s: [shape(s)], lambda x, s: [x, pad],
        lambda x, s: function(x, pad), WIDE,
    )  # fmt: skip


MOVED = [
    *moved(
        "pixel_shuffle",
        "aten.pixel_shuffle.default",
        FLOATS,
        lambda s: [(2, 8, s, 3)],
        lambda x, s: [x, 2],
        lambda x, s: aten.pixel_shuffle(x, 2),
    ),
    *moved(
        "pixel_unshuffle",
        "aten::pixel_unshuffle.out",
        ("float32", "int32"),
        # Never empty: eager PyTorch gives back the shape of the input then, an export does not.
        lambda s: [(2, 3 * s + 3, 6)],
        lambda x, s: [x, 3],
        lambda x, s: aten.pixel_unshuffle(x, 3),
    ),
    *_padded("reflection_pad1d", (3, 2), lambda s: (2, s), "float32"),
    *_padded("reflection_pad2d", (1, 2, 3, 0), lambda s: (2, 3, s, 4), "float32", "float16", "int64"),
    *_padded("reflection_pad3d", (1, 0, 2, 1, 0, 1), lambda s: (2, 3, 4, s), "float32"),
    *_padded("replication_pad1d", (3, 5), lambda s: (s, 2, 1), "float32"),
    *_padded("replication_pad2d", (0, 0, 4, 1), lambda s: (2, s, 3), "float32", "float16", "int32"),
    *_padded("replication_pad3d", (1, 2, 0, 3, 2, 2), lambda s: (1, 2, 2, s, 3), "float32"),
]

CASES = [*RESAMPLED, *SAMPLED, *MOVED]
