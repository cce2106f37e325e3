"""Float layers and matmuls by matrix units, against float64: ragged sizes, each of them live, poisoned tails."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from tests.matrices.opened import kernels_of, with_matrices
from tests.matrices.products import PRODUCTS, SCALED, linear
from tests.support.graphs import OpCase, build, sweep

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", [*PRODUCTS, *SCALED], ids=lambda case: case.name)
def test_product(case: OpCase) -> None:
    device, limits = with_matrices()
    sweep(case, limits, device)
    assert any(name.startswith("matmul/matrix_tiles") for name in kernels_of(device))


def test_rows_of_different_sizes_are_each_as_exact_as_alone() -> None:
    device, limits = with_matrices()
    case = linear(257, 131, bias=False, sizes=(140,))
    executor = Executor(compile(build(case, 140), limits), device)
    rows = np.random.default_rng(3).standard_normal((140, 257)).astype(np.float32)
    (alone,) = executor.execute([rows])
    powers = np.exp2(np.arange(140) % 100 - 50).astype(np.float32)[:, None]
    (scaled,) = executor.execute([rows * powers])
    np.testing.assert_array_equal(scaled, alone * powers)


def test_float16_programs_need_no_choice_of_the_user() -> None:
    device, limits = with_matrices()
    sweep(linear(264, 520, dtype="float16", sizes=(65, 16)), replace(limits, half_inputs=False), device)
    assert any(name.startswith("matmul/matrix_tiles") for name in kernels_of(device))
