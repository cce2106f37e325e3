"""Images as halves with their channels last, between convolutions by matrix units: live batch, height and width.

The convolutions themselves take matrix units, as tests/matrices has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from tests.support.graphs import SIZES, Const, In, OpCase, Out

aten = torch.ops.aten
LONG = tuple(size for size in SIZES if size > 2)
EIGHT = 8
MOST = 65504  # that a half holds
HALF: dict[str, Any] = {"atol": 1e-3, "rtol": 1e-3}
FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)

Shape = Callable[[int], tuple[int, ...]]


def _beyond(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of which halves cannot hold some."""
    drawn = generator.standard_normal(shape).astype(np.float32)
    drawn.reshape(-1)[::7] *= 1e6
    return drawn


def _turned(kind: str, shape: Shape, make: Any = None) -> OpCase:
    def size(s: int) -> tuple[int, ...]:
        images, channels, *sizes = shape(s)
        return (images, *sizes, -(-channels // EIGHT) * EIGHT)

    def golden(x: torch.Tensor, s: int) -> torch.Tensor:
        held = x.where(x.abs() <= MOST, torch.nan).half().permute(LAST)
        return F.pad(held, (0, size(s)[-1] - held.shape[-1]))

    return OpCase(
        f"channels last {kind} {shape(7)}{' beyond' if make else ''}",
        "liveshape.channels_last",
        lambda s: [In(kind, shape(s), make), Out("float16", size(s))],
        golden,
        atol=0,
        rtol=0,
    )


def _patched(kind: str, shape: Shape, kernel: tuple[int, int], make: Any = None) -> OpCase:
    def golden(x: torch.Tensor, s: int) -> torch.Tensor:
        held = x.where(x.abs() <= MOST, torch.nan).half()
        for axis, size in zip((2, 3), kernel, strict=True):
            held = held.unfold(axis, size, size)
        return held.permute(0, 2, 3, 1, 4, 5).flatten(3)

    def args_at(s: int) -> list[Any]:
        images, channels, *extents = shape(s)
        sizes = (extent // size for extent, size in zip(extents, kernel, strict=True))
        return [In(kind, shape(s), make), kernel, Out("float16", (images, *sizes, channels * math.prod(kernel)))]

    name = f"patches {kernel} {kind} {shape(7)}{' beyond' if make else ''}"
    return OpCase(name, "liveshape.patches", args_at, golden, atol=0, rtol=0)


def _moved(
    name: str, shape: Shape, args: list[Any], function: Callable[..., torch.Tensor], out: str = "float16", **more: Any
) -> OpCase:
    """An operator of images, whose channels are last here and second in torch."""

    def result(x: torch.Tensor) -> torch.Tensor:
        return function(x.float().permute(FIRST)).permute(LAST)

    return OpCase(
        f"channels last {name} {shape(7)} {args} {out}",
        f"liveshape.channels_last_{name}",
        lambda s: [In("float16", shape(s)), *args, Out(out, tuple(result(torch.zeros(shape(s))).shape))],
        lambda x, s: result(x).to(getattr(torch, out)),
        **more,
    )


def _max(shape: Shape, *args: Any, **more: Any) -> OpCase:
    return _moved("max_pool", shape, [*args], lambda x: aten.max_pool2d(x, *args), atol=0, rtol=0, **more)


def _average(shape: Shape, *args: Any, **more: Any) -> OpCase:
    return _moved("average_pool", shape, [*args], lambda x: aten.avg_pool2d(x, *args), **HALF, **more)


def _nearest(shape: Shape, *args: Any) -> OpCase:
    return _moved("nearest", shape, [*args], lambda x: aten.upsample_nearest2d.vec(x, *args), atol=0, rtol=0)


def _normed(
    shape: Shape, groups: int, affine: tuple[bool, bool], far: float = 0.0, out: str = "float32", **more: Any
) -> OpCase:
    """Of numbers that may be far from zero."""
    channels = shape(7)[-1]
    chance = np.random.default_rng(channels)
    given = [Const(chance.standard_normal(channels).astype(np.float32)) if each else None for each in affine]

    def golden(x: torch.Tensor, s: int) -> torch.Tensor:
        weight, bias = (torch.from_numpy(each.array).double() if each else None for each in given)
        made = F.group_norm(x.double().permute(FIRST), groups, weight, bias, 1e-5)
        return made.permute(LAST).to(getattr(torch, out))

    def args_at(s: int) -> list[Any]:
        drawn = In("float16", shape(s), lambda generator, size: generator.standard_normal(size) + far)
        return [drawn, *given, groups, 1e-5, Out(out, shape(s))]

    name = f"channels last group norm {shape(7)} in {groups} {affine}{' far' if far else ''} {out}"
    off = 1e-4 if out == "float32" else 1e-3
    return OpCase(name, "liveshape.channels_last_group_norm", args_at, golden, atol=off, rtol=off, **more)


CASES = [
    _turned("float32", lambda s: (s, 5, 3, 4)),
    _turned("float16", lambda s: (2, 24, s, 3)),
    _turned("float32", lambda s: (1, 70, 2, s)),
    _turned("float32", lambda s: (2, 12, s, 3), _beyond),
    _patched("float32", lambda s: (s, 3, 9, 17), (4, 8)),
    _patched("float16", lambda s: (2, 4, 5 + s, 9), (3, 2)),
    _patched("float32", lambda s: (1, 1, 8, 8 + s), (8, 3), _beyond),
    _max(lambda s: (s, 7, 9, 8), (3, 3), (2, 2), (1, 1), (1, 1), False),
    _max(lambda s: (2, s, 8, 12), (3, 2), (), (1, 0), (1, 1), True, sizes=LONG),
    _max(lambda s: (1, 9, s, 4), (2, 3), (1, 2), (0, 1), (2, 1), False),
    _average(lambda s: (s, 7, 9, 8), (3, 3), (2, 2), (1, 1), False, True, None),
    _average(lambda s: (2, s, 8, 12), (3, 2), (), (1, 0), True, False, None, sizes=LONG),
    _average(lambda s: (1, 9, s, 4), (2, 3), (1, 2), (0, 1), False, True, 5, out="float32"),
    _nearest(lambda s: (s, 3, 5, 8), None, (2.0, 2.0)),
    _nearest(lambda s: (2, s, 4, 12), (9, 7), None),
    _normed(lambda s: (s, 5, 3, 24), 8, (True, True)),
    _normed(lambda s: (2, s, 7, 40), 4, (True, False)),
    _normed(lambda s: (1, 9, s, 16), 4, (False, True), far=30.0),
    _normed(lambda s: (s, 2, 2, 8), 1, (False, False)),
    _normed(lambda s: (2, s, 3, 64), 64, (True, False)),
    _normed(lambda s: (2, 31, 4 * s, 256), 32, (True, True), out="float16"),
    _normed(lambda s: (1, 16 * s, 41, 40), 20, (True, True), far=30.0, sizes=LONG),
]
