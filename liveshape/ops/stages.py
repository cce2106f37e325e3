"""Long reductions in stages: parts of a unit first, then their partial results, until a few threads can end them.

A thread takes a few thousand elements, so that no driver cuts its loops short, and adds them up in blocks, so that
rounding errors do not grow with the length.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from typing import Any, NamedTuple

from liveshape.graph import Limits, Shape
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch
from liveshape.kernels.requests import Scratch
from liveshape.ops.shapes import MAX_RANK, ceil_div, merge_dims, strides_of

MANY_UNITS = 16384  # that fill a device with a thread each
ALL_UNITS = 1 << 20  # of a workgroup, whose threads alternate: see reduction/across_threads.wgsl
GROUP_THREADS = 256  # of the kernels of reductions
SHORT = 512  # elements of a unit for which fewer threads are quicker
ELEMENT_TURNS = 16  # of a thread for an element at most: its loops, and that over eight dimensions of a walk
SHARE = 8  # of what a thread may take is what it takes of a part, so that there are parts for all threads of a device


class Units(NamedTuple):
    """Units of `length` elements each, which lie side by side where they are `inner`."""

    number: int
    length: int
    inner: bool


def reduction_threads(units: Units, limits: Limits) -> dict[str, Any]:
    """How many threads reduce one unit."""
    many_units = units.number >= MANY_UNITS and not limits.one_order
    if units.length <= 8 or (not units.inner and many_units):
        unit_threads = 1
    else:
        unit_threads = 256 if units.inner and units.length > SHORT else 16
    return {
        "UNIT_THREADS": unit_threads,
        "ALTERNATING": 1 if units.inner else ALL_UNITS,
        "cooperative_units": units.number,
    }


def _elements(units: Units, limits: Limits) -> tuple[int, int]:
    """Elements that the threads of a unit take at most, and those of a part where that has more."""
    allowed = min(limits.max_invocations, limits.max_cooperating_threads, GROUP_THREADS)
    threads = min(reduction_threads(units, limits)["UNIT_THREADS"], 1 << max(allowed, 1).bit_length() - 1)
    most = thread_elements(limits)
    return threads * most, threads * max(most // SHARE, 2)


def thread_elements(limits: Limits) -> int:
    """Elements that one thread takes at most.

    >>> thread_elements(Limits())
    2048
    """
    return max(limits.max_turns // ELEMENT_TURNS, 4)


def is_long(units: Units, limits: Limits) -> bool:
    """Whether units take more than one dispatch.

    >>> is_long(Units(1, 8192, inner=True), Limits()), is_long(Units(1, 1_000_000, inner=True), Limits())
    (False, True)
    """
    return units.length > _elements(units, limits)[0]


def partials_of(
    bound: Units, dtype: str, limits: Limits, lanes: int = 1
) -> Generator[Scratch, Any, tuple[LiveTensor, ...]]:
    """Scratch for the partial results of units up to `bound`, a tensor for each stage; none where one dispatch does."""
    found: list[LiveTensor] = []
    # A live unit may be short and have fewer threads than one of the bound.
    short = bound._replace(length=min(bound.length, SHORT))
    count = bound.length if is_long(bound, limits) or is_long(short, limits) else 0
    most = thread_elements(limits)
    while count > most:
        count = ceil_div(count, max(most // SHARE, 2))
        found.append((yield Scratch(dtype, (count * bound.number * lanes,))))
    return tuple(found)


First = Callable[[LiveTensor, dict[str, Any]], Dispatch]
Again = Callable[[LiveTensor, LiveTensor, Units, dict[str, Any]], Dispatch]


def partial_results(
    units: Units, partials: tuple[LiveTensor, ...], limits: Limits, first: First, again: Again
) -> Generator[Dispatch, Any, tuple[LiveTensor, Units]]:
    """Reduce units to partial results that one more dispatch can end; these, and the units that they make.

    Results of one part of all units are neighbours, and those of the next part follow. `first` reduces parts of the
    units, `again` those of partial results.
    """
    source: LiveTensor | None = None
    for target in partials:
        if source is not None and not is_long(units, limits):
            break
        span = _elements(units, limits)[1]
        parts = ceil_div(units.length, span)
        values = {"span": span, "parts": parts, **reduction_threads(units, limits)}
        values["cooperative_units"] = units.number * parts
        yield first(target, values) if source is None else again(target, source, units, values)
        source, units = target, Units(units.number, parts, units.number == 1)
    assert source is not None
    return source, units


def merged(shape: Shape, axes: Collection[int]) -> tuple[Shape, Shape]:
    """Sizes and strides of some axes, in the order of memory, neighbours merged."""
    axes = sorted(axes)
    strides = strides_of(shape)
    sizes, (steps,) = merge_dims(tuple(shape[axis] for axis in axes), tuple(strides[axis] for axis in axes))
    return sizes, steps


def walk_of(kept: tuple[Shape, Shape], reduced: tuple[Shape, Shape]) -> dict[str, Any]:
    """The params of reduction/reduced_walk.wgsl: sizes and strides of what is kept and of what is reduced.

    >>> walk_of(((2,), (3,)), ((3,), (1,)))["sizes"]
    (2, 0, 0, 0, 0, 0, 0, 0, 3)
    """
    padding = (0,) * (MAX_RANK - len(kept[0]))
    sizes, strides = (first + padding + second for first, second in zip(kept, reduced, strict=True))
    return {"kept_rank": len(kept[0]), "reduced_rank": len(reduced[0]), "sizes": sizes, "strides": strides}


def walk_of_units(kept: tuple[Shape, Shape], reduced: tuple[Shape, Shape]) -> dict[str, Any]:
    """The same, and how many units there are, of how many elements."""
    return {"units": prod(kept[0]), "count": prod(reduced[0])} | walk_of(kept, reduced)


def stacked(units: Units) -> dict[str, Any]:
    """The layout of partial results: those of one part of all units lie side by side."""
    return walk_of_units(((units.number,), (1,)), ((units.length,), (units.number,)))
