"""What the cases of image operators share: torch computes in at least 32 bits and tells the shapes of the outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tests.support.graphs import SIZES, In, OpCase, Out

FLOATS = ("float32", "float16")


def pictured(
    name: str,
    op: str,
    inputs: Callable[[int], Sequence[In]],
    args: list[Any] | Callable[[int], list[Any]],
    function: Callable[..., Any],
    *,
    indexed: bool = False,
    wide: bool = True,
    sizes: tuple[int, ...] = SIZES,
) -> OpCase:
    """`args` follow the inputs; `function` gets tensors, and the size where `args` does. Indices come after values.

    `wide`: torch computes in 64 bits. Where places are rounded it must not: PyTorch defines them in 32.
    """
    kind = inputs(max(sizes))[0].dtype
    half = kind == "float16"
    sized = callable(args)

    def answer(tensors: Sequence[torch.Tensor], size: int) -> Any:
        given = [each.to(torch.float64 if wide else torch.float32) if half or wide else each for each in tensors]
        floating = [new if old.is_floating_point() else old for new, old in zip(given, tensors, strict=True)]
        return function(*floating, size) if sized else function(*floating)

    def args_at(size: int) -> list[Any]:
        given = list(inputs(size))
        found = answer([torch.zeros(each.shape, dtype=getattr(torch, each.dtype)) for each in given], size)
        shapes = [tuple(each.shape) for each in (found if indexed else (found,))]
        outs = tuple(Out(dtype, shape) for dtype, shape in zip((kind, "int64"), shapes, strict=False))
        return [*given, *(args(size) if callable(args) else args), outs if indexed else outs[0]]

    return OpCase(
        name=f"{name} {kind}",
        op=op,
        args_at=args_at,
        golden=lambda *rest: answer(rest[:-1], rest[-1]),
        atol=1e-2 if half else 1e-5,
        rtol=2e-3 if half else 1e-5,
        sizes=sizes,
    )
