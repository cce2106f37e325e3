"""What an operator may ask for beside a dispatch: memory, limits, an element of data, the host, a count of calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from liveshape.graph import Shape
from liveshape.graph.live import LiveScalar, LiveTensor

# Arrays and numbers, and the dtype of each result (None for a number), to the results as arrays and numbers.
HostFunction = Callable[[Sequence[Any], Sequence[str | None]], Sequence[Any]]


@dataclass(frozen=True)
class Scratch:
    """Yielded by an operator that needs temporary memory; it gets a tensor back. Ask before any routing."""

    dtype: str
    max_shape: Shape


@dataclass(frozen=True)
class GetLimits:
    """Yielded by an operator whose way depends on what the device allows: its Limits come back."""


@dataclass(frozen=True)
class Read:
    """Yielded by an operator whose plan depends on data: one element of a tensor comes back as a number.

    Where the tensor is its own temporary memory, the steps that it yielded before run before.
    """

    tensor: LiveTensor
    element: int


@dataclass(frozen=True)
class OnHost:
    """Yielded by an operator that has no kernel: `function` is called on what `arguments` hold, and what it gives is
    put where `written` lie. The live shapes and numbers of these come back, or None where nothing runs yet."""

    function: HostFunction
    arguments: tuple[Any, ...]
    written: tuple[LiveTensor | LiveScalar, ...]


@dataclass(frozen=True)
class CallCount:
    """Yielded by an operator that draws numbers: how many calls there were comes back, so that each draws others."""


Request = Read | OnHost | CallCount
