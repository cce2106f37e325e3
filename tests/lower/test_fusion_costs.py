"""Fusions pay or not by what they cost on a class of devices: one case of each kind, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveshape.graph import Graph, Limits
from liveshape.graph.limits import MatrixShape
from liveshape.kernels.roofline import Cost, operations_of, peaks_of, seconds
from liveshape.lower.lowering import optimized
from liveshape.lower.q4_patterns import worth_recomputing
from liveshape.ops.pointwise import Build
from tests.support.chains import Chain

GPU, SOFTWARE = Limits(max_binding_bytes=1 << 30, max_buffer_bytes=1 << 30), Limits(max_cooperating_threads=4)
UNITS = (MatrixShape("float16", "float32", m=16, n=16, k=16),)
MATRICES = replace(GPU, subgroup=32, max_workgroup_bytes=1 << 15, half_inputs=True, matrices=UNITS)


def names(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes]


def decided(graph: Graph) -> dict[str, bool]:
    return {each.fusion: each.pays for each in graph.decisions}


def repeated(function: str, rows: int) -> Graph:
    """A function of one row, added to many."""
    chain = Chain()
    row, x = chain.input((1, 64)), chain.input((rows, 64))
    value = chain.node(f"aten.{function}.default", row, chain.tensor((1, 64)))
    return chain.graph(chain.node("aten.mul.Tensor", x, value, chain.tensor((rows, 64))))


@pytest.mark.parametrize(
    ("function", "rows", "limits", "pays"),
    [
        ("neg", 1 << 18, GPU, True),
        ("neg", 1 << 18, SOFTWARE, True),
        ("sin", 64, GPU, True),  # less than a dispatch
        ("sin", 64, SOFTWARE, False),
        ("sin", 1 << 18, GPU, False),  # more than what is read meanwhile
    ],
)
def test_what_is_broadcast_is_computed_again_where_that_pays(
    function: str, rows: int, limits: Limits, pays: bool
) -> None:
    graph = optimized(repeated(function, rows), limits)
    assert decided(graph) == {"expression": pays}
    assert (len(graph.nodes) == 1) is pays


def loaded(function: str, rows: int) -> Graph:
    """A softmax, which loads an element three times, of a function."""
    chain = Chain()
    x = chain.input((rows, 256))
    value = chain.node(f"aten.{function}.default", x, chain.tensor(x.max_shape))
    return chain.graph(chain.node("aten._softmax.default", value, -1, False, chain.tensor(x.max_shape)))


@pytest.mark.parametrize(
    ("function", "rows", "limits", "pays"),
    [
        ("abs", 1 << 14, GPU, True),
        ("abs", 1 << 14, SOFTWARE, True),
        ("exp", 1 << 14, GPU, True),
        ("exp", 1 << 14, SOFTWARE, False),
        ("digamma", 1 << 14, GPU, False),
        ("digamma", 4, GPU, True),
    ],
)
def test_what_is_loaded_several_times_is_computed_as_often_where_that_pays(
    function: str, rows: int, limits: Limits, pays: bool
) -> None:
    graph = optimized(loaded(function, rows), limits)
    assert decided(graph) == {"prologue": pays}
    assert (names(graph) == ["liveshape.loaded"]) is pays


def test_an_epilogue_and_further_results_pay_everywhere() -> None:
    """Nothing is computed again, and less is read."""
    for limits in (GPU, SOFTWARE):
        chain = Chain()
        x = chain.input((512, 256))
        total = chain.node("aten.mean.dim", x, (1,), True, None, chain.tensor((512, 1)))
        sine = chain.node("aten.sin.default", total, chain.tensor((512, 1)))
        root = chain.node("aten.sqrt.default", total, chain.tensor((512, 1)))
        graph = optimized(chain.graph(sine, root, total), limits)
        assert len(graph.nodes) == 1
        assert all(each.pays and each.together < each.apart for each in graph.decisions)
        assert {each.fusion for each in graph.decisions} == {"results of one expression", "epilogue beside its operand"}


def images(size: int, channels: int) -> Graph:
    """A convolution, then a pool whose result is given back."""
    chain = Chain()
    x = chain.input((8, 64, size, size))
    weight = chain.constant(np.ones((channels, 64, 3, 3), np.float32))
    made = chain.tensor((8, channels, size, size))
    convolved = chain.node("aten.convolution.default", x, weight, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1, made)
    pooled = chain.tensor((8, channels, size // 2, size // 2))
    indices = chain.tensor(pooled.max_shape, "int64")
    pool = ("aten.max_pool2d_with_indices.default", convolved, (2, 2), (2, 2), (0, 0), (1, 1), False)
    return chain.graph(chain.node(*pool, (pooled, indices))[0])


@pytest.mark.parametrize(("size", "pays"), [(16, False), (128, True)])
def test_images_are_turned_where_their_bytes_weigh_more_than_a_dispatch(size: int, pays: bool) -> None:
    graph = optimized(images(size, 64), MATRICES, lambda *_: None)
    (made,) = (each for each in graph.decisions if each.fusion.startswith("images"))
    assert made.pays is pays
    assert ("liveshape.channels_last_max_pool" in names(graph)) is pays


def test_a_norm_is_computed_again_by_every_workgroup_of_small_layers() -> None:
    limits = replace(GPU, max_workgroup_bytes=1 << 15)
    assert worth_recomputing(4096, 2048, limits)
    assert not worth_recomputing(65536, 2048, limits)


def test_a_roofline_knows_functions_by_their_text() -> None:
    def weight(*functions: str, dtype: str = "float32") -> int:
        build, value = Build(dtype), Chain().tensor((1,), dtype)
        for function in functions:
            value = build.call(function, *([value] * (2 if function == "add" else 1)))
        return operations_of(build.made().expression)

    assert weight("add") == 1
    assert weight("add") < weight("exp") < weight("sigmoid") < weight("sin")
    assert weight("neg", "exp") == weight("neg") + weight("exp")
    peaks = peaks_of(GPU)
    assert seconds([Cost()], peaks) == peaks.dispatch


def test_the_same_file_gives_the_same_graph() -> None:
    made: list[Any] = [optimized(loaded("exp", 64), GPU) for _ in range(2)]
    assert made[0].decisions == made[1].decisions
    (decision,) = made[0].decisions
    assert str(decision).startswith("fused: aten.exp.default + aten._softmax.default, prologue: ")
