"""What a caller may give as an input: it arrives as it was meant, or an error of ours says what to do. No GPU."""

from __future__ import annotations

import decimal
import fractions
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from liveshape.errors import InputError, LiveshapeError
from liveshape.graph import SymInt, Tensor
from liveshape.run.arrays import checked, stored

DTYPES = ("float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool")
BASE = np.arange(6, dtype=np.float32).reshape(2, 3)


def tensor(dtype: str = "float32", shape: tuple[int, ...] = (2, 3)) -> Tensor:
    return Tensor("input 0", dtype, shape)


# What is taken


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "form",
    {
        "plain": lambda array: array,
        "fortran": np.asfortranarray,
        "transposed": lambda array: np.ascontiguousarray(array.T).T,
        "backwards": lambda array: np.ascontiguousarray(array[::-1, ::-1])[::-1, ::-1],
        "strided": lambda array: np.repeat(np.repeat(array, 2, 0), 3, 1)[::2, ::3],
        "other byte order": lambda array: array.astype(array.dtype.newbyteorder()),
        "matrix": lambda array: array.view(np.matrix),
        "torch": lambda array: torch.from_numpy(array.copy()),
        "torch strided": lambda array: torch.from_numpy(array.T.copy()).T,
        "list": lambda array: array.tolist(),
        "tuples": lambda array: tuple(tuple(row) for row in array.tolist()),
        "list of arrays": list,
    }.items(),
    ids=lambda each: each[0],
)
def test_every_layout_arrives_as_it_was_meant(dtype: str, form: tuple[str, Any]) -> None:
    array = BASE.astype(dtype)
    found = checked(tensor(dtype), form[1](array))
    assert type(found) is np.ndarray
    assert found.dtype == dtype
    assert found.dtype.isnative
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, array)
    assert stored(found, tensor(dtype), True).tobytes() == stored(array, tensor(dtype), True).tobytes()


def test_what_shares_or_guards_its_memory() -> None:
    zero_stride = np.broadcast_to(np.float32(7), (2, 3))
    np.testing.assert_array_equal(checked(tensor(), zero_stride), np.full((2, 3), 7, np.float32))
    read_only = BASE.copy()
    read_only.flags.writeable = False
    np.testing.assert_array_equal(checked(tensor(), read_only), BASE)
    wants_gradient = torch.from_numpy(BASE.copy()).requires_grad_()
    np.testing.assert_array_equal(checked(tensor(), wants_gradient), BASE)
    np.testing.assert_array_equal(checked(tensor(), wants_gradient * 1), BASE)
    np.testing.assert_array_equal(checked(tensor(), torch.ones(1, 1).expand(2, 3)), np.ones((2, 3)))


def test_files_on_disk_are_arrays_too(tmp_path: Path) -> None:
    BASE.tofile(tmp_path / "base.bin")
    mapped = np.memmap(tmp_path / "base.bin", np.float32, "r", shape=(2, 3))
    np.testing.assert_array_equal(checked(tensor(), mapped), BASE)


@pytest.mark.parametrize("shape", [(0,), (2, 0)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_empty_list_has_the_dtype_of_the_input(dtype: str, shape: tuple[int, ...]) -> None:
    bound = tuple(max(size, 1) for size in shape)
    found = checked(tensor(dtype, bound), np.empty(shape).tolist())
    assert (found.shape, found.dtype) == (shape, np.dtype(dtype))


@pytest.mark.parametrize(
    ("dtype", "given"),
    [
        ("int32", [2**31 - 1, -(2**31)]),
        ("int64", [2**31 - 1, -(2**31)]),
        ("uint8", [0, 255]),
        ("int8", [-128, 127]),
        ("float16", [65504.0, -65504.0]),
        ("float32", [3.4e38, float("inf")]),
        ("float32", [1, 2**24]),
    ],
)
def test_python_numbers_at_their_limits(dtype: str, given: list[Any]) -> None:
    assert checked(tensor(dtype, (2,)), given).tolist() == np.asarray(given, dtype).tolist()


# What is refused


@pytest.mark.parametrize(
    ("dtype", "given", "named"),
    [
        ("int32", [2**40 + 5, 1], "1099511627781"),
        ("int32", [1, -(2**40)], "-1099511627776"),
        ("int32", [2**31, 0], "2147483648"),
        ("int64", [2**63, 2**63], "9223372036854775808"),
        ("uint8", [256, 0], "256"),
        ("uint8", [-1, 0], "-1"),
        ("int8", [128, 0], "128"),
        ("float16", [70000.0, 0.0], "70000.0"),
        ("float32", [0.0, -1e39], r"-1e\+39"),
        ("float32", [10**38, -(10**39)], "object"),
    ],
)
def test_python_numbers_that_do_not_fit_are_refused_and_never_wrap(dtype: str, given: list[Any], named: str) -> None:
    with pytest.raises(InputError, match=rf"input 0.*{named}"):
        checked(tensor(dtype, (2,)), given)


@pytest.mark.parametrize(("given", "named"), [([-(2**40), 1], "-1099511627776"), ([1, 2**31], "2147483648")])
def test_the_64_bit_number_that_is_outside_is_the_one_named(given: list[int], named: str) -> None:
    with pytest.raises(InputError, match=rf"input 0: 64-bit values are kept in 32 bits on the device, {named} does"):
        stored(np.asarray(given, np.int64), tensor("int64", (2,)), True)


def test_doubles_that_floats_do_not_have() -> None:
    assert checked(tensor("float64", (2,)), np.array([np.inf, np.nan]))[0] == np.inf
    with pytest.raises(InputError, match=r"input 0: numbers are kept in 32 bits on the device, 1e\+300 does not fit"):
        checked(tensor("float64", (2,)), np.array([1e300, 0]))


class Broken:
    """Something that fails at whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def recursive() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


WEIRD: dict[str, tuple[Any, str]] = {
    "None": (None, "None was given"),
    "masked": (np.ma.array(BASE, mask=BASE > 2), "filled"),
    "masked with nothing masked": (np.ma.array(BASE), "filled"),
    "list of masked": ([np.ma.array(BASE[0], mask=[1, 0, 0]), BASE[1]], "fill them"),
    "brain floats": (torch.zeros(2, 3, dtype=torch.bfloat16), r"\.float\(\)"),
    "meta": (torch.zeros(2, 3, device="meta"), "meta tensor has no numbers"),
    "sparse": (torch.zeros(2, 3).to_sparse(), r"\.to_dense\(\)"),
    "complex": (BASE.astype(np.complex64), r"\.real"),
    "complex torch": (torch.zeros(2, 3, dtype=torch.complex64), r"\.real"),
    "conjugate": (torch.zeros(2, 3, dtype=torch.complex64).conj(), "resolve_conj"),
    "text": ("ab", "text is no tensor"),
    "bytes": (b"ab", "text is no tensor"),
    "texts": ([["a", "b", "c"]] * 2, "text is no tensor"),
    "text array": (np.array([["1", "2", "3"]] * 2), "text is no tensor"),
    "objects": (np.full((2, 3), None), "numbers alone"),
    "list with None": ([[1.0, None, 2.0]] * 2, "numbers alone"),
    "fractions": ([[fractions.Fraction(1, 2)] * 3] * 2, "numbers alone"),
    "decimal": (decimal.Decimal(1), "numbers alone"),
    "ragged": ([[1.0], [1.0, 2.0]], "one length"),
    "recursive": (recursive(), "no array of numbers"),
    "dates": (np.zeros((2, 3), "datetime64[s]"), "give numbers"),
    "records": (np.zeros((2, 3), [("x", "f4")]), "one field"),
    "dictionary": ({"x": 1}, "numbers alone"),
    "set": ({1.0}, "numbers alone"),
    "generator": ((x for x in (1.0, 2.0)), "numbers alone"),
    "class": (np.ndarray, "numbers alone"),
    "function": (len, "numbers alone"),
    "broken": (Broken(), "no array of numbers"),
    "doubles": (BASE.astype(np.float64), r"\.astype\('float32'\)"),
    "doubles the other way round": (BASE.astype(">f8"), r"\.astype\('float32'\)"),
    "integers": (BASE.astype(np.int32), r"\.astype\('float32'\)"),
    "list of bools": ([[True, False, True]] * 2, r"np\.asarray\(\.\.\., 'float32'\)"),
    "huge integers": ([[10**400] * 3] * 2, "numbers alone"),
    "too many dims": (BASE[None], "rank 3 was given, 2 is needed"),
    "too long": (np.zeros((2, 4), np.float32), "live shape"),
    "terabytes": (np.broadcast_to(np.float32(0), (1 << 20, 1 << 20)), "live shape"),
    "a number": (3.0, "rank 0 was given, 2 is needed"),
}


@pytest.mark.parametrize("name", WEIRD)
def test_weird_inputs_are_refused_with_advice(name: str) -> None:
    given, advice = WEIRD[name]
    with pytest.raises(LiveshapeError, match=advice) as caught:
        checked(tensor(), given)
    assert "input 0" in str(caught.value)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WEIRD)
def test_no_foreign_exception_whatever_the_dtype(name: str, dtype: str) -> None:
    """Some of them are right for some dtype; all others are errors of ours."""
    value = tensor(dtype)
    try:
        found = checked(value, WEIRD[name][0])
        stored(found, value, True)
    except LiveshapeError:
        return
    assert (found.dtype, found.ndim) == (np.dtype(dtype), 2)


@pytest.mark.parametrize("given", [[0.5, 1.0], [float("nan")], np.array([1.5])])
def test_floats_are_no_integers(given: Any) -> None:
    with pytest.raises(InputError, match="input 0 is int64, float64 was given"):
        checked(tensor("int64", (2,)), given)


# Numbers


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (0, 3, 3),
        (0, np.int32(3), 3),
        (0, np.uint64(3), 3),
        (0, 3.0, 3),
        (0, np.float32(3), 3),
        (0, True, 1),
        (0, np.bool_(True), 1),
        (0, np.array(3), 3),
        (0, torch.tensor(3), 3),
        (0, -(2**63), -(2**63)),
        (0.0, 3, 3.0),
        (0.0, np.float32(0.5), 0.5),
        (0.0, float("inf"), float("inf")),
        (0.0, torch.tensor(0.5, dtype=torch.bfloat16), 0.5),
        (0.0, np.bool_(True), 1.0),
        (False, True, True),
        (False, np.bool_(True), True),
        (False, 1, True),
        (False, 0.0, False),
    ],
)
def test_numbers_that_mean_the_same(kind: Any, given: Any, expected: Any) -> None:
    found = checked(SymInt("input 1", kind), given)
    assert found == expected
    assert type(found) is type(kind)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (0, 2.5, "round it first"),
        (0, np.float32(2.5), "round it first"),
        (0, float("nan"), "NaN"),
        (0, float("inf"), "infinity"),
        (0, np.float64("-inf"), "infinity"),
        (0, 2**63, "64 bits"),
        (0, 10**400, "64 bits"),
        (0.0, 10**400, "too large"),
        (False, 2, "of type bool, 2 was given"),
        (False, float("nan"), "of type bool"),
        (0, None, "None was given"),
        (0, "3", "'3' was given"),
        (0, b"3", "was given"),
        (0, [3], "list was given"),
        (0, np.array([3]), "ndarray was given"),
        (0, torch.tensor([3]), "Tensor was given"),
        (0, torch.tensor(3, device="meta"), "none can be had"),
        (0, np.ma.masked, "it is masked"),
        (0, 1j, "complex was given"),
        (0, np.complex64(1), "was given"),
        (0, decimal.Decimal(3), "Decimal was given"),
        (0, fractions.Fraction(3), "Fraction was given"),
    ],
)
def test_numbers_that_do_not(kind: Any, given: Any, message: str) -> None:
    with pytest.raises(InputError, match=rf"input 1 .*{message}"):
        checked(SymInt("input 1", kind), given)


def test_a_number_that_fails_at_whatever_is_asked() -> None:
    with pytest.raises(InputError, match=r"input 1 is a number, .*Broken"):
        checked(SymInt("input 1", 0), Broken())


@pytest.mark.parametrize(("value", "given"), [(None, 0), (None, BASE), ("sum", "mean"), ("sum", None), ((1,), [1])])
def test_inputs_that_the_file_has_fixed(value: Any, given: Any) -> None:
    assert checked(value, value) == value
    with pytest.raises(InputError, match="an input is fixed at"):
        checked(value, given)
    with pytest.raises(InputError, match="mask is fixed at"):
        checked(value, given, name="mask")
