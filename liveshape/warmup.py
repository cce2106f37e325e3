"""Which kernels smaller live shapes will ask for, found by planning at a few of them, so that all compile at load.

A file does not say which dimensions are dynamic. Dimensions of equal bound most likely are one symbol, so each bound
is shrunk in all inputs at once; a size that the program refuses ends its trial and costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from liveshape.errors import LiveshapeError
from liveshape.graph import Tensor
from liveshape.planning import Planner, Read, Step

# One row, the few rows that take a route of their own, and every remainder modulo four.
_TRIALS = (1, 2, 3, 4, 5, 6, 7, 8)


def small_routes(planner: Planner) -> Iterator[Step]:
    """Steps at small live shapes; afterwards every shape is back at its bound and every node is due."""
    inputs = [value for value in planner.graph.inputs if isinstance(value, Tensor) and not value.static]
    bounds = sorted({size for tensor in inputs for size in tensor.max_shape if size > 1})
    for bound in bounds:
        # The size below the bound meets the routes of large shapes with an odd remainder.
        for trial in sorted({*(size for size in _TRIALS if size < bound), bound - 1}):
            yield from _trial(planner, inputs, bound, trial)
    _restore(planner, inputs)


def _trial(planner: Planner, inputs: list[Tensor], bound: int, size: int) -> Iterator[Step]:
    _restore(planner, inputs)
    for tensor in inputs:
        tensor.shape = tuple(size if most == bound else most for most in tensor.max_shape)
    for node in planner.graph.nodes:
        try:
            planner.walk(node.index, node.index + 1, _no_data)
        except LiveshapeError:
            return
        yield from node.steps


def _restore(planner: Planner, inputs: list[Tensor]) -> None:
    for tensor in inputs:
        tensor.shape = tensor.max_shape
    planner.graph.invalidate()


def _no_data(node: object, request: Read) -> int:
    return 0
