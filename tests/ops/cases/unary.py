"""Functions of one tensor: in the types a delegate takes, at odd widths, with NaN and infinities among the inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from tests.ops.cases.binary import FEW, FLOATS, large, tolerance
from tests.support.graphs import In, OpCase, Out

DELEGATED = {
    "abs": torch.abs,
    "cos": torch.cos,
    "exp": torch.exp,
    "hardswish": F.hardswish,
    "neg": torch.neg,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "sin": torch.sin,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "tanh": torch.tanh,
    "round": torch.round,
    "log10": torch.log10,
}
PORTABLE = (
    *("sign", "square", "reciprocal", "floor", "ceil", "trunc", "isnan", "isinf"),
    *(
        "expm1",
        "log",
        "log2",
        "log1p",
        "erf",
        "angle",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "asinh",
        "acosh",
        "atanh",
    ),
)


def mixed(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Numbers of every size, halves to round, and what is not a number."""
    values = generator.standard_normal(shape) * generator.choice([1e-3, 1.0, 6.0], shape)
    values = np.where(generator.random(shape) < 0.1, np.round(values) + 0.5, values)
    return np.where(generator.random(shape) < 0.1, generator.choice([np.nan, np.inf, -np.inf, 0.0], shape), values)


# Names with the ends of what they are asked for, where tolerances are a part of the result.
RARE = (
    ("erfc", -6, 2), ("erfinv", -0.99999, 0.99999), ("lgamma", 1e-6, 60), ("lgamma", -8, 0), ("digamma", 1e-3, 60),
    ("digamma", -8, 0), ("i0", -8, 8), ("i0", 0, 85),
)  # fmt: skip


def wide(low: float, high: float) -> Any:
    return lambda generator, shape: generator.uniform(low, high, shape)


def angles(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Of every size that a float has, so that one kernel reduces both ways side by side."""
    return generator.choice([-1, 1], shape) * 10.0 ** generator.uniform(-2, 38.5, shape)


def one(
    name: str,
    op: str,
    function: Callable[[torch.Tensor], torch.Tensor],
    dtype: str,
    *,
    extra: tuple[Any, ...] = (),
    make: Any = mixed,
    out: str | None = None,
) -> OpCase:
    """A case of one tensor; float64 is the judge of floats."""

    def golden(x: torch.Tensor, size: int) -> torch.Tensor:
        if dtype not in FLOATS:
            return function(x)
        wide = function(x.double())
        return wide.to(x.dtype) if wide.is_floating_point() else wide  # a half overflows early

    shapes: dict[str, Callable[[int], tuple[int, ...]]] = {
        "float32": lambda s: (2, s, 7), "float16": lambda s: (3, s), "int32": lambda s: (s, 8), "int64": lambda s: (s,),
    }  # fmt: skip
    shape_at = shapes[dtype]
    limit = tolerance(dtype)
    return OpCase(
        name=f"{name} {dtype} {' '.join(map(str, extra))}",
        op=op,
        args_at=lambda s: [In(dtype, shape_at(s), make), *extra, Out(out or dtype, shape_at(s))],
        golden=golden,
        atol=limit,
        rtol=limit,
        sizes=FEW,
    )


def _activations(dtype: str) -> list[OpCase]:
    # float64 keeps the infinities apart from what a half or torch's vector code makes of them.
    return [
        one("gelu", "aten.gelu.default", F.gelu, dtype, extra=("none",), make=None),
        one("gelu", "aten::gelu.out", lambda x: F.gelu(x, approximate="tanh"), dtype, extra=("tanh",), make=None),
        one("leaky_relu", "aten.leaky_relu.default", lambda x: F.leaky_relu(x, 0.3), dtype, extra=(0.3,)),
        one("hardshrink", "aten.hardshrink.default", lambda x: F.hardshrink(x, 0.7), dtype, extra=(0.7,)),
        one("hardtanh", "aten.hardtanh.default", lambda x: F.hardtanh(x, -0.3, 0.6), dtype, extra=(-0.3, 0.6)),
        one("hardtanh", "aten::hardtanh.out", F.relu6, dtype, extra=(0, 6)),
        one("clamp", "aten.clamp.default", lambda x: x.clamp(-0.5, 1), dtype, extra=(-0.5, 1)),
        one("clamp", "aten::clamp.out", lambda x: x.clamp(max=0.25), dtype, extra=(None, 0.25)),
        one("clamp", "aten.clamp.default", lambda x: x.clamp(min=0), dtype, extra=(0, None)),
    ]


def _clamp_tensor(low: bool, high: bool) -> OpCase:
    def golden(*given: Any) -> torch.Tensor:
        x, *bounds, _ = given
        least = bounds[0] if low else None
        return torch.clamp(x, least, bounds[-1] if high else None)

    def args_at(s: int) -> list[Any]:
        row = In("float32", (1, 5)) if low else None
        column = In("float32", (s, 1)) if high else None
        return [In("float32", (s, 5), mixed), row, column, Out("float32", (s, 5))]

    return OpCase(f"clamp tensor {low} {high}", "aten::clamp.Tensor_out", args_at, golden, sizes=FEW)


CASES = [
    *[one(n, f"aten.{n}.default", f, dtype) for n, f in DELEGATED.items() for dtype in FLOATS],
    *[case for dtype in FLOATS for case in _activations(dtype)],
    *[
        one(n, f"aten::{n}.out", getattr(torch, n), "float32", out="bool" if n.startswith("is") else None)
        for n in PORTABLE
    ],
    *[one(f"far {n}", f"aten.{n}.default", getattr(torch, n), "float32", make=angles) for n in ("sin", "cos", "tan")],
    *[
        one(n, f"aten::{n}.out", getattr(torch, n), "int32", make=large)
        for n in ("abs", "neg", "sign", "relu", "floor", "ceil", "trunc", "round")
    ],
    *[one(n, f"aten::{n}.out", getattr(torch, n), "float32") for n in ("erfc", "erfinv", "digamma", "lgamma", "i0")],
    *[one(f"{n} of more", f"aten::{n}.out", getattr(torch, n), "float32", make=wide(*ends)) for n, *ends in RARE],
    *[one(n, f"aten::{n}.out", getattr(torch, n), "float16", make=wide(0.1, 3)) for n in ("erfc", "lgamma", "i0")],
    one("erfc", "aten::erfc.out", torch.erfc, "int32", make=lambda g, s: g.integers(-3, 4, s), out="float32"),
    *[one("signbit", "aten::signbit.out", torch.signbit, kind, out="bool") for kind in ("float32", "int32")],
    one("bitwise_not", "aten.bitwise_not.default", torch.bitwise_not, "int32", make=large),
    one("sqrt", "aten::sqrt.out", torch.sqrt, "int32", make=lambda g, s: g.integers(0, 99, s), out="float32"),
    one("clamp", "aten.clamp.default", lambda x: x.clamp(-9, 16777217), "int32", extra=(-9, 16777217), make=large),
    one("clamp", "aten.clamp.default", lambda x: x.clamp(min=-16777217), "int64", extra=(-16777217, None), make=large),
    one("clamp", "aten.clamp.default", lambda x: x.clamp(max=1 << 40), "int64", extra=(None, 1 << 40), make=large),
    one("elu", "aten::elu.out", lambda x: F.elu(x, 1.5), "float32", extra=(1.5, 1, 1)),
    one("logit", "aten::logit.out", lambda x: torch.logit(x, 0.1), "float32", extra=(0.1,)),
    one("logit", "aten::logit.out", torch.logit, "float32", extra=(None,), make=lambda g, s: g.uniform(0.01, 0.99, s)),
    *[_clamp_tensor(low, high) for low, high in ((True, True), (True, False), (False, True))],
]
