"""Quantized weights that a file writes as several operators, fused into one linear or embedding of the codes.

Asymmetric groups (a scale and a minimum) are a 4-bit linear plus a product of the minima and the group sums of x; int8
is a dequantize before a float linear. Fused, float32 sums are reduced in another order, so results differ in their last
bits. Codes of 4 and 8 bits are never dequantized to memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from liveshape.formats.dtypes import ITEM_SIZES
from liveshape.formats.source import is_view
from liveshape.graph import Limits, Node, Shape, Tensor
from liveshape.graph.constants import Constant, Interleaved, Transposed
from liveshape.lower.def_use import DefUse
from liveshape.lower.pattern import Fusion, Replacement
from liveshape.lower.pattern_operators import (
    ADD,
    DEQUANTIZE,
    EMBEDDING,
    EMBEDDING_INT8,
    EMBEDDING_Q4,
    EMBEDDING_WITH_MINIMA,
    EXPANDS,
    LINEAR,
    LINEAR_Q4,
    SUM,
    VIEW,
)
from liveshape.ops.quantized_rows import FLOAT_ACTIVATIONS

_FLOATS = ("float32", "float16")


def _int8_layers(uses: DefUse, dequantize: Node, limits: Limits) -> Sequence[Replacement]:
    """weights = dequantize(codes, scales); linears or embeddings of the weights: each at its place, of the codes."""
    codes, block, scales, zeros, *_, weights = dequantize.args
    if codes.dtype != "int8" or codes.rank != 2 or len(block) != 2 or block[0] != 1 or not isinstance(block[1], int):
        return ()
    columns, depth = codes.max_shape
    group = block[1]
    consumers = uses.consumers.get(weights, [])
    known = _of_file(uses, codes) is not None and _zero(uses, zeros)
    data = _of_file(uses, scales)
    if (
        not consumers
        or not known
        or data is None
        or not uses.single_assignment(weights)
        or not uses.used_only_by(consumers, weights)
    ):
        return ()
    if group < 1 or depth % group or scales.max_shape != (columns, depth // group) or scales.dtype not in _FLOATS:
        return ()
    by_group = Transposed(data, columns, ITEM_SIZES[scales.dtype])
    found = []
    for consumer in consumers:
        nodes = (dequantize, consumer)
        if consumer.name in LINEAR and consumer.args[1] is weights and consumer.inputs.count(weights) == 1:
            x, _, bias, out = consumer.args
            made = (
                Tensor(codes.name, FLOAT_ACTIVATIONS, (columns, depth // group, group), constant=codes.constant),
                Tensor(scales.name, scales.dtype, scales.max_shape[::-1], constant=by_group),
            )
            found.append(Replacement(consumer, LINEAR_Q4, nodes, (x, *made, group, bias, out), made))
        elif consumer.name in EMBEDDING and consumer.args[0] is weights:
            args = (codes, scales, None, -128, 127, consumer.args[1], None, consumer.args[-1])
            found.append(Replacement(consumer, EMBEDDING_INT8, nodes, args))
        else:
            return ()
    return found


def _unflattened_layers(uses: DefUse, flat: Node, limits: Limits) -> Sequence[Replacement]:
    """rows = x squeezed; linears of the rows, viewed back: linears of x, whose views become no-ops."""
    x, _, rows = flat.args
    lead = x.rank - rows.rank
    layers = uses.consumers.get(rows, [])
    no_hazards = uses.single_assignment(rows) and uses.used_only_by(layers, rows)
    if lead < 1 or rows.rank < 2 or x.max_shape != (1,) * lead + rows.max_shape or not layers or not no_hazards:
        return ()
    found = []
    for layer in layers:
        out = layer.args[-1]
        if layer.name != LINEAR_Q4 or layer.args[0] is not rows or layer.inputs.count(rows) != 1:
            return ()
        views = uses.consumers.get(out, [])
        private = (
            uses.single_assignment(out) and uses.used_only_by(views, out) and all(view.name == VIEW for view in views)
        )
        if not (views and private and uses.unchanged(x, (flat, layer))):
            return ()
        nodes = (flat, layer, *views)
        made = Tensor(f"{out.name} of all rows", out.dtype, (1,) * lead + out.max_shape)
        if len(views) == 1 and _is_view_as(views[0], made.max_shape) and uses.single_assignment(views[0].args[-1]):
            found.append(Replacement(layer, LINEAR_Q4, nodes, (x, *layer.args[1:-1], views[0].args[-1])))
            continue
        found.append(Replacement(layer, LINEAR_Q4, nodes, (x, *layer.args[1:-1], made), (made,)))
        found += [Replacement(view, VIEW, nodes, (made, *view.args[1:])) for view in views]
    return found


def _is_view_as(view: Node, shape: Shape) -> bool:
    """Whether a view has a shape at every live size: all but one of its sizes are fixed."""
    sizes, out = view.args[1:]
    return bool(out.max_shape == shape and sum(size != most for size, most in zip(sizes, shape, strict=True)) < 2)


def _layers_with_minima(uses: DefUse, total: Node, limits: Limits) -> Sequence[Replacement]:
    """sums = group sums of x; out = layer(x) + linear(sums, minima): an asymmetric layer at the place of each add."""
    groups, dims, keepdim, _, sums = total.args
    view = uses.producer.get(groups)
    terms = uses.consumers.get(sums, [])
    if view is None or view.name != VIEW or keepdim or dims not in ((-1,), (groups.rank - 1,)):
        return ()
    x = view.args[0]
    if groups.rank < 2 or x.rank < 1:
        return ()
    count, group = groups.max_shape[-2:]
    fixed = view.args[1][-2:] == (count, group) and groups.max_shape[:-2] == x.max_shape[:-1]
    # Of one size that is live, rows stay what they are, whatever the view calls them.
    alike = fixed and x.max_shape[-1] == count * group and sum(size > 1 for size in x.max_shape[:-1]) < 2
    if not (alike and terms and uses.single_assignment(groups, sums) and uses.used_only_by(terms, sums)):
        return ()
    before = (view, total) if uses.only_consumer(groups) is total else (total,)
    found = []
    for term in terms:
        layer = _Minima.of(uses, term, sums)
        if layer is None or layer.group != group or layer.x is not x or x.dtype not in _FLOATS:
            return ()
        nodes = (*before, *layer.nodes)
        scales = layer.scales
        if not all(uses.unchanged(value, nodes) for value in (x, layer.weight, layer.bias) if value is not None):
            return ()
        args = (x, layer.weight, scales, group, layer.bias, layer.out)
        found.append(Replacement(nodes[-1], LINEAR_Q4, nodes, args, (scales,)))
    return found


class _Minima(NamedTuple):
    """An asymmetric 4-bit layer: the symmetric one and the product of minima that is added to it."""

    x: Tensor
    weight: Tensor
    scales: Tensor  # with the minima
    group: int
    bias: Tensor | None
    out: Tensor
    nodes: tuple[Node, ...]

    @classmethod
    def of(cls, uses: DefUse, term: Node, sums: Tensor) -> _Minima | None:
        """The layer that a product of group sums is added to, if these are minima."""
        add = uses.only_consumer(term.args[-1])
        if term.name not in LINEAR or term.args[0] is not sums or add is None or add.name != ADD or add.args[2] != 1:
            return None
        _, minima, more, product = term.args
        other = add.args[1] if add.args[0] is product else add.args[0]
        source = uses.viewed(other)
        layer = uses.producer.get(source)
        if other is product or layer is None or layer.name != LINEAR_Q4:
            return None
        nodes = (layer, term, add) if source is other else (layer, uses.producer[other], term, add)
        x, weight, scales, group, bias, _ = layer.args
        private = uses.used_only_by(nodes, source) and uses.used_only_by(nodes, other)
        out = add.args[-1]
        alike = product.max_shape == other.max_shape == out.max_shape and (bias is None or more is None)
        merged = _with_minima(uses, scales, minima, weight.max_shape[0])
        if merged is None or not (private and alike and uses.single_assignment(source, other, product, out)):
            return None
        return cls(x, weight, merged, group, more if bias is None else bias, out, nodes)


def _with_minima(uses: DefUse, scales: Tensor, minima: Tensor, columns: int) -> Tensor | None:
    """Scales [groups, columns] and minima [columns, groups] interleaved row by row: [groups, 2, columns]."""
    data, least = scales.constant, _of_file(uses, minima)
    if data is None or least is None or uses.writes[scales] or scales.rank != 2 or scales.dtype not in _FLOATS:
        return None
    groups, width = scales.max_shape
    if scales.dtype != minima.dtype or minima.max_shape != (columns, groups) or width < columns:
        return None
    size = ITEM_SIZES[scales.dtype]
    sources: list[Constant] = [data, Transposed(least, columns, size)]
    runs = [width * size, columns * size]
    if width > columns:
        runs.append((width - columns) * size)
        sources.append(memoryview(bytes(groups * runs[-1])))
    name = f"{scales.name} + {minima.name}"
    return Tensor(name, scales.dtype, (groups, 2, width), constant=Interleaved(tuple(sources), tuple(runs)))


def _table_with_minima(uses: DefUse, lookup: Node, limits: Limits) -> Sequence[Replacement]:
    """out = embedding(ids) + minima(ids), broadcast over their groups: asymmetric, at the place of the add."""
    minima, ids = lookup.args[:2]
    spread = [lookup]
    # A column of minima, each of them repeated, and all of it as rows again.
    for names in (frozenset({VIEW}), EXPANDS, frozenset({VIEW}), frozenset({ADD})):
        after = uses.only_consumer(spread[-1].args[-1])
        if after is None or after.name not in names:
            return ()
        spread.append(after)
    column, repeated, rows, add = spread[1:]
    first, second, alpha, out = add.args
    found = second if first is rows.args[-1] else first
    table = uses.producer.get(found)
    if table is None or table.name not in (EMBEDDING_Q4, EMBEDDING_INT8) or alpha != 1 or found is rows.args[-1]:
        return ()
    weight, scales = table.args[:2]
    four_bit = table.name == EMBEDDING_Q4
    indices, linear = (table.args[3], table.args[4]) if four_bit else (table.args[5], True)
    lead = ids.max_shape
    if minima.rank != 2 or scales.max_shape != minima.max_shape or scales.dtype != minima.dtype or indices is not ids:
        return ()
    groups = minima.max_shape[1]
    width = weight.max_shape[1] * (2 if four_bit else 1)
    group = table.args[2] if four_bit else width // groups
    shapes = (*lead, groups, 1), (*lead, groups, width // groups), (*lead, width), (*lead, width)
    alike = shapes == tuple(node.args[-1].max_shape for node in spread[1:]) and found.max_shape == out.max_shape
    # Fixed sizes at the end, and one that is live at most, leave nothing else to be the rows.
    alike = alike and column.args[1][-2:] == (groups, 1) and sum(size > 1 for size in lead) < 2
    nodes = (table, *spread)
    private = uses.only_consumer(found) is add and (four_bit or table.args[2] is None) and group * groups == width
    no_hazards = uses.single_assignment(found, *(node.args[-1] for node in spread)) and uses.unchanged(ids, nodes)
    constant = all(tensor.constant is not None and not uses.writes[tensor] for tensor in (weight, scales, minima))
    if not (
        alike and private and no_hazards and constant and repeated.args[1][-1] == group and rows.args[1][-1] == width
    ):
        return ()
    args = (weight, scales, minima, ids, 4 if four_bit else 8, linear, out)
    return [Replacement(add, EMBEDDING_WITH_MINIMA, nodes, args)]


def _of_file(uses: DefUse, tensor: Tensor) -> memoryview | None:
    """The data of a constant of the file that nothing writes."""
    data = tensor.constant
    return data if is_view(data) and not uses.writes[tensor] else None


def _zero(uses: DefUse, zeros: Tensor | None) -> bool:
    """Whether zero points are none, or a constant that is zero in every bit."""
    if zeros is None:
        return True
    data = _of_file(uses, zeros)
    return data is not None and bytes(data).count(0) == len(data)


DEQUANTIZED_WEIGHTS = (
    Fusion(
        "linear or embedding of dequantized int8 weights",
        frozenset({DEQUANTIZE}),
        _int8_layers,
        reorders=True,
    ),
    Fusion(
        "linear of squeezed rows, viewed back",
        frozenset({VIEW}),
        _unflattened_layers,
    ),
    Fusion(
        "linear with asymmetric groups (scale and minimum)",
        SUM,
        _layers_with_minima,
        reorders=True,
    ),
    Fusion(
        "embedding with asymmetric groups (scale and minimum)",
        EMBEDDING,
        _table_with_minima,
        reorders=True,
    ),
)
