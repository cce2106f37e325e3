"""What a plan is at a few dozen live sizes: an axis for each size or number that moves, planned at every combination.

Sizes are the smallest ones, powers of two, the bound, and both sides of every size at which some node takes another
kernel. A combination that the program refuses keeps the reason. Nothing runs: planning needs no device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

from liveshape.errors import LiveshapeError
from liveshape.formats.signature import STATIC, Signature
from liveshape.graph import SymInt, Tensor, Value
from liveshape.graph.traits import Role
from liveshape.kernels.requests import Read
from liveshape.plan.cost import Cost, costs
from liveshape.plan.dimensions import dimensions
from liveshape.plan.plan import Plan
from liveshape.plan.plan_state import PlanState

SIZE, SCALAR, DATA = "size", "scalar", "data"  # what an axis moves: dimensions, an input that is a number, or data
_MAX_AXES, _MAX_VALUES = 4, 48
_MAX_POINTS, _LEAST_POINTS, _MAX_PLANNED = 256, 36, 1 << 17  # combinations, fewer where there are many nodes
_MAX_CHANGES = 8  # sizes of an axis at which kernels change that are looked for
_DENSE = 33  # sizes in a row, which tell a division that rounds from one that does not
# A dimension by its place, where the file has no name for it: images, and all others.
_IMAGE_LETTERS, _LETTERS = "NCHW", "NSTUVWX"

Steps = tuple[tuple[str, tuple[int, int, int]], ...]  # kernels with their workgroups


@dataclass(frozen=True)
class Axis:
    """What one slider moves: `places` are dimensions of inputs with scale and offset, or else it is a number."""

    symbol: str
    label: str
    kind: str
    values: tuple[int, ...]
    places: tuple[tuple[Tensor, int, int, int], ...] = ()
    value: Value | None = None

    @property
    def rest(self) -> int:
        """Where it stays while others move: at the bound, and numbers at their first value."""
        return self.values[-1] if self.kind == SIZE else self.values[0]


@dataclass(frozen=True)
class Behaviour:
    """What one node does at one combination: kernels with workgroups, bytes and operations."""

    steps: Steps
    cost: Cost


@dataclass(frozen=True)
class Sample:
    """The plan at one combination of sizes, or why the program refuses it."""

    sizes: tuple[int, ...]
    values: Mapping[Value, Any]  # live shapes of tensors, numbers of scalars
    nodes: tuple[Behaviour, ...]
    refused: str = ""


@dataclass(frozen=True)
class Samples:
    """All combinations in row-major order of the axes, and more sizes of each axis alone, for shapes as functions."""

    axes: tuple[Axis, ...]
    points: tuple[Sample, ...]
    dense: tuple[Sample, ...]
    fixed: tuple[str, ...]  # what could move, too, and stays at its bound here


def samples(
    plan: Plan, signature: Signature | None = None, begin: Callable[[str], None] = lambda text: None
) -> Samples:
    """Plan at every combination of a few sizes; `begin` is told before each.

    Example: `samples(compile(graph)).points[-1].values[graph.outputs[0]]`.
    """
    sampler = Sampler(plan)
    every = [*_size_axes(plan, sampler, signature), *_number_axes(plan)]
    axes, fixed = every[:_MAX_AXES], tuple(axis.label for axis in every[_MAX_AXES:])
    points_allowed = min(_MAX_POINTS, max(_LEAST_POINTS, _MAX_PLANNED // max(len(plan.graph.nodes), 1)))
    most = max(2, int(points_allowed ** (1 / max(len(axes), 1))))
    moving: list[Axis] = []
    for axis in axes:
        begin(f"{plan.graph.name}: {axis.symbol}")
        taken = _legal(axis, axes, sampler)
        if taken is not None and _moves(taken, axes, sampler):
            moving.append(taken)
    axes = [_thinned(axis, _changes(axis, moving, sampler), min(most, _MAX_VALUES)) for axis in moving]
    points = []
    for sizes in product(*(axis.values for axis in axes)):
        named = zip(axes, sizes, strict=True)
        begin(f"{plan.graph.name}: {', '.join(f'{axis.symbol} = {size}' for axis, size in named)}")
        points.append(sampler.at(axes, sizes))
    dense = [sampler.at(axes, sizes) for sizes in _dense(axes)]
    return Samples(tuple(axes), tuple(points), tuple(each for each in dense if not each.refused), fixed)


class Sampler:
    """Plans at given sizes, with everything else at its bound.

    Example: `Sampler(plan).at([axis], [7]).refused`.
    """

    def __init__(self, plan: Plan) -> None:
        self.live = PlanState(plan)
        self.half = plan.limits.half

    def at(self, axes: Sequence[Axis], sizes: Sequence[int]) -> Sample:
        """The plan where each axis has its size."""
        live, graph = self.live, self.live.plan.graph
        live.restore()
        data: dict[Value, int] = {}
        shapes: dict[Tensor, list[int]] = {}
        for axis, size in zip(axes, sizes, strict=True):
            for tensor, dim, scale, offset in axis.places:
                shapes.setdefault(tensor, list(tensor.max_shape))[dim] = scale * size + offset
            if axis.kind == SCALAR and axis.value is not None:
                live.set(axis.value, size)
            elif axis.kind == DATA and axis.value is not None:
                data[axis.value] = size
        try:
            for tensor, shape in shapes.items():
                live.set(tensor, tuple(shape))
            live.begin()
            live.walk(0, len(live.nodes), lambda node, request: _reply(data, node.args, request))
        except LiveshapeError as error:
            return Sample(tuple(sizes), {}, (), str(error))
        values: dict[Value, Any] = {}
        for value in graph.values:
            values[value] = live.tensor(value).shape if isinstance(value, Tensor) else live.scalar(value).value  # type: ignore[arg-type]
        return Sample(tuple(sizes), values, tuple(self._behaviours()))

    def _behaviours(self) -> Iterator[Behaviour]:
        known: dict[Any, Behaviour] = {}
        for node in self.live.nodes:
            if node.group not in known:  # its nodes have one plan now
                route = node.group.route
                rows = zip(route.dispatched, route.slots, strict=True)
                steps = tuple((variant.label, slot.grid) for (variant, _), slot in rows)
                known[node.group] = Behaviour(steps, sum(costs(node, self.half), Cost()))
            yield known[node.group]


def _reply(data: Mapping[Value, int], args: Sequence[Any], request: Any) -> int | None:
    if not isinstance(request, Read):
        return None
    return data.get(args[0], 0) if args and isinstance(args[0], Value) else 0


# Axes


def _size_axes(plan: Plan, sampler: Sampler, signature: Signature | None) -> list[Axis]:
    tensors = [value for value in plan.graph.inputs if isinstance(value, Tensor)]
    found: dict[str, list[tuple[Tensor, int, int, int]]] = {}
    ranges: dict[str, tuple[int, int, int]] = {}  # least, most, in steps of
    if signature is not None:
        for tensor, taken in zip(plan.graph.inputs, signature.inputs, strict=True):
            for dim, size in enumerate(taken.sizes or () if isinstance(tensor, Tensor) else ()):
                if size.symbol is not None and size.scale:
                    found.setdefault(size.symbol, []).append((tensor, dim, size.scale, size.offset))
                    least, most = -(-(size.min - size.offset) // size.scale), (size.max - size.offset) // size.scale
                    before = ranges.get(size.symbol, (0, most, 1))
                    ranges[size.symbol] = (max(least, before[0]), min(most, before[1]), 1)
    else:
        known = dimensions(plan)
        of_bound: dict[tuple[int, int], list[tuple[Tensor, int, int, int]]] = {}
        for tensor in tensors:
            for dim, each in enumerate(known[tensor]):
                bound = tensor.max_shape[dim]
                if each.status != STATIC and bound > 1:
                    of_bound.setdefault((bound, each.multiple), []).append((tensor, dim, 1, 0))
        for (bound, multiple), places in of_bound.items():
            alike = [places] if _may_shrink(sampler, places, bound - multiple) else [[place] for place in places]
            for group in alike:
                tensor, dim, _, _ = group[0]
                letters = _IMAGE_LETTERS if tensor.rank == len(_IMAGE_LETTERS) else _LETTERS
                symbol = _unused(letters[min(dim, len(letters) - 1)], found)
                found[symbol], ranges[symbol] = group, (0, bound, multiple)
    axes = []
    for symbol, places in found.items():
        label = ", ".join(f"{tensor.name} dimension {dim}" for tensor, dim, _, _ in places)
        values = _sizes(*ranges[symbol])
        if len(values) > 1:
            axes.append(Axis(symbol, label, SIZE, values, tuple(places)))
    return axes


def _may_shrink(sampler: Sampler, places: Sequence[tuple[Tensor, int, int, int]], size: int) -> bool:
    """Whether dimensions of one bound are one size: the program takes all of them below it at once."""
    return not sampler.at([Axis("", "", SIZE, (size,), tuple(places))], [size]).refused


def _number_axes(plan: Plan) -> list[Axis]:
    graph = plan.graph
    inputs = [value for value in graph.inputs if isinstance(value, SymInt) and value.kind is int]
    read: dict[Tensor, str] = {}
    starts = {node.cache_start for node in graph.nodes}
    for index in graph.data_nodes:
        node = graph.nodes[index]
        if node.host or node.control or node.traits.role is Role.DRAW or not isinstance(node.args[0], Tensor):
            continue
        read.setdefault(node.args[0], "start" if starts.intersection(node.written) else "value")
    written = {node.args[place] for node in graph.nodes for place in node.mutates}
    lengths = [max(value.max_shape, default=0) for value in (written or graph.given) if isinstance(value, Tensor)]
    values = _sizes(0, max(lengths, default=2) - 1, 1, first=0)
    taken: set[str] = set()
    axes = []
    for value in inputs:
        name = value.name if value.name.isidentifier() else "start" if value in starts else "value"
        taken.add(name := _unused(name, taken))
        axes.append(Axis(name, f"{value.name}, a number", SCALAR, values, value=value))
    for tensor, name in read.items():
        taken.add(name := _unused(name, taken))
        axes.append(Axis(name, f"what {tensor.name} holds", DATA, values, value=tensor))
    return axes if len(values) > 1 else []


def _unused(name: str, taken: Any) -> str:
    return next(each for each in (name, *(f"{name}{count}" for count in range(2, 1000))) if each not in taken)


def _sizes(least: int, most: int, multiple: int, first: int = 1) -> tuple[int, ...]:
    """Sizes to plan at: 1, 2, 3, powers of two and the bound, as far as steps from the bound allow.

    >>> _sizes(0, 12, 1), _sizes(1, 64, 16)
    ((1, 2, 3, 4, 8, 12), (16, 32, 64))
    """
    wanted = {max(least, first), most, 1, 2, 3, *(1 << power for power in range(32))}
    if multiple > 1:
        wanted |= {each + (most - each) % multiple for each in wanted}
    legal = (size for size in wanted if max(least, first) <= size <= most and (most - size) % multiple == 0)
    return tuple(sorted(legal))


# Which values of an axis to keep


def _alone(axis: Axis, axes: Sequence[Axis], size: int, sampler: Sampler) -> Sample:
    """The plan where one axis moves and the others stay."""
    return sampler.at(axes, [size if each is axis or each.symbol == axis.symbol else each.rest for each in axes])


def _legal(axis: Axis, axes: Sequence[Axis], sampler: Sampler) -> Axis | None:
    """The axis without sizes that the program refuses where nothing else moves."""
    lowest = [each.values[0] for each in axes]

    def refused(size: int) -> bool:
        others = [size if each is axis else low for each, low in zip(axes, lowest, strict=True)]
        return bool(_alone(axis, axes, size, sampler).refused and sampler.at(axes, others).refused)

    values = tuple(size for size in axis.values if not refused(size))
    return replace(axis, values=values) if len(values) > 1 else None


def _moves(axis: Axis, axes: Sequence[Axis], sampler: Sampler) -> bool:
    """Whether something follows the axis; a number may only be an offset that no shape and no cost depends on."""
    found = [_alone(axis, axes, size, sampler) for size in axis.values]
    return axis.kind == SIZE or len({each.nodes for each in found if not each.refused}) > 1


def _changes(axis: Axis, axes: Sequence[Axis], sampler: Sampler) -> set[int]:
    """Both sides of the sizes at which some node takes other kernels, by bisection between the sampled ones."""

    def kernels(size: int) -> Any:
        found = _alone(axis, axes, size, sampler)
        return (found.refused and "refused") or tuple(tuple(label for label, _ in node.steps) for node in found.nodes)

    step = math.gcd(*(axis.values[-1] - size for size in axis.values)) or 1
    found: set[int] = set()
    seen = {size: kernels(size) for size in axis.values}
    between = [pair for pair in pairwise(axis.values) if seen[pair[0]] != seen[pair[1]]]
    for low, high in between[:_MAX_CHANGES]:
        before = seen[low]
        while high - low > step:
            middle = low + (high - low) // step // 2 * step
            low, high = (middle, high) if kernels(middle) == before else (low, middle)
        found |= {low, high}
    return found


def _thinned(axis: Axis, changes: set[int], most: int) -> Axis:
    """At most so many sizes: both ends and what changes kernels first, then the others, evenly left out."""
    values = sorted({*axis.values, *changes})
    if len(values) > most:
        kept = [values[0], values[-1], *sorted(changes - {values[0], values[-1]})][:most]
        others = [size for size in values if size not in kept]
        room = most - len(kept)
        kept += [others[place * len(others) // room] for place in range(room)] if room > 0 else []
        values = sorted(set(kept))
    return replace(axis, values=tuple(values))


def _dense(axes: Sequence[Axis]) -> Iterator[list[int]]:
    for axis in axes:
        step = math.gcd(*(axis.values[-1] - size for size in axis.values)) or 1
        least, most = axis.values[0], axis.values[-1]
        for size in range(max(least, most - (_DENSE - 1) * step), most, step):
            yield [size if each is axis else each.rest for each in axes]


__all__ = ["DATA", "SCALAR", "SIZE", "Axis", "Behaviour", "Sample", "Sampler", "Samples", "samples"]
