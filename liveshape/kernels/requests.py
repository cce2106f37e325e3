"""What an operator may ask for beside a dispatch: temporary memory, one element of data, or which call this is."""

from __future__ import annotations

from dataclasses import dataclass

from liveshape.graph import Shape
from liveshape.graph.live import LiveTensor


@dataclass(frozen=True)
class Scratch:
    """Yielded by an operator that needs temporary memory; it gets a tensor back. Ask before any routing."""

    dtype: str
    max_shape: Shape


@dataclass(frozen=True)
class Read:
    """Yielded by an operator whose plan depends on data: one element of a tensor comes back as a number.

    Where the tensor is its own temporary memory, the steps that it yielded before run before.
    """

    tensor: LiveTensor
    element: int


@dataclass(frozen=True)
class Turn:
    """Yielded by an operator that draws numbers: how many calls there were comes back, so that each draws others."""


Request = Read | Turn
