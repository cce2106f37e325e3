"""Casts, copies and fills among pointwise operators: none of them is a dispatch, at live sizes up and down."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from liveshape.device.backends import open_device
from liveshape.graph import Graph
from liveshape.lower.lowering import optimized
from liveshape.ops import composed
from tests.support.chains import Chain, executor_of

ROWS, WIDTH = 9, 10
CAST = (None,) * 6


def results(graph: Graph, inputs: list[Any]) -> tuple[list[str], list[Any]]:
    """The operators that run, and the outputs of each call."""
    fused = optimized(graph, open_device().limits)
    executor = executor_of(fused, open_device())
    found = []
    for given in inputs:
        executor.poison()
        found.append(executor.execute(given))
    executor.close()
    return [node.name for node in fused.nodes], found


def drawn(kind: str, rows: int) -> np.ndarray:
    values = np.random.default_rng(rows).uniform(-300, 300, (rows, WIDTH))
    values.reshape(-1)[:3] = (0, 0.25, -0.25)
    return values.astype(kind)


KINDS = ("float32", "float16", "int32", "int64", "bool", "uint8", "int8")


@pytest.mark.parametrize(
    ("source", "target"),  # what floats beyond a byte are in one is left open
    [(source, target) for source in KINDS for target in KINDS if "float" not in source or "int8" not in target],
)
def test_a_cast_between_pointwise_operators_is_torchs(source: str, target: str) -> None:
    chain = Chain()
    shape = (ROWS, WIDTH)
    x = chain.input(shape, source)
    twice = chain.node("aten.add.Tensor", x, x, 1, chain.tensor(shape, source))
    copy = chain.node("aten.clone.default", twice, None, chain.tensor(shape, source))
    cast = chain.node("aten._to_copy.default", copy, *CAST, chain.tensor(shape, target))
    last = chain.node("aten.add.Tensor", cast, cast, 1, chain.tensor(shape, target))
    operators, found = results(chain.graph(last), [[drawn(source, rows)] for rows in (ROWS, 1, 4, ROWS)])
    assert operators == ["liveshape.pointwise"]
    for rows, (got,) in zip((ROWS, 1, 4, ROWS), found, strict=True):
        given = torch.from_numpy(drawn(source, rows))
        want = (given + given).to(getattr(torch, target))
        np.testing.assert_array_equal(got, (want + want).numpy())


@pytest.mark.parametrize("rows", [3, 1, 8, 2, 9])
def test_bytes_of_a_picture_are_normalized_in_one_dispatch(rows: int) -> None:
    chain = Chain()
    picture, mean = chain.input((9, 3, 5), "uint8"), chain.input((3, 1))
    floats = chain.node("aten._to_copy.default", picture, *CAST, chain.tensor((9, 3, 5)))
    scaled = chain.node("aten.div.Scalar", floats, 255.0, chain.tensor((9, 3, 5)))
    last = chain.node("aten.sub.Tensor", scaled, mean, 1, chain.tensor((9, 3, 5)))
    made = np.random.default_rng(rows)
    given = made.integers(0, 256, (rows, 3, 5)).astype("uint8"), made.standard_normal((3, 1)).astype("float32")
    operators, ((got,),) = results(chain.graph(last), [list(given)])
    assert operators == ["liveshape.pointwise"]
    x, less = map(torch.from_numpy, given)
    np.testing.assert_allclose(got, (x.double() / 255 - less).numpy(), atol=1e-6)


@pytest.mark.parametrize("rows", [3, 1, 8, 2, 9])
def test_complex_numbers_are_fused_with_real_ones(rows: int) -> None:
    """A turn by an angle for each column, and the magnitude of that: one dispatch of a tree of both kinds."""
    chain = Chain()
    z, angle, mask = chain.input((9, 5), "complex64"), chain.input((5,)), chain.input((9, 1), "bool")
    one = chain.node("aten.scalar_tensor.default", 1, *(None,) * 4, chain.tensor(()))
    turn = chain.node("aten.polar.default", one, angle, chain.tensor((5,), "complex64"))
    turned = chain.node("aten.mul.Tensor", z, turn, chain.tensor((9, 5), "complex64"))
    kept = chain.node("aten.where.self", mask, turned, z, chain.tensor((9, 5), "complex64"))
    more = chain.node("aten.add.Tensor", kept, angle, 2, chain.tensor((9, 5), "complex64"))
    last = chain.node("aten.abs.default", more, chain.tensor((9, 5)))
    same = chain.node("aten.eq.Tensor", kept, z, chain.tensor((9, 5), "bool"))
    made = np.random.default_rng(rows)
    values = made.standard_normal((rows, 5)) + 1j * made.standard_normal((rows, 5))
    inputs = [values.astype("complex64"), made.uniform(-9, 9, 5).astype("float32"), made.random((rows, 1)) < 0.5]
    operators, ((got, alike),) = results(chain.graph(last, same), [inputs])
    # What two of them read is a node, and a turn of five numbers, which costs less than a dispatch, is none.
    assert sorted(operators) == ["aten.eq.Tensor", *["liveshape.pointwise"] * 2]
    x, radians, flags = map(torch.from_numpy, inputs)
    want = torch.where(flags, x * torch.polar(torch.ones(5), radians), x)
    np.testing.assert_allclose(got, (want + 2 * radians).abs().numpy(), atol=1e-5)
    np.testing.assert_array_equal(alike, np.broadcast_to(~inputs[2], alike.shape))


@pytest.mark.parametrize("kind", ["float32", "float16", "int64", "bool"])
def test_a_fill_is_a_number_of_the_expression(kind: str) -> None:
    chain = Chain()
    shape = (ROWS, WIDTH)
    x, mask, number = chain.input(shape, kind), chain.input(shape, "bool"), chain.scalar(given=True)
    low = chain.node("aten.full_like.default", x, number, *(None,) * 5, chain.tensor(shape, kind))
    one = chain.node("aten.scalar_tensor.default", 2, *(None,) * 4, chain.tensor((), kind))
    kept = chain.node("aten.where.self", mask, low, x, chain.tensor(shape, kind))
    last = chain.node("aten.maximum.default", kept, one, chain.tensor(shape, kind))
    calls: list[Any] = [[drawn(kind, rows), drawn("bool", rows), rows] for rows in (ROWS, 1, 4, ROWS)]
    operators, found = results(chain.graph(last), calls)
    assert operators == ["liveshape.pointwise"]
    for (values, flags, rows), (got,) in zip(calls, found, strict=True):
        given, one_of = torch.from_numpy(values), torch.full((), 2).to(getattr(torch, kind))
        want = torch.maximum(torch.where(torch.from_numpy(flags), torch.full_like(given, rows), given), one_of)
        np.testing.assert_array_equal(got, want.numpy())


def test_a_fill_that_says_the_shape_stays() -> None:
    """Where nothing else of the expression has its size it is a tensor."""
    chain = Chain()
    x, row = chain.input((ROWS, WIDTH)), chain.input((1, WIDTH))
    ones = chain.node("aten.full_like.default", x, 2, *(None,) * 5, chain.tensor((ROWS, WIDTH)))
    last = chain.node("aten.mul.Tensor", ones, row, chain.tensor((ROWS, WIDTH)))
    calls: list[Any] = [[drawn("float32", rows), drawn("float32", 1)] for rows in (ROWS, 1, 4)]
    operators, found = results(chain.graph(last), calls)
    assert operators == ["aten.full_like.default", "aten.mul.Tensor"]
    for (values, one), (got,) in zip(calls, found, strict=True):
        np.testing.assert_array_equal(got, np.full_like(values, 2) * one)


def test_whole_numbers_above_24_bits_stay_whole_behind_what_computes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """An expression of what lies in the memory of the result reads it as what it is."""
    monkeypatch.setattr(composed, "_with_expression", lambda *_: None)
    chain = Chain()
    x = chain.input((ROWS, WIDTH), "int32")
    total = chain.node("aten.cumsum.default", x, 1, None, chain.tensor((ROWS, WIDTH), "int32"))
    first = chain.node("aten.amax.default", total, (1,), True, chain.tensor((ROWS, 1), "int32"))
    last = chain.node("aten.add.Scalar", first, 1, 1, chain.tensor((ROWS, 1), "int32"))
    given = np.full((4, WIDTH), 123_456_789 // WIDTH, np.int32)
    _, ((got,),) = results(chain.graph(last), [[given]])
    np.testing.assert_array_equal(got, given.sum(1, keepdims=True) + 1)


@pytest.mark.parametrize("viewed", ["liveshape.move", "aten.view_copy.default"])
def test_what_is_read_beside_a_view_of_it_is_there(viewed: str) -> None:
    chain = Chain()
    shape = (ROWS, WIDTH)
    x, weight = chain.input(shape), chain.constant(drawn("float32", WIDTH)[:, :WIDTH])
    product = chain.node("aten.mm.default", x, weight, chain.tensor(shape))
    view = chain.node(viewed, product, *(((-1, WIDTH),) if "view" in viewed else ()), chain.tensor(shape))
    last = chain.node("aten.mul.Tensor", view, product, chain.tensor(shape))
    _, found = results(chain.graph(last), [[drawn("float32", rows)] for rows in (ROWS, 1, 4)])
    for rows, (got,) in zip((ROWS, 1, 4), found, strict=True):
        want = drawn("float32", rows).astype("float64") @ drawn("float32", WIDTH)[:, :WIDTH]
        np.testing.assert_allclose(got, want * want, 1e-4, 1e3)


@pytest.mark.parametrize("first", ["log2", "log10", "hardswish"])
@pytest.mark.parametrize("second", ["gelu", "exp", "sin"])
def test_no_driver_joins_the_factors_of_two_functions(first: str, second: str) -> None:
    """Bits are those of separate kernels: literal factors of neighbours would become one, rounded once."""
    chain = Chain()
    shape = (64, WIDTH)
    x = chain.input(shape)
    inner = chain.node(f"aten.{first}.default", x, chain.tensor(shape))
    extra = ("none",) if second == "gelu" else ()
    graph = chain.graph(chain.node(f"aten.{second}.default", inner, *extra, chain.tensor(shape)))
    given = np.random.default_rng(0).uniform(0.3, 2, shape).astype(np.float32)
    (plain,) = executor_of(graph, open_device()).execute([given])
    _, ((fused,),) = results(graph, [[given]])
    assert fused.tobytes() == plain.tobytes()
