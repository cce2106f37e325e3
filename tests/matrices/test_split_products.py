"""Float32 products by matrix units, each number the sum of two halves: as exact as by threads, whatever the numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from liveshape.device.protocol import Device
from liveshape.graph import Graph, Limits
from liveshape.ops import split_factors
from liveshape.plan.compiling import compile
from liveshape.run.constant_norms import compile_measured
from liveshape.run.executor import Executor
from tests.matrices.opened import kernels_of, with_matrices
from tests.matrices.products import ADDMM, bmm, linear, mm, product
from tests.plan.test_half_results import WIDTH, Block
from tests.support.graphs import OpCase, build, sweep

pytestmark = pytest.mark.slow


def split(case: OpCase, depth: int, scale: float = 1.0) -> OpCase:
    """Within seven standard deviations of a sum of `depth` products of normal numbers that float32 rounds."""
    return replace(case, name=f"split {case.name}", atol=7 * 2.5e-7 * depth**0.5 * scale, rtol=1e-6)


CASES = [
    split(linear(263, 521), 263),
    split(linear(2053, 70, bias=False), 2053),  # a deep one: split-K
    split(linear(2310, 768, bias=False, sizes=(512, 300, 512)), 2310),  # whose sums fill the scratch of wide tiles
    split(mm("rows", lambda s: ((s, 257), (257, 523), (s, 523)), 257), 257),
    split(mm("depth", lambda s: ((131, s), (s, 133), (131, 133)), 600, sizes=(600, 1, 31, 64, 67, 257, 130)), 600),
    split(bmm("batch", lambda s: ((s, 67, 65), (s, 65, 130), (s, 67, 130)), 65, sizes=(7, 1, 3, 5)), 65),
    split(
        product(
            "baddbmm", ADDMM[1], lambda s: ((3, s, 1), (3, s, 131), (3, 131, 67), (3, s, 67)), 131,
            lambda a, x, y: torch.baddbmm(a, x, y, beta=-1.0, alpha=0.25), -1.0, 0.25,
        ),
        131,
    ),
]  # fmt: skip
SCALES = [(1e30, 1.0), (1e-6, 1.0), (1e30, 1e-30), (1e-15, 1e-15), (1e18, 1e16), (1e-32, 1e30)]


@pytest.fixture(autouse=True)
def _small_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products that compile and run in seconds on a CPU are split, too."""
    monkeypatch.setattr(split_factors, "MIN_SPLIT_PRODUCTS", 1 << 20)
    monkeypatch.setattr(split_factors, "MIN_SPLIT_SIZE", 16)
    monkeypatch.setattr(split_factors, "MIN_SPLIT_DEPTH", 32)


def splitting() -> tuple[Device, Limits]:
    """The device, and its limits where factors are split."""
    device, limits = with_matrices()
    return device, replace(limits, half_inputs=False, fast_matrices=True)


def splits(device: Device) -> bool:
    """Whether such a kernel was compiled."""
    return any("matmul/matrix_tiles" in name and "split" in name.split("+") for name in kernels_of(device))


def results(graph: Graph, limits: Limits, device: Device, *arrays: np.ndarray) -> np.ndarray:
    (found,) = Executor(compile(graph, limits), device).execute(list(arrays))
    return np.asarray(found)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_product_of_split_factors(case: OpCase) -> None:
    device, limits = splitting()
    sweep(case, limits, device)
    assert splits(device)


@pytest.mark.parametrize(("x", "weight"), SCALES)
def test_no_scale_leaves_the_range_of_halves(x: float, weight: float) -> None:
    device, limits = splitting()
    sweep(split(linear(257, 131, x=x, weight=weight, sizes=(140, 129)), 257, x * weight), limits, device)
    assert splits(device)


def test_rows_of_hugely_different_numbers_are_each_as_exact_as_alone() -> None:
    device, limits = splitting()
    case = linear(257, 131, bias=False, sizes=(140,))
    executor = Executor(compile(build(case, 140), limits), device)
    rows = np.random.default_rng(3).standard_normal((140, 257)).astype(np.float32)
    (alone,) = executor.execute([rows])
    powers = np.exp2(np.arange(140) * 8 % 200 - 100).astype(np.float32)[:, None]
    (scaled,) = executor.execute([rows * powers])
    np.testing.assert_array_equal(scaled, np.asarray(alone) * powers)
    assert splits(device)


def test_errors_are_no_larger_than_those_of_threads() -> None:
    """Of normal numbers, of positive ones, and of rows whose numbers differ by a million; threads sum in one order."""
    device, limits = splitting()
    random = np.random.default_rng(5)
    case = linear(768, 132, bias=False, sizes=(140,))
    by_matrices = Executor(compile(build(case, 140), limits), device)
    by_threads = Executor(compile(build(case, 140), replace(limits, one_order=True)), device)
    normal = random.standard_normal((140, 768))
    for drawn in (normal, abs(normal), normal * 10 ** random.uniform(-6, 0, normal.shape)):
        x = drawn.astype(np.float32)
        golden = case.golden(torch.from_numpy(x), 140).numpy()
        split_error, error = (
            np.sqrt(np.square(np.asarray(each.execute([x])[0]) - golden).mean()) for each in (by_matrices, by_threads)
        )
        assert split_error <= 2 * error
    assert splits(device)


def extremes(rows: int, columns: int, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Factors with infinities that meet zeros, each other and numbers that no half holds, with NaNs, and a zero row."""
    random = np.random.default_rng(7)
    x, weight = (random.standard_normal((lines, depth)).astype(np.float32) for lines in (rows, columns))
    weight[random.random(weight.shape) < 0.1] = 0.0
    x[random.random(x.shape) < 0.1] = 0.0
    inf = np.inf
    for row, found in enumerate([{5: inf}, {5: -inf}, {5: inf, 9: -inf}, {7: np.nan}, {5: inf, 6: 1e30, 8: -1e30}]):
        for place, value in found.items():
            x[row, place] = value
    x[5] = 0.0
    x[6] = 1e-30 * x[7]
    x[8, 3] = 3e38
    for column, found in enumerate([{5: inf}, {5: -inf}, {9: inf, 200: -inf}, {8: np.nan}, {5: 1e-38}, {5: 1e38}]):
        for place, value in found.items():
            weight[column, place] = value
    weight[6] = 0.0
    weight[7, 5], weight[8, 5] = 0.0, -0.0
    return x, weight


def test_infinities_and_nan_give_what_float32_gives() -> None:
    device, limits = splitting()
    x, weight = extremes(70, 140, 264)
    given = OpCase(
        "extremes", "aten.mm.default", lambda s: mm("", lambda s: ((s, 264), (264, 140), (s, 140)), 264).args_at(s),
        lambda *inputs: inputs, sizes=(70,),
    )  # fmt: skip
    found = results(build(given, 70), limits, device, x, np.ascontiguousarray(weight.T))
    with np.errstate(invalid="ignore", over="ignore"):
        golden = (x.astype(np.float64) @ weight.T.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(golden))
    infinite = np.isinf(golden)
    np.testing.assert_array_equal(found[infinite], golden[infinite])
    assert infinite.sum() > 500
    assert np.isnan(golden).sum() > 200
    scale = np.outer(*(np.where(np.isfinite(each), abs(each), 0).max(1).astype(np.float64) for each in (x, weight)))
    # What is 2^40 times smaller than the largest of its row or column is nothing beside it.
    finite = np.isfinite(golden) & (2.0**-40 * scale < np.finfo(np.float32).max)
    off = np.abs(found[finite] - golden[finite].astype(np.float64))
    assert (off <= 1e-6 * 264**0.5 * scale[finite] + 1e-38).all()
    assert splits(device)


def test_subnormal_numbers_are_at_least_as_exact_as_by_threads() -> None:
    device, limits = splitting()
    random = np.random.default_rng(9)
    case = linear(257, 131, bias=False, weight=1e30, sizes=(140,))
    x = (1e-37 * random.standard_normal((140, 257)) * 10.0 ** -random.integers(0, 4, (140, 1))).astype(np.float32)
    golden = case.golden(torch.from_numpy(x), 140).numpy()
    error, most = (
        np.abs(results(build(case, 140), each, device, x) - golden).max(1)
        for each in (limits, replace(limits, fast_matrices=False))
    )
    assert (error <= 2 * most + 1e-6 * np.abs(golden).max(1)).all()
    assert splits(device)


def test_epilogues_of_split_products() -> None:
    """A gelu and an addition, each within the product, at live sizes up and down with poisoned tails."""
    device, limits = splitting()
    block = Block()
    residual = block.input((64, WIDTH))
    total = block.node("aten.add.Tensor", block.out, residual, 1, block.tensor((64, WIDTH)))
    graph = block.graph(total)
    ways = [compile_measured(graph, each) for each in (limits, replace(limits, fast_matrices=False))]
    fused, by_threads = (Executor(plan, device) for plan in ways)
    weight, bias, first, second = (torch.from_numpy(array).double() for array in block.arrays)
    random = np.random.default_rng(2)
    for rows in (64, 1, 17, 63, 16, 5, 40, 64):
        x, other = (random.standard_normal((rows, WIDTH)).astype("float32") for _ in range(2))
        normed = torch.nn.functional.layer_norm(torch.from_numpy(x).double(), (WIDTH,), weight, bias, 1e-5)
        want = (torch.nn.functional.gelu(normed @ first.T) @ second.T).numpy() + other
        off: list[Any] = []
        for each in (fused, by_threads):
            each.poison()
            off.append(np.abs(np.asarray(each.execute([x, other])[0]) - want).max())
        assert off[0] <= 2 * off[1] + 1e-6 * np.abs(want).max(), f"at {rows} rows: {off}"
    assert splits(device)
    assert any("gelu" in name for name in kernels_of(device) if "split" in name)


def test_one_order_of_sums_takes_no_matrices() -> None:
    device, limits = splitting()
    device._pipelines.clear()  # type: ignore[attr-defined]
    sweep(split(linear(263, 521, sizes=(65, 16)), 263), replace(limits, one_order=True), device)
    assert not splits(device)
