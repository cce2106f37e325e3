"""Attention as people write it, exported by ExecuTorch with a live batch and length: one operator each, and right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.export import Dim

import liveshape
from liveshape.formats import open_program
from liveshape.lower.lowering import lower
from tests.support import attention_modules, model_attention
from tests.support.attention_modules import HEADS, WIDTH, All
from tests.support.exporting import MethodSource, cached, lower_methods
from tests.support.model_attention import Models

BATCH, ROWS, OTHERS = 8, 48, 40


def arguments(batch: int, rows: int, others: int) -> tuple[torch.Tensor, ...]:
    seen = torch.rand(batch, rows) > 0.3
    seen[:, 0] = True
    return (
        torch.randn(batch, rows, WIDTH), torch.randn(batch, others, WIDTH), seen, torch.randn(batch, HEADS, rows, rows)
    )  # fmt: skip


def exported_with(module: torch.nn.Module, *, delegate: bool) -> bytes:
    batch, rows, others = Dim("batch", min=1, max=BATCH), Dim("rows", min=2, max=ROWS), Dim("others", min=2, max=OTHERS)
    shapes = ({0: batch, 1: rows}, {0: batch, 1: others}, {0: batch, 1: rows}, {0: batch, 2: rows, 3: rows})
    source = MethodSource(module, arguments(BATCH, ROWS, OTHERS), shapes)
    return lower_methods({"forward": source}, delegate=delegate, rare=not delegate)


# Vulkan's partitioner fails on sizes of a buffer that is cut (GPT-2, MPT): the models are portable programs.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "file", "delegate"),
    [(All, attention_modules, True), (Models, model_attention, False)],
    ids=["all", "models"],
)
def test_exported_attention_is_one_operator_and_right(kind: Any, file: Any, delegate: bool) -> None:
    torch.manual_seed(0)
    module = kind().eval()
    name = f"attention_of_{kind.__name__.lower()}"
    path = cached(name, file, lambda: exported_with(module, delegate=delegate))
    with open_program(path) as program:
        graph = lower(program, "forward", {})
    names = [node.name for node in graph.nodes]
    assert names.count("liveshape.attention") == len(module.kinds)
    assert not [name for name in names if "softmax" in name]
    wide, model = module.double(), liveshape.load(path)
    for sizes in ((BATCH, ROWS, OTHERS), (1, 2, 2), (3, 20, 13), (2, ROWS, 5), (BATCH, 7, OTHERS)):
        given = arguments(*sizes)
        expected = wide(*(each.double() if each.is_floating_point() else each for each in given))
        results = model(*(each.numpy() for each in given))
        for kind, got, want in zip(module.kinds, results, expected, strict=True):
            np.testing.assert_allclose(got, want.detach(), 1e-5, 1e-5, err_msg=f"{type(kind).__name__} at {sizes}")
