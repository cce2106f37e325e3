"""Chains and trees of pointwise operators that nothing else reads: every function of the table, numbers that are live,
casts, copies and views between, behind inputs and behind operators that store an expression of their result."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tests.graphs import elementwise
from tests.graphs.movement import anything, turned, view
from tests.graphs.program import Ref
from tests.graphs.writer import LARGE, Known, Writer

# Name, further arguments, what must hold of the input, and bounds of the result. What jumps is for exact numbers.
RARE: tuple[tuple[str, tuple[Any, ...], Any, Any], ...] = (
    ("expm1.default", (), lambda x: x.high <= 3, lambda x: (-1, math.expm1(x.high))),
    ("log.default", (), lambda x: x.low >= 0.5, lambda x: (-1, math.log(x.high))),
    ("log2.default", (), lambda x: x.low >= 0.5, lambda x: (-1, math.log2(x.high))),
    ("log10.default", (), lambda x: x.low >= 0.5, lambda x: (-1, math.log10(x.high))),
    ("rsqrt.default", (), lambda x: x.low >= 0.25, lambda x: (0, 2)),
    ("reciprocal.default", (), lambda x: x.low >= 0.5, lambda x: (0, 2)),
    ("tan.default", (), lambda x: x.span <= 1.2, lambda x: (-2.6, 2.6)),
    ("asin.default", (), lambda x: x.span <= 0.9, lambda x: (-1.2, 1.2)),
    ("acos.default", (), lambda x: x.span <= 0.9, lambda x: (0, 3)),
    ("sinh.default", (), lambda x: x.span <= 3, lambda x: (-10.1, 10.1)),
    ("cosh.default", (), lambda x: x.span <= 3, lambda x: (1, 10.1)),
    ("asinh.default", (), None, lambda x: (-math.asinh(x.span), math.asinh(x.span))),
    ("acosh.default", (), lambda x: x.low >= 1.25, lambda x: (0, math.acosh(x.high))),
    ("atanh.default", (), lambda x: x.span <= 0.9, lambda x: (-1.5, 1.5)),
    ("erfc.default", (), None, lambda x: (0, 2)),
    ("erfinv.default", (), lambda x: x.span <= 0.9, lambda x: (-1.2, 1.2)),
    ("lgamma.default", (), lambda x: x.low >= 1 and x.span <= LARGE, lambda x: (-0.2, x.high * math.log(x.high + 1))),
    ("digamma.default", (), lambda x: x.low >= 1, lambda x: (-0.6, math.log(x.high + 1))),
    ("i0.default", (), lambda x: x.span <= 3, lambda x: (1, 5)),
    ("hardsigmoid.default", (), None, lambda x: (0, 1)),
    ("logit.default", (0.1,), None, lambda x: (-2.2, 2.2)),
    ("sub.Scalar", (0.5, 2), None, lambda x: (x.low - 1, x.high - 1)),
    ("pow.Scalar", (), lambda x: x.span <= 3, lambda x: (0, 8)),
)
STEPPING: tuple[tuple[str, tuple[Any, ...], Any], ...] = (
    ("hardshrink.default", (1.5,), lambda x: (-x.span, x.span)),
    ("round.decimals", (0,), lambda x: (-x.span, x.span)),
    ("round.decimals", (-1,), lambda x: (-x.span - 5, x.span + 5)),
    ("angle.default", (), lambda x: (0, 3.2)),
    ("copysign.Scalar", (-2.0,), lambda x: (-x.span, 0)),
    ("remainder.Scalar", (3,), lambda x: (0, 3)),
    ("fmod.Scalar", (3,), lambda x: (-3, 3)),
    ("div.Scalar_mode", (2, "trunc"), lambda x: (-x.span, x.span)),
    ("div.Scalar_mode", (2, "floor"), lambda x: (-x.span - 1, x.span)),
)
FLAGS = ("isnan.default", "isinf.default", "signbit.default")
BITS = (("bitwise_left_shift.Tensor_Scalar", 2), ("bitwise_right_shift.Tensor_Scalar", 1), ("bitwise_or.Scalar", 5))
PAIRS = ("atan2.default", "hypot.default")
STEPPING_PAIRS = ("floor_divide.default", "remainder.Tensor", "fmod.Tensor", "copysign.Tensor")


def rare(w: Writer, x: Ref | None = None) -> Any:
    """A function of the table that few programs have."""
    x = x or w.choose(lambda x: x.dtype in ("float32", "float16", "bfloat16", "int32", "int64"))
    if x is None:
        return None
    known: Known = w[x]
    if not known.floating:
        return _of_whole(w, x) if known.dtype != "bool" else None
    if known.exact and w.chance.random() < 0.5:
        if w.chance.random() < 0.2:
            return w.emit(f"aten.{w.chance.choice(FLAGS)}", x, dtype="bool", exact=True)
        name, extra, bounds = w.chance.choice(STEPPING)
        low, high = bounds(known)
        exact = name not in ("angle.default",)
        return w.emit(f"aten.{name}", x, *extra, dtype=known.dtype, low=low, high=high, exact=exact)
    # Where a disturbed number would leave what a function is defined on, only the narrowest disturbance will do.
    name, extra, fits, bounds = w.chance.choice([row for row in RARE if row[2] is None or known.dtype == "float32"])
    if fits is not None and not fits(known):
        x = brought(w, x, fits)
        if x is None:
            return None
        known = w[x]
    low, high = bounds(known)
    arguments = (2.0, x) if name == "pow.Scalar" else (x, *extra)
    return w.emit(f"aten.{name}", *arguments, dtype=known.dtype, low=low, high=high)


def brought(w: Writer, x: Ref, fits: Callable[[Known], bool]) -> Ref | None:
    """x between -0.9 and 0.9 or between 1.25 and 2.25, where a function is defined on one of these."""
    kind = w[x].dtype
    bent = w.emit("aten.tanh.default", x, dtype=kind, low=-1, high=1)
    small = None if bent is None else w.emit("aten.mul.Scalar", bent, 0.9, dtype=kind, low=-0.9, high=0.9)
    if small is None or fits(w[small]):
        return small
    square = w.emit("aten.square.default", small, dtype=kind, low=0, high=0.81)
    above = None if square is None else w.emit("aten.add.Scalar", square, 1.25, 1, dtype=kind, low=1.25, high=2.25)
    return above if above is not None and fits(w[above]) else None


def _of_whole(w: Writer, x: Ref) -> Any:
    known: Known = w[x]
    name, number = w.chance.choice(BITS)
    span = 4.0 * float(1 << int(max(known.span, 8)).bit_length())
    return w.emit(f"aten.{name}", x, number, dtype=known.dtype, low=-span, high=span) if span < 1e6 else None


def pair(w: Writer, x: Ref | None = None) -> Any:
    """A function of two tensors that few programs have, or of two types."""
    x = x or w.choose(lambda x: x.floating)
    if x is None or not w[x].floating:
        return None
    known: Known = w[x]
    if w.chance.random() < 0.3:
        return mixed(w, x)
    y = elementwise.partner(w, x, lambda other: other.low >= 0.5)
    other: Known = w[y]
    span = known.span + other.span
    if other.low < 0.5:
        return w.emit("aten.hypot.default", x, y, dtype=known.dtype, low=0, high=span)
    if known.exact and other.exact and known.dtype == "float32" and w.chance.random() < 0.6:
        name = w.chance.choice(STEPPING_PAIRS)
        return w.emit(f"aten.{name}", x, y, dtype=known.dtype, low=-2 * span - 1, high=2 * span, exact=True)
    if known.low >= 0.5 and known.span <= 4 and other.span <= 2:
        return w.emit("aten.pow.Tensor_Tensor", x, y, dtype=known.dtype, low=0, high=16)
    return w.emit(f"aten.{w.chance.choice(PAIRS)}", y, x, dtype=known.dtype, low=-3.2, high=max(span, 3.2))


def mixed(w: Writer, x: Ref) -> Any:
    """Floats and whole numbers in one operator, which computes in floats."""
    known: Known = w[x]
    fits = [
        ref
        for ref in w.pool
        if w[ref].dtype in ("int32", "int64", "bool") and w[ref].shapes == known.shapes and w[ref].span <= LARGE
    ]
    y = w.chance.choice(fits) if fits else w.input(known.shapes, w.chance.choice(("int32", "int64", "bool")), -4, 4)
    span = known.span * (w[y].span + 1)
    name, extra = w.chance.choice((("mul.Tensor", ()), ("add.Tensor", (1,)), ("maximum.default", ())))
    exact = known.exact and span < {"float16": 2048, "bfloat16": 256}.get(known.dtype, 1 << 20)
    return w.emit(f"aten.{name}", x, y, *extra, dtype=known.dtype, low=-span - 4, high=span + 4, exact=exact)


def copied(w: Writer, x: Ref) -> Any:
    """The same elements: a copy or a view."""
    known: Known = w[x]
    same = {"dtype": known.dtype, "low": known.low, "high": known.high, "exact": known.exact}
    if w.chance.random() < 0.5:
        return w.emit("aten.clone.default", x, None, **same)
    return w.emit("aten.unsqueeze_copy.default", x, 0, **same) if known.rank < 4 else None


def filled(w: Writer, x: Ref) -> Any:
    """A mask's fill: a number that looks like a tensor."""
    known: Known = w[x]
    flags = w.choose(lambda y: y.dtype == "bool" and y.shapes == known.shapes)
    if flags is None:
        flags = w.input(known.shapes, "bool")
    fill = w.emit("aten.full_like.default", x, 2, *(None,) * 5, dtype=known.dtype, low=2, high=2, exact=True)
    low, high = min(known.low, 2), max(known.high, 2)
    row = {"dtype": known.dtype, "low": low, "high": high, "exact": known.exact}
    return None if fill is None else w.emit("aten.where.self", flags, fill, x, **row)


def chain(w: Writer, x: Ref) -> Any:
    """A few pointwise operators one after the other; what lies between them is read by nobody else."""
    steps: tuple[Callable[[Writer, Ref], Any], ...] = (
        elementwise.unary, elementwise.unary, elementwise.binary, elementwise.binary, elementwise.with_number,
        elementwise.convert, rare, pair, copied, filled,
    )  # fmt: skip
    last, between = x, []
    for _ in range(w.chance.randint(1, 5)):
        before = len(w.pool)
        made = w.chance.choice(steps)(w, last)
        between += [ref for ref in w.pool[before:] if ref != made and w[ref].role == "result"]
        if made is None:
            continue
        if last != x:
            between.append(last)
        last = elementwise.bounded(w, made) or made
        if last != made:
            between.append(made)
    hidden = {*between} - {last}
    w.pool[:] = [ref for ref in w.pool if ref not in hidden]
    return None if last == x else last


def tree(w: Writer) -> Any:
    """Pointwise operators behind anything."""
    x = anything(w)
    return None if x is None or w[x].dtype in ("int8", "uint8") else chain(w, x)


def epilogue(w: Writer) -> Any:
    """Pointwise operators behind one that may store an expression of its result, perhaps behind a view of it."""
    anchors: tuple[Callable[[Writer], Any], ...] = (
        elementwise.product, elementwise.product, elementwise.product, elementwise.softmax, elementwise.reduction,
        elementwise.rms_norm, turned, view,
    )  # fmt: skip
    made = w.chance.choice(anchors)(w)
    first = made[0] if isinstance(made, tuple) and made else made
    if not isinstance(first, Ref) or w[first].role != "result":
        return None
    last = chain(w, elementwise.bounded(w, first) or first)
    if last is not None and first in w.pool and w.chance.random() < 0.8:
        w.pool.remove(first)
    return last
