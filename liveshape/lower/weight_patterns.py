"""Weights that a file spells out in several operators, as the one layer or table that they mean.

Groups with a minimum are a 4-bit layer and a product of the minima and the sums of groups of x; bytes are numbers that
are made of them before a layer. As one, the same weights meet the same rows, and sums of float32 are taken in another
order: what the result differs by is in its last bits. Numbers of 4 and 8 bits are never written as floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from liveshape.formats.dtypes import ITEM_SIZES
from liveshape.graph import Limits, Node, Shape, Tensor
from liveshape.graph.constants import Constant, Interleaved, Transposed
from liveshape.lower.pattern import Fusion, Replacement
from liveshape.lower.pattern_operators import (
    ADD,
    DEQUANTIZE,
    EMBEDDING,
    EMBEDDING_BYTES,
    EMBEDDING_Q4,
    EMBEDDING_WITH_MINIMA,
    EXPAND,
    LINEAR,
    LINEAR_Q4,
    SUM,
    VIEW,
)
from liveshape.lower.search import Search

_FLOATS = ("float32", "float16")


def _layers_of_bytes(search: Search, dequantize: Node, limits: Limits) -> Sequence[Replacement]:
    """weights = scales * codes; layers or tables of the weights: each at its place, of the codes."""
    codes, block, scales, zeros, *_, weights = dequantize.args
    if codes.dtype != "int8" or codes.rank != 2 or len(block) != 2 or block[0] != 1 or not isinstance(block[1], int):
        return ()
    columns, depth = codes.max_shape
    group = block[1]
    readers = search.readers.get(weights, [])
    known = _of_file(search, codes) is not None and _zero(search, zeros)
    data = _of_file(search, scales)
    if not readers or not known or data is None or not search.once(weights) or not search.only_for(readers, weights):
        return ()
    if group < 1 or depth % group or scales.max_shape != (columns, depth // group) or scales.dtype not in _FLOATS:
        return ()
    by_group = Transposed(data, columns, ITEM_SIZES[scales.dtype])
    found = []
    for reader in readers:
        nodes = (dequantize, reader)
        if reader.name in LINEAR and reader.args[1] is weights and reader.inputs.count(weights) == 1:
            x, _, bias, out = reader.args
            made = (
                Tensor(codes.name, codes.dtype, (columns, depth // group, group), constant=codes.constant),
                Tensor(scales.name, scales.dtype, scales.max_shape[::-1], constant=by_group),
            )
            found.append(Replacement(reader, LINEAR_Q4, nodes, (x, *made, group, bias, out), made))
        elif reader.name in EMBEDDING and reader.args[0] is weights:
            args = (codes, scales, None, -128, 127, reader.args[1], None, reader.args[-1])
            found.append(Replacement(reader, EMBEDDING_BYTES, nodes, args))
        else:
            return ()
    return found


def _layers_of_flat_rows(search: Search, flat: Node, limits: Limits) -> Sequence[Replacement]:
    """rows = x without dimensions of 1; layers of the rows, and views of these: layers of x, and views of these."""
    x, _, rows = flat.args
    lead = x.rank - rows.rank
    layers = search.readers.get(rows, [])
    steady = search.once(rows) and search.only_for(layers, rows)
    if lead < 1 or rows.rank < 2 or x.max_shape != (1,) * lead + rows.max_shape or not layers or not steady:
        return ()
    found = []
    for layer in layers:
        out = layer.args[-1]
        if layer.name != LINEAR_Q4 or layer.args[0] is not rows or layer.inputs.count(rows) != 1:
            return ()
        views = search.readers.get(out, [])
        private = search.once(out) and search.only_for(views, out) and all(view.name == VIEW for view in views)
        if not (views and private and search.unchanged(x, (flat, layer))):
            return ()
        nodes = (flat, layer, *views)
        made = Tensor(f"{out.name} of all rows", out.dtype, (1,) * lead + out.max_shape)
        if len(views) == 1 and _is_view_as(views[0], made.max_shape) and search.once(views[0].args[-1]):
            found.append(Replacement(layer, LINEAR_Q4, nodes, (x, *layer.args[1:-1], views[0].args[-1])))
            continue
        found.append(Replacement(layer, LINEAR_Q4, nodes, (x, *layer.args[1:-1], made), (made,)))
        found += [Replacement(view, VIEW, nodes, (made, *view.args[1:])) for view in views]
    return found


def _is_view_as(view: Node, shape: Shape) -> bool:
    """Whether a view has a shape at every live size: all but one of its sizes are fixed."""
    sizes, out = view.args[1:]
    return bool(out.max_shape == shape and sum(size != most for size, most in zip(sizes, shape, strict=True)) < 2)


def _layers_with_minima(search: Search, total: Node, limits: Limits) -> Sequence[Replacement]:
    """sums = those of the groups of x; out = layer(x) + linear(sums, minima): at the place of each such sum."""
    groups, dims, keepdim, _, sums = total.args
    view = search.maker.get(groups)
    terms = search.readers.get(sums, [])
    if view is None or view.name != VIEW or keepdim or dims not in ((-1,), (groups.rank - 1,)):
        return ()
    x = view.args[0]
    if groups.rank < 2 or x.rank < 1:
        return ()
    count, group = groups.max_shape[-2:]
    fixed = view.args[1][-2:] == (count, group) and groups.max_shape[:-2] == x.max_shape[:-1]
    # Of one size that is live, rows stay what they are, whatever the view calls them.
    alike = fixed and x.max_shape[-1] == count * group and sum(size > 1 for size in x.max_shape[:-1]) < 2
    if not (alike and terms and search.once(groups, sums) and search.only_for(terms, sums)):
        return ()
    before = (view, total) if search.only_reader(groups) is total else (total,)
    found = []
    for term in terms:
        layer = _Minima.of(search, term, sums)
        if layer is None or layer.group != group or layer.x is not x or x.dtype not in _FLOATS:
            return ()
        nodes = (*before, *layer.nodes)
        scales = layer.scales
        if not all(search.unchanged(value, nodes) for value in (x, layer.weight, layer.bias) if value is not None):
            return ()
        args = (x, layer.weight, scales, group, layer.bias, layer.out)
        found.append(Replacement(nodes[-1], LINEAR_Q4, nodes, args, (scales,)))
    return found


class _Minima(NamedTuple):
    """A 4-bit layer and the product of minima that is added to it."""

    x: Tensor
    weight: Tensor
    scales: Tensor  # with the minima
    group: int
    bias: Tensor | None
    out: Tensor
    nodes: tuple[Node, ...]

    @classmethod
    def of(cls, search: Search, term: Node, sums: Tensor) -> _Minima | None:
        """What a product of sums of groups is added to, if it is of minima."""
        add = search.only_reader(term.args[-1])
        if term.name not in LINEAR or term.args[0] is not sums or add is None or add.name != ADD or add.args[2] != 1:
            return None
        _, minima, more, product = term.args
        other = add.args[1] if add.args[0] is product else add.args[0]
        source = search.viewed(other)
        layer = search.maker.get(source)
        if other is product or layer is None or layer.name != LINEAR_Q4:
            return None
        nodes = (layer, term, add) if source is other else (layer, search.maker[other], term, add)
        x, weight, scales, group, bias, _ = layer.args
        private = search.only_for(nodes, source) and search.only_for(nodes, other)
        out = add.args[-1]
        alike = product.max_shape == other.max_shape == out.max_shape and (bias is None or more is None)
        joined = _with_minima(search, scales, minima, weight.max_shape[0])
        if joined is None or not (private and alike and search.once(source, other, product, out)):
            return None
        return cls(x, weight, joined, group, more if bias is None else bias, out, nodes)


def _with_minima(search: Search, scales: Tensor, minima: Tensor, columns: int) -> Tensor | None:
    """Scales [groups, columns], each row with that of the minima below, which are [columns, groups]."""
    data, least = scales.constant, _of_file(search, minima)
    if data is None or least is None or search.writes[scales] or scales.rank != 2 or scales.dtype not in _FLOATS:
        return None
    groups, width = scales.max_shape
    if scales.dtype != minima.dtype or minima.max_shape != (columns, groups) or width < columns:
        return None
    size = ITEM_SIZES[scales.dtype]
    parts: list[Constant] = [data, Transposed(least, columns, size)]
    runs = [width * size, columns * size]
    if width > columns:
        runs.append((width - columns) * size)
        parts.append(memoryview(bytes(groups * runs[-1])))
    name = f"{scales.name} + {minima.name}"
    return Tensor(name, scales.dtype, (groups, 2, width), constant=Interleaved(tuple(parts), tuple(runs)))


def _table_with_minima(search: Search, lookup: Node, limits: Limits) -> Sequence[Replacement]:
    """out = table(ids) + minima(ids), spread over their groups: at the place of the sum."""
    minima, ids = lookup.args[:2]
    spread = [lookup]
    # A column of minima, each of them repeated, and all of it as rows again.
    for names in (frozenset({VIEW}), EXPAND, frozenset({VIEW}), frozenset({ADD})):
        after = search.only_reader(spread[-1].args[-1])
        if after is None or after.name not in names:
            return ()
        spread.append(after)
    column, repeated, rows, add = spread[1:]
    first, second, alpha, out = add.args
    found = second if first is rows.args[-1] else first
    table = search.maker.get(found)
    if table is None or table.name not in (EMBEDDING_Q4, EMBEDDING_BYTES) or alpha != 1 or found is rows.args[-1]:
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
    private = search.only_reader(found) is add and (four_bit or table.args[2] is None) and group * groups == width
    steady = search.once(found, *(node.args[-1] for node in spread)) and search.unchanged(ids, nodes)
    constant = all(tensor.constant is not None and not search.writes[tensor] for tensor in (weight, scales, minima))
    if not (alike and private and steady and constant and repeated.args[1][-1] == group and rows.args[1][-1] == width):
        return ()
    args = (weight, scales, minima, ids, 4 if four_bit else 8, linear, out)
    return [Replacement(add, EMBEDDING_WITH_MINIMA, nodes, args)]


def _of_file(search: Search, tensor: Tensor) -> memoryview | None:
    """The data of a constant of the file that nothing writes."""
    data = tensor.constant
    return data if isinstance(data, memoryview) and not search.writes[tensor] else None


def _zero(search: Search, zeros: Tensor | None) -> bool:
    """Whether zero points are none, or a constant that is zero in every bit."""
    if zeros is None:
        return True
    data = _of_file(search, zeros)
    return data is not None and bytes(data).count(0) == len(data)


SPELLINGS = (
    Fusion(
        "a layer or a table whose weights are made of bytes",
        frozenset({DEQUANTIZE}),
        (LINEAR_Q4, EMBEDDING_BYTES),
        _layers_of_bytes,
    ),
    Fusion(
        "layers of rows that lose their dimensions of 1, and get them back",
        frozenset({VIEW}),
        (LINEAR_Q4, VIEW),
        _layers_of_flat_rows,
    ),
    Fusion(
        "a layer whose groups have a minimum",
        SUM,
        (LINEAR_Q4,),
        _layers_with_minima,
    ),
    Fusion(
        "a table whose groups have a minimum",
        EMBEDDING,
        (EMBEDDING_WITH_MINIMA,),
        _table_with_minima,
    ),
)
