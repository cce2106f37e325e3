"""mm, bmm, linear, addmm."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.programs import MAX, Input, TestProgram


class Linears(nn.Module):
    """With and without bias; K and N odd, multiples of four, and one; input ranks 2, 3 and 4."""

    def __init__(self) -> None:
        super().__init__()
        self.even = nn.Linear(16, 12)
        self.even_plain = nn.Linear(16, 12, bias=False)
        self.odd = nn.Linear(16, 7)
        self.odd_in = nn.Linear(7, 12, bias=False)
        self.odd_both = nn.Linear(7, 5)
        self.narrow = nn.Linear(16, 1)
        self.wide = nn.Linear(16, 130)

    def forward(self, x, flat, heads, odd):
        return (
            self.even(flat),
            self.even_plain(flat),
            self.odd(flat),
            self.odd_in(odd),
            self.odd_both(odd),
            self.narrow(flat),
            self.wide(flat),
            self.even(x),
            self.odd(x),
            self.even_plain(x),
            self.even(heads),
            self.odd_both(self.odd(heads)),
        )


class DeepLinear(nn.Module):
    """A reduction long enough to cross tiles, between two norms of its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(96, 260, bias=False)
        self.down = nn.Linear(260, 96)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Products(nn.Module):
    """mm and bmm with the live dim as rows, as the reduced dim and as columns; constants on either side."""

    def __init__(self) -> None:
        super().__init__()
        self.right = nn.Parameter(torch.randn(8, 6))
        self.left = nn.Parameter(torch.randn(5, 8))
        self.stack = nn.Parameter(torch.randn(3, 7, 4))

    def forward(self, flat, other, batch, keys):
        return (
            flat @ self.right,
            torch.mm(self.left, flat.t()),
            torch.mm(flat.t(), other),
            torch.mm(flat, other.t()),
            torch.bmm(batch, self.stack),
            torch.bmm(batch, keys.transpose(1, 2)),
            torch.bmm(batch.transpose(1, 2), keys),
            torch.bmm(torch.bmm(batch, keys.transpose(1, 2)), keys),
        )


class Addmm(nn.Module):
    """addmm with a row, a full and a constant addend, and with both factors."""

    def __init__(self) -> None:
        super().__init__()
        self.right = nn.Parameter(torch.randn(8, 6))
        self.row = nn.Parameter(torch.randn(6))

    def forward(self, addend, flat, square):
        return (
            torch.addmm(self.row, flat, self.right),
            torch.addmm(addend, flat, self.right),
            torch.addmm(addend, flat, self.right, beta=0.5, alpha=2.0),
            torch.addmm(self.row, flat, self.right, beta=2, alpha=3),
            torch.addmm(self.row, flat, square),
        )


class HeadsFirst(nn.Module):
    """Scores of plain attention in the heads-first layout: view, permute, bmm, softmax, bmm, and back."""

    def forward(self, query, key, value):
        live = query.shape[1]
        heads, keys, values = (each.view(1, live, 8, 16).transpose(1, 2) for each in (query, key, value))
        scores = torch.matmul(heads, keys.transpose(2, 3)) * 0.25
        mixed = torch.matmul(torch.softmax(scores, -1), values)
        return scores, mixed.transpose(1, 2).reshape(1, live, 128)


class Rectangle(nn.Module):
    """Two live dims: queries against a context of another length."""

    def forward(self, query, context):
        scores = torch.bmm(query, context.transpose(1, 2))
        return scores, torch.bmm(torch.softmax(scores, -1), context), F.relu(query @ context.transpose(1, 2))


HALF = {"dtype": torch.float16, "atol": 5e-2, "rtol": 2e-2}
LINEAR = ((2, "S", 16), ("S", 16), (1, 3, "S", 16), ("S", 7))
PRODUCTS = (("S", 8), ("S", 8), (3, "S", 7), (3, "S", 7))
ADDMM = (("S", 6), ("S", 8), (8, 6))
ATTENTION = ((1, "S", 128),) * 3


def inputs(shapes: tuple, dtype: torch.dtype = torch.float32) -> tuple[Input, ...]:
    return tuple(Input(shape, dtype) for shape in shapes)


PROGRAMS = [
    TestProgram("linears", Linears, inputs(LINEAR)),
    TestProgram("linears_f16", Linears, inputs(LINEAR, torch.float16), **HALF),
    TestProgram("deep_linear", DeepLinear, (Input((1, "S", 96)),)),
    TestProgram("products", Products, inputs(PRODUCTS)),
    TestProgram("products_f16", Products, inputs(PRODUCTS, torch.float16), **(HALF | {"atol": 0.2})),
    TestProgram("addmm", Addmm, inputs(ADDMM)),
    TestProgram("addmm_f16", Addmm, inputs(ADDMM, torch.float16), **HALF),
    TestProgram("heads_first", HeadsFirst, inputs(ATTENTION)),
    TestProgram("rectangle", Rectangle, (Input((2, "S", 8)), Input((2, "T", 8))), dims={"S": (1, MAX), "T": (1, 31)}),
]
