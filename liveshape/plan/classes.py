"""Which nodes plan alike: the same operator, constants, dtypes and bounds, memory shared in the same pattern.

Operators are pure, so such nodes have equal plans whenever their live inputs are equal; one of them is planned and the
others follow. Whether live shapes are equal is compared when they change (`plan_state.py`), not assumed here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from liveshape.graph import Graph, Node, SymInt, Tensor, Value
from liveshape.graph.live import LiveTensor, identity
from liveshape.plan.plan import NodeClass


def classify(
    graph: Graph,
    tensors: Sequence[Sequence[LiveTensor]],
    prepacked: Collection[Tensor],
    resume: Sequence[int],
    together: bool,
) -> tuple[NodeClass, ...]:
    """The classes of a graph; `tensors` are those of each node, with their kind and storage known.

    Without `together` every node is alone.
    """
    found: dict[Any, list[int]] = {}
    for node, region in zip(graph.nodes, graph.regions(resume), strict=True):
        alone = not together or not _may_follow(graph, node)
        key = node.index if alone else _signature(node, region, tensors[node.index], prepacked)
        found.setdefault(key, []).append(node.index)
    return tuple(NodeClass(family, tuple(members)) for family, members in enumerate(found.values()))


def _may_follow(graph: Graph, node: Node) -> bool:
    """Whether a node may share another's plan: it sets shapes alone, each of them once, before anybody reads it."""
    if node.reads_data or node.control or not all(isinstance(value, Tensor) for value in node.written):
        return False
    caches = _caches(node)
    for value in node.written:
        if value in caches:
            continue
        if graph.writers[value] != (node.index,) or any(reader <= node.index for reader in graph.consumers[value]):
            return False
    # A shape or a number that is set twice, or after it is read, is another one at another node.
    return all(
        len(setting := _setting(graph, value)) <= 1 and all(each < node.index for each in setting)
        for value in node.inputs
    )


def _caches(node: Node) -> set[Any]:
    """What a node writes or reads as rows of a cache, whose own shape it leaves as it is."""
    return {node.args[position] for position in node.cache_axes}


def _setting(graph: Graph, value: Value) -> list[int]:
    """The nodes that may set the shape or the number of a value."""
    return [index for index in graph.writers[value] if value not in _caches(graph.nodes[index])]


def _signature(
    node: Node, region: int, tensors: Sequence[LiveTensor], prepacked: Collection[Tensor]
) -> tuple[Any, ...]:
    """What the nodes of one class have in common."""
    seen: dict[Any, int] = {}
    pattern = [(seen.setdefault(tensor, len(seen)), seen.setdefault(tensor.storage, len(seen))) for tensor in tensors]
    bounds = tuple(
        (tensor.kind, tensor.max_shape, tensor.constant is None, tensor.tensor in prepacked) for tensor in tensors
    )
    return node.run, region, tuple(_fixed(argument) for argument in node.args), tuple(pattern), bounds


def _fixed(argument: Any) -> Any:
    """What an argument is apart from live shapes: scalars are themselves, tensors are told by their bounds."""
    if isinstance(argument, tuple):
        return tuple(_fixed(item) for item in argument)
    if isinstance(argument, SymInt):
        return argument
    return type(argument) if isinstance(argument, Value) else identity(argument)
