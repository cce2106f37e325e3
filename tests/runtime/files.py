"""The small programs that the tests of the API and of the commands share."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch

from tests.support.exporting import MethodSource, cached, lower_methods, quick, quiet

LENGTH = 43
CONSTANTS: dict[str, Any] = {
    "get_max_seq_len": LENGTH,
    "use_kv_cache": True,
    "get_scale": 0.5,
    "get_eos_ids": [1, 2],
    "get_table": torch.arange(6).reshape(2, 3),
}


class Block(torch.nn.Module):
    """A normalization and its residual, as a transformer has them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 1.5, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.weight + x


class Bias(torch.nn.Module):
    """A weight that can live in a `.ptd`."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.arange(8.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.bias


class Sums(torch.nn.Module):
    """Two inputs, two outputs."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + y, y + 1.5


def live() -> Any:
    return torch.export.Dim("length", min=1, max=LENGTH)


def sums() -> MethodSource:
    length = live()
    arguments = (torch.zeros(LENGTH, 8), torch.zeros(LENGTH, 8))
    return MethodSource(Sums(), arguments, {"x": {0: length}, "y": {0: length}})


@functools.cache
def several() -> Path:
    """`forward`, `sums` and constant methods, delegated."""

    def make() -> bytes:
        block = MethodSource(Block(), (torch.zeros(1, LENGTH, 64),), {"x": {1: live()}})
        return lower_methods({"forward": block, "sums": sums()}, CONSTANTS)

    return cached("api_several", (Block, Sums, repr(CONSTANTS)), make)


@functools.cache
def portable() -> Path:
    """`forward` adds, without a delegate, so that executorch.runtime can run it too."""

    def make() -> bytes:
        return lower_methods({"forward": sums()}, CONSTANTS, delegate=False)

    return cached("api_portable", (Sums, repr(CONSTANTS)), make)


@functools.cache
def export_external() -> tuple[bytes, bytes]:
    with quiet():
        from executorch.exir import ExecutorchBackendConfig, to_edge
    with quiet(), quick():
        exported = torch.export.export(Bias(), (torch.zeros(LENGTH, 8),), dynamic_shapes={"x": {0: live()}})
        made = to_edge(exported).to_executorch(ExecutorchBackendConfig(external_constants=True))
        (weights,) = made._tensor_data.values()
        return bytes(made.buffer), bytes(weights)


@functools.cache
def external() -> tuple[Path, Path]:
    """A portable program and the `.ptd` that holds its weight."""
    program = cached("api_external", Bias, lambda: export_external()[0])
    return program, cached("api_external", Bias, lambda: export_external()[1], ".ptd")
