"""Which kernels smaller live shapes will ask for, found by planning at a few of them, so that load makes all pipelines.

A file does not say which dimensions are dynamic. Dimensions of equal bound most likely are one symbol, so each bound
is shrunk in all inputs at once, and all bounds together; a bound of several dimensions is shrunk in each of them as
well, since a batch may have the size of something else. A size that the program refuses ends its trial and costs
nothing. What a kernel says that live values choose (`// live VEC: 1, 2, 4`) is compiled for each choice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import permutations, product

from liveshape.errors import LiveshapeError
from liveshape.graph import Shape, SymInt, Tensor
from liveshape.kernels.requests import Read
from liveshape.plan.plan_state import PlanState

# None, the few rows that take routes of their own, every remainder modulo four, then each magnitude, even and odd.
_FEW = tuple(range(9))
_TRIALS = (*_FEW, *(size + odd for power in range(4, 21) for size in [1 << power] for odd in (0, 1)))
_MAX_TRIALS = 1024  # each plans a node at most once, so that warming is linear in nodes
_MAX_SKIPPED = 1 << 16  # that are counted: they are as many as pairs of sizes of the file

Place = tuple[int, int]  # a dimension of inputs: which one, and its bound
Shrunk = tuple[tuple[Collection[Place], int], ...]  # dimensions, and what they shrink to


def explore(live: PlanState, many: bool = True) -> int:
    """Plan at many live shapes, or at the bound alone; returns how many combinations the budget left out.

    Afterwards every shape is back at its bound, every node is due, and the groups know the routes they met.
    """
    graph = live.plan.graph
    inputs = [value for value in graph.inputs if isinstance(value, Tensor) and not value.static]
    scalars = [value for value in graph.inputs if isinstance(value, SymInt)]
    places = _places(inputs)
    bounds = _bounds(places)
    depends_on_scalars = bool(scalars) or any(not graph.nodes[index].host for index in graph.data_nodes)
    ends = _state_lengths(live) if depends_on_scalars else set()
    _plan_at(live, 0)  # the bound, and the scalars of the file
    for setting in live.plan.choices.settings:
        for symint, value in setting:
            live.set(symint, value)
        _plan_at(live, 0)
    tried = skipped = 0
    budget = _MAX_TRIALS if many else 0
    for size, shrunk in _trials(bounds, places):
        if skipped >= _MAX_SKIPPED:
            break
        # Live scalars are positions and lengths more often than not: both ends of what the size and a cache allow.
        values = {0, *(end - size for end in ends if end > size)}
        if scalars:
            values |= {size - 1, size}
        if depends_on_scalars:
            values |= {1} if shrunk else {1, 2, *bounds}
        # Several scalars may be the ends of a range: all alike, or each further than the one before.
        for number, step in product(sorted(values), (0, size) if len(scalars) > 1 else (0,)):
            if tried == budget:
                skipped += 1
                continue
            tried += 1
            for tensor, shape in zip(inputs, _shapes(inputs, shrunk), strict=True):
                live.set(tensor, shape)
            for place, value in enumerate(scalars):
                live.set(value, number + place * step)
            _plan_at(live, number)
    live.restore()
    return skipped


def input_trials(inputs: Sequence[Tensor]) -> Iterator[list[Shape]]:
    """Shapes of inputs to plan at: their bounds, just below, and then what routes are looked for at.

    >>> next(input_trials([Tensor("x", "float32", (3, 4))]))
    [(3, 4)]
    """
    places = _places(inputs)
    yield [tensor.max_shape for tensor in inputs]
    yield from ([tuple(max(size - less, 1) for size in tensor.max_shape) for tensor in inputs] for less in range(1, 8))
    yield from (_shapes(inputs, shrunk) for _, shrunk in _trials(_bounds(places), places))


def _places(inputs: Sequence[Tensor]) -> set[Place]:
    return {(axis, most) for tensor in inputs for axis, most in enumerate(tensor.max_shape) if most > 1}


def _bounds(places: Collection[Place]) -> list[int]:
    return sorted({most for _, most in places})


def _shapes(inputs: Sequence[Tensor], shrunk: Shrunk) -> list[Shape]:
    """The bounds of inputs, with some dimensions shrunk."""
    sizes = {place: least for group, least in shrunk for place in group}
    return [
        tuple(min(sizes.get(place, place[1]), place[1]) for place in enumerate(tensor.max_shape)) for tensor in inputs
    ]


def _trials(bounds: list[int], places: set[Place]) -> Iterator[tuple[int, Shrunk]]:
    """A size, and what it shrinks to itself: nothing, since programs of one row have positions; each bound; all; pairs;
    and single dimensions of a bound that others have, too."""
    of_bound: dict[int, list[Place]] = {bound: [] for bound in bounds}
    for place in sorted(places):
        of_bound[place[1]].append(place)
    yield 1, ()
    for bound in bounds:
        for size in _below(bound):
            yield size, ((of_bound[bound], size),)
    for size in (size for size in _TRIALS if len(bounds) > 1 and size < bounds[-1]):
        yield size, ((places, size),)
    for one, other in permutations(bounds, 2):
        for size in (size for size in _FEW if size < one):
            yield size, ((of_bound[other], 1), (of_bound[one], size))
    for bound in bounds:
        for place in of_bound[bound] if len(of_bound[bound]) > 1 else ():
            for size in _below(bound):
                yield size, (((place,), size),)


def _below(bound: int) -> list[int]:
    """The size just below the bound meets the routes of large shapes with an odd remainder."""
    return sorted({*(size for size in _TRIALS if size < bound), bound - 1})


def _state_lengths(live: PlanState) -> set[int]:
    """The longest dimension of each tensor that is written in place: how far a position in it may go."""
    written = {node.args[position] for node in live.plan.graph.nodes for position in node.mutates}
    return {max(tensor.max_shape, default=0) for tensor in written if isinstance(tensor, Tensor)}


def _plan_at(live: PlanState, number: int) -> None:
    """Plan every node that is due, as far as the program accepts the sizes."""
    live.begin()
    try:
        live.walk(0, len(live.nodes), lambda node, request: number if isinstance(request, Read) else None)
    except LiveshapeError:
        return
