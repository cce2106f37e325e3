"""Common subexpression elimination, where keeping a result costs no memory.

That is quantized rows, which every dq8ca layer of an input asks for anew, and the arithmetic of live scalars.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from liveshape import ops
from liveshape.graph import Graph, Node, SymInt, Tensor, Value
from liveshape.graph.live import identity
from liveshape.graph.sources import NodeSource, united
from liveshape.lower.pattern_operators import FAKE_QUANTIZE_ROWS, LINEAR_DQ8CA_Q4, LINEAR_Q4, QUANTIZE_ROWS
from liveshape.lower.rewriting import renamed, rewritten
from liveshape.ops.quantized_rows import ASYMMETRIC_UINT8, can_quantize_rows, quantized_shape


def share_subexpressions(graph: Graph) -> Graph:
    """The same program with equal nodes of a few kinds as one, between jumps."""
    made: list[Tensor] = []
    expanded = [(node.index, each) for node in graph.nodes for each in _expanded(node, made)]
    regions = graph.regions()
    # What the caller or the next call may read stays where it is.
    outside = {value for value in (*graph.inputs, *graph.outputs) if isinstance(value, Value)} | graph.persistent
    writes = Counter(value for _, node in expanded for value in node.written)
    versions: Counter[Value] = Counter()
    names: dict[Value, Value] = {}
    known: dict[Any, int] = {}  # by what is computed, the row that does it first
    equal: dict[int, list[NodeSource]] = {}  # by such rows, what the others came from
    rows: list[tuple[int, Node]] = []
    for index, before in expanded:
        node = replace(before, args=tuple(renamed(argument, names) for argument in before.args))
        if _is_shared(node) and all(writes[value] == 1 and value not in outside for value in node.outputs):
            arguments = tuple(_identity(argument) for argument in node.args[:-1])
            key = (node.run, regions[index], arguments, *(versions[value] for value in node.inputs))
            first = known.setdefault(key, len(rows))
            if first != len(rows):
                names.update(zip(node.outputs, rows[first][1].outputs, strict=True))
                equal.setdefault(first, []).extend(node.sources)
                continue
        versions.update(node.written)
        rows.append((index, node))
    for first, sources in equal.items():
        index, node = rows[first]
        rows[first] = index, replace(node, sources=united((*node.sources, *sources)))
    return rewritten(graph, rows, made)


def _is_shared(node: Node) -> bool:
    if node.traits.cheap_to_keep:
        return True
    # Sizes, elements and sums of live scalars.
    return bool(node.outputs) and all(isinstance(value, SymInt) for value in node.outputs)


def _identity(argument: Any) -> Any:
    if isinstance(argument, tuple):
        return tuple(_identity(item) for item in argument)
    return argument if isinstance(argument, Value) else identity(argument)


def _expanded(node: Node, made: list[Tensor]) -> list[Node]:
    """A dq8ca layer as the quantization of its rows and a layer of the quantized rows; any other node as it is.

    Rows become integers where the layer has an integer dot product, else they are fake-quantized.
    """
    if node.name != LINEAR_DQ8CA_Q4:
        return [node]
    x, scale, zero_point, weight, _, scales, group, bias, out = node.args
    int8 = can_quantize_rows(x.max_shape[-1], group, weight, scales, ASYMMETRIC_UINT8)
    dtype, shape = (ASYMMETRIC_UINT8, quantized_shape(x.max_shape)) if int8 else ("float32", x.max_shape)
    made.append(Tensor(f"{x.name} in 8 bits", dtype, shape))
    quantize = QUANTIZE_ROWS if int8 else FAKE_QUANTIZE_ROWS
    return [
        ops.OPS[quantize].bind(node.index, node.label, (x, scale, zero_point, made[-1]), node.sources),
        ops.OPS[LINEAR_Q4].bind(node.index, node.label, (made[-1], weight, scales, group, bias, out), node.sources),
    ]
