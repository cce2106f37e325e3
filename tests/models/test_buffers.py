"""Buffers: those that a call changes, whatever reads or returns them, and those that are views of a larger storage."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
import torch
from torch import nn

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.errors import FormatError, UnsupportedError
from liveshape.formats import OperatorCall, PteFile, VkGraph, VkSymInt, open_program
from liveshape.lower.building import Builder
from liveshape.lower.delegate_arguments import AtBounds
from liveshape.lower.delegates import InlinedDelegate
from liveshape.lower.lowering import lower
from tests.support.programs import Input, TestProgram
from tests.support.sweeping import live_sizes, loaded, sweep_program


class Learning(nn.Module):
    """A buffer that a matmul reads and every call changes: the file multiplies with its constant and writes another."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(4, 3))

    def forward(self, x, y):
        error = x @ self.weight - y
        self.weight.sub_(0.01 * x.T @ error)
        return error * error


class ReadLate(nn.Module):
    """The second matmul, behind the change, means the weight as it was before the call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(4, 4))

    def forward(self, x):
        old = self.weight.clone()
        self.weight.add_(1.0)
        return (x + self.weight[0]) @ old


class Returned(nn.Module):
    """Buffers that are returned after they changed, at other places than the file lists them at."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))
        self.register_buffer("pair", torch.ones(2))

    def forward(self, x):
        self.total.add_(x.sum(0))
        self.pair.mul_(0.5)
        return x + self.total, self.pair.clone(), x * 2.0, self.total.clone()


class ReturnedAlike(nn.Module):
    """A buffer that is returned behind a result of its own shape: the file does not tell which is which."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x):
        self.total.add_(x)
        return x * self.total, self.total.clone()


class EqualNumbers(nn.Module):
    """2.0 of a clamp and 2 of a size are one value of the file."""

    def forward(self, x):
        return x.clamp(-2.0, 2.0).view(x.shape[0] * 2, 2).sin()


class Windows(nn.Module):
    """Buffers whose storage has one element more than they have."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("hann", torch.hann_window(16))
        self.register_buffer("hamming", torch.hamming_window(15))
        self.register_buffer("blackman", torch.blackman_window(16))
        self.register_buffer("kaiser", torch.kaiser_window(16))

    def forward(self, x):
        return x * self.hann, x[:, :15] * self.hamming, x * self.blackman, x * self.kaiser


class SecondOn(nn.Module):
    """A buffer that begins at the second element of its storage, which the file does not say."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("tail", torch.arange(17.0)[1:])

    def forward(self, x):
        return x * self.tail


MANY = {"one_delegate": False}
STATE = {"stateful": True, "one_delegate": False}
ALIASED = {"options": {"compile_options": {"alias_buffer_mutations": True}}, **STATE}

RIGHT = [
    TestProgram("learning", Learning, (Input(("S", 4)), Input(("S", 3))), **ALIASED),
    TestProgram("read_late", ReadLate, (Input(("S", 4)),), **ALIASED),
    TestProgram("returned", Returned, (Input(("S", 4)),), **ALIASED),
    TestProgram("equal_numbers", EqualNumbers, (Input(("S", 4)),)),
    TestProgram("windows", Windows, (Input(("S", 16)),)),
]
REFUSED = [
    (TestProgram("learning_unaliased", Learning, (Input(("S", 4)), Input(("S", 3))), **STATE), "arguments"),
    (TestProgram("returned_unaliased", Returned, (Input(("S", 4)),), **STATE), "in an order that the file does not"),
    (TestProgram("returned_alike", ReturnedAlike, (Input((4,)),), {}, **ALIASED), "in an order that the file does not"),
    (TestProgram("second_on", SecondOn, (Input(("S", 16)),)), r"make it a \.clone\(\)"),
]


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device()


@pytest.mark.parametrize("program", RIGHT, ids=str)
def test_program(program: TestProgram, device: Device) -> None:
    sweep_program(program, loaded(program, device), live_sizes(program, np.random.default_rng(1)))


@pytest.mark.parametrize(("program", "reason"), REFUSED, ids=str)
def test_what_a_file_leaves_in_doubt_is_refused(program: TestProgram, reason: str, device: Device) -> None:
    with open_program(program.pte()) as file, pytest.raises(UnsupportedError, match=reason):
        lower(file, "forward", {}, device.limits)


def test_an_operator_without_arguments_is_an_error_of_ours() -> None:
    for name in ("mul", "et_vk.prepack.default"):
        graph = VkGraph("0", (OperatorCall(0, name, ()),), (VkSymInt(0),), (), (), ())
        with pytest.raises(FormatError, match="0 arguments given"):
            InlinedDelegate(Builder(cast(PteFile, None), {}), graph, "", True, AtBounds()).call([], (), "instruction 0")
