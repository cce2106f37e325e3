"""Programs that `liveshape export` wrote, at every kind of size, up and down on one graph, beside torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import liveshape
from liveshape.export.module.torch_export import Road
from tests.export.live_programs import PROGRAMS, exported, module_of

SLOW = pytest.mark.slow
# It calls an operator that ExecuTorch's own library registers.
OF_EXECUTORCH = ("cached",)
# The others are of the same kinds, and run in the tier of exports.
QUICK = (
    "lstm cell",
    "residual, 512 channels",
    "residual, as many images as channels",
    "attention",
    "windows",
    "squeezed",
    "between",
    "before",
    "cached",
)


ROADS = [
    *(("torch", name) for name in PROGRAMS if name not in OF_EXECUTORCH),
    *(("executorch", name) if name in QUICK else pytest.param("executorch", name, marks=SLOW) for name in PROGRAMS),
]


@pytest.mark.parametrize(("via", "name"), ROADS)
def test_every_size_that_was_asked_for(via: Road, name: str) -> None:
    case, model = PROGRAMS[name], liveshape.load(exported(name, via))
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
