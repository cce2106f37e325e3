"""int8 activations for layers of 4 and 8 bits where the program says float32: faster, less exact, only if asked for.

With them, and with float16, many scales of weights become float16, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from liveshape.errors import UnsupportedError
from liveshape.graph import Graph, Limits, Node, Tensor, Value
from liveshape.graph.activation_kinds import ACTIVATIONS, FLOAT16, FLOAT32, INT8, check_activations
from liveshape.graph.constants import RoundedConstant
from liveshape.lower.def_use import DefUse
from liveshape.lower.fusion import applied
from liveshape.lower.pattern import Fusion, Replacement, exact, fit
from liveshape.lower.pattern_operators import (
    GATED_LAYERS,
    RESIDUAL_LAYER,
    RESIDUAL_QUANTIZED_LAYER,
    RMS_NORM,
    RMS_NORM_LAYERS,
)
from liveshape.lower.rewriting import renamed
from liveshape.ops.q4_heuristics import QUANT_GROUP, defers_norm
from liveshape.ops.quantized_rows import (
    FLOAT_ACTIVATIONS,
    INT8_ACTIVATIONS,
    SYMMETRIC_INT8,
    WITH_MINIMA_RANK,
    can_quantize_rows,
    quantized_shape,
)

_GATED = (GATED_LAYERS, RMS_NORM_LAYERS[GATED_LAYERS])
_SMALL_GROUP = 16  # of weights with one scale, which takes two bits of each in float32
# The dtype of a weight says it.
_WEIGHTS = {FLOAT32: FLOAT_ACTIVATIONS, FLOAT16: FLOAT_ACTIVATIONS, INT8: INT8_ACTIVATIONS}


def with_activations(
    graph: Graph, activations: str, limits: Limits | None = None, fit_halves: Callable[[Tensor], bool] | None = None
) -> Graph:
    """The same program with the activations of its quantized layers as the caller wants them: float32, or int8.

    float16 is the graph of float32: `Limits.half_inputs` tells operators where kernels are chosen. For int8 rows are
    quantized by groups of 32, each with a scale; sums stay float32. Layers whose groups of weights do not
    align with these keep float activations; 8-bit weights without minima may have groups of 16.

    With either of them scales that take more than a bit of every weight are rounded to float16, if `fit_halves` says
    that they may be, and the device has float16 and is bound by their bandwidth.

    Example: `with_activations(lower(program.file, "forward", program.data), "int8", device.limits)`.
    """
    check_activations(activations, ACTIVATIONS)
    retyped: dict[Value, Tensor] = {}
    nodes = []
    for node in graph.nodes:
        wanted = _WEIGHTS[activations] if _can_be_int8(node) else FLOAT_ACTIVATIONS
        # A file, too, may call its weights int8: what it wants of its rows is said by its operators alone.
        others = [weight for weight, _, _ in _formats(node) if weight.dtype != wanted]
        made = {weight: retyped.setdefault(weight, replace(weight, dtype=wanted)) for weight in others}
        nodes.append(replace(node, args=renamed(node.args, made)) if made else node)
    if activations == INT8 and not any(_can_be_int8(node) for node in nodes):
        raise UnsupportedError(
            f"{graph.name} has no 4-bit layer whose activations could be int8, nor one of 8 bits: these have float32 "
            "rows, and groups of a multiple of 32 weights (`liveshape export --quant 4w`), or of 16 with 8 bits"
        )
    changed = _with_values(graph, nodes, retyped) if retyped else graph
    if activations == INT8:
        changed = _quantize_between_layers(applied(_DEFERRED_NORM, DefUse(changed), limits or Limits()))
    if limits is None or fit_halves is None or not _rounds_scales(activations, limits):
        return changed
    return _with_half_scales(changed, fit_halves)


def _rounds_scales(activations: str, limits: Limits) -> bool:
    """Whether a kind of activations rounds scales on a device; float16 rounds nothing where it has no matrix units."""
    rounded = activations == INT8 or (activations == FLOAT16 and bool(limits.matrices_of(FLOAT16)))
    return rounded and limits.half and limits.has_many_threads


def _with_half_scales(graph: Graph, fit_halves: Callable[[Tensor], bool]) -> Graph:
    """Scales of small groups, or with minima, as float16: half of what is up to a third of a layer's bytes."""
    rounded: dict[Value, Tensor] = {}
    nodes = []
    for node in graph.nodes:
        found = {scales: group for _, scales, group in _formats(node)}
        for scales, group in found.items():
            many = scales.rank == WITH_MINIMA_RANK or group <= _SMALL_GROUP
            data = None if graph.writers[scales] else scales.constant
            if many and data is not None and scales not in rounded and scales.dtype == FLOAT32 and fit_halves(scales):
                name = f"{scales.name} in float16"
                rounded[scales] = replace(scales, name=name, dtype=FLOAT16, constant=RoundedConstant(data))
        known = {scales: rounded[scales] for scales in found if scales in rounded}
        nodes.append(replace(node, args=renamed(node.args, known)) if known else node)
    return _with_values(graph, nodes, rounded) if rounded else graph


def _quantize_between_layers(graph: Graph) -> Graph:
    """Rows that only int8 layers read are quantized by their producer, an RMSNorm or the epilogue of a gated unit.

    The dtype of the rows says it to both sides; the codes are those that the layers would make."""
    uses = DefUse(graph)
    between: dict[Value, Tensor] = {}
    for node in graph.nodes:
        can_quantize = node.name == RMS_NORM or (node.name in _GATED and _takes_int8(node))
        rows = node.args[-1] if can_quantize else None
        if not isinstance(rows, Tensor) or rows.dtype != FLOAT32 or rows in graph.outputs:
            continue
        consumers = uses.consumers.get(rows, [])
        by_int8_layers = bool(consumers) and all(_reads_quantized(consumer, rows) for consumer in consumers)
        if by_int8_layers and uses.single_assignment(rows):
            between[rows] = Tensor(f"{rows.name} in 8 bits", SYMMETRIC_INT8, quantized_shape(rows.max_shape))
    if not between:
        return graph
    return _with_values(graph, [replace(node, args=renamed(node.args, between)) for node in graph.nodes], between)


def _deferred_norm(uses: DefUse, node: Node, limits: Limits) -> Sequence[Replacement]:
    """total = residual + layer(x); out = layers(rms_norm(total)), all of them int8: of one row the first epilogue
    quantizes the total and writes its sum of squares, from which the layers apply the RMSNorm scale in theirs."""
    nodes: tuple[Node, ...] = (node,)
    if node.name == RMS_NORM:
        x, norm_weight, eps, normed = node.args
        layer = uses.only_consumer(normed)
        if layer is None or layer.name not in RMS_NORM_LAYERS or not _reads_quantized(layer, normed):
            return ()
        if not uses.single_assignment(normed):
            return ()
        operator, rest, nodes = RMS_NORM_LAYERS[layer.name], layer.args[1:], (node, layer)
    else:
        x, norm_weight, _, eps = node.args[:4]
        operator, layer, rest = node.name, node, node.args[5:]
    residual_layer = uses.producer.get(x)
    if (
        residual_layer is None
        or residual_layer.name != RESIDUAL_LAYER
        or not (_takes_int8(residual_layer) and _takes_int8(layer))
    ):
        return ()
    rows, weight, scales, group, bias, residual, total = residual_layer.args
    quantized = Tensor(f"{total.name} before its norm in 8 bits", SYMMETRIC_INT8, quantized_shape(total.max_shape))
    bound = (rows, weight, scales, rows if bias is None else bias, residual, norm_weight, total, quantized)
    no_hazards = uses.single_assignment(total) and norm_weight.constant is not None and not uses.writes[norm_weight]
    aligned = total.max_shape[-1] % QUANT_GROUP == 0 and norm_weight.max_shape == total.max_shape[-1:]
    if not (
        defers_norm(1, limits) and no_hazards and aligned and exact(residual, total, norm_weight) and fit(bound, limits)
    ):
        return ()
    given = (rows, weight, scales, group, bias, residual, norm_weight, (total, quantized))
    return [
        Replacement(residual_layer, RESIDUAL_QUANTIZED_LAYER, (residual_layer,), given, (quantized,)),
        Replacement(layer, operator, nodes, (total, norm_weight, norm_weight, eps, quantized, *rest)),
    ]


_DEFERRED_NORM = Fusion(
    "residual add of an int8 layer, its RMSNorm, and the int8 layers that alone read this",
    frozenset({RMS_NORM, *RMS_NORM_LAYERS.values()}),
    _deferred_norm,
    reorders=True,
)


def _with_values(graph: Graph, nodes: list[Node], made: Mapping[Value, Tensor]) -> Graph:
    """The graph with these nodes, which read and write what was made instead of values that may now be gone."""
    kept = {value for node in nodes for value in (*node.inputs, *node.outputs)} | {*graph.outputs}
    gone = made.keys() - kept
    values = [value for value in graph.values if value not in gone]
    return replace(graph, nodes=tuple(nodes), values=(*values, *made.values()))


def _reads_quantized(node: Node, rows: Tensor) -> bool:
    """Whether a node is int8 layers, and these are their rows and nothing else; not so with an RMSNorm fused in."""
    product = node.traits.product
    plain = product is not None and not product.normed and node.args[0] is rows and node.inputs.count(rows) == 1
    return plain and _takes_int8(node)


def _takes_int8(node: Node) -> bool:
    return _can_be_int8(node) and all(weight.dtype == INT8_ACTIVATIONS for weight, _, _ in _formats(node))


def _can_be_int8(node: Node) -> bool:
    """Whether the activations of a layer could be int8: each of its weights takes such rows."""
    formats, product = _formats(node), node.traits.product
    x = node.named.get(product.rows or "") if product is not None and formats else None
    return isinstance(x, Tensor) and all(
        (x.dtype == FLOAT32 or weight.dtype == INT8_ACTIVATIONS)
        and isinstance(group, int)
        and can_quantize_rows(x.max_shape[-1], group, weight, scales)
        for weight, scales, group in formats
    )


def _formats(node: Node) -> list[tuple[Any, ...]]:
    """The weights of a layer that may take int8 activations, each with its scales and its group."""
    product = node.traits.product
    if product is None or not product.int8_rows:
        return []
    names = (product.weight or "", "scales", "group_size"), ("value_weight", "value_scales", "value_group")
    given = (tuple(map(node.named.get, each)) for each in names)
    return [each for each in given if isinstance(each[0], Tensor)]
