"""Common subexpressions: what is computed twice is computed once, where keeping it costs no memory.

That is rows of eight bits, which every 4-bit layer of an input asks for anew, and the arithmetic of live scalars.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from liveshape import ops
from liveshape.graph import Graph, Node, SymInt, Tensor, Value
from liveshape.graph.live import identity
from liveshape.lower.rewriting import renamed, rewritten
from liveshape.ops.quantized import BYTES, can_quantize_rows, quantized_shape

_LAYER = "et_vk.linear_dq8ca_q4gsw.default"
_ROUNDED = "liveshape.rounded_rows"
_BYTES = "liveshape.row_bytes"
# Results that are small, or that have to exist anyway: keeping them costs no memory.
_ONCE = frozenset({"torchao.choose_qparams_affine.default", _ROUNDED, _BYTES})


def share_subexpressions(graph: Graph) -> Graph:
    """The same program with equal nodes of a few kinds as one, between jumps."""
    made: list[Tensor] = []
    parts = [(node.index, part) for node in graph.nodes for part in _parts(node, made)]
    regions = graph.regions()
    # What the caller or the next call may look at stays where it is.
    outside = {value for value in (*graph.inputs, *graph.outputs) if isinstance(value, Value)} | graph.persistent
    writes = Counter(value for _, node in parts for value in node.written)
    versions: Counter[Value] = Counter()
    names: dict[Value, Value] = {}
    known: dict[Any, Node] = {}
    rows: list[tuple[int, Node]] = []
    for index, part in parts:
        node = replace(part, args=tuple(renamed(argument, names) for argument in part.args))
        if _is_shared(node) and all(writes[value] == 1 and value not in outside for value in node.outputs):
            arguments = tuple(_identity(argument) for argument in node.args[:-1])
            key = (node.run, regions[index], arguments, *(versions[value] for value in node.inputs))
            first = known.setdefault(key, node)
            if first is not node:
                names.update(zip(node.outputs, first.outputs, strict=True))
                continue
        versions.update(node.written)
        rows.append((index, node))
    return rewritten(graph, rows, made)


def _is_shared(node: Node) -> bool:
    if node.name in _ONCE:
        return True
    # Sizes, elements and sums of live scalars.
    return bool(node.outputs) and all(isinstance(value, SymInt) for value in node.outputs)


def _identity(argument: Any) -> Any:
    if isinstance(argument, tuple):
        return tuple(_identity(item) for item in argument)
    return argument if isinstance(argument, Value) else identity(argument)


def _parts(node: Node, made: list[Tensor]) -> list[Node]:
    """A layer of 8-bit rows as their rounding and a layer of the rounded rows; any other node as it is.

    The rows become integers where the layer multiplies such, else numbers that are as many steps.
    """
    if node.name != _LAYER:
        return [node]
    x, scale, zero_point, weight, _, scales, group, bias, out = node.args
    int8 = can_quantize_rows(x.max_shape[-1], group, weight.max_shape)
    dtype, shape = (BYTES[1], quantized_shape(x.max_shape)) if int8 else ("float32", x.max_shape)
    made.append(Tensor(f"{x.name} in 8 bits", dtype, shape))
    rounding = _BYTES if int8 else _ROUNDED
    return [
        ops.OPS[rounding].bind(node.index, node.label, (x, scale, zero_point, made[-1])),
        ops.OPS["et_vk.linear_q4gsw.default"].bind(
            node.index, node.label, (made[-1], weight, scales, group, bias, out)
        ),
    ]
