"""Functions of one tensor."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.programs import Input, TestProgram, away_from_zero, integers, positive


class Unary(nn.Module):
    """Everything that is defined on the whole line."""

    def forward(self, x, flat):
        return (
            torch.abs(x),
            torch.exp(x),
            torch.sin(x),
            torch.cos(x),
            torch.tanh(x),
            torch.round(x * 4.0),  # exact in halves, so that no device sees a tie that another does not
            torch.neg(x),
            F.relu(x),
            torch.sigmoid(x),
            F.silu(x),
            F.gelu(x),
            F.gelu(x, approximate="tanh"),
            F.hardswish(x * 4.0),
            F.leaky_relu(x),
            F.leaky_relu(x, 0.3),
            torch.tanh(flat),
            F.gelu(flat),
        )


class Roots(nn.Module):
    """Functions of positive numbers."""

    def forward(self, x):
        return torch.sqrt(x), torch.rsqrt(x), torch.log10(x), x.pow(0.5), x.pow(-0.5), x.pow(-1.5)


class Powers(nn.Module):
    """Whole exponents keep the sign of a negative base."""

    def forward(self, x):
        return x.pow(2), x.pow(3), x.pow(4.0), x.pow(1), x.pow(0), x.pow(5.0)


class Reciprocals(nn.Module):
    def forward(self, x):
        return x.pow(-1), x.pow(-2), x.pow(-3.0)


class Clamps(nn.Module):
    """One bound, the other, both; hardtanh and relu6 are clamps too."""

    def forward(self, x):
        return (
            torch.clamp(x, min=-0.5),
            torch.clamp(x, max=0.25),
            torch.clamp(x, -0.5, 1.0),
            torch.clamp(x, min=0),
            F.hardtanh(x),
            F.hardtanh(x, -0.3, 0.6),
            F.relu6(x * 5.0),
            x.clamp_min(0.1),
            x.clamp_max(-0.1),
        )


class IntegerClamps(nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=-5), torch.clamp(x, max=7), torch.clamp(x, -9, 20)


HALF = {"dtype": torch.float16, "atol": 2e-2, "rtol": 1e-2}


PROGRAMS = [
    TestProgram("unary", Unary, (Input((2, "S", 7)), Input(("S",)))),
    TestProgram(
        "unary_f16", Unary, (Input((2, "S", 7), torch.float16), Input(("S",), torch.float16)), double=False, **HALF
    ),
    TestProgram("roots", Roots, (Input((2, "S", 7), fill=positive),)),
    TestProgram("roots_f16", Roots, (Input((2, "S", 7), torch.float16, positive),), **HALF),
    TestProgram("powers", Powers, (Input((1, "S", 3, 5)),)),
    TestProgram("powers_f16", Powers, (Input((1, "S", 3, 5), torch.float16),), **HALF),
    TestProgram("reciprocals", Reciprocals, (Input(("S", 5), fill=away_from_zero),)),
    TestProgram("clamps", Clamps, (Input((2, "S", 7)),)),
    TestProgram("clamps_f16", Clamps, (Input((2, "S", 7), torch.float16),), **HALF),
    TestProgram("clamps_i32", IntegerClamps, (Input((2, "S", 7), torch.int32, integers(-50, 50)),), double=False),
]
