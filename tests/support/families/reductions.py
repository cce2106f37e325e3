"""softmax, log_softmax, sum, mean, amax, amin: over the last dim, the live one, the first, and several."""

import torch
from torch import nn

from tests.support.programs import MAX, Input, TestProgram


class Softmaxes(nn.Module):
    def forward(self, x, heads, square):
        return (
            torch.softmax(x, -1),
            torch.softmax(x, 1),
            torch.softmax(x, 0),
            torch.softmax(heads, 1),
            torch.softmax(heads * 30.0, 3),
            torch.softmax(square, -1),
            torch.softmax(square, 0),
            torch.log_softmax(x, -1),
            torch.log_softmax(x, 1),
            torch.log_softmax(heads, -2),
        )


class Sums(nn.Module):
    """The forms the partitioner takes: any one or two dims kept, or the last one dropped."""

    def forward(self, x, heads, flat):
        return (
            x.sum(-1),
            x.sum(-1, keepdim=True),
            x.sum(1, keepdim=True),
            x.sum(0, keepdim=True),
            x.sum((1, 2), keepdim=True),
            x.sum((0, 2), keepdim=True),
            heads.sum((1, 3), keepdim=True),
            heads.sum((2, 3), keepdim=True),
            heads.sum(-2, keepdim=True),
            flat.sum(-1, keepdim=True),
            flat.sum(0, keepdim=True),
            flat.sum(1),
        )


class Means(nn.Module):
    def forward(self, x, heads, flat):
        return (
            x.mean(-1),
            x.mean(-1, keepdim=True),
            x.mean(1, keepdim=True),
            x.mean(0, keepdim=True),
            x.mean((1, 2), keepdim=True),
            heads.mean((2, 3), keepdim=True),
            heads.mean(2, keepdim=True),
            flat.mean(0, keepdim=True),
            x - x.mean(-1, keepdim=True),
            x - x.mean(1, keepdim=True),
        )


class Peaks(nn.Module):
    def forward(self, x, heads, flat):
        return (
            x.amax(-1),
            x.amin(-1),
            x.amax(-1, keepdim=True),
            x.amin(1, keepdim=True),
            x.amax(0, keepdim=True),
            x.amax((1, 2), keepdim=True),
            heads.amin((2, 3), keepdim=True),
            heads.amax(-2, keepdim=True),
            flat.amax(1),
            flat.amin(0, keepdim=True),
            x - x.amax(-1, keepdim=True),
        )


class LastIsLive(nn.Module):
    """The live dim is the innermost one, so every stride moves with it."""

    def forward(self, x):
        return x.sum(-1), x.mean(-1, keepdim=True), x.amax(-1), torch.softmax(x, -1), x.sum(0, keepdim=True), x.amin(1)


class TwoLive(nn.Module):
    def forward(self, grid):
        return (
            torch.softmax(grid, -1),
            torch.softmax(grid, 0),
            grid.sum((0, 1), keepdim=True),
            grid.mean(0, keepdim=True),
            grid.amax(1),
        )


INPUTS = (Input((2, "S", 7)), Input((1, 3, "S", 5)), Input(("S", 66)))
HALF_INPUTS = tuple(Input(each.shape, torch.float16) for each in INPUTS)
HALF = {"dtype": torch.float16, "atol": 5e-2, "rtol": 2e-2}
SQUARE = Input(("S", "S"))

PROGRAMS = [
    TestProgram("softmaxes", Softmaxes, (*INPUTS[:2], SQUARE)),
    TestProgram("softmaxes_f16", Softmaxes, (*HALF_INPUTS[:2], Input(("S", "S"), torch.float16)), **HALF),
    *(
        TestProgram(f"{module.__name__.lower()}{suffix}", module, inputs, **extra)
        for module in (Sums, Means, Peaks)
        for suffix, inputs, extra in (("", INPUTS, {}), ("_f16", HALF_INPUTS, HALF))
    ),
    TestProgram("last_is_live", LastIsLive, (Input((3, "S")),)),
    TestProgram("two_live_reductions", TwoLive, (Input(("S", "T")),), dims={"S": (1, MAX), "T": (1, 31)}),
]
