"""Several operators as one dispatch, where the result is provably the same: fewer dispatches, less to encode.

`FUSIONS` is the table: at which operator a pattern is looked for, what stands for it, and the function that knows its
conditions. The rows apply one after the other, each to what the one before it left. The nodes of a pattern lie between
two jumps, so what moves within it moves along a straight row. The first rows are weights that a file spells out in
several operators (`weight_patterns.py`): they alone change the last bits of a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from liveshape import ops
from liveshape.graph import Graph, Limits, Node, Shape, Tensor
from liveshape.graph.constants import Interleaved
from liveshape.graph.elements import prod
from liveshape.graph.sources import united
from liveshape.lower.pattern import Fusion, Replacement, exact, fit
from liveshape.lower.pattern_operators import (
    ADD,
    ADDED_LAYER,
    ADDED_NORM,
    ATTENTION,
    ATTENTION_WITH_UPDATE,
    GATED_LAYERS,
    LINEAR_Q4,
    MUL,
    NORM,
    NORMED,
    ROTARY,
    ROTARY_TO_CACHE,
    SIGMOID,
    SWIGLU,
    THREE_LAYERS,
    TURNED_LAYERS,
    VIEW,
)
from liveshape.lower.q4_patterns import added_layer, normed_layer, turned_layers
from liveshape.lower.rewriting import rewritten
from liveshape.lower.search import Search
from liveshape.lower.weight_patterns import SPELLINGS


def fuse(graph: Graph, limits: Limits | None = None) -> Graph:
    """The same program in fewer nodes, for a device with these limits.

    Example: `fuse(graph, device.limits)`.
    """
    limits = limits or Limits()
    for fusion in FUSIONS:
        graph = applied(fusion, graph, limits)
    return graph


def applied(fusion: Fusion, graph: Graph, limits: Limits) -> Graph:
    """A graph with one row of the table looked for: what it left is what the next row sees.

    Example: `applied(FUSIONS[0], graph, device.limits)`.
    """
    anchors = [node for node in graph.nodes if node.name in fusion.anchors]
    if not anchors:
        return graph
    search = Search(graph)
    replaced: dict[Node, Node] = {}
    gone: set[Node] = set()
    made: list[Tensor] = []
    for node in anchors:
        found = fusion.match(search, node, limits)
        touched = {each for replacement in found for each in replacement.nodes}
        if not touched or not touched.isdisjoint(gone) or not search.in_a_row([*touched]):
            continue
        gone |= touched
        for each in found:
            label = " + ".join(dict.fromkeys((each.nodes[0].label, each.nodes[-1].label)))
            sources = united(source for node in each.nodes for source in node.sources)
            replaced[each.place] = ops.OPS[each.operator].bind(each.place.index, label, each.args, sources)
            made += each.made
    if not replaced:
        return graph
    rows = [(node.index, replaced.get(node, node)) for node in graph.nodes if node in replaced or node not in gone]
    return rewritten(graph, rows, made)


def _sum_and_norm(search: Search, add: Node, limits: Limits) -> Sequence[Replacement]:
    """total = a + b; out = rms_norm(total): at the place of the sum, since the weight is a constant."""
    a, b, alpha, total = add.args
    norms = [node for node in search.readers.get(total, []) if node.name == NORM]
    if alpha != 1 or len(norms) != 1 or norms[0].args[0] is not total or not search.once(total, norms[0].args[-1]):
        return ()
    _, weight, eps, out = norms[0].args
    if weight.constant is None or search.writes[weight] or a.max_shape != b.max_shape:
        return ()
    if not exact(a, b, total, weight, out):
        return ()
    return [Replacement(add, ADDED_NORM, (add, norms[0]), (a, b, weight, eps, (total, out)))]


def _gated_unit(search: Search, sigmoid: Node, limits: Limits) -> Sequence[Replacement]:
    """s = sigmoid(gate); silu = gate * s; out = silu * up: at the place of the last product, its two layers with it."""
    gate, factor = sigmoid.args
    first = search.only_reader(factor)
    if first is None or first.name != MUL or {*first.args[:2]} != {gate, factor}:
        return ()
    silu = first.args[-1]
    second = search.only_reader(silu)
    if second is None or second.name != MUL or second.args[0] is second.args[1]:
        return ()
    up = second.args[1] if second.args[0] is silu else second.args[0]
    out = second.args[-1]
    if not search.once(gate, factor, silu, up, out) or not search.same_rows(gate, up):
        return ()
    if not exact(gate, factor, silu, up, out):
        return ()
    unit = sigmoid, first, second
    return _gated_layers(search, gate, up, unit, limits) or [Replacement(second, SWIGLU, unit, (gate, up, out))]


def _gated_layers(
    search: Search, gate: Tensor, up: Tensor, unit: tuple[Node, Node, Node], limits: Limits
) -> Sequence[Replacement]:
    """The unit and the two layers before it, as one. Where both layers are viewed alike, the result is instead."""
    sigmoid, first, second = unit
    out = target = second.args[-1]
    makers = [search.maker[gate], search.maker[up]]
    views = [node for node in makers if node.name == VIEW]
    layers = [search.maker.get(node.args[0], node) if node in views else node for node in makers]
    private = search.only_for((sigmoid, first), gate) and search.only_for((second,), up)
    private = private and all(search.only_for((node,), node.args[0]) for node in views)
    joined = _joined(search, layers, limits, interleaved=True) if private else None
    if joined is None or not search.in_a_row([*layers, *views, *unit]):
        return ()
    gone = (*layers, *views, *unit)
    found = []
    made = joined.made
    if any(search.viewed(node.args[-1]) is node.args[-1] for node in views):
        target = Tensor(f"{out.name} before its view", out.dtype, layers[0].args[-1].max_shape)
        made = (*made, target)
        found.append(Replacement(second, VIEW, gone, (target, views[0].args[1], out)))
    last = max(layers, key=lambda node: node.index)
    return [*found, Replacement(last, GATED_LAYERS, gone, (*joined.args, target), made)]


def _three_layers(search: Search, node: Node, limits: Limits) -> Sequence[Replacement]:
    """Three layers of one input with nothing but views between them: at the place of the first."""
    found = [node]
    for other in search.graph.nodes[node.index + 1 :]:
        if other.name == LINEAR_Q4 and other.args[0] is node.args[0]:
            found.append(other)
        if len(found) == 3 or not (other is found[-1] or other.alias):
            break
    joined = _joined(search, found, limits, interleaved=False) if len(found) == 3 else None
    if joined is None:
        return ()
    outs = tuple(layer.args[-1] for layer in found)
    args = (*joined.args, outs)
    return [Replacement(node, THREE_LAYERS, tuple(found), args, joined.made)]


def _rotary_to_cache(search: Search, sdpa: Node, limits: Limits) -> Sequence[Replacement]:
    """Queries and keys turn, and both are for attention alone: at the place of the turning, if values are there."""
    q, k, v, k_cache, v_cache, position, _, *rest, out = sdpa.args
    rotary = search.maker.get(q)
    if rotary is None or rotary.name not in ROTARY or rotary.args[-1] != (q, k) or not search.once(q, k):
        return ()
    xq, xk, cosine, sine, *start, _ = rotary.args
    if len(cosine.max_shape) != 2:  # the rows of queries and keys lie elsewhere, see ops/rotary.py
        return ()
    private = search.only_for((sdpa,), q) and search.only_for((sdpa,), k)
    # Values and position are read and the caches are written earlier than they were: nothing in between may care.
    apart = all(search.unchanged(value, (rotary, sdpa)) for value in (v, position, k_cache, v_cache))
    between = search.graph.nodes[rotary.index : sdpa.index]
    apart = apart and all({k_cache, v_cache}.isdisjoint(node.inputs) for node in between)
    tensors = (xq, xk, v, cosine, sine, k_cache, v_cache, q)
    if not (private and apart and fit(tensors, limits) and exact(*tensors)):
        return ()
    args = (xq, xk, v, cosine, sine, *(start or [None]), k_cache, v_cache, position, q)
    return [
        Replacement(rotary, ROTARY_TO_CACHE, (rotary, sdpa), args),
        Replacement(sdpa, ATTENTION, (rotary, sdpa), (q, k_cache, v_cache, position, *rest, out)),
    ]


FUSIONS = (
    *SPELLINGS,
    Fusion(
        "a gated linear unit, with its two layers if they are of 4 bits",
        frozenset({SIGMOID}),
        (GATED_LAYERS, SWIGLU),
        _gated_unit,
    ),
    Fusion(
        "queries and keys that turn on their way to attention and its cache",
        frozenset({ATTENTION_WITH_UPDATE}),
        (ROTARY_TO_CACHE, ATTENTION),
        _rotary_to_cache,
    ),
    Fusion(
        "three 4-bit layers of one input, as attention has them",
        frozenset({LINEAR_Q4}),
        (THREE_LAYERS,),
        _three_layers,
    ),
    Fusion(
        "queries, keys and values of three such layers that turn on their way to the cache",
        frozenset({ROTARY_TO_CACHE}),
        (TURNED_LAYERS,),
        turned_layers,
    ),
    Fusion(
        "a 4-bit layer whose result is added to something else",
        frozenset({ADD}),
        (ADDED_LAYER,),
        added_layer,
    ),
    Fusion(
        "a sum that is normalized next",
        frozenset({ADD}),
        (ADDED_NORM,),
        _sum_and_norm,
    ),
    Fusion(
        "a norm that is for 4-bit layers alone",
        frozenset({NORM}),
        tuple(NORMED.values()),
        normed_layer,
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
        """What layers must have in common to be one."""
        dtypes = [tensor.dtype for tensor in (*self.constants, self.out)]
        return self.x, self.group, self.weight.max_shape[1:], self.scales.max_shape[:-1], dtypes


class _Joined(NamedTuple):
    """The inputs of one layer that has the columns of several, and the constants that were made for it."""

    args: tuple[Any, ...]
    made: tuple[Tensor, ...]


def _joined(search: Search, nodes: Sequence[Node], limits: Limits, *, interleaved: bool) -> _Joined | None:
    """Several layers as one: their columns take turns, or lie behind each other."""
    if any(node.name != LINEAR_Q4 for node in nodes):
        return None
    layers = [_Layer(*node.args) for node in nodes]
    for node, layer in zip(nodes, layers, strict=True):
        alike = layer.signature == layers[0].signature and layer.scales.max_shape[-1] == layer.weight.max_shape[0]
        own = all(search.own_constant(node, tensor) for tensor in layer.constants)
        if not (alike and own and search.once(layer.out)):
            return None
    if not search.unchanged(layers[0].x, nodes):
        return None
    x, weight, scales, group, bias, _ = layers[0]
    columns = sum(layer.weight.max_shape[0] for layer in layers)
    weights = _together([layer.weight for layer in layers], (columns, *weight.max_shape[1:]), 0, interleaved)
    by_group = scales.max_shape[:-1]
    factors = _together([layer.scales for layer in layers], (*by_group, columns), len(by_group), interleaved)
    terms = [layer.bias for layer in layers if layer.bias is not None]
    added = None if bias is None else _together(terms, (columns,), 0, interleaved)
    made = tuple(tensor for tensor in (weights, factors, added) if tensor is not None)
    return _Joined((x, weights, factors, group, added), made) if fit(made, limits) else None


def _together(parts: Sequence[Tensor], shape: Shape, axis: int, interleaved: bool) -> Tensor:
    """One constant of several: single slices of an axis in turn, or each whole along it."""
    data = [part.constant for part in parts if part.constant is not None]
    runs = [len(each) // prod(part.max_shape[: axis + interleaved]) for each, part in zip(data, parts, strict=True)]
    name = " + ".join(part.name for part in parts)
    return Tensor(name, parts[0].dtype, shape, constant=Interleaved(tuple(data), tuple(runs)))
