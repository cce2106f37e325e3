"""What an operator may ask for beside a dispatch: memory, prepacking, limits, an element of data, the host, a count of
calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from liveshape.graph import Shape
from liveshape.graph.live import LiveScalar, LiveTensor
from liveshape.kernels.kernel import Dispatch

# Arrays and scalars, and the dtype of each result (None for a scalar), to the results as arrays and scalars.
HostFunction = Callable[[Sequence[Any], Sequence[str | None]], Sequence[Any]]


@dataclass(frozen=True)
class Scratch:
    """Yielded by an operator that needs temporary memory; it gets a tensor back. Ask before any routing."""

    dtype: str
    max_shape: Shape


@dataclass(frozen=True)
class Prepacked:
    """Yielded by an operator that wants a constant in a layout of its own: memory that outlives calls comes back, or
    None where `source` is not constant. Ask before any routing.

    One that is `alone` is all that the operator reads of its source from load on: where no other node reads that, it
    leaves the device. Ask so only where the source takes one binding."""

    source: LiveTensor
    dtype: str
    max_shape: Shape
    alone: bool = False


@dataclass(frozen=True)
class Prepack:
    """Yielded by an operator right after it got prepacked memory: what fills that, from constants, once at load."""

    dispatch: Dispatch


@dataclass(frozen=True)
class GetLimits:
    """Yielded by an operator whose kernel selection depends on the device: its Limits come back."""


@dataclass(frozen=True)
class Read:
    """Yielded by an operator whose plan depends on data: one element of a tensor comes back as a scalar (a readback).

    Where the tensor is its own temporary memory, the steps that it yielded before run before.
    """

    tensor: LiveTensor
    element: int


@dataclass(frozen=True)
class OnHost:
    """Yielded by an operator that has no kernel (host fallback): `function` is called on what `arguments` hold, and its
    results are uploaded to `written`. Their live shapes and scalars come back, or None where nothing runs yet."""

    function: HostFunction
    arguments: tuple[Any, ...]
    written: tuple[LiveTensor | LiveScalar, ...]


@dataclass(frozen=True)
class CallCount:
    """Yielded by an operator that draws numbers: how many calls there were comes back, so that each draws others."""


Request = Read | OnHost | CallCount
