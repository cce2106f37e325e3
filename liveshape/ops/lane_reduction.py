"""Reductions by threads that do not meet: each reduces a part of a unit by itself, in vectors of neighbours.

Long units, and few of them, go in parts, whose results are units of their own. So go all reductions where threads are
few: compilers for CPUs make coroutines of kernels with barriers and a branch per lane of each load, so that a vector of
four costs little more than one element. Where they are many, so go those whose neighbours in memory are units.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

from liveshape.graph import Limits, Shape
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import Scratch
from liveshape.ops.registry import Number, Tensors
from liveshape.ops.shapes import ceil_div
from liveshape.ops.stages import merged, thread_elements, walk_of

NEIGHBOURS, WIDTHS = ("elements", "units"), {4: "four", 1: "one"}
LANE_REDUCE = {
    (inner, width): Kernel.load("reduction/lane_reduce", NEIGHBOURS=NEIGHBOURS[not inner], WIDTH=name)
    for inner in (True, False)
    for width, name in WIDTHS.items()
}
# By whether a device has many threads: how many are enough, and the turns of one that are worth a partial result.
ENOUGH_THREADS = {False: 256, True: 1 << 16}
LEAST_SPANS = {False: 64, True: 32}
EVEN_SPAN = 1024  # where the order of a sum depends on nothing but its length


class LaneLayout(NamedTuple):
    """Where the elements of units lie, in vectors of `width`, which are of a unit where they are `inner`."""

    units: int
    length: int  # of a unit, in turns of a thread
    inner: bool
    width: int
    walk: dict[str, Any]

    @property
    def unit_threads(self) -> int:
        """Threads of a part of all units."""
        return self.units if self.inner else self.units // self.width


def lane_layout(shape: Shape, axes: list[int]) -> LaneLayout:
    """The layout of a reduction over axes, in any order.

    >>> layout = lane_layout((3, 8), [1])
    >>> layout.units, layout.length, layout.inner, layout.width
    (3, 2, True, 4)
    """
    kept_sizes, kept_strides = merged(shape, [axis for axis in range(len(shape)) if axis not in axes])
    sizes, strides = merged(shape, axes)
    inner = strides[-1:] == (1,)
    innermost = sizes if inner else kept_sizes
    width = 4 if innermost and innermost[-1] % 4 == 0 else 1
    units, length = prod(kept_sizes), prod(sizes)
    # All strides but that of the innermost dimension are multiples of its size.
    kept_strides = tuple(1 if step == 1 else step // width for step in kept_strides)
    strides = tuple(1 if step == 1 else step // width for step in strides)
    if inner:
        sizes, length = (*sizes[:-1], sizes[-1] // width), length // width
    elif kept_sizes:
        kept_sizes = (*kept_sizes[:-1], kept_sizes[-1] // width)
    run, step = (sizes[-1], strides[-1]) if sizes else (1, 1)
    walk = walk_of((kept_sizes, kept_strides), (sizes[:-1], strides[:-1]))
    walk |= {"length": length, "run": run, "step": step}
    return LaneLayout(units, length, inner, width, walk)


def lane_partials(shape: Shape, axes: list[int], dtype: str, limits: Limits) -> Generator[Scratch, Any, Tensors]:
    """Scratch for the partial results of units up to those of a shape, a tensor for each stage."""
    units = prod(size for axis, size in enumerate(shape) if axis not in axes)
    length = prod(shape[axis] for axis in axes)
    most = min(thread_elements(limits), LEAST_SPANS[limits.has_many_threads])
    stages = []
    while length > most:
        # A part for every few turns, or as many as there may be threads.
        parts = ceil_div(length, most)
        enough = ceil_div(length, _span(limits)) * units + units + 4 * ENOUGH_THREADS[limits.has_many_threads]
        stages.append((yield Scratch(dtype, (min(parts * units, enough),))))
        length = parts
    return tuple(stages)


def _span(limits: Limits) -> int:
    """Turns that a thread makes at most."""
    return min(thread_elements(limits), EVEN_SPAN) if limits.one_order else thread_elements(limits)


def _parts(layout: LaneLayout, limits: Limits, first: bool) -> int:
    """How many threads reduce a unit; with one order of summation that depends on nothing but its length."""
    parts = ceil_div(layout.length, _span(limits))
    if (first or limits.has_many_threads) and not limits.one_order and layout.unit_threads > 0:
        wanted = ceil_div(ENOUGH_THREADS[limits.has_many_threads], layout.unit_threads)
        # In elements, so that lengths which are no multiple of four take the parts of their neighbours.
        turns = 4 // layout.width if layout.inner else 1
        worth = ceil_div(layout.length, LEAST_SPANS[limits.has_many_threads] * turns)
        wanted = wanted if wanted < worth else worth
        parts = parts if parts > wanted else wanted
    return parts if parts > 0 else 1


def lane_reduce(
    codes: tuple[int, int],
    x: LiveTensor,
    axes: list[int],
    out: LiveTensor,
    partials: Tensors,
    limits: Limits,
    divisor: Number,
    **constants: Any,
) -> Generator[Dispatch, Any, None]:
    """out = x reduced over axes, by the second of two codes; by the first to partial results."""
    layout, source = lane_layout(x.shape, axes), x
    for target in (*partials, out):
        span = ceil_div(layout.length, _parts(layout, limits, source is x))
        parts = ceil_div(layout.length, span) if span > 0 else 1
        count = layout.unit_threads * parts
        last = parts == 1
        yield LANE_REDUCE[layout.inner, layout.width](
            out if last else target, source, **layout.walk, count=count, unit_threads=layout.unit_threads, span=span,
            divisor=divisor if last else 1, OP=codes[last], threads=count, **constants,
        )  # fmt: skip
        if last:
            return
        layout, source = lane_layout((parts, layout.units), [0]), target
