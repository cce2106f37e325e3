"""Every operator at its bound, which the build asks for; where no live size has that bound, at sizes that are legal.

A file bounds each value by itself: rows that are padded to a multiple of eight are up to 39 where the input has up to
32, and 39 rows make no chunks of eight. Memory is planned for the bound all the same. Such an operator is asked at what
it reads where the inputs of the program have their bounds, or less where these are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from liveshape.errors import LiveshapeError, UnsupportedError
from liveshape.graph import Node, Shape, Tensor
from liveshape.kernels.requests import Read, Request
from liveshape.plan.groups import LiveNode
from liveshape.plan.plan_state import PlanState
from liveshape.plan.routes import input_trials

_MAX_TRIALS = 64  # sizes of the inputs that are tried for operators that refuse their bound

Legal = Mapping[int, tuple[tuple[Shape, ...], tuple[Any, ...]]]  # of nodes: the shapes and scalars that they read
Ask = Callable[[LiveNode], Any]


def no_data_yet(node: Node, request: Request) -> Any:
    """At build there is no data; zero is a position every program accepts, and the first call plans again."""
    return 0 if isinstance(request, Read) else None


def ask_all(live: PlanState, ask: Ask, legal: Legal | None = None) -> dict[int, LiveshapeError]:
    """Ask every node at its bound, or at the sizes that `legal` has for it; what they refused, by node.

    Example: `ask_all(live, lambda node: live.steps(node, no_data_yet))`.
    """
    refused: dict[int, LiveshapeError] = {}
    for node in live.nodes:
        sizes = None if legal is None else legal.get(node.index)
        if sizes is not None:
            _set(node, *sizes)
        try:
            ask(node)
        except LiveshapeError as error:
            refused[node.index] = error
        reset_outputs(node)
        if sizes is not None:
            _set(node, [tensor.max_shape for tensor in node.inputs], [each.symint.initial for each in node.scalars])
    return refused


def legal_sizes(live: PlanState, refused: Mapping[int, LiveshapeError], ask: Ask) -> Legal:
    """Sizes that nodes take which refused their bound: what they read in a call at the bounds of the inputs, or below.

    Example: `legal_sizes(live, ask_all(live, ask), ask)`.
    """
    # What has no kernel has none at any size.
    left = {index for index, error in refused.items() if not isinstance(error, UnsupportedError)}
    found: dict[int, tuple[tuple[Shape, ...], tuple[Any, ...]]] = {}
    inputs = [value for value in live.plan.graph.inputs if isinstance(value, Tensor) and not value.static]
    for shapes in islice(input_trials(inputs), _MAX_TRIALS) if left else ():
        live.restore()
        for tensor, shape in zip(inputs, shapes, strict=True):
            live.set(tensor, shape)
        for node in live.nodes:
            sizes = tuple(tensor.shape for tensor in node.inputs), tuple(each.value for each in node.scalars)
            try:
                if node.index in left:
                    ask(node)
                    left.discard(node.index)
                    found[node.index] = sizes
                else:
                    live.steps(node, no_data_yet)
            except LiveshapeError:
                reset_outputs(node)  # what follows is asked at the bound of these
        # One that reads live scalars may need data, which no size of the inputs makes up for.
        if all(live.nodes[index].node.live for index in left):
            break
    live.restore()
    return found


def reset_outputs(node: LiveNode) -> None:
    """What a node writes is at its bound again."""
    for tensor in node.outputs:
        tensor.shape = tensor.max_shape


def _set(node: LiveNode, shapes: Any, values: Any) -> None:
    for tensor, shape in zip(node.inputs, shapes, strict=True):
        tensor.shape = shape
    for scalar, value in zip(node.scalars, values, strict=True):
        scalar.value = value
