"""Which dimensions of inputs and outputs may be smaller than their bounds, found by planning one size below each.

A file does not say: it marks whole tensors as dynamic. Dimensions of equal bound most likely are one symbol, so they
shrink together; where the program refuses that, each by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from liveshape.errors import LiveshapeError
from liveshape.graph import Tensor
from liveshape.kernels.requests import Read
from liveshape.plan.live import Live
from liveshape.plan.plan import Plan

Place = tuple[Tensor, int]  # a dimension


def dynamic_dimensions(plan: Plan) -> dict[Tensor, tuple[int, ...]]:
    """The dimensions of each input and output that the program lets be smaller; none for those that it does not.

    Example: `dynamic_dimensions(compile(graph))[graph.inputs[0]] == (1,)`.
    """
    live, graph = Live(plan), plan.graph
    given = [value for value in graph.inputs if isinstance(value, Tensor) and not value.static]
    results = [value for value in graph.outputs if isinstance(value, Tensor)]
    places = [(tensor, axis) for tensor in given for axis, most in enumerate(tensor.max_shape) if most > 1]
    found: set[Place] = set()
    for bound in sorted({tensor.max_shape[axis] for tensor, axis in places}):
        alike = [(tensor, axis) for tensor, axis in places if tensor.max_shape[axis] == bound]
        for shrunk in (alike, *([place] for place in alike)):
            if not found.issuperset(shrunk) and _takes(live, given, shrunk):
                found |= {*shrunk, *_smaller(live, results)}
    return {tensor: tuple(sorted(axis for each, axis in found if each is tensor)) for tensor in (*given, *results)}


def _takes(live: Live, given: list[Tensor], shrunk: list[Place]) -> bool:
    """Whether the program plans with these dimensions one below their bounds, and all others at them."""
    live.restore()
    for tensor in given:
        live.set(tensor, tuple(size - ((tensor, axis) in shrunk) for axis, size in enumerate(tensor.max_shape)))
    live.begin()
    try:
        live.walk(0, len(live.nodes), lambda node, request: 0 if isinstance(request, Read) else None)
    except LiveshapeError:
        return False
    return True


def _smaller(live: Live, results: list[Tensor]) -> Iterator[Place]:
    for tensor in results:
        for axis, (size, most) in enumerate(zip(live.tensor(tensor).shape, tensor.max_shape, strict=True)):
            if size < most:
                yield tensor, axis
