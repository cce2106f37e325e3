"""Which products take matrix units: where the device has them and the user permits halves, and nowhere else."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from liveshape.graph import Graph, Limits, SymInt, Tensor
from liveshape.graph.limits import MatrixShape
from liveshape.ops import OPS
from liveshape.ops.attention_heuristics import (
    matrix_keys,
    matrix_row_blocks,
    matrix_tile_splits,
    split_results_shape,
)
from liveshape.ops.matrix_heuristics import (
    MATRIX_TILE_BYTES,
    MAX_MATRIX_SUMS,
    MIN_MATRIX_DEPTH,
    float_matrix_tiles,
    gains_by_matrices,
    pixel_matrix_tiles,
    product_matrix_tiles,
)
from liveshape.ops.matrix_products import halves_bytes, most_lines
from liveshape.ops.q4_heuristics import matrix_sums_bound, matrix_tile_config, takes_matrices
from liveshape.ops.strided_attention import Extent, Stride, Strides, encoded
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.run.executor import Executor
from liveshape.tools.measuring.random_llamas import MIXES
from tests.plan.test_dispatches import kernels_of
from tests.support.chains import Chain
from tests.support.kernels import FILES
from tests.support.paper import PaperDevice

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
    replace(MATRICES, max_workgroup_bytes=12288),
]
EIGHTS = MatrixShape("float16", "float32", 8, 8, 8)
# Of subgroups of other sizes, and of a software adapter, whose workgroups have few threads.
OTHERS = [
    *(
        replace(MATRICES, subgroup=lanes, matrices=(each,))
        for lanes in (8, 16, 32, 64, 128)
        for each in (EIGHTS, HALVES)
    ),
    *(
        replace(MATRICES, subgroup=0, lanes=lanes, max_cooperating_threads=4, max_invocations=32, matrices=(EIGHTS,))
        for lanes in (4, 8, 16, 32)
    ),
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


def matmul(dtype: str = "float32") -> Graph:
    x, other, out = (
        Tensor(*each) for each in (("x", dtype, (300, 261)), ("y", dtype, (261, 131)), ("out", dtype, (300, 131)))
    )
    node = OPS["aten.mm.default"].bind(0, "mm", (x, other, out))
    return Graph("matmul", (node,), (x, other, out), (x, other), (out,))


def convolution(
    side: int, stride: int = 1, groups: int = 1, transposed: bool = False, padding: int | None = None
) -> Graph:
    """Of 64 channels of 64 by 64 pixels, padded by half of the kernel if not said otherwise."""
    array = np.zeros((64, 64 // groups, side, side), np.float32)
    padding = side // 2 if padding is None else padding
    less = side - 2 * padding
    size = 63 * stride + less if transposed else (64 - less) // stride + 1
    x, out = Tensor("x", "float32", (1, 64, 64, 64)), Tensor("out", "float32", (1, 64, size, size))
    weight = Tensor("weight", "float32", array.shape, memoryview(array).cast("B"))
    numbers = (stride, stride), (padding, padding), (1, 1), transposed, (0, 0), groups
    node = OPS["aten.convolution.default"].bind(0, "convolution", (x, weight, None, *numbers, out))
    return Graph("convolution", (node,), (x, weight, out), (x,), (out,))


def kernels(graph: Graph, limits: Limits) -> set[str]:
    """Of every route that a plan has."""
    return {variant.kernel.name for variant in compile(graph, limits).kernels}


@pytest.mark.parametrize(
    "graph", [layer(256, 64), attention(64), matmul(), convolution(3), convolution(1)], ids=lambda graph: graph.name
)
def test_only_where_the_device_has_them_and_the_user_permits_halves(graph: Graph) -> None:
    assert any("matrix_tiles" in name for name in kernels(graph, MATRICES))
    for limits in WITHOUT:
        assert not any("matrix_tiles" in name for name in kernels(graph, limits)), limits


@pytest.mark.parametrize("mix", [None, *MIXES])
def test_every_layer_of_a_prompt_takes_them(mix: str | None) -> None:
    """Whatever its weights are, and where the values have one of their own; but for the head, which has one row."""
    found = kernels_of(3, 64, MATRICES, activations="float16", mix=mix)
    layers = {name: count for name, count in found.items() if name.startswith("q4/")}
    assert layers.pop("q4/gemv+rms") == 1
    assert {name.split("+")[0] for name in layers} == {"q4/half_weight", "q4/matrix_tiles"}
    # Rounding applies the RMSNorm: of three layers the projections in and the gated unit, and of values of more bits.
    normed, plain = (found[f"quantization/half_rows{of}"] for of in ("+rms_norm", ""))
    assert (plain, normed >= 6) == (6, True)
    assert not any(name.startswith("normalization/") for name in found)


@pytest.mark.parametrize("graph", [matmul(), convolution(3), convolution(1)], ids=lambda graph: graph.name)
def test_without_them_nothing_is_planned_for_them(graph: Graph) -> None:
    wanted = compile(graph, GPU)
    for changes in ({"half_inputs": True}, {"matrices": MATRICES.matrices}):
        found = compile(graph, replace(GPU, **changes))
        assert ([*map(len, found.scratch)], found.memory.blocks) == ([*map(len, wanted.scratch)], wanted.memory.blocks)
        assert kernels(graph, found.limits) == kernels(graph, GPU)


def test_products_of_float16_round_nothing_so_that_nobody_is_asked() -> None:
    assert "matmul/matrix_tiles+any" in kernels(matmul("float16"), replace(MATRICES, half_inputs=False))


IMPLICIT_GEMM = {f"convolution/{name}" for name in ("image_parts", "half_image", "matrix_tiles", "combine_splits")}


@pytest.mark.parametrize(
    ("graph", "wanted"),
    [
        (convolution(3), IMPLICIT_GEMM),
        (convolution(3, stride=2), IMPLICIT_GEMM),
        (convolution(1), {"matmul/half_lines", "matmul/matrix_tiles+any"}),
        (convolution(3, groups=2), {"matmul/register_tiles+convolution", "convolution/combine_splits"}),
        (convolution(3, groups=64), {"convolution/depthwise"}),
        (convolution(2, stride=2, transposed=True), {"matmul/tiled+convolution"}),
        (convolution(2, stride=2, transposed=True, padding=0), IMPLICIT_GEMM - {"convolution/combine_splits"}),
        (convolution(3, stride=2, transposed=True, padding=0), {"matmul/tiled+convolution"}),
    ],
)
def test_convolutions_of_one_group_take_them(graph: Graph, wanted: set[str]) -> None:
    (route,) = compile(graph, MATRICES, Choices(warm=False)).routes
    assert {variant.kernel.name for variant, _ in route.dispatched} == wanted


@pytest.mark.parametrize("kernel", [1, 3])
def test_the_weight_of_a_convolution_becomes_halves_at_load(kernel: int) -> None:
    plan = compile(convolution(kernel), MATRICES, Choices(warm=False))
    packing = {"matmul/half_lines"} if kernel == 1 else {"convolution/half_weight"}
    assert {step.variant.kernel.name for step in plan.prepack} == packing
    (route,) = plan.routes
    assert sum(variant.kernel.name in packing for variant, _ in route.dispatched) == (
        1 if kernel == 1 else 0
    )  # the image


SIZES = (16, 17, 63, 64, 65, 131, 512, 2053)


def test_halves_and_sums_of_floats_fit_their_scratch_at_every_size() -> None:
    for batch, rows, columns, depth in product((1, 3), SIZES, SIZES, (MIN_MATRIX_DEPTH, 33, 39, 65, 2053)):
        for lines in (rows, columns):
            assert lines <= most_lines(lines * depth)
            assert 16 * lines * -(-depth // 8) <= halves_bytes(lines * depth)
        for tiles_of in (float_matrix_tiles, product_matrix_tiles):
            _, splits = tiles_of(batch, rows, columns, depth, MATRICES)
            assert splits == 1 or splits * batch * rows * columns <= MAX_MATRIX_SUMS


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "tile"),
    [
        (16384, 3072, 768, 128), (16384, 768, 3072, 128), (4096, 3072, 768, 128), (1576, 2304, 768, 128),
        (4096, 768, 768, 96), (4096, 2304, 768, 96), (12000, 768, 768, 96), (1576, 768, 3072, 96),
        (1500, 3072, 768, 96),
    ],
)  # fmt: skip
def test_large_tiles_of_a_product_are_those_that_leave_no_round_nearly_empty(
    rows: int, columns: int, depth: int, tile: int
) -> None:
    """As measured on the H200, of which that is a model."""
    config, splits = product_matrix_tiles(1, rows, columns, depth, MATRICES)
    assert config["SUBGROUPS_DOWN"] * config["BLOCKS_DOWN"] * config["MATRIX_ROWS"] == tile
    assert config["ROW_LOADS"] * config["WG"] * 8 == tile * config["BLOCKS_DEEP"] * config["MATRIX_DEPTH"]
    assert config["groups"] == -(-rows // tile) * -(-columns // 128)
    assert splits == 1


def test_what_gains_by_matrices_is_found_by_planning_at_powers_of_two() -> None:
    """And at one more: `plan/routes.py` plans at these."""
    for power in range(4, 12):
        found = {gains_by_matrices(1, rows, 300, 300) for rows in range((1 << power) + 1, (2 << power) + 1)}
        assert len(found) == 1, power


@pytest.mark.parametrize(
    ("depth", "columns", "group", "taken"),
    [(64, 68, 32, True), (64, 70, 32, False), (48, 68, 16, False), (64, 68, 4, False), (64, 1 << 26, 32, False)],
)
def test_layers_that_fit(depth: int, columns: int, group: int, taken: bool) -> None:
    assert takes_matrices(512, columns, depth, group, MATRICES) is taken
    assert not takes_matrices(15, columns, depth, group, MATRICES)


@pytest.mark.parametrize("shape", [(4, 4, 4), (32, 32, 32), (16, 8, 16), (16, 16, 8)])
def test_matrices_that_no_tile_is_made_of(shape: tuple[int, int, int]) -> None:
    limits = replace(MATRICES, matrices=(MatrixShape("float16", "float32", *shape),))
    assert not takes_matrices(512, 64, 256, 32, limits)
    assert takes_matrices(512, 64, 256, 32, replace(limits, matrices=(*limits.matrices, EIGHTS)))


def test_no_subgroup_is_larger_than_a_workgroup_of_matrices() -> None:
    assert not takes_matrices(512, 64, 256, 32, replace(MATRICES, subgroup=256))
    few = replace(MATRICES, subgroup=0, max_cooperating_threads=4, max_invocations=32, matrices=(EIGHTS,))
    assert not takes_matrices(512, 64, 256, 32, replace(few, lanes=64))
    assert not takes_matrices(512, 64, 256, 32, few)


@pytest.mark.parametrize(
    "limits", [MATRICES, *OTHERS], ids=lambda each: f"{each.subgroup or each.lanes} of {each.matrices[0].m}"
)
def test_tiles_of_pixels_are_as_wide_as_few_channels_and_whole(limits: Limits) -> None:
    (shape, *_), lanes = limits.matrices, limits.subgroup or limits.lanes
    for pixels, channels, depth in product((49, 3136, 100352, 262144), (3, 8, 16, 24, 64, 66, 512), (64, 576)):
        config, splits = pixel_matrix_tiles(pixels, channels, depth, limits)
        subgroups, step = config["WG"] // lanes, config["BLOCKS_DEEP"] * shape.k
        down = config["SUBGROUPS_DOWN"] * config["BLOCKS_DOWN"] * shape.m
        across = subgroups // config["SUBGROUPS_DOWN"] * config["BLOCKS_ACROSS"] * shape.n
        assert min(config["BLOCKS_DOWN"], config["BLOCKS_ACROSS"], config["COLUMN_LOADS"]) > 0
        assert config["ROW_LOADS"] * config["WG"] * 8 == down * step
        assert config["COLUMN_LOADS"] * config["WG"] * 8 == across * step
        assert config["groups"] == splits * -(-pixels // down) * -(-channels // across)
        if limits.has_many_threads and pixels > 20000:
            assert across == {3: 16, 8: 16, 16: 16, 24: 32, 64: 64, 66: 64, 512: 128}[channels]
        assert 16 * (step // 8 + 1) * (down + across) <= MATRIX_TILE_BYTES


@pytest.mark.parametrize(
    "limits", [MATRICES, *OTHERS], ids=lambda each: f"{each.subgroup or each.lanes} of {each.matrices[0].m}"
)
def test_subgroups_of_a_tile_have_all_of_it_and_threads_stage_all_of_it(limits: Limits) -> None:
    (shape, *_), lanes = limits.matrices, limits.subgroup or limits.lanes
    for rows in (16, 33, 65, 513, 4096):
        for depth, columns in LAYERS:
            assert takes_matrices(rows, columns, depth, 32, limits)
            config, splits = matrix_tile_config(rows, columns, depth, False, limits)
            threads, step = config["WG"], config["BLOCKS_DEEP"] * config["MATRIX_DEPTH"]
            assert threads <= limits.max_invocations
            assert config["LANES"] == lanes
            subgroups = threads // lanes
            down = config["SUBGROUPS_DOWN"] * config["BLOCKS_DOWN"] * shape.m
            across = subgroups // config["SUBGROUPS_DOWN"] * config["BLOCKS_ACROSS"] * shape.n
            assert (down, across) in ((32, 64), (64, 64), (128, 128))
            assert depth % step == 0
            assert config["ROW_LOADS"] * threads * 8 == down * step
            assert config["COLUMN_LOADS"] * threads * 8 == across * step
            assert config["groups"] == -(-rows // down) * -(-columns // across) * splits
            factors = 16 * (down + across) * (step // 8 + 1)
            sums = 16 * subgroups * shape.m * (config["BLOCKS_ACROSS"] * shape.n // 4 + 2)
            assert max(factors, sums) + 4 * threads <= MATRIX_TILE_BYTES


@pytest.mark.parametrize(
    ("size", "fits"), [(64, True), (128, True), (48, True), (40, True), (44, False), (112, True), (256, False)]
)
def test_heads_that_fit(size: int, fits: bool) -> None:
    assert (matrix_keys(size, MATRICES) > 0) is fits
    small = replace(MATRICES, max_workgroup_bytes=8192)
    assert matrix_keys(size, small) == 0


@pytest.mark.parametrize(
    ("width", "scale", "dtype", "kernel"),
    [
        (64, 0.125, "float16", "matrix_tiles+given"),
        (64, -0.125, "float16", "matrix_tiles"),  # the largest score is the least product
        (68, 0.125, "float16", "matrix_tiles"),  # rows do not begin at eight
        (64, 0.125, "float32", "matrix_tiles"),
    ],
)
def test_halves_are_read_where_they_lie(width: int, scale: float, dtype: str, kernel: str) -> None:
    chain = Chain()
    q, k, v = (chain.input((2, 512, width), dtype) for _ in "qkv")
    whole = Extent(0, 0), *map(Extent.literal, (1, 1)), Extent(0, 1), Extent(1, 1), *map(Extent.literal, (64, 64, 1, 1))
    steps = encoded(Strides(Stride(), Stride(0, 1), Stride(), Stride(1, 1), Stride(2, 1)))
    given = None, 0, -np.inf, True, scale, encoded(whole), steps, steps, steps, (), (0, -1, 2, -1, 3), False, None, ()
    graph = chain.graph(chain.node("liveshape.attention", q, k, v, *given, chain.tensor((2, 512, 64), dtype)))
    executor = Executor(compile(graph, MATRICES), PaperDevice(MATRICES))
    executor.execute([np.zeros((2, 512, width), dtype)] * 3)
    names = [command.label.split()[-1] for command in executor.encoder.commands(executor.live, 0, 1)]
    assert names == ["attention/half_cache"] * ("given" not in kernel) + [f"attention/{kernel}"]


def test_arrays_of_units_begin_at_16_bytes() -> None:
    """An H200 reads others wrongly: what lies before them in workgroup memory must have a multiple of that."""
    texts = {path: path.read_text() for path in FILES.rglob("*.wgsl")}
    units = {path for path, text in texts.items() if "subgroup_matrix_left" in text}
    units |= {path for path, text in texts.items() if any(f"#include common/{each.stem}" in text for each in units)}
    included = {name for path in units for name in re.findall(r"^#include attention/(matrix_\w+)", texts[path], re.M)}
    units |= {FILES / "attention" / f"{name}.wgsl" for name in included}
    found = [(path, kind) for path in units for kind in re.findall(r"^var<workgroup> \w+: (.+?);", texts[path], re.M)]
    assert len(found) > 4
    for path, kind in found:
        assert re.match(r"(array<)?vec4<(u32|f32)>", kind) or kind == "array<f32, WG>", f"{path.name}: {kind}"


@pytest.mark.parametrize(("depth", "columns"), LAYERS)
def test_partial_sums_fit_their_scratch_at_every_number_of_rows(depth: int, columns: int) -> None:
    bound = matrix_sums_bound(700, columns, depth, MATRICES)
    for rows in range(16, 701):
        for packed in (False, True):
            _, splits = matrix_tile_config(rows, columns, depth, packed, MATRICES)
            assert splits == 1 or rows * columns * splits <= bound, rows


@pytest.mark.parametrize(("depth", "columns"), [(8192, 1024), (8192, 512), (14336, 2048), (4096, 512), (3072, 64)])
def test_partial_sums_of_thousands_of_rows_fit_their_scratch(depth: int, columns: int) -> None:
    bound = matrix_sums_bound(40_000, columns, depth, MATRICES)
    for rows in range(8000, 40_000, 61):
        _, splits = matrix_tile_config(rows, columns, depth, False, MATRICES)
        assert splits == 1 or rows * columns * splits <= bound, rows


def test_splits_of_attention_fit_their_scratch_at_every_number_of_rows() -> None:
    shapes: Any = ((1, 300, 8, 64), (1, 5000, 2, 64))
    (count, _) = split_results_shape(*shapes, (1, 2), MATRICES)
    for queries in range(5, 301):
        tiles = 2 * -(-queries * 4 // 64)
        for context in (queries, 700, 3000, 5000):
            splits = matrix_tile_splits(context, tiles)
            assert splits == 1 or 64 * tiles * splits <= count, (queries, context)


def test_workgroups_of_two_matrices_of_rows_are_enough_without_splits() -> None:
    """The scratch of splits has room for rows of one matrix each."""
    for heads, rows in product((1, 8, 96, 384), range(17, 5000, 37)):
        if matrix_row_blocks(heads, rows, 64) == 2:
            assert matrix_tile_splits(1 << 20, heads * -(-rows // 128)) == 1, (heads, rows)
