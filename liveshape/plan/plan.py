"""How a graph runs, as a value: where every tensor lies, which nodes plan alike, and which kernels they may ask for.

A plan needs no device and is never written to. Several executors may run one plan and share its weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

from liveshape.graph import Graph, Limits, SymInt, Tensor
from liveshape.graph.elements import padded, prod, storage_bytes
from liveshape.graph.limits import binding_parts
from liveshape.kernels import Variant
from liveshape.plan.memory import MemoryPlan, Storage

_SPARE_PARAMS = 16  # params of steps

Dispatched = tuple[Variant, tuple[int, ...]]  # a kernel, and the places of its tensors among those of the node


@dataclass(frozen=True)
class Choices:
    """What may be chosen about a plan; results are the same under every choice.

    Without `aliasing` views are copies, without `classes` every node plans alone, without `tracing` operators plan
    whenever something changed, and without `warm` kernels of smaller shapes compile at their first use.
    `resident` are the outputs that stay on the device as inputs of the next call. `resume` are nodes from which on a
    call may be run again. `ready` are the outputs that every call brings to the host, all of them if it is None; memory
    for others comes when they are asked for, and those of `transfers` calls may be on their way at once. `settings` are
    values of live scalars that are no inputs, to look for kernels at.
    """

    aliasing: bool = True
    classes: bool = True
    tracing: bool = True
    warm: bool = True
    resident: tuple[int, ...] = ()
    resume: tuple[int, ...] = ()
    ready: tuple[int, ...] | None = None
    transfers: int = 2
    settings: tuple[tuple[tuple[SymInt, Any], ...], ...] = ()


@dataclass(frozen=True)
class NodeClass:
    """Nodes that have one plan; the first in program order leads. Classes of a family differ in live shapes."""

    family: int
    members: tuple[int, ...]


@dataclass(frozen=True)
class Route:
    """The kernels that the nodes of a family run, for one of the choices that live values may make."""

    members: tuple[int, ...]
    dispatched: tuple[Dispatched, ...]


class PrepackStep(NamedTuple):
    """A kernel that runs once, at load: it fills prepacked memory of a node from constants."""

    node: int
    variant: Variant
    tensors: tuple[Tensor, ...]
    params: bytes
    grid: tuple[int, int, int]


@dataclass(frozen=True)
class Plan:
    """What `compile` gives; see each field."""

    graph: Graph
    limits: Limits
    choices: Choices
    memory: MemoryPlan
    scratch: tuple[tuple[Tensor, ...], ...]  # of each node
    prepacked: frozenset[Tensor]  # scratch that is filled once, from constants
    classes: tuple[NodeClass, ...]
    index_limits: Mapping[Tensor, int]  # inputs whose elements are rows of a table, and how many it has
    prepack: tuple[PrepackStep, ...] = ()
    routes: tuple[Route, ...] = ()  # found by planning at many live shapes, to be compiled at load
    untried: int = 0  # combinations of live sizes that the budget left for their first use
    param_bytes: int = 0  # that the params of every node take, had each a place of its own

    def bindings(self, tensor: Tensor) -> int:
        """How many bindings a tensor takes."""
        storage = self.memory.storages.get(tensor)
        return 1 if storage is None else binding_parts(storage.nbytes, self.memory.blocks[storage.block], self.limits)

    @property
    def state_bytes(self) -> int:
        """Memory that outlives a call and that some node writes; a view only shares the memory of its source."""
        storages = self.memory.storages
        found: set[Storage] = set()
        for node in self.graph.nodes:
            sources = {storages[value] for value in node.inputs if isinstance(value, Tensor)} if node.alias else set()
            found |= {storages[value] for value in node.written if isinstance(value, Tensor)} - sources
        return sum(storage.nbytes for storage in found if storage.persistent)

    @property
    def uniform_bytes(self) -> int:
        """The buffer for params, with room for steps that are not foreseen where data decides on sizes."""
        spare = _SPARE_PARAMS if self.graph.data_nodes else 0
        return max(self.param_bytes + spare * self.limits.uniform_alignment, self.limits.uniform_alignment)

    @property
    def staging_bytes(self) -> int:
        """One of the buffers that results are read through, and what the host computes with."""
        outputs = self.graph.outputs
        ready = outputs if self.choices.ready is None else [outputs[place] for place in self.choices.ready]
        on_host = [dict.fromkeys(node.inputs) for node in self.graph.nodes if node.host]
        return max(16, *(sum(map(self._read_bytes, values)) for values in (ready, *on_host)))

    def _read_bytes(self, value: Any) -> int:
        if not isinstance(value, Tensor):
            return 0
        return padded(storage_bytes(value.dtype, prod(value.max_shape), self.limits.half))

    @property
    def kernels(self) -> Set[Variant]:
        """Every kernel that is compiled at load, in the order in which it needs them."""
        found = dict.fromkeys(step.variant for step in self.prepack)
        for route in self.routes:
            for variant, _ in route.dispatched:
                found |= dict.fromkeys((variant, *variant.siblings))
        return found.keys()
