"""add, sub, mul, div and their kin: every direction of broadcast, alpha, scalars, and the integer types."""

import torch
from torch import nn

from tests.support.programs import MAX, Input, TestProgram, away_from_zero, integers, positive


class Broadcast(nn.Module):
    """Rank differences, size-1 dims on either side, and constants, through the four operators."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("row", torch.arange(1, 9).float() / 2)
        self.register_buffer("heads", torch.arange(1, 4).float().reshape(3, 1, 1))
        self.register_buffer("one", torch.tensor([2.0]))

    def forward(self, x, flat, column, cube, wide):
        row, heads, one = self.row.to(x.dtype), self.heads.to(x.dtype), self.one.to(x.dtype)
        return (
            x + flat,
            flat - x,
            x * column,
            column - x,
            x + row,
            row - x,
            x * heads,
            heads - x,
            cube + x,
            x * cube,
            column + row,
            column * cube,
            torch.add(x, flat, alpha=2),
            torch.sub(flat, x, alpha=3),
            x * one,
            one - flat,
            flat + flat,
            wide + flat,
            wide * wide,
        )


class Division(nn.Module):
    """div with the same broadcasts; the divisor stays away from zero."""

    def forward(self, x, flat, column, row):
        return x / flat, flat / x, x / column, column / x, x / row, row / flat, flat / 3.0, flat / 4


class FloatScalars(nn.Module):
    """A scalar operand on either side, int and float, and a fractional alpha."""

    def forward(self, x, y):
        return (
            x + 1.5,
            x + 2,
            1 - x,
            x - 0.25,
            x * 3,
            x * -0.5,
            x / 7.0,
            torch.add(x, y, alpha=0.5),
            torch.sub(x, y, alpha=-1.5),
            torch.add(x, 2.0, alpha=3),
        )


class IntegerScalars(nn.Module):
    def forward(self, x, y):
        return x + 2, 7 - x, x * -3, x - 1, torch.add(x, y, alpha=2), x * y, x - y


class Extremes(nn.Module):
    """minimum, pow of two tensors, and the rounding modes of division."""

    def forward(self, x, y, row):
        return (
            torch.minimum(x, y),
            torch.minimum(x, row),
            torch.pow(y, x),
            torch.pow(y, row),
            torch.div(x, y, rounding_mode="floor"),
            torch.div(x, row, rounding_mode="floor"),
        )


class IntegerExtremes(nn.Module):
    def forward(self, x, y):
        return torch.minimum(x, y), torch.div(x, y, rounding_mode="floor"), x / y


class Outer(nn.Module):
    """Two live dims that meet only in the result."""

    def forward(self, down, across, grid):
        table = down + across
        return table, down * across, table - grid, grid / (across * across + 1.0), down - grid


def broadcast_inputs(dtype: torch.dtype) -> tuple[Input, ...]:
    return (
        Input((1, 3, "S", 8), dtype),
        Input(("S", 8), dtype),
        Input(("S", 1), dtype),
        Input((2, 1, 1, 8), dtype),
        Input((2, 1, 3, "S", 8), dtype),
    )


def division_inputs(dtype: torch.dtype) -> tuple[Input, ...]:
    shapes = ((1, 3, "S", 8), ("S", 8), ("S", 1), (8,))
    return tuple(Input(shape, dtype, away_from_zero) for shape in shapes)


def pair(dtype: torch.dtype, fill=None) -> tuple[Input, ...]:
    return Input((2, "S", 7), dtype, fill), Input(("S", 7), dtype, fill)


def extremes_inputs(dtype: torch.dtype) -> tuple[Input, ...]:
    return Input((2, "S", 7), dtype), Input(("S", 7), dtype, positive), Input((7,), dtype, positive)


HALF = {"dtype": torch.float16, "atol": 1e-2, "rtol": 1e-2}
EXACT = {"double": False, "atol": 0.0, "rtol": 0.0}

PROGRAMS = [
    TestProgram("broadcast", Broadcast, broadcast_inputs(torch.float32)),
    TestProgram("broadcast_f16", Broadcast, broadcast_inputs(torch.float16), **HALF),
    TestProgram("broadcast_i32", Broadcast, broadcast_inputs(torch.int32), **EXACT),
    TestProgram("division", Division, division_inputs(torch.float32)),
    TestProgram("division_f16", Division, division_inputs(torch.float16), **HALF),
    TestProgram("scalars", FloatScalars, pair(torch.float32, away_from_zero)),
    TestProgram("scalars_f16", FloatScalars, pair(torch.float16, away_from_zero), **HALF),
    TestProgram("scalars_i32", IntegerScalars, pair(torch.int32), **EXACT),
    TestProgram("scalars_i64", IntegerScalars, pair(torch.int64), **EXACT),
    TestProgram("extremes", Extremes, extremes_inputs(torch.float32)),
    TestProgram("extremes_f16", Extremes, extremes_inputs(torch.float16), double=False, **HALF),
    TestProgram(
        "extremes_i32",
        IntegerExtremes,
        (Input((2, "S", 7), torch.int32), Input(("S", 7), torch.int32, integers(1, 9))),
        double=False,
    ),
    TestProgram(
        "outer",
        Outer,
        (Input(("S", 1)), Input((1, "T")), Input(("S", "T"))),
        dims={"S": (1, MAX), "T": (1, 31)},
    ),
]
