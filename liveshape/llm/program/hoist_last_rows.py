"""Select the last rows early: hoist `last_rows` above the row-wise operators before it.

For the logits of the last tokens, what follows the last attention (row-wise: projection, norm, MLP) is needed for these
rows alone. Prefill of a long prompt saves most of one layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from liveshape import ops
from liveshape.graph import Graph, Node, Tensor, Value
from liveshape.lower.def_use import DefUse
from liveshape.lower.rewriting import renamed, rewritten
from liveshape.ops.sampling import last_rows
from liveshape.ops.views import view_copy

_LAST_ROWS, _VIEW = ops.defined_by(last_rows), ops.defined_by(view_copy)


def hoist_last_rows(graph: Graph) -> Graph:
    """The same graph with `last_rows` hoisted before the first operator that needs no other rows.

    Example: `hoist_last_rows(keep_last_logits(graph, logits, rows, 16)[0])`.
    """
    found = [node for node in graph.nodes if node.run is last_rows]
    if len(found) != 1 or graph.controls:
        return graph
    (select,) = found
    x, rows, out = select.args
    most = out.max_shape[0]
    hoisted = _hoistable(DefUse(graph), select) if x.max_shape[1] > most else set()
    if not hoisted:
        return graph
    narrow: dict[Value, Value] = {}
    nodes: list[tuple[int, Node]] = []
    for node in graph.nodes:
        if node in hoisted:
            for value in _row_inputs(node, x.max_shape[1]):
                if value not in narrow:
                    narrow[value] = _narrow(value, most, f"last rows of {value.name}")
                    args = (value, rows, narrow[value])
                    nodes.append((node.index, _LAST_ROWS.bind(node.index, select.label, args, select.sources)))
            narrow |= {value: _narrow(value, most, value.name) for value in node.outputs if isinstance(value, Tensor)}
            node = replace(node, args=renamed(node.args, narrow))
        elif node is select:
            node = _VIEW.bind(node.index, node.label, (narrow[x], (-1, out.max_shape[-1]), out), node.sources)
        nodes.append((node.index, node))
    made = rewritten(graph, nodes, ())
    kept = {value for node in made.nodes for value in (*node.inputs, *node.outputs)} | {*made.inputs, *made.outputs}
    return replace(
        made, values=tuple(dict.fromkeys(value for value in (*graph.values, *narrow.values()) if value in kept))
    )


def _hoistable(search: DefUse, select: Node) -> set[Node]:
    """The nodes before `select` of whose results only the selected rows are used."""
    needed: set[Node] = set()
    while True:
        hoisted = _hoistable_except(search, select, needed)
        # Outputs written only while a single row is live (`for_one_row`): for a longer chunk they do not exist.
        kept = [node for node in search.graph.nodes if node.traits.for_one_row and node not in hoisted]
        single = {node.outputs[place] for node in kept for place in node.traits.for_one_row}
        lost = {node for node in hoisted if any(value in single for value in node.inputs)}
        if not lost:
            return hoisted
        needed |= lost


def _hoistable_except(search: DefUse, select: Node, needed: set[Node]) -> set[Node]:
    """The same, without the nodes in `needed`, whose other rows are used."""
    bound = select.args[0].max_shape[1]
    late = {select}
    for node in reversed(search.graph.nodes[: select.index]):
        given = [value for value in node.outputs if isinstance(value, Tensor)]
        read = [reader for value in given for reader in search.consumers.get(value, [])]
        private = bool(read) and all(reader in late for reader in read)
        steady = (
            not node.mutates
            and search.single_assignment(*given)
            and not any(value in search.graph.outputs for value in given)
        )
        if node not in needed and private and steady and _is_row_wise(search, node, given, bound):
            late.add(node)
    return late - {select}


def _is_row_wise(search: DefUse, node: Node, given: Sequence[Tensor], bound: int) -> bool:
    """Whether a node is row-wise over (1, S, H), with constants as its other inputs, and its outputs are such rows."""
    rows = _row_inputs(node, bound)
    others = [value for value in node.inputs if value not in rows]
    steady = all(search.writes[value] == 1 and value not in search.graph.given for value in rows)
    fixed = all(
        isinstance(value, Tensor) and value.constant is not None and not search.writes[value] for value in others
    )
    kept = node.carried(dict.fromkeys(rows, 1)) if rows and steady and fixed else None
    return kept is not None and all(
        kept.get(value) == 1 and value.rank == 3 and value.max_shape[:2] == (1, bound) for value in given
    )


def _row_inputs(node: Node, bound: int) -> list[Tensor]:
    """The inputs of a node of shape (1, S, H)."""
    tensors = [value for value in dict.fromkeys(node.inputs) if isinstance(value, Tensor) and value.constant is None]
    return [value for value in tensors if value.rank == 3 and value.max_shape[:2] == (1, bound)]


def _narrow(value: Tensor, most: int, name: str) -> Tensor:
    return replace(value, name=name, max_shape=(1, most, value.max_shape[-1]), static=False)
