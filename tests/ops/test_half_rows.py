"""Rows, and their RMSNorm, as halves for matrix units: against float64, in blocks, with the factors behind them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch
from liveshape.ops import OPS, op
from liveshape.ops.q4_heuristics import half_bytes
from liveshape.ops.q4_linear import HALF_ROWS, NORMED_HALF_ROWS
from liveshape.ops.shapes import ceil_div
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from tests.support.chains import Chain
from tests.support.emulated_matrices import emulate

EPS, BLOCK = 1e-5, 64


@pytest.fixture
def _operators() -> Iterator[None]:
    @op("test.half_rows")
    def half_rows(x: LiveTensor, weight: LiveTensor | None, together: int, out: LiveTensor) -> Iterator[Dispatch]:
        rows, depth = prod(x.shape[:-1]), x.shape[-1]
        out.shape = (half_bytes(rows, depth),)
        sizes = {"rows": rows, "depth": depth, "ROWS": together, "groups": ceil_div(rows, together)}
        if weight is None:
            yield HALF_ROWS(out, x, **sizes)
        else:
            yield NORMED_HALF_ROWS(out, x, weight, **sizes, eps=EPS)

    yield
    del OPS["test.half_rows"]


def unpacked(data: np.ndarray, rows: int, depth: int) -> np.ndarray:
    """The numbers that blocks of halves and their factors stand for."""
    blocks = ceil_div(rows, BLOCK)
    halves = data[: blocks * BLOCK * depth * 2].view(np.float16).reshape(blocks, depth // 8, BLOCK, 8)
    factors = data[blocks * BLOCK * depth * 2 :].view(np.float32).reshape(-1, 4)[:rows, 0]
    lines = halves.transpose(0, 2, 1, 3).reshape(blocks * BLOCK, depth)[:rows].astype(np.float64)
    assert np.abs(lines).max(initial=0) <= 2.0**15, "none is near the end of the range"
    return lines * factors[:, None].astype(np.float64)


@pytest.mark.usefixtures("_operators")
@pytest.mark.parametrize("together", [1, 4])
@pytest.mark.parametrize("normed", [False, True], ids=["rows", "rms_norm"])
def test_halves(normed: bool, together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch, open_device().limits)
    device, depth, most = open_device(), 328, 131
    generator = np.random.default_rng(together)
    weight = generator.standard_normal(depth).astype(np.float32)
    chain = Chain()
    x = chain.input((most, depth))
    given = chain.constant(weight) if normed else None
    made = chain.node("test.half_rows", x, given, together, chain.tensor((half_bytes(most, depth),), "int8"))
    executor = Executor(compile(chain.graph(made), device.limits), device)
    for rows in (most, 1, 16, 65, 3, most):
        scales = 10.0 ** generator.integers(-6, 6, (rows, 1))
        array = (generator.standard_normal((rows, depth)) * scales).astype(np.float32)
        executor.poison()
        (data,) = executor.execute([array])
        wanted = array.astype(np.float64)
        if normed:
            wanted = wanted / np.sqrt((wanted**2).mean(1, keepdims=True) + EPS) * weight
        got = unpacked(np.ascontiguousarray(data), rows, depth)
        # Eleven bits of each number, or of what is 2^28 times smaller than the largest of its row.
        room = np.abs(wanted) * 2.0**-11 + np.abs(wanted).max(1, keepdims=True) * 2.0**-39 + np.abs(wanted) * 1e-6
        assert (np.abs(got - wanted) <= room).all(), f"at {rows}: {np.abs(got - wanted).max()}"
