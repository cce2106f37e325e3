"""Float32 as lines of two halves: 22 bits of every number, whatever its size; and infinities and NaN as halves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch
from liveshape.ops import OPS, op
from liveshape.ops.matrix_products import Apart, Lines, half_lines
from liveshape.ops.registry import Tensors
from liveshape.ops.split_factors import split_vectors
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from tests.support.chains import Chain
from tests.support.emulated_matrices import emulate

ROWS = 37
LEAST = 2.0**-24  # the smallest half


@pytest.fixture
def _operators(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    limits = emulate(monkeypatch, open_device().limits)

    @op("test.split_lines")
    def split_lines(x: LiveTensor, transposed: bool, outs: Tensors) -> Iterator[Dispatch]:
        halves, factors = outs
        count, depth = x.shape if transposed else x.shape[::-1]
        halves.shape, factors.shape = (16 * count * split_vectors(depth),), (count,)
        apart = Apart(0, count * depth, depth if transposed else count, count)
        lines = Lines(halves, factors, split=True)
        yield half_lines(x, lines, count, count, depth, limits, transposed=transposed, apart=apart)

    yield
    del OPS["test.split_lines"]


def parts_of(array: np.ndarray, transposed: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The high and the low halves of each number, of lines that are filled with zeros, and their factors."""
    count, depth = array.shape
    device, chain = open_device(), Chain()
    x = chain.input(array.shape if transposed else array.shape[::-1])
    nbytes = 16 * count * split_vectors(depth)
    outs = chain.node("test.split_lines", x, transposed, (chain.tensor((nbytes,), "int8"), chain.tensor((count,))))
    executor = Executor(compile(chain.graph(*outs), device.limits), device)
    data, factors = executor.execute([array if transposed else np.ascontiguousarray(array.T)])
    halves = np.asarray(data).view(np.float16).astype(np.float64).reshape(count, -1, 2, 16)
    high, low = (halves[:, :, part].reshape(count, -1) for part in (0, 1))
    assert not high[:, depth:].any()
    assert not low[:, depth:].any()
    return high[:, :depth], low[:, :depth], np.asarray(factors).astype(np.float64)[:, None]


@pytest.mark.usefixtures("_operators")
@pytest.mark.parametrize("transposed", [True, False], ids=["rows", "columns"])
@pytest.mark.parametrize("depth", [7, 41, 264, 1100])
def test_split_lines(depth: int, transposed: bool) -> None:
    random = np.random.default_rng(depth)
    array = random.standard_normal((ROWS, depth)) * 10.0 ** random.integers(-37, 37, (ROWS, 1))
    array = (array * 10.0 ** -random.integers(0, 8, array.shape)).astype(np.float32)
    array[random.random(array.shape) < 0.1] = 0.0
    array[3] = 0.0
    array[array != 0] = np.where(abs(array) < 1.2e-38, 1.2e-38, array)[array != 0]  # drivers may lose subnormal ones
    high, low, factors = parts_of(array, transposed)
    assert np.abs(high).max() < 2.0**15
    assert ((high != 0) == (array != 0)).all()
    wanted = array.astype(np.float64)
    most = np.abs(wanted).max(1, keepdims=True)
    off = np.abs((high + low) * factors - wanted)
    room = np.where(most > 2.0**-111, 2.0**-39 * most, 2.0**-25 * 2.0**-126)
    assert (off <= 2.0**-22 * np.abs(wanted) + room).all()


@pytest.mark.usefixtures("_operators")
def test_what_is_no_number_is_split() -> None:
    array = np.random.default_rng(0).standard_normal((ROWS, 41)).astype(np.float32)
    array[0, 3], array[0, 4], array[1, 3], array[2] = np.inf, -np.inf, np.nan, np.inf
    array[0, 5] = 1e30
    high, low, factors = parts_of(array, True)
    assert (high[0, 3], low[0, 3], high[0, 4], low[0, 4]) == (LEAST, np.inf, -LEAST, -np.inf)
    assert np.isnan(high[1, 3])
    assert (high[2] == LEAST).all()
    assert np.isposinf(low[2]).all()
    finite = np.isfinite(array)
    off = np.abs((high + low) * factors - array.astype(np.float64))[finite]
    most = np.where(finite, np.abs(array), 0.0).max(1, keepdims=True).astype(np.float64)
    assert (off <= (2.0**-22 * np.abs(array) + 2.0**-39 * most)[finite]).all()
