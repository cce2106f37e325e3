"""What of a graph outlives a call, and which of it is a KV cache: told by the operators that access it.

No size is looked at: a state that happens to be as long as the context need not be a cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from liveshape.graph.graph import Graph, Node, SymInt, Tensor
from liveshape.graph.traits import Role


@dataclass(frozen=True)
class State:
    """A tensor that keeps its contents from call to call.

    With an `axis` it is a KV cache: every call writes new rows along it, from one of `starts` (live scalars or ints),
    and reads no row behind these: what lies there does not matter. Without one it is an opaque state.
    """

    tensor: Tensor
    axis: int | None = None
    starts: tuple[Any, ...] = ()


def states_of(graph: Graph) -> tuple[State, ...]:
    """Every tensor that is read before a call wrote it, or that is kept, and that some node changes.

    Example: `[state.tensor.name for state in states_of(graph) if state.axis is None]`.
    """
    kept = [
        tensor
        for tensor in graph.tensors
        if tensor in graph.persistent and graph.writers[tensor] and tensor not in graph.given
    ]
    return tuple(_state(graph, tensor) for tensor in kept)


def _state(graph: Graph, tensor: Tensor) -> State:
    nodes = [graph.nodes[index] for index in sorted({*graph.consumers[tensor], *graph.writers[tensor]})]
    axes = {axis for node in nodes for axis in _axes(node, tensor)}
    if None in axes:
        axes = {axis for node in nodes for axis in _rows_so_far(graph, node, nodes[0]) or _axes(node, tensor)}
    # A call must write its rows before it reads them, and do so each time; the caller sees more than rows.
    opaque = tensor in graph.outputs or tensor not in nodes[0].written or bool(graph.controls)
    (axis,) = axes if len(axes) == 1 and not opaque else (None,)
    starts = tuple(dict.fromkeys(node.cache_start for node in nodes if node.cache_start is not None))
    # Slots of a table are rows of many sequences, at no positions.
    if axis is None or any(isinstance(start, Tensor) for start in starts):
        return State(tensor)
    return State(tensor, axis, starts)


def _axes(node: Node, tensor: Tensor) -> set[int | None]:
    """The axis that a node declares for each place that it takes a tensor at; None where it declares none."""
    places = (
        place
        for place, argument in enumerate(node.args)
        if argument is tensor or (isinstance(argument, tuple) and tensor in argument)
    )
    return {node.cache_axes.get(place) for place in places}


def _rows_so_far(graph: Graph, node: Node, writer: Node) -> set[int | None]:
    """The axis of a slice that ends with the new rows of the node that wrote them, which says so in live scalars."""
    start = writer.cache_start
    if node.traits.role is not Role.SLICE or start is None:
        return set()
    axis = node.named["dim"]
    add = _producer(graph, node.named["end"])
    if add is None or add.traits.role is not Role.SUM or start not in (terms := (add.named["a"], add.named["b"])):
        return set()
    new = [value for value in writer.inputs if value not in writer.written]
    for count in terms:
        size = _producer(graph, count)
        # As many as a tensor has that is written: its rows lie along the same axis.
        if size is None or size.traits.role is not Role.SIZE:
            continue
        if size.named["x"] in new and size.named["dim"] == axis:
            return {axis}
    return set()


def _producer(graph: Graph, value: Any) -> Node | None:
    """The one node that sets a live scalar."""
    writers = graph.writers.get(value, ()) if isinstance(value, SymInt) else ()
    return graph.nodes[next(iter(writers))] if len(writers) == 1 else None
