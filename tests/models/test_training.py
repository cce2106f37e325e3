"""ExecuTorch's own exporters of training operators, against their float64 goldens at their tolerances.

The installed exporter writes two of the five. torch.export refuses a custom operator whose results are its arguments,
as adamw_step's are; q4gsw_requant and linear_q4gsw_backward have bytes, which the partitioner leaves outside of the
delegate, and there they have no kernel. tests/ops/cases/training.py has all five.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.models.test_catalogue import assert_within, load, slowly
from tests.support.catalogue import generated
from tests.support.exporting import cached, lower, quiet

with quiet():
    from executorch.backends.webgpu.test.ops import test_fused_ce as fused_ce
    from executorch.backends.webgpu.test.ops import test_linear_dW as linear_dw

ATOL, RTOL = 5e-4, 1e-3
MAX = 19


def run(path: Path, *inputs: Any) -> list[np.ndarray]:
    executor = load(path)
    executor.poison()
    return executor.execute([given.numpy() if isinstance(given, torch.Tensor) else given for given in inputs])


def file_of(name: str, export: Callable[[], Any]) -> Path:
    """What an exporter of ExecuTorch makes, as a file."""
    return generated(name, lambda out: (out / "model.pte").write_bytes(export().buffer)) / "model.pte"


@pytest.mark.parametrize("name", slowly([config.name for config in fused_ce.CONFIGS], {"tiny", "masked"}))
def test_fused_ce(name: str) -> None:
    config = next(each for each in fused_ce.CONFIGS if each.name == name)
    logits, labels, n_valid = fused_ce._inputs(config)
    path = file_of(f"fused_ce.{name}", lambda: fused_ce._export(logits, labels, n_valid))
    golden = fused_ce._fp64_golden(logits, labels, n_valid)
    for position, (got, want) in enumerate(zip(run(path, logits, labels, n_valid), golden, strict=True)):
        assert_within(got, want.numpy(), ATOL, RTOL, f"{name}, output {position}")


@pytest.mark.parametrize("name", slowly(list(linear_dw.CONFIGS), {"boundary"}))
def test_linear_dw(name: str) -> None:
    inputs = linear_dw._det_inputs(*linear_dw.CONFIGS[name])
    (got,) = run(file_of(f"linear_dW.{name}", lambda: linear_dw._export(*inputs)), *inputs)
    assert_within(got, linear_dw._fp64_golden(*inputs).numpy(), ATOL, RTOL, name)


class Step(torch.nn.Module):
    """The loss of a linear layer and the gradients of its input and of its weight."""

    def __init__(self) -> None:
        super().__init__()
        # torch's normal numbers differ between processors in their last bits
        weight = np.random.default_rng(0).standard_normal((24, 32), np.float32) / np.float32(4)
        self.register_buffer("weight", torch.from_numpy(weight))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, ...]:
        loss, slope = torch.ops.et_vk.fused_ce(torch.nn.functional.linear(x, self.weight), labels, 4.0)
        return loss, slope @ self.weight, torch.ops.et_vk.linear_dW(slope, x)


def test_gradients_at_live_sizes() -> None:
    torch.manual_seed(0)
    module = Step()
    inputs = (torch.randn(MAX, 32), torch.zeros(MAX, dtype=torch.int64))
    rows = torch.export.Dim("rows", min=1, max=MAX)
    path = cached("training.step", Step, lambda: lower(module, inputs, ({0: rows}, {0: rows})))
    executor = load(path)
    for size in (MAX, 1, 5, 18, 2, MAX):
        x, labels = torch.randn(size, 32), torch.randint(-1, 24, (size,))
        executor.poison()
        results = executor.execute([x.numpy(), labels.numpy()])
        for position, (got, want) in enumerate(zip(results, module(x, labels), strict=True)):
            assert_within(got, want.numpy(), 1e-4, 1e-4, f"{size} rows, output {position}")
