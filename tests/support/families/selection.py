"""where, the compares, bool logic, constants made in the program, and conversions between types."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.programs import Input, TestProgram, integers


class Where(nn.Module):
    """The condition, either branch, or both broadcast."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("fill", torch.tensor(-7.0))

    def forward(self, condition, mask, x, flat, row):
        return (
            torch.where(condition, x, -x),
            torch.where(condition, flat, x),
            torch.where(condition, x, row),
            torch.where(mask, x, flat),
            torch.where(mask, row, flat),
            torch.where(condition, x, self.fill.to(x.dtype)),
        )


class Masked(nn.Module):
    """A number as a branch becomes a tensor of rank zero that a portable operator makes outside the delegate."""

    def forward(self, condition, mask, x):
        return (
            torch.where(condition, 1.0, x),
            x.masked_fill(condition, 0.5),
            x.masked_fill(mask, float("-inf")),
            F.hardshrink(x, 0.75),
            torch.softmax(x.masked_fill(condition, -1e4), -1),
        )


class Compares(nn.Module):
    """Two tensors of one shape and of shapes that broadcast, and a tensor against a number."""

    def forward(self, x, y, flat, row):
        return (
            x == y,
            x < y,
            x <= y,
            x > y,
            x >= y,
            x == flat,
            flat < x,
            x <= row,
            row > flat,
            flat >= row,
            x == 1,
            x != 2,
            x < 0,
            x <= -1,
            x > 2,
            x >= 3,
        )


class FloatCompares(nn.Module):
    """Thresholds that are not whole, and the use of a mask right away."""

    def forward(self, x, y):
        return x < 0.25, x >= -0.5, torch.where(x > y, x, y), torch.where(x > 0.0, x, 0.1 * x), x == x


class Logic(nn.Module):
    def forward(self, a, b):
        return (
            torch.logical_and(a, b),
            torch.logical_or(a, b),
            torch.logical_not(a),
            a & b,
            a | b,
            ~b,
            (a & ~b) | (b & ~a),
        )


class Fills(nn.Module):
    """Constants whose shape is live: from a symbolic size and from another tensor."""

    def forward(self, x):
        live = x.shape[1]
        return (
            torch.full((live, 3), 2.5) + x[0, :, :3],
            torch.zeros(live, 5) + x[0],
            torch.ones(1, live, 5) * x,
            torch.full_like(x, -1.5) + x,
            torch.zeros_like(x) - x,
            torch.ones_like(x) + x,
            torch.full((live + 1, 2), 0.25),
            torch.zeros(2, live),
            torch.ones(live * 2),
        )


class IntegerFills(nn.Module):
    def forward(self, x):
        live = x.shape[0]
        return torch.full((live, 3), 7, dtype=torch.int32) + x, torch.zeros_like(x), torch.ones_like(x) * x


class Casts(nn.Module):
    """Every pair of the types a delegate holds, through arithmetic on the result."""

    def forward(self, x, half, whole, flag):
        return (
            x.half(),
            x.half() * 2.0,
            half.float(),
            half.float() + x,
            whole.float(),
            whole.float() * 0.5,
            x.to(torch.int32),
            half.to(torch.int32),
            whole.half(),
            flag.float(),
            flag.float() * x,
            flag.to(torch.int32),
            flag.half(),
            whole.to(torch.bool),
            x.to(torch.bool),
            (x > 0.0).float(),
        )


class WideCasts(nn.Module):
    """int64 outside, int32 inside."""

    def forward(self, x, whole, long):
        return long + long, long.to(torch.int32) + whole, whole.to(torch.int64) + long, long.float() + x, x.long()


class Promotion(nn.Module):
    """Arithmetic over two types."""

    def forward(self, x, whole, half):
        return x + whole, whole * x, x * half, whole + 0.5


class CausalMask(nn.Module):
    """A mask built from positions: arange, compare with broadcast, where."""

    def forward(self, scores):
        live = scores.shape[-1]
        steps = torch.arange(live, dtype=torch.float32)
        return torch.where(steps[None, :] <= steps[:, None], scores, -1e4)


def spread(shape, generator, sizes):
    return torch.randn(shape, generator=generator) * 20


EXACT = {"double": False, "atol": 0.0, "rtol": 0.0}
SMALL = integers(-4, 5)
FEW = integers(0, 2)


def where_inputs(dtype: torch.dtype) -> tuple[Input, ...]:
    return (
        Input((2, "S", 5), torch.bool),
        Input(("S", 1), torch.bool),
        Input((2, "S", 5), dtype),
        Input(("S", 5), dtype),
        Input((5,), dtype),
    )


def compare_inputs(dtype: torch.dtype) -> tuple[Input, ...]:
    shapes = ((2, "S", 5), (2, "S", 5), ("S", 5), (5,))
    return tuple(Input(shape, dtype, SMALL) for shape in shapes)


CAST_INPUTS = (
    Input(("S", 5), torch.float32, spread),
    Input(("S", 5), torch.float16, spread),
    Input(("S", 5), torch.int32, integers(-3, 4)),
    Input(("S", 5), torch.bool),
)

PROGRAMS = [
    TestProgram("where", Where, where_inputs(torch.float32), **EXACT),
    TestProgram("where_f16", Where, where_inputs(torch.float16), dtype=torch.float16, **EXACT),
    TestProgram("masked", Masked, where_inputs(torch.float32)[:3], one_delegate=False),
    TestProgram(
        "masked_f16",
        Masked,
        where_inputs(torch.float16)[:3],
        dtype=torch.float16,
        one_delegate=False,
        atol=1e-2,
        rtol=1e-2,
    ),
    TestProgram("compares", Compares, compare_inputs(torch.float32), **EXACT),
    TestProgram("compares_f16", Compares, compare_inputs(torch.float16), **EXACT),
    TestProgram("compares_i32", Compares, compare_inputs(torch.int32), **EXACT),
    TestProgram("compares_i64", Compares, compare_inputs(torch.int64), **EXACT),
    TestProgram("float_compares", FloatCompares, (Input((2, "S", 5)), Input((2, "S", 5))), double=False),
    TestProgram("logic", Logic, (Input((2, "S", 5), torch.bool), Input((2, "S", 5), torch.bool)), **EXACT),
    TestProgram("fills", Fills, (Input((1, "S", 5)),), double=False),
    TestProgram("fills_i32", IntegerFills, (Input(("S", 3), torch.int32),), **EXACT),
    TestProgram("casts", Casts, CAST_INPUTS, double=False, atol=1e-3, rtol=1e-3),
    TestProgram(
        "casts_i64",
        WideCasts,
        (Input(("S", 5), fill=spread), Input(("S", 5), torch.int32), Input(("S", 5), torch.int64)),
        double=False,
    ),
    TestProgram(
        "promotion",
        Promotion,
        (Input(("S", 5)), Input(("S", 5), torch.int32), Input(("S", 5), torch.float16)),
        double=False,
    ),
    TestProgram("causal_mask", CausalMask, (Input((2, "S", "S")),), double=False, one_delegate=False),
]
