"""4-bit linear layers at every number of live rows, with minima and of 8 bits, 8-bit activations, and 4-bit embeddings.

The golden is torch in float64 on the dequantized weights.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from tests.support.graphs import MAX, Const, In, OpCase, Out

# Nothing at all, and both sides of every boundary between kernels and tiles.
ROWS = (0, 1, 2, 4, 5, 16, 17, 33, MAX)
# The same for int8 activations, which have other boundaries.
INT8_ROWS = (0, 1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33, MAX, 64, 65, 70)
Lead = Callable[[int], tuple[int, ...]]


def _flat(size: int) -> tuple[int, ...]:
    return (size,)


def _tolerance(dtype: str, depth: int) -> dict[str, float]:
    if dtype == "float16":
        return {"atol": 2e-2, "rtol": 5e-3}
    return {"atol": 1e-4 if depth > 1000 else 2e-5, "rtol": 2e-5}


def _packed(generator: np.random.Generator, columns: int, depth: int, multiple: int) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of a weight with even places low, the depth padded with zeros to a multiple; and the weight itself."""
    values = generator.integers(-8, 8, (columns, depth))
    whole = np.pad(values, ((0, 0), (0, -depth % multiple))) + 8
    return (whole[:, 1::2] << 4 | whole[:, ::2]).astype(np.uint8), values


def _codes(
    generator: np.random.Generator, columns: int, depth: int, group: int, bits: int
) -> tuple[np.ndarray, np.ndarray]:
    """The weight of a layer as its operator takes it, with every code that there is, and the codes."""
    if bits == 4:
        return _packed(generator, columns, depth, 8)
    codes = generator.integers(-128, 128, (columns, depth))
    codes.flat[:2] = -128, 127
    return codes.astype(np.int8).reshape(columns, depth // group, group), codes


def _spread(groups: np.ndarray, group: int) -> np.ndarray:
    """Numbers [groups, columns] as those of each weight [columns, depth]."""
    return np.repeat(groups.astype(np.float64), group, axis=0).T


def _swapped(packed: np.ndarray) -> np.ndarray:
    return (packed << 4 | packed >> 4).astype(np.uint8)


def q4gsw(
    depth: int,
    columns: int,
    group: int,
    *,
    dtype: str = "float32",
    bias: bool = False,
    lead: Lead = _flat,
    scale_dtype: str = "",
    aligned: int = 4,
    bits: int = 4,
    minima: bool = False,
    sizes: tuple[int, ...] = ROWS,
) -> OpCase:
    generator = np.random.default_rng((depth, columns, group))
    packed, values = _codes(generator, columns, depth, group, bits)
    scale_dtype = scale_dtype or dtype
    scales = ((generator.random((depth // group, columns)) + 0.5) / 2**bits).astype(scale_dtype)
    offset = generator.standard_normal(columns).astype(scale_dtype)
    weight = torch.from_numpy(values * _spread(scales, group))
    # What the exporter pads with is zero; here it is NaN, which would show.
    padding = (0, -columns % aligned)
    given_scales = np.pad(scales, ((0, 0), padding), constant_values=np.nan)
    if minima:
        least = (generator.standard_normal(scales.shape) / 4).astype(scale_dtype)
        weight += torch.from_numpy(_spread(least, group))
        given_scales = np.stack([given_scales, np.pad(least, ((0, 0), padding), constant_values=np.nan)], axis=1)
    given_offset = np.pad(offset, padding, constant_values=np.nan)

    def golden(x: torch.Tensor, size: int) -> torch.Tensor:
        return torch.nn.functional.linear(x.double(), weight, torch.from_numpy(offset).double() if bias else None)

    marks = f"{' of 8 bits' if bits == 8 else ''}{' with minima' if minima else ''}"
    marks += f"{' with bias' if bias else ''}{f' scales {scale_dtype}' if scale_dtype != dtype else ''}"
    return OpCase(
        name=f"linear_q4gsw {dtype} {lead(0)} {depth} to {columns} by {group} aligned {aligned}{marks}",
        op="et_vk.linear_q4gsw.default",
        args_at=lambda s: [
            In(dtype, (*lead(s), depth)),
            Const(packed.view(np.uint8)),  # which says that rows stay floats
            Const(given_scales),
            group,
            Const(given_offset) if bias else None,
            Out(dtype, (*lead(s), columns)),
        ],
        golden=golden,
        sizes=sizes,
        **_tolerance(dtype, depth),
    )


def qcs4w(depth: int, columns: int, dtype: str = "float32", *, sizes: tuple[int, ...] = ROWS) -> OpCase:
    generator = np.random.default_rng((depth, columns))
    packed, values = _packed(generator, columns, depth, 2)
    scales = ((generator.random(columns) + 0.5) / 16).astype(dtype)
    weight = torch.from_numpy(values * scales.astype(np.float64)[:, None])
    return OpCase(
        name=f"linear_qcs4w {dtype} {depth} to {columns}",
        op="et_vk.linear_qcs4w.default",
        args_at=lambda s: [
            In(dtype, (1, s, depth)),
            Const(_swapped(packed)),
            Const(scales),
            Out(dtype, (1, s, columns)),
        ],
        golden=lambda x, size: torch.nn.functional.linear(x.double(), weight),
        sizes=sizes,
        **_tolerance(dtype, depth),
    )


def rows_of_all_kinds(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Rows of zeros, of one sign, of one value, huge and tiny, beside ordinary ones."""
    x = generator.standard_normal(shape)
    flat = x.reshape(-1, shape[-1])
    for kind, make in enumerate((np.zeros_like, np.abs, lambda row: -np.abs(row), lambda row: row * 1e-3)):
        for row in flat[kind + 1 :: 7]:
            row[:] = make(row)
    return x


def _rows_of_whole_steps(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Rows whose scale is a power of two, so that halves hold it and the zero point is no matter of rounding."""
    least = generator.integers(-255, 1, (*shape[:-1], 1))
    steps = least + generator.integers(0, 256, shape)
    steps[..., :1], steps[..., 1:2] = least, least + 255
    return steps / 128


def _choose_qparams(dtype: str, lead: Lead, depth: int, keepdim: bool) -> OpCase:
    def block(size: int) -> tuple[int, ...]:
        return (*(1 for _ in lead(size)), depth)

    def golden(x: torch.Tensor, size: int) -> tuple[torch.Tensor, ...]:
        from torchao.quantization.quant_primitives import _choose_qparams_affine

        if x.numel() == 0:
            shape = (*lead(size), 1) if keepdim else lead(size)
            return torch.empty(shape, dtype=x.dtype), torch.empty(shape, dtype=torch.int8)
        return _choose_qparams_affine(
            x, "ASYMMETRIC", list(block(size)), torch.int8, -128, 127, None, x.dtype, torch.int8, keepdim
        )

    return OpCase(
        name=f"choose_qparams {dtype} {lead(0)} of {depth}{' kept' if keepdim else ''}",
        op="torchao.choose_qparams_affine.default",
        args_at=lambda s: [
            In(dtype, (*lead(s), depth), _rows_of_whole_steps if dtype == "float16" else rows_of_all_kinds),
            "ASYMMETRIC",
            block(s),
            None,
            -128,
            127,
            None,
            None,
            None,
            keepdim,
            [Out(each, (*lead(s), 1) if keepdim else lead(s)) for each in (dtype, "int8")],
        ],
        golden=golden,
        sizes=ROWS,
        rtol=1e-3 if dtype == "float16" else 1e-6,
    )


def rows_of_integers(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Whole numbers times a power of two for every 32 neighbours, and 127 of them the largest: what eight bits hold."""
    whole = generator.integers(-127, 128, (*shape[:-1], shape[-1] // 32, 32))
    whole[..., 5] = 127 * generator.choice((-1, 1), whole.shape[:-1])
    return (whole * 2.0 ** generator.integers(-3, 2, (*whole.shape[:-1], 1))).reshape(shape)


def between_integers(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers that eight bits do not hold, of any size, and none so near to the middle that its last bit matters."""
    whole = generator.integers(-126, 127, (*shape[:-1], shape[-1] // 32, 32)) + generator.uniform(-0.45, 0.45, (32,))
    whole[..., 5] = 127
    return (whole * generator.uniform(1e-5, 1e-2, (*whole.shape[:-1], 1))).reshape(shape)


def in_eight_bits(x: torch.Tensor) -> torch.Tensor:
    """x as it is after its rounding: 32 neighbours have a step of their own, and the largest of them is 127."""
    groups = x.double().unflatten(-1, (-1, 32))
    step = (groups.abs().amax(-1, keepdim=True) / 127).clamp(min=1e-300)
    return (torch.round(groups / step) * step).flatten(-2)


def int8_activations(
    depth: int,
    columns: int,
    group: int,
    *,
    dtype: str = "float32",
    bias: bool = False,
    between: bool = False,
    minima: bool = False,
    bits: int = 4,
    scale_dtype: str = "",
    lead: Lead = _flat,
    sizes: tuple[int, ...] = INT8_ROWS,
) -> OpCase:
    """A layer that quantizes its rows: where they are integers already, that is exact."""
    generator = np.random.default_rng((depth, columns, group))
    packed, values = _codes(generator, columns, depth, group, bits)
    scale_dtype = scale_dtype or dtype
    scales = (2.0 ** generator.integers(-6, -3, (depth // group, columns))).astype(scale_dtype)
    offset = generator.integers(-9, 9, columns).astype(scale_dtype)
    weight = torch.from_numpy(values * _spread(scales, group))
    added = torch.from_numpy(offset).double() if bias else None
    padding = (0, -columns % 4)
    given_scales = np.pad(scales, ((0, 0), padding), constant_values=np.nan)
    if minima:
        least = (generator.integers(-20, 20, scales.shape) / 64).astype(scale_dtype)
        weight += torch.from_numpy(_spread(least, group))
        given_scales = np.stack([given_scales, np.pad(least, ((0, 0), padding), constant_values=np.nan)], axis=1)
    exact = {"atol": 0.0, "rtol": 0.0 if dtype == "float32" else 1e-3}
    rounds = between or (bits == 8 and depth > 128)  # sums of more products of bytes have more than 24 bits
    return OpCase(
        name=f"linear_q4gsw for bytes {dtype} {lead(0)} {depth} to {columns} by {group}"
        f"{' of 8 bits' if bits == 8 else ''}{f' scales {scale_dtype}' if scale_dtype != dtype else ''}"
        f"{' with bias' if bias else ''}{' between' if between else ''}{' with minima' if minima else ''}",
        op="et_vk.linear_q4gsw.default",
        args_at=lambda s: [
            In(dtype, (*lead(s), depth), between_integers if between else rows_of_integers),
            Const(packed.view(np.int8)),  # which says that rows are quantized
            Const(given_scales),
            group,
            Const(np.pad(offset, padding, constant_values=np.nan)) if bias else None,
            Out(dtype, (*lead(s), columns)),
        ],
        golden=lambda x, size: torch.nn.functional.linear(in_eight_bits(x), weight, added),
        sizes=sizes,
        **(_tolerance(dtype, depth) if rounds else exact),
    )


def dq8ca(
    depth: int,
    columns: int,
    group: int,
    *,
    dtype: str = "float32",
    bias: bool = False,
    padded: int = 0,
    sizes: tuple[int, ...] = ROWS,
) -> OpCase:
    """`padded` is how many bytes more a column of the weight has than its depth needs."""
    generator = np.random.default_rng((depth, columns, group))
    packed, values = _packed(generator, columns, depth, 8)
    packed = np.pad(packed, ((0, 0), (0, padded)), constant_values=255)
    scales = ((generator.random((depth // group, columns)) + 0.5) / 16).astype(dtype)
    offset = generator.standard_normal(columns).astype(dtype)
    weight = torch.from_numpy(values * np.repeat(scales.astype(np.float64), group, axis=0).T)
    sums = np.zeros((depth // group, columns), np.int32)

    def steps(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return 2.0 ** generator.integers(-7, -4, shape)

    def golden(x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, size: int) -> torch.Tensor:
        step, middle = scale.double()[..., None], zero.double()[..., None]
        quantized = (torch.clamp(torch.round(x.double() / step) + middle, -128, 127) - middle) * step
        return torch.nn.functional.linear(quantized, weight, torch.from_numpy(offset).double() if bias else None)

    return OpCase(
        name=f"linear_dq8ca_q4gsw {dtype} {depth} to {columns} by {group}{' with bias' if bias else ''}"
        f"{f' padded by {padded}' if padded else ''}",
        op="et_vk.linear_dq8ca_q4gsw.default",
        args_at=lambda s: [
            In(dtype, (1, s, depth)),
            In(dtype, (1, s), steps),
            In("int8", (1, s), lambda generator, shape: generator.integers(-128, 128, shape)),
            Const(packed),
            Const(sums),
            Const(scales),
            group,
            Const(offset) if bias else None,
            Out(dtype, (1, s, columns)),
        ],
        golden=golden,
        sizes=sizes,
        **_tolerance(dtype, depth),
    )


def _embedding(dtype: str, ids: str, rows: int, width: int, group: int, linear: bool, lead: Lead = _flat) -> OpCase:
    generator = np.random.default_rng((rows, width))
    packed, values = _packed(generator, rows, width, 2)
    scales = generator.standard_normal((rows, width // group)).astype(dtype)
    table = torch.from_numpy(values * np.repeat(scales.astype(np.float64), group, axis=1))
    return OpCase(
        name=f"embedding_q4gsw {dtype} {ids} {lead(0)} of {rows} by {width} in {group}{'' if linear else ' swapped'}",
        op="et_vk.embedding_q4gsw.default",
        args_at=lambda s: [
            Const(packed if linear else _swapped(packed)),
            Const(scales),
            group,
            In(ids, lead(s), lambda generator, shape: generator.integers(0, rows, shape)),
            linear,
            Out(dtype, (*lead(s), width)),
        ],
        golden=lambda index, size: torch.nn.functional.embedding(index.long(), table),
        rtol=1e-3 if dtype == "float16" else 1e-6,
    )


def _with_minima(rows: int, width: int, group: int, bits: int, dtype: str = "float32") -> OpCase:
    """A table whose groups have a minimum."""
    generator = np.random.default_rng((rows, width, bits))
    table, values = _codes(generator, rows, width, group, bits)
    scales, minima = (generator.standard_normal((rows, width // group)).astype(dtype) for _ in range(2))
    spread = values * _spread(scales.T, group) + _spread(minima.T, group)
    return OpCase(
        name=f"embedding_with_minima {dtype} of {rows} by {width} in {group} of {bits} bits",
        op="liveshape.embedding_with_minima",
        args_at=lambda s: [
            Const(table.reshape(rows, -1)),
            Const(scales),
            Const(minima),
            In("int64", (1, s), lambda generator, shape: generator.integers(0, rows, shape)),
            bits,
            True,
            Out(dtype, (1, s, width)),
        ],
        golden=lambda index, size: torch.from_numpy(spread)[index],
        rtol=2e-3 if dtype == "float16" else 1e-6,
        atol=2e-3 if dtype == "float16" else 1e-6,
    )


def _outside(rows: int = 11, width: int = 24) -> OpCase:
    """Ids below and above a table that is not constant give NaN, and nothing of the memory around it."""
    scales = np.ones((rows, 1), np.float32)

    def golden(weight: torch.Tensor, index: torch.Tensor, size: int) -> torch.Tensor:
        values = torch.stack([weight & 15, weight >> 4], -1).reshape(rows, width).double() - 8
        known = (index >= 0) & (index < rows)
        return torch.where(known[:, None], values[index.clamp(0, rows - 1).long()], float("nan"))

    return OpCase(
        name="embedding_q4gsw with ids outside",
        op="et_vk.embedding_q4gsw.default",
        args_at=lambda s: [
            In("uint8", (rows, width // 2), lambda generator, shape: generator.integers(0, 256, shape)),
            Const(scales),
            width,
            In("int32", (s,), lambda generator, shape: generator.integers(-3, rows + 3, shape)),
            True,
            Out("float32", (s, width)),
        ],
        golden=golden,
    )


CASES = [
    _outside(),
    _with_minima(31, 64, 32, 4),
    _with_minima(9, 15, 5, 8),
    _with_minima(31, 64, 16, 4, "float16"),
    *(q4gsw(*form, dtype=dtype) for dtype in ("float32", "float16") for form in ((64, 24, 32), (160, 70, 8))),
    q4gsw(64, 24, 32, bias=True, lead=lambda s: (2, s)),
    q4gsw(96, 8, 96, lead=lambda s: (1, s, 3), bias=True),
    q4gsw(2048, 12, 64),
    q4gsw(1120, 5, 16, bias=True),  # more threads than one vector each, and a last one that is not full
    q4gsw(256, 68, 16, bias=True, dtype="float16"),
    q4gsw(128, 3, 32, bias=True),
    q4gsw(128, 3, 32, bias=True, aligned=1),
    q4gsw(128, 7, 8, aligned=1),
    q4gsw(72, 20, 24, bias=True),  # whole words, not whole vectors
    q4gsw(40, 11, 8),
    q4gsw(60, 16, 20, bias=True),  # padded to 64; groups that are no whole words
    q4gsw(20, 9, 20, bias=True),
    q4gsw(12, 1, 4, bias=True),
    q4gsw(28, 6, 2),
    q4gsw(21, 5, 3, bias=True),  # a depth that is odd
    q4gsw(8, 4, 1),
    q4gsw(33, 130, 11, dtype="float16", bias=True),
    q4gsw(64, 16, 32, scale_dtype="float16", bias=True),
    q4gsw(64, 16, 32, dtype="float16", scale_dtype="float32", bias=True),
    q4gsw(64, 16, 32, lead=lambda s: (), sizes=(1, 2)),
    q4gsw(32, 1300, 32, sizes=(1, 3, 16, 17, 32, 33, MAX)),
    q4gsw(64, 24, 32, minima=True),
    q4gsw(1120, 5, 16, bias=True, minima=True),
    q4gsw(256, 68, 16, bias=True, minima=True, dtype="float16"),
    q4gsw(128, 7, 32, aligned=1, minima=True, sizes=(1, 3, 20)),
    q4gsw(60, 16, 20, minima=True),
    q4gsw(21, 5, 3, bias=True, minima=True),
    q4gsw(64, 24, 32, bits=8),
    q4gsw(2048, 12, 16, bits=8, bias=True, sizes=(1, 3)),  # a vector of two groups
    q4gsw(1120, 5, 16, bias=True, bits=8),
    q4gsw(256, 68, 16, bias=True, bits=8, dtype="float16"),
    q4gsw(60, 18, 20, bits=8),  # whole words, not whole eights
    q4gsw(21, 5, 3, bias=True, bits=8),  # columns that begin anywhere in a word
    q4gsw(77, 11, 77, bits=8, aligned=1),
    q4gsw(96, 70, 32, bits=8, minima=True, sizes=(1, 3, 20, MAX)),
    qcs4w(64, 24),
    qcs4w(36, 10),
    qcs4w(30, 7),
    qcs4w(13, 5, "float16"),
    qcs4w(128, 65, "float16"),
    *(
        _choose_qparams(dtype, *form)
        for dtype in ("float32", "float16")
        for form in ((_flat, 64, False), (lambda s: (1, s), 37, False), (lambda s: (2, s), 300, True))
    ),
    dq8ca(64, 24, 32),
    dq8ca(160, 6, 32, bias=True),
    dq8ca(60, 8, 20, bias=True),
    dq8ca(64, 24, 32, dtype="float16", bias=True),
    dq8ca(32, 9, 32, padded=16, sizes=(1, 3, 20)),
    int8_activations(64, 24, 32, sizes=(0, 1, 5, 9, 33, MAX)),
    int8_activations(576, 77, 64, bias=True),
    int8_activations(1024, 40, 1024, lead=lambda s: (1, s), sizes=(1, 7, 12, 64)),  # a depth that is shared
    int8_activations(96, 13, 32, between=True, sizes=(1, 4, 9, 40)),
    int8_activations(576, 77, 64, bias=True, minima=True),
    int8_activations(1024, 40, 128, minima=True, sizes=(1, 7, 12, 64)),
    int8_activations(64, 24, 32, bits=8),
    int8_activations(128, 77, 16, bits=8, bias=True),
    int8_activations(96, 13, 16, bits=8, between=True, sizes=(1, 4, 9, 40)),
    int8_activations(128, 42, 32, bits=8, minima=True, scale_dtype="float16"),
    int8_activations(1024, 40, 16, bits=8, scale_dtype="float16", sizes=(1, 2, 7, 8, 16, 64, 70)),
    *(
        _embedding(dtype, ids, *form)
        for dtype in ("float32", "float16")
        for ids, *form in (
            ("int64", 50, 64, 32, True),
            ("int32", 50, 64, 16, False, lambda s: (1, s)),
            ("int64", 9, 6, 3, True, lambda s: (s, 2)),
            ("int32", 7, 10, 10, False),
        )
    ),
]
