"""Families of several nodes: what fusion looks for, attention with its caches, sampling, live scalars, and jumps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.graphs.movement import anything, same, size_of
from tests.graphs.program import Call, Ref
from tests.graphs.writer import LARGE, Number, Writer

CAPACITY = 300  # of a cache that attention splits among workgroups
SHORT = 60  # of one that it does not
HEADS, KEY_HEADS, SIZE = 4, 2, 6
SPAN = 8.0  # of what a 4-bit layer gives


def rows(w: Writer, depth: int = 24) -> Ref:
    """Something of (1, S, depth)."""
    shapes = w.shapes(1, "S", depth)
    found = w.choose(lambda x: x.dtype == "float32" and x.shapes == shapes and x.span <= LARGE)
    return found if found is not None else w.input(shapes)


def layer(w: Writer, x: Ref, columns: int, bias: bool, steps: int = 16) -> Any:
    """A 4-bit linear layer of its own weight; the more steps there are to 1, the smaller it is."""
    depth = w[x].bound[-1]
    packed = w.generator.integers(0, 256, (columns, depth // 2)).astype(np.uint8)
    scales = (w.generator.random((depth // 4, columns)) / steps).astype(np.float32)
    weight, factors = w.held(packed, 0, 255, True), w.held(scales, 0, 1, False)
    offset = w.constant((columns,)) if bias else None
    span = w[x].span * depth * 0.5 + 1
    return w.emit("et_vk.linear_q4gsw.default", x, weight, factors, 4, offset, dtype="float32", low=-span, high=span)


def quantized(w: Writer) -> Any:
    """A 4-bit layer or table, or rows rounded to 8 bits for two layers."""
    choice = w.chance.random()
    if choice < 0.2:
        packed = w.generator.integers(0, 256, (19, 12)).astype(np.uint8)
        scales = (w.generator.random((19, 3)) / 8).astype(np.float32)
        weight, factors = w.held(packed, 0, 255, True), w.held(scales, 0, 1, False)
        ids = w.input(w.shapes(1, "S"), "int32", 0, 18)
        return w.emit(
            "et_vk.embedding_q4gsw.default", weight, factors, 8, ids, w.chance.random() < 0.5, dtype="float32"
        )
    x = rows(w)
    if choice < 0.5:
        return layer(w, x, w.chance.choice((24, 8, 10)), w.chance.random() < 0.5)
    if choice < 0.65:
        packed = w.generator.integers(0, 256, (8, 12)).astype(np.uint8)
        scales = (w.generator.random(8) / 16).astype(np.float32)
        weight, factors = w.held(packed, 0, 255, True), w.held(scales, 0, 1, False)
        span = w[x].span * 24 * 0.5
        return w.emit("et_vk.linear_qcs4w.default", x, weight, factors, dtype="float32", low=-span, high=span)
    found = None
    for _ in range(2):
        lead = w[x].rank - 1
        pair = w.emit(
            "torchao.choose_qparams_affine.default", x, "ASYMMETRIC", (*(1 for _ in range(lead)), 24), None, -128, 127,
            None, None, None, False, dtype=("float32", "int8"), low=-128, high=127, shown=False,
        )  # fmt: skip
        if pair is None:
            return None
        w[pair[0]].exact = False
        packed = w.generator.integers(0, 256, (8, 12)).astype(np.uint8)
        scales = (w.generator.random((6, 8)) / 16).astype(np.float32)
        weight, factors = w.held(packed, 0, 255, True), w.held(scales, 0, 1, False)
        sums = w.held(np.zeros((6, 8), np.int32), 0, 0, True)
        span = w[x].span * 24 * 0.5
        found = w.emit(
            "et_vk.linear_dq8ca_q4gsw.default", x, *pair, weight, sums, factors, 4, None,
            dtype="float32", low=-span, high=span,
        )  # fmt: skip
    return found


def gated_unit(w: Writer) -> Any:
    """gate * sigmoid(gate) * up, of linear layers or of 4-bit ones, which may be viewed before."""
    x = rows(w)
    few = w.chance.random() < 0.6
    pair = []
    for _ in range(2):
        if few:
            made = layer(w, x, 36, False)
        else:
            weight = w.held(w.generator.uniform(-0.3, 0.3, (36, 24)).astype(np.float32), -1, 1, False)
            span = w[x].span * 24 * 0.3
            made = w.emit("aten.linear.default", x, weight, None, dtype="float32", low=-span, high=span)
        pair.append(made)
    if w.chance.random() < 0.3:
        length = size_of(w, x, 1)
        pair = [w.emit("aten.view_copy.default", each, (1, length, 36), **same(w[each])) for each in pair]
    gate, up = pair
    sigmoid = w.emit("aten.sigmoid.default", gate, dtype="float32", low=0, high=1)
    order = (gate, sigmoid) if w.chance.random() < 0.5 else (sigmoid, gate)
    span = w[gate].span
    silu = w.emit("aten.mul.Tensor", *order, dtype="float32", low=-span, high=span)
    out = w.emit("aten.mul.Tensor", silu, up, dtype="float32", low=-span * span, high=span * span)
    if w.chance.random() < 0.7:  # nobody else uses what lies between, or fusion has nothing to do
        between = {gate, up, sigmoid, silu}
        w.pool = [ref for ref in w.pool if ref not in between]
    return out


def three_layers(w: Writer) -> Any:
    x = rows(w)
    bias = w.chance.random() < 0.5
    return [layer(w, x, columns, bias) for columns in (24, 12, 12)]


def residual(w: Writer) -> Any:
    """y + layer(x), normalized, for a layer, three of them or a gated unit."""
    x = rows(w)
    shapes = w[x].shapes
    y = w.choose(lambda y: y.dtype == "float32" and y.shapes == shapes and y.span <= LARGE) or w.input(shapes)
    product = between = layer(w, x, 24, w.chance.random() < 0.5)
    if w.chance.random() < 0.5:
        between = w.emit("aten.view_copy.default", product, (1, size_of(w, x, 1), 24), **same(w[product]))
    span = w[y].span + w[product].span
    order = (y, between) if w.chance.random() < 0.5 else (between, y)
    total = w.emit("aten.add.Tensor", *order, 1, dtype="float32", low=-span, high=span)
    weight = w.constant((24,), "float32", 0.5, 1.5)
    norm = w.emit("et_vk.rms_norm.default", total, weight, 1e-3, dtype="float32", low=-7.5, high=7.5)
    bias = w.chance.random() < 0.2
    found = [layer(w, norm, columns, bias) for columns in w.chance.choice(((24,), (24, 12, 12), (10,)))]
    if w.chance.random() < 0.8:
        w.pool = [ref for ref in w.pool if ref not in (product, between, norm)]
    return found


def sum_and_norm(w: Writer) -> Any:
    x = rows(w)
    shapes = w[x].shapes
    y = w.choose(lambda y: y.dtype == "float32" and y.shapes == shapes and y is not w[x]) or w.input(shapes)
    low, high = w[x].low + w[y].low, w[x].high + w[y].high
    total = w.emit("aten.add.Tensor", x, y, 1, dtype="float32", low=low, high=high)
    weight = w.constant((24,), "float32", 0.5, 1.5)
    return w.emit("et_vk.rms_norm.default", total, weight, 1e-3, dtype="float32", low=-7.5, high=7.5)


def position(w: Writer, capacity: int, rows: str = "S") -> Ref:
    """Where the rows of each call begin in a cache: a scalar that is given, or an element of an input."""
    values = [0, *(w.chance.randint(0, capacity - w.symbols[rows][turn]) for turn in range(1, w.count + 1))]
    known = [
        ref
        for ref in w.scalars
        if w[ref].values
        and all(p >= 0 and p + s <= capacity for p, s in zip(w[ref].values, w.symbols[rows], strict=True))
        and w[ref].high <= 255
    ]
    if known and w.chance.random() < 0.4:
        return w.chance.choice(known)
    if w.chance.random() < 0.5:
        return w.number(values, role="given")
    start = w.input([(1,)] * (w.count + 1), "int64", 0, capacity)
    for array, value in zip(w[start].data, values[1:], strict=True):
        array[:] = value
    ref = w.number(values)
    w.call("et_vk.select_as_symint.default", (start, 0, 0, ref), (ref,))
    return ref


def heads(w: Writer, count: int) -> Ref:
    """Queries, keys or values as (1, S, heads, size)."""
    if w.chance.random() < 0.5:
        x = rows(w)
        made = layer(w, x, count * SIZE, False)
        made = w.emit("aten.tanh.default", made, dtype="float32", low=-1, high=1)
        length = size_of(w, x, 1)
        found: Ref = w.emit("aten.view_copy.default", made, (1, length, count, SIZE), **same(w[made]))
        return found
    return w.input(w.shapes(1, "S", count, SIZE), low=-1, high=1)


def projected(w: Writer) -> list[Ref]:
    """Queries, keys and values of one input, which may be normalized."""
    x = w.input(w.shapes(1, "S", 24))
    length = size_of(w, x, 1)
    if w.chance.random() < 0.5:
        weight = w.constant((24,), "float32", 0.1, 0.5)
        x = w.emit("et_vk.rms_norm.default", x, weight, 1e-3, dtype="float32", low=-2.5, high=2.5)
    bias = w.chance.random() < 0.3
    counts = (HEADS, KEY_HEADS, KEY_HEADS)
    layers = [layer(w, x, count * SIZE, bias, 64) for count in counts]
    views = [
        w.emit("aten.view_copy.default", made, (1, length, count, SIZE), **same(w[made]))
        for made, count in zip(layers, counts, strict=True)
    ]
    if w.chance.random() < 0.8:
        w.pool = [ref for ref in w.pool if ref not in (x, *layers, *views)]
    return views


def attention(w: Writer) -> Any:
    """Queries and keys turn, and go to attention with a cache; or attention without one."""
    if w.chance.random() < 0.3 or not w.stateful or w.depth:
        shapes = w.shapes(1, 2, "S", SIZE)
        q, k, v = (
            w.choose(lambda x: x.dtype == "float32" and x.shapes == shapes and x.span <= 4)
            or w.input(shapes, low=-1, high=1)
            for _ in range(3)
        )
        mask = w.input(w.shapes("S", "S"), low=-1, high=1) if w.chance.random() < 0.3 else None
        return w.emit("et_vk.sdpa.default", q, k, v, mask, None, dtype="float32", low=-w[v].span, high=w[v].span)
    capacity = w.chance.choice((CAPACITY, SHORT))
    if w.chance.random() < 0.4:
        q, k, v = projected(w)
    else:
        q, k, v = heads(w, HEADS), heads(w, KEY_HEADS), heads(w, KEY_HEADS)
    start = position(w, capacity)
    choice = w.chance.random()
    if choice < 0.75:
        if choice < 0.5:
            angles = w.generator.uniform(0, 6.3, (capacity, SIZE // 2))
            tables = [w.held(np.tile(each(angles), 2).astype(np.float32), -1, 1, False) for each in (np.cos, np.sin)]
            turn, rest = "et_vk.apply_rotary_emb_hf.default", (start,)
        else:
            tables = [w.input(w.shapes("S", SIZE // 2), low=-1, high=1) for _ in range(2)]
            turn, rest = "et_vk.apply_rotary_emb.default", ()
        shown = w.chance.random() < 0.3
        turned = w.emit(turn, q, k, *tables, *rest, dtype=("float32",) * 2, low=-2, high=2, shown=shown)
        if turned is None:
            return None
        q, k = turned
    shape = (1, capacity, KEY_HEADS, SIZE)
    caches = [w.held(w.generator.uniform(-1, 1, shape).astype(np.float32), -2, 2, False, "state") for _ in range(2)]
    if choice > 0.9:
        for value, cache in zip((k, v), caches, strict=True):
            unused = w.unwritten((1,))
            w.call("update_cache.default", (value, cache, start, unused), (cache,))
        return w.emit("custom_sdpa.default", q, *caches, start, None, 0.0, True, None, dtype="float32", low=-2, high=2)
    out = w.emit(
        "sdpa_with_kv_cache.default", q, k, v, *caches, start, 1, None, 0.0, True, None,
        dtype="float32", low=-2, high=2, also=tuple(caches),
    )  # fmt: skip
    if out is not None and w.chance.random() < 0.3:
        w.pool += caches[:1]
    return out


def sampled(w: Writer) -> Any:
    """A token from logits, with scratch of its own; the history of tokens is a state."""
    if not w.stateful or w.depth:
        return None
    logits = w.input(w.shapes(1, "T", 50), low=-9, high=9, exact=True)
    history = w.held(w.generator.integers(0, 50, (1, SHORT)).astype(np.int32), 0, 49, True, "state")
    tokens = w.input(w.shapes(1, "T"), "int32", 0, 49)
    start = position(w, SHORT, "T")
    w.call("liveshape.record", (tokens, start, history), (history,))
    settings = (start, 1, True, 0.0, 0, 1.0, 0.0, 2.0, 0.5, 0.0, 1, 1)
    return w.emit("liveshape.sample", logits, history, *settings, dtype="int32", low=0, high=49)


def scalar(w: Writer) -> Any:
    """Live scalars: sizes, their arithmetic, and elements of tensors."""
    choice = w.chance.random()
    sure = [ref for ref in w.scalars if w[ref].values and w[ref].high < 1000]
    if choice < 0.35 or not w.scalars:
        x = w.choose(lambda x: x.rank >= 1)
        return None if x is None else w.set("sym_size.int", x, w.chance.randrange(w[x].rank))
    if choice < 0.7 and sure:
        name, number = w.chance.choice(
            (("add", 1), ("sub", 1), ("floordiv", 2), ("mul", 2), ("sym_max", 3), ("sym_min", 4), ("floordiv", 3))
        )
        other = w.chance.choice(sure) if name == "add" and w.chance.random() < 0.3 else number
        return w.set(name, w.chance.choice(sure), other)
    if choice < 0.8:
        return w.number([0, *(w.chance.randint(0, 4) for _ in range(w.count))], role="given")
    x = w.choose(lambda x: x.dtype in ("int32", "int64") and x.span <= 1000 and x.role != "state")
    if x is None:
        return None
    known = w[x]
    low, high = int(min(known.low, 0)), int(max(known.high, 0))  # nothing is read at the build: that is a zero
    if known.rank and w.chance.random() < 0.5:
        axis = w.chance.randrange(known.rank)
        return w.set("et_vk.select_as_symint.default", x, axis, 0, low=low, high=high, known=False)
    return w.set("aten::_local_scalar_dense", x, low=low, high=high, known=False)


Family = Callable[[Writer], Any]


def _inside(w: Writer, families: list[Family], most: int) -> list[Ref]:
    """A few nodes inside a branch or a loop; what they make is gone for what follows."""
    before = len(w.pool)
    for _ in range(w.chance.randint(1, most)):
        w.chance.choice(families)(w)
    return w.pool[before:]


def _condition(w: Writer) -> tuple[Any, list[bool] | None]:
    """What decides a jump, and how in every call, where that is known."""
    flags = w.choose(lambda x: x.dtype == "bool")
    if flags is not None and w.chance.random() < 0.4:
        return flags, None
    sure = [ref for ref in w.scalars if w[ref].values]
    if not sure:
        given = w.number([True, *(w.chance.random() < 0.5 for _ in range(w.count))], role="given")
        w.scalars.remove(given)
        return given, w[given].values
    chosen = w.chance.choice(sure)
    limit = sorted(w[chosen].values)[w.count // 2]
    found = w.set(w.chance.choice(("gt", "le", "eq")), chosen, limit)
    w.scalars.remove(found)
    return found, w[found].values


def branch(w: Writer, families: list[Family]) -> Any:
    """Two sides that end in one tensor, each with a shape of its own where the calls are known to take it."""
    if w.depth:
        return None
    condition, taken = _condition(w)
    pool, scalars = list(w.pool), list(w.scalars)
    w.depth += 1
    leave = w.jump(condition, 0)
    made = [ref for ref in _inside(w, families, 3) if w[ref].dtype == "float32"]
    one = made[-1] if made else w.chance.choice(pool)
    first = len(w.calls)
    w.call("liveshape.move", (one, one), ())  # its target is known when the other side is
    skip = w.jump(False, 0)
    w.land(leave)
    w.pool, w.scalars = list(pool), list(scalars)
    made = _inside(w, families, 2) if w.chance.random() < 0.7 else []
    known = w[one]
    unsure = taken is None

    def fits(other: Any) -> bool:
        alike = other.dtype == known.dtype and other.rank == known.rank
        return alike and (not unsure or other.shapes == known.shapes)

    two = w.choose(fits, [ref for ref in w.pool if ref not in pool]) or w.choose(fits, pool) or w.input(
        known.shapes, known.dtype, *((0, 1) if known.dtype != "float32" else (-1, 1)), known.exact
    )  # fmt: skip
    other = w[two]
    live = [
        a if side else b
        for a, b, side in zip(known.shapes[1:], other.shapes[1:], (taken or [True] * (w.count + 1))[1:], strict=True)
    ]
    bound = tuple(max(pair) for pair in zip(known.bound, other.bound, strict=True))
    joined = w.join(known, other, [bound, *live])
    w.calls[first] = Call("liveshape.move", (one, joined), (joined,))
    w.call("liveshape.move", (two, joined), (joined,))
    w.land(skip)
    w.depth -= 1
    given = [ref for ref in w.pool if w[ref].role == "input" and ref not in pool]
    w.pool, w.scalars = [*pool, *given, joined], scalars
    return joined


def skipped(w: Writer, families: list[Family]) -> Any:
    """A few nodes that a call may leave out: what they write in place is all that can be seen of them."""
    if w.depth:
        return None
    condition, _ = _condition(w)
    pool, scalars = list(w.pool), list(w.scalars)
    w.depth += 1
    leave = w.jump(condition, 0)
    _inside(w, families, 3)
    w.land(leave)
    w.depth -= 1
    w.pool, w.scalars = pool, scalars
    return True


def loop(w: Writer, families: list[Family]) -> Any:
    """A few nodes several times over; one tensor goes from turn to turn."""
    if w.depth:
        return None
    x = w.choose(lambda x: x.dtype == "float32" and x.span <= LARGE)
    if x is None:
        return None
    known = w[x]
    turns: Any = w.chance.choice((1, 2, 3))
    live = [ref for ref in w.scalars if w[ref].values and w[ref].low >= 1 and w[ref].high <= 5]
    if live and w.chance.random() < 0.6:
        turns = w.chance.choice(live)
    carried = w.emit("liveshape.move", x, dtype="float32", low=min(known.low, -1), high=max(known.high, 1), shown=False)
    if carried is None:  # the program is large enough
        return None
    pool, scalars = list(w.pool), list(w.scalars)
    counter = w.keep(Number("scalar", None, 0, 4))
    w.depth += 1
    w.pool.append(carried)
    w.scalars.append(counter)
    start = len(w.calls)
    made = _inside(w, families, 3)
    found = [ref for ref in made if w[ref].shapes == known.shapes and w[ref].dtype == "float32"]
    last = w.emit("aten.tanh.default", found[-1] if found else carried, dtype="float32", low=-1, high=1)
    w.call("liveshape.move", (last, carried), (carried,))
    w[carried].exact = False
    w.call("add", (counter, 1, counter), (counter,))
    done = w.keep(Number("scalar", None, 0, 1))
    w.call("ge", (counter, turns, done), (done,))
    w.jump(done, start)
    w.call("liveshape.assign", (0, counter), (counter,))
    w.depth -= 1
    w.pool, w.scalars = [*pool, carried], scalars
    return carried


def mapped(w: Writer, families: list[Family]) -> Any:
    """Row after row through a node, and the results collected, as a mapped function is exported."""
    if w.depth:
        return None
    x = w.choose(lambda x: x.dtype == "float32" and x.rank == 2 and max(row[0] for row in x.shapes) <= 12)
    if x is None:
        x = w.input(w.shapes("T", 8))
    known = w[x]
    rows_of = size_of(w, x, 0)
    counter = w.keep(Number("scalar", None, 0, 0))
    done = w.keep(Number("scalar", None, 0, 1))
    collected = w.join(known, known, list(known.shapes))
    w[collected].low, w[collected].high, w[collected].exact = -1, 1, False
    start = len(w.calls)
    row = w.emit("aten.select_copy.int", x, 0, counter, **{**same(known), "shown": False})
    turned = w.emit("aten.sin.default", row, dtype="float32", low=-1, high=1, shown=False)
    w.call("executorch_prim::et_copy_index.tensor", (collected, turned, counter, ()), (collected,))
    w.call("add", (counter, 1, counter), (counter,))
    w.call("eq", (counter, rows_of, done), (done,))
    w.jump(done, start)
    w.call("sub", (counter, rows_of, counter), (counter,))
    w.pool.append(collected)
    return collected


def unused(w: Writer) -> Any:
    """A result that nobody looks at."""
    x = anything(w)
    if x is None:
        return None
    return w.emit("aten.clone.default", x, None, **{**same(w[x]), "shown": False})
