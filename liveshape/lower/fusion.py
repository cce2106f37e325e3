"""Operator fusion: several operators as one dispatch.

`FUSIONS` is the table: the operator that anchors a pattern, and the function that knows its conditions.
The rows apply one after the other, each to what the one before it left. The nodes of a pattern lie in one basic block.
Results are provably bit-equal, but for rows that say `reorders`, whose results are no further from the truth: quantized
weights that a file writes as several operators (`weight_patterns.py`), batch norms of convolutions
(`convolution_patterns.py`), attention that is spelled out, and the RMSNorm of 4-bit linears, applied behind their sums.
"""

from __future__ import annotations

from collections.abc import Sequence

from liveshape.graph import Graph, Limits, Node, Tensor
from liveshape.lower.attention_patterns import ATTENTIONS
from liveshape.lower.convolution_patterns import FOLDED_NORMS
from liveshape.lower.def_use import DefUse
from liveshape.lower.layout_patterns import LAYOUTS
from liveshape.lower.pattern import Fusion, Replacement, exact, fit, with_replacements
from liveshape.lower.pattern_operators import (
    ADD,
    ADD_RMS_NORM,
    ATTENTION,
    ATTENTION_WITH_UPDATE,
    LINEAR_Q4,
    RMS_NORM,
    ROTARY,
    ROTARY_TO_CACHE,
    UPDATE,
)
from liveshape.lower.product_patterns import PRODUCTS
from liveshape.lower.q4_patterns import gated_layers, qkv_layers, residual_layer, rms_norm_layer, rotary_layers
from liveshape.lower.result_patterns import FIRST_RESULTS
from liveshape.lower.row_orders import ROW_ORDERS
from liveshape.lower.sibling_products import SIBLINGS
from liveshape.lower.split_products import with_products_apart
from liveshape.lower.weight_patterns import DEQUANTIZED_WEIGHTS


def fuse(graph: Graph, limits: Limits | None = None) -> Graph:
    """The same program in fewer nodes, for a device with these limits.

    Example: `fuse(graph, device.limits)`.
    """
    limits, uses = limits or Limits(), DefUse(graph)
    for fusion in (*FUSIONS, *LAYOUTS, *PRODUCTS, *ROW_ORDERS, *ATTENTIONS, SIBLINGS, FIRST_RESULTS):
        made = applied(fusion, uses, limits)
        if made is not uses.graph:  # most rows find nothing: what is known of the graph stays true
            uses = DefUse(made)
    return with_products_apart(uses.graph)


def applied(fusion: Fusion, uses: DefUse, limits: Limits) -> Graph:
    """A graph with one row of the table looked for: what it left is what the next row sees.

    Example: `applied(FUSIONS[0], DefUse(graph), device.limits)`.
    """
    graph = uses.graph
    anchors = [node for node in graph.nodes if node.name in fusion.anchors]
    if not anchors:
        return graph
    found: list[Replacement] = []
    gone: set[Node] = set()
    for node in anchors:
        matched = fusion.match(uses, node, limits)
        touched = {each for replacement in matched for each in replacement.nodes}
        if touched and touched.isdisjoint(gone) and uses.in_basic_block([*touched]):
            gone |= touched
            found += matched
    return with_replacements(graph, found)


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
        "an expression of two 4-bit linears of one input, in the epilogue of both", frozenset({LINEAR_Q4}), gated_layers
    ),
    Fusion(
        "rotary embedding and the update of the KV cache", frozenset({ATTENTION_WITH_UPDATE, UPDATE}), _rotary_to_cache
    ),
    Fusion(
        "QKV projection: three 4-bit linears of one input, the last of any format", frozenset({LINEAR_Q4}), qkv_layers
    ),
    Fusion(
        "QKV projection with rotary embedding and KV cache in its epilogue", frozenset({ROTARY_TO_CACHE}), rotary_layers
    ),
    Fusion("4-bit linear with a residual add in its epilogue", frozenset({ADD}), residual_layer),
    Fusion("residual add and RMSNorm", frozenset({ADD}), _add_rms_norm),
    Fusion(
        "RMSNorm in the prologue of 4-bit linears",
        frozenset({RMS_NORM}),
        rms_norm_layer,
        reorders=True,  # at one row, whose sums are scaled by the norm
    ),
)
