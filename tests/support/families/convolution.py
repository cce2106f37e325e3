"""Convolutions as they are exported: a live length inside of the delegate, a live batch outside of it."""

import torch
from torch import nn

from tests.support.programs import Input, TestProgram


class Images(nn.Module):
    """A small network: a strided stem, a separable block with a residual, a way back to the size of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(12, 12, 5, padding=2, groups=12, bias=False)
        self.pointwise = nn.Conv2d(12, 12, 1)
        self.grouped = nn.Conv2d(12, 18, (3, 1), padding=(2, 0), dilation=(2, 1), groups=3)
        self.up = nn.ConvTranspose2d(12, 6, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x):
        stem = nn.functional.relu6(self.stem(x))
        block = stem + self.pointwise(nn.functional.relu(self.depthwise(stem)))
        return block, self.grouped(block), self.up(block)


class Signals(nn.Module):
    """What speech and state-space models have: a strided stem, a causal depthwise filter, and a transposed one."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(5, 16, 3, stride=2, padding=1)
        self.causal = nn.Conv1d(16, 16, 4, padding=3, groups=16)
        self.mixed = nn.Conv1d(16, 9, 1)
        self.up = nn.ConvTranspose1d(9, 4, 4, stride=2, padding=1)

    def forward(self, x):
        stem = nn.functional.gelu(self.stem(x))
        causal = self.causal(stem)[..., : stem.shape[-1]]
        mixed = self.mixed(nn.functional.silu(causal))
        return stem, mixed, self.up(mixed)


class Volume(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv3d(2, 6, 3, stride=(1, 2, 2), padding=1)
        self.up = nn.ConvTranspose3d(6, 3, 2, stride=2)

    def forward(self, x):
        down = self.down(x)
        return down, self.up(down)


class Computed(nn.Module):
    """A kernel that the program itself makes."""

    def forward(self, x, weight):
        return nn.functional.conv2d(x, torch.tanh(weight), padding=1)


PROGRAMS = [
    TestProgram(
        "convolution/images",
        Images,
        (Input(("B", 3, "H", "W")),),
        dims={"B": (1, 4), "H": (3, 17), "W": (3, 29)},
        one_delegate=False,
    ),
    TestProgram("convolution/image", Images, (Input((1, 3, "H", 14)),), dims={"H": (3, 18)}, one_delegate=False),
    TestProgram("convolution/signal", Signals, (Input((1, 5, "S")),), dims={"S": (3, 43)}, one_delegate=False),
    TestProgram(
        "convolution/half",
        Signals,
        (Input((1, 5, "S"), torch.float16),),
        dims={"S": (3, 43)},
        dtype=torch.float16,
        atol=2e-2,
        rtol=1e-2,
        one_delegate=False,
    ),
    TestProgram(
        "convolution/volume",
        Volume,
        (Input(("B", 2, 3, 5, "W")),),
        dims={"B": (1, 3), "W": (3, 11)},
        one_delegate=False,
    ),
    TestProgram(
        "convolution/computed",
        Computed,
        (Input(("B", 3, 6, "W")), Input((4, 3, 3, 3))),
        dims={"B": (1, 3), "W": (1, 11)},
        one_delegate=False,
    ),
]
