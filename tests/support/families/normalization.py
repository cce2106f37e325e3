"""rms_norm in the form the partitioner fuses, and layer_norm."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.programs import Input, TestProgram


def rms(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


class RmsNorm(nn.Module):
    """The fused form at several widths and ranks, both operand orders, and a chain."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Parameter(torch.randn(64))
        self.odd = nn.Parameter(torch.randn(7))
        self.scalar = nn.Parameter(torch.randn(1))

    def forward(self, x, odd, flat, heads, thin):
        power = self.wide * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3))
        return (
            rms(x, self.wide, 1e-6),
            power,
            rms(odd, self.odd, 1e-5),
            rms(flat, self.wide, 1e-5),
            rms(heads, self.odd, 1e-6),
            rms(thin, self.scalar, 1e-2),
            x + rms(rms(x, self.wide, 1e-6), self.wide, 1e-5),
        )


class RmsNormCast(nn.Module):
    """The half precision norm of the Llama family: the arithmetic in float32, the result back in float16."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64))

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


class LayerNorm(nn.Module):
    """Affine and plain, widths that divide by four and that do not, one and two normalized dims, every rank to 4."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.LayerNorm(64)
        self.odd = nn.LayerNorm(7, eps=1e-3)
        self.no_bias = nn.LayerNorm(64, bias=False)
        self.two = nn.LayerNorm((3, 7))
        for norm in (self.wide, self.odd, self.no_bias, self.two):
            nn.init.normal_(norm.weight)
            if norm.bias is not None:
                nn.init.normal_(norm.bias)

    def forward(self, x, odd, flat, heads):
        return (
            self.wide(x),
            self.odd(odd),
            self.no_bias(x),
            F.layer_norm(x, (64,)),
            F.layer_norm(odd, (7,), eps=0.5),
            self.wide(flat),
            self.odd(heads),
            self.two(heads.permute(0, 2, 1, 3)),
        )


INPUTS = (Input((1, "S", 64)), Input((2, "S", 7)), Input(("S", 64)), Input((1, 3, "S", 7)))
HALF = tuple(Input(each.shape, torch.float16) for each in INPUTS)

PROGRAMS = [
    TestProgram("rms_norm", RmsNorm, (*INPUTS, Input((2, "S", 1)))),
    TestProgram(
        "rms_norm_f16", RmsNorm, (*HALF, Input((2, "S", 1), torch.float16)), dtype=torch.float16, atol=2e-2, rtol=2e-2
    ),
    TestProgram("rms_norm_cast", RmsNormCast, HALF[:1], dtype=torch.float16, double=False, atol=2e-2, rtol=2e-2),
    TestProgram("layer_norm", LayerNorm, INPUTS),
    TestProgram("layer_norm_f16", LayerNorm, HALF, dtype=torch.float16, atol=2e-2, rtol=2e-2),
]
