"""Modules of the user's own through torch: weights that are parts of a larger storage are written as what they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import liveshape
from liveshape.export.module.torch_export import ModuleSource, Road, lower


class Parts(nn.Module):
    """A parameter, a buffer and a constant, each in the middle of a storage."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(24.0).view(6, 4)[2:5], requires_grad=False)
        self.register_buffer("tail", torch.arange(5.0)[1:])
        self.offsets = torch.arange(9.0)[3:7]

    def forward(self, x):
        return nn.functional.linear(x, self.weight), x * self.tail + self.offsets


def test_weights_that_are_parts_of_a_storage(tmp_path: Path) -> None:
    module, rows = Parts(), torch.export.Dim("rows", min=1, max=6)
    lower(ModuleSource(module, (torch.ones(6, 4),), {"x": {0: rows}}), tmp_path / "parts.pte")
    model = liveshape.load(tmp_path / "parts.pte")
    for size in (6, 1, 5, 2):
        x = torch.randn(size, 4, generator=torch.Generator().manual_seed(size))
        for ours, theirs in zip(model(x.numpy()), module(x), strict=True):
            np.testing.assert_allclose(ours, theirs.numpy(), 1e-5, 1e-4)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner, self.outer = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x + self.outer(nn.functional.gelu(self.inner(self.norm(x)))) * self.calls


@pytest.mark.parametrize("via", ["torch", pytest.param("executorch", marks=pytest.mark.slow)])
def test_weights_states_and_activations_of_float16(via: Road, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, rows = Block().eval(), torch.export.Dim("rows", min=1, max=9)
    for half in (False, True):
        source = ModuleSource(module, (torch.ones(9, 32),), ({0: rows},))
        lower(source, tmp_path / f"{half}.pte", half=half, via=via)
    sizes = [(tmp_path / f"{half}.pte").stat().st_size for half in (False, True)]
    assert sizes[1] < 0.75 * sizes[0]
    model = liveshape.load(tmp_path / "True.pte")
    for size in (9, 1, 5):
        x = torch.randn(size, 32, generator=torch.Generator().manual_seed(size))
        with torch.no_grad():
            wanted = module(x).numpy()
        found = model(x.numpy())
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wanted, 1e-2, 1e-2)
