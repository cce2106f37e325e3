"""Control flow of the outer program: moves, assignments and conditional jumps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from liveshape.graph.live import LiveScalar, LiveTensor
from liveshape.graph.traits import Role
from liveshape.kernels import Dispatch
from liveshape.ops.copies import copy_values
from liveshape.ops.registry import Number, op
from liveshape.ops.row_rules import elementwise


@op("liveshape.move", alias=True, rows=elementwise(), any_size=True)
def move(x: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    out.shape = x.shape
    yield from copy_values(x, out)


@op("liveshape.assign", role=Role.FIRST, any_size=True)
def assign(value: Number, out: LiveScalar) -> None:
    out.value = value


@op("liveshape.jump_false", control=True)
def jump_false(condition: LiveTensor | Number, target: int, out: Any) -> None:
    """Taken by the executor, which alone knows what ran; planning it does nothing."""
