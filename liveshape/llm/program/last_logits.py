"""Logits of the last several tokens (for speculative decoding) from a graph that computes only the last token's.

Such a graph selects the last row of its hidden states. Here the last `rows`, a live scalar, are selected instead, and
the row-wise operators after it get a larger max_shape. With one row the same kernels run as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from liveshape import ops
from liveshape.graph import Graph, Node, SymInt, Tensor, Value
from liveshape.graph.traits import Role
from liveshape.lower.rewriting import renamed
from liveshape.ops.sampling import last_rows


def keep_last_logits(graph: Graph, logits: Tensor, rows: SymInt | Tensor, most: int) -> tuple[Graph, Tensor]:
    """The same graph with the logits of the last `rows` tokens, at most `most`; unchanged where it is not row-wise.

    `rows` may be a table of rows, too, which are then those with logits.

    Example: `graph, logits = keep_last_logits(graph, logits, SymInt("rows", 1), 16)`.
    """
    select = _last_row(graph, logits)
    if select is None:
        return graph, logits
    wide: dict[Value, Value] = {}
    axes: dict[Tensor, int] = {}  # the axis of rows, in the widened tensors
    nodes = list(graph.nodes)
    for node in graph.nodes[select.index :]:
        if node is not select and not any(value in wide for value in node.inputs):
            continue
        given = {select.args[-1]: 0} if node is select else _row_axes(node, axes)
        if given is None or len(given) != len(node.outputs):
            return graph, logits
        for value, axis in given.items():
            if value.max_shape[axis] != 1 or len(graph.writers[value]) != 1:
                return graph, logits
            shape = (*value.max_shape[:axis], most, *value.max_shape[axis + 1 :])
            wide[value] = replace(value, max_shape=shape, static=False)
        axes.update(given)
        nodes[node.index] = replace(node, args=renamed(node.args, wide))
    last = wide.get(logits)
    if not isinstance(last, Tensor) or axes[logits] != 0:
        return graph, logits
    taken = (select.args[0], rows, wide[select.outputs[0]])
    nodes[select.index] = ops.defined_by(last_rows).bind(select.index, select.label, taken, select.sources)
    return replace(
        graph,
        nodes=tuple(nodes),
        values=tuple(dict.fromkeys((*(wide.get(value, value) for value in graph.values), rows))),
        outputs=tuple(wide.get(value, value) for value in graph.outputs),
    ), last


def _last_row(graph: Graph, logits: Tensor) -> Node | None:
    """The node that selects the last row of (1, S, H), if there is one and the graph has no control flow."""
    if graph.controls or logits.rank != 2:
        return None
    found = [node for node in graph.nodes if node.traits.role is Role.SELECT and _selects_last(node)]
    return found[-1] if found else None


def _selects_last(node: Node) -> bool:
    x, dim, index = (node.named[name] for name in ("x", "dim", "index"))
    last = x.rank == 3 and x.max_shape[0] == 1 and x.max_shape[1] > 1 and dim in (1, -2) and index == -1
    return last and isinstance(node.args[-1], Tensor)


def _row_axes(node: Node, axes: Mapping[Tensor, int]) -> Mapping[Tensor, int] | None:
    """The axis of rows in each output of a node; None where it may not be row-wise.

    A live size may be the exported number of rows, which is one: a node with such an argument is not widened.
    """
    return None if node.live else node.carried(axes)
