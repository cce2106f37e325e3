"""Which products take matrix units: where the device has them and the user permits halves, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveshape.graph import Graph, Limits, SymInt, Tensor
from liveshape.graph.limits import MatrixShape
from liveshape.ops import OPS
from liveshape.ops.attention_heuristics import matrix_keys, matrix_tile_splits, split_results_shape
from liveshape.ops.q4_heuristics import matrix_sums_bound, matrix_tile_config, takes_matrices
from liveshape.plan.compiling import compile

GPU = Limits(
    max_invocations=1024,
    max_binding_bytes=1 << 31,
    max_buffer_bytes=1 << 32,
    max_bindings=16,
    max_workgroup_bytes=49152,
    subgroup=32,
)
HALVES = MatrixShape("float16", "float32", 16, 16, 16)
MATRICES = replace(GPU, matrices=(HALVES, MatrixShape("int8", "int32", 16, 16, 32)), half_inputs=True)
WITHOUT = [
    GPU,
    replace(MATRICES, half_inputs=False),
    replace(MATRICES, one_order=True),
    replace(MATRICES, matrices=()),
    replace(MATRICES, matrices=(replace(HALVES, result="float16"),)),
    replace(MATRICES, subgroup=0),
]
LAYERS = [(2048, 3072), (2048, 2048), (8192, 2048), (2048, 16384), (14336, 4096), (576, 640), (1536, 576), (64, 68)]


def layer(depth: int, columns: int) -> Graph:
    arrays = np.zeros((columns, depth // 2), np.uint8), np.zeros((depth // 32, columns), np.float32)
    x, out = Tensor("x", "float32", (300, depth)), Tensor("out", "float32", (300, columns))
    weight, scales = (
        Tensor(name, str(array.dtype), array.shape, memoryview(array).cast("B"))
        for name, array in zip(("weight", "scales"), arrays, strict=True)
    )
    node = OPS["et_vk.linear_q4gsw.default"].bind(0, "layer", (x, weight, scales, 32, None, out))
    return Graph("layer", (node,), (x, weight, scales, out), (x,), (out,))


def attention(size: int) -> Graph:
    q, out = (Tensor(name, "float32", (1, 300, 8, size)) for name in ("q", "out"))
    keys, values = (Tensor(name, "float32", (1, 1024, 2, size)) for name in ("keys", "values"))
    position = SymInt("position", 724)
    node = OPS["custom_sdpa.default"].bind(0, "sdpa", (q, keys, values, position, None, 0.0, True, None, out))
    return Graph("attention", (node,), (q, keys, values, position, out), (q, keys, values, position), (out,))


def kernels(graph: Graph, limits: Limits) -> set[str]:
    """Of every route that a plan has."""
    return {variant.kernel.name for variant in compile(graph, limits).kernels}


@pytest.mark.parametrize("graph", [layer(256, 64), attention(64)], ids=lambda graph: graph.name)
def test_only_where_the_device_has_them_and_the_user_permits_halves(graph: Graph) -> None:
    assert any("matrix_tiles" in name for name in kernels(graph, MATRICES))
    for limits in WITHOUT:
        assert not any("matrix_tiles" in name for name in kernels(graph, limits)), limits


@pytest.mark.parametrize(
    ("depth", "columns", "group", "taken"),
    [(64, 68, 32, True), (64, 70, 32, False), (48, 68, 16, False), (64, 68, 4, False), (64, 1 << 26, 32, False)],
)
def test_layers_that_fit(depth: int, columns: int, group: int, taken: bool) -> None:
    assert takes_matrices(512, columns, depth, group, MATRICES) is taken
    assert not takes_matrices(15, columns, depth, group, MATRICES)


@pytest.mark.parametrize(("size", "fits"), [(64, True), (128, True), (48, True), (40, False), (256, False)])
def test_heads_that_fit(size: int, fits: bool) -> None:
    assert (matrix_keys(size, MATRICES) > 0) is fits
    small = replace(MATRICES, max_workgroup_bytes=16384)
    assert matrix_keys(size, small) == 0


@pytest.mark.parametrize(("depth", "columns"), LAYERS)
def test_partial_sums_fit_their_scratch_at_every_number_of_rows(depth: int, columns: int) -> None:
    bound = matrix_sums_bound(700, columns, depth, MATRICES)
    for rows in range(16, 701):
        _, splits = matrix_tile_config(rows, columns, depth, MATRICES)
        assert splits == 1 or rows * columns * splits <= bound, rows


def test_splits_of_attention_fit_their_scratch_at_every_number_of_rows() -> None:
    shapes: Any = ((1, 300, 8, 64), (1, 5000, 2, 64))
    (count, _) = split_results_shape(*shapes, (1, 2), MATRICES)
    for queries in range(5, 301):
        tiles = 2 * -(-queries * 4 // 64)
        for context in (queries, 700, 3000, 5000):
            splits = matrix_tile_splits(context, tiles)
            assert splits == 1 or 64 * tiles * splits <= count, (queries, context)
