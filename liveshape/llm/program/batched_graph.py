"""The graph of a language model for many sequences: their rows lie one behind the other, each with its own position.

What depends on positions is rewritten to tables on the device: rotary embeddings and new rows of the KV cache read a
line (position, slot) per row, attention reads lines of sequences and their pages. Everything else must be row-wise,
which is proved node by node from what the operators declare; a graph that cannot be proved is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from liveshape import ops
from liveshape.errors import UnsupportedError
from liveshape.graph import Graph, Node, SymInt, Tensor, Value
from liveshape.graph.traits import CacheRows, Role
from liveshape.llm.program.sliding_windows import Distances
from liveshape.llm.program.spelled_attention import spelled_attentions
from liveshape.llm.program.token_graph import at_positions, is_position_of
from liveshape.lower.rewriting import renamed, rewritten, without_dead_nodes
from liveshape.ops.attention import update_caches
from liveshape.ops.batch_inputs import LINE, PLACE, packed_size, unpack_tables
from liveshape.ops.indexing import index_select
from liveshape.ops.movement import select_copy
from liveshape.ops.paged_attention import COPY, paged_attention
from liveshape.ops.sampling import SETTING_COLUMNS

_SIZES = ("size", "sizes")  # parameters that say how large a result is, and change no number in it


@dataclass(frozen=True)
class BatchBounds:
    """Upper bounds of a step: its rows, its sequences, and the pool of pages that all of them share."""

    rows: int
    sequences: int
    pages: int
    page_size: int
    context: int  # tokens of one sequence

    @property
    def slots(self) -> int:
        """Rows of the pool."""
        return self.pages * self.page_size

    @property
    def pages_of_sequence(self) -> int:
        """The longest line of the block table."""
        return -(-self.context // self.page_size)


@dataclass(frozen=True, eq=False)
class BatchTables:
    """The tables of a step, which its first node unpacks from one input, and the live scalars that size them."""

    packed: Tensor
    copies: Tensor  # [S, 2]: pages that are copied before the step writes to them; an input of its own, mostly empty
    token: Tensor  # [1, W]: what a step samples, which the next one takes tokens from
    tokens: Tensor  # [1, R]
    places: Tensor  # [R, 2]: position and slot of each row
    wanted: Tensor  # [W]: rows whose logits are wanted
    units: Tensor  # [U, 4]: lines of attention
    settings: Tensor  # [W, ..]: of sampling
    block_table: Tensor  # [S, P]
    sizes: tuple[SymInt, ...]  # rows, wanted rows, lines, sequences and pages
    attention: tuple[SymInt, ...]  # lines of few rows and of tiles, and the longest context of each

    @classmethod
    def of(cls, tokens: Tensor, bounds: BatchBounds) -> BatchTables:
        """Tables for steps within these bounds of a program that takes such tokens."""
        rows, sequences = bounds.rows, bounds.sequences
        most = packed_size(rows, sequences, rows, sequences, bounds.pages_of_sequence)
        return cls(
            packed=Tensor("tables of a step", "int32", (most,)),
            copies=Tensor("copies of pages", "int32", (sequences, COPY)),
            token=Tensor("token", "int32", (1, sequences)),
            tokens=replace(tokens, name="tokens of rows", static=False),
            places=Tensor("places", "int32", (rows, PLACE)),
            wanted=Tensor("wanted rows", "int32", (sequences,)),
            units=Tensor("lines of attention", "int32", (rows, LINE)),
            settings=Tensor("sampling settings", "int32", (sequences, len(SETTING_COLUMNS))),
            block_table=Tensor("block table", "int32", (sequences, bounds.pages_of_sequence)),
            sizes=tuple(SymInt(name, 1) for name in ("rows", "wanted rows", "lines", "sequences", "pages")),
            attention=(
                SymInt("lines of few rows"), SymInt("lines of tiles"), SymInt("context of few rows", 1),
                SymInt("context of tiles", 1),
            ),
        )  # fmt: skip

    @property
    def unpacked(self) -> tuple[Tensor, ...]:
        """The tables in the order of `unpack_tables`."""
        return self.tokens, self.places, self.wanted, self.units, self.settings, self.block_table

    @property
    def values(self) -> tuple[Value, ...]:
        """All of them."""
        return self.packed, self.copies, self.token, *self.unpacked, *self.sizes, *self.attention


def batched(graph: Graph, position: Tensor, tokens: Tensor, bounds: BatchBounds, tables: BatchTables) -> Graph:
    """The same program for rows of many sequences; raises UnsupportedError with the node that prevents it.

    It is applied to a lowered graph, before fusion, which then finds the same patterns with tables in them.
    """
    return _Batching(graph, position, tokens, bounds, tables).graph_of_tables()


class _Batching:
    def __init__(
        self, graph: Graph, position: Tensor, tokens: Tensor, bounds: BatchBounds, tables: BatchTables
    ) -> None:
        if graph.controls:
            raise UnsupportedError("it has control flow")
        self.graph, self.position, self.tokens, self.bounds, self.tables = graph, position, tokens, bounds, tables
        self.is_position = is_position_of(graph, position)
        self.distances = Distances(graph, tokens, position)
        self.names: dict[Value, Value] = {}
        self.positions = replace(position, name="positions", max_shape=(bounds.rows,), static=False)
        self.made: list[Value] = [*tables.values, self.positions]
        for state in at_positions(graph, position):
            if state.axis != 1 or state.tensor.rank != 4 or state.tensor.max_shape[0] != 1:
                raise UnsupportedError(f"its state {state.tensor.name} is not known to be rows at positions")
            shape = (1, bounds.slots, *state.tensor.max_shape[2:])
            self.names[state.tensor] = replace(state.tensor, max_shape=shape, constant=None)
        if not self.names:
            raise UnsupportedError("it keeps no state between calls")
        self.pools = set(self.names.values())
        self.spelled = spelled_attentions(graph, self.distances)
        self.by_spelled = {cache for each in self.spelled.values() for cache in (each.k_cache, each.v_cache)}
        self.rows: dict[Tensor, int] = {}  # what carries rows, and along which axis
        self.last: set[Value] = set()  # what is computed from the last row of a call

    def graph_of_tables(self) -> Graph:
        """The rewritten graph; raises with the node that prevents it."""
        tables = self.tables
        self.names[self.tokens] = tables.tokens
        if self.position.max_shape[0] > 1:
            self.names[self.position] = self.positions
        self.rows = {tables.tokens: 1, tables.places: 0, self.positions: 0}
        first = f"tables of {self.graph.name}"
        unpack = (tables.packed, tables.token, *tables.sizes, tables.unpacked)
        nodes = [(0, ops.defined_by(unpack_tables).bind(0, first, unpack))]
        # Read only by programs that look positions up in tables of their own.
        nodes.append((0, self._positions_as(self.positions, 0, first)))
        nodes += [(node.index, new) for node in self.graph.nodes for new in self._rewritten(node)]
        outputs = renamed(self.graph.outputs, self.names)
        whole = replace(self.graph, inputs=(tables.packed, tables.copies), outputs=outputs)
        made = rewritten(whole, nodes, self.made)
        made = replace(made, values=tuple(dict.fromkeys(renamed(made.values, self.names))))
        found = without_dead_nodes(made, list(made.nodes))
        for node in found.nodes:
            self._follow(node)
        left = next((node for node in found.nodes if self.position in node.inputs), None)
        if left is not None:
            raise UnsupportedError(f"{left.label} depends on the position of the call")
        return replace(found, values=tuple(value for value in found.values if value is not self.position))

    def _rewritten(self, node: Node) -> list[Node]:
        """What stands for a node."""
        cache, position_tables = node.traits.cache, node.traits.tables
        args = list(renamed(node.args, self.names))
        if node.traits.role is Role.ATTENTION and cache is not None:
            return self._attention(node, cache)
        if node in self.spelled:
            each = self.spelled[node]
            caches, masks = (each.k_cache, each.v_cache), (each.scale, each.window, each.softcap, each.sinks)
            return [self._update(node, each.k, each.v, *caches), self._over_pages(node, each.q, *caches, *masks)]
        if any(value in self.by_spelled for value in node.written):
            return []
        if node.traits.role is Role.SLICE and self._is_of_rows(node):
            x, dim, out = node.named["x"], node.named["dim"], args[-1]
            gather = ops.defined_by(index_select)
            return [gather.bind(node.index, node.label, (x, dim, self.positions, out), node.sources)]
        if self.distances.is_positions(node):
            return [self._positions_as(args[-1], node.index, node.label)]
        starts = [name for name in (cache and cache.start, position_tables and position_tables.start) if name]
        for name in starts:
            if not self.is_position(node.named[name]):
                raise UnsupportedError(f"{node.label} is at a position that is not that of the call")
            args[node.parameters.index(name)] = self.tables.places
        if not starts:
            return [replace(node, args=tuple(args))]
        return [ops.OPS[node.name].bind(node.index, node.label, tuple(args), node.sources)]

    def _positions_as(self, out: Tensor, index: int, label: str) -> Node:
        return ops.defined_by(select_copy).bind(index, label, (self.tables.places, 1, 0, out))

    def _is_of_rows(self, node: Node) -> bool:
        """Whether a slice of a constant is the lines of the call: from its position on, as many as it has tokens."""
        x, start, end, step = (node.named[name] for name in ("x", "start", "end", "step"))
        return bool(x.constant is not None and step == 1 and self.is_position(start) and self.distances.is_end(end))

    def _attention(self, node: Node, cache: CacheRows) -> list[Node]:
        """Attention over pages in the place of one over a cache, behind the new rows if it brings them."""
        given = node.named
        start = None if cache.start is None else given[cache.start]
        mask = None if cache.unless_masked is None else given[cache.unless_masked]
        window = 0 if mask is None else self.distances.window_of(mask, causal=False)
        causal = cache.causal is not None and given[cache.causal] is True
        if window is None or not causal or not self.is_position(start):
            raise UnsupportedError(f"{node.label} has a mask that is spelled out, or sees more than what came before")
        if given.get("dropout"):
            raise UnsupportedError(f"{node.label} has dropout")
        caches = [given[name] for name in cache.axes]
        nodes = [self._update(node, given["k"], given["v"], *caches)] if node.mutates else []
        return [*nodes, self._over_pages(node, given["q"], *caches, given["scale"], window, 0.0, None)]

    def _update(self, node: Node, *written: Tensor) -> Node:
        args = (*renamed(written, self.names), self.tables.places, None)
        return ops.defined_by(update_caches).bind(node.index, node.label, args, node.sources)

    def _over_pages(self, node: Node, q: Tensor, keys: Tensor, values: Tensor, *masks: Any) -> Node:
        tables = self.tables
        given = (q, keys, values, tables.units, tables.block_table, self.bounds.page_size, *tables.attention, *masks)
        args = renamed((*given, node.args[-1]), self.names)
        return ops.defined_by(paged_attention).bind(node.index, node.label, args, node.sources)

    def _follow(self, node: Node) -> None:
        """Prove that a node is row-wise, if it reads rows; only attention and what writes new rows know pages.

        What follows the choice of the last row has one row; `keep_last_logits` proves it for the wanted ones. It may
        not meet rows again, and there is one such choice, since which rows are wanted is told once.
        """
        if node.run is not paged_attention and not node.mutates and any(value in self.pools for value in node.inputs):
            raise UnsupportedError(f"{node.label} reads a cache, and is no attention that is known")
        read = [value for value in node.inputs if isinstance(value, Tensor) and value in self.rows]
        if self.last.intersection(node.inputs):
            if read or node.mutates:
                raise UnsupportedError(f"{node.label} reads the last row of a call beside all of them")
            self.last.update(node.outputs)
            return
        if not read or all(isinstance(value, SymInt) for value in node.outputs):
            return
        if node.run is paged_attention:
            self.rows[node.args[-1]] = 1
        elif _is_last_row(node, self.rows):
            if self.last:
                raise UnsupportedError(f"{node.label} is a second choice of the last row")
            self.last.update(node.outputs)
        else:
            self._carry(node)

    def _carry(self, node: Node) -> None:
        # A size may be that of all rows; any other number would be another one than that of the sequence alone.
        numbers = [name for place, name in enumerate(node.parameters) if place in node.live and name not in _SIZES]
        carried = None if numbers else node.carried(self.rows)
        if carried is None:
            raise UnsupportedError(f"{node.label} is not known to compute each row from that row alone")
        self.rows.update(carried)


def _is_last_row(node: Node, rows: Mapping[Tensor, int]) -> bool:
    """Whether a node takes the last of the rows (1, S, H)."""
    if node.traits.role is not Role.SELECT or rows.get(node.named["x"]) != 1:
        return False
    return bool(node.named["dim"] in (1, 1 - node.named["x"].rank) and node.named["index"] == -1)
