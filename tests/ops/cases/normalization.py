"""rms_norm, layer norm with its three outputs, group norm, batch norm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from liveshape.ops import OPS
from tests.support.graphs import Const, In, OpCase, Out

Shape = tuple[int, ...]


def _rms(dtype: str, width: int) -> OpCase:
    weight = np.random.default_rng(1).standard_normal(width).astype(dtype)

    def golden(x: torch.Tensor, size: int) -> torch.Tensor:
        wide = x.double()
        scale = torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6)
        return wide * scale * torch.from_numpy(weight).double()

    tolerance = 2e-3 if dtype == "float16" else 1e-5
    return OpCase(
        name=f"rms_norm {dtype} {width}",
        op="et_vk.rms_norm.default",
        args_at=lambda s: [In(dtype, (1, s, width)), Const(weight), 1e-6, Out(dtype, (1, s, width))],
        golden=golden,
        atol=tolerance,
        rtol=tolerance,
    )


def _affine(dtype: str, shape: Shape, weight: bool, bias: bool) -> tuple[list[Any], list[torch.Tensor | None]]:
    """Constants for the operator and the same in float64 for torch; None where there is none."""
    generator = np.random.default_rng(len(shape))
    arrays = [generator.standard_normal(shape).astype(dtype) if wanted else None for wanted in (weight, bias)]
    constants = [None if array is None else Const(array) for array in arrays]
    return constants, [None if array is None else torch.from_numpy(array).double() for array in arrays]


def _tolerance(dtype: str) -> dict[str, float]:
    return {"atol": 1e-2, "rtol": 3e-3} if dtype == "float16" else {"atol": 1e-5, "rtol": 1e-5}


def _offset(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    """A mean far from zero, where a variance by the difference of squares loses every digit."""
    return generator.standard_normal(shape) + 30


def _layer(dtype: str, lead: Callable[[int], Shape], tail: Shape, weight: bool, bias: bool) -> OpCase:
    constants, wide = _affine(dtype, tail, weight, bias)

    def golden(x: torch.Tensor, size: int) -> tuple[torch.Tensor, ...]:
        return torch.native_layer_norm(x.double(), tail, *wide, 1e-4)

    return OpCase(
        name=f"layer_norm {dtype} {lead(0)} {tail} {'weight' if weight else ''} {'bias' if bias else ''}",
        op="aten.native_layer_norm.default",
        args_at=lambda s: [
            In(dtype, (*lead(s), *tail), _offset),
            tail,
            *constants,
            1e-4,
            (
                Out(dtype, (*lead(s), *tail)),
                Out(dtype, (*lead(s), *(1 for _ in tail))),
                Out(dtype, (*lead(s), *(1 for _ in tail))),
            ),
        ],
        golden=golden,
        atol=4e-2 if dtype == "float16" else 3e-5,
        rtol=3e-3 if dtype == "float16" else 3e-5,
    )


def _group(dtype: str, shape: Callable[[int], Shape], groups: int, affine: bool) -> OpCase:
    channels = shape(1)[1]
    constants, wide = _affine(dtype, (channels,), affine, affine)

    def sizes(s: int) -> Shape:
        return shape(s)[0], channels, int(np.prod(shape(s)[2:]))

    def golden(x: torch.Tensor, size: int) -> tuple[torch.Tensor, ...]:
        return torch.native_group_norm(x.double(), *wide, *sizes(size), groups, 1e-5)

    return OpCase(
        name=f"group_norm {dtype} {shape(0)} in {groups} {'affine' if affine else ''}",
        op="aten.native_group_norm.default",
        args_at=lambda s: [
            In(dtype, shape(s)),
            *constants,
            *sizes(s),
            groups,
            1e-5,
            (Out(dtype, shape(s)), Out(dtype, (shape(s)[0], groups)), Out(dtype, (shape(s)[0], groups))),
        ],
        golden=golden,
        **_tolerance(dtype),
    )


def _batch(dtype: str, shape: Callable[[int], Shape], weight: bool, bias: bool) -> OpCase:
    channels = shape(1)[1]
    constants, wide = _affine(dtype, (channels,), weight, bias)
    mean = np.linspace(-1, 1, channels).astype(dtype)
    variance = np.linspace(0.5, 2, channels).astype(dtype)

    def golden(x: torch.Tensor, size: int) -> tuple[torch.Tensor, ...]:
        running = (torch.from_numpy(array).double() for array in (mean, variance))
        return torch._native_batch_norm_legit_no_training(x.double(), *wide, *running, 0.1, 1e-3)

    return OpCase(
        name=f"batch_norm {dtype} {shape(0)} {'weight' if weight else ''} {'bias' if bias else ''}",
        op="aten._native_batch_norm_legit_no_training.default",
        args_at=lambda s: [
            In(dtype, shape(s)),
            *constants,
            Const(mean),
            Const(variance),
            0.1,
            1e-3,
            (Out(dtype, shape(s)), Out(dtype, (0,)), Out(dtype, (0,))),
        ],
        golden=golden,
        **_tolerance(dtype),
    )


def _alone(case: OpCase) -> OpCase:
    """The same without its statistics."""

    def args(size: int) -> list[Any]:
        *read, outputs = case.args_at(size)
        return [*read, outputs[0]]

    return replace(
        case,
        name=f"{case.name} alone",
        op=OPS[case.op].traits.first_alone,
        args_at=args,
        golden=lambda x, size: case.golden(x, size)[0],
    )


CASES = [
    _alone(_layer("float32", lambda s: (2, s), (7,), True, True)),
    _alone(_layer("float16", lambda s: (s,), (64,), True, True)),
    _alone(_group("float32", lambda s: (s, 12, 4, 4), 3, True)),
    _alone(_batch("float32", lambda s: (2, 6, s, 3), True, True)),
    *(_rms(dtype, width) for dtype in ("float32", "float16") for width in (64, 63, 1, 300)),
    *(
        _layer(dtype, *form)
        for dtype in ("float32", "float16")
        for form in (
            (lambda s: (1, s), (64,), True, True),
            (lambda s: (2, s), (7,), True, True),
            (lambda s: (s,), (63,), True, False),
            (lambda s: (s,), (8,), False, True),
            (lambda s: (s, 2), (3, 7), True, True),
            (lambda s: (1, 3, s), (300,), False, False),
            (lambda s: (s,), (2100,), True, True),
        )
    ),
    *(
        case
        for dtype in ("float32", "float16")
        for case in (
            _group(dtype, lambda s: (s, 6, 5), 3, True),
            _group(dtype, lambda s: (2, 4, s, 4), 2, True),
            _group(dtype, lambda s: (1, 4, s), 4, False),
            _batch(dtype, lambda s: (s, 5), True, True),
            _batch(dtype, lambda s: (2, 3, s), True, False),
            _batch(dtype, lambda s: (1, 3, s, 4), False, True),
        )
    ),
]
