"""The logits of several tokens from a program that gives those of its last one alone.

Such a program takes the last row of its tokens and computes the logits of it. Here the last rows are taken instead, as
many as a live number says, and what follows, if it does the same to every row, has room for more of them. With the
number at 1 the same kernels run as before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from liveshape import ops
from liveshape.graph import Graph, Node, SymInt, Tensor, Value
from liveshape.lower.rewriting import renamed

_SELECT = frozenset({"aten.select_copy.int", "aten::select_copy.int_out"})
_LAST_DIM = (1, -1)


Others = list[Tensor]  # what a node reads beside the rows


def _comes_first(node: Node, others: Others) -> bool:
    return node.inputs[0] not in others


def _beside_one_row(node: Node, others: Others) -> bool:
    """Whether what is combined with the rows has at most one: it is the same for all of them."""
    return all(value.rank < 2 or (value.rank == 2 and value.max_shape[0] == 1) for value in others)


# Operators that do the same to each row of (rows, columns), and where that depends on their arguments, on which.
_OF_ROWS: dict[str, Callable[[Node, Others], bool]] = {
    **dict.fromkeys(
        (
            "et_vk.rms_norm.default",
            "aten.linear.default",
            "aten::linear.out",
            "aten.mm.default",
            "aten::mm.out",
            "et_vk.linear_q4gsw.default",
            "liveshape.normed_linear_q4gsw",
            "et_vk.linear_qcs4w.default",
            "et_vk.linear_dq8ca_q4gsw.default",
            "liveshape.rounded_rows",
            "liveshape.row_bytes",
            "liveshape.move",
            "aten._to_copy.default",
            "dim_order_ops._to_dim_order_copy.default",
            "aten.rsqrt.default",
            "aten::rsqrt.out",
            "aten.tanh.default",
            "aten::tanh.out",
        ),
        _comes_first,
    ),
    **dict.fromkeys(
        ("aten.add.Tensor", "aten::add.out", "aten.mul.Tensor", "aten::mul.out", "aten.div.Tensor", "aten::div.out"),
        _beside_one_row,
    ),
    **dict.fromkeys(("aten.mean.dim", "aten::mean.out"), lambda node, _: node.args[1] in ((1,), (-1,))),
    **dict.fromkeys(
        ("aten.slice_copy.Tensor", "aten::slice_copy.Tensor_out"), lambda node, _: node.args[1] in _LAST_DIM
    ),
    **dict.fromkeys(
        ("aten.native_layer_norm.default", "aten::native_layer_norm.out"),
        lambda node, others: len(node.args[1]) == 1 and _comes_first(node, others),
    ),
    "torchao.choose_qparams_affine.default": lambda node, _: node.args[2][:1] == (1,),
}


def widened(graph: Graph, logits: Tensor, rows: SymInt, most: int) -> tuple[Graph, Tensor]:
    """The same program with the logits of the last `rows` tokens, at most `most`; itself where that cannot be seen.

    Example: `graph, logits = widened(graph, logits, SymInt("rows", 1), 16)`.
    """
    select = _last_row(graph, logits)
    if select is None:
        return graph, logits
    wide: dict[Value, Value] = {}
    nodes = list(graph.nodes)
    for node in graph.nodes[select.index :]:
        if node is not select and not any(value in wide for value in node.inputs):
            continue
        if node is not select and not _keeps_rows(node, wide):
            return graph, logits
        for value in node.outputs:
            if not isinstance(value, Tensor) or value.max_shape[:1] != (1,) or len(graph.writers[value]) != 1:
                return graph, logits
            wide[value] = replace(value, max_shape=(most, *value.max_shape[1:]), static=False)
        nodes[node.index] = replace(node, args=renamed(node.args, wide))
    last = wide.get(logits)
    if not isinstance(last, Tensor):
        return graph, logits
    taken = (select.args[0], rows, wide[select.outputs[0]])
    nodes[select.index] = ops.OPS["liveshape.last_rows"].bind(select.index, select.label, taken)
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
    found = [node for node in graph.nodes if node.name in _SELECT and _takes_last(node)]
    return found[-1] if found else None


def _takes_last(node: Node) -> bool:
    x, dim, index = node.args[:3]
    return x.rank == 3 and x.max_shape[0] == 1 and x.max_shape[1] > 1 and dim in (1, -2) and index == -1


def _keeps_rows(node: Node, wide: dict[Value, Value]) -> bool:
    """Whether a node does the same to each row of what is wide."""
    check = _OF_ROWS.get(node.name)
    others = [value for value in node.inputs if isinstance(value, Tensor) and value not in wide]
    return check is not None and not node.mutates and check(node, others)
