"""Rows of 4-bit layers as eight-bit integers where the program says floats: faster, less exact, only if asked for."""

from __future__ import annotations

from dataclasses import replace

from liveshape import ops
from liveshape.errors import UnsupportedError
from liveshape.graph import Graph, Node, Tensor, Value
from liveshape.lower.rewriting import renamed
from liveshape.ops.quantized import FOR_BYTES, takes_bytes

FLOAT32, INT8 = "float32", "int8"
ACTIVATIONS = (FLOAT32, INT8)


def with_activations(graph: Graph, activations: str) -> Graph:
    """The same program with the rows of its 4-bit layers as the caller wants them: float32 as it says, or int8.

    The numbers of a row become integers by groups of 32, each with a step of its own; sums stay float32. Layers whose
    groups of weights do not fit these keep their floats.

    Example: `with_activations(lower(program.file, "forward", program.data), "int8")`.
    """
    if activations not in ACTIVATIONS:
        raise ValueError(f"activations {activations!r}: {' or '.join(ACTIVATIONS)} is possible")
    if activations == FLOAT32:
        return graph
    for_bytes: dict[Value, Value] = {}
    nodes = []
    for node in graph.nodes:
        weight = _weight(node)
        if weight is not None:
            for_bytes.setdefault(weight, replace(weight, dtype=FOR_BYTES))
            node = replace(node, args=renamed(node.args, {weight: for_bytes[weight]}))
        nodes.append(node)
    if not for_bytes:
        raise UnsupportedError(
            f"{graph.name} has no 4-bit layer whose activations could be int8: these have float32 rows, and groups "
            "of a multiple of 32 weights (`liveshape export --quant 4w`)"
        )
    kept = {value for node in nodes for value in node.inputs}
    values = [value for value in graph.values if value not in for_bytes or value in kept]
    return replace(graph, nodes=tuple(nodes), values=(*values, *for_bytes.values()))


def _weight(node: Node) -> Tensor | None:
    """The weight of a 4-bit layer whose rows could be bytes."""
    found = ops.OPS.get(node.name)
    named = {} if found is None else dict(zip((each.name for each in found.parameters), node.args, strict=True))
    x, weight, group = (named.get(name) for name in ("x", "weight", "group_size"))
    if "q4gsw" not in node.name or not (
        isinstance(x, Tensor) and isinstance(weight, Tensor) and isinstance(group, int)
    ):
        return None
    return weight if x.dtype == "float32" and takes_bytes(x.max_shape[-1], group, weight.max_shape) else None
