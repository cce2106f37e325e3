"""The numpy of a page beside numpy itself: the same numbers, shapes and types, or an error that says what it lacks."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FILE = Path(__file__).parents[2] / "web" / "python" / "numpy" / "__init__.py"
DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")
NUMBERS = [[0, 1, 2], [3, 100, 5]]


@pytest.fixture(scope="module")
def page() -> Any:
    spec = importlib.util.spec_from_file_location("page_numpy", FILE)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["page_numpy"] = made
    spec.loader.exec_module(made)
    return made


def same(found: Any, wanted: Any) -> None:
    wanted = np.asarray(wanted)
    assert found.dtype.name == wanted.dtype.name
    assert found.shape == wanted.shape
    assert found.item() == wanted.item() if not wanted.shape else found.tolist() == wanted.tolist()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("other", DTYPES)
def test_casts(page: Any, dtype: str, other: str) -> None:
    given = page.array(NUMBERS, dtype), np.array(NUMBERS, dtype)
    same(given[0].astype(other), given[1].astype(other))
    for casting in ("safe", "same_kind"):
        assert page.can_cast(dtype, other, casting) == np.can_cast(dtype, other, casting), casting


@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_and_shapes(page: Any, dtype: str) -> None:
    def results(module: Any) -> list[Any]:
        x = module.array(NUMBERS, dtype)
        return [
            x[0],
            x[1, 2],
            x[:, 1],
            x[-1, ::2],
            x[..., 0],
            x[None],
            x[1:],
            x[2:],
            x.T,
            x.reshape(3, -1),
            x.reshape(-1),
            x[x > 1],
            module.concatenate([x, x[:1]]),
            module.pad(x.reshape(-1), (1, 2)),
            module.frombuffer(x.tobytes(), dtype),
            module.zeros((2, 0), dtype),
            x.min(),
            x.max(),
            x.argmax(),
            x == x[0, 1],
        ]

    for found, wanted in zip(results(page), results(np), strict=True):
        same(found, wanted)


def test_numbers(page: Any) -> None:
    def results(module: Any) -> list[Any]:
        x = module.array([1.5, -2.25, float("inf"), float("nan")], module.float32)
        whole = module.array([1, 0x7FFF, 0xFFFF], module.uint32)
        kept = module.arange(5)
        kept[1:3] = 7
        kept[0] = -1
        return [
            module.isfinite(x),
            module.isnan(x),
            x[:2] + 1,
            2 * x[:2],
            x[:2] - x[:2],
            -x[:2],
            (whole << module.uint32(16)).view(module.float32)[:1],
            (whole >> module.uint32(8)) & module.uint32(0xFF),
            module.where(x > 0, x, module.zeros(4, "float32"))[:3],
            kept,
            module.array([]),
            module.array([True, False]),
            module.array([[1, 2.5]]),
            module.asarray(3),
            module.outer(module.arange(3, dtype="float32"), x[:2]),
            module.clip(x[:2], -1, 1),
            module.concatenate([x[:2].reshape(2, 1), x[1:3].reshape(2, 1)], axis=1),
            3.0 / x[:2],
            module.float32(2) ** (x[:2] * 2),
            module.arange(0, 6, 2, dtype="float32") / module.float32(6),
            module.array([1, 2], module.dtype("<I")),
        ]

    for found, wanted in zip(results(page), results(np), strict=True):
        same(found, wanted)
    angles = np.linspace(-40, 40, 101).astype(np.float32)
    for name in ("cos", "sin"):
        found = getattr(page, name)(page.array(angles.tolist(), "float32"))
        np.testing.assert_allclose(found.tolist(), getattr(np, name)(angles), rtol=0, atol=2e-7)
    for kind in ("int8", "uint16", "int64"):
        assert (page.iinfo(kind).min, page.iinfo(kind).max) == (np.iinfo(kind).min, np.iinfo(kind).max)
    for kind in ("float16", "float32", "float64"):
        assert (page.finfo(kind).max, page.finfo(kind).min) == (float(np.finfo(kind).max), float(np.finfo(kind).min))


@pytest.mark.parametrize("given", [[[1], [1, 2]], ["a"], [None]])
def test_what_is_no_array_is_refused(page: Any, given: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        page.asarray(given)


def test_what_is_missing_says_so(page: Any) -> None:
    with pytest.raises(NotImplementedError, match=r"numpy.cross is not in the numpy of a page"):
        page.cross([1], [2])
    with pytest.raises(NotImplementedError, match="arithmetic between"):
        page.zeros((2, 3)) + page.zeros((3,))
