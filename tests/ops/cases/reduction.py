"""sum, mean, amax, amin and their kin: every position of the live size among kept and reduced dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.support.graphs import SIZES, In, OpCase, Out

EMPTY = (0, 1, 2, 17, 43)


def _special(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers with NaN, infinities and both zeros among them."""
    choice = generator.integers(0, 60, shape)
    values = generator.standard_normal(shape)
    for code, value in enumerate((np.nan, np.inf, -np.inf, 0.0, -0.0)):
        values = np.where(choice == code, value, values)
    return values


def _name(make: object) -> str:
    return "any" if make is None else make.__name__.strip("_")


def _few(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Many ties."""
    return generator.integers(-2, 3, shape)


def _near_one(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return generator.uniform(0.9, 1.1, shape)


def _case(
    name: str,
    op: str,
    dtype: str,
    shape: Callable[[int], tuple[int, ...]],
    args: list[Any],
    function: Callable[[torch.Tensor], Any],
    *,
    out: tuple[str, ...] | None = None,
    make: Any = None,
    sizes: tuple[int, ...] = SIZES,
    wide: bool = True,
) -> OpCase:
    """`args` follow the input; the outputs' shapes are torch's own at that size, their dtypes `out`."""
    dtypes = out or (dtype,)

    def outputs(s: int) -> Any:
        result = function(torch.ones(shape(s), dtype=getattr(torch, dtype)))
        tensors = result if isinstance(result, tuple) else (result,)
        found = tuple(Out(kind, tuple(tensor.shape)) for kind, tensor in zip(dtypes, tensors, strict=True))
        return found if isinstance(result, tuple) else found[0]

    def golden(x: torch.Tensor, size: int) -> Any:
        result = function(x.double() if wide and x.is_floating_point() else x)
        return tuple(result) if isinstance(result, tuple) else result

    half = dtype == "float16"
    return OpCase(
        name=f"{name} {dtype}",
        op=op,
        args_at=lambda s: [In(dtype, shape(s), make), *args, outputs(s)],
        golden=golden,
        atol=1e-2 if half else 1e-5,
        rtol=2e-3 if half else 1e-5,
        sizes=sizes,
    )


FORMS: list[tuple[Callable[[int], tuple[int, ...]], tuple[int, ...] | None, bool]] = [
    (lambda s: (2, s, 7), (-1,), False),
    (lambda s: (2, s, 7), (-2,), True),
    (lambda s: (3, s, 4), (0,), False),
    (lambda s: (3, s, 4), (0, 2), True),
    (lambda s: (1, 3, s, 5), (1, 3), False),
    (lambda s: (2, s, 3, 4), (-1, 1), False),
    (lambda s: (3, s), (1,), True),
    (lambda s: (s, 66), (0,), False),
    (lambda s: (s, 20), (), False),
    (lambda s: (2, s, 3), (), True),
    (lambda s: (2, s, 3), None, False),
]


def _over_dims(name: str, op: str, function: Callable[..., Any], tail: list[Any], **options: Any) -> list[OpCase]:
    def one(index: int, dtype: str) -> OpCase:
        shape, dims, keepdim = FORMS[index]
        arguments = dims if dims is not None or ("amax" not in op and "amin" not in op) else ()
        return _case(
            f"{name} {shape(0)} over {dims} {'kept' if keepdim else ''}", op, dtype, shape, [arguments, keepdim, *tail],
            lambda x: function(x, arguments, keepdim), **options,
        )  # fmt: skip

    forms = [index for index, (_, dims, _) in enumerate(FORMS) if dims is not None or tail]
    return [one(index, dtype) for dtype in ("float32", "float16") for index in forms]


def _along(op: str, dtype: str, shape: Any, dim: int | None, keepdim: bool, make: Any) -> OpCase:
    name = op.split(".")[1]
    function = getattr(torch, name)
    return _case(
        f"{name} {shape(0)} along {dim} {make.__name__}", op, dtype, shape, [dim, keepdim],
        lambda x: function(x, dim, keepdim), out=("int64",), make=make,
    )  # fmt: skip


def _both(op: str, dtype: str, shape: Any, dim: int) -> OpCase:
    function = getattr(torch, op.split(".")[1])
    return _case(
        f"{op} {shape(0)} along {dim}", op, dtype, shape, [dim, False], lambda x: tuple(function(x, dim, False)),
        out=(dtype, "int64"), make=_few,
    )  # fmt: skip


def _mean(x: torch.Tensor, dims: Any, keepdim: bool) -> torch.Tensor:
    return torch.mean(x, dims, keepdim)


def _sum(x: torch.Tensor, dims: Any, keepdim: bool) -> torch.Tensor:
    return torch.sum(x, dims, keepdim)


CASES = [
    *_over_dims("sum", "aten.sum.dim_IntList", _sum, [None]),
    *_over_dims("mean", "aten.mean.dim", _mean, [None]),
    *_over_dims("amax", "aten.amax.default", torch.amax, [], make=_special),
    *_over_dims("amin", "aten.amin.default", torch.amin, [], make=_special),
    _case(
        "sum special",
        "aten.sum.dim_IntList",
        "float32",
        lambda s: (4, s),
        [(1,), False, None],
        lambda x: x.sum(1),
        make=_special,
    ),
    _case(
        "sum long",
        "aten.sum.dim_IntList",
        "float16",
        lambda s: (2, s * 40),
        [(-1,), True, None],
        lambda x: x.sum(-1, True),
    ),
    _case("mean long", "aten.mean.dim", "float32", lambda s: (s * 40, 3), [(0,), False, None], lambda x: x.mean(0)),
    _case("amax long", "aten.amax.default", "float32", lambda s: (s, 700), [(1,), False], lambda x: x.amax(1)),
    _case(
        "sum many",
        "aten.sum.dim_IntList",
        "float32",
        lambda s: (s, 20000),
        [(0,), False, None],
        lambda x: x.sum(0),
        sizes=(1, 9, 12),
    ),
    _case(
        "sum of nothing",
        "aten.sum.dim_IntList",
        "float32",
        lambda s: (3, s),
        [(1,), False, None],
        lambda x: x.sum(1),
        sizes=EMPTY,
    ),
    _case(
        "mean of nothing",
        "aten.mean.dim",
        "float32",
        lambda s: (3, s),
        [(1,), False, None],
        lambda x: x.mean(1),
        sizes=EMPTY,
    ),
    _case(
        "mean into nothing",
        "aten.mean.dim",
        "float32",
        lambda s: (s, 3),
        [(1,), True, None],
        lambda x: x.mean(1, True),
        sizes=EMPTY,
    ),
    _case(
        "prod of nothing",
        "aten::prod.int_out",
        "float32",
        lambda s: (3, s),
        [1, False, None],
        lambda x: x.prod(1),
        sizes=EMPTY,
        make=_near_one,
    ),
    _case(
        "sum int",
        "aten.sum.dim_IntList",
        "int32",
        lambda s: (2, s, 5),
        [(1,), False, None],
        lambda x: x.sum(1),
        out=("int64",),
    ),
    _case(
        "sum bool",
        "aten.sum.dim_IntList",
        "bool",
        lambda s: (3, s),
        [(-1,), True, None],
        lambda x: x.sum(-1, True),
        out=("int64",),
    ),
    _case(
        "sum int to float",
        "aten::sum.IntList_out",
        "int64",
        lambda s: (s, 3),
        [(0,), False, 6],
        lambda x: x.sum(0, dtype=torch.float32),
        out=("float32",),
    ),
    _case(
        "sum scalar",
        "aten.sum.dim_IntList",
        "float32",
        lambda s: (),
        [(0,), False, None],
        lambda x: x.sum(0),
        sizes=(1,),
    ),
    _case("sum all", "aten.sum.default", "float32", lambda s: (s, 7), [None], lambda x: x.sum()),
    _case("mean all", "aten::mean.dtype_out", "float32", lambda s: (2, s), [None], lambda x: x.mean()),
    _case("prod all", "aten::prod.out", "float32", lambda s: (s, 3), [None], lambda x: x.prod(), make=_near_one),
    _case("amax int", "aten::amax.out", "int32", lambda s: (3, s), [(1,), False], lambda x: x.amax(1)),
    _case("amin int", "aten::amin.out", "int64", lambda s: (s, 5), [(0,), True], lambda x: x.amin(0, True)),
    _case("amax bool", "aten::amax.out", "bool", lambda s: (s, 5), [(1,), False], lambda x: x.amax(1)),
    _case("max all", "aten::max.unary_out", "float32", lambda s: (s, 5), [], lambda x: x.max(), make=_special),
    _case("min all", "aten::min.unary_out", "int32", lambda s: (s, 5), [], lambda x: x.min()),
    *(
        _along(op, dtype, shape, dim, keepdim, make)
        for op in ("aten.argmax.default", "aten.argmin.default")
        for dtype, make in (("float32", _special), ("float32", _few), ("float16", _special), ("int32", _few))
        for shape, dim, keepdim in (
            (lambda s: (2, s), -1, False),
            (lambda s: (s, 5), 0, True),
            (lambda s: (3, s, 7), None, False),
        )
    ),
    _both("aten.max.dim", "float32", lambda s: (2, s, 3), 1),
    _both("aten.min.dim", "float16", lambda s: (s, 9), -1),
    *(
        case
        for dtype, make in (("bool", None), ("float32", _few), ("float32", _special), ("int32", _few))
        for case in (
            _case(
                f"any {_name(make)}",
                "aten::any.out",
                dtype,
                lambda s: (9, s),
                [1, False],
                lambda x: x.any(1),
                out=("bool",),
                make=make,
                wide=False,
            ),
            _case(
                f"any dims {_name(make)}",
                "aten::any.dims_out",
                dtype,
                lambda s: (2, s, 2),
                [(0, 2), True],
                lambda x: x.any((0, 2), True),
                out=("bool",),
                make=make,
                wide=False,
            ),
            _case(
                f"any all {_name(make)}",
                "aten::any.all_out",
                dtype,
                lambda s: (s,),
                [],
                lambda x: x.any(),
                out=("bool",),
                make=make,
                wide=False,
                sizes=EMPTY,
            ),
            _case(
                f"all {_name(make)}",
                "aten.all.dim",
                dtype,
                lambda s: (s, 3),
                [1, False],
                lambda x: x.all(1),
                out=("bool",),
                make=make,
                wide=False,
            ),
            _case(
                f"all all {_name(make)}",
                "aten.all.default",
                dtype,
                lambda s: (s,),
                [],
                lambda x: x.all(),
                out=("bool",),
                make=make,
                wide=False,
                sizes=EMPTY,
            ),
        )
    ),
    _case(
        "var", "aten::var.out", "float32", lambda s: (3, s), [(1,), True, False], lambda x: x.var(1), sizes=SIZES[1:]
    ),
    _case(
        "var biased",
        "aten::var.correction_out",
        "float16",
        lambda s: (2, s, 5),
        [(0, 2), 0, True],
        lambda x: x.var((0, 2), correction=0, keepdim=True),
    ),
    _case(
        "var_mean",
        "aten::var_mean.correction_out",
        "float32",
        lambda s: (s, 5),
        [(0,), None, False],
        lambda x: torch.var_mean(x, 0),
        out=("float32", "float32"),
        sizes=SIZES[1:],
    ),
]
