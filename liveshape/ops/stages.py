"""Long reductions in two stages: parts of a unit first, then their partial results.

A thread takes a few thousand elements, so that no driver cuts its loops short, and more only of units that hardly fit a
buffer. It adds them up in blocks, so that rounding errors do not grow with the length.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from typing import Any, NamedTuple

from liveshape.graph import Limits, Shape
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import Scratch
from liveshape.ops.registry import Tensors
from liveshape.ops.shapes import MAX_RANK, ceil_div, merge_dims, strides_of

REDUCE = "reduction/reduce"
MANY_UNITS = 16384  # that fill a device with a thread each
ALL_UNITS = 1 << 20  # of a workgroup, whose threads alternate: see reduction/across_threads.wgsl
GROUP_THREADS = 256  # of the kernels of reductions
SHORT = 512  # elements of a unit for which fewer threads are quicker
ELEMENT_TURNS = 16  # of a thread for an element at most: its loops, and that over eight dimensions of a walk
MOST_PARTS = 1024  # of a unit, few enough that each may read what all have
MOST_PARTIALS = 8192  # that the threads of one unit end
SHARE = 8  # of what a thread may take is what it takes of a part, so that there are parts for all threads of a device


class Units(NamedTuple):
    """Units of `length` elements each, which lie side by side where they are `inner`."""

    number: int
    length: int
    inner: bool


Layout = tuple[Units, dict[str, Any]]  # units, and the params that say where their elements lie
Partials = Generator[Scratch, Any, LiveTensor | None]


def reduction_threads(units: Units, limits: Limits, share: int = 0) -> dict[str, Any]:
    """How many threads reduce one unit, or each of its parts where these have a share of so many elements: what
    reduction/parts.wgsl asks for."""
    many_units = units.number >= MANY_UNITS and not limits.one_order
    if units.length <= 8 or (not units.inner and many_units):
        unit_threads = 1
    else:
        unit_threads = 256 if units.inner and units.length > SHORT else 16
    parts = ceil_div(units.length, share) if share else 1
    return {
        "UNIT_THREADS": unit_threads,
        "ALTERNATING": 1 if units.inner else ALL_UNITS,
        "cooperative_units": units.number * parts,
        "units": units.number,
        "count": units.length,
        "parts": parts,
        "share": share or units.length,
    }


def most_threads(limits: Limits) -> int:
    """Threads that may reduce one unit: their results meet in halves."""
    allowed = min(limits.max_invocations, limits.max_cooperating_threads, GROUP_THREADS)
    return 1 << max(allowed, 1).bit_length() - 1


def _elements(units: Units, limits: Limits) -> tuple[int, int]:
    """Elements that the threads of a unit take at most, and those of a part where that has more."""
    threads = min(reduction_threads(units, limits)["UNIT_THREADS"], most_threads(limits))
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


def partials_of(bound: Units, limits: Limits, dtype: str = "float32", numbers: int = 2) -> Partials:
    """Scratch for some numbers of each part of units up to `bound`; None where none of these is long."""
    # A live unit may be short and have fewer threads than one of the bound.
    if not is_long(bound, limits) and not is_long(bound._replace(length=min(bound.length, SHORT)), limits):
        return None
    parts = min(MOST_PARTIALS, ceil_div(bound.length, max(thread_elements(limits) // SHARE, 2)))
    partials: LiveTensor = yield Scratch(dtype, (numbers * bound.number * parts,))
    return partials


def share_of(units: Units, limits: Limits, share: int = 0, most: int = MOST_PARTS) -> int:
    """Elements of a part of units that go in two stages, or that share, where there are no more parts than `most`."""
    share, least = share or _elements(units, limits)[1], ceil_div(units.length, most)
    return share if share > least else least


class Carry(NamedTuple):
    """The kernels of reduction/reduce.wgsl for what it carries: of all elements, of parts, of the results of these."""

    whole: Kernel
    parts: Kernel
    results: Kernel

    @classmethod
    def load(cls, name: str, **choices: str) -> Carry:
        """Example: `Carry.load("number", ELEMENTS="complex")`."""
        return cls(*(Kernel.load(REDUCE, CARRY=name, STAGE=stage, **choices) for stage in cls._fields))


def in_stages(
    carry: Carry,
    read: Tensors,
    layout: Layout,
    partials: LiveTensor | None,
    limits: Limits,
    kept: Tensors = (),
    **of_elements: Any,
) -> Generator[Dispatch, Any, Callable[..., Dispatch]]:
    """Reduce parts of long units; the last dispatch, of its output and values of its own, which reads what is kept."""
    units, walk = layout
    kernel, values = carry.whole, walk | of_elements
    if partials is not None and is_long(units, limits):
        threads = reduction_threads(units, limits, share_of(units, limits, most=MOST_PARTIALS))
        yield carry.parts(partials, *read, **values | threads, divisor=1)
        units = Units(units.number, threads["parts"], units.number == 1)
        kernel, read, values = carry.results, (partials, *kept), walk
    values = values | reduction_threads(units, limits) | {"divisor": 1}
    return lambda out, **own: kernel(out, *read, **values | own)


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
