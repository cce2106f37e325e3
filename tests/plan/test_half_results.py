"""Which results are stored as float16: those that products round anyway, and that no input makes too large for it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from liveshape.graph import Graph, Tensor
from liveshape.graph.constants import Interleaved
from liveshape.graph.limits import Limits, MatrixShape
from liveshape.kernels.pointwise_table import FUNCTIONS
from liveshape.lower.def_use import DefUse
from liveshape.lower.lowering import optimized, simplified
from liveshape.lower.magnitudes import UNKNOWN, Magnitudes
from liveshape.plan.compiling import compile
from liveshape.run.constant_norms import measured
from tests.support.movements import Movements

WIDTH, INNER = 256, 512
HALVES = Limits(
    subgroup=32,
    max_workgroup_bytes=49152,
    matrices=(MatrixShape("float16", "float32", 16, 16, 16),),
    half_inputs=True,
)


class Block(Movements):
    """A layer norm, a linear, an activation and another linear, as a transformer has them."""

    def __init__(self, scale: float = 0.05, activation: str = "aten.gelu.default", norm: bool = True) -> None:
        super().__init__()
        random = np.random.default_rng(0)
        self.arrays = [random.standard_normal(shape).astype("float32") for shape in (WIDTH, WIDTH)]
        self.arrays += [
            (scale * random.standard_normal(shape)).astype("float32") for shape in ((INNER, WIDTH), (WIDTH, INNER))
        ]
        self.x, (self.batch,) = self.live((64, WIDTH), 1)
        rows = self.x
        if norm:
            constants = [self.constant(array) for array in self.arrays[:2]]
            rows = self.node("liveshape.layer_norm", rows, (WIDTH,), *constants, 1e-5, self.tensor((64, WIDTH)))
        self.normed = rows
        first, second = (self.constant(array) for array in self.arrays[2:])
        self.inner = self.node("aten.linear.default", rows, first, None, self.tensor((64, INNER)))
        more = ("none",) if activation == "aten.gelu.default" else ()
        self.active = self.node(activation, self.inner, *more, self.tensor((64, INNER)))
        self.out = self.node("aten.linear.default", self.active, second, None, self.tensor((64, WIDTH)))

    def halves(self, *outputs: Any, limits: Limits = HALVES) -> list[str]:
        graph: Graph = optimized(self.graph(*(outputs or (self.out,))), limits, measured)
        compile(graph, limits)
        return [
            value.name for node in graph.nodes for value in node.outputs if getattr(value, "dtype", "") == "float16"
        ]


def test_results_that_products_round_are_float16() -> None:
    block = Block()
    assert block.halves() == [f"{each.name} in float16" for each in (block.normed, block.active)]
    assert not block.halves(limits=Limits()), "nobody permits rounding"


def test_a_linear_behind_a_linear_reads_and_gives_float16() -> None:
    block = Block()
    third = block.constant(np.full((WIDTH, WIDTH), 0.01, np.float32))
    out = block.node("aten.linear.default", block.out, third, None, block.tensor((64, WIDTH)))
    assert len(block.halves(out)) == 3
    graph = optimized(block.graph(out), HALVES, measured)
    read = {value for node in graph.nodes for value in node.inputs}
    assert read.isdisjoint({block.normed, block.active, block.out})


def test_what_attention_gives_to_a_product_is_float16() -> None:
    """As large as its values are at most: their product is of rows of a norm."""
    for norm in (True, False):
        block = Block(norm=norm)
        random = np.random.default_rng(3)
        weights = [block.constant((0.05 * random.standard_normal((WIDTH, WIDTH))).astype("float32")) for _ in "qkvo"]
        shape, heads = (64, WIDTH), WIDTH // 64
        rows = block.batch
        projected = [
            block.node("aten.linear.default", block.normed, each, None, block.tensor(shape)) for each in weights[:3]
        ]
        q, k, v = (block.permute(block.view(each, rows, heads, 64), 1, 0, 2) for each in projected)
        scores = block.product(q, block.permute(k, 0, 2, 1))
        shares = block.node("aten._softmax.default", scores, -1, False, block.tensor(scores.max_shape))
        mixed = block.view(block.permute(block.product(shares, v), 1, 0, 2), rows, WIDTH)
        out = block.node("aten.linear.default", mixed, weights[3], None, block.tensor(shape))
        halved = optimized(simplified(block.graph(out), HALVES), HALVES, measured)
        (attention,) = (node for node in halved.nodes if "liveshape.attention" in f"{node.name} {node.args[0]}")
        assert attention.outputs[0].dtype == ("float16" if norm else "float32")
        compile(halved, HALVES)


def test_results_that_somebody_else_reads_stay_beside_their_halves() -> None:
    """One dispatch stores both, and products read the halves."""
    block = Block()
    halves = [f"{each.name} in float16" for each in (block.normed, block.active)]
    assert block.halves(block.out, block.active) == halves
    other = block.node("aten.tanh.default", block.normed, block.tensor((64, WIDTH)))
    assert block.halves(block.out, other) == halves
    graph = optimized(block.graph(block.out, other, block.normed), HALVES, measured)
    assert [len(node.outputs) for node in graph.nodes] == [1, 3, 1, 1], "the norm stores itself, its halves and tanh"
    readers = [node for node in graph.nodes if "aten.linear" in str(node.args[0]) or node.name == "aten.linear.default"]
    assert {block.normed, block.active}.isdisjoint(value for node in readers for value in node.inputs)


def test_a_view_that_products_and_others_read_is_one_of_each() -> None:
    block = Block()
    rows = block.node("aten.view_copy.default", block.normed, (64, WIDTH), block.tensor((64, WIDTH)))
    third = block.constant(np.full((INNER, WIDTH), 0.01, np.float32))
    beside = block.node("aten.linear.default", rows, third, None, block.tensor((64, INNER)))
    names = [f"{each.name} in float16" for each in (block.normed, rows, block.active)]
    assert sorted(block.halves(block.out, beside)) == sorted(names)
    graph = optimized(block.graph(block.out, beside), HALVES, measured)
    assert rows not in {value for node in graph.nodes for value in node.outputs}, "nobody reads its floats"
    other = block.node("aten.sum.dim_IntList", rows, (0,), True, None, block.tensor((1, WIDTH)))
    assert sorted(block.halves(block.out, beside, other)) == sorted(names)
    graph = optimized(block.graph(block.out, beside, other), HALVES, measured)
    assert rows in {value for node in graph.nodes for value in node.outputs}


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"scale": 3.0e3}, 1),  # what the norm gives is small, what the product makes of it may be too large
        ({"norm": False}, 0),  # an input may be anything
        ({"activation": "aten.exp.default"}, 1),
        ({"scale": 3.0e3, "activation": "aten.tanh.default"}, 2),
    ],
)
def test_what_may_be_too_large_stays(options: dict[str, Any], count: int) -> None:
    assert len(Block(**options).halves()) == count


def test_constants_that_are_merged_have_the_magnitudes_of_all_parts() -> None:
    parts = [np.array([3.0, -4.0], np.float32), np.array([0.5], np.float32)]
    data = tuple(memoryview(part).cast("B") for part in parts)
    merged = Interleaved(data, tuple(len(part) for part in data))
    found = measured(Tensor("biases", "float32", (3,), constant=merged))
    assert found is not None
    assert found.largest == 4
    assert math.hypot(3, 4, 0.5) <= found.row <= 4 * 3**0.5


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e15])
@pytest.mark.parametrize("width", [1, 7, 768, 300_000])
def test_a_measured_row_is_no_shorter_than_it_is(width: int, scale: float) -> None:
    rows = (np.random.default_rng(width).standard_normal((5, width)) * scale).astype(np.float32)
    found = measured(Tensor("weight", "float32", rows.shape, constant=memoryview(rows).cast("B")))
    assert found is not None
    assert found.largest == abs(rows).max()
    norm = np.linalg.norm(rows.astype(np.float64), axis=1).max()
    assert norm <= found.row <= max(norm * 1.02, 2.0**-63 * width**0.5)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_nothing_is_known_of_constants_that_are_not_finite(number: float) -> None:
    rows = np.ones((3, 400_000), np.float32)  # of several blocks, and the others have numbers
    rows[1, 5] = number
    assert measured(Tensor("weight", "float32", rows.shape, constant=memoryview(rows).cast("B"))) == UNKNOWN


def test_no_input_exceeds_a_magnitude() -> None:
    block = Block(scale=0.3)
    magnitudes = Magnitudes(DefUse(block.graph(block.out)), measured)
    weight, bias, first, second = (torch.from_numpy(array).double() for array in block.arrays)
    random = np.random.default_rng(1)
    rows = [random.standard_normal((64, WIDTH)) * 10.0**power for power in (-9, 0, 9)]
    rows.append(np.eye(64, WIDTH) * 1e6)
    # The row that a product makes the most of.
    longest = first[first.norm(dim=1).argmax()] / weight
    rows.append(longest.expand(64, WIDTH).numpy() * 1e3)
    for x in map(torch.from_numpy, rows):
        normed = torch.nn.functional.layer_norm(x.double(), (WIDTH,), weight, bias, 1e-5)
        inner = normed @ first.T
        for tensor, value in ((block.normed, normed), (block.inner, inner), (block.out, None)):
            value = torch.nn.functional.gelu(inner) @ second.T if value is None else value
            bound = magnitudes.of(tensor)
            assert float(value.abs().max()) <= bound.largest
            assert float(value.norm(dim=1).max()) <= bound.row * (1 + 1e-6)


class Numpy:
    """The library that meanings take."""

    def __getattr__(self, name: str) -> Any:
        if name == "erf":
            return np.vectorize(math.erf)
        return getattr(np, name)


@pytest.mark.parametrize("name", [name for name, row in FUNCTIONS.items() if row.bound is not None])
def test_no_function_exceeds_its_bound(name: str) -> None:
    row = FUNCTIONS[name]
    assert row.bound is not None
    random = np.random.default_rng(len(name))
    count = row.bound.__code__.co_argcount if hasattr(row.bound, "__code__") else 2
    for scale in (1e-3, 1.0, 30.0):
        values = [random.uniform(-scale, scale, 999) for _ in range(count)]
        if row.conditions:
            values[0] = values[0] > 0
        if name == "clamp":
            values[1:] = [np.minimum(*values[1:]), np.maximum(*values[1:])]
        found = np.abs(row.meaning(Numpy(), *values)).max()
        assert found <= row.bound(*(float(np.abs(each).max()) for each in values)) * (1 + 1e-12)
