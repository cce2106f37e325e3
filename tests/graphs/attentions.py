"""Attention that a program spells out, of everything that programs do to heads, scores, masks and results, with writes
in place between its parts. What is fused of it rounds otherwise, so that such programs are compared with torch alone.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from tests.graphs.movement import same, size_of
from tests.graphs.program import Ref
from tests.graphs.writer import Known, Writer

DEPTH = 24
SCORES = 60.0  # no larger than that, by magnitude, before a mask


class _TooLarge(Exception):
    """A program has no room for what comes next."""


def emitted(w: Writer, operator: str, *args: Any, **told: Any) -> Ref:
    """A node that has to be there for the next one."""
    made = w.emit(operator, *args, **told)
    if made is None:
        raise _TooLarge
    return cast(Ref, made)


def tokens(w: Writer, batch: Any, length: Any) -> Ref:
    """Something of (batch, length, DEPTH)."""
    shapes = w.shapes(batch, length, DEPTH)
    found = w.choose(lambda x: x.dtype == "float32" and x.shapes == shapes and x.span <= 8 and x.role != "state")
    return found if found is not None and w.chance.random() < 0.7 else w.input(shapes)


def layer(w: Writer, x: Ref, columns: int) -> Ref:
    """A linear of constants."""
    weight = w.held(w.generator.uniform(-0.2, 0.2, (columns, w[x].bound[-1])).astype(np.float32), -1, 1, False)
    bias = w.constant((columns,), "float32", -0.2, 0.2) if w.chance.random() < 0.5 else None
    span = w[x].span * w[x].bound[-1] * 0.2 + 0.2
    return emitted(w, "aten.linear.default", x, weight, bias, dtype="float32", low=-span, high=span)


def overwritten(w: Writer, x: Ref) -> None:
    """Something writes what was read, before it is read again."""
    known: Known = w[x]
    if known.role == "state" or w.chance.random() > 0.2:
        return
    source = w.input(known.shapes, known.dtype, *(max(-1, known.low), min(1, known.high)))
    w.pool.remove(source)
    w.mutate("aten.copy_.default", x, source, False, place=0)


def heads_of(w: Writer, x: Ref, heads: int, size: int) -> Ref:
    """(batch, length, heads * size) as (batch, heads, length, size)."""
    known: Known = w[x]
    batch, length = (size_of(w, x, axis) for axis in range(2))
    sizes: tuple[Any, ...] = (batch, length, heads, size)
    if w.chance.random() < 0.4 and not (isinstance(batch, Ref) and isinstance(length, Ref)):
        sizes = (batch, -1, heads, size)
    view = emitted(w, "aten.view_copy.default", x, sizes, **same(known))
    if w.chance.random() < 0.5:
        return emitted(w, "aten.permute_copy.default", view, (0, 2, 1, 3), **same(known))
    return emitted(w, "aten.transpose_copy.int", view, 1, 2, **same(known))


def projections(w: Writer, batch: Any, lengths: tuple[Any, Any], heads: tuple[int, int], size: int) -> list[Ref]:
    """Queries, keys and values as (batch, heads, length, size), however they were made."""
    choice = w.chance.random()
    if choice < 0.1:
        return [
            w.input(w.shapes(batch, count, length, size), low=-1, high=1)
            for count, length in zip((heads[0], heads[1], heads[1]), (lengths[0], lengths[1], lengths[1]), strict=True)
        ]
    x = tokens(w, batch, lengths[0])
    if choice < 0.4 and lengths[0] == lengths[1] and heads[0] == heads[1]:
        width = heads[0] * size
        packed = layer(w, x, 3 * width)
        parts = [
            emitted(w, "aten.slice_copy.Tensor", packed, 2, place * width, (place + 1) * width, 1, **same(w[packed]))
            for place in range(3)
        ]
        w.pool.remove(packed)
    else:
        other = x if lengths[0] == lengths[1] and w.chance.random() < 0.8 else tokens(w, batch, lengths[1])
        parts = []
        for source, count in ((x, heads[0]), (other, heads[1]), (other, heads[1])):
            parts.append(layer(w, source, count * size))
            overwritten(w, source)
    return [heads_of(w, part, count, size) for part, count in zip(parts, (heads[0], heads[1], heads[1]), strict=True)]


def repeated(w: Writer, x: Ref, group: int) -> Ref:
    """Heads of keys for every head of queries that shares them."""
    known: Known = w[x]
    batch, length = size_of(w, x, 0), size_of(w, x, 2)
    heads, size = known.bound[1], known.bound[3]
    apart = emitted(w, "aten.unsqueeze_copy.default", x, 2, **same(known))
    wide = emitted(w, "aten.expand_copy.default", apart, (batch, heads, group, length, size), False, **same(known))
    return emitted(w, "aten.view_copy.default", wide, (batch, heads * group, length, size), **same(known))


def scaled(w: Writer, x: Ref, factor: float) -> Ref:
    span = w[x].span * factor
    told = {"dtype": "float32", "low": -span, "high": span}
    if w.chance.random() < 0.6:
        return emitted(w, "aten.mul.Scalar", x, factor, **told)
    return emitted(w, "aten.div.Scalar", x, 1 / factor, **told)


def product(w: Writer, a: Ref, b: Ref, span: float) -> Ref:
    """Of four dimensions, or of three and viewed back."""
    told = {"dtype": "float32", "low": -span, "high": span}
    if w.chance.random() < 0.5:
        return emitted(w, "aten.matmul.default", a, b, **told)
    heads = w[a].bound[1]
    if not w[a].steady(0):
        return emitted(w, "aten.matmul.default", a, b, **told)
    flat = [
        emitted(
            w, "aten.view_copy.default", x, (w[x].bound[0] * heads, size_of(w, x, 2), size_of(w, x, 3)), **same(w[x])
        )
        for x in (a, b)
    ]
    made = emitted(w, "aten.bmm.default", *flat, **told)
    sizes = (w[a].bound[0], heads, size_of(w, a, 2), size_of(w, b, 3))
    return emitted(w, "aten.view_copy.default", made, sizes, **told)


def seen_by(w: Writer, shapes: list[Any], rows_without: bool) -> Ref:
    """Flags of keys, of which every row sees one, or none now and then."""
    mask = w.input(shapes, "bool")
    for array in w[mask].data:
        array[...] = w.generator.random(array.shape) < 0.6
        array[..., w.generator.integers(0, array.shape[-1])] = True
        if rows_without and array.ndim > 1:
            array[..., w.generator.integers(0, array.shape[-2]), :] = False
    return mask


def masked(w: Writer, scores: Ref) -> tuple[Ref, bool]:
    """Scores behind a mask, and whether rows may have hidden all of their keys."""
    known: Known = w[scores]
    rows, keys = [row[2] for row in known.shapes], [row[3] for row in known.shapes]
    batches = [row[0] for row in known.shapes]
    forms = (
        [(1, 1, n, m) for n, m in zip(rows, keys, strict=True)],
        [(n, m) for n, m in zip(rows, keys, strict=True)],
        [(b, 1, 1, m) for b, m in zip(batches, keys, strict=True)],
        [(b, 1, n, m) for b, n, m in zip(batches, rows, keys, strict=True)],
    )
    told = {"dtype": "float32", "low": known.low - 1, "high": known.high + 1}
    choice = w.chance.random()
    shapes = w.chance.choice(forms)
    if choice < 0.35:
        bias = w.input(shapes, low=-1, high=1)
        order = (scores, bias) if w.chance.random() < 0.7 else (bias, scores)
        return emitted(w, "aten.add.Tensor", *order, 1, **told), False
    without = w.chance.random() < 0.4
    mask = seen_by(w, shapes, without)
    value = w.chance.choice((-math.inf, -math.inf, -1e30, float(np.finfo(np.float32).min)))
    if choice < 0.65:
        number = w.held(np.array(value, np.float32), value, 0, True)
        found = emitted(w, "aten.where.self", mask, scores, number, **told)
    elif choice < 0.85:
        hidden = emitted(w, "aten.logical_not.default", mask, dtype="bool", exact=True)
        found = emitted(w, "aten.masked_fill.Scalar", scores, hidden, value, **told)
    else:
        zero, number = (w.held(np.array(each, np.float32), value, 0, True) for each in (0.0, value))
        bias = emitted(w, "aten.where.self", mask, zero, number, **told)
        found = emitted(w, "aten.add.Tensor", scores, bias, 1, **told)
    return found, without and value == -math.inf


def guarded(w: Writer, scores: Ref, shares: Ref) -> Ref:
    """Zeros for the rows of which no key is seen, as torch writes its safe softmax."""
    hidden = emitted(w, "aten.eq.Scalar", scores, -math.inf, dtype="bool", exact=True)
    seen = emitted(w, "aten.logical_not.default", hidden, dtype="bool", exact=True)
    some = emitted(w, "aten.any.dim", seen, -1, True, dtype="bool", exact=True)
    none = emitted(w, "aten.logical_not.default", some, dtype="bool", exact=True)
    zeros = emitted(w, "aten.full_like.default", shares, 0, *(None,) * 5, dtype="float32", low=0, high=0, exact=True)
    return emitted(w, "aten.where.self", none, zeros, shares, dtype="float32", low=0, high=1)


def spelled(w: Writer) -> Any:
    """Attention from inputs to what reads it; what lies between is mostly read by nobody else."""
    before = list(w.pool)
    try:
        made, hidden = _spelled(w)
    except _TooLarge:
        made, hidden = None, None
    between = [ref for ref in w.pool if ref not in before and ref != made and w[ref].role != "input"]
    # Of scores behind a mask some are no numbers, which nothing else here can compare.
    finite = [ref for ref in between if ref != hidden and w[ref].span < 1e6]
    kept = w.chance.sample(finite, 1) if made is not None and finite and w.chance.random() < 0.15 else []
    w.pool = [ref for ref in w.pool if ref not in between or ref in kept]
    return made


def _spelled(w: Writer) -> tuple[Ref, Ref]:
    """What attention gives, and its scores."""
    batch = w.chance.choice((1, 1, 2, "T"))
    queries: Any = "S" if batch == "T" else w.chance.choice(("S", "S", "T", 7))
    keys: Any = queries if w.chance.random() < 0.6 else w.chance.choice(("S", 5, 16))
    shared = w.chance.choice((1, 2))
    group = w.chance.choice((1, 1, 2, 3)) if shared > 1 else 1
    size = w.chance.choice((4, 6, 8, 5))
    q, k, v = projections(w, batch, (queries, keys), (shared * group, shared), size)
    if group > 1:
        k, v = repeated(w, k, group), repeated(w, v, group)
    factor = min(size**-0.5, SCORES / (w[q].span * w[k].span * size))
    place = w.chance.choice(("queries", "both", "scores", "scores", "none"))
    if place == "none" and w[q].span * w[k].span * size > SCORES:
        place = "scores"
    if place == "queries":
        q = scaled(w, q, factor)
    if place == "both":
        q, k = scaled(w, q, math.sqrt(factor)), scaled(w, k, math.sqrt(factor))
    turned = (
        emitted(w, "aten.transpose_copy.int", k, -2, -1, **same(w[k]))
        if w.chance.random() < 0.5
        else emitted(w, "aten.permute_copy.default", k, (0, 1, 3, 2), **same(w[k]))
    )
    scores = product(w, q, turned, w[q].span * w[k].span * size)
    if place == "scores":
        scores = scaled(w, scores, factor)
    unseen = False
    if w.chance.random() < 0.7:
        scores, unseen = masked(w, scores)
    overwritten(w, v)
    shares = emitted(w, "aten._softmax.default", scores, -1, False, dtype="float32", low=0, high=1)
    if unseen or w.chance.random() < 0.2:
        shares = guarded(w, scores, shares)
    made = product(w, shares, v, w[v].span)
    if w.chance.random() < 0.85:
        rows = emitted(w, "aten.permute_copy.default", made, (0, 2, 1, 3), **same(w[made]))
        sizes = (size_of(w, rows, 0), size_of(w, rows, 1), shared * group * size)
        made = emitted(w, "aten.view_copy.default", rows, sizes, **same(w[rows]))
        if w.chance.random() < 0.5:
            made = layer(w, made, DEPTH)
    return made, scores
