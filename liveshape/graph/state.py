"""What of a graph outlives a call, and which of it is rows at positions: told by the operators that touch it.

No size is looked at: a state that happens to be as long as the context need not be a cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from liveshape.graph.elements import prod, storage_bytes
from liveshape.graph.graph import Graph, Node, Storage, Tensor


@dataclass(frozen=True)
class State:
    """A tensor that keeps its contents from call to call.

    With an `axis`, every call writes new rows along it, from a row that is one of `begins` (a live scalar or a number),
    and reads no row behind these: what lies there does not matter. Without one nothing is known of its parts.
    """

    tensor: Tensor
    axis: int | None = None
    begins: tuple[Any, ...] = ()


def states_of(graph: Graph) -> tuple[State, ...]:
    """Every tensor that is read before a call wrote it, or that is kept, and that some node changes.

    Example: `[state.tensor.name for state in states_of(graph) if state.axis is None]`.
    """
    given = {value.storage for value in graph.inputs if isinstance(value, Tensor)}
    touched: dict[Storage, dict[Tensor, list[Node]]] = {}
    written: set[Storage] = set()
    kept: dict[Storage, None] = {}
    for node in graph.nodes:
        for value in node.inputs:
            if isinstance(value, Tensor) and (value.storage not in written or value.storage.persistent):
                kept[value.storage] = None
        for value in node.written:
            if isinstance(value, Tensor):
                written.add(value.storage)
                if value.storage.persistent:
                    kept[value.storage] = None
        for value in dict.fromkeys((*node.inputs, *node.written)):
            if isinstance(value, Tensor):
                touched.setdefault(value.storage, {}).setdefault(value, []).append(node)
    return tuple(_state(graph, touched[storage]) for storage in kept if storage in written and storage not in given)


def _state(graph: Graph, touched: dict[Tensor, list[Node]]) -> State:
    """The state that is these tensors of one storage, as the one of them that has its beginning, or most of it."""
    tensor = max(touched, key=lambda each: (each.constant is not None, storage_bytes(each.dtype, prod(each.max_shape))))
    nodes = touched[tensor]
    axes = {axis for node in nodes for axis in _axes(node, tensor)}
    # A call must write its rows before it reads them, and do so each time; views and the caller see more than rows.
    whole = len(touched) > 1 or tensor in graph.outputs or tensor not in nodes[0].written or graph.controls
    (axis,) = axes if len(axes) == 1 and not whole else (None,)
    if axis is None:
        return State(tensor)
    return State(
        tensor, axis, tuple(dict.fromkeys(node.args[node.begins] for node in nodes if node.begins is not None))
    )


def _axes(node: Node, tensor: Tensor) -> set[int | None]:
    """The axis that a node declares for each place that it takes a tensor at; None where it declares none."""
    declared = dict(node.along)
    places = (
        place
        for place, argument in enumerate(node.args)
        if argument is tensor or (isinstance(argument, tuple) and tensor in argument)
    )
    return {declared.get(place) for place in places}
