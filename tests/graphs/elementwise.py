"""Families of operators that work element by element, and those that reduce, normalize and multiply."""

from __future__ import annotations

import math
from typing import Any

from tests.graphs.program import Ref
from tests.graphs.writer import LARGE, WHOLE, Known, Writer

# Name, further arguments, what must hold of the input, bounds of the result, and whether whole numbers stay whole.
UNARY: tuple[tuple[str, tuple[Any, ...], Any, Any, bool], ...] = (
    ("tanh", (), None, lambda x: (-1, 1), False),
    ("tanh", (), None, lambda x: (-1, 1), False),
    ("sigmoid", (), None, lambda x: (0, 1), False),
    ("sin", (), None, lambda x: (-1, 1), False),
    ("cos", (), None, lambda x: (-1, 1), False),
    ("erf", (), None, lambda x: (-1, 1), False),
    ("atan", (), None, lambda x: (-1.6, 1.6), False),
    ("silu", (), None, lambda x: (-0.3, max(x.high, 0)), False),
    ("gelu", ("none",), None, lambda x: (-0.2, max(x.high, 0)), False),
    ("gelu", ("tanh",), None, lambda x: (-0.2, max(x.high, 0)), False),
    ("hardswish", (), None, lambda x: (-0.4, max(x.high, 0)), False),
    ("leaky_relu", (0.25,), None, lambda x: (-x.span, x.span), False),
    ("elu", (1.5, 1, 1), None, lambda x: (-1.5, max(x.high, 0)), False),
    ("exp", (), lambda x: x.high <= 3, lambda x: (0, math.exp(x.high)), False),
    ("sqrt", (), lambda x: x.low >= 0, lambda x: (0, math.sqrt(x.high)), False),
    ("log1p", (), lambda x: x.low >= 0, lambda x: (0, math.log1p(x.high)), False),
    ("relu", (), None, lambda x: (0, max(x.high, 0)), True),
    ("abs", (), None, lambda x: (0, x.span), True),
    ("neg", (), None, lambda x: (-x.high, -x.low), True),
    ("square", (), lambda x: x.span <= 16, lambda x: (0, x.span**2), True),
    ("clamp", (-1, 2), None, lambda x: (-1, 2), True),
    ("clamp", (None, 3), None, lambda x: (min(x.low, 3), 3), True),
    ("hardtanh", (-2, 2), None, lambda x: (-2, 2), True),
)
DISCRETE = ("floor", "ceil", "trunc", "round", "sign")


def unary(w: Writer, x: Ref | None = None) -> Any:
    x = x or w.choose(lambda x: x.floating)
    if x is None or not w[x].floating:
        return whole_unary(w, x) if x is not None else None
    known = w[x]
    if known.exact and w.chance.random() < 0.3:
        name = w.chance.choice(DISCRETE)
        return w.emit(f"aten.{name}.default", x, dtype=known.dtype, low=-known.span, high=known.span, exact=True)
    name, extra, fits, bounds, whole = w.chance.choice(UNARY)
    if fits is not None and not fits(known):
        return None
    low, high = bounds(known)
    exact = whole and known.exact
    return w.emit(f"aten.{name}.default", x, *extra, dtype=known.dtype, low=low, high=high, exact=exact)


def whole_unary(w: Writer, x: Ref | None = None) -> Any:
    x = x or w.choose(lambda x: x.dtype in ("int32", "int64", "bool"))
    if x is None:
        return None
    known, kind = w[x], w[x].dtype
    if kind == "bool":
        return w.emit(f"aten.{w.chance.choice(('bitwise_not', 'logical_not'))}.default", x, dtype="bool")
    span = known.span + 1
    choices: list[tuple[str, tuple[Any, ...], float, float]] = [
        ("abs.default", (), 0, span),
        ("neg.default", (), -span, span),
        ("relu.default", (), 0, max(known.high, 0)),
        ("sign.default", (), -1, 1),
        ("bitwise_not.default", (), -span, span),
        ("clamp.default", (-3, 9), -3, 9),
        ("add.Scalar", (7, 1), known.low + 7, known.high + 7),
        ("mul.Scalar", (3,), -3 * span, 3 * span),
        ("remainder.Scalar", (5,), 0, 4),
        ("div.Scalar_mode", (3, "floor"), -span, span),
        ("bitwise_and.Scalar", (13,), 0, 13),
    ]
    name, extra, low, high = w.chance.choice(choices)
    if max(abs(low), abs(high)) > 1e6:
        return None
    return w.emit(f"aten.{name}", x, *extra, dtype=kind, low=low, high=high)


def partner(w: Writer, x: Ref, test: Any = None) -> Ref:
    """Something that broadcasts with x: what is there, a new input, or a constant of its last dimensions."""
    known: Known = w[x]

    def fits(other: Known) -> bool:
        if other.dtype != known.dtype or (test is not None and not test(other)):
            return False
        pairs = zip(known.shapes, other.shapes, strict=True)
        return all(a == b or 1 in (a, b) for one, two in pairs for a, b in zip(one[::-1], two[::-1], strict=False))

    found = w.choose(fits) if w.chance.random() < 0.75 else None
    if found is not None:
        return found
    low, high = (-4, 4) if known.exact else (-2, 2)
    steady = bool(known.rank) and known.steady(known.rank - 1)
    if steady and known.dtype != "bfloat16" and w.chance.random() < 0.6:
        return w.constant(known.bound[-1:], known.dtype, low, high, known.exact and known.floating)
    kept = w.chance.randrange(known.rank + 1)  # dimensions from the last that are not broadcast
    shapes = [tuple(1 if axis < len(row) - kept else size for axis, size in enumerate(row)) for row in known.shapes]
    return w.input(shapes, known.dtype, low, high, known.exact)


def binary(w: Writer, x: Ref | None = None) -> Any:
    x = x or w.choose(lambda x: x.dtype != "uint8" and x.dtype != "int8")
    if x is None:
        return None
    y = partner(w, x)
    a, b = (w[x], w[y]) if w.chance.random() < 0.7 else (w[y], w[x])
    if a is w[y]:
        x, y = y, x
    kind, exact = a.dtype, a.exact and b.exact
    if kind == "bool":
        name = w.chance.choice(("logical_and.default", "logical_xor.default", "bitwise_or.Tensor"))
        return w.emit(f"aten.{name}", x, y, dtype="bool")
    product = max(p * q for p in (a.low, a.high) for q in (b.low, b.high))
    least = min(p * q for p in (a.low, a.high) for q in (b.low, b.high))
    choices: list[tuple[str, tuple[Any, ...], float, float]] = [
        ("add.Tensor", (1,), a.low + b.low, a.high + b.high),
        ("add.Tensor", (2,), a.low + 2 * b.low, a.high + 2 * b.high),
        ("sub.Tensor", (1,), a.low - b.high, a.high - b.low),
        ("mul.Tensor", (), least, product),
        ("mul.Tensor", (), least, product),
        ("minimum.default", (), min(a.low, b.low), min(a.high, b.high)),
        ("maximum.default", (), max(a.low, b.low), max(a.high, b.high)),
    ]
    if a.floating and b.low >= 0.5:
        choices.append(("div.Tensor", (), -a.span / b.low, a.span / b.low))
        exact = False
    if not a.floating:
        span = float(1 << int(max(a.span, b.span, 1)).bit_length())
        choices += [(f"bitwise_{each}.Tensor", (), -span, span) for each in ("and", "xor")]
    name, extra, low, high = w.chance.choice(choices)
    limit = {"float16": 2048.0, "bfloat16": 256.0}.get(kind, WHOLE)
    if exact and max(abs(low), abs(high)) >= limit:
        return None
    return w.emit(f"aten.{name}", x, y, *extra, dtype=kind, low=low, high=high, exact=exact)


def with_number(w: Writer, x: Ref | None = None) -> Any:
    """A tensor and a number, which may be live."""
    x = x or w.choose(lambda x: x.floating and x.span < LARGE)
    if x is None or not w[x].floating or w[x].span >= LARGE:
        return None
    known = w[x]
    live = [ref for ref in w.scalars if max(abs(w[ref].low), abs(w[ref].high)) <= 64]
    if live and w.chance.random() < 0.5:
        number = w.chance.choice(live)
        low, high = known.low + w[number].low, known.high + w[number].high
        return w.emit("aten.add.Scalar", x, number, 1, dtype=known.dtype, low=low, high=high, exact=known.exact)
    choices: list[tuple[str, tuple[Any, ...], float, float, bool]] = [
        ("add.Scalar", (2.0, 1), known.low + 2, known.high + 2, True),
        ("add.Scalar", (0.1, 1), known.low, known.high + 0.1, False),
        ("rsub.Scalar", (1.0, 1), 1 - known.high, 1 - known.low, True),
        ("mul.Scalar", (-0.0,), 0, 0, True),
        ("mul.Scalar", (0.7,), -known.span, known.span, False),
        ("div.Scalar", (3.0,), -known.span, known.span, False),
        ("pow.Tensor_Scalar", (2,), 0, known.span**2, False),
    ]
    name, extra, low, high, whole = w.chance.choice(choices)
    return w.emit(f"aten.{name}", x, *extra, dtype=known.dtype, low=low, high=high, exact=whole and known.exact)


def bounded(w: Writer, x: Ref) -> Any:
    """Bring large numbers down, so that sixty nodes do not grow beyond what a float holds."""
    known: Known = w[x]
    if known.floating and known.span > (2000 if known.exact else LARGE):
        if known.rank and known.steady(known.rank - 1) and known.dtype == "float32" and w.chance.random() < 0.2:
            return rms_norm(w, x)
        if not known.exact and w.chance.random() < 0.5:
            return w.emit("aten.mul.Scalar", x, 1 / known.span, dtype=known.dtype, low=-1, high=1)
        return w.emit("aten.tanh.default", x, dtype=known.dtype, low=-1, high=1)
    if known.dtype.startswith("int") and known.span > 1e5:
        return w.emit("aten.remainder.Scalar", x, 100, dtype=known.dtype, low=0, high=99)
    return None


def compare(w: Writer) -> Any:
    """Only what is exact is compared: nearly equal numbers have no right answer."""
    x = w.choose(lambda x: x.exact and x.dtype not in ("bool", "uint8", "int8"))
    if x is None:
        x = w.input(w.shapes("S", 24), low=-4, high=4, exact=True)
    name = w.chance.choice(("eq", "ne", "lt", "le", "gt", "ge"))
    if w.chance.random() < 0.5:
        return w.emit(f"aten.{name}.Scalar", x, w.chance.choice((0, 1, 2)), dtype="bool")
    return w.emit(f"aten.{name}.Tensor", x, partner(w, x, lambda other: other.exact), dtype="bool")


def where(w: Writer) -> Any:
    condition = w.choose(lambda x: x.dtype == "bool")
    if condition is None:
        condition = compare(w)
    if condition is None:
        return None
    shapes = w[condition].shapes
    x = w.choose(lambda x: x.floating and x.shapes == shapes)
    if x is None:
        x = w.input(shapes)
    y = partner(w, x)
    a, b = w[x], w[y]
    low, high, exact = min(a.low, b.low), max(a.high, b.high), a.exact and b.exact
    return w.emit("aten.where.self", condition, x, y, dtype=a.dtype, low=low, high=high, exact=exact)


def convert(w: Writer, x: Ref | None = None) -> Any:
    x = x or w.choose(lambda x: x.dtype not in ("uint8", "int8"))
    if x is None:
        return None
    known = w[x]
    kinds = ["float32", "float32", "float16", "bfloat16", "int32", "int64", "bool"]
    kind = w.chance.choice([each for each in kinds if each != known.dtype])
    if (not known.exact and "float" not in kind) or (kind == "float16" and known.span > 2000):
        return None
    low, high = (0, 1) if kind == "bool" else (known.low, known.high)
    if known.dtype == "bool":
        low, high = 0, 1
    rest = (None,) * 6
    return w.emit("aten._to_copy.default", x, *rest, dtype=kind, low=low, high=high, exact=known.exact)


def reduction(w: Writer) -> Any:
    x = w.choose(lambda x: x.rank >= 1 and x.dtype in ("float32", "float32", "float16", "int32", "bool"))
    if x is None:
        return None
    known = w[x]
    dims = tuple(sorted(w.chance.sample(range(known.rank), w.chance.randint(1, min(known.rank, 2)))))
    keep = w.chance.random() < 0.5
    count = math.prod(known.bound[dim] for dim in dims)
    if known.dtype == "bool":
        return w.emit(f"aten.{w.chance.choice(('any', 'all'))}.dim", x, dims[:1], keep, dtype="bool")
    extremes = {"dtype": known.dtype, "low": known.low, "high": known.high, "exact": known.exact}
    choice = w.chance.random()
    if choice < 0.3:
        return w.emit(f"aten.{w.chance.choice(('amax', 'amin'))}.default", x, dims, keep, **extremes)
    if choice < 0.4 and known.exact and known.dtype == "float32":
        return w.emit("aten.argmax.default", x, dims[:1], keep, dtype="int32", low=0, high=known.bound[dims[0]] - 1)
    if choice < 0.5 and known.exact and known.dtype == "float32":
        found = w.emit("aten.max.dim", x, dims[0], keep, **{**extremes, "dtype": ("float32", "int32")})
        if found is not None:
            w[found[1]].low, w[found[1]].high = 0, known.bound[dims[0]] - 1
        return found
    if known.dtype == "float16":
        return None
    whole = known.exact and known.span * count < WHOLE
    if choice < 0.7:
        low, high = -known.span * count, known.span * count
        low = max(low, 0) if known.low >= 0 else low
        return w.emit("aten.sum.dim_IntList", x, dims, keep, None, dtype=known.dtype, low=low, high=high, exact=whole)
    if not known.floating:
        return None
    if choice < 0.9:
        return w.emit("aten.mean.dim", x, dims, keep, None, dtype="float32", low=known.low, high=known.high)
    if known.least(dims[0]) > 1:
        return w.emit("aten.var.correction", x, dims, 1, keep, dtype="float32", low=0, high=4 * known.span**2 + 1)
    return None


def cumsum(w: Writer) -> Any:
    x = w.choose(lambda x: x.rank >= 1 and x.dtype in ("float32", "int32"))
    if x is None:
        return None
    known, dim = w[x], w.chance.randrange(w[x].rank)
    span = known.span * known.bound[dim]
    exact = known.exact and span < WHOLE
    return w.emit("aten.cumsum.default", x, dim, None, dtype=known.dtype, low=-span, high=span, exact=exact)


def softmax(w: Writer) -> Any:
    x = w.choose(lambda x: x.dtype == "float32" and x.rank >= 1 and x.span <= LARGE)
    if x is None:
        return None
    dim = w.chance.choice((-1, -1, w.chance.randrange(w[x].rank)))
    if w.chance.random() < 0.75:
        return w.emit("aten._softmax.default", x, dim, False, dtype="float32", low=0, high=1)
    low = -2 * w[x].span - math.log(w[x].bound[dim] + 1)
    return w.emit("aten._log_softmax.default", x, dim, False, dtype="float32", low=low, high=0)


def rms_norm(w: Writer, x: Ref | None = None) -> Any:
    x = x or w.choose(lambda x: x.dtype == "float32" and x.rank >= 2 and x.steady(x.rank - 1))
    if x is None or not w[x].rank:
        return None
    width = w[x].bound[-1]
    weight = w.constant((width,), "float32", 0.5, 1.5)
    span = 1.5 * math.sqrt(width)
    return w.emit("et_vk.rms_norm.default", x, weight, 1e-3, dtype="float32", low=-span, high=span)


def layer_norm(w: Writer) -> Any:
    x = w.choose(lambda x: x.dtype == "float32" and x.rank >= 2 and x.steady(x.rank - 1))
    if x is None:
        return None
    width = w[x].bound[-1]
    weight = w.constant((width,), "float32", 0.5, 1.5) if w.chance.random() < 0.7 else None
    bias = w.constant((width,)) if weight is not None and w.chance.random() < 0.7 else None
    span = max(1.5 * math.sqrt(width) + 1, 100.0, w[x].span)
    kinds = ("float32",) * 3
    return w.emit("aten.native_layer_norm.default", x, (width,), weight, bias, 1e-3, dtype=kinds, low=-span, high=span)


def product(w: Writer) -> Any:
    """mm, bmm, addmm, matmul, and linear layers by constants that other nodes may share."""
    x = w.choose(lambda x: x.dtype in ("float32", "float16") and x.rank >= 2 and x.span <= LARGE)
    if x is None:
        return None
    known = w[x]
    kind, rank, depth = known.dtype, known.rank, known.bound[-1]
    choice = w.chance.random()
    if choice < 0.5 and known.steady(rank - 1) and depth > 1:
        columns = w.chance.choice((24, 8, 7, 36))
        weight = w.constant((columns, depth), kind, -0.5, 0.5)
        bias = w.constant((columns,), kind) if w.chance.random() < 0.5 else None
        span = known.span * depth * 0.5 + 1
        return w.emit("aten.linear.default", x, weight, bias, dtype=kind, low=-span, high=span)
    if kind == "float16":
        return None
    other = w.choose(
        lambda y: (
            y.dtype == kind
            and y.rank == rank
            and y.span <= LARGE
            and all(a[:-2] == b[:-2] and a[-1] == b[-2] for a, b in zip(known.shapes, y.shapes, strict=True))
        )
    )
    if other is None:
        columns = w.chance.choice((5, 8))
        other = w.input([(*row[:-2], row[-1], columns) for row in known.shapes], kind, -1, 1)
    span = known.span * w[other].span * depth
    if rank == 2 and choice < 0.7:
        addend = w.constant((1, w[other].bound[1]), kind) if w[other].steady(1) else None
        if addend is not None:
            return w.emit(
                "aten.addmm.default", addend, x, other, 0.5, 2, dtype=kind, low=-2 * span - 1, high=2 * span + 1
            )
    name = {2: "mm", 3: "bmm"}.get(rank, "matmul") if choice < 0.9 else "matmul"
    return w.emit(f"aten.{name}.default", x, other, dtype=kind, low=-span, high=span)
