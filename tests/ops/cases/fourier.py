"""Fourier transforms of live lengths, primes among them, and complex numbers that are moved, joined and taken apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from tests.ops.cases.binary import BROADCASTS
from tests.ops.cases.unary import angles
from tests.support.graphs import In, OpCase, Out, Sym

Shape = Callable[[int], tuple[int, ...]]
LENGTHS = (1, 2, 3, 7, 16, 29, 36, 43, 64, 400)
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
NORMS = ("backward", "ortho", "forward")  # of a transform forward; back it is the other way round
EXACT = {"atol": 0.0, "rtol": 0.0}


def pairs(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return generator.standard_normal(shape) + 1j * generator.standard_normal(shape)


def halved(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], shape[axis] // 2 + 1, *shape[axis + 1 :])


def r2c(name: str, shape: Shape, dims: tuple[int, ...], norm: int, onesided: bool = True, **more: Any) -> OpCase:
    def args_at(size: int) -> list[Any]:
        full = shape(size)
        found = halved(full, dims[-1] % len(full)) if onesided else full
        return [In("float32", full), dims, norm, onesided, Out("complex64", found)]

    return OpCase(
        f"fft of reals {name}",
        "aten::_fft_r2c.out",
        args_at,
        lambda x, s: (torch.fft.rfftn if onesided else torch.fft.fftn)(x.double(), dim=dims, norm=NORMS[norm]),
        **CLOSE,
        **more,
    )


def c2r(name: str, shape: Shape, dims: tuple[int, ...], norm: int, **more: Any) -> OpCase:
    """`shape` is that of the result."""

    def args_at(size: int) -> list[Any]:
        full = shape(size)
        last = dims[-1] % len(full)
        length = Sym(size) if shape(0)[last] == 0 else full[last]
        return [In("complex64", halved(full, last), pairs), dims, norm, length, Out("float32", full)]

    return OpCase(
        f"fft to reals {name}",
        "aten::_fft_c2r.out",
        args_at,
        lambda x, s: torch.fft.irfftn(x.to(torch.complex128), [shape(s)[dim] for dim in dims], dims, NORMS[2 - norm]),
        atol=1e-4,
        rtol=1e-5,
        **more,
    )


def c2c(name: str, shape: Shape, dims: tuple[int, ...], forward: bool) -> OpCase:
    return OpCase(
        f"fft {name}",
        "aten::_fft_c2c.out",
        lambda s: [In("complex64", shape(s), pairs), dims, 1, forward, Out("complex64", shape(s))],
        lambda x, s: (torch.fft.fftn if forward else torch.fft.ifftn)(x.to(torch.complex128), dim=dims, norm="ortho"),
        **CLOSE,
    )


def moved(
    name: str,
    op: str,
    golden: Callable[[torch.Tensor], torch.Tensor],
    *rest: Any,
    kind: str = "complex64",
    **close: float,
) -> OpCase:
    """A complex tensor through an operator that only moves its elements, takes them apart or adds them."""

    def args_at(size: int) -> list[Any]:
        found = golden(torch.zeros(2, size, 3, dtype=torch.complex64))
        return [In("complex64", (2, size, 3), pairs), *rest, Out(kind, tuple(found.shape))]

    return OpCase(f"complex {name}", op, args_at, lambda x, s: golden(x), **(close or EXACT))


def far(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Imaginary parts that are angles of any size."""
    return generator.standard_normal(shape) + 1j * angles(generator, shape)


def of_one(name: str, make: Any = pairs) -> OpCase:
    function = getattr(torch, name)
    kind = "float32" if name in ("abs", "angle") else "complex64"
    return OpCase(
        f"complex {name}{' of far numbers' if make is far else ''}",
        f"aten::{name}.out",
        lambda s: [In("complex64", (s, 5), make), Out(kind, (s, 5))],
        lambda x, s: function(x.to(torch.complex128)),
        **CLOSE,
    )


def of_two(name: str, form: str, kinds: tuple[str, str] = ("complex64", "complex64")) -> OpCase:
    """Arithmetic of complex numbers with complex or real ones."""
    extra = (2,) if name in ("add", "sub") else ()

    def args_at(size: int) -> list[Any]:
        a, b, shape = BROADCASTS[form](size)
        makes = [pairs if kind == "complex64" else None for kind in kinds]
        return [In(kinds[0], a, makes[0]), In(kinds[1], b, makes[1]), *extra, Out("complex64", shape)]

    def golden(a: torch.Tensor, b: torch.Tensor, size: int) -> torch.Tensor:
        wide = [each.to(torch.complex128) for each in (a, b)]
        return getattr(torch, name)(*wide, **({"alpha": 2} if extra else {}))

    return OpCase(f"complex {name} {form} {kinds[0]} {kinds[1]}", f"aten::{name}.out", args_at, golden, **CLOSE)


def of_reals(name: str, form: str) -> OpCase:
    def args_at(size: int) -> list[Any]:
        a, b, shape = BROADCASTS[form](size)
        return [In("float32", a), In("float32", b, angles), Out("complex64", shape)]

    function = getattr(torch, name)
    return OpCase(
        f"{name} {form}", f"aten::{name}.out", args_at, lambda a, b, s: function(a.double(), b.double()), **CLOSE
    )


CASES = [
    r2c("rows", lambda s: (3, s), (1,), 0, sizes=LENGTHS),
    r2c("columns, whole", lambda s: (2, s, 3), (1,), 1, onesided=False),
    r2c("two dimensions", lambda s: (2, s, 6), (1, 2), 2),
    c2r("rows", lambda s: (3, s), (1,), 2, sizes=LENGTHS),
    c2r("two dimensions", lambda s: (s, 9), (0, 1), 0),
    c2c("forward", lambda s: (s, 3), (0,), True),
    c2c("back, two dimensions", lambda s: (2, s, 5), (2, 1), False),
    moved("transpose", "aten::transpose_copy.int_out", lambda x: x.transpose(1, 2), 1, 2),
    moved("slice", "aten::slice_copy.Tensor_out", lambda x: x[:, :, 1:], 2, 1, 3, 1),
    moved("clone", "aten::clone.out", lambda x: x, None),
    moved("conjugate", "aten::_conj_physical.out", lambda x: torch.conj_physical(x)),
    moved("conjugate of a view", "aten::_conj_copy.out", lambda x: torch.conj_physical(x)),
    moved("negative", "aten::neg.out", torch.neg),
    OpCase(
        "where of complex numbers",
        "aten.where.self",
        lambda s: [
            In("bool", (s, 1)),
            In("complex64", (s, 5), pairs),
            In("complex64", (), pairs),
            Out("complex64", (s, 5)),
        ],
        lambda condition, a, b, s: torch.where(condition, a, b),
        **EXACT,
    ),
    moved("pad", "aten::constant_pad_nd.out", lambda x: F.pad(x, (1, 2, 0, 1)), (1, 2, 0, 1), 0),
    moved("pad with what is near", "aten::reflection_pad1d.out", lambda x: F.pad(x, (1, 2), "reflect"), (1, 2)),
    moved("sum", "aten::sum.IntList_out", lambda x: x.sum(1), (1,), False, None, **CLOSE),
    moved("sum of rows", "aten::sum.IntList_out", lambda x: x.sum((0, 2), True), (0, 2), True, None, **CLOSE),
    moved("mean", "aten::mean.out", lambda x: x.mean((1, 2)), (1, 2), False, None, **CLOSE),
    *[of_one(name) for name in ("abs", "angle", "reciprocal", "square", "exp")],
    of_one("exp", far),
    *[of_two(name, form) for name in ("add", "sub", "mul", "div") for form in ("equal", "row of 7", "outer")],
    *[of_two("mul", "column of 5", kinds) for kinds in (("complex64", "float32"), ("float32", "complex64"))],
    *[of_two("div", "rank zero", kinds) for kinds in (("complex64", "float32"), ("float32", "complex64"))],
    *[of_reals(name, form) for name in ("complex", "polar") for form in ("equal", "both ways")],
    moved("parts", "aten::view_as_real_copy.out", torch.view_as_real, kind="float32"),
    OpCase(
        "complex from parts",
        "aten::view_as_complex_copy.out",
        lambda s: [In("float32", (s, 3, 2)), Out("complex64", (s, 3))],
        lambda x, s: torch.view_as_complex(x),
        **EXACT,
    ),
]
