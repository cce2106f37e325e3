"""Convolutions by every route: the live size as batch, length, height, width, and as the window's own size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.support.graphs import SIZES, Const, In, OpCase, Out

Sizes = Callable[[int], tuple[int, ...]]


def conv(
    name: str,
    x: Sizes,
    weight: tuple[int, ...],
    *,
    dtype: str = "float32",
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    transposed: bool = False,
    output_padding: int = 0,
    groups: int = 1,
    bias: bool = True,
    clamp: tuple[float | None, float | None] | None = None,
    computed: bool = False,
    sizes: tuple[int, ...] = SIZES,
) -> OpCase:
    """`x` gives the shape of the input at a size; a computed weight is one that the caller gives."""
    rank = len(weight) - 2
    numbers = ((stride,) * rank, (padding,) * rank, (dilation,) * rank, transposed, (output_padding,) * rank, groups)
    generator = np.random.default_rng(len(name))
    # Of such a size that sums of any depth are about one.
    scale = float(np.prod(weight[1:]) or 1) ** -0.5
    kernel = (generator.standard_normal(weight) * scale).astype(dtype)
    offset = generator.standard_normal(weight[1] * groups if transposed else weight[0]).astype(dtype)

    def golden(x: torch.Tensor, *rest: Any) -> torch.Tensor:
        factor = rest[0] if computed else torch.from_numpy(kernel)
        addend = torch.from_numpy(offset).double() if bias else None
        result = torch.convolution(x.double(), factor.double(), addend, *numbers)
        return result if clamp is None else result.clamp(*clamp)

    def args_at(size: int) -> list[Any]:
        # On no device at all torch only says the shape; where it has none, zero is as good as any.
        try:
            empty = [torch.empty(shape, device="meta") for shape in (x(size), weight)]
            shape = tuple(torch.convolution(*empty, None, *numbers).shape)
        except RuntimeError:
            shape = (0,) * len(weight)
        return [
            In(dtype, x(size)),
            In(dtype, weight) if computed else Const(kernel),
            Const(offset) if bias else None,
            *numbers,
            *(clamp or ()),
            Out(dtype, shape),
        ]

    return OpCase(
        name=f"convolution {name} {dtype}",
        op="aten.convolution.default" if clamp is None else "et_vk.conv_with_clamp.default",
        args_at=args_at,
        golden=golden,
        sizes=sizes,
        **({"atol": 1e-2, "rtol": 5e-3} if dtype == "float16" else {"atol": 2e-5, "rtol": 2e-5}),
    )


FROM_3 = SIZES[2:]
FEW = (1, 3, 7, 16, 17)  # each run of these costs more than one of the others

CASES = [
    *(
        case
        for dtype in ("float32", "float16")
        for case in (
            conv("batch", lambda s: (s, 5, 4, 6), (9, 5, 3, 3), dtype=dtype, padding=1),
            conv("depthwise width", lambda s: (1, 6, 5, s), (6, 1, 3, 3), dtype=dtype, padding=1, groups=6),
        )
    ),
    conv("depthwise batch", lambda s: (s, 3, 4, 11), (6, 1, 2, 5), groups=3, stride=2, padding=2, clamp=(0, 6)),
    conv("depthwise height", lambda s: (2, 3, s, 9), (3, 1, 3, 3), groups=3, padding=2, dilation=2),
    conv("depthwise rows", lambda s: (1, 4, s, s), (8, 1, 3, 2), groups=4, stride=2, padding=1, bias=False, sizes=FEW),
    conv("more channels", lambda s: (1, 3, 5, s), (37, 3, 3, 3), padding=1),
    conv("height and width", lambda s: (2, 5, s, s + 2), (9, 5, 3, 3), padding=1, sizes=FEW),
    conv("stride", lambda s: (1, 4, s, 9), (20, 4, 3, 3), stride=2, padding=1, dilation=2, bias=False, sizes=FROM_3),
    conv("pointwise batch", lambda s: (s, 12, 3, 5), (10, 12, 1, 1)),
    conv("pointwise few channels", lambda s: (2, 7, s), (3, 7, 1), clamp=(-0.5, None)),
    conv("pointwise stride", lambda s: (s, 8, 7, 5), (16, 8, 1, 1), stride=2),
    conv("groups", lambda s: (2, 12, s), (20, 3, 5), groups=4, padding=2),
    conv("depthwise wide", lambda s: (1, 4, s), (4, 1, 9), groups=4, dilation=4, padding=16),
    conv("window of all", lambda s: (3, 4, s), (6, 4, 3), clamp=(None, 1.0), sizes=FROM_3),
    conv("computed weight", lambda s: (1, 3, s, 4), (5, 3, 2, 2), computed=True, padding=1),
    conv("deep", lambda s: (1, 64, 3, s), (24, 64, 3, 3), padding=1, clamp=(-1.0, 1.0), sizes=FEW),
    conv("volume", lambda s: (1, 3, 4, s, 5), (9, 3, 3, 2, 3), padding=1, stride=2, sizes=FEW),
    conv("volume depthwise", lambda s: (2, 3, s, 4, 6), (3, 1, 3, 3, 3), padding=1, groups=3, sizes=FEW),
    conv("transposed length", lambda s: (2, 6, s), (6, 4, 4), transposed=True, stride=2, padding=1, groups=2),
    conv(
        "transposed", lambda s: (1, 5, s, 4), (5, 18, 3, 3), transposed=True, stride=3, padding=1, dilation=2,
        output_padding=2, clamp=(-1.0, 2.0), sizes=FEW,
    ),
]  # fmt: skip
