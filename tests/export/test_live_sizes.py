"""Programs that `liveshape export` wrote, at every kind of size, up and down on one graph, beside torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import liveshape
from tests.export.live_programs import PROGRAMS, exported, module_of

# The others are of the same kinds, and run in the tier of exports.
QUICK = (
    "lstm cell",
    "residual, 512 channels",
    "residual, as many images as channels",
    "images, small and large",
    "attention",
    "windows",
    "squeezed",
    "between",
    "before",
    "cached",
)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PROGRAMS]
)
def test_every_size_that_was_asked_for(name: str) -> None:
    case, model = PROGRAMS[name], liveshape.load(exported(name))
    torch_module = module_of(name)
    for size in (case.most, case.least, case.most // 2 + 1, case.least + 1, case.most):
        inputs = case.inputs(size)
        with torch.no_grad():
            wanted = torch_module(*inputs)
        ours, theirs = model(*(each.numpy() for each in inputs)), wanted
        if isinstance(wanted, torch.Tensor):
            ours, theirs = [ours], [wanted]
        for got, golden in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(np.asarray(got), golden.numpy(), rtol=1e-4, atol=2e-5, err_msg=f"{size}")
