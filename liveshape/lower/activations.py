"""Rows of 4-bit layers as eight-bit integers where the program says floats: faster, less exact, only if asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from liveshape.errors import UnsupportedError
from liveshape.graph import Graph, Limits, Node, Tensor, Value
from liveshape.lower.fusion import applied
from liveshape.lower.pattern import Fusion, Replacement, exact, fit
from liveshape.lower.pattern_operators import ADDED_LAYER, GATED_LAYERS, NORM, NORMED, ROUNDED_ADDED_LAYER
from liveshape.lower.q4_patterns import MANY_THREADS
from liveshape.lower.rewriting import renamed
from liveshape.lower.search import Search
from liveshape.ops.quantized import BYTES, FOR_BYTES, can_quantize_rows, quantized_shape
from liveshape.ops.quantized_ways import STEP_PLACES

FLOAT32, INT8 = "float32", "int8"
ACTIVATIONS = (FLOAT32, INT8)
_GATED = (GATED_LAYERS, NORMED[GATED_LAYERS])
_WEIGHTS = {FLOAT32: "uint8", INT8: FOR_BYTES}  # the dtype of a weight says it


def with_activations(graph: Graph, activations: str, limits: Limits | None = None) -> Graph:
    """The same program with the rows of its 4-bit layers as the caller wants them: float32 as it says, or int8.

    The numbers of a row become integers by groups of 32, each with a step of its own; sums stay float32. Layers whose
    groups of weights do not fit these keep their floats, and so do layers with weights of 8 bits.

    Example: `with_activations(lower(program.file, "forward", program.data), "int8", device.limits)`.
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
    changed = _with_values(graph, nodes, told) if told else graph
    if activations != INT8:
        return changed
    return _bytes_between(applied(_NORMED_LATER, changed, limits or Limits()))


def _bytes_between(graph: Graph) -> Graph:
    """The same program with rows that layers of bytes alone read made bytes where they are made, by a norm or by a
    gated unit of such layers. The dtype of the rows says it to both; the bytes are those that the layers would make."""
    search = Search(graph)
    between: dict[Value, Tensor] = {}
    for node in graph.nodes:
        gives = node.name == NORM or (node.name in _GATED and _of_bytes(node))
        rows = node.args[-1] if gives else None
        if not isinstance(rows, Tensor) or rows.dtype != FLOAT32 or rows in graph.outputs or not search.once(rows):
            continue
        readers = search.readers.get(rows, [])
        if readers and all(_reads_bytes(reader, rows) for reader in readers):
            between[rows] = Tensor(f"{rows.name} in 8 bits", BYTES[0], quantized_shape(rows.max_shape))
    if not between:
        return graph
    return _with_values(graph, [replace(node, args=renamed(node.args, between)) for node in graph.nodes], between)


def _normed_later(search: Search, node: Node, limits: Limits) -> Sequence[Replacement]:
    """total = residual + layer(x); out = layers(rms_norm(total)), all of them of bytes: one row of the total is made
    bytes where it is added, and normed by a factor of the layers' sums, which its squares tell."""
    nodes: tuple[Node, ...] = (node,)
    if node.name == NORM:
        x, factors, eps, normed = node.args
        layer = search.only_reader(normed)
        if layer is None or layer.name not in NORMED or not (_reads_bytes(layer, normed) and search.once(normed)):
            return ()
        operator, rest, nodes = NORMED[layer.name], layer.args[1:], (node, layer)
    else:
        x, factors, _, eps = node.args[:4]
        operator, layer, rest = node.name, node, node.args[5:]
    added = search.maker.get(x)
    if added is None or added.name != ADDED_LAYER or not (_of_bytes(added) and _of_bytes(layer)):
        return ()
    rows, weight, scales, group, bias, residual, total = added.args
    rounded = Tensor(f"{total.name} before its norm in 8 bits", BYTES[0], quantized_shape(total.max_shape))
    bound = (rows, weight, scales, rows if bias is None else bias, residual, factors, total, rounded)
    steady = search.once(total) and factors.constant is not None and not search.writes[factors]
    whole = total.max_shape[-1] % STEP_PLACES == 0 and factors.max_shape == total.max_shape[-1:]
    many = limits.max_cooperating_threads >= MANY_THREADS
    if not (many and steady and whole and exact(residual, total, factors) and fit(bound, limits)):
        return ()
    given = (rows, weight, scales, group, bias, residual, factors, (total, rounded))
    return [
        Replacement(added, ROUNDED_ADDED_LAYER, (added,), given, (rounded,)),
        Replacement(layer, operator, nodes, (total, factors, factors, eps, rounded, *rest)),
    ]


_NORMED_LATER = Fusion(
    "a sum of a layer of bytes, the norm of it, and layers of bytes that alone read this",
    frozenset({NORM, *NORMED.values()}),
    (ROUNDED_ADDED_LAYER, *NORMED.values()),
    _normed_later,
)


def _with_values(graph: Graph, nodes: list[Node], made: Mapping[Value, Tensor]) -> Graph:
    """The graph with these nodes, which read and write what was made instead of values that may now be gone."""
    kept = {value for node in nodes for value in (*node.inputs, *node.outputs)} | {*graph.outputs}
    gone = made.keys() - kept
    values = [value for value in graph.values if value not in gone]
    return replace(graph, nodes=tuple(nodes), values=(*values, *made.values()))


def _reads_bytes(node: Node, rows: Tensor) -> bool:
    """Whether a node is layers of bytes, and these are their rows and nothing else; the norm that some have is not."""
    product = node.traits.product
    plain = product is not None and not product.normed and node.args[0] is rows and node.inputs.count(rows) == 1
    return plain and _of_bytes(node)


def _of_bytes(node: Node) -> bool:
    weight = _weight(node)
    return weight is not None and weight.dtype == FOR_BYTES


def _weight(node: Node) -> Tensor | None:
    """The weight of a 4-bit layer whose rows could be bytes."""
    product = node.traits.product
    if product is None or not product.byte_rows:
        return None
    x, weight, group = (node.named.get(name or "") for name in (product.rows, product.weight, "group_size"))
    if not (isinstance(x, Tensor) and isinstance(weight, Tensor) and isinstance(group, int)):
        return None
    known = x.dtype == "float32" or weight.dtype == FOR_BYTES
    return weight if known and can_quantize_rows(x.max_shape[-1], group, weight.max_shape) else None
