"""Operator fusion: several operators as one dispatch, where the result is provably the same.

`FUSIONS` is the table: the operator that anchors a pattern, the fused ones, and the function that knows its conditions.
The rows apply one after the other, each to what the one before it left. The nodes of a pattern lie in one basic block.
The first rows are quantized weights that a file writes as several operators (`weight_patterns.py`) and the batch norms
of convolutions (`convolution_patterns.py`): they alone change the last bits of a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from liveshape import ops
from liveshape.graph import Graph, Limits, Node, Shape, Tensor
from liveshape.graph.constants import Interleaved
from liveshape.graph.elements import prod
from liveshape.graph.sources import united
from liveshape.lower.attention_patterns import ATTENTIONS
from liveshape.lower.convolution_patterns import FOLDED_NORMS
from liveshape.lower.def_use import DefUse
from liveshape.lower.layout_patterns import LAYOUTS
from liveshape.lower.pattern import Fusion, Replacement, exact, fit
from liveshape.lower.pattern_operators import (
    ADD,
    ADD_RMS_NORM,
    ATTENTION,
    ATTENTION_WITH_UPDATE,
    GATED_LAYERS,
    LINEAR_Q4,
    MUL,
    QKV_LAYERS,
    RESIDUAL_LAYER,
    RMS_NORM,
    RMS_NORM_LAYERS,
    ROTARY,
    ROTARY_LAYERS,
    ROTARY_TO_CACHE,
    SIGMOID,
    SWIGLU,
    UPDATE,
    VIEW,
)
from liveshape.lower.product_patterns import PRODUCTS
from liveshape.lower.q4_patterns import NO_VALUES, residual_layer, rms_norm_layer, rotary_layers
from liveshape.lower.result_patterns import FIRST_RESULTS
from liveshape.lower.rewriting import rewritten, without_orphans
from liveshape.lower.row_orders import ROW_ORDERS
from liveshape.lower.sibling_products import SIBLINGS
from liveshape.lower.weight_patterns import DEQUANTIZED_WEIGHTS


def fuse(graph: Graph, limits: Limits | None = None) -> Graph:
    """The same program in fewer nodes, for a device with these limits.

    Example: `fuse(graph, device.limits)`.
    """
    limits = limits or Limits()
    for fusion in (*FUSIONS, *LAYOUTS, *PRODUCTS, *ROW_ORDERS, *ATTENTIONS, SIBLINGS, FIRST_RESULTS):
        graph = applied(fusion, graph, limits)
    return graph


def applied(fusion: Fusion, graph: Graph, limits: Limits) -> Graph:
    """A graph with one row of the table looked for: what it left is what the next row sees.

    Example: `applied(FUSIONS[0], graph, device.limits)`.
    """
    anchors = [node for node in graph.nodes if node.name in fusion.anchors]
    if not anchors:
        return graph
    uses = DefUse(graph)
    replaced: dict[Node, Node] = {}
    gone: set[Node] = set()
    made: list[Tensor] = []
    absorbs = False
    for node in anchors:
        found = fusion.match(uses, node, limits)
        touched = {each for replacement in found for each in replacement.nodes}
        if not touched or not touched.isdisjoint(gone) or not uses.in_basic_block([*touched]):
            continue
        gone |= touched
        for each in found:
            label = " + ".join(dict.fromkeys((each.nodes[0].label, each.nodes[-1].label)))
            sources = united(source for node in (*each.nodes, *each.absorbed) for source in node.sources)
            replaced[each.place] = ops.OPS[each.operator].bind(each.place.index, label, each.args, sources)
            made += each.made
            absorbs = absorbs or bool(each.absorbed)
    if not replaced:
        return graph
    rows = [(node.index, replaced.get(node, node)) for node in graph.nodes if node in replaced or node not in gone]
    made_graph = rewritten(graph, rows, made)
    return without_orphans(made_graph, gone) if absorbs else made_graph


def _add_rms_norm(uses: DefUse, add: Node, limits: Limits) -> Sequence[Replacement]:
    """total = a + b; out = rms_norm(total): at the place of the add, since the weight is a constant."""
    a, b, alpha, total = add.args
    norms = [node for node in uses.consumers.get(total, []) if node.name == RMS_NORM]
    if (
        alpha != 1
        or len(norms) != 1
        or norms[0].args[0] is not total
        or not uses.single_assignment(total, norms[0].args[-1])
    ):
        return ()
    _, weight, eps, out = norms[0].args
    if weight.constant is None or uses.writes[weight] or a.max_shape != b.max_shape:
        return ()
    if not exact(a, b, total, weight, out):
        return ()
    return [Replacement(add, ADD_RMS_NORM, (add, norms[0]), (a, b, weight, eps, (total, out)))]


def _gated_unit(uses: DefUse, sigmoid: Node, limits: Limits) -> Sequence[Replacement]:
    """SwiGLU: s = sigmoid(gate); silu = gate * s; out = silu * up: at the last product, its two linears fused."""
    gate, factor = sigmoid.args
    first = uses.only_consumer(factor)
    if first is None or first.name != MUL or {*first.args[:2]} != {gate, factor}:
        return ()
    silu = first.args[-1]
    second = uses.only_consumer(silu)
    if second is None or second.name != MUL or second.args[0] is second.args[1]:
        return ()
    up = second.args[1] if second.args[0] is silu else second.args[0]
    out = second.args[-1]
    if not uses.single_assignment(gate, factor, silu, up, out) or not uses.same_rows(gate, up):
        return ()
    if not exact(gate, factor, silu, up, out):
        return ()
    unit = sigmoid, first, second
    return _gated_layers(uses, gate, up, unit, limits) or [Replacement(second, SWIGLU, unit, (gate, up, out))]


def _gated_layers(
    uses: DefUse, gate: Tensor, up: Tensor, unit: tuple[Node, Node, Node], limits: Limits
) -> Sequence[Replacement]:
    """SwiGLU as the epilogue of its two linears. Where both are viewed alike, the result is viewed instead."""
    sigmoid, first, second = unit
    out = target = second.args[-1]
    producers = [uses.producer[gate], uses.producer[up]]
    views = [node for node in producers if node.name == VIEW]
    layers = [uses.producer.get(node.args[0], node) if node in views else node for node in producers]
    private = uses.used_only_by((sigmoid, first), gate) and uses.used_only_by((second,), up)
    private = private and all(uses.used_only_by((node,), node.args[0]) for node in views)
    merged = _merged(uses, layers, limits, interleaved=True) if private else None
    if merged is None or not uses.in_basic_block([*layers, *views, *unit]):
        return ()
    gone = (*layers, *views, *unit)
    found = []
    made = merged.made
    if any(uses.viewed(node.args[-1]) is node.args[-1] for node in views):
        target = Tensor(f"{out.name} before its view", out.dtype, layers[0].args[-1].max_shape)
        made = (*made, target)
        found.append(Replacement(second, VIEW, gone, (target, views[0].args[1], out)))
    last = max(layers, key=lambda node: node.index)
    return [*found, Replacement(last, GATED_LAYERS, gone, (*merged.args, target), made)]


def _qkv_layers(uses: DefUse, node: Node, limits: Limits) -> Sequence[Replacement]:
    """QKV projection: three linears of one input with nothing but views between them: at the place of the first.

    The values may have another format: files keep more bits of these.
    """
    found = [node]
    for other in uses.graph.nodes[node.index + 1 :]:
        if other.name == LINEAR_Q4 and other.args[0] is node.args[0]:
            found.append(other)
        if len(found) == 3 or not (other is found[-1] or other.alias):
            break
    if len(found) != 3:
        return ()
    merged = _merged(uses, found, limits, interleaved=False)
    merged = _with_values_apart(uses, found, limits) if merged is None else merged.with_args(*NO_VALUES)
    if merged is None:
        return ()
    outs = tuple(layer.args[-1] for layer in found)
    return [Replacement(node, QKV_LAYERS, tuple(found), (*merged.args, outs), merged.made)]


def _rotary_to_cache(uses: DefUse, writer: Node, limits: Limits) -> Sequence[Replacement]:
    """Rotary embedding of queries and keys: it also updates the KV cache, if values are there.

    That is what attention with an update begins with, or a node of its own.
    """
    attends = writer.name == ATTENTION_WITH_UPDATE
    k, v, k_cache, v_cache, position = writer.args[1:6] if attends else writer.args[:5]
    rotary = uses.producer.get(k)
    if rotary is None or rotary.name not in ROTARY or rotary.args[-1][1] is not k:
        return ()
    xq, xk, cosine, sine, *starts, (q, _) = rotary.args
    if not uses.single_assignment(q, k) or (attends and writer.args[0] is not q):
        return ()
    if len(cosine.max_shape) != 2:  # the rows of queries and keys lie elsewhere, see ops/rotary.py
        return ()
    start = starts[0] if starts else None
    table = [value for value in dict.fromkeys((start, position)) if isinstance(value, Tensor)]
    if table and start not in (None, position):
        return ()
    private = uses.used_only_by((writer,), k) and (not attends or uses.used_only_by((writer,), q))
    # Values and position are read and the caches are written earlier than they were: no hazard in between.
    no_hazards = all(uses.unchanged(value, (rotary, writer)) for value in (v, position, k_cache, v_cache))
    between = uses.graph.nodes[rotary.index : writer.index]
    no_hazards = no_hazards and all({k_cache, v_cache}.isdisjoint(node.inputs) for node in between)
    tensors = (xq, xk, v, cosine, sine, k_cache, v_cache, q)
    if not (private and no_hazards and fit((*tensors, *table), limits) and exact(*tensors)):
        return ()
    args = (xq, xk, v, cosine, sine, start, k_cache, v_cache, position, q)
    fused = Replacement(rotary, ROTARY_TO_CACHE, (rotary, writer), args)
    if not attends:
        return [fused]
    return [fused, Replacement(writer, ATTENTION, (rotary, writer), (q, k_cache, v_cache, position, *writer.args[7:]))]


FUSIONS = (
    *DEQUANTIZED_WEIGHTS,
    FOLDED_NORMS,
    Fusion(
        "SwiGLU, in the epilogue of its two linears if they are of 4 bits",
        frozenset({SIGMOID}),
        (GATED_LAYERS, SWIGLU),
        _gated_unit,
    ),
    Fusion(
        "rotary embedding and the update of the KV cache",
        frozenset({ATTENTION_WITH_UPDATE, UPDATE}),
        (ROTARY_TO_CACHE, ATTENTION),
        _rotary_to_cache,
    ),
    Fusion(
        "QKV projection: three 4-bit linears of one input, the last of any format",
        frozenset({LINEAR_Q4}),
        (QKV_LAYERS,),
        _qkv_layers,
    ),
    Fusion(
        "QKV projection with rotary embedding and KV cache in its epilogue",
        frozenset({ROTARY_TO_CACHE}),
        (ROTARY_LAYERS,),
        rotary_layers,
    ),
    Fusion(
        "4-bit linear with a residual add in its epilogue",
        frozenset({ADD}),
        (RESIDUAL_LAYER,),
        residual_layer,
    ),
    Fusion(
        "residual add and RMSNorm",
        frozenset({ADD}),
        (ADD_RMS_NORM,),
        _add_rms_norm,
    ),
    Fusion(
        "RMSNorm in the prologue of 4-bit linears",
        frozenset({RMS_NORM}),
        tuple(RMS_NORM_LAYERS.values()),
        rms_norm_layer,
    ),
)


class _Layer(NamedTuple):
    """The arguments of a 4-bit linear layer."""

    x: Tensor
    weight: Tensor
    scales: Tensor
    group: int
    bias: Tensor | None
    out: Tensor

    @property
    def constants(self) -> tuple[Tensor, ...]:
        return (self.weight, self.scales) if self.bias is None else (self.weight, self.scales, self.bias)

    @property
    def signature(self) -> tuple[Any, ...]:
        """What linears must have in common to be fused into one."""
        dtypes = [tensor.dtype for tensor in (*self.constants, self.out)]
        return self.x, self.group, self.weight.max_shape[1:], self.scales.max_shape[:-1], dtypes


class _Merged(NamedTuple):
    """The inputs of one linear that has the columns of several, and the constants that were made for it."""

    args: tuple[Any, ...]
    made: tuple[Tensor, ...]

    def with_args(self, *more: Any) -> _Merged:
        return self._replace(args=(*self.args, *more))


def _merged(uses: DefUse, nodes: Sequence[Node], limits: Limits, *, interleaved: bool) -> _Merged | None:
    """Several linears as one, their columns interleaved or concatenated."""
    if any(node.name != LINEAR_Q4 for node in nodes):
        return None
    layers = [_Layer(*node.args) for node in nodes]
    for node, layer in zip(nodes, layers, strict=True):
        alike = layer.signature == layers[0].signature and layer.scales.max_shape[-1] == layer.weight.max_shape[0]
        own = all(uses.private_constant(node, tensor) for tensor in layer.constants)
        if not (alike and own and uses.single_assignment(layer.out)):
            return None
    if not uses.unchanged(layers[0].x, nodes):
        return None
    x, weight, scales, group, bias, _ = layers[0]
    columns = sum(layer.weight.max_shape[0] for layer in layers)
    weights = _merged_constant([layer.weight for layer in layers], (columns, *weight.max_shape[1:]), 0, interleaved)
    by_group = scales.max_shape[:-1]
    factors = _merged_constant([layer.scales for layer in layers], (*by_group, columns), len(by_group), interleaved)
    terms = [layer.bias for layer in layers if layer.bias is not None]
    added = None if bias is None else _merged_constant(terms, (columns,), 0, interleaved)
    made = tuple(tensor for tensor in (weights, factors, added) if tensor is not None)
    return _Merged((x, weights, factors, group, added), made) if fit(made, limits) else None


def _with_values_apart(uses: DefUse, nodes: Sequence[Node], limits: Limits) -> _Merged | None:
    """Queries and keys as one linear, and the values as they are; their biases as one."""
    merged = _merged(uses, nodes[:2], limits, interleaved=False)
    if merged is None or _merged(uses, nodes[2:], limits, interleaved=False) is None:
        return None
    layers = [_Layer(*node.args) for node in nodes]
    queries, _, values = layers
    terms = [layer.bias for layer in layers if layer.bias is not None]
    alike = len({term.dtype for term in terms}) < 2 and values.out.dtype == queries.out.dtype
    if not alike or len(terms) not in (0, 3) or not uses.unchanged(queries.x, nodes):
        return None
    bias = _merged_constant(terms, (sum(term.max_shape[0] for term in terms),), 0, False) if terms else None
    made = merged.made[:2] if bias is None else (*merged.made[:2], bias)
    return _Merged((*merged.args[:4], bias, values.weight, values.scales, values.group), made)


def _merged_constant(tensors: Sequence[Tensor], shape: Shape, axis: int, interleaved: bool) -> Tensor:
    """One constant of several: single slices of an axis interleaved, or concatenated along it."""
    data = [tensor.constant for tensor in tensors if tensor.constant is not None]
    runs = [
        len(each) // prod(tensor.max_shape[: axis + interleaved]) for each, tensor in zip(data, tensors, strict=True)
    ]
    name = " + ".join(tensor.name for tensor in tensors)
    return Tensor(name, tensors[0].dtype, shape, constant=Interleaved(tuple(data), tuple(runs)))
