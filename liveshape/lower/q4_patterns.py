"""Patterns of a 4-bit layer and its neighbours: what it is given and where its sums go become parts of its dispatch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from liveshape.graph import Limits, Node, Tensor
from liveshape.graph.constants import Interleaved, Paired
from liveshape.graph.elements import prod
from liveshape.lower.pattern import Replacement, exact, fit
from liveshape.lower.pattern_operators import ADDED_LAYER, LINEAR_Q4, NORMED, THREE_LAYERS, TURNED_LAYERS, VIEW
from liveshape.lower.search import Search

MANY_THREADS = 32  # from here on threads are there by the thousand, and one more dispatch costs more than their work
WORKGROUP_BYTES = 5120  # that the kernel of one row needs beside the row
MOST_AGAIN = 16 << 20  # bytes that all workgroups of a layer may read to norm a row in the time of a dispatch


def added_layer(search: Search, add: Node, limits: Limits) -> Sequence[Replacement]:
    """product = layer(x), viewed as it is; out = product + residual: at the place of the sum."""
    first, second, alpha, out = add.args
    for product, residual in ((second, first), (first, second)):
        source = search.viewed(product)
        layer = search.maker.get(source)
        if alpha != 1 or product is residual or layer is None or layer.name != LINEAR_Q4:
            continue
        nodes = (layer, add) if source is product else (layer, search.maker[product], add)
        private = all(search.only_reader(node.args[-1]) is after for node, after in pairwise(nodes))
        x, weight, scales, group, bias, _ = layer.args
        given = (x, weight, scales, x if bias is None else bias)
        steady = search.once(source, product, out) and all(search.unchanged(value, nodes) for value in given)
        alike = product.max_shape == residual.max_shape
        bound = (*given, residual, out)
        if private and steady and alike and exact(source, product, residual, out) and fit(bound, limits):
            args = (x, weight, scales, group, bias, residual, out)
            return [Replacement(add, ADDED_LAYER, nodes, args)]
    return ()


def turned_layers(search: Search, turn: Node, limits: Limits) -> Sequence[Replacement]:
    """Queries, keys and values of one input, viewed as heads, that turn on their way to the cache: at that place."""
    *heads, cosine, sine, start, k_cache, v_cache, position, out = turn.args
    views = [node for node in map(search.maker.get, heads) if node is not None and node.name == VIEW]
    layers = search.maker.get(views[0].args[0]) if len(views) == 3 else None
    if layers is None or layers.name != THREE_LAYERS:
        return ()
    x, weight, scales, group, bias, products = layers.args
    if products != tuple(view.args[0] for view in views):
        return ()
    nodes = (layers, *views, turn)
    given = [value for value in (x, weight, scales, bias) if value is not None]
    private = all(search.only_reader(value) in nodes for value in (*products, *heads))
    steady = search.once(*products, *heads) and all(search.unchanged(value, nodes) for value in given)
    size = out.max_shape[3]
    # One batch and fixed heads: the rows of a view are those of x, whatever it calls them.
    fixed = all(
        (view.args[1][0], *view.args[1][2:]) == (1, *head.max_shape[2:])
        for view, head in zip(views, heads, strict=True)
    )
    alike = k_cache.max_shape[0] == 1 and k_cache.max_shape[2:] == heads[1].max_shape[2:] == heads[2].max_shape[2:]
    alike = alike and k_cache.max_shape == v_cache.max_shape and size % 2 == 0
    # All of a head turns; tables of all positions are constants, so that this holds for good.
    full = cosine.max_shape[1] == size and cosine.constant is not None
    if start is None:
        full = cosine.max_shape[1] == size // 2
    bound = (x, weight, scales, x if bias is None else bias, cosine, sine, out, k_cache, v_cache)
    if not (private and steady and fixed and alike and full and exact(*products) and fit(bound, limits)):
        return ()
    made = []
    if start is not None:
        made = [_in_pairs(tensor, size, axis) for tensor, axis in zip(given[1:], (0, scales.rank - 1, 0), strict=False)]
        weight, scales, bias = (*made, None)[:3]
    args = (x, weight, scales, group, bias, cosine, sine, start, k_cache, v_cache, position, out)
    return [Replacement(turn, TURNED_LAYERS, nodes, args, tuple(made))]


def _in_pairs(joined: Tensor, size: int, axis: int) -> Tensor:
    """A constant of queries, keys and values along an axis, with columns next to each other that turn together."""
    assert isinstance(joined.constant, Interleaved)
    run = len(joined.constant) // prod(joined.max_shape[: axis + 1])
    *turning, values = joined.constant.parts
    pairs = [Paired(part, size * run, run) for part in turning]
    data = Interleaved((*pairs, values), joined.constant.runs)
    return Tensor(f"{joined.name} in pairs", joined.dtype, joined.max_shape, constant=data)


def normed_layer(search: Search, norm: Node, limits: Limits) -> Sequence[Replacement]:
    """normed = rms_norm(x); out = layers(normed): at the place of the layers, whose workgroups norm a row."""
    x, factors, eps, normed = norm.args
    layer = search.only_reader(normed)
    if layer is None or layer.name not in NORMED or layer.inputs.count(normed) != 1 or layer.args[0] is not normed:
        return ()
    weight, bias = layer.args[1], layer.args[4]
    steady = search.once(normed) and all(search.unchanged(value, (norm, layer)) for value in (x, factors))
    outputs = [value for value in layer.outputs if isinstance(value, Tensor)]
    operands = [value for value in layer.inputs if isinstance(value, Tensor) and value not in (normed, bias)]
    terms = factors if bias is None else _behind(search, bias, factors, weight.max_shape[0])
    if terms is None or not (steady and exact(x, terms, normed, *outputs)):
        return ()
    if not (_again(weight.max_shape[0], x.max_shape[-1], limits) and fit((x, terms, *operands, *outputs), limits)):
        return ()
    args = (x, factors, terms, eps, None, *layer.args[1:])
    return [Replacement(layer, NORMED[layer.name], (norm, layer), args, () if bias is None else (terms,))]


def _behind(search: Search, bias: Tensor, factors: Tensor, columns: int) -> Tensor | None:
    """The bias of so many columns and the weight of a norm as one constant, so that both take one binding."""
    first, second = bias.constant, factors.constant
    if first is None or not isinstance(second, memoryview) or search.writes[bias] or search.writes[factors]:
        return None
    parts, runs = (first.parts, first.runs) if isinstance(first, Interleaved) else ((first,), (len(first),))
    if sum(runs) != len(first) or bias.dtype != factors.dtype or bias.max_shape != (columns,):
        return None
    data = Interleaved((*parts, second), (*runs, len(second)))
    shape = (columns + prod(factors.max_shape),)
    return Tensor(f"{bias.name} + {factors.name}", bias.dtype, shape, constant=data)


def _again(columns: int, depth: int, limits: Limits) -> bool:
    """Whether every workgroup of a layer may norm the row: it takes about 32,768 / depth columns."""
    room = depth * 4 + WORKGROUP_BYTES <= limits.max_workgroup_bytes
    return (
        depth % 8 == 0
        and room
        and limits.max_cooperating_threads >= MANY_THREADS
        and columns * depth**2 // 4096 <= MOST_AGAIN
    )
