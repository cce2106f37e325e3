"""What is computed twice is computed once: rows of eight bits, which every 4-bit layer of an input asks for anew."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from liveshape import ops
from liveshape.graph import Graph, Node, Tensor, Value

_LAYER = "et_vk.linear_dq8ca_q4gsw.default"
_ROUNDED = "liveshape.rounded_rows"
# Results that are small, or that have to exist anyway: keeping them costs no memory.
_ONCE = frozenset({"torchao.choose_qparams_affine.default", _ROUNDED})


def without_repeats(graph: Graph) -> Graph:
    """The same program with equal nodes of a few kinds as one. A program with jumps stays as it is."""
    if graph.controls or not any(node.name in _ONCE or node.name == _LAYER for node in graph.nodes):
        return graph
    made: list[Tensor] = []
    nodes = [part for node in graph.nodes for part in _parts(graph, node, made)]
    # What the caller or the next call may look at stays where it is.
    outside = {value for value in (*graph.inputs, *graph.outputs) if isinstance(value, Value)}
    outside |= {tensor for tensor in graph.tensors if tensor.storage.persistent}
    writes = Counter(value for node in nodes for value in set(node.written))
    versions: Counter[Value] = Counter()
    names: dict[Value, Value] = {}
    known: dict[Any, Node] = {}
    kept: list[Node] = []
    for node in nodes:
        node = replace(node, index=len(kept), args=tuple(_renamed(argument, names) for argument in node.args))
        if node.name in _ONCE and all(writes[value] == 1 and value not in outside for value in node.outputs):
            key = (node.name, node.args[:-1], *(versions[value] for value in node.inputs))
            twin = known.setdefault(key, node)
            if twin is not node:
                names.update(zip(node.outputs, twin.outputs, strict=True))
                continue
        versions.update(node.written)
        kept.append(node)
    values = [*graph.values, *made]
    return Graph(graph.name, kept, values, graph.inputs, graph.outputs, graph.limits, graph.file_bytes)


def _parts(graph: Graph, node: Node, made: list[Tensor]) -> list[Node]:
    """A layer of 8-bit rows as their rounding and a layer of the rounded rows; any other node as it is."""
    if node.name != _LAYER:
        return [node]
    x, scale, zero_point, weight, _, scales, group, bias, out = node.args
    made.append(Tensor(f"{x.name} in 8 bits", "float32", x.max_shape, half=graph.limits.half))
    return [
        ops.OPS[_ROUNDED].bind(node.index, node.label, (x, scale, zero_point, made[-1])),
        ops.OPS["et_vk.linear_q4gsw.default"].bind(
            node.index, node.label, (made[-1], weight, scales, group, bias, out)
        ),
    ]


def _renamed(argument: Any, names: dict[Value, Value]) -> Any:
    if isinstance(argument, tuple):
        return tuple(_renamed(item, names) for item in argument)
    return names.get(argument, argument) if isinstance(argument, Value) else argument
