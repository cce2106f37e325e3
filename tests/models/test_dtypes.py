"""Programs that change the dtype of what they are given: pictures of bytes, and spectra, which are complex."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from tests.support.programs import Input, TestProgram, integers
from tests.support.sweeping import live_sizes, loaded, sweep_program


class Picture(nn.Module):
    """A picture as cameras give it, and as a screen takes it."""

    def forward(self, x):
        bright = x.float() / 255
        return bright, (bright.clamp(0.1, 0.9) * 255).to(torch.uint8), x.to(torch.int64) + 1, x.bool(), x.half() * 2


class Signed(nn.Module):
    def forward(self, x):
        return x.float() * 0.5, (x.to(torch.int32) * 2).to(torch.int8), x.to(torch.uint8).to(torch.int32)


class Mixing(nn.Module):
    """FNet's layer: complex numbers of real ones, transformed along two dimensions, of which the real part stays."""

    def forward(self, x):
        return torch.fft.fft2(x).real + x


class Spectral(nn.Module):
    """A layer in the frequencies, as Fourier neural operators have it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(4, 3, 6, dtype=torch.complex64))

    def forward(self, x):
        kept = torch.fft.rfft(x)[:, :, :6]
        return torch.fft.irfft((kept.unsqueeze(2) * self.weight).sum(1), n=16)


class Spectrogram(nn.Module):
    """Magnitudes and angles of a short-time transform through a window, and the numbers that these are of."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(32))

    def forward(self, x):
        bins = torch.stft(x, 32, 16, window=self.window, center=False, return_complex=True)
        again = torch.polar(bins.abs(), bins.angle())
        return bins.abs(), again.real, (bins * bins.conj()).real, (bins / (1.0 + bins.abs())).imag


# What the partitioner leaves out runs as portable operators; `rare`: those of spectra are not of torch's core set.
MANY = {"one_delegate": False}
RARE = {**MANY, "options": {"rare": True}, "double": False}
PROGRAMS = [
    TestProgram("picture", Picture, (Input(("S", 3, 5), torch.uint8, integers(0, 256)),), double=False, **MANY),
    TestProgram("signed", Signed, (Input(("S", 3, 5), torch.int8, integers(-128, 128)),), double=False, **MANY),
    TestProgram("mixing", Mixing, (Input(("S", 6, 10)),), **RARE),
    TestProgram("spectral", Spectral, (Input(("S", 4, 16)),), **RARE),
    TestProgram("spectrogram", Spectrogram, (Input(("S", 80)),), **RARE),
]


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device()


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_program(program: TestProgram, device: Device) -> None:
    """All of it on the device: nothing is found on the host, which `lower` would ask for what has no kernel."""
    executor = loaded(program, device)
    assert not any(node.host for node in executor.graph.nodes)
    sweep_program(program, executor, live_sizes(program, np.random.default_rng(1)))
