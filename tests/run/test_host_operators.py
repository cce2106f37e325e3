"""Operators of the host fallback by themselves: numpy and torch compute the same, in every dtype and at live rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from liveshape.device.backends import open_device
from liveshape.formats.dtypes import SCALAR_TYPES
from liveshape.run.arrays import as_dtype
from liveshape.run.host import _NUMPY, find_on_host
from liveshape.run.torch_host import torch_operator
from tests.run.test_host import MAX, rows
from tests.support.chains import Chain, executor_of


@pytest.mark.parametrize("name", sorted(_NUMPY))
def test_numpy_computes_what_torch_does(name: str) -> None:
    by_torch, by_numpy = torch_operator(name), _NUMPY[name]
    assert not isinstance(by_torch, str)
    assert (by_torch.inputs, by_torch.many, by_torch.mutates) == (by_numpy.inputs, by_numpy.many, by_numpy.mutates)
    draw = np.random.default_rng(1)
    whole = "gcd" in name
    for shape in ((3, 3), (7, 3), (1, 3), (0, 3)):
        arrays = [draw.integers(-9, 9, shape).astype(np.int64 if whole else np.float32) for _ in range(2)]
        rest = {"cumprod": [arrays[0], 0, None], "trace": [arrays[0]], "linalg_cross": [*arrays, -1]}
        given = next((row for word, row in rest.items() if word in name), arrays)
        dtypes = ["int64" if whole else "float32"]
        (got,), (want,) = by_numpy.function(given, dtypes), by_torch.function(given, dtypes)
        np.testing.assert_allclose(got, want, 1e-6)
        assert np.asarray(got).shape == np.asarray(want).shape


_DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64", "complex64")


def _drawn(dtype: str, draw: Any) -> Any:
    """Small numbers, zeros among them, in which products are exact; NaN and infinity where there are such."""
    array = draw.integers(0 if dtype in ("bool", "uint8") else -3, 4, (5, 3))
    if dtype == "complex64":
        return (array + 1j * draw.integers(-3, 4, (5, 3))).astype(dtype)
    array = array.astype(dtype)
    if array.dtype.kind == "f":
        array[0] = np.nan, np.inf, -np.inf
    return array


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("name", sorted({name.split("::")[1].removesuffix(".out") for name in _NUMPY if "::" in name}))
def test_numpy_computes_what_torch_does_in_every_dtype(name: str, dtype: str) -> None:
    draw = np.random.default_rng(3)
    first, second = _drawn(dtype, draw), _drawn(dtype, draw)
    finite = np.where(np.isfinite(first), first, 1).astype(dtype)
    kinds = [number for number, kind in SCALAR_TYPES.items() if kind in _DTYPES]
    calls: list[list[Any]] = {
        "cumprod": [[first, 0, None], *([finite, 1, number] for number in kinds)],
        "trace": [[first]],
        "linalg_cross": [[finite, finite[::-1], -1], [finite, second[1:2], 1]],
    }.get(name, [[first, second], [first, second[:1]]])
    by_torch = torch_operator(f"aten.{name}.default")
    assert not isinstance(by_torch, str)
    for arguments in calls:
        try:
            (want,) = by_torch.function(arguments, [None])
        except RuntimeError:  # no operator of torch in this dtype
            continue
        (got,) = _NUMPY[f"aten::{name}.out"].function(arguments, [str(want.dtype)])
        got = as_dtype("out", np.asarray(got), str(want.dtype))
        np.testing.assert_array_equal(got, want)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)


def test_marked_conjugates_and_negatives_are_numbers_to_numpy() -> None:
    x = np.array([1 + 2j, 3 - 4j], np.complex64)
    for name, want in (("aten::_conj", x.conj()), ("aten::_neg_view", -x), ("aten::resolve_conj", x)):
        operator = torch_operator(name)
        assert not isinstance(operator, str)
        np.testing.assert_array_equal(operator.function([x], ["complex64"])[0], want)


_ROWS: dict[str, tuple[Any, Any]] = {
    "aten::cumprod.out": (lambda x: (x, 0, None), lambda x: torch.cumprod(x, 0)),
    "aten::logcumsumexp.out": (lambda x: (x, 1), lambda x: torch.logcumsumexp(x, 1)),
    "aten::triu.out": (lambda x: (x, 1), lambda x: torch.triu(x, 1)),
    "aten::sinc.out": (lambda x: (x,), torch.sinc),
    "aten::fmax.out": (lambda x: (x, x), lambda x: torch.fmax(x, x)),
    "aten::rot90.out": (lambda x: (x, 2, (0, 1)), lambda x: torch.rot90(x, 2)),
    "aten::renorm.out": (lambda x: (x, 2, 0, 1), lambda x: torch.renorm(x, 2, 0, 1)),
}


def _chained(names: list[str], sizes: list[int], width: int) -> None:
    chain = Chain()
    value = chain.input((MAX, width))
    for name in names:
        value = chain.on_host(name, *_ROWS[name][0](value), chain.tensor((MAX, width)))
        value = chain.node("aten.tanh.default", value, chain.tensor((MAX, width)))
    executor = executor_of(chain.graph(value), open_device())
    for size in sizes:
        expected = torch.from_numpy(rows(size, width))
        for name in names:
            expected = torch.tanh(_ROWS[name][1](expected))
        executor.poison()
        np.testing.assert_allclose(executor.execute([rows(size, width)])[0], expected.numpy(), 1e-4, 1e-5)


_DRAWN = {
    "names": st.lists(st.sampled_from(sorted(_ROWS)), min_size=1, max_size=4),
    "sizes": st.lists(st.integers(1, MAX), min_size=1, max_size=4),
    "width": st.integers(1, 9),
}


@settings(max_examples=8, deadline=None)
@given(**_DRAWN)
def test_rows_of_host_operators(names: list[str], sizes: list[int], width: int) -> None:
    _chained(names, sizes, width)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(**_DRAWN)
def test_many_rows_of_host_operators(names: list[str], sizes: list[int], width: int) -> None:
    _chained(names, sizes, width)


def test_what_a_delegate_packs_is_not_for_torchs_operator_of_that_name() -> None:
    import executorch.backends.vulkan.custom_ops_lib  # noqa: F401  registers it

    find_on_host.cache_clear()
    found = find_on_host("et_vk.q8ta_linear.default")
    assert isinstance(found, str)
    assert "packs its arguments otherwise" in found


@pytest.mark.parametrize("name", ["aten.sort.default", "aten::sort.values", "aten.topk.default", "aten::topk.values"])
def test_equals_keep_their_order(name: str) -> None:
    """Torch leaves it open, and random graphs saw the host by it."""
    found = torch_operator(name)
    assert not isinstance(found, str)
    x = np.array([[2.0, 1.0] * 20], np.float16)
    given = (1, False) if "sort" in name else (40, 1, False, True)
    _, places = found.function([x, *given], ["float16", "int64"])
    assert places.tolist() == [[*range(1, 40, 2), *range(0, 40, 2)]]
