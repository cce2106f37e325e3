"""What the outer program does beside operators: moves, assignments and jumps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from liveshape.graph import SymInt, Tensor
from liveshape.kernels import Dispatch
from liveshape.ops.copies import copy_values
from liveshape.ops.registry import Number, op


@op("liveshape.move", alias=True)
def move(x: Tensor, out: Tensor) -> Iterator[Dispatch]:
    out.shape = x.shape
    yield from copy_values(x, out)


@op("liveshape.assign")
def assign(value: Number, out: SymInt) -> None:
    out.value = value


@op("liveshape.jump_false", control=True)
def jump_false(condition: Tensor | Number, target: int, out: Any) -> None:
    """Taken by the executor, which alone knows what ran; planning it does nothing."""
