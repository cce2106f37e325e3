"""Sizes that are computed: arithmetic on a live size, the size of an intermediate, numbers read from a tensor."""

import torch
from torch import nn

from tests.support.programs import MAX, Input, TestProgram, integers, value_of


class SizeArithmetic(nn.Module):
    """S+1, 2*S, S//2 and 3*S as sizes and as slice bounds; the live size is even, so that its half is exact."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(2 * MAX + 2, 3))

    def forward(self, x):
        live = x.shape[0]
        return (
            self.table[: live + 1],
            self.table[: live * 2],
            self.table[: live // 2],
            self.table[live : live + 4],
            self.table[live // 2 : live],
            x[live // 2 :],
            x[: live - 1],
            torch.full((live + 1, 2), 1.5),
            torch.full((live // 2, live - 1), -0.5),
            x.view(live * 3),
            x.view(live // 2, 6),
            x.expand(2, live, 3).reshape(live * 2, 3),
        )


class IntermediateSizes(nn.Module):
    """sym_size of a cat, of a slice and of a view, used again as a size."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(4 * MAX, 3))

    def forward(self, x, y):
        both = torch.cat((x, y, x), 0)
        total = both.shape[0]
        tail = both[1:]
        flat = both * 2.0
        joined = flat.view(-1) - 1.0
        return (
            both + self.table[:total],
            tail - self.table[: tail.shape[0]],
            joined.view(total, 3),
            torch.zeros(total, 3) + both,
            tail.reshape(1, tail.shape[0], 3) * 1.5,
        )


class Position(nn.Module):
    """A position read from an input opens a window of live length in a table; both ends of `pos` are read."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(96, 6))

    def forward(self, x, pos):
        start = pos[0].item()
        torch._check(start >= 0)
        torch._check(start + x.shape[1] <= 96)
        rows = self.table.narrow(0, start, x.shape[1])
        last = pos[-1].item()
        torch._check(last >= 0)
        torch._check(last + 3 <= 96)
        return x + rows, self.table.narrow(0, last, 3)


class LivePosition(nn.Module):
    """The positions are themselves of live length, and the window starts at the first of them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(96, 6))

    def forward(self, x, pos):
        start = pos[0].item()
        torch._check(start >= 0)
        torch._check(start + x.shape[1] <= 96)
        return x + self.table.narrow(0, start, x.shape[1]), pos + pos


class ComputedPosition(nn.Module):
    """The position is computed in the program before it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(96, 6))

    def forward(self, x, pos):
        shifted = pos + pos
        start = shifted[1].item()
        torch._check(start >= 0)
        torch._check(start + x.shape[1] <= 96)
        return x * self.table.narrow(0, start, x.shape[1])


class Branches(nn.Module):
    """Branches of different depth that meet, where a breadth-first resize sees a stale size."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8, bias=False)

    def forward(self, x):
        deep = self.second(torch.relu(self.first(torch.sigmoid(x))))
        shallow = x * 2.0
        met = deep + shallow
        centred = met - met.mean(-1, keepdim=True)
        return met, centred, centred + x, torch.cat((x, deep, centred), -1), centred.mean(1, keepdim=True) + x


class TwoDims(nn.Module):
    """Two independent live dims through arithmetic on both."""

    def forward(self, x, y):
        rows, columns = x.shape[0], y.shape[0]
        grid = x.unsqueeze(1) * y.unsqueeze(0)
        return (
            grid,
            grid.reshape(rows * columns, 4),
            torch.cat((x, y), 0),
            torch.full((rows + columns, 2), 3.0),
            torch.cat((x, y), 0).view(-1),
        )


POSITION = {"S": (1, MAX)}

PROGRAMS = [
    TestProgram("size_arithmetic", SizeArithmetic, (Input(("2*H", 3)),), {"H": (2, MAX // 2)}, double=False),
    TestProgram("intermediate_sizes", IntermediateSizes, (Input(("S", 3)), Input((2, 3))), double=False),
    TestProgram(
        "position",
        Position,
        (Input((1, "S", 6)), Input((4,), torch.int64, integers(0, 96 - MAX))),
        POSITION,
    ),
    TestProgram(
        "position_i32",
        Position,
        (Input((1, "S", 6)), Input((4,), torch.int32, integers(0, 96 - MAX))),
        POSITION,
    ),
    TestProgram(
        "live_position",
        LivePosition,
        (Input((1, "S", 6)), Input(("S",), torch.int64, value_of("96 - S"))),
        POSITION,
    ),
    TestProgram(
        "computed_position",
        ComputedPosition,
        (Input((1, "S", 6)), Input((4,), torch.int64, integers(0, (96 - MAX) // 2))),
        POSITION,
    ),
    TestProgram("branches", Branches, (Input((1, "S", 8)),)),
    TestProgram("two_dims", TwoDims, (Input(("S", 4)), Input(("T", 4))), {"S": (1, MAX), "T": (1, 31)}, double=False),
]
