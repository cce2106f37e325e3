"""Tensors of a live size from a number, arange, and conversions between the types."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.ops.cases.binary import FEW, special
from tests.support.graphs import In, OpCase, Out, Sym

NONE = (None, None, None, False)  # dtype, layout, device, pin_memory as a delegate has them


def _torch_type(dtype: str) -> torch.dtype:
    kind: torch.dtype = getattr(torch, dtype)
    return kind


def _full(dtype: str, value: Any) -> OpCase:
    return OpCase(
        name=f"full {dtype} {value}",
        op="aten.full.default",
        args_at=lambda s: [(Sym(s), 3), value, *NONE, Out(dtype, (s, 3))],
        golden=lambda size: torch.full((size, 3), value, dtype=_torch_type(dtype)),
        atol=0.0,
        rtol=0.0,
        sizes=FEW,
    )


def _like(name: str, dtype: str, *extra: Any) -> OpCase:
    return OpCase(
        name=f"{name} {dtype}",
        op=f"aten.{name}.default",
        args_at=lambda s: [In(dtype, (2, s, 5)), *extra, *NONE, None, Out(dtype, (2, s, 5))],
        golden=lambda x, size: getattr(torch, name)(x, *extra),
        sizes=FEW,
    )


def _sized(name: str, op: str, *rest: Any) -> OpCase:
    return OpCase(
        name=op,
        op=op,
        args_at=lambda s: [(2, Sym(s)), *rest, Out("float32", (2, s))],
        golden=lambda size: getattr(torch, name)(2, size),
        sizes=FEW,
    )


def _arange(dtype: str, start: Any, step: Any, scale: int = 1) -> OpCase:
    def count(s: int) -> int:
        return len(torch.arange(start, s * scale, step))

    return OpCase(
        name=f"arange {dtype} {start} {step}",
        op="aten.arange.start_step",
        args_at=lambda s: [start, Sym(s * scale), step, *NONE, Out(dtype, (count(s),))],
        golden=lambda size: torch.arange(start, size * scale, step, dtype=_torch_type(dtype)),
        sizes=tuple(size for size in FEW if count(size) > 0),
    )


def _cast(source: str, target: str, op: str = "dim_order_ops._to_dim_order_copy.default") -> OpCase:
    def make(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
        if target == "bool" and source.startswith("float"):
            return special(generator, shape)
        if source == "bool":
            return generator.integers(0, 2, shape)
        if "int8" in (source, target) or "uint8" in (source, target):
            # What a float below zero is as an unsigned integer is left open by C.
            low = 0 if "uint8" in (source, target) and not source.startswith("int") else -128
            return generator.uniform(low, low + 255.9, shape)
        return generator.standard_normal(shape) * 20

    tail = (None, None, None, None, False, (0, 1)) if op.endswith("default") else (False, None)
    return OpCase(
        name=f"{op} {source} to {target}",
        op=op,
        args_at=lambda s: [In(source, (s, 5), make), *tail, Out(target, (s, 5))],
        golden=lambda x, size: x.to(_torch_type(target)),
        atol=0.0,
        rtol=0.0,
        sizes=FEW,
    )


def _whole_tensor(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return generator.integers(-(1 << 30), 1 << 30, shape)


TYPES = ("float32", "float16", "int32", "int64", "bool")

CASES = [
    *[_full("float32", value) for value in (2.5, 3, float("-inf"), float("nan"), -3.4028234663852886e38)],
    *[_full(dtype, value) for dtype, value in (("float16", 0.1), ("int32", 16777217), ("int64", -7), ("bool", True))],
    *[_like("full_like", dtype, value) for dtype, value in (("float32", -1.5), ("int32", 7), ("bool", False))],
    *[_like(name, dtype) for name in ("zeros_like", "ones_like") for dtype in ("float32", "float16", "int32")],
    _sized("zeros", "aten.zeros.default", *NONE),
    _sized("ones", "aten.ones.default", *NONE),
    _sized("zeros", "aten::zeros.out"),
    _sized("ones", "aten::ones.out"),
    OpCase(
        name="full.out",
        op="aten::full.out",
        args_at=lambda s: [(Sym(s), 3), 0.5, Out("float32", (s, 3))],
        golden=lambda size: torch.full((size, 3), 0.5),
        sizes=FEW,
    ),
    OpCase(
        name="full of nothing",
        op="aten.full.default",
        args_at=lambda s: [(Sym(s - 1), 3), 0.5, *NONE, Out("float32", (s - 1, 3))],
        golden=lambda size: torch.full((size - 1, 3), 0.5),
        sizes=FEW,
    ),
    OpCase(
        name="scalar_tensor of a live scalar",
        op="aten::scalar_tensor.out",
        args_at=lambda s: [Sym(s), Out("float32", ())],
        golden=lambda size: torch.tensor(float(size)),
        sizes=FEW,
    ),
    OpCase(
        name="scalar_tensor",
        op="aten.scalar_tensor.default",
        args_at=lambda s: [7.0, *NONE, Out("int32", ())],
        golden=lambda size: torch.tensor(7),
        sizes=FEW,
    ),
    *[_arange("float32", *rest) for rest in ((0, 1), (2, 3, 2), (0, 0.3), (0.5, 2))],
    *[_arange(dtype, *rest) for dtype in ("int32", "int64") for rest in ((0, 1), (1, 2, 2), (0, -1, -1))],
    _arange("float16", 0, 1),
    OpCase(
        name="arange.out",
        op="aten::arange.out",
        args_at=lambda s: [Sym(s), Out("int64", (s,))],
        golden=lambda size: torch.arange(size),
        sizes=FEW,
    ),
    *[_cast(source, target) for source in TYPES for target in TYPES if source != target],
    *[
        _cast(*pair, "dim_order_ops::_to_dim_order_copy.out")
        for byte in ("uint8", "int8")
        for other in TYPES
        for pair in ((byte, other), (other, byte))
    ],
    _cast("uint8", "int8", "aten::_to_copy.out"),
    _cast("int8", "uint8", "aten::_to_copy.out"),
    *[_cast(source, "complex64", "dim_order_ops::_to_dim_order_copy.out") for source in ("float32", "int64", "bool")],
    _cast("float32", "int32", "aten._to_copy.default"),
    _cast("int64", "float32", "aten::_to_copy.out"),
    _cast("float32", "float32", "dim_order_ops::_clone_dim_order.out"),
    OpCase(
        name="int32 to int64 keeps every bit",
        op="dim_order_ops::_to_dim_order_copy.out",
        args_at=lambda s: [In("int32", (s,), _whole_tensor), False, None, Out("int64", (s,))],
        golden=lambda x, size: x.long(),
        sizes=FEW,
    ),
]
