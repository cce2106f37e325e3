"""Which tensors share memory: views alias their source, and storages that are never alive together share a block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from liveshape.graph import Graph, Storage, Tensor, Value
from liveshape.graph.elements import stored_alike


@dataclass(frozen=True)
class MemoryPlan:
    """Block sizes in bytes; `Storage.block` points into it. Totals say what sharing saved."""

    blocks: tuple[int, ...]
    activation_bytes: int
    unshared_bytes: int
    persistent_bytes: int


def alias_views(graph: Graph) -> int:
    """Let every view share its source's storage where that cannot be seen; returns how many do.

    A view is a copy by definition. It may share if nothing else ever writes it, and if nothing writes the shared
    storage from the view on: then both sides hold the same until the end of the call.
    """
    writes: dict[Storage, set[int]] = {}
    for tensor in graph.tensors:
        writes.setdefault(tensor.storage, set()).update(tensor.writers)
    given = {value for value in graph.inputs if isinstance(value, Value)}
    loops = _loops(graph)
    count = 0
    for node in graph.nodes:
        source, target = node.args[0], node.args[-1]
        if not (node.alias and isinstance(source, Tensor) and isinstance(target, Tensor)):
            continue
        # A target that is read first keeps something from before: a call, or a turn of a loop.
        fresh = target not in given and not target.storage.persistent and target.writers == (node.index,)
        fresh = fresh and all(consumer > node.index for consumer in target.consumers)
        if not fresh or not stored_alike(source.dtype, target.dtype, graph.limits.half):
            continue
        # Inside a loop a write before the view also comes after it.
        begin = min((start for start, stop in loops if start <= node.index <= stop), default=node.index)
        if any(index >= begin for index in writes.get(source.storage, ())):
            continue
        source.storage.nbytes = max(source.storage.nbytes, target.storage.nbytes)
        target.storage = source.storage
        count += 1
    return count


def share_constants(graph: Graph) -> None:
    """Let constants that are the same bytes of the file share memory, as a tied embedding and head do."""
    known: dict[tuple[str, int, int], Storage] = {}
    for tensor in graph.tensors:
        data = tensor.constant
        if isinstance(data, memoryview) and len(data) and not tensor.mutable:
            place = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
            tensor.storage = known.setdefault((tensor.dtype, place, len(data)), tensor.storage)


def bound_ids(graph: Graph) -> None:
    """Tell inputs whose elements pick rows of a constant table how many there are; views of an input are the input."""
    given = {value.storage: value for value in graph.inputs if isinstance(value, Tensor)}
    for node in graph.nodes:
        if node.picks is not None:
            ids, table = (node.args[place] for place in node.picks)
            value = given.get(ids.storage)
            if value is not None and table.constant is not None:
                rows = table.max_shape[0]
                value.below = rows if value.below is None else min(value.below, rows)


def plan_memory(graph: Graph, resident: Sequence[Tensor] = ()) -> MemoryPlan:
    """Give every storage a block. Call after the planner has built, so that scratch is known.

    `resident` are outputs that may feed the next call from where they lie, so they share no block with an input.
    """
    intervals = _lifetimes(graph)
    fixed = [storage for storage in intervals if storage.persistent]
    shared = [storage for storage in intervals if not storage.persistent]
    outputs = {tensor.storage for tensor in resident}
    best: tuple[list[int], dict[Storage, int]] | None = None
    for order, first in ((_by_size, False), (_by_start, False), (_in_order, True)):
        row = sorted(shared, key=lambda storage: order(storage, intervals[storage]))
        assignment = _assign(row, intervals, outputs, first)
        if best is None or sum(assignment[0]) < sum(best[0]):
            best = assignment
    sizes, blocks = best or ([], {})
    for storage, block in blocks.items():
        storage.block = block
    for storage in fixed:
        storage.block = len(sizes)
        sizes.append(storage.nbytes)
    persistent = sum(storage.nbytes for storage in fixed)
    return MemoryPlan(tuple(sizes), sum(sizes) - persistent, sum(storage.nbytes for storage in shared), persistent)


def _lifetimes(graph: Graph) -> dict[Storage, tuple[int, int]]:
    """First and last node at which each storage must keep its contents."""
    end = len(graph.nodes)
    first: dict[Storage, int] = {}
    last: dict[Storage, int] = {}

    def use(value: Value, index: int) -> None:
        if isinstance(value, Tensor):
            first.setdefault(value.storage, index)
            first[value.storage] = min(first[value.storage], index)
            last[value.storage] = max(last.get(value.storage, index), index)

    for value in graph.inputs:
        if isinstance(value, Value):
            use(value, -1)
    for node in graph.nodes:
        for value in (*node.inputs, *node.written, *node.scratch):
            use(value, node.index)
    for value in graph.outputs:
        if isinstance(value, Value):
            use(value, end)
    _keep_through_loops(graph, first, last)
    return {storage: (first[storage], last[storage]) for storage in first}


def _keep_through_loops(graph: Graph, first: dict[Storage, int], last: dict[Storage, int]) -> None:
    """A jump back makes everything that is alive in its loop alive in the whole of it."""
    for start, stop in _loops(graph):
        for storage in first:
            if first[storage] <= stop and last[storage] >= start:
                first[storage] = min(first[storage], start)
                last[storage] = max(last[storage], stop)


def _loops(graph: Graph) -> list[tuple[int, int]]:
    """First and last node of every loop, inner ones first."""
    jumps = ((int(graph.nodes[index].args[-2]), index) for index in graph.controls)
    return [(target, index) for target, index in jumps if target <= index]


def _by_size(storage: Storage, interval: tuple[int, int]) -> tuple[int, int]:
    return -storage.nbytes, interval[0]


def _by_start(storage: Storage, interval: tuple[int, int]) -> tuple[int, int]:
    return interval[0], -storage.nbytes


def _in_order(storage: Storage, interval: tuple[int, int]) -> tuple[int, int]:
    return interval[0], 0


def _assign(
    storages: list[Storage], intervals: dict[Storage, tuple[int, int]], outputs: set[Storage], first: bool
) -> tuple[list[int], dict[Storage, int]]:
    """First come, first served into the block that wastes least, or into the `first` that is free, as files plan.

    Lifetimes in one block never touch.
    """
    sizes: list[int] = []
    tenants: list[list[tuple[int, int]]] = []
    blocks: dict[Storage, int] = {}
    for storage in storages:
        # An output may feed the next call, and must outlive the moment at which the inputs of that are written.
        spans = [intervals[storage], (-1, -1)] if storage in outputs else [intervals[storage]]
        choice, cost = -1, (storage.nbytes, 0)
        for block, size in enumerate(sizes):
            price = (max(0, storage.nbytes - size), abs(size - storage.nbytes))
            taken = any(start <= finish and stop >= begin for start, stop in spans for begin, finish in tenants[block])
            if not taken and (first or price < cost):
                choice, cost = block, price
                if first:
                    break
        if choice < 0:
            choice = len(sizes)
            sizes.append(0)
            tenants.append([])
        sizes[choice] = max(sizes[choice], storage.nbytes)
        tenants[choice] += spans
        blocks[storage] = choice
    return sizes, blocks
