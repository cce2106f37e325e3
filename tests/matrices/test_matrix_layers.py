"""4-bit and 8-bit layers by matrix units, against float64: prime and ragged sizes, live rows up and down, poisoned
tails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveshape.lower.fusion import fuse
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from tests.matrices.opened import kernels_of, with_matrices
from tests.models.test_int8_activations import ROWS, Weights, golden, program
from tests.models.test_layers import operators
from tests.ops.cases.quantized import q4gsw, qcs4w
from tests.support.graphs import In, OpCase, sweep

pytestmark = pytest.mark.slow
SIZES = (131, 1, 16, 17, 37, 64, 65, 113, 293)
LAYERS = [
    (64, q4gsw(64, 68, 32, bias=True, sizes=SIZES)),
    (576, q4gsw(576, 132, 64, bias=True, sizes=SIZES)),
    (2048, q4gsw(2048, 1028, 32, sizes=SIZES)),
    (1120, q4gsw(1120, 260, 16, sizes=SIZES)),
    (256, q4gsw(256, 68, 16, bias=True, minima=True, sizes=SIZES)),
    (96, q4gsw(96, 72, 32, bits=8, minima=True, sizes=SIZES)),
    (512, q4gsw(512, 100, 32, bits=8, sizes=SIZES)),
    (2048, q4gsw(2048, 132, 16, bits=8, bias=True, sizes=SIZES)),
    (128, q4gsw(128, 60, 32, scale_dtype="float16", sizes=SIZES)),
    (64, q4gsw(64, 20, 32, dtype="float16", sizes=SIZES)),
    (32, qcs4w(32, 20, sizes=SIZES)),
]


def halved(case: OpCase, depth: int, scale: float = 1.0) -> OpCase:
    """The case with what rounding both factors to halves makes of a sum of `depth` products, of rows times a scale."""

    def args_at(size: int) -> list[Any]:
        x, *others = case.args_at(size)
        draw = lambda generator, shape: scale * generator.standard_normal(shape)
        return [In(x.dtype, x.shape, draw), *others]

    return replace(case, args_at=args_at, atol=1e-3 * scale * depth**0.5, rtol=1e-3)


@pytest.mark.parametrize(("depth", "case"), LAYERS, ids=lambda value: value.name if isinstance(value, OpCase) else "")
def test_layer(depth: int, case: OpCase) -> None:
    device, limits = with_matrices()
    sweep(halved(case, depth), limits, device)
    assert "q4/matrix_tiles" in {name.split("+")[0] for name in kernels_of(device)}


@pytest.mark.parametrize("weights", [Weights("minima", 32, ("8", 16)), Weights("8", 32)], ids=str)
@pytest.mark.parametrize("depth", [64, 1024])
def test_queries_keys_and_values(depth: int, weights: Weights) -> None:
    """As in files of Q4_K_M, whose values may have more bits, and of Q8_0; a deep one is split."""
    device, limits = with_matrices()
    made, _, outputs = program("qkv", False, depth, 36, True, weights)
    graph = fuse(made.chain.graph(*outputs), limits)
    executor = Executor(compile(graph, limits), device)
    for rows in (ROWS, 1, 16, 17, 64, ROWS):
        x = np.random.default_rng(rows).standard_normal((1, rows, depth)).astype(np.float32)
        executor.poison()
        for got, wanted in zip(executor.execute([x]), golden(made, [x], outputs), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max(), err_msg=f"at {rows}")
    assert operators(graph) == {"qkv_linear_q4gsw": 1}
    assert "q4/matrix_tiles" in {name.split("+")[0] for name in kernels_of(device)}


@pytest.mark.parametrize("depth", [64, 2048])
@pytest.mark.parametrize("epilogue", ["qkv", "gated"])
def test_rows_are_rounded_with_their_rms_norm(epilogue: str, depth: int) -> None:
    device, limits = with_matrices()
    made, _, outputs = program(epilogue, True, depth, 36, epilogue == "qkv")
    # With few threads in a workgroup the norm of one row is not fused, and so not that of many.
    many = replace(limits, max_invocations=256, max_cooperating_threads=256)
    graph = fuse(made.chain.graph(*outputs), many)
    executor = Executor(compile(graph, limits), device)
    for rows in (ROWS, 1, 16, 17, 64, 5, ROWS):
        x = np.random.default_rng(rows).standard_normal((1, rows, depth)).astype(np.float32) * 3e4
        executor.poison()
        for got, wanted in zip(executor.execute([x]), golden(made, [x], outputs), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max(), err_msg=f"at {rows}")
    assert len(graph.nodes) == 1
    assert "quantization/half_rows+rms_norm" in kernels_of(device)


@pytest.mark.parametrize("scale", [1e5, 1e-6, 1e30])
def test_rows_beyond_the_range_of_halves(scale: float) -> None:
    device, limits = with_matrices()
    sweep(halved(q4gsw(256, 72, 32, sizes=(100, 16, 300)), 256, scale), limits, device)


def test_weights_beyond_the_range_of_halves() -> None:
    device, limits = with_matrices()
    case = q4gsw(64, 68, 32, sizes=(16, 70))

    def args_at(size: int) -> list[Any]:
        x, weight, scales, *others = case.args_at(size)
        return [x, weight, replace(scales, array=scales.array * np.float32(1e6)), *others]

    golden = lambda x, size: case.golden(x, size) * 1e6
    sweep(replace(case, args_at=args_at, golden=golden, atol=8e3, rtol=1e-3), limits, device)
