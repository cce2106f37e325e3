"""The logits of several tokens from a program that gives those of its last one alone.

Such a program takes the last row of its tokens and computes the logits of it. Here the last rows are taken instead, as
many as a live number says, and what follows, if it does the same to every row, has room for more of them. With the
number at 1 the same kernels run as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from liveshape import ops
from liveshape.graph import Graph, Node, SymInt, Tensor, Value
from liveshape.graph.traits import Role
from liveshape.lower.rewriting import renamed
from liveshape.ops.sampling import last_rows


def widened(graph: Graph, logits: Tensor, rows: SymInt, most: int) -> tuple[Graph, Tensor]:
    """The same program with the logits of the last `rows` tokens, at most `most`; itself where that cannot be seen.

    Example: `graph, logits = widened(graph, logits, SymInt("rows", 1), 16)`.
    """
    select = _last_row(graph, logits)
    if select is None:
        return graph, logits
    wide: dict[Value, Value] = {}
    axes: dict[Tensor, int] = {}  # of rows, in the tensors that get more of them
    nodes = list(graph.nodes)
    for node in graph.nodes[select.index :]:
        if node is not select and not any(value in wide for value in node.inputs):
            continue
        given = {select.args[-1]: 0} if node is select else _kept(node, axes)
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
        values=(*(wide.get(value, value) for value in graph.values), rows),
        outputs=tuple(wide.get(value, value) for value in graph.outputs),
    ), last


def _last_row(graph: Graph, logits: Tensor) -> Node | None:
    """The node that takes the last row of (1, S, H), if there is one and no jump goes around it."""
    if graph.controls or logits.rank != 2:
        return None
    found = [node for node in graph.nodes if node.traits.role is Role.SELECT and _takes_last(node)]
    return found[-1] if found else None


def _takes_last(node: Node) -> bool:
    x, dim, index = (node.named[name] for name in ("x", "dim", "index"))
    last = x.rank == 3 and x.max_shape[0] == 1 and x.max_shape[1] > 1 and dim in (1, -2) and index == -1
    return last and isinstance(node.args[-1], Tensor)


def _kept(node: Node, axes: Mapping[Tensor, int]) -> Mapping[Tensor, int] | None:
    """The rows of what a node gives; None where it may not do the same to each of them.

    A live size is the count of rows that the file knows, which is one, so a node with one stays as it is.
    """
    return None if node.live else node.carried(axes)
