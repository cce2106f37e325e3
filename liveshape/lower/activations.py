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
_WEIGHTS = {FLOAT32: "uint8", INT8: FOR_BYTES}  # the dtype of a weight says it


def with_activations(graph: Graph, activations: str) -> Graph:
    """The same program with the rows of its 4-bit layers as the caller wants them: float32 as it says, or int8.

    The numbers of a row become integers by groups of 32, each with a step of its own; sums stay float32. Layers whose
    groups of weights do not fit these keep their floats, and so do layers with weights of 8 bits.

    Example: `with_activations(lower(program.file, "forward", program.data), "int8")`.
    """
    if activations not in ACTIVATIONS:
        raise ValueError(f"activations {activations!r}: {' or '.join(ACTIVATIONS)} is possible")
    told: dict[Value, Tensor] = {}
    nodes = []
    for node in graph.nodes:
        weight = _weight(node)
        if weight is not None and weight.dtype != _WEIGHTS[activations]:
            # A file, too, may call its weights int8: what it wants of its rows is said by its operators alone.
            other = told.setdefault(weight, replace(weight, dtype=_WEIGHTS[activations]))
            node = replace(node, args=renamed(node.args, {weight: other}))
        nodes.append(node)
    if activations == INT8 and not any(_weight(node) for node in nodes):
        raise UnsupportedError(
            f"{graph.name} has no 4-bit layer whose activations could be int8: these have float32 rows, and groups "
            "of a multiple of 32 weights (`liveshape export --quant 4w`); layers of 8 bits keep rows of floats"
        )
    if not told:
        return graph
    kept = {value for node in nodes for value in node.inputs} | {*graph.outputs}
    gone = told.keys() - kept
    values = [value for value in graph.values if value not in gone]
    return replace(graph, nodes=tuple(nodes), values=(*values, *told.values()))


def _weight(node: Node) -> Tensor | None:
    """The weight of a 4-bit layer whose rows could be bytes."""
    found = ops.OPS.get(node.name)
    named = {} if found is None else dict(zip((each.name for each in found.parameters), node.args, strict=True))
    x, weight, group = (named.get(name) for name in ("x", "weight", "group_size"))
    if "q4gsw" not in node.name or not (
        isinstance(x, Tensor) and isinstance(weight, Tensor) and isinstance(group, int)
    ):
        return None
    known = x.dtype == "float32" or weight.dtype == FOR_BYTES
    return weight if known and takes_bytes(x.max_shape[-1], group, weight.max_shape) else None
