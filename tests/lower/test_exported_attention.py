"""Attention as people write it, exported by ExecuTorch with a live batch and length: one operator each, and right."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.export import Dim

import liveshape
from liveshape.formats import open_program
from liveshape.lower.lowering import lower
from tests.support import attention_modules
from tests.support.attention_modules import HEADS, WIDTH, All
from tests.support.exporting import cached
from tests.support.exporting import lower as exported

BATCH, ROWS, OTHERS = 8, 48, 40


def arguments(batch: int, rows: int, others: int) -> tuple[torch.Tensor, ...]:
    seen = torch.rand(batch, rows) > 0.3
    seen[:, 0] = True
    return (
        torch.randn(batch, rows, WIDTH), torch.randn(batch, others, WIDTH), seen, torch.randn(batch, HEADS, rows, rows)
    )  # fmt: skip


def exported_with(module: torch.nn.Module) -> bytes:
    batch, rows, others = Dim("batch", min=1, max=BATCH), Dim("rows", min=2, max=ROWS), Dim("others", min=2, max=OTHERS)
    shapes = ({0: batch, 1: rows}, {0: batch, 1: others}, {0: batch, 1: rows}, {0: batch, 2: rows, 3: rows})
    return exported(module, arguments(BATCH, ROWS, OTHERS), shapes)


@pytest.mark.slow
def test_exported_attention_is_one_operator_and_right() -> None:
    torch.manual_seed(0)
    module = All().eval()
    path = cached("attention_of_all_kinds", attention_modules, lambda: exported_with(module))
    with open_program(path) as file:
        graph = lower(file, "forward", {})
    names = [node.name for node in graph.nodes]
    assert names.count("liveshape.attention") == len(module.kinds)
    assert not [name for name in names if "softmax" in name or "bmm" in name]
    wide, model = module.double(), liveshape.load(path)
    for sizes in ((BATCH, ROWS, OTHERS), (1, 2, 2), (3, 20, 13), (2, ROWS, 5), (BATCH, 7, OTHERS)):
        given = arguments(*sizes)
        expected = wide(*(each.double() if each.is_floating_point() else each for each in given))
        results = model(*(each.numpy() for each in given))
        for kind, got, want in zip(module.kinds, results, expected, strict=True):
            np.testing.assert_allclose(got, want.detach(), 1e-5, 1e-5, err_msg=f"{type(kind).__name__} at {sizes}")
