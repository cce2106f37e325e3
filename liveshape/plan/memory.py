"""Memory planning by liveness: views alias their source, and storages of disjoint live ranges share a block."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from liveshape.formats.source import is_view
from liveshape.graph import Graph, Node, SymInt, Tensor, Value
from liveshape.graph.constants import view_identity
from liveshape.graph.elements import is_packed, padded, prod, storage_bytes, stored_alike

Roots = dict[Tensor, Tensor]  # a tensor -> the one whose memory it has


@dataclass(frozen=True)
class Storage:
    """Memory that one or several aliased tensors share: its size and its block."""

    number: int
    nbytes: int
    block: int
    persistent: bool


@dataclass(frozen=True)
class MemoryPlan:
    """Where every tensor lies; a tensor that nothing uses has no storage. Totals say what sharing saved."""

    storages: Mapping[Tensor, Storage]
    blocks: tuple[int, ...]  # bytes of each
    activation_bytes: int
    unshared_bytes: int
    persistent_bytes: int
    aliased: int  # views that cost nothing
    live_ranges: tuple[tuple[int, int], ...] = ()  # of each storage: -1 is before the first node


def share_constants(graph: Graph) -> Roots:
    """Constants that are the same bytes of the file have one memory, as a tied embedding and head do."""
    known: dict[tuple[str, int], Tensor] = {}
    roots: Roots = {}
    for tensor in graph.tensors:
        data = tensor.constant
        if is_view(data) and len(data) and not graph.writers[tensor]:
            # Bytes are bytes: the weight of a layer with int8 activations says int8, that of an embedding uint8.
            dtype = "uint8" if is_packed(tensor.dtype) else tensor.dtype
            roots[tensor] = known.setdefault((dtype, view_identity(data)), tensor)
    return roots


def alias_views(graph: Graph, roots: Roots, half: bool) -> Roots:
    """Let every view alias its source where that cannot be observed.

    A view is a copy by definition. It may alias if nothing else ever writes it, and if nothing writes the shared
    memory from the view on: then both sides hold the same until the end of the call.
    """
    roots = dict(roots)
    writes: dict[Tensor, set[int]] = {}
    for tensor in graph.tensors:
        writes.setdefault(roots.get(tensor, tensor), set()).update(graph.writers[tensor])
    for node in graph.nodes:
        source, target = node.args[0], node.args[-1]
        if not (node.alias and isinstance(source, Tensor) and isinstance(target, Tensor)):
            continue
        # A target that is read first keeps something from before: a call, or an iteration of a loop.
        fresh = target not in graph.given and target not in graph.persistent
        fresh = fresh and graph.writers[target] == (node.index,)
        fresh = fresh and all(consumer > node.index for consumer in graph.consumers[target])
        if not fresh or not stored_alike(source.dtype, target.dtype, half):
            continue
        # Inside a loop a write before the view also comes after it.
        begin = min((start for start, stop in graph.loops if start <= node.index <= stop), default=node.index)
        root = roots.get(source, source)
        if not any(index >= begin for index in writes[root]):
            roots[target] = root
    return roots


def plan_memory(
    graph: Graph,
    roots: Roots,
    scratch: Sequence[Sequence[Tensor]],
    half: bool,
    resident: Iterable[Tensor] = (),
    resume: Iterable[int] = (),
    prepacked: Collection[Tensor] = (),
    left_out: Collection[Tensor] = (),
) -> MemoryPlan:
    """Give every used tensor a storage and every storage a block.

    `resident` are outputs that may feed the next call from where they lie, so they share no block with an input.
    What nodes from a `resume` point on read is kept to the end, so that they can run again on it. What is `prepacked`
    is kept for good; constants that are `left_out` have no memory.
    """
    live_ranges = _live_ranges(graph, roots, scratch, tuple(resume))
    for root in left_out:
        live_ranges.pop(root, None)
    sizes: dict[Tensor, int] = {}
    kept: set[Tensor] = set()
    aliased = 0
    for tensor in (*graph.tensors, *(each for row in scratch for each in row)):
        root = roots.get(tensor, tensor)
        if root not in live_ranges:
            continue
        aliased += root is not tensor and tensor.constant is None
        nbytes = padded(storage_bytes(tensor.dtype, prod(tensor.max_shape), half))
        sizes[root] = max(sizes.get(root, 0), nbytes)
        if tensor in graph.persistent or tensor in prepacked:
            kept.add(root)
    shared = [root for root in live_ranges if root not in kept]
    outputs = {roots.get(tensor, tensor) for tensor in resident}
    best: tuple[list[int], dict[Tensor, int]] | None = None
    for by, first in ((_by_size, False), (_by_start, False), (_in_order, True)):
        row = sorted(shared, key=lambda root, by=by: by(sizes[root], live_ranges[root]))  # type: ignore[misc]
        assignment = _assign(row, sizes, live_ranges, outputs, first)
        if best is None or sum(assignment[0]) < sum(best[0]):
            best = assignment
    blocks, places = best or ([], {})
    activations = sum(blocks)
    for root in live_ranges:
        if root in kept:
            places[root] = len(blocks)
            blocks.append(sizes[root])
    storages = {
        root: Storage(number, sizes[root], places[root], root in kept) for number, root in enumerate(live_ranges)
    }
    everything = (*graph.tensors, *(each for row in scratch for each in row))
    return MemoryPlan(
        {tensor: storages[root] for tensor in everything if (root := roots.get(tensor, tensor)) in storages},
        tuple(blocks),
        activations,
        sum(sizes[root] for root in shared),
        sum(blocks) - activations,
        aliased,
        tuple(live_ranges.values()),
    )


def _live_ranges(
    graph: Graph, roots: Roots, scratch: Sequence[Sequence[Tensor]], resume: tuple[int, ...]
) -> dict[Tensor, tuple[int, int]]:
    """The live range of each memory: the first and the last node at which it must keep its contents."""
    end = len(graph.nodes)
    first_again = min(resume, default=end)  # what runs again has nothing of the caller's any more
    first: dict[Tensor, int] = {}
    last: dict[Tensor, int] = {}

    def use(value: Value, index: int) -> None:
        if isinstance(value, Tensor):
            root = roots.get(value, value)
            first[root] = min(first.get(root, index), index)
            last[root] = max(last.get(root, index), index)

    for value in graph.inputs:
        if isinstance(value, Value):
            use(value, -1)
    for node in graph.nodes:
        on_host = node.index < first_again and _is_scalar_only(node) and not scratch[node.index]
        for value in (*node.inputs, *node.written, *scratch[node.index]):
            if not (on_host and value in graph.given and not graph.writers[value]):
                use(value, node.index)
    for value in graph.outputs:
        if isinstance(value, Value):
            use(value, end)
    for point in resume:
        for root, index in last.items():
            if first[root] < point <= index:
                last[root] = end
    # A back edge makes everything that is live in its loop live in the whole of it.
    for start, stop in graph.loops:
        for root in first:
            if first[root] <= stop and last[root] >= start:
                first[root], last[root] = min(first[root], start), max(last[root], stop)
    # An input that no kernel reads needs no memory.
    return {root: (first[root], last[root]) for root in first if last[root] >= 0}


def _is_scalar_only(node: Node) -> bool:
    """Whether it dispatches nothing and sets live scalars alone, from what the caller gave on the host."""
    return bool(node.written) and all(isinstance(value, SymInt) for value in node.written)


def _by_size(nbytes: int, span: tuple[int, int]) -> tuple[int, int]:
    return -nbytes, span[0]


def _by_start(nbytes: int, span: tuple[int, int]) -> tuple[int, int]:
    return span[0], -nbytes


def _in_order(nbytes: int, span: tuple[int, int]) -> tuple[int, int]:
    return span[0], 0


_INPUTS = (-1, -1)  # the moment at which the inputs of a call are written


class Occupied:
    """The live ranges in one block, which never overlap: in order, so that a free one is found by bisection.

    >>> block = Occupied()
    >>> block.take((3, 5))
    >>> block.is_free((0, 2)), block.is_free((5, 6)), block.is_free((0, 9)), block.is_free((6, 6))
    (True, False, False, True)
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def is_free(self, span: tuple[int, int]) -> bool:
        """Whether nothing lies in the block at any node of a range."""
        place = bisect_left(self._ends, span[0])
        return place == len(self._ends) or self._starts[place] > span[1]

    def take(self, span: tuple[int, int]) -> None:
        """Occupy a free range."""
        place = bisect_left(self._ends, span[0])
        self._starts.insert(place, span[0])
        self._ends.insert(place, span[1])


def _assign(
    row: list[Tensor],
    sizes: dict[Tensor, int],
    live_ranges: dict[Tensor, tuple[int, int]],
    outputs: set[Tensor],
    first: bool,
) -> tuple[list[int], dict[Tensor, int]]:
    """Greedy assignment: best fit, the block that wastes least, or `first` fit, as exporters plan.

    Live ranges in one block never overlap.
    """
    blocks: list[int] = []
    occupied: list[Occupied] = []
    places: dict[Tensor, int] = {}
    for root in row:
        nbytes = sizes[root]
        wanted = [live_ranges[root]]
        # An output may feed the next call, and must outlive the moment at which the inputs of that are written.
        if root in outputs and live_ranges[root][0] > _INPUTS[0]:
            wanted.append(_INPUTS)
        choice, cost = -1, (nbytes, 0)
        for block, size in enumerate(blocks):
            price = (max(0, nbytes - size), abs(size - nbytes))
            if not first and price >= cost:
                continue
            if all(occupied[block].is_free(span) for span in wanted):
                choice, cost = block, price
                if first:
                    break
        if choice < 0:
            choice = len(blocks)
            blocks.append(0)
            occupied.append(Occupied())
        blocks[choice] = max(blocks[choice], nbytes)
        for span in wanted:
            occupied[choice].take(span)
        places[root] = choice
    return blocks, places
