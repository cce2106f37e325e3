"""Exported programs whose results are in order, or as large as the data says, at every live size against torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.errors import ShapeError
from liveshape.formats import open_program
from liveshape.lower.lowering import lower
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from tests.support.exporting import cached, quick, quiet
from tests.support.programs import MAX, Input, TestProgram, integers
from tests.support.sweeping import assert_right, live_sizes


def lower_portable(module: nn.Module, args: tuple[Any, ...], dynamic_shapes: Any) -> bytes:
    """Export with every operator left as it is, whether it is of the core set or not, and nothing delegated."""
    with quiet(), quick():
        from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
        from executorch.exir.passes.sym_shape_eval_pass import ConstraintBasedSymShapeEvalPass

        edge = to_edge_transform_and_lower(
            torch.export.export(module.eval(), args, dynamic_shapes=dynamic_shapes),
            compile_config=EdgeCompileConfig(_check_ir_validity=False),
        )
        config = ExecutorchBackendConfig(sym_shape_eval_pass=ConstraintBasedSymShapeEvalPass())
        return bytes(edge.to_executorch(config).buffer)


@dataclass(frozen=True)
class PortableProgram(TestProgram):
    """A program outside of any delegate."""

    __test__ = False

    def pte(self) -> Path:
        source = self.source()
        return cached(
            self.name,
            self.source_key(),
            lambda: lower_portable(source.module, source.args, source.dynamic_shapes),
        )


def at_most(found: torch.Tensor, bound: int) -> torch.Tensor:
    """Tell the exporter how much there may be: only the data knows how much there is."""
    torch._check(found.size(0) <= bound)
    return found


class Ordered(nn.Module):
    """Every way to ask for an order; no two elements are equal, so that all indices are settled."""

    def forward(self, x):
        values, indices = torch.topk(x, 3, 0)
        least, places = torch.topk(x, 2, 1, largest=False)
        down, order = torch.sort(x, 0, descending=True)
        return (
            values,
            indices,
            least,
            places,
            down,
            order,
            torch.argsort(x, 1),
            torch.median(x),
            *torch.median(x, 0),
            *torch.kthvalue(x, 3, 0),
            torch.quantile(x, 0.3, dim=0),
        )


class Counted(nn.Module):
    """Results as large as the data says, and what reads them at the size that they have."""

    def forward(self, x, ids, repeats):
        positive = at_most(torch.masked_select(x, x > 0), MAX * 5)
        rows = at_most(x[ids > 3], MAX)
        places = at_most(torch.nonzero(x > 0.5), MAX * 5)
        repeated = at_most(torch.repeat_interleave(x, repeats, dim=0), MAX * 3)
        return positive, positive * 2 + 1, positive.sum(), rows, places, repeated, repeated.sum(0)


class Unique(nn.Module):
    """What there is, where, and how often."""

    def forward(self, ids):
        found, inverse, counts = torch.unique(ids, return_inverse=True, return_counts=True)
        torch._check(found.size(0) <= 10)
        runs = at_most(torch.unique_consecutive(ids), MAX)
        return found, inverse, counts, found[inverse], runs


class Scattered(nn.Module):
    """Elements written, added and masked where an index or the data says."""

    def forward(self, x, ids):
        index = ids.unsqueeze(1).expand(-1, 5) % 5
        table = torch.zeros(10, 5, dtype=x.dtype)
        return (
            table.scatter_add(0, ids.unsqueeze(1).expand(-1, 5), x),
            x.scatter(1, index, 2.0),
            x.masked_scatter(x > 0, -x),
            torch.where(x > 0, x, 0).masked_fill(x < -1, 7.0),
            torch.index_put(x, (ids > 3,), torch.tensor(0.5, dtype=x.dtype)),
            table.index_add(0, ids, x),
            torch.round(x, decimals=1),
        )


class Spectrum(nn.Module):
    """A spectrogram as audio models begin with it, and a filter that goes there and back."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(16))

    def forward(self, x, wave):
        there = torch.fft.rfft(x, n=8)
        frames = torch.stft(wave, 16, 4, window=self.window, center=False, return_complex=True)
        power = torch.view_as_real(frames).square().sum(-1)
        return torch.fft.irfft(there, n=8), torch.view_as_real(there.transpose(0, 1)), power


class Recommender(nn.Module):
    """DLRM in small: bags of sparse features, products of them with the dense ones, and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(10, 4, mode=mode) for mode in ("sum", "mean", "max")])
        self.dense, self.last = nn.Linear(5, 4), nn.Linear(4 + 6, 1)
        self.register_buffer("rows", torch.tril_indices(4, 4, -1)[0])
        self.register_buffer("columns", torch.tril_indices(4, 4, -1)[1])

    def forward(self, x, sparse):
        dense = self.dense(x).relu()
        features = torch.stack([dense, *(bag(sparse) for bag in self.bags)], 1)
        products = torch.bmm(features, features.transpose(1, 2))
        return torch.sigmoid(self.last(torch.cat([dense, products[:, self.rows, self.columns]], 1)))


ROWS = Input(("S", 5))
IDS = Input(("S",), torch.int64, integers(0, 10))
PROGRAMS = [
    PortableProgram("portable/ordered", Ordered, (ROWS,), {"S": (3, MAX)}),
    PortableProgram(
        "portable/counted", Counted, (ROWS, IDS, Input(("S",), torch.int64, integers(0, 4))), {"S": (2, MAX)}
    ),
    PortableProgram("portable/unique", Unique, (IDS,), {"S": (2, MAX)}),
    PortableProgram("portable/scattered", Scattered, (ROWS, IDS), {"S": (2, MAX)}),
    PortableProgram("portable/spectrum", Spectrum, (Input(("rows", 5)), Input(("16*rows",))), {"rows": (2, MAX)}),
    PortableProgram(
        "portable/recommender", Recommender, (ROWS, Input(("S", 3), torch.int64, integers(0, 10))), {"S": (2, MAX)}
    ),
]


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device()


def executor_of(program: TestProgram, device: Device) -> Executor:
    with open_program(program.pte()) as file:
        return Executor(compile(lower(file, "forward", {}, device.limits), device.limits), device)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_portable_program(program: TestProgram, device: Device) -> None:
    device._pipelines.clear()  # what another program compiled does not count
    executor = executor_of(program, device)
    draws = torch.Generator().manual_seed(2)
    made = device.counters.buffers, device.counters.pipelines
    for sizes in live_sizes(program, np.random.default_rng(1)):
        inputs = program.make_inputs(sizes, draws)
        executor.poison()
        got = executor.execute([given.numpy() for given in inputs])
        assert_right(program, got, program.golden(inputs), str(sizes))
        assert made == (device.counters.buffers, device.counters.pipelines), f"buffers or pipelines grew at {sizes}"


def test_more_than_the_file_has_room_for_is_an_error_that_names_both(device: Device) -> None:
    program = next(each for each in PROGRAMS if each.name == "portable/unique")
    executor = executor_of(program, device)
    with pytest.raises(ShapeError, match=r"gives 20 elements, the file has room for 10; .*<= 20"):
        executor.execute([np.arange(20)])
    found, *_ = executor.execute([np.arange(20) % 7])
    np.testing.assert_array_equal(found, np.arange(7))
