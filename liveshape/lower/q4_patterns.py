"""Fusion patterns of the 4-bit linear: RMSNorm in the prologue; residual add, rotary and KV cache in the epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from liveshape.formats.source import is_view
from liveshape.graph import Limits, Node, Tensor
from liveshape.graph.constants import Interleaved, Paired
from liveshape.graph.elements import prod
from liveshape.lower.def_use import DefUse
from liveshape.lower.pattern import Replacement, exact, fit
from liveshape.lower.pattern_operators import (
    LINEAR_Q4,
    QKV_LAYERS,
    RESIDUAL_LAYER,
    RMS_NORM_LAYERS,
    ROTARY_LAYERS,
    VIEW,
)
from liveshape.ops.q4_heuristics import can_stage_row, is_gemv

NO_VALUES = (None, None, 0)  # of a QKV projection whose values are in the weight of queries and keys
MAX_RECOMPUTE_BYTES = 16 << 20  # that all workgroups may read to recompute an RMSNorm in the time of a dispatch


def residual_layer(uses: DefUse, add: Node, limits: Limits) -> Sequence[Replacement]:
    """product = layer(x), viewed as it is; out = product + residual: the add becomes the epilogue, at its place."""
    first, second, alpha, out = add.args
    for product, residual in ((second, first), (first, second)):
        source = uses.viewed(product)
        layer = uses.producer.get(source)
        if alpha != 1 or product is residual or layer is None or layer.name != LINEAR_Q4:
            continue
        nodes = (layer, add) if source is product else (layer, uses.producer[product], add)
        private = all(uses.only_consumer(node.args[-1]) is after for node, after in pairwise(nodes))
        x, weight, scales, group, bias, _ = layer.args
        given = (x, weight, scales, x if bias is None else bias)
        no_hazards = uses.single_assignment(source, product, out) and all(
            uses.unchanged(value, nodes) for value in given
        )
        alike = product.max_shape == residual.max_shape
        bound = (*given, residual, out)
        if private and no_hazards and alike and exact(source, product, residual, out) and fit(bound, limits):
            args = (x, weight, scales, group, bias, residual, out)
            return [Replacement(add, RESIDUAL_LAYER, nodes, args)]
    return ()


def rotary_layers(uses: DefUse, update: Node, limits: Limits) -> Sequence[Replacement]:
    """QKV projection, views as heads, rotary embedding and cache update: one epilogue, at the place of the update."""
    *heads, cosine, sine, start, k_cache, v_cache, position, out = update.args
    views = [node for node in map(uses.producer.get, heads) if node is not None and node.name == VIEW]
    layers = uses.producer.get(views[0].args[0]) if len(views) == 3 else None
    if layers is None or layers.name != QKV_LAYERS:
        return ()
    x, weight, scales, group, bias, *values, products = layers.args
    apart = [value for value in values[:2] if value is not None]
    if products != tuple(view.args[0] for view in views):
        return ()
    nodes = (layers, *views, update)
    given = [value for value in (x, weight, scales, bias) if value is not None]
    private = all(uses.only_consumer(value) in nodes for value in (*products, *heads))
    no_hazards = uses.single_assignment(*products, *heads) and all(
        uses.unchanged(value, nodes) for value in (*given, *apart)
    )
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
    if not (
        private and no_hazards and fixed and alike and full and exact(*products) and _fit_apart(bound, apart, limits)
    ):
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
    if (
        layer is None
        or layer.name not in RMS_NORM_LAYERS
        or layer.inputs.count(normed) != 1
        or layer.args[0] is not normed
    ):
        return ()
    weight, bias = layer.args[1], layer.args[4]
    apart = [value for value in map(layer.named.get, ("value_weight", "value_scales")) if isinstance(value, Tensor)]
    columns = weight.max_shape[0] + sum(value.max_shape[0] for value in apart[:1])
    no_hazards = uses.single_assignment(normed) and all(
        uses.unchanged(value, (norm, layer)) for value in (x, norm_weight)
    )
    outputs = [value for value in layer.outputs if isinstance(value, Tensor)]
    given = dict.fromkeys(layer.inputs)  # positions and slots of rows are one table
    operands = [value for value in given if isinstance(value, Tensor) and value not in (normed, bias, *apart)]
    terms = norm_weight if bias is None else _concatenated(uses, bias, norm_weight, columns)
    if terms is None or not (no_hazards and exact(x, terms, normed, *outputs)):
        return ()
    if not (
        _worth_recomputing(columns, x.max_shape[-1], limits)
        and _fit_apart((x, terms, *operands, *outputs), apart, limits)
    ):
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


def _worth_recomputing(columns: int, depth: int, limits: Limits) -> bool:
    """Whether recomputing the RMSNorm in every workgroup, of about 32,768 / depth columns, beats a dispatch."""
    can_recompute = depth % 8 == 0 and can_stage_row(depth, limits) and is_gemv(1, limits)
    return can_recompute and columns * depth**2 // 4096 <= MAX_RECOMPUTE_BYTES
