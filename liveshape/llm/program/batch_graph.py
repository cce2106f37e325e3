"""The graph of a model for many sequences with sampling: the logits of the wanted rows, and a token from each. Before
all else it copies the pages that a step may not write to where they lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from liveshape import ops
from liveshape.errors import UnsupportedError
from liveshape.graph import Graph, Node, SymInt, Tensor, Value
from liveshape.llm.program.batched_graph import BatchBounds, BatchTables
from liveshape.llm.program.hoist_last_rows import hoist_last_rows
from liveshape.llm.program.last_logits import keep_last_logits
from liveshape.lower.cse import share_subexpressions
from liveshape.lower.rewriting import rewritten
from liveshape.ops import sampling
from liveshape.ops.paged_attention import copy_pages, paged_attention

MODES = ("drawn", "limited", "penalized")  # what any row of a step needs beside its likeliest token


@dataclass(frozen=True, eq=False)
class BatchGraph:
    """A batched graph with its tail: tokens [1, W] and `logits` [W, V] are its outputs."""

    graph: Graph
    bounds: BatchBounds
    tables: BatchTables
    modes: dict[str, SymInt]
    rows: SymInt  # how many tokens are sampled
    logits: Tensor
    attentions: frozenset[tuple[int, int, int]]  # heads, heads of keys and head size of each attention
    states: tuple[Tensor, ...]  # the pools of keys and values and the history, in the order of a saved cache
    window: int | None  # the most keys that a query sees in any layer; None where it may see all


def pools_of(graph: Graph) -> list[Tensor]:
    """The pools of keys and values that a batched graph attends to.

    Example: `halve_caches(graph, pools_of(graph))`.
    """
    nodes = [node for node in graph.nodes if node.run is paged_attention]
    return list(dict.fromkeys(node.named[name] for node in nodes for name in ("k_cache", "v_cache")))


def batch_graph(graph: Graph, tables: BatchTables, bounds: BatchBounds, history: Tensor) -> BatchGraph:
    """Append the choice of wanted rows, the token history and the sampling to a graph that `batched` made, and put the
    copies of pages before it."""
    (logits,) = graph.outputs
    if logits.rank == 2:
        graph, wanted = keep_last_logits(graph, logits, tables.wanted, bounds.sequences)
        if wanted is logits:
            raise UnsupportedError("what follows the choice of the last row is not known to be row-wise")
    else:
        wanted = Tensor("wanted logits", logits.dtype, (bounds.sequences, logits.max_shape[-1]))
        node = _bound(graph, sampling.last_rows, logits, tables.wanted, wanted)
        graph = replace(graph, nodes=(*graph.nodes, node), values=(*graph.values, wanted), outputs=(wanted,))
    graph = hoist_last_rows(graph)
    (logits,) = graph.outputs
    modes = {name: SymInt(name, False) for name in MODES}
    rows = SymInt("sampled rows", 0)
    nodes = list(graph.nodes)
    sampled = (logits, history, tables.block_table, bounds.page_size, tables.settings, *modes.values(), rows)
    for operator, args in (
        (sampling.record, (tables.tokens, tables.places, history, None)),
        (sampling.sample_rows, (*sampled, tables.token)),
    ):
        nodes.append(_bound(replace(graph, nodes=tuple(nodes)), operator, *args))
    made: tuple[Value, ...] = (history, *modes.values(), rows)
    placed = [(0, node) for node in _copies(graph, tables, bounds, history)] + [(node.index, node) for node in nodes]
    whole = share_subexpressions(rewritten(replace(graph, outputs=(tables.token, logits)), placed, made))
    attending = [node.named for node in whole.nodes if node.run is paged_attention]
    attentions = frozenset((each["q"].max_shape[2], *each["k_cache"].max_shape[2:]) for each in attending)
    windows = [each["window"] for each in attending]
    pools = {*pools_of(whole), history}
    states = tuple(tensor for tensor in whole.tensors if tensor in pools)
    window = max(windows) if all(windows) else None
    return BatchGraph(whole, bounds, tables, modes, rows, logits, attentions, states, window)


def _copies(graph: Graph, tables: BatchTables, bounds: BatchBounds, history: Tensor) -> list[Node]:
    """A node for each pool, the history among them."""
    entry = ops.defined_by(copy_pages)
    return [
        entry.bind(0, f"{entry.name} (before {graph.name})", (pool, tables.copies, bounds.page_size, None))
        for pool in (*pools_of(graph), history)
    ]


def _bound(graph: Graph, operator: Callable[..., Any], *args: Any) -> Node:
    entry = ops.defined_by(operator)
    return entry.bind(len(graph.nodes), f"{entry.name} (after {graph.name})", args)
