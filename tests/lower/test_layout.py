"""Index maps through movements, symbolic live sizes, and products of moved matrices: right at every live size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.graph import Graph, Tensor
from liveshape.lower.def_use import DefUse
from liveshape.lower.fusion import fuse
from liveshape.lower.index_maps import IndexMap, IndexMaps
from liveshape.lower.live_sizes import NOTHING, ONE, LiveSize
from tests.support.chains import Chain, executor_of
from tests.support.movements import Movements

BATCH, LENGTH, HEADS, SIZE = 5, 43, 3, 8
WIDTH = HEADS * SIZE


class Moving(Movements):
    """A chain whose input is (batch, length, width), with its live sizes as scalars."""

    def __init__(self, width: int = WIDTH, dtype: str = "float32") -> None:
        super().__init__()
        self.x, (self.batch, self.length) = self.live((BATCH, LENGTH, width), 2, dtype)

    def farthest(self, tensor: Tensor) -> IndexMap:
        """The map of a tensor to the farthest tensor that one leads to, for a reader at the end."""
        reader = self.node("aten.clone.default", tensor, None, self.tensor(tensor.max_shape, tensor.dtype))
        uses = DefUse(self.graph(reader))
        return next(IndexMaps(uses).bases(tensor, uses.producer[reader]))


def strides(layout: IndexMap) -> list[Any]:
    """Of each axis: the strides of its digits, numbers where they are."""
    return [
        [digit.stride.fixed if digit.stride.fixed is not None else "live" for digit in axis] for axis in layout.axes
    ]


def test_the_heads_of_a_fused_projection_are_strides_of_it() -> None:
    chain = Moving(3 * WIDTH)
    split = chain.view(chain.x, chain.batch, chain.length, 3, HEADS, SIZE)
    keys = chain.select(chain.permute(split, 2, 0, 3, 1, 4), 0, 1)
    layout = chain.farthest(keys)
    assert layout.base is chain.x
    assert strides(layout) == [["live"], [SIZE], [3 * WIDTH], [1]]
    assert layout.offset == (LiveSize(WIDTH),)


def test_a_slice_of_columns_and_heads_that_go_together() -> None:
    chain = Moving()
    weight = chain.constant(np.zeros((2 * WIDTH, WIDTH), np.float32))
    both = chain.node("aten.linear.default", chain.x, weight, None, chain.tensor((BATCH, LENGTH, 2 * WIDTH)))
    columns = chain.slice(both, 2, WIDTH, 2 * WIDTH)
    heads = chain.permute(chain.view(columns, chain.batch, chain.length, HEADS, SIZE), 0, 2, 1, 3)
    together = chain.view(heads, chain.times(chain.batch, HEADS), chain.length, SIZE)
    layout = chain.farthest(together)
    assert layout.base is both
    assert strides(layout) == [["live", SIZE], [2 * WIDTH], [1]]
    assert [digit.size.fixed for digit in layout.axes[0]] == [None, HEADS]
    assert layout.offset == (LiveSize(WIDTH),)


def test_repeated_heads_have_no_stride() -> None:
    chain = Moving()
    heads = chain.permute(chain.view(chain.x, chain.batch, chain.length, HEADS, SIZE), 0, 2, 1, 3)
    spread = chain.expand(chain.unsqueeze(heads, 2), chain.batch, HEADS, 4, chain.length, SIZE)
    layout = chain.farthest(chain.view(spread, chain.batch, HEADS * 4, chain.length, SIZE))
    assert strides(layout) == [["live"], [SIZE, 0], [WIDTH], [1]]
    assert layout.axes[1][1].size == LiveSize(4)
    assert layout.axes[1][1].stride == NOTHING


def test_a_size_that_may_be_one_or_more_is_not_taken_for_expanded() -> None:
    chain = Moving()
    wide = chain.node(
        "aten.expand_copy.default",
        chain.x,
        (chain.scalar(given=True), chain.length, WIDTH),
        False,
        chain.tensor((7, 43, 24)),
    )
    assert chain.farthest(wide).base is wide


def test_what_is_written_in_between_is_not_read_instead() -> None:
    chain = Moving()
    other = chain.input(chain.x.max_shape)
    turned = chain.permute(chain.x, 0, 2, 1)
    chain.node("liveshape.move", other, chain.x)
    layout = chain.farthest(turned)
    assert layout.base is turned


def test_a_view_to_fixed_sizes_says_that_a_tensor_is_at_its_bound() -> None:
    chain = Chain()
    x = chain.input((2, 6, 20))
    double = chain.node("aten.add.Tensor", x, x, 1, chain.tensor((2, 6, 20)))
    half = chain.node("aten.slice_copy.Tensor", double, 2, 10, 20, 1, chain.tensor((2, 6, 10)))
    heads = chain.node("aten.view_copy.default", half, (2, 6, 5, 2), chain.tensor((2, 6, 5, 2)))
    whole = chain.node("aten.view_copy.default", double, (12, 20), chain.tensor((12, 20)))
    uses = DefUse(chain.graph(heads, whole))
    assert uses.sizes.of(double) == (LiveSize(2), LiveSize(6), LiveSize(20))
    assert [size.fixed for size in uses.sizes.of(half)] == [2, 6, 10]
    assert uses.sizes.of(chain.input((1, 3)))[0] == ONE


def names(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes if not node.name.startswith("sym_size")]


def compare(chain: Moving, graph: Graph, golden: Any, sizes: Any = ((5, 43), (1, 1), (2, 7), (5, 1), (1, 43))) -> None:
    """The fused graph up and down its live sizes."""
    executor = executor_of(graph, open_device())
    for batch, length in (*sizes, *reversed(sizes)):
        x = np.random.default_rng(length).standard_normal((batch, length, chain.x.max_shape[2])).astype("float32")
        executor.poison()
        np.testing.assert_allclose(executor.execute([x])[0], golden(x.astype("float64")), 1e-5, 1e-5)


def test_permutes_are_one_or_none() -> None:
    chain = Moving()
    heads = chain.view(chain.x, chain.batch, chain.length, HEADS, SIZE)
    there = chain.permute(chain.permute(chain.permute(heads, 2, 0, 1, 3), 1, 2, 0, 3), 0, 2, 1, 3)
    back = chain.permute(there, 0, 2, 1, 3)
    graph = fuse(chain.graph(chain.node("aten.add.Tensor", back, back, 1, chain.tensor(back.max_shape))))
    assert names(graph) == ["aten.view_copy.default", "liveshape.permuted_view", "aten.add.Tensor"]
    compare(chain, graph, lambda x: 2 * x.reshape(*x.shape[:2], HEADS, SIZE))


@pytest.mark.parametrize("product", ["aten.bmm.default", "aten.mm.default", "aten.addmm.default"])
def test_a_product_with_a_turned_weight_is_a_linear(product: str) -> None:
    random = np.random.default_rng(0)
    weight, bias = random.standard_normal((16, WIDTH)), random.standard_normal(16)
    chain = Moving()
    matrix = chain.permute(chain.constant(weight.astype("float32")), 1, 0)
    vector = chain.constant(bias.astype("float32"))
    if product == "aten.bmm.default":
        spread = chain.view(chain.expand(matrix, chain.batch, WIDTH, 16), chain.batch, WIDTH, 16)
        out = chain.node(product, chain.x, spread, chain.tensor((BATCH, LENGTH, 16)))
        out = chain.view(out, chain.batch, chain.length, 16)
    else:
        flat = chain.view(chain.x, chain.times(chain.batch, chain.length), WIDTH)
        result = chain.tensor((BATCH * LENGTH, 16))
        if product == "aten.addmm.default":
            graph = fuse(chain.graph(chain.node(product, vector, flat, matrix, 1, 1, result)))
            assert names(graph) == ["mul", "aten.view_copy.default", "aten.linear.default"]
            compare(chain, graph, lambda x: (x @ weight.T + bias).reshape(-1, 16))
            return
        out = chain.view(chain.node(product, flat, matrix, result), chain.batch, chain.length, 16)
    total = chain.node("aten.add.Tensor", out, vector, 1, chain.tensor(out.max_shape))
    graph = fuse(chain.graph(total))
    assert [name for name in names(graph) if name != "mul"] == (
        ["aten.linear.default", "aten.view_copy.default"]
        if product == "aten.bmm.default"
        else ["aten.view_copy.default", "aten.linear.default", "aten.view_copy.default"]
    )
    (layer,) = (node for node in graph.nodes if node.name == "aten.linear.default")
    assert layer.args[-1] not in chain.values  # the product without its bias, which `check` knows by its name
    compare(chain, graph, lambda x: x @ weight.T + bias)


def test_a_weight_that_something_else_reads_turned_is_still_turned() -> None:
    chain = Moving()
    matrix = chain.permute(chain.constant(np.eye(WIDTH, 16, dtype="float32").T.copy()), 1, 0)
    spread = chain.expand(matrix, chain.batch, WIDTH, 16)
    out = chain.node("aten.bmm.default", chain.x, spread, chain.tensor((BATCH, LENGTH, 16)))
    graph = fuse(chain.graph(out, matrix))
    assert names(graph) == ["aten.permute_copy.default", "aten.linear.default"]


def test_an_expand_of_nothing_is_a_view() -> None:
    chain = Moving()
    same = chain.expand(chain.x, chain.batch, -1, -1)
    graph = fuse(chain.graph(chain.node("aten.add.Tensor", same, same, 1, chain.tensor(same.max_shape))))
    assert names(graph) == ["aten.clone.default", "aten.add.Tensor"]
    compare(chain, graph, lambda x: 2 * x)


def test_permutes_around_linears_move_to_who_reads_heads() -> None:
    """torch.nn.MultiheadAttention of batches first: rows before batches between its projections."""
    chain = Moving()
    random = np.random.default_rng(0)
    weights = [(random.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype("float32") for _ in range(3)]

    def linear(x: Tensor, weight: np.ndarray) -> Tensor:
        return chain.node("aten.linear.default", x, chain.constant(weight), None, chain.tensor(x.max_shape))

    inner = linear(chain.permute(linear(chain.x, weights[0]), 1, 0, 2), weights[1])
    heads = chain.view(inner, chain.length, chain.times(chain.batch, HEADS), SIZE)
    flat = chain.view(heads, chain.times(chain.length, chain.batch), WIDTH)
    back = chain.view(linear(flat, weights[2]), chain.length, chain.batch, WIDTH)
    graph = fuse(chain.graph(chain.permute(back, 1, 0, 2)))
    permutes = [node for node in graph.nodes if node.name == "aten.permute_copy.default"]
    assert len(permutes) <= 2
    assert graph.nodes[-1].name == "aten.linear.default"
    compare(chain, graph, lambda x: x @ weights[0].T @ weights[1].T @ weights[2].T)


def test_rows_of_a_constant_are_a_constant() -> None:
    """The projections of torch.nn.MultiheadAttention to another sequence: parts of one weight and of one bias."""
    chain = Moving()
    random = np.random.default_rng(0)
    weight = (random.standard_normal((40, WIDTH)) / WIDTH**0.5).astype("float32")
    bias = random.standard_normal(40).astype("float32")
    rows = chain.slice(chain.constant(weight), 0, 16, 40)
    part = chain.tensor((16,)), chain.tensor((24,))
    chain.node("aten.split_with_sizes_copy.default", chain.constant(bias), (16, 24), 0, part)
    spread = chain.expand(chain.permute(rows, 1, 0), chain.batch, WIDTH, 24)
    out = chain.node("aten.bmm.default", chain.x, spread, chain.tensor((BATCH, LENGTH, 24)))
    total = chain.node("aten.add.Tensor", out, part[1], 1, chain.tensor(out.max_shape))
    graph = fuse(chain.graph(total))
    assert names(graph) == ["aten.linear.default"]
    compare(chain, graph, lambda x: x @ weight[16:].T + bias[16:])


@pytest.mark.parametrize("operator", ["aten.transpose_copy.int", "aten.t_copy.default"])
def test_a_row_that_is_transposed_is_the_row(operator: str) -> None:
    chain = Chain()
    x = chain.input((24,))
    dims = (0, 0) if "int" in operator else ()
    turned = chain.node(operator, x, *dims, chain.tensor((24,)))
    graph = fuse(chain.graph(turned), open_device().limits)
    (got,) = executor_of(graph, open_device()).execute([np.arange(7, dtype=np.float32)])
    np.testing.assert_array_equal(got, np.arange(7))


def test_caches_that_are_written_in_place_have_sizes() -> None:
    """A node that gives nothing but what it writes in place, with an expression beside it."""
    chain = Chain()
    new = [chain.input((1, 7, 2, 6)) for _ in range(2)]
    caches = [chain.input((1, 60, 2, 6)) for _ in range(2)]
    chain.node("liveshape.update_caches", *new, *caches, 0, None)
    half = chain.node("aten.mul.Scalar", caches[0], 0.5, chain.tensor((1, 60, 2, 6)))
    out = chain.node("aten.abs.default", half, chain.tensor((1, 60, 2, 6)))
    uses = DefUse(chain.graph(out))
    assert [len(uses.sizes.of(each)) for each in (*caches, out)] == [4, 4, 4]
