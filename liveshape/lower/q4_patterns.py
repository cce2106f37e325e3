"""Fusion patterns of 4-bit linears: those of one input as one, with an expression, a residual add, or rotary embedding
and KV cache in its epilogue; RMSNorm in the prologue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from liveshape.formats.source import is_view
from liveshape.graph import Limits, Node, Tensor
from liveshape.graph.constants import Interleaved, Paired
from liveshape.graph.elements import prod
from liveshape.graph.expression import Expression
from liveshape.kernels.pointwise_text import hidden
from liveshape.kernels.roofline import peaks_of
from liveshape.lower.def_use import DefUse
from liveshape.lower.pattern import Replacement, exact, fit, merged_constant
from liveshape.lower.pattern_operators import (
    GATED_LAYERS,
    LINEAR_Q4,
    QKV_LAYERS,
    RESIDUAL_LAYER,
    RMS_NORM_LAYERS,
    ROTARY_LAYERS,
    VIEW,
)
from liveshape.lower.pointwise_fusion import expression_of
from liveshape.ops.pointwise import Build
from liveshape.ops.q4_heuristics import can_stage_row, is_gemv

MAX_GATE = 16  # operators between two linears and what is computed of both
NO_VALUES = (None, None, 0)  # of a QKV projection whose values are in the weight of queries and keys


def residual_layer(uses: DefUse, add: Node, limits: Limits) -> Sequence[Replacement]:
    """product = layer(x), viewed as it is; out = product + residual: the add becomes the epilogue, at its place."""
    first, second, alpha, out = add.args
    for product, residual in ((second, first), (first, second)):
        source = uses.viewed(product)
        layer = uses.producer.get(source)
        if alpha != 1 or product is residual or layer is None or layer.name != LINEAR_Q4:
            continue
        between = tuple(dict.fromkeys((source, product)))
        nodes = (*(uses.producer[value] for value in between), add)
        x, weight, scales, group, bias, _ = layer.args
        given = (x, weight, scales, x if bias is None else bias)
        alike = product.max_shape == residual.max_shape and exact(source, product, residual, out)
        joined = alike and uses.single_assignment(out) and _joins(uses, nodes, between, given)
        if joined and fit((*given, residual, out), limits):
            args = (x, weight, scales, group, bias, residual, out)
            return [Replacement(add, RESIDUAL_LAYER, nodes, args)]
    return ()


def _joins(uses: DefUse, nodes: Sequence[Node], between: Sequence[Tensor], given: Sequence[Tensor]) -> bool:
    """Whether nodes may be one: only they read what lies between them, once, and nothing writes what they are given."""
    private = uses.single_assignment(*between) and all(uses.only_consumer(value) in nodes for value in between)
    return private and all(uses.unchanged(value, nodes) for value in given)


def gated_layers(uses: DefUse, last: Node, limits: Limits) -> Sequence[Replacement]:
    """Two linears of one input, be they viewed alike, and an expression of both: it becomes their epilogue.

    Where both are viewed, the result is viewed instead.
    """
    for first in uses.consumers.get(last.args[0], []):
        if first.name == LINEAR_Q4 and first.index < last.index:
            views = [node for layer in (first, last) if (node := _only_view(uses, layer.args[-1])) is not None]
            viewed = [(layer, *views[place : place + 1])[-1].args[-1] for place, layer in enumerate((first, last))]
            # A view to the shape that is there is none.
            shapes = [view.args[1] for view in views if uses.viewed(view.args[-1]) is view.args[-1]]
            alike = len(shapes) != 1 and len({*shapes}) < 2
            gate = _gate(uses, *viewed) if alike and uses.single_assignment(*viewed) else None
            if gate is not None:
                return _gated(uses, (first, last), views, gate, limits)
    return ()


def _only_view(uses: DefUse, value: Any) -> Node | None:
    view = uses.only_consumer(value)
    return view if view is not None and view.name == VIEW else None


_Gate = tuple[Expression, tuple[Node, ...], Tensor]  # of two values, the nodes that compute it, and its result


def _gate(uses: DefUse, first: Tensor, second: Tensor) -> _Gate | None:
    """The first value that is computed of two others alone, if nothing else reads these or what lies between."""
    if first.max_shape != second.max_shape or not exact(first, second):
        return None
    build = Build(first.dtype, (first, second))
    terms: dict[Any, Any] = {first: first, second: second}
    nodes: list[Node] = []
    left = [first, second]  # what others are to read
    while len(left) > 1 and len(nodes) < MAX_GATE:
        readers = {node.index: node for value in left for node in uses.consumers.get(value, []) if node not in nodes}
        node = readers[min(readers)] if readers else None
        made = None if node is None else expression_of(node)
        if node is None or made is None or made.numbers or not all(tensor in terms for tensor in made.tensors):
            return None
        out = node.args[-1]
        if not exact(out) or out.max_shape != first.max_shape or not uses.single_assignment(out):
            return None
        terms[out] = build.whole(made._replace(tensors=tuple(terms[tensor] for tensor in made.tensors)))[-1]
        nodes.append(node)
        left = [value for value in (*left, out) if not uses.used_only_by(nodes, value)]
    expression = build.made().expression
    read = {place for call in expression.calls for place in call.arguments}
    if len(left) != 1 or left[0] is not nodes[-1].args[-1] or not read.issuperset((0, 1)):
        return None
    if hidden(expression):  # its kernels have no params of an expression
        return None
    return expression, tuple(nodes), left[0]


def _gated(
    uses: DefUse, layers: Sequence[Node], views: Sequence[Node], gate: _Gate, limits: Limits
) -> Sequence[Replacement]:
    expression, nodes, out = gate
    merged = _merged(uses, layers, limits, interleaved=True)
    gone = (*layers, *views, *nodes)
    if merged is None or not uses.in_basic_block(gone):
        return ()
    args, made = merged
    target, found = out, []
    if any(uses.viewed(view.args[-1]) is view.args[-1] for view in views):
        target = Tensor(f"{out.name} before its view", out.dtype, layers[0].args[-1].max_shape)
        made = (*made, target)
        found.append(Replacement(nodes[-1], VIEW, gone, (target, views[0].args[1], out)))
    return [*found, Replacement(layers[-1], GATED_LAYERS, gone, (*args, expression, target), made)]


def qkv_layers(uses: DefUse, node: Node, limits: Limits) -> Sequence[Replacement]:
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
    values = NO_VALUES
    if merged is None:
        merged = _merged(uses, found[:2], limits, interleaved=False, apart=found[2:])
        values = found[2].args[1:4]
    if merged is None:
        return ()
    args, made = merged
    outs = tuple(layer.args[-1] for layer in found)
    return [Replacement(node, QKV_LAYERS, tuple(found), (*args, *values, outs), made)]


def rotary_layers(uses: DefUse, update: Node, limits: Limits) -> Sequence[Replacement]:
    """QKV projection, views as heads, rotary embedding and cache update: one epilogue, at the place of the update."""
    *heads, cosine, sine, start, k_cache, v_cache, position, out = update.args
    views = [node for node in map(uses.producer.get, heads) if node is not None and node.name == VIEW]
    layers = uses.producer.get(views[0].args[0]) if len(views) == 3 else None
    if layers is None or layers.name != QKV_LAYERS:
        return ()
    x, weight, scales, group, bias, *values, products = layers.args
    apart = [value for value in values[:2] if value is not None]
    nodes = (layers, *views, update)
    given = [value for value in (x, weight, scales, bias) if value is not None]
    viewed = products == tuple(view.args[0] for view in views)
    if not (viewed and exact(*products) and _joins(uses, nodes, (*products, *heads), (*given, *apart))):
        return ()
    size = out.max_shape[3]
    # One batch and fixed heads: the rows of a view are those of x, whatever it calls them.
    fixed = all(
        (view.args[1][0], *view.args[1][2:]) == (1, *head.max_shape[2:])
        for view, head in zip(views, heads, strict=True)
    )
    alike = k_cache.max_shape[0] == 1 and k_cache.max_shape[2:] == heads[1].max_shape[2:] == heads[2].max_shape[2:]
    alike = alike and k_cache.max_shape == v_cache.max_shape and size % 2 == 0
    # All of a head is rotated; tables of all positions are constants, so that this holds at every live size.
    full = cosine.max_shape[1] == size and cosine.constant is not None
    if start is None:
        full = cosine.max_shape[1] == size // 2
    table = (position,) if isinstance(position, Tensor) else ()  # of rows, with their positions and slots
    bound = (x, weight, scales, x if bias is None else bias, cosine, sine, out, k_cache, v_cache, *table)
    if not (fixed and alike and full and _fit_apart(bound, apart, limits)):
        return ()
    made = []
    if start is not None:
        made = [
            _with_rotary_pairs(tensor, size, axis)
            for tensor, axis in zip(given[1:], (0, scales.rank - 1, 0), strict=False)
        ]
        weight, scales, bias = (*made, None)[:3]
    args = (x, weight, scales, group, bias, *values, cosine, sine, start, k_cache, v_cache, position, out)
    return [Replacement(update, ROTARY_LAYERS, nodes, args, tuple(made))]


def _with_rotary_pairs(merged: Tensor, size: int, axis: int) -> Tensor:
    """A QKV constant along an axis with the columns of a rotary pair next to each other: one thread has both."""
    assert isinstance(merged.constant, Interleaved)
    run = len(merged.constant) // prod(merged.max_shape[: axis + 1])
    queries, keys, *values = merged.constant.sources  # none where these have a weight of their own
    pairs = [Paired(source, size * run, run) for source in (queries, keys)]
    data = Interleaved((*pairs, *values), merged.constant.runs)
    return Tensor(f"{merged.name} in pairs", merged.dtype, merged.max_shape, constant=data)


def rms_norm_layer(uses: DefUse, norm: Node, limits: Limits) -> Sequence[Replacement]:
    """normed = rms_norm(x); out = layers(normed): every workgroup of the layers recomputes the RMSNorm of its row."""
    x, norm_weight, eps, normed = norm.args
    layer = uses.only_consumer(normed)
    if layer is None or layer.args[0] is not normed or layer.inputs.count(normed) != 1:
        return ()
    if layer.name not in RMS_NORM_LAYERS or not _joins(uses, (norm, layer), (normed,), (x, norm_weight)):
        return ()
    weight, bias = layer.args[1], layer.args[4]
    apart = [value for value in map(layer.named.get, ("value_weight", "value_scales")) if isinstance(value, Tensor)]
    columns = weight.max_shape[0] + sum(value.max_shape[0] for value in apart[:1])
    outputs = [value for value in layer.outputs if isinstance(value, Tensor)]
    given = dict.fromkeys(layer.inputs)  # positions and slots of rows are one table
    operands = [value for value in given if isinstance(value, Tensor) and value not in (normed, bias, *apart)]
    terms = norm_weight if bias is None else _concatenated(uses, bias, norm_weight, columns)
    if terms is None or not exact(x, terms, normed, *outputs):
        return ()
    bound = (x, terms, *operands, *outputs)
    if not (worth_recomputing(columns, x.max_shape[-1], limits) and _fit_apart(bound, apart, limits)):
        return ()
    args = (x, norm_weight, terms, eps, None, *layer.args[1:])
    return [Replacement(layer, RMS_NORM_LAYERS[layer.name], (norm, layer), args, () if bias is None else (terms,))]


def _fit_apart(tensors: Sequence[Tensor], apart: Sequence[Tensor], limits: Limits) -> bool:
    """Whether a kernel may bind these; and those of a weight apart, in the place of another's."""
    return fit(tensors, limits) and (not apart or fit(apart, limits))


def _concatenated(uses: DefUse, bias: Tensor, norm_weight: Tensor, columns: int) -> Tensor | None:
    """A bias and the weight of an RMSNorm concatenated, so that both take one binding."""
    first, second = bias.constant, norm_weight.constant
    if first is None or not is_view(second) or uses.writes[bias] or uses.writes[norm_weight]:
        return None
    sources, runs = (first.sources, first.runs) if isinstance(first, Interleaved) else ((first,), (len(first),))
    if sum(runs) != len(first) or bias.dtype != norm_weight.dtype or bias.max_shape != (columns,):
        return None
    data = Interleaved((*sources, second), (*runs, len(second)))
    shape = (columns + prod(norm_weight.max_shape),)
    return Tensor(f"{bias.name} + {norm_weight.name}", bias.dtype, shape, constant=data)


def worth_recomputing(columns: int, depth: int, limits: Limits) -> bool:
    """Whether recomputing the RMSNorm in every workgroup, of about 32,768 / depth columns, beats a dispatch."""
    can_recompute = depth % 8 == 0 and can_stage_row(depth, limits) and is_gemv(1, limits)
    peaks = peaks_of(limits)
    return can_recompute and columns * depth**2 / 4096 / peaks.again <= peaks.dispatch


# The inputs of one linear that has the columns of several, and the constants that were made for it.
_Merged = tuple[tuple[Any, ...], tuple[Tensor, ...]]


def _constants(layer: Node) -> list[Tensor]:
    """The weight of a linear, its scales and its bias, if it has one."""
    _, weight, scales, _, bias, _ = layer.args
    return [weight, scales] if bias is None else [weight, scales, bias]


def _signature(layer: Node) -> tuple[Any, ...]:
    """What linears must have in common to be fused into one."""
    x, weight, scales, group, _, out = layer.args
    dtypes = [tensor.dtype for tensor in (*_constants(layer), out)]
    return x, group, weight.max_shape[1:], scales.max_shape[:-1], dtypes


def _merged(
    uses: DefUse, layers: Sequence[Node], limits: Limits, *, interleaved: bool, apart: Sequence[Node] = ()
) -> _Merged | None:
    """Several linears as one, their columns interleaved or concatenated; those `apart` share their bias alone."""
    every = (*layers, *apart)
    for layer in every:
        if layer.name != LINEAR_Q4 or _signature(layer) != _signature((apart if layer in apart else layers)[0]):
            return None
        _, weight, scales, _, _, out = layer.args
        own = all(uses.private_constant(layer, tensor) for tensor in _constants(layer))
        alike = scales.max_shape[-1] == weight.max_shape[0] and out.dtype == layers[0].args[-1].dtype
        if not (alike and own and uses.single_assignment(out)):
            return None
    x, weight, scales, group, _, _ = layers[0].args
    terms = [term for layer in every for term in _constants(layer)[2:]]
    if len(terms) not in (0, len(every)) or len({term.dtype for term in terms}) > 1 or not uses.unchanged(x, every):
        return None
    weights, factors = zip(*(layer.args[1:3] for layer in layers), strict=True)
    columns = sum(each.max_shape[0] for each in weights)
    by_group = scales.max_shape[:-1]
    made = [
        merged_constant(weights, (columns, *weight.max_shape[1:]), 0, interleaved),
        merged_constant(factors, (*by_group, columns), len(by_group), interleaved),
    ]
    if terms:
        made.append(merged_constant(terms, (sum(term.max_shape[0] for term in terms),), 0, interleaved))
    args = (x, *made[:2], group, made[2] if terms else None)
    return (args, tuple(made)) if fit(made, limits) and all(fit(_constants(each), limits) for each in apart) else None
