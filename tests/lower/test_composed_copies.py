"""Copies and gathers store an expression of what they move, at live sizes up and down, beside torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from liveshape.device.backends import open_device
from liveshape.errors import InputError
from liveshape.lower.lowering import optimized
from liveshape.run.arrays import as_array
from tests.support.chains import Chain, executor_of

MAX, SIZES = 37, (37, 1, 8, 20, 37)

# An operator, its arguments behind the tensor, its result of a tensor of (rows, 6, width), and what torch gives.
Case = tuple[str, Callable[[int], tuple[Any, ...]], Callable[[Any], Any]]
CASES: dict[str, Case] = {
    "permute": ("permute_copy.default", lambda _: ((1, 2, 0),), lambda x: x.permute(1, 2, 0)),
    "transpose of matrices": ("transpose_copy.int", lambda _: (-1, 0), lambda x: x.transpose(-1, 0)),
    "permute of rows": ("permute_copy.default", lambda _: ((1, 0, 2),), lambda x: x.permute(1, 0, 2)),
    "slice": ("slice_copy.Tensor", lambda _: (1, 1, 6, 2), lambda x: x[:, 1:6:2]),
    "select": ("select_copy.int", lambda _: (1, 2), lambda x: x[:, 2]),
    "repeat": ("repeat.default", lambda _: ((1, 2, 1),), lambda x: x.repeat(1, 2, 1)),
    "flip": ("flip.default", lambda _: ((1, 2),), lambda x: x.flip(1, 2)),
    "roll": ("roll.default", lambda _: ((2, 3), (1, 2)), lambda x: x.roll((2, 3), (1, 2))),
    "pad": ("constant_pad_nd.default", lambda _: ((1, 2), 0.5), lambda x: torch.constant_pad_nd(x, (1, 2), 0.5)),
    "unfold": ("unfold_copy.default", lambda _: (1, 3, 2), lambda x: x.unfold(1, 3, 2)),
    "diagonal": ("diagonal_copy.default", lambda _: (1, 1, 2), lambda x: x.diagonal(1, 1, 2)),
}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("width", [12, 7])
@pytest.mark.parametrize("name", CASES)
def test_a_copy_stores_an_expression(name: str, width: int, dtype: str) -> None:
    operator, arguments, torchs = CASES[name]
    chain = Chain()
    x = chain.input((MAX, 6, width), dtype)
    shape = tuple(torchs(torch.zeros(MAX, 6, width)).shape)
    moved = chain.node(f"aten.{operator}", x, *arguments(width), chain.tensor(shape, dtype))
    other = (
        chain.constant(np.random.default_rng(1).standard_normal(shape[-1]).astype(dtype)) if name == "slice" else 0.5
    )
    name_of = "aten.mul.Tensor" if name == "slice" else "aten.mul.Scalar"
    product = chain.node(name_of, moved, other, chain.tensor(shape, dtype))
    curve = chain.node("aten.tanh.default", product, chain.tensor(shape, dtype))
    total = chain.node("aten.add.Tensor", curve, product, 1, chain.tensor(shape, dtype))
    check(chain, total, [x], lambda x: of_torch(torchs(x), other, name == "slice"))


def of_torch(moved: Any, other: Any, is_array: bool) -> Any:
    product = moved * (torch.from_numpy(np.array(as_array(other))) if is_array else other)
    return torch.tanh(product) + product


@pytest.mark.parametrize("width", [12, 7])
@pytest.mark.parametrize("operator", ["cat", "stack", "index_select", "gather"])
def test_operators_of_several_tensors_store_an_expression(operator: str, width: int) -> None:
    chain = Chain()
    x = chain.input((MAX, 6, width))
    shape: tuple[int, ...] = (MAX, 6, width)
    index = chain.constant(np.array([5, 0, 0, 3], np.int64))
    if operator == "cat":
        shape = (MAX, 12, width)
        moved = chain.node("aten.cat.default", (x, x), 1, chain.tensor(shape))
    elif operator == "stack":
        shape = (MAX, 2, 6, width)
        moved = chain.node("aten.stack.default", (x, x), 1, chain.tensor(shape))
    elif operator == "index_select":
        shape = (MAX, 4, width)
        moved = chain.node("aten.index_select.default", x, 1, index, chain.tensor(shape))
    else:
        whole = chain.node("aten.abs.default", x, chain.tensor(shape))
        shape = (MAX, 1, width)
        first = chain.node("aten.amax.default", whole, (1,), True, chain.tensor(shape))
        places = chain.node("aten.argmax.default", x, 1, True, chain.tensor(shape, "int64"))
        moved = chain.node("aten.gather.default", x, 1, places, False, chain.tensor(shape))
        moved = chain.node("aten.mul.Tensor", moved, first, chain.tensor(shape))
    half = chain.node("aten.mul.Scalar", moved, 0.5, chain.tensor(shape))
    last = chain.node("aten.relu.default", half, chain.tensor(shape))

    def torchs(x: Any) -> Any:
        if operator == "gather":
            return torch.relu(x.gather(1, x.argmax(1, True)) * x.abs().amax(1, True) * 0.5)
        made = {
            "cat": lambda: torch.cat((x, x), 1),
            "stack": lambda: torch.stack((x, x), 1),
            "index_select": lambda: x.index_select(1, torch.tensor([5, 0, 0, 3])),
        }[operator]()
        return torch.relu(made * 0.5)

    check(chain, last, [x], torchs)


def check(chain: Chain, result: Any, inputs: list[Any], torchs: Callable[..., Any]) -> None:
    """One composed node in the place of all that follow the copy; each call is what torch gives."""
    graph = chain.graph(result)
    fused = optimized(graph, open_device().limits)
    assert sum(node.name == "liveshape.composed" for node in fused.nodes) == 1, [node.name for node in fused.nodes]
    assert not any(node.traits.pointwise for node in fused.nodes if node.name != "aten.abs.default")
    executor = executor_of(fused, open_device())
    for rows in SIZES:
        random = np.random.default_rng(rows)
        given = [random.standard_normal((rows, *x.max_shape[1:])).astype(x.dtype) for x in inputs]
        executor.poison()
        (got,) = executor.execute(given)
        want = torchs(*map(torch.from_numpy, given)).numpy()
        tolerance = 2e-3 if got.dtype == np.float16 else 2e-6
        np.testing.assert_allclose(got, want, tolerance, tolerance, err_msg=str(rows))
    executor.close()


TABLES = {  # an operator, its arguments between the table and the ids, and behind these, and the table that it means
    "aten.embedding.default": ((), (-1, False, False), lambda table: table.astype(np.float32)),
    "et_vk.embedding_q4gsw.default": ("scales", (False,), lambda table: _nibbles(table) / 2),
    "quantized_decomposed.embedding_byte.dtype": ("zeros", (None,), lambda table: table.astype(np.float32) / 2),
}


def _nibbles(table: Any) -> Any:
    return np.stack((table >> 4, table & 15), -1).reshape(len(table), -1).astype(np.float32) - 8


@pytest.mark.parametrize("operator", TABLES)
@pytest.mark.parametrize("width", [12, 6])
def test_rows_of_tables_are_added_where_they_are_gathered(operator: str, width: int) -> None:
    """Words and positions of a decoder, scaled: two gathers, one of which adds. Ids beyond the table are an error."""
    between, behind, meaning = TABLES[operator]
    random, chain = np.random.default_rng(0), Chain()
    ids, places = chain.input((2, MAX), "int64"), chain.input((MAX,), "int64")
    nibbles = operator.startswith("et_vk")
    kind = np.float32 if operator.startswith("aten") else np.uint8 if nibbles else np.int8
    table = random.integers(0, 100, (50, width // 2 if nibbles else width)).astype(kind)
    words, positions = chain.constant(table), random.standard_normal((MAX, width)).astype(np.float32)
    scales = chain.constant(np.full((50, 1), 0.5, np.float32))
    more = {"scales": (scales, width), "zeros": (scales, None, -128, 127), (): ()}[between]
    shape = (2, MAX, width)
    word = chain.node(operator, words, *more, ids, *behind, chain.tensor(shape))
    scaled = chain.node("aten.mul.Scalar", word, 3.0, chain.tensor(shape))
    place = chain.node(
        "aten.embedding.default", chain.constant(positions), places, -1, False, False, chain.tensor(shape[1:])
    )
    total = chain.node("aten.add.Tensor", scaled, place, 1, chain.tensor(shape))
    graph = optimized(chain.graph(total), open_device().limits)
    assert len(graph.nodes) == 2
    executor = executor_of(graph, open_device())
    for rows in SIZES:
        picked, order = random.integers(0, 50, (2, rows)), random.permutation(rows)
        executor.poison()
        (got,) = executor.execute([picked, order])
        np.testing.assert_array_equal(got, meaning(table)[picked] * np.float32(3) + positions[order])
    with pytest.raises(InputError, match="50"):
        executor.execute([np.full((2, 3), 50), np.arange(3)])
    executor.close()
