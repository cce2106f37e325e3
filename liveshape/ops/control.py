"""Control flow of the outer program: moves, assignments and conditional jumps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from liveshape.errors import ShapeError
from liveshape.graph.live import LiveScalar, LiveTensor
from liveshape.graph.traits import Role
from liveshape.kernels import Dispatch
from liveshape.ops.copies import copy_values
from liveshape.ops.registry import Ints, Number, op
from liveshape.ops.row_rules import elementwise


@op("liveshape.move", alias=True, rows=elementwise(), any_size=True)
def move(x: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    out.shape = x.shape
    yield from copy_values(x, out)


@op("liveshape.assign", role=Role.FIRST, any_size=True)
def assign(value: Number, out: LiveScalar) -> None:
    out.value = value


@op("liveshape.one_number", any_size=True)
def one_number(values: Ints, out: LiveScalar) -> None:
    """The number that all of these are: the file does not say which of them it reads."""
    if any(value != values[0] for value in values):
        raise ShapeError(
            f"the file does not say which of the numbers {values} is read here, and they differ at this call; give "
            "sizes at which they are the same, or export again so that every input of the delegate is read"
        )
    out.value = values[0]


@op("liveshape.jump_false", control=True)
def jump_false(condition: LiveTensor | Number, target: int, out: Any) -> None:
    """Taken by the executor, which alone knows what ran; planning it does nothing."""
