"""Families of operators that move elements: views, copies along strides, lookups, and writes in place."""

from __future__ import annotations

import math
from typing import Any

from tests.graphs.program import Ref
from tests.graphs.writer import Known, Writer

PLAIN = ("float32", "float16", "int32", "int64", "bool")


def same(known: Known) -> dict[str, Any]:
    """What an operator that only moves elements says of its result."""
    return {"dtype": known.dtype, "low": known.low, "high": known.high, "exact": known.exact}


def anything(w: Writer, rank: int = 0) -> Ref | None:
    return w.choose(lambda x: x.dtype in PLAIN and x.rank >= rank)


def size_of(w: Writer, x: Ref, axis: int) -> Any:
    """A size as a size list has it: a number if it never moves, else a live scalar."""
    if w[x].steady(axis):
        return w[x].bound[axis]
    values = [shape[axis] for shape in w[x].shapes]
    found = [ref for ref in w.scalars if w[ref].values == values]
    return w.chance.choice(found) if found else w.set("sym_size.int", x, axis)


def view(w: Writer) -> Any:
    """The same elements under another shape: chains of these share memory where nobody can tell."""
    x = anything(w)
    if x is None:
        return None
    known = w[x]
    choice = w.chance.random()
    if choice < 0.15:
        name = w.chance.choice(("clone", "alias_copy", "detach_copy"))
        return w.emit(f"aten.{name}.default", x, *((None,) if name == "clone" else ()), **same(known))
    if choice < 0.25:
        return w.emit("liveshape.move", x, **same(known))
    if choice < 0.45:
        return w.emit("aten.unsqueeze_copy.default", x, w.chance.randint(0, known.rank), **same(known))
    ones = [axis for axis in range(known.rank) if known.bound[axis] == 1]
    if choice < 0.6 and ones:
        return w.emit("aten.squeeze_copy.dims", x, (w.chance.choice(ones),), **same(known))
    if not known.rank:
        return None
    moving = [axis for axis in range(known.rank) if not known.steady(axis)]
    rest = math.prod(known.bound[axis] for axis in range(known.rank) if axis not in moving)
    if len(moving) == 1 and choice < 0.85:
        width = w.chance.choice([each for each in (1, 2, 3, 4, 6, 24) if rest % each == 0])
        sizes: tuple[Any, ...] = w.chance.choice(
            (
                (-1,),
                (1, -1, rest),
                (-1, width, rest // width),
                (size_of(w, x, moving[0]), rest),
                (size_of(w, x, moving[0]), width, rest // width),
            )
        )
    elif known.rank > 1:
        axis = w.chance.randrange(known.rank - 1)  # joined with the next
        before = [size_of(w, x, each) for each in range(axis)]
        after = [size_of(w, x, each) for each in range(axis + 2, known.rank)]
        sizes = (*before, -1, *after)
    else:
        sizes = (1, -1)
    return w.emit("aten.view_copy.default", x, sizes, **same(known))


def turned(w: Writer) -> Any:
    x = anything(w, 1)
    if x is None:
        return None
    known = w[x]
    rank = known.rank
    choice = w.chance.random()
    if choice < 0.4:
        order = tuple(w.chance.sample(range(rank), rank))
        return w.emit("aten.permute_copy.default", x, order, **same(known))
    if choice < 0.6:
        one, other = w.chance.randrange(rank), w.chance.randrange(rank)
        return w.emit("aten.transpose_copy.int", x, one, other, **same(known))
    if choice < 0.75:
        return w.emit("aten.flip.default", x, (w.chance.randrange(rank),), **same(known))
    if choice < 0.85:
        return w.emit("aten.roll.default", x, (w.chance.choice((1, -2)),), (w.chance.randrange(rank),), **same(known))
    if choice < 0.92:
        times = tuple(w.chance.choice((1, 1, 2)) for _ in range(rank))
        return w.emit("aten.repeat.default", x, times, **same(known))
    pad = (w.chance.choice((0, 1)), w.chance.choice((1, 2)))
    if known.dtype == "bool":
        return None
    found = w.emit("aten.constant_pad_nd.default", x, pad, 0, **same(known))
    if found is not None:
        w[found].low, w[found].high = min(known.low, 0), max(known.high, 0)
    return found


def expand(w: Writer) -> Any:
    x = w.choose(lambda x: x.dtype in PLAIN and x.rank < 4 and x.rank > 0)
    if x is None:
        return None
    known = w[x]
    ones = [axis for axis in range(known.rank) if known.bound[axis] == 1]
    sizes: list[Any] = [size_of(w, x, axis) for axis in range(known.rank)]
    live = [ref for ref in w.scalars if w[ref].values and w[ref].low >= 1 and w[ref].high <= 43]
    number = w.chance.choice(live) if live and w.chance.random() < 0.5 else w.chance.choice((2, 3))
    if ones and w.chance.random() < 0.5:
        sizes[w.chance.choice(ones)] = number
    else:
        sizes = [number, *sizes]
    return w.emit("aten.expand_copy.default", x, tuple(sizes), False, **same(known))


def part(w: Writer) -> Any:
    """Slices and selections, at places that may be live."""
    x = anything(w, 1)
    if x is None:
        return None
    known = w[x]
    axis = w.chance.randrange(known.rank)
    least = known.least(axis)
    live = [ref for ref in w.scalars if w[ref].low >= 0 and w[ref].high < least]
    choice = w.chance.random()
    if choice < 0.35:
        fixed = w.chance.choice((0, -1, least - 1, -least))
        index = w.chance.choice(live) if live and w.chance.random() < 0.6 else fixed
        return w.emit("aten.select_copy.int", x, axis, index, **same(known))
    if choice < 0.55 and live:
        sure = [ref for ref in live if w[ref].values is not None]
        if sure:
            start, end = w.chance.choice(((w.chance.choice(sure), None), (None, w.chance.choice(sure))))
            return w.emit("aten.slice_copy.Tensor", x, axis, start, end, 1, **same(known))
    if choice < 0.65 and known.steady(axis) and known.bound[axis] > 2:
        return w.emit("aten.narrow_copy.default", x, axis, 1, known.bound[axis] - 2, **same(known))
    start, end, step = w.chance.choice(
        ((None, None, 2), (1, None, 1), (None, -1, 1), (-3, None, 1), (0, 2**63 - 1, 3), (None, 4, 1))
    )
    return w.emit("aten.slice_copy.Tensor", x, axis, start, end, step, **same(known))


def split(w: Writer) -> Any:
    """One tensor as several, some of which nobody may use."""
    x = w.choose(lambda x: x.dtype in PLAIN and any(x.steady(axis) and x.bound[axis] > 1 for axis in range(x.rank)))
    if x is None:
        return None
    known = w[x]
    axis = w.chance.choice([axis for axis in range(known.rank) if known.steady(axis) and known.bound[axis] > 1])
    size = known.bound[axis]
    if size <= 4:
        kinds = {**same(known), "dtype": (known.dtype,) * size}
        return w.emit("aten.unbind_copy.int", x, axis, **kinds)
    first = w.chance.choice((1, 4, size // 2))
    sizes = (first, size - first) if w.chance.random() < 0.6 or size - first < 2 else (first, 1, size - first - 1)
    kinds = {**same(known), "dtype": (known.dtype,) * len(sizes)}
    return w.emit("aten.split_with_sizes_copy.default", x, sizes, axis, **kinds)


def join(w: Writer) -> Any:
    x = anything(w, 1)
    if x is None:
        return None
    known = w[x]
    axis = w.chance.randrange(known.rank)

    def fits(other: Known) -> bool:
        pairs = zip(known.shapes, other.shapes, strict=True)
        return other.dtype == known.dtype and all(
            len(a) == len(b) and all(p == q or place == axis for place, (p, q) in enumerate(zip(a, b, strict=True)))
            for a, b in pairs
        )

    others = [ref for ref in (w.choose(fits) for _ in range(w.chance.choice((1, 1, 2)))) if ref is not None]
    parts = [x, *others]
    if w.chance.random() < 0.4:
        parts.append(w.constant(tuple(3 if a == axis else size for a, size in enumerate(known.bound)), known.dtype)
                     if known.dtype == "float32" and all(known.steady(a) or a == axis for a in range(known.rank))
                     else x)  # fmt: skip
    rows = [w[ref] for ref in parts]
    told = {
        "dtype": known.dtype,
        "low": min(row.low for row in rows),
        "high": max(row.high for row in rows),
        "exact": all(row.exact for row in rows),
    }
    if w.chance.random() < 0.3:
        like = [ref for ref in parts if w[ref].shapes == known.shapes]
        return w.emit("aten.stack.default", tuple(like), w.chance.randint(0, known.rank), **told)
    return w.emit("aten.cat.default", tuple(parts), axis, **told)


def scatter(w: Writer) -> Any:
    """Another tensor with a part of it replaced."""
    x = w.choose(lambda x: x.dtype == "float32" and x.rank >= 2)
    if x is None:
        return None
    known = w[x]
    axis = w.chance.randrange(known.rank)
    index = w.chance.choice((0, -1))
    shapes = [(*row[:axis], *row[axis + 1 :]) for row in known.shapes]
    source = w.choose(lambda y: y.dtype == "float32" and y.shapes == shapes)
    if source is None:
        source = w.emit("aten.select_copy.int", x, axis, index, **same(known))
    if source is None:
        return None
    both = known, w[source]
    told = {"low": min(b.low for b in both), "high": max(b.high for b in both), "exact": all(b.exact for b in both)}
    return w.emit("aten.select_scatter.default", x, source, axis, index, dtype="float32", **told)


def created(w: Writer) -> Any:
    live = [ref for ref in w.scalars if w[ref].values and w[ref].low >= 1 and w[ref].high <= 43]
    rest = (None,) * 4
    choice = w.chance.random()
    if live and choice < 0.4:
        sizes = (w.chance.choice(live), w.chance.choice((1, 8, 24)))
        return w.emit("aten.full.default", sizes, 2, *rest, dtype="float32", low=2, high=2, exact=True)
    if live and choice < 0.7:
        end = w.chance.choice(live)
        kind = w.chance.choice(("int32", "float32"))
        return w.emit("aten.arange.start_step", 0, end, 1, *rest, dtype=kind, low=0, high=43, exact=True)
    x = anything(w)
    if x is None:
        return None
    return w.emit("aten.full_like.default", x, 3, *rest, None, dtype="float32", low=3, high=3, exact=True)


def indices(w: Writer, shapes: list[Any], limit: int) -> Ref:
    """Whole numbers from zero up to a limit: what is there, brought into range, or a new input."""
    given = [list(shape) for shape in shapes]
    fitting = w.choose(
        lambda x: x.dtype in ("int32", "int64") and [list(shape) for shape in x.shapes] == given and x.span < 1e6
    )
    if fitting is None:
        return w.input(shapes, w.chance.choice(("int32", "int64")), 0, limit - 1)
    known = w[fitting]
    if known.low >= 0 and known.high < limit:
        return fitting
    found: Ref = w.emit("aten.remainder.Scalar", fitting, limit, dtype=known.dtype, low=0, high=limit - 1)
    return found


def lookup(w: Writer) -> Any:
    choice = w.chance.random()
    if choice < 0.35:
        kind = w.chance.choice(("float32", "float32", "float16"))
        table = w.constant((19, w.chance.choice((24, 8, 7))), kind)
        ids = indices(w, w.shapes(*w.chance.choice(((1, "S"), ("S",), ("T",)))), 19)
        return w.emit("aten.embedding.default", table, ids, -1, False, False, **same(w[table]))
    x = anything(w, 1)
    if x is None:
        return None
    known = w[x]
    axis = w.chance.randrange(known.rank)
    least = known.least(axis)
    if choice < 0.6:
        index = indices(w, w.chance.choice((w.shapes("T"), w.shapes(3))), least)
        return w.emit("aten.index_select.default", x, axis, index, **same(known))
    if choice < 0.8:
        shapes = [(*row[:axis], 2, *row[axis + 1 :]) for row in known.shapes]
        index = w.input(shapes, "int64", 0, least - 1)
        return w.emit("aten.gather.default", x, axis, index, False, **same(known))
    index = indices(w, w.shapes("T"), least)
    places = (*(None for _ in range(axis)), index)
    return w.emit("aten.index.Tensor", x, places, **same(known))


def state(w: Writer) -> Any:
    """A tensor that outlives the call; its elements are read and written by what follows."""
    if not w.stateful:
        return None
    shape = w.chance.choice(((24,), (1, 24), (30, 8), (8, 24)))
    kind = w.chance.choice(("float32", "float32", "int32"))
    exact = kind == "int32"
    array = w.generator.integers(-3, 4, shape).astype(kind)
    ref = w.held(array, -1e4 if exact else -4, 1e4 if exact else 4, exact, "state")
    w.pool.append(ref)
    return ref


def in_place(w: Writer) -> Any:
    """copy_ and index_put_ on a state, an input, or something that was made, of which there may be views."""
    roles = ("state", "result", "input") if w.stateful else ("result", "input")
    role = w.chance.choice(roles)
    x = w.choose(lambda x: x.role == role and x.dtype in ("float32", "int32") and x.rank >= 1)
    if x is None:
        return None
    known = w[x]

    def fits(other: Known) -> bool:
        inside = known.low <= other.low and other.high <= known.high
        return other.dtype == known.dtype and inside and (other.exact or not known.exact)

    if w.chance.random() < 0.6:
        shapes = known.shapes
        source = w.choose(
            lambda y: (
                fits(y)
                and y is not known
                and y.rank <= known.rank
                and all(
                    all(p in (1, q) for p, q in zip(a[::-1], b[::-1], strict=False))
                    for a, b in zip(y.shapes, shapes, strict=True)
                )
            )
        )
        if source is None:
            columns = [(*row[:-1], 1) for row in shapes]
            source = w.input(columns, known.dtype, 0 if known.low >= 0 else -1, 1, known.exact)
            if not fits(w[source]):
                return None
        return w.mutate("aten.copy_.default", x, source, False, place=0)
    least = known.least(0)
    count = min(3, least)
    index = w.input([(count,)] * (w.count + 1), "int64", 0, least - 1)
    for array in w[index].data:  # rows that differ: written twice, the last one would be a matter of chance
        array[:] = w.generator.permutation(least)[:count]
    w.pool = [ref for ref in w.pool if ref != index]
    shapes = [(count, *row[1:]) for row in known.shapes]
    values = w.choose(lambda y: fits(y) and y is not known and y.shapes == shapes)
    if values is None:
        low = min(max(known.low, -1), known.high)
        values = w.input(shapes, known.dtype, low, max(low, min(known.high, 1)), known.exact)
        if not fits(w[values]):
            return None
    return w.mutate("aten.index_put_.default", x, (index,), values, False, place=0)


def rewritten(w: Writer) -> Any:
    """A value that a second node writes, with another live shape than before."""
    if w.depth:
        return None
    target = w.choose(lambda x: x.role == "result" and x.dtype == "float32" and x.rank >= 1)
    if target is None:
        return None
    known = w[target]
    source = w.choose(
        lambda y: (
            y is not known
            and y.dtype == known.dtype
            and y.rank == known.rank
            and all(a <= b for row in y.shapes for a, b in zip(row, known.bound, strict=True))
        )
    )
    if source is None:
        return None
    other = w[source]
    if w.chance.random() < 0.5:
        told = same(other)
        return w.emit("liveshape.move", source, into=(target,), **told)
    return w.emit("aten.tanh.default", source, dtype="float32", low=-1, high=1, into=(target,))
