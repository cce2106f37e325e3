"""Which tensors share memory: views alias their source, and storages that are never alive together share a block."""

from __future__ import annotations

from dataclasses import dataclass

from liveshape.dtypes import storage_type
from liveshape.graph import Graph, Storage, Tensor, Value


@dataclass(frozen=True)
class MemoryPlan:
    """Block sizes in bytes; `Storage.block` points into it. Totals say what sharing saved."""

    blocks: tuple[int, ...]
    activation_bytes: int
    unshared_bytes: int
    persistent_bytes: int


def alias_views(graph: Graph) -> int:
    """Let every view share its source's storage where that cannot be seen; returns how many do.

    A view is a copy by definition, so it may alias only if neither side is ever written again: both have one writer
    (a constant has none) and nothing mutates them in place.
    """
    count = 0
    half = graph.limits.half
    given = {value for value in graph.inputs if isinstance(value, Value)}
    for node in graph.nodes:
        if not node.alias:
            continue
        source, target = node.args[0], node.args[-1]
        if not isinstance(source, Tensor) or not isinstance(target, Tensor):
            continue
        same = storage_type(source.dtype, half) == storage_type(target.dtype, half)
        settled = len(source.writers) <= 1 and len(target.writers) == 1 and target not in given
        # A constant that another step of this call may overwrite is a cache: its views are snapshots.
        if same and settled and not source.mutable and not target.mutable and not target.storage.persistent:
            source.storage.nbytes = max(source.storage.nbytes, target.storage.nbytes)
            target.storage = source.storage
            count += 1
    return count


def plan_memory(graph: Graph) -> MemoryPlan:
    """Give every storage a block. Call after the planner has built, so that scratch is known."""
    intervals = _lifetimes(graph)
    fixed = [storage for storage in intervals if storage.persistent]
    shared = [storage for storage in intervals if not storage.persistent]
    best: tuple[list[int], dict[Storage, int]] | None = None
    for order in (_by_size, _by_start):
        assignment = _assign(sorted(shared, key=lambda storage: order(storage, intervals[storage])), intervals)
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
    for index in graph.controls:
        target = graph.nodes[index].args[-2]
        if target > index:
            continue
        for storage in first:
            if first[storage] <= index and last[storage] >= target:
                first[storage] = min(first[storage], target)
                last[storage] = max(last[storage], index)


def _by_size(storage: Storage, interval: tuple[int, int]) -> tuple[int, int]:
    return -storage.nbytes, interval[0]


def _by_start(storage: Storage, interval: tuple[int, int]) -> tuple[int, int]:
    return interval[0], -storage.nbytes


def _assign(storages: list[Storage], intervals: dict[Storage, tuple[int, int]]) -> tuple[list[int], dict[Storage, int]]:
    """First come, first served into the block that wastes least; lifetimes in one block never touch."""
    sizes: list[int] = []
    tenants: list[list[tuple[int, int]]] = []
    blocks: dict[Storage, int] = {}
    for storage in storages:
        start, stop = intervals[storage]
        choice, cost = -1, (storage.nbytes, 0)
        for block, size in enumerate(sizes):
            price = (max(0, storage.nbytes - size), abs(size - storage.nbytes))
            if price < cost and all(stop < begin or start > finish for begin, finish in tenants[block]):
                choice, cost = block, price
        if choice < 0:
            choice = len(sizes)
            sizes.append(0)
            tenants.append([])
        sizes[choice] = max(sizes[choice], storage.nbytes)
        tenants[choice].append((start, stop))
        blocks[storage] = choice
    return sizes, blocks
