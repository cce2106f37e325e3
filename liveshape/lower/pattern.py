"""A row of the table of fusions, and the conditions that its patterns share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from liveshape.graph import Graph, Limits, Node, Shape, Tensor
from liveshape.graph.constants import Interleaved
from liveshape.graph.elements import padded, prod, storage_bytes
from liveshape.graph.sources import united
from liveshape.lower.def_use import DefUse
from liveshape.lower.rewriting import rewritten, without_orphans
from liveshape.ops import OPS


@dataclass(frozen=True)
class Replacement:
    """A node of `operator` at the place of one of `nodes`, which all go; `made` are tensors that it brings along.

    What `absorbed` nodes do it does, too: they go where nothing else reads their results.
    """

    place: Node
    operator: str
    nodes: tuple[Node, ...]
    args: tuple[Any, ...]
    made: tuple[Tensor, ...] = ()
    absorbed: tuple[Node, ...] = ()

    def node(self) -> Node:
        """The node that takes the place."""
        label = " + ".join(dict.fromkeys((self.nodes[0].label, self.nodes[-1].label)))
        sources = united(source for node in (*self.nodes, *self.absorbed) for source in node.sources)
        bound: Node = OPS[self.operator].bind(self.place.index, label, self.args, sources)
        return bound


def with_replacements(graph: Graph, found: Sequence[Replacement]) -> Graph:
    """A graph with other nodes in the places of some."""
    nodes, gone = {each.place: each.node() for each in found}, {node for each in found for node in each.nodes}
    rows = [(node.index, nodes.get(node, node)) for node in graph.nodes if node in nodes or node not in gone]
    changed = rewritten(graph, rows, [tensor for each in found for tensor in each.made]) if found else graph
    return without_orphans(changed, gone) if any(each.absorbed for each in found) else changed


@dataclass(frozen=True)
class Fusion:
    """A row of the table. `match` gets the def-use chains and a node of `anchors`; nothing where a condition fails.

    One that `reorders` adds or multiplies the same numbers in another order, so that last bits of a result may differ:
    a factor is moved into a weight, or behind a sum. What others give is bit-equal, but for what a driver contracts.
    """

    pattern: str
    anchors: frozenset[str]
    match: Callable[[DefUse, Node, Limits], Sequence[Replacement]]
    reorders: bool = False


def fit(tensors: Sequence[Tensor], limits: Limits) -> bool:
    """Whether a kernel may bind these tensors, each in one binding: fused kernels have no segments."""
    sizes = [padded(storage_bytes(tensor.dtype, prod(tensor.max_shape), limits.half)) for tensor in tensors]
    return len(sizes) <= limits.max_bindings and max(sizes) <= min(limits.max_binding_bytes, limits.max_buffer_bytes)


def exact(*tensors: Tensor) -> bool:
    """Whether an intermediate in a register is bit-equal to one that went through memory.

    Not so for halves: NVIDIA's compiler skips the rounding in between, which is closer to the truth and not the same.
    """
    return all(tensor.dtype == "float32" for tensor in tensors)


def merged_constant(tensors: Sequence[Tensor], shape: Shape, axis: int, interleaved: bool) -> Tensor:
    """One constant of several: single slices of an axis interleaved, or concatenated along it."""
    data = [tensor.constant for tensor in tensors if tensor.constant is not None]
    runs = [
        len(each) // prod(tensor.max_shape[: axis + interleaved]) for each, tensor in zip(data, tensors, strict=True)
    ]
    name = " + ".join(tensor.name for tensor in tensors)
    return Tensor(name, tensors[0].dtype, shape, constant=Interleaved(tuple(data), tuple(runs)))
