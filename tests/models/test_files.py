"""Whole files through the public API: several methods, constant methods, state that must not be shared, odd calls."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from liveshape.runtime import Runtime
from tests.support.exporting import cached, lower
from tests.support.programs import MethodsProgram, methods_programs


@pytest.mark.parametrize("program", methods_programs().values(), ids=str)
def test_every_method_of_a_file(program: MethodsProgram) -> None:
    loaded = Runtime.get().load_program(program.pte())
    assert loaded.method_names == {*program.methods, *program.constants}
    for name, value in program.constants.items():
        got = loaded.load_method(name).execute()
        np.testing.assert_array_equal(np.asarray(got).reshape(-1), np.asarray(value).reshape(-1))
    draws = torch.Generator().manual_seed(0)
    for _ in range(2):  # one method after the other, and again: they share a device, not their memory
        for name, method in program.methods.items():
            for size in (43, 1, 7):
                sizes = {dim: max(low, min(size, high)) for dim, (low, high) in method.dims.items()}
                inputs = method.make_inputs(sizes, draws)
                got = loaded.load_method(name).execute(inputs)
                for ours, theirs in zip(got, method.golden(inputs), strict=True):
                    np.testing.assert_allclose(ours, theirs.numpy(), method.rtol, method.atol)


class TwoTotals(nn.Module):
    """Two states that begin with equal bytes, so that the file keeps them under one key."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("one", torch.zeros(4))
        self.register_buffer("two", torch.zeros(4))

    def forward(self, x):
        self.one.add_(x)
        self.two.add_(x * 2.0)
        return self.one + 0.0, self.two + 0.0


def test_states_that_share_a_key_share_no_memory() -> None:
    path = cached(
        "two_totals",
        "TwoTotals 1",
        lambda: lower(TwoTotals(), (torch.ones(4),), compile_options={"alias_buffer_mutations": True}),
    )
    program = Runtime.get().load_program(path)
    method, reference = program.load_method("forward"), TwoTotals()
    for turn in range(4):
        x = torch.arange(4.0) + turn
        for ours, theirs in zip(method.execute([x]), reference(x.clone()), strict=True):
            np.testing.assert_array_equal(ours, theirs.numpy())
    again = Runtime().load_program(path).load_method("forward")
    np.testing.assert_array_equal(again.execute([torch.ones(4)])[0], np.ones(4, np.float32))


def test_a_delegate_without_the_input_that_nothing_in_it_reads() -> None:
    """Padding around a circle writes slices of an empty tensor: a delegate gets both, and its graph has only x."""
    module = nn.Conv1d(3, 6, 3, padding=1, padding_mode="circular")
    nn.init.uniform_(module.weight, -1, 1, torch.Generator().manual_seed(0))
    nn.init.zeros_(module.bias)
    path = cached("circular", "Conv1d circular 1", lambda: lower(module, (torch.randn(2, 3, 9),)))
    x = torch.arange(54.0).reshape(2, 3, 9).sin()
    (got,) = Runtime.get().load_program(path).load_method("forward").execute([x])
    np.testing.assert_allclose(got, module(x).detach().numpy(), 1e-5, 1e-5)
