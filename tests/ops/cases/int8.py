"""Layers between integers of eight bits, at sizes that are no whole words.

Scales are powers of two and biases whole steps of them, so that torch's sums in float64 and ours are exact: every
integer must be equal, ties included.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.support.exporting import quiet
from tests.support.graphs import MAX, Const, In, OpCase, Out

SIZES = (1, 2, 3, 6, 7, 16, 29, MAX)
Shape = tuple[int, ...]
At = Callable[[int], Shape]


def _all_bytes(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    return generator.integers(-128, 128, shape)


def _vulkan() -> Any:
    """The operators as the exporter defines them, imported when the first of them is asked for."""
    with quiet():
        importlib.import_module("executorch.backends.vulkan.custom_ops_lib")
    return torch.ops.et_vk


def _codes(values: torch.Tensor, scale: float, zero: int) -> torch.Tensor:
    return torch.clamp(torch.round(values / scale) + zero, -128, 127).to(torch.int8)


# Copies


def _permuted(dtype: str, shape: At, dims: Shape) -> OpCase:
    return OpCase(
        name=f"permute {dtype} {shape(2)} {dims}",
        op="aten.permute_copy.default",
        args_at=lambda s: [In(dtype, shape(s), _small), dims, Out(dtype, tuple(shape(s)[dim] for dim in dims))],
        golden=lambda x, size: x.permute(dims),
        sizes=SIZES,
    )


def _sliced(dtype: str, shape: At, first: int, step: int) -> OpCase:
    return OpCase(
        name=f"slice {dtype} {shape(2)} from {first} by {step}",
        op="aten.slice_copy.Tensor",
        args_at=lambda s: [
            In(dtype, shape(s), _small), -1, first, None, step,
            Out(dtype, (*shape(s)[:-1], len(range(first, shape(s)[-1], step)))),
        ],
        golden=lambda x, size: x[..., first::step],
        sizes=SIZES,
    )  # fmt: skip


def _joined(dtype: str, widths: Shape) -> OpCase:
    return OpCase(
        name=f"cat {dtype} {widths}",
        op="aten.cat.default",
        args_at=lambda s: [[In(dtype, (s, width), _small) for width in widths], 1, Out(dtype, (s, sum(widths)))],
        golden=lambda *given: torch.cat(given[:-1], 1),
        sizes=SIZES,
    )


def _rolled(dtype: str, shape: At, shift: int, dim: int) -> OpCase:
    return OpCase(
        name=f"roll {dtype} {shape(2)} by {shift}",
        op="aten.roll.default",
        args_at=lambda s: [In(dtype, shape(s), _small), (shift,), (dim,), Out(dtype, shape(s))],
        golden=lambda x, size: torch.roll(x, shift, dim),
        sizes=SIZES,
    )


def _small(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    return generator.integers(0, 128, shape)


# Elements


def add(a: At, b: At, alpha: float) -> OpCase:
    values = 0.05, 3, 0.11, -4, 0.08, -7, alpha
    return OpCase(
        name=f"q8ta_add {a(2)} {b(2)} {alpha}",
        op="et_vk.q8ta_add.default",
        args_at=lambda s: [
            In("int8", a(s), _all_bytes), In("int8", b(s), _all_bytes), *values,
            Out("int8", torch.broadcast_shapes(a(s), b(s))),
        ],
        golden=lambda x, y, size: _vulkan().q8ta_add(x, y, *values),
        sizes=SIZES,
    )  # fmt: skip


def _relu(shape: At) -> OpCase:
    return OpCase(
        name=f"q8ta_relu {shape(2)}",
        op="et_vk.q8ta_relu.default",
        args_at=lambda s: [In("int8", shape(s), _all_bytes), 0.05, 10, 0.03, -20, Out("int8", shape(s))],
        golden=lambda x, size: _vulkan().q8ta_relu(x, 0.05, 10, 0.03, -20),
        sizes=SIZES,
    )


def pixel_shuffle(lead: At, channels: int, factor: int) -> OpCase:
    def shape(s: int) -> Shape:
        return (*lead(s)[:-2], channels * factor * factor, *lead(s)[-2:])

    def shuffled(s: int) -> Shape:
        return (*lead(s)[:-2], channels, *(size * factor for size in lead(s)[-2:]))

    return OpCase(
        name=f"q8ta_pixel_shuffle {shape(2)} by {factor}",
        op="et_vk.q8ta_pixel_shuffle.default",
        args_at=lambda s: [
            In("int8", shape(s), _all_bytes), 0.05, 3, 1 / 0.07, -5, factor, Out("int8", shuffled(s)),
        ],
        golden=lambda x, size: _vulkan().q8ta_pixel_shuffle(x, 0.05, 3, 1 / 0.07, -5, factor),
        sizes=SIZES,
    )  # fmt: skip


# Linear layers


def _weight(seed: Any, columns: int, shape: Shape) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A weight, and its sums, scales and bias, padded as the exporter does; what it pads with would show."""
    generator = np.random.default_rng(seed)
    weight = generator.integers(-127, 128, shape).astype(np.int8)
    scales = 2.0 ** generator.integers(-9, -6, columns)
    bias = generator.integers(-1000, 1000, columns) / 4096
    padding = (0, -columns % 4)
    sums = np.pad(weight.reshape(columns, -1).astype(np.int32).sum(1), padding, constant_values=1 << 20)
    rows = [np.pad(each.astype(np.float32), padding, constant_values=np.nan) for each in (scales, bias)]
    return weight, sums.astype(np.int32), *rows


def linear(
    op: str, lead: At, depth: int, columns: int, *, bias: bool = True, relu: bool = False, dtype: str = "int8"
) -> OpCase:
    weight, sums, scales, offsets = _weight((depth, columns), columns, (columns, depth))
    factor = torch.from_numpy(weight * scales[:columns, None].astype(np.float64))
    addend = torch.from_numpy(offsets[:columns]).double() if bias else None

    def golden(x: torch.Tensor, size: int) -> torch.Tensor:
        values = torch.nn.functional.linear((x.double() + 9) / 32, factor, addend)
        if dtype != "int8":
            return values
        return _codes(torch.relu(values) if relu else values, 0.25, 17)

    tail = (0.25, 17) if dtype == "int8" else ()
    last = ("relu" if relu else "none",) if dtype == "int8" else ()
    marks = f"{' with bias' if bias else ''}{' relu' if relu else ''}"
    return OpCase(
        name=f"{op} {dtype} {lead(2)} {depth} to {columns}{marks}",
        op=f"et_vk.{op}.default",
        args_at=lambda s: [
            In("int8", (*lead(s), depth), _all_bytes), 1 / 32, -9, Const(weight), Const(sums), Const(scales), *tail,
            Const(offsets) if bias else None, *last, Out(dtype, (*lead(s), columns)),
        ],
        golden=golden,
        sizes=SIZES,
        rtol=1e-3 if dtype == "float16" else 0,
        atol=0,
    )  # fmt: skip


def _int8pack(dtype: str, depth: int, columns: int) -> OpCase:
    weight, _, scales, _ = _weight((depth, columns), columns, (columns, depth))
    given = scales[:columns].astype(dtype)
    factor = torch.from_numpy(weight * given[:, None].astype(np.float64))
    return OpCase(
        name=f"weight_int8pack_mm {dtype} {depth} to {columns}",
        op="aten._weight_int8pack_mm.default",
        args_at=lambda s: [In(dtype, (s, depth)), Const(weight), Const(given), Out(dtype, (s, columns))],
        golden=lambda x, size: x.double() @ factor.T,
        sizes=SIZES,
        **({"rtol": 5e-3, "atol": 1e-2} if dtype == "float16" else {"rtol": 1e-5, "atol": 1e-4}),
    )


# Convolutions


def convolution(
    shape: At,
    out_channels: int,
    kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    *,
    bias: bool = True,
    relu: bool = False,
    output_padding: tuple[int, int] | None = None,
    depthwise: bool = False,
    sizes: tuple[int, ...] = SIZES,
) -> OpCase:
    """Weights as the exporter lays them out: channels innermost, and rows padded to whole words."""
    channels = shape(2)[1]
    inner = channels // groups
    transposed = output_padding is not None
    weight, sums, scales, offsets = _weight((out_channels, *kernel), out_channels, (out_channels, inner, *kernel))
    if transposed:  # groups have the same scales
        scales = np.tile(scales[: out_channels // groups], groups)
    if depthwise:
        laid_out = weight[:, 0].transpose(1, 2, 0)
    else:
        laid_out = weight.transpose(0, 2, 3, 1).reshape(out_channels, -1)
    laid_out = np.pad(laid_out, ((0, 0),) * (laid_out.ndim - 1) + ((0, -laid_out.shape[-1] % 4),), constant_values=99)
    factor = torch.from_numpy(weight * scales[:out_channels, None, None, None].astype(np.float64))
    addend = torch.from_numpy(offsets[:out_channels]).double() if bias else None
    extra = (output_padding,) if transposed else ()

    def golden(x: torch.Tensor, size: int) -> torch.Tensor:
        given = (x.double() - 11) / 32
        if transposed:
            transposed_factor = (
                factor.reshape(groups, -1, inner, *kernel).transpose(1, 2).reshape(channels, -1, *kernel)
            )
            values = torch.nn.functional.conv_transpose2d(
                given, transposed_factor, addend, stride, padding, output_padding, groups, dilation
            )
        else:
            values = torch.nn.functional.conv2d(given, factor, addend, stride, padding, dilation, groups)
        return _codes(torch.relu(values) if relu else values, 0.5, -31)

    def shaped(s: int) -> Shape:
        return tuple(golden(torch.zeros(shape(s), dtype=torch.int8), s).shape)

    op = "q8ta_conv2d_transposed" if transposed else "q8ta_conv2d_dw" if depthwise else "q8ta_conv2d"
    if not transposed and not depthwise and (kernel, stride, padding) == ((1, 1), (1, 1), (0, 0)):
        op = "q8ta_conv2d_pw"
    form = f"{shape(2)} to {out_channels} by {kernel} stride {stride} padding {padding} dilation {dilation} in {groups}"
    return OpCase(
        name=f"{op} {form}{' with bias' if bias else ''}{' relu' if relu else ''}",
        op=f"et_vk.{op}.default",
        args_at=lambda s: [
            In("int8", shape(s), _all_bytes), 1 / 32, 11, Const(laid_out), Const(sums),
            Const(scales[: out_channels // groups] if transposed else scales), 0.5, -31,
            Const(offsets) if bias else None, kernel, stride, padding, *extra, dilation, groups,
            "relu" if relu else "none", Out("int8", shaped(s)),
        ],
        golden=golden,
        sizes=sizes,
    )  # fmt: skip


CASES = [
    _permuted("int8", lambda s: (2, s, 3), (2, 0, 1)),
    _permuted("int8", lambda s: (1, s, 1), (1, 2, 0)),
    _sliced("uint8", lambda s: (s, 7), 1, 2),
    _sliced("uint8", lambda s: (s, 8), 4, 1),
    _joined("int8", (4, 8)),
    _joined("uint8", (1, 6, 4)),
    _rolled("int8", lambda s: (3, s, 5), 2, 1),
    add(lambda s: (2, s), lambda s: (2, s), 1.0),
    add(lambda s: (2, 1, s), lambda s: (3, 1), 2.0),
    _relu(lambda s: (s, 3)),
    pixel_shuffle(lambda s: (2, s, 3), 1, 2),
    pixel_shuffle(lambda s: (s, 1, 2, 3), 2, 3),
    linear("q8ta_linear", lambda s: (s,), 36, 8),
    linear("q8ta_linear", lambda s: (2, s), 200, 7, bias=False, relu=True),
    linear("q8ta_linear", lambda s: (s,), 13, 5),
    linear("q8ta_linear_gemv", lambda s: (s,), 1030, 12, relu=True),
    linear("linear_q8ta_q8csw", lambda s: (s,), 36, 8, dtype="float32"),
    linear("linear_q8ta_q8csw", lambda s: (1, s), 21, 6, bias=False, dtype="float16"),
    _int8pack("float32", 36, 8),
    _int8pack("float32", 27, 7),
    _int8pack("float16", 64, 12),
    convolution(lambda s: (2, 8, s, 4), 8, (3, 3), padding=(1, 1)),
    convolution(lambda s: (1, 3, s, 5), 6, (3, 2), (2, 1), (2, 1), (1, 2), relu=True),
    convolution(lambda s: (s, 8, 3, 3), 12, (2, 3), padding=(0, 1), groups=2, bias=False, sizes=(1, 2, 3, 7, 11)),
    convolution(lambda s: (1, 4, s, 8), 6, (1, 1)),
    convolution(lambda s: (s, 5, 1, 3), 3, (1, 1), bias=False),
    convolution(lambda s: (1, 8, s, 5), 8, (3, 3), (2, 1), (1, 1), groups=8, depthwise=True, relu=True),
    convolution(lambda s: (s, 3, 2, 4), 3, (2, 2), dilation=(1, 3), groups=3, depthwise=True, bias=False),
    convolution(lambda s: (1, 8, s, 4), 6, (3, 2), (2, 2), (1, 0), output_padding=(1, 0)),
    convolution(lambda s: (s, 6, 2, 3), 4, (2, 3), (3, 1), dilation=(2, 1), groups=2, output_padding=(2, 0), relu=True),
]
