"""Fused operators of language models, and the choice of the next token where it leaves no chance, against float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from liveshape.graph.expression import Applied, Expression
from tests.ops.cases.quantized import _codes, _spread
from tests.support.graphs import Const, In, InOut, OpCase, Out, Sym

DEPTH, GROUP, EPS = 64, 32, 1e-5
ROWS = (1, 2, 5, 17, 33)
CLOSE = {"atol": 5e-5, "rtol": 5e-5}
VOCABULARY = 300
Weights = tuple[list[Any], torch.Tensor]


def _weights(columns: int, bits: int = 4, seed: int = 0) -> Weights:
    """A layer as operators take it, and its weight."""
    generator = np.random.default_rng((columns, bits, seed))
    packed, codes = _codes(generator, columns, DEPTH, GROUP, bits)
    scales = ((generator.random((DEPTH // GROUP, columns)) + 0.5) / 2**bits).astype(np.float32)
    return [Const(packed.view(np.uint8)), Const(scales), GROUP], torch.from_numpy(codes * _spread(scales, GROUP))


def _offset(columns: int) -> np.ndarray:
    return np.random.default_rng(columns).standard_normal(columns).astype(np.float32)


# x0 * sigmoid(x0) * x1
SWIGLU = Expression(
    ("float32", "float32"),
    (),
    tuple(Applied(name, given, "float32") for name, given in (("sigmoid", (0,)), ("mul", (0, 2)), ("mul", (3, 1)))),
)
NORM = np.random.default_rng(8).standard_normal(DEPTH).astype(np.float32)


def _normed(x: torch.Tensor) -> torch.Tensor:
    wide = x.double()
    return wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + EPS) * torch.from_numpy(NORM).double()


def _gated(both: torch.Tensor) -> torch.Tensor:
    """Columns of gate and up lie in turn."""
    return F.silu(both[..., ::2]) * both[..., 1::2]


def layer(
    name: str,
    columns: int,
    result: Callable[[torch.Tensor], Any],
    outs: Callable[[int], Any],
    *,
    normed: bool = False,
    bits: int = 4,
    bias: bool = False,
    values: tuple[Any, ...] = (),
) -> OpCase:
    """A 4- or 8-bit linear with what is fused to it, of the RMSNorm of its rows if asked."""
    given, weight = _weights(columns, bits)
    offset = _offset(columns)
    # The bias of a layer of an RMSNorm and the weight of the norm take one binding.
    terms = np.concatenate([offset, NORM]) if bias else NORM
    norm = [Const(NORM), Const(terms), EPS, None] if normed else []

    def golden(x: torch.Tensor, size: int) -> Any:
        rows = _normed(x) if normed else x.double()
        return result(F.linear(rows, weight, torch.from_numpy(offset).double() if bias else None))

    marks = f"{' of 8 bits' if bits == 8 else ''}{' with bias' if bias else ''}"
    return OpCase(
        f"{'rms_norm_' if normed else ''}{name}{marks}",
        f"liveshape.{'rms_norm_' if normed else ''}{name}",
        lambda s: [
            In("float32", (1, s, DEPTH)), *norm, *given, Const(offset) if bias else None, *values, outs(s),
        ],
        golden,
        sizes=ROWS,
        **CLOSE,
    )  # fmt: skip


def residual(bits: int, bias: bool) -> OpCase:
    given, weight = _weights(24, bits)
    offset = _offset(24)
    return OpCase(
        f"residual_linear_q4gsw of {bits} bits{' with bias' if bias else ''}",
        "liveshape.residual_linear_q4gsw",
        lambda s: [
            In("float32", (1, s, DEPTH)), *given, Const(offset) if bias else None, In("float32", (1, s, 24)),
            Out("float32", (1, s, 24)),
        ],
        lambda x, more, s: more.double()
        + F.linear(x.double(), weight, torch.from_numpy(offset).double() if bias else None),
        sizes=ROWS,
        **CLOSE,
    )  # fmt: skip


LAYERS = [
    layer("linear_q4gsw", 24, lambda y: y, lambda s: Out("float32", (1, s, 24)), normed=True),
    layer("linear_q4gsw", 24, lambda y: y, lambda s: Out("float32", (1, s, 24)), normed=True, bits=8, bias=True),
    *(
        layer(
            "gated_linear_q4gsw", 48, _gated, lambda s: Out("float32", (1, s, 24)), normed=normed, bits=bits,
            values=(SWIGLU,),
        )
        for normed in (False, True)
        for bits in (4, 8)
    ),
    *(
        layer(
            "qkv_linear_q4gsw", 48, lambda y: tuple(torch.split(y, (32, 8, 8), -1)),
            lambda s: tuple(Out("float32", (1, s, columns)) for columns in (32, 8, 8)),
            normed=normed, bias=bias, values=(None, None, 0),
        )
        for normed, bias in ((False, False), (False, True), (True, True))
    ),
    residual(4, False),
    residual(8, True),
]  # fmt: skip


def add_rms_norm(dtype: str, width: int, second: Callable[[int], int] = lambda s: s) -> OpCase:
    weight = np.random.default_rng(width).standard_normal(width).astype(dtype)

    def golden(a: torch.Tensor, b: torch.Tensor, size: int) -> Any:
        total = a + b
        wide = total.double()
        return total, wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + EPS) * torch.from_numpy(weight).double()

    return OpCase(
        f"add_rms_norm {dtype} {width}{'' if second(7) == 7 else ' of one row'}",
        "liveshape.add_rms_norm",
        lambda s: [
            In(dtype, (1, s, width)), In(dtype, (1, second(s), width)), Const(weight), EPS,
            (Out(dtype, (1, s, width)), Out(dtype, (1, s, width))),
        ],
        golden,
        **({"atol": 1e-2, "rtol": 4e-3} if dtype == "float16" else {"atol": 2e-5, "rtol": 2e-5}),
    )  # fmt: skip


def rotary_to_cache(dtype: str, heads: tuple[int, int] = (4, 2), size: int = 8, capacity: int = 50) -> OpCase:
    """Angles of the live rows, in neighbours; keys and values from a position on."""

    def start(rows: int) -> int:
        return (rows * 5) % (capacity - rows + 1)

    def turned(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        even, odd = x.double()[..., ::2], x.double()[..., 1::2]
        c, s = (each.double()[:, None] for each in (cosine, sine))
        return torch.stack([even * c - odd * s, even * s + odd * c], -1).flatten(-2)

    def golden(q: Any, k: Any, v: Any, cosine: Any, sine: Any, keys: Any, values: Any, rows: int) -> Any:
        live = slice(start(rows), start(rows) + rows)
        keys, values = keys.clone(), values.clone()
        keys[:, live], values[:, live] = turned(k, cosine, sine).to(keys.dtype), v
        return keys, values, turned(q, cosine, sine)

    return OpCase(
        f"rotary_to_cache {dtype}",
        "liveshape.rotary_to_cache",
        lambda s: [
            *(In(dtype, (1, s, count, size)) for count in (*heads, heads[1])),
            In("float32", (s, size // 2)), In("float32", (s, size // 2)), None,
            InOut(dtype, (1, capacity, heads[1], size)), InOut(dtype, (1, capacity, heads[1], size)),
            Sym(start(s)), Out(dtype, (1, s, heads[0], size)),
        ],
        golden,
        **({"atol": 4e-3, "rtol": 2e-3} if dtype == "float16" else {}),
    )  # fmt: skip


def fake_quantize_rows(depth: int) -> OpCase:
    def golden(x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, size: int) -> torch.Tensor:
        step, middle = scale.double()[..., None], zero.double()[..., None]
        return (torch.clamp(torch.round(x.double() / step) + middle, -128, 127) - middle) * step

    return OpCase(
        f"fake_quantize_rows {depth}",
        "liveshape.fake_quantize_rows",
        lambda s: [
            In("float32", (1, s, depth)), In("float32", (1, s), lambda g, shape: 2.0 ** g.integers(-7, -4, shape)),
            In("int8", (1, s), lambda g, shape: g.integers(-128, 128, shape)), Out("float32", (1, s, depth)),
        ],
        golden,
    )  # fmt: skip


def last_rows(dtype: str, width: int) -> OpCase:
    return OpCase(
        f"last_rows {dtype} {width}",
        "liveshape.last_rows",
        lambda s: [
            In(dtype, (1, s, width)), In("int32", (5,), lambda g, shape: g.integers(0, s, shape)),
            Out(dtype, (1, 5, width)),
        ],
        lambda x, rows, s: x[:, rows.long()],
        atol=0.0,
        rtol=0.0,
    )  # fmt: skip


def sample(name: str, temperature: float = 0.0, top_k: int = 0, penalty: float = 1.0, frequency: float = 0.0) -> OpCase:
    """The likeliest token of the last row: where a draw has one token to choose from, it is that one."""

    def golden(logits: torch.Tensor, history: torch.Tensor, size: int) -> torch.Tensor:
        row = logits[0, -1].double()
        seen = history[0, :size].long().unique()
        scaled = torch.where(row > 0, row / penalty, row * penalty)
        row[seen] = scaled[seen]
        row -= frequency * history[0, 1:size].long().bincount(minlength=len(row))
        return row.argmax().reshape(1, 1)

    return OpCase(
        f"sample {name}",
        "liveshape.sample",
        lambda s: [
            In("float32", (1, s, VOCABULARY), lambda g, shape: g.standard_normal(shape) * 3),
            In("int32", (1, 64), lambda g, shape: g.integers(0, VOCABULARY, shape)),
            Sym(s), Sym(1), True, temperature, top_k, 1.0, 0.0, penalty, frequency, 0.0, 1, 7,
            Out("int32", (1, 1)),
        ],
        golden,
        sizes=(1, 2, 5, 11),
        atol=0.0,
        rtol=0.0,
    )  # fmt: skip


def sample_rows() -> OpCase:
    """Greedy rows: settings of zeros, but for the penalty, which is one."""
    one = np.float32(1).view(np.int32)

    def settings(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
        return np.tile(np.array([0, 0, one, 0, one, *[0] * 7], np.int32), (shape[0], 1))

    return OpCase(
        "sample_rows greedy",
        "liveshape.sample_rows",
        lambda s: [
            In("float32", (1, s, VOCABULARY)), In("int32", (1, 16), lambda g, shape: g.integers(0, 9, shape)),
            In("int32", (2, 4), lambda g, shape: g.integers(0, 4, shape)), 4, In("int32", (s, 12), settings),
            False, False, False, Sym(s), Out("int32", (1, s)),
        ],
        lambda logits, history, table, settings, s: logits[0].argmax(-1)[None],
        sizes=(1, 2, 5, 9),
        atol=0.0,
        rtol=0.0,
    )  # fmt: skip


CASES = [
    *LAYERS,
    add_rms_norm("float32", 24),
    add_rms_norm("float16", 40),
    add_rms_norm("float32", 30, lambda s: 1),
    rotary_to_cache("float32"),
    rotary_to_cache("float16"),
    fake_quantize_rows(48),
    last_rows("float32", 12),
    last_rows("float16", 4),
    last_rows("int8", 8),
    sample("greedy"),
    sample("greedy, penalized", penalty=1.6),
    sample("greedy, counted", penalty=0.9, frequency=1.4),
    sample("one of one", temperature=0.8, top_k=1),
    sample_rows(),
]
