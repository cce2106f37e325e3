"""Families of operators that order, scatter, mask and count elements, and those of eight bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.graphs.movement import same
from tests.graphs.pictures import with_places
from tests.graphs.program import Ref
from tests.graphs.reference import Evaluation
from tests.graphs.writer import Known, Writer

CODES = {"dtype": "int8", "low": -128, "high": 127}


def ordered(w: Writer) -> Any:
    """Sorted, or the first of that, and the same found again by the places."""
    x = w.choose(lambda x: x.dtype in ("float32", "float16", "int32") and x.rank >= 1)
    if x is None:
        return None
    axis, upward = w.chance.randrange(w[x].rank), w.chance.random() < 0.5
    if w.chance.random() < 0.5:
        pair = with_places(w, x, "aten.sort.default", axis, upward)
    else:
        # Of equal elements torch takes any, so that nobody may see which.
        k = w.chance.randint(1, w[x].least(axis))
        told = {**same(w[x]), "dtype": (w[x].dtype, "int64"), "shown": False}
        pair = w.emit("aten.topk.default", x, k, axis, upward, True, **told)
        w.pool += () if pair is None else pair[:1]
    if pair is None or w.chance.random() < 0.5:
        return pair
    return w.emit("aten.gather.default", x, axis, pair[1], False, **same(w[x]))


def scattered(w: Writer) -> Any:
    """Elements of a source, or one number, where an index says, some of them at the same place."""
    x = w.choose(lambda x: x.dtype in ("float32", "int32") and x.rank >= 1 and x.span < 1000)
    if x is None:
        return None
    known: Known = w[x]
    axis = w.chance.randrange(known.rank)
    shapes = [(*row[:axis], 3, *row[axis + 1 :]) for row in known.shapes]
    index = w.input(shapes, "int64", 0, known.least(axis) - 1)
    if w.chance.random() < 0.3:
        told = {**same(known), "low": min(known.low, 2), "high": max(known.high, 2)}
        return w.emit("aten.scatter.value", x, axis, index, 2, **told)
    source = w.choose(lambda y: y.dtype == known.dtype and y.shapes == shapes and y.span < 1000)
    if source is None:
        source = w.input(shapes, known.dtype, -2, 2, known.exact)
    other: Known = w[source]
    low, high = known.low + 3 * min(other.low, 0), known.high + 3 * max(other.high, 0)
    told = {"dtype": known.dtype, "exact": known.exact and other.exact, "low": low, "high": high}
    told["low"], told["high"] = min(low, other.low), max(high, other.high)
    name, *rest = w.chance.choice(
        (("scatter.src",), ("scatter_add.default",), ("scatter_reduce.two", "amax", w.chance.random() < 0.5))
    )
    return w.emit(f"aten.{name}", x, axis, index, source, *rest, **told)


def mask_of(w: Writer, shapes: list[Any]) -> Ref:
    """Flags of a shape: what is there, or a new input."""
    found = w.choose(lambda m: m.dtype == "bool" and m.shapes == shapes)
    return found if found is not None and w.chance.random() < 0.6 else w.input(shapes, "bool", 0, 1)


def masked(w: Writer) -> Any:
    x = w.choose(lambda x: x.dtype in ("float32", "float16", "int32") and x.rank >= 1)
    if x is None:
        return None
    known: Known = w[x]
    kind, choice = known.dtype, w.chance.random()
    told = {**same(known), "low": min(known.low, -2), "high": max(known.high, 2)}
    if choice < 0.2 and known.rank >= 2:
        name = w.chance.choice(("tril", "triu"))
        return w.emit(f"aten.{name}.default", x, w.chance.choice((0, 1, -2)), **told)
    kept = known.rank if choice > 0.8 else w.chance.randrange(known.rank + 1)
    shapes = [tuple(1 if axis < known.rank - kept else size for axis, size in enumerate(row)) for row in known.shapes]
    mask = mask_of(w, shapes)
    if choice < 0.5:
        return w.emit("aten.masked_fill.Scalar", x, mask, w.chance.choice((0, 2, -2)), **told)
    if choice < 0.65:
        return w.emit("aten.masked_fill.Tensor", x, mask, w.constant((), kind, -2, 2, True), **told)
    source = w.choose(lambda y: y.dtype == kind and y.shapes == known.shapes)
    if source is None:
        source = w.input(known.shapes, kind, -2, 2, known.exact)
    low, high = min(known.low, w[source].low), max(known.high, w[source].high)
    exact = known.exact and w[source].exact
    return w.emit("aten.masked_scatter.default", x, mask, source, dtype=kind, low=low, high=high, exact=exact)


def halved(w: Writer) -> Any:
    x = w.choose(lambda x: x.floating and any(x.steady(a) and x.bound[a] % 2 == 0 for a in range(x.rank)))
    if x is None:
        return None
    known: Known = w[x]
    axis = w.chance.choice([a for a in range(known.rank) if known.steady(a) and known.bound[a] % 2 == 0])
    return w.emit("aten.glu.default", x, axis, dtype=known.dtype, low=-known.span, high=known.span)


def counted(w: Writer) -> Any:
    """As many elements as a mask has, which must be known here: what is in it is asked of the program so far."""
    stateful = any(known.role == "state" for known in w.known)
    masks = [ref for ref in w.pool if w[ref].dtype == "bool" and w[ref].rank >= 1]
    mask = None if stateful or w.depth else w.choose(lambda m: m.role == "result", masks)
    if mask is None:
        mask = w.choose(lambda m: m.role == "input", masks)
    if mask is None:
        mask = w.input(w.shapes(*w.chance.choice((("S",), ("T", 4), (1, "T", "T")))), "bool", 0, 1)
    flags: Known = w[mask]
    if flags.role == "input":
        counts = [int(array.sum()) for array in flags.data]
    else:
        evaluation = Evaluation(w.program([mask]))
        counts = [int(evaluation.call(turn)[mask.number].sum()) for turn in range(w.count)]
    counts = [int(np.prod(flags.bound)), *counts]
    choice = w.chance.random()
    if choice < 0.4:
        shapes = [(count, flags.rank) for count in counts]
        most = max(flags.bound) - 1
        return w.emit("aten.nonzero.default", mask, dtype="int64", low=0, high=most, shapes=shapes)
    x = w.choose(lambda x: x.dtype in ("float32", "float16", "int32") and x.shapes == flags.shapes)
    if x is None:
        x = w.input(flags.shapes, "float32", -2, 2)
    shapes = [(count,) for count in counts]
    if choice < 0.7:
        return w.emit("aten.masked_select.default", x, mask, shapes=shapes, **same(w[x]))
    return w.emit("aten.index.Tensor", x, (mask,), shapes=shapes, **same(w[x]))


# Eight bits: scales are small whole numbers, so that codes and what they stand for are exact


def codes(w: Writer) -> Ref:
    """Integers of eight bits: what is there, or a new input."""
    found = w.choose(lambda x: x.dtype == "int8")
    if found is not None and w.chance.random() < 0.7:
        return found
    return w.input(w.shapes(*w.chance.choice((("S", 24), (1, "S", 24), ("T", 7), (2, "T", 6)))), "int8", -128, 127)


def qparams(w: Writer, x: Ref) -> tuple[str, tuple[Any, ...]]:
    """A scale and a zero point of a tensor, its channels or its rows, and the form that takes them."""
    known: Known = w[x]
    steady = [axis for axis in range(known.rank) if known.steady(axis)]
    choice = w.chance.random()
    if choice < 0.3 or (choice < 0.6 and not steady) or not known.rank:
        return "per_tensor.default", (w.chance.choice((1.0, 2.0, 4.0)), w.chance.choice((0, 3, -30)))
    if choice < 0.6:
        axis = w.chance.choice(steady)
        size = (known.bound[axis],)
        kind = w.chance.choice(("int32", "int64"))
        return "per_channel.default", (
            w.constant(size, "float32", 1, 4, True), w.constant(size, kind, -30, 30, True), axis,
        )  # fmt: skip
    if choice < 0.75:
        scale = w.held(np.array([2], np.float32), 2, 2, True)
        return "per_tensor.tensor", (scale, w.constant((1,), "int32", -30, 30, True))
    shapes = [(*row[:-1], 1) for row in known.shapes]
    return "per_token.default", (w.input(shapes, "float32", 1, 4, True), w.input(shapes, "int32", -30, 30))


def quantized(w: Writer) -> Any:
    """Numbers to codes and back, by the same scales."""
    x = w.choose(lambda x: x.floating and x.exact and x.span < 1000)
    if x is None:
        return None
    form, given = qparams(w, x)
    rest = (-128, 127, None)
    made = w.emit(f"quantized_decomposed.quantize_{form}", x, *given, *rest, **CODES)
    if made is None or w.chance.random() < 0.3:
        return made
    told = {"dtype": "float32", "low": -640, "high": 640, "exact": True}
    return w.emit(f"quantized_decomposed.dequantize_{form}", made, *given, *rest, None, **told)


def dequantized(w: Writer) -> Any:
    x = codes(w)
    form, given = qparams(w, x)
    told = {"dtype": "float32", "low": -640, "high": 640, "exact": True}
    return w.emit(f"quantized_decomposed.dequantize_{form}", x, *given, -128, 127, None, None, **told)


def eight_bits(w: Writer) -> Any:
    """What works on codes: layers, sums, and moves of bytes that are no whole words."""
    x = codes(w)
    known: Known = w[x]
    choice = w.chance.random()
    if choice < 0.4 and known.rank >= 2 and known.steady(known.rank - 1):
        return layer(w, x)
    if choice < 0.5:
        return w.emit("et_vk.q8ta_relu.default", x, 2.0, 10, 4.0, -20, **CODES)
    if choice < 0.6:
        other = w.choose(lambda y: y.dtype == "int8" and y.shapes == known.shapes) or x
        return w.emit("et_vk.q8ta_add.default", x, other, 2.0, 3, 1.0, -4, 4.0, -7, 1.0, **CODES)
    if choice < 0.7:
        order = tuple(w.chance.sample(range(known.rank), known.rank))
        return w.emit("aten.permute_copy.default", x, order, **CODES)
    if choice < 0.8:
        start, step = w.chance.choice(((1, 1), (0, 2), (-3, 1)))
        return w.emit("aten.slice_copy.Tensor", x, w.chance.randrange(known.rank), start, None, step, **CODES)
    axis = w.chance.randrange(known.rank)
    if choice < 0.9:
        return w.emit("aten.roll.default", x, (w.chance.choice((1, -2)),), (axis,), **CODES)
    name = w.chance.choice(("cat", "stack"))
    return w.emit(f"aten.{name}.default", (x, x), axis, **CODES)


def layer(w: Writer, x: Ref) -> Any:
    """A linear layer by a weight of eight bits, to numbers or to codes again."""
    depth, columns = w[x].bound[-1], w.chance.choice((8, 7, 24))
    whole = w.generator.integers(-4, 5, (columns, depth)).astype(np.int8)
    padding = (0, -columns % 4)  # as the exporter lays them out
    weight = w.held(whole, -4, 4, True)
    sums = w.held(np.pad(whole.astype(np.int32).sum(1).astype(np.int32), padding), 0, 0, True)
    scales = w.held(np.pad(w.generator.integers(1, 3, columns).astype(np.float32), padding), 1, 2, True)
    bias = w.held(np.pad(w.generator.integers(-9, 9, columns).astype(np.float32), padding), -9, 9, True)
    offset = bias if w.chance.random() < 0.5 else None
    if w.chance.random() < 0.5:
        args = (x, 1.0, -9, weight, sums, scales, 64.0, 17, offset, w.chance.choice(("relu", "none")))
        return w.emit("et_vk.q8ta_linear.default", *args, **CODES)
    span = 137 * 8 * depth + 9
    told = {"dtype": "float32", "low": -span, "high": span, "exact": True}
    return w.emit("et_vk.linear_q8ta_q8csw.default", x, 1.0, -9, weight, sums, scales, offset, **told)
