"""Integers of eight bits: to them, from them, and the choice of their scales, against torch and torchao.

Numbers are drawn on halves of steps, so that every second one is a tie; scales are powers of two, so that halves of
steps are exact.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch

from tests.ops.cases.quantized import rows_of_all_kinds
from tests.support.exporting import quiet
from tests.support.graphs import MAX, Const, In, OpCase, Out, Sym

SIZES = (1, 2, 3, 6, 7, 16, 29, MAX)
Shape = tuple[int, ...]
At = Callable[[int], Shape]


def _decomposed() -> Any:
    """The operators as torch and the exporter define them, imported when the first of them is asked for."""
    with quiet():
        importlib.import_module("torch.ao.quantization.fx._decomposed")
        importlib.import_module("executorch.exir.passes._quant_patterns_and_replacements")
    return torch.ops.quantized_decomposed


def _torchao() -> Any:
    with quiet():
        return importlib.import_module("torchao.quantization.quant_primitives")


def _halves(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    """Halves of a step of 1/32, some of them far outside of the range, some without end."""
    values = generator.integers(-300, 300, shape) / 64
    values.reshape(-1)[5::11] *= 100
    values.reshape(-1)[7::31] = np.inf
    return values


def _steps(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    return 2.0 ** generator.integers(-6, -3, shape)


def _zeros(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    return generator.integers(-30, 30, shape)


def _codes(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    return generator.integers(0, 128, shape)


def _dtype(name: str) -> torch.dtype:
    return getattr(torch, name)


def _per_tensor(dtype: str, shape: At, codes: str, zero: int, low: int, high: int) -> list[OpCase]:
    return [
        OpCase(
            name=f"quantize_per_tensor {dtype} {shape(0)} to {codes}",
            op="quantized_decomposed.quantize_per_tensor.default",
            args_at=lambda s: [
                In(dtype, shape(s), _halves), 1 / 32, zero, low, high, None, Out(codes, shape(s)),
            ],
            golden=lambda x, size: _decomposed().quantize_per_tensor(x, 1 / 32, zero, low, high, _dtype(codes)),
            sizes=SIZES,
        ),
        OpCase(
            name=f"dequantize_per_tensor {dtype} {shape(0)} from {codes}",
            op="quantized_decomposed.dequantize_per_tensor.default",
            args_at=lambda s: [
                In(codes, shape(s), _codes), 0.037, zero, low, high, None, None, Out(dtype, shape(s)),
            ],
            golden=lambda x, size: _decomposed().dequantize_per_tensor(
                x, 0.037, zero, low, high, _dtype(codes), out_dtype=_dtype(dtype)
            ),
            sizes=SIZES,
            rtol=2e-3 if dtype == "float16" else 0,
            atol=0,
        ),
    ]  # fmt: skip


def _looked_up(form: str, shape: At, scales: At, zero: str, *extra: Any, op: str = "default") -> list[OpCase]:
    """A form whose scales are tensors; `extra` comes before the range of the integers."""
    name = form if op == "default" else f"{form}.{op}"

    def qparams(s: int) -> list[Any]:
        return [In("float32", scales(s), _steps), In(zero, scales(s), _zeros)]

    def golden(there: bool) -> Callable[..., Any]:
        rest = (torch.float32,) if form == "per_token" and not there else ()

        def run(x: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor, size: int) -> torch.Tensor:
            overload = getattr(getattr(_decomposed(), f"{'' if there else 'de'}quantize_{form}"), op)
            return overload(x, scale, offset, *extra, -128, 127, torch.int8, *rest)

        return run

    return [
        OpCase(
            name=f"quantize_{name} {shape(0)} zero {zero}",
            op=f"quantized_decomposed.quantize_{form}.{op}",
            args_at=lambda s: [
                In("float32", shape(s), _halves), *qparams(s), *extra, -128, 127, None, Out("int8", shape(s)),
            ],
            golden=golden(True),
            sizes=SIZES,
        ),
        OpCase(
            name=f"dequantize_{name} {shape(0)} zero {zero}",
            op=f"quantized_decomposed.dequantize_{form}.{op}",
            args_at=lambda s: [
                In("int8", shape(s)), *qparams(s), *extra, -128, 127, None, None, Out("float32", shape(s)),
            ],
            golden=golden(False),
            sizes=SIZES,
            atol=0,
            rtol=0,
        ),
    ]  # fmt: skip


def _live(block: At, s: int) -> tuple[Any, ...]:
    """A block as a file has it: what follows the size is a live number."""
    return tuple(Sym(size) if block(1)[axis] != block(2)[axis] else size for axis, size in enumerate(block(s)))


def affine(shape: At, block: At, zero: str | None, dtype: str = "float32") -> list[OpCase]:
    def count(s: int) -> Shape:
        return tuple(size // part for size, part in zip(shape(s), block(s), strict=True))

    def qparams(s: int) -> list[Any]:
        return [In(dtype, count(s), _steps), None if zero is None else In(zero, count(s), _zeros)]

    def quantized(x: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor, size: int) -> torch.Tensor:
        if x.numel() == 0:  # which torchao takes for an absent zero point, and then raises
            return torch.empty(x.shape, dtype=torch.int8)
        return _torchao().quantize_affine(x, block(size), scale, offset, torch.int8)

    def dequantized(x: torch.Tensor, scale: torch.Tensor, *rest: Any) -> torch.Tensor:
        *offset, size = rest
        return _torchao().dequantize_affine(
            x, block(size), scale, *(offset or (None,)), torch.int8, output_dtype=_dtype(dtype)
        )

    name = f"{dtype} {shape(2)} by {block(2)} zero {zero}"
    there = OpCase(
        name=f"quantize_affine {name}",
        op="torchao.quantize_affine.default",
        args_at=lambda s: [
            In(dtype, shape(s), _halves), _live(block, s), *qparams(s), None, None, None, Out("int8", shape(s)),
        ],
        golden=quantized,
        sizes=SIZES,
    )  # fmt: skip
    back = OpCase(
        name=f"dequantize_affine {name}",
        op="torchao.dequantize_affine.default",
        args_at=lambda s: [
            In("int8", shape(s)), _live(block, s), *qparams(s), None, None, None, None, Out(dtype, shape(s)),
        ],
        golden=dequantized,
        sizes=SIZES,
        atol=0,
        rtol=0,
    )  # fmt: skip
    return [back] if zero is None else [there, back]


def choose_affine(mapping: str, shape: At, block: At, zero: str, keepdim: bool, low: int, high: int) -> OpCase:
    def eager(x: torch.Tensor, size: int) -> tuple[torch.Tensor, ...]:
        return _torchao()._choose_qparams_affine(
            x, mapping, list(block(size)), torch.int8, low, high, None, torch.float32, _dtype(zero), keepdim
        )

    @functools.cache
    def rank() -> int:
        return eager(torch.zeros(shape(6)), 6)[0].ndim

    def golden(x: torch.Tensor, size: int) -> tuple[torch.Tensor, ...]:
        # A live size of one is a block of one, which torchao keeps as a dimension; the rank of a file is settled.
        return tuple(each.reshape(each.shape[: rank()]) for each in eager(x, size))

    def found(s: int) -> Shape:
        return tuple(golden(torch.zeros(shape(s)), s)[0].shape)

    return OpCase(
        name=f"choose_qparams_affine {mapping} {shape(2)} by {block(2)} zero {zero}{' kept' if keepdim else ''}",
        op="torchao.choose_qparams_affine.default",
        args_at=lambda s: [
            In("float32", shape(s), rows_of_all_kinds), mapping, _live(block, s), None, low, high, None, None, None,
            keepdim,
            [Out("float32", found(s)), Out(zero, found(s))],
        ],
        golden=golden,
        # Blocks of one element in every dimension are all of the tensor to torch.amin.
        sizes=tuple(size for size in SIZES if prod(block(size)) > 1),
        rtol=1e-6,
        atol=0,
    )  # fmt: skip


def _choose(shape: At) -> list[OpCase]:
    def rows(s: int) -> list[Any]:
        return [Out("float64", (*shape(s)[:-1], 1)), Out("int64", (*shape(s)[:-1], 1))]

    return [
        OpCase(
            name=f"choose_qparams {shape(0)}",
            op="quantized_decomposed.choose_qparams.tensor",
            args_at=lambda s: [
                In("float32", shape(s)), -128, 127, 1e-3, None, [Out("float64", (1,)), Out("int64", (1,))],
            ],
            golden=lambda x, size: _decomposed().choose_qparams.tensor(x, -128, 127, 1e-3, torch.int8),
            sizes=SIZES,
            rtol=1e-6,
            atol=0,
        ),
        OpCase(
            name=f"choose_qparams_per_token_asymmetric {shape(0)}",
            op="quantized_decomposed.choose_qparams_per_token_asymmetric.default",
            args_at=lambda s: [In("float32", shape(s), rows_of_all_kinds), None, rows(s)],
            golden=lambda x, size: _decomposed().choose_qparams_per_token_asymmetric(x, torch.int8),
            sizes=SIZES,
            rtol=1e-6,
            atol=0,
        ),
    ]  # fmt: skip


def _embedding(name: str, dtype: str, row_bytes: int, groups: int, zeros: bool, stored: str = "uint8") -> OpCase:
    generator = np.random.default_rng(len(name))
    low = -128 if stored == "int8" else 0
    weight = generator.integers(low, low + 256, (50, row_bytes)).astype(stored)
    scales = generator.standard_normal((50, groups) if groups > 1 else 50).astype(dtype)
    offsets = generator.integers(-3, 3, scales.shape).astype(dtype)
    low, high = {"byte": (-128, 127), "4bit": (-8, 7), "2bit": (-2, 1)}[name]
    tensors = [torch.from_numpy(each) for each in (weight, scales, offsets)]
    width = row_bytes * {"byte": 1, "4bit": 2, "2bit": 4}[name]

    def golden(index: torch.Tensor, size: int) -> torch.Tensor:
        run = getattr(_decomposed(), f"embedding_{name}").dtype
        return run(tensors[0], tensors[1], tensors[2] if zeros else None, low, high, index, dtype=_dtype(dtype))

    return OpCase(
        name=f"embedding_{name} {dtype} of {stored} in {groups} groups{' with zeros' if zeros else ''}",
        op=f"quantized_decomposed.embedding_{name}.dtype",
        args_at=lambda s: [
            Const(weight),
            Const(scales),
            Const(offsets) if zeros else None,
            low,
            high,
            In("int64", (2, s), lambda generator, shape: generator.integers(0, 50, shape)),
            None,
            Out(dtype, (2, s, width)),
        ],
        golden=golden,
        sizes=SIZES,
        rtol=2e-3 if dtype == "float16" else 1e-6,
    )


CASES = [
    *_per_tensor("float32", lambda s: (s, 5), "int8", -13, -128, 127),
    *_per_tensor("float16", lambda s: (3, s), "int8", 7, -100, 100),
    *_per_tensor("float32", lambda s: (s,), "uint8", 9, 0, 255),
    *_looked_up("per_tensor", lambda s: (s, 3), lambda s: (1,), "int32", op="tensor"),
    *_looked_up("per_channel", lambda s: (2, s, 3), lambda s: (s,), "int64", 1),
    *_looked_up("per_channel", lambda s: (3, s, 4), lambda s: (3,), "int32", 0),
    *_looked_up("per_token", lambda s: (2, s, 7), lambda s: (2, s, 1), "int64"),
    *affine(lambda s: (s, 24), lambda s: (1, 8), "int8"),
    *affine(lambda s: (2, s, 6), lambda s: (2, s, 6), "int32"),
    *affine(lambda s: (4, s, 6), lambda s: (2, 1, 3), "float32"),
    *affine(lambda s: (s, 8), lambda s: (1, 8), "int8", "float16"),
    *affine(lambda s: (s, 6), lambda s: (1, 2), None),
    choose_affine("ASYMMETRIC", lambda s: (s, 24), lambda s: (1, 8), "int8", False, -128, 127),
    choose_affine("SYMMETRIC", lambda s: (4, s, 6), lambda s: (2, 1, 3), "int32", True, -8, 7),
    choose_affine("SYMMETRIC_NO_CLIPPING_ERR", lambda s: (3, s), lambda s: (1, s), "int32", False, -8, 7),
    choose_affine("ASYMMETRIC", lambda s: (2, s, 8), lambda s: (2, s, 8), "int64", False, 0, 15),
    *_choose(lambda s: (2, s, 5)),
    _embedding("4bit", "float32", 16, 4, True),
    _embedding("4bit", "float16", 8, 1, False),
    _embedding("2bit", "float32", 6, 3, True),
    _embedding("byte", "float32", 12, 2, True, "int8"),
    _embedding("byte", "float32", 6, 1, False),
]
