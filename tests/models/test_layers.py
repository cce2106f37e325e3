"""4-bit layers with what comes before and after them in one dispatch: the bytes of the operators, at every size."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pytest

from liveshape.device.webgpu import open_device
from liveshape.graph import Graph, Limits
from liveshape.lower.fusion import fuse
from tests.support.chains import Chain, executor_of

ROWS = 70
SIZES = (ROWS, 1, 2, 7, 16, 17, 33, 64, 3, ROWS - 1, 1)


def operators(graph: Graph) -> Counter[str]:
    return Counter(node.name.removeprefix("liveshape.") for node in graph.nodes)


class Layers:
    """A chain of layers of one width after another."""

    def __init__(self, dtype: str = "float32") -> None:
        self.chain = Chain()
        self.dtype = dtype
        self.random = np.random.default_rng(3)

    def layer(self, x: Any, columns: int, bias: bool = False) -> Any:
        depth = x.max_shape[-1]
        weight = self.chain.constant(self.random.integers(0, 256, (columns, depth // 2), np.uint8))
        scales = self.chain.constant((self.random.random((depth // 4, columns)) / depth).astype(self.dtype))
        offset = self.chain.constant(self.random.standard_normal(columns).astype(self.dtype)) if bias else None
        out = self.chain.tensor((*x.max_shape[:-1], columns), self.dtype)
        return self.chain.node("et_vk.linear_q4gsw.default", x, weight, scales, 4, offset, out)

    def view(self, x: Any, sizes: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
        return self.chain.node("aten.view_copy.default", x, sizes, self.chain.tensor(shape, self.dtype))

    def add(self, a: Any, b: Any, alpha: int = 1) -> Any:
        return self.chain.node("aten.add.Tensor", a, b, alpha, self.chain.tensor(a.max_shape, self.dtype))


def same_bytes(graph: Graph, fused: Graph, given: Any, sizes: Any = SIZES, aliasing: bool = True) -> None:
    """Both graphs give equal bytes at all sizes, `given(size)` being what they are called with."""
    device = open_device()
    executors = executor_of(graph, device, aliasing=aliasing), executor_of(fused, device, aliasing=aliasing)
    for size in sizes:
        results = []
        for executor in executors:
            executor.poison()
            results.append([(array.shape, array.tobytes()) for array in executor.execute(given(size))])
        assert results[0] == results[1], f"at {size}"


class Sum(NamedTuple):
    """A layer and what its result is added to."""

    depth: int = 24
    width: int = 36
    bias: bool = False
    viewed: bool = False
    swapped: bool = False
    alpha: int = 1
    dtype: str = "float32"


SUMS = {
    "plain": Sum(),
    "biased": Sum(bias=True, swapped=True),
    "viewed": Sum(viewed=True),
    "odd": Sum(depth=20, width=13),
    "deep": Sum(depth=512, width=30, bias=True, viewed=True),
}


def added(case: Sum) -> tuple[Layers, Any]:
    """x and y, and y + layer(x)."""
    made = Layers(case.dtype)
    chain = made.chain
    x, y = (chain.input((1, ROWS, last), case.dtype) for last in (case.depth, case.width))
    product = made.layer(x, case.width, case.bias)
    if case.viewed:
        length = chain.node("sym_size.int", x, 1, chain.scalar())
        product = made.view(product, (1, length, case.width), product.max_shape)
    return made, made.add(*((product, y) if case.swapped else (y, product)), case.alpha)


@pytest.mark.parametrize("aliasing", [True, False], ids=["aliased", "copied"])
@pytest.mark.parametrize("case", SUMS.values(), ids=SUMS)
def test_a_sum_goes_into_its_layer(case: Sum, aliasing: bool) -> None:
    (plain, total), (other, joined) = added(case), added(case)
    graph, fused = plain.chain.graph(total), fuse(other.chain.graph(joined))
    assert operators(fused) == Counter({"added_linear_q4gsw": 1, "sym_size.int": int(case.viewed)}) - Counter()

    def given(size: int) -> list[Any]:
        random = np.random.default_rng(size)
        return [random.standard_normal((1, size, last)).astype(np.float32) for last in (case.depth, case.width)]

    same_bytes(graph, fused, given, aliasing=aliasing)
    same_bytes(graph, fused, lambda size: [given(size)[0], given(1)[1]], (7, 1, 20))
    same_bytes(graph, fused, lambda size: [given(1)[0], given(size)[1]], (7, 1, 20))


@pytest.mark.parametrize("case", [Sum(alpha=2), Sum(dtype="float16")], ids=["alpha", "halves"])
def test_other_sums_stay_apart(case: Sum) -> None:
    made, total = added(case)
    assert len(fuse(made.chain.graph(total)).nodes) == 2


def test_a_sum_stays_apart_where_something_else_has_a_part_of_it() -> None:
    made, total = added(Sum())
    product = made.chain.nodes[0].args[-1]
    assert len(fuse(made.chain.graph(total, product)).nodes) == 2, "the caller wants the product"
    made, total = added(Sum())
    again = made.add(made.chain.nodes[0].args[-1], made.chain.inputs[1])
    assert operators(fuse(made.chain.graph(total, again)))["added_linear_q4gsw"] == 0, "two sums want it"
    made = Layers()
    x = made.chain.input((1, ROWS, 24))
    product = made.layer(x, 24)
    twice = made.add(product, product)
    assert len(fuse(made.chain.graph(twice)).nodes) == 2, "both are the product"


def test_a_sum_stays_apart_where_its_input_is_written_over_before() -> None:
    made = Layers()
    x, y, z = (made.chain.input((1, ROWS, 24)) for _ in range(3))
    kept = made.chain.tensor((1, ROWS, 24))
    made.chain.node("liveshape.move", x, kept)
    product = made.layer(kept, 24)
    made.chain.node("liveshape.move", z, kept)
    total = made.add(y, product)
    assert operators(fuse(made.chain.graph(total, kept)))["added_linear_q4gsw"] == 0


def test_a_sum_stays_apart_where_it_would_bind_too_much() -> None:
    for limits in (Limits(max_bindings=5), Limits(max_binding_bytes=512)):
        made, total = added(Sum())
        assert len(fuse(made.chain.graph(total), limits).nodes) == 2
