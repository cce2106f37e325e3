"""Convolutions that are large enough for matrix units: strides, padding, dilation, every size live in turn."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.matrices.products import drawn, halves_error
from tests.ops.cases.convolution import conv
from tests.support.graphs import In, OpCase


def halved(case: OpCase, scale: float = 1.0, depth: int = 1) -> OpCase:
    """The case with images times a scale, and with what rounding both factors to halves makes of its sums.

    These are about one, since weights are the smaller the deeper they are; but not those that the caller gives.
    """

    def args_at(size: int) -> list[Any]:
        x, *others = case.args_at(size)
        return [In(x.dtype, x.shape, drawn(scale)), *others]

    return replace(
        case, args_at=args_at, **halves_error(depth, "float16" if "float16" in case.name else "float32", scale)
    )


def layer(name: str, x: Callable[[int], tuple[int, ...]], weight: tuple[int, ...], **others: Any) -> OpCase:
    return halved(conv(name, x, weight, **others), depth=math.prod(weight[1:]) if others.get("computed") else 1)


def spread(name: str, x: Callable[[int], tuple[int, ...]], weight: tuple[int, ...], **others: Any) -> OpCase:
    """A transposed one whose windows do not overlap."""
    return layer(name, x, weight, transposed=True, stride=weight[-1], **others)


CONVOLUTIONS = [
    layer("height", lambda s: (1, 19, s, 23), (67, 19, 3, 3), padding=1, sizes=(29, 3, 17, 5)),
    layer("batch", lambda s: (s, 16, 11, 13), (65, 16, 3, 3), padding=1, sizes=(7, 1, 2, 5), clamp=(0.0, 1.0)),
    layer("first", lambda s: (1, 3, s, 37), (64, 3, 7, 7), stride=2, padding=3, sizes=(41, 7, 23), bias=False),
    layer("stride", lambda s: (2, 24, s, 29), (48, 24, 3, 3), stride=2, padding=1, sizes=(31, 4, 17)),
    layer("dilation", lambda s: (1, 33, s, 31), (40, 33, 3, 3), padding=2, dilation=2, sizes=(23, 5, 12)),
    layer("deep", lambda s: (1, 256, s, 7), (96, 256, 3, 3), padding=1, sizes=(7, 1, 4), clamp=(None, 0.5)),
    layer("strided pixels", lambda s: (1, 64, s, 89), (128, 64, 1, 1), stride=2, sizes=(43, 5, 21)),
    layer("pixels", lambda s: (1, 96, s, 19), (67, 96, 1, 1), sizes=(29, 3, 17), clamp=(0.0, 6.0)),
    layer("pixels of a batch", lambda s: (s, 70, 9, 9), (133, 70, 1, 1), sizes=(7, 1, 3)),
    layer("all of it", lambda s: (s, 67, 3, 3), (131, 67, 3, 3), sizes=(65, 1, 17)),
    layer("line", lambda s: (2, 37, s), (130, 37, 5), padding=2, sizes=(257, 5, 129)),
    layer("volume", lambda s: (1, 16, 5, s, 9), (33, 16, 2, 3, 3), padding=1, sizes=(19, 3, 8)),
    layer("halves", lambda s: (1, 40, s, 21), (64, 40, 3, 3), padding=1, sizes=(23, 9), dtype="float16"),
    spread("spread", lambda s: (2, 70, s, 13), (70, 19, 2, 2), sizes=(29, 3, 17), clamp=(0.0, 1.0)),
    spread("spread line", lambda s: (1, 96, s), (96, 33, 4), sizes=(257, 5, 129)),
    spread("spread volume", lambda s: (1, 40, 3, s, 7), (40, 11, 2, 2, 2), sizes=(41, 3, 19), bias=False),
    spread("spread deep", lambda s: (1, 512, s, 5), (512, 128, 2, 2), sizes=(13, 1, 7)),
    spread("spread halves", lambda s: (s, 64, 9, 11), (64, 40, 2, 2), sizes=(5, 1, 3), dtype="float16"),
    layer("given weight", lambda s: (1, 24, s, 24), (64, 24, 3, 3), padding=1, sizes=(24, 7), computed=True),
]
PADDED = conv("scale", lambda s: (1, 24, s, 23), (48, 24, 3, 3), padding=1, bias=False, sizes=(24, 13))


def times(scale: float) -> OpCase:
    """Images beyond the range of halves."""
    return replace(halved(PADDED, scale), name=f"convolution of {scale:g}")


SCALED = [times(scale) for scale in (1e5, 1e30, 1e-6)]
