"""Numbers of the form of `liveshape web`, in Node without a page: stored as they were given, or refused."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.browser import node

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).parents[2] / "liveshape" / "tools" / "web_page" / "page_source"
# As the page has them, one behind the other.
SCRIPT = "".join((SOURCE / name).read_text() for name in ("dtypes.js", "npy.js", "contents.js"))
TASKS = """
const [task, ...given] = JSON.parse(process.argv[1]);
const tasks = {
  typed: (dtype, text) => typedTensor(dtype, [text.trim().split(/[ ,]+/).length], text),
  scalar: (dtype, text) => ({ data: [typedScalar(dtype, text)] }),
  file: (dtype, bytes) => cast(readNpy(Uint8Array.from(bytes).buffer, "x.npy"), dtype),
};
try {
  console.log(JSON.stringify([...tasks[task](...given).data].map(String)));
} catch (error) {
  console.log(JSON.stringify(error.message));
}
"""


def in_node(task: str, *given: Any) -> Any:
    """The numbers of a tensor as texts, or what is told."""
    command = [node(), "-e", SCRIPT + TASKS, json.dumps([task, *given])]
    return json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)


def saved(numbers: Any) -> list[int]:
    file = io.BytesIO()
    np.save(file, numbers)
    return list(file.getvalue())


@pytest.mark.parametrize(
    ("dtype", "text", "wanted"),
    [
        ("uint8", "0 255 2.0 1e2 0x10 2.50e1", "0 255 2 100 16 25"),
        ("bool", "true False 1 0", "1 0 1 0"),
        ("int32", "-2147483648, +2147483647", "-2147483648 2147483647"),
        ("int64", "9007199254740993 -9223372036854775808 1e18", "9007199254740993 -9223372036854775808 1" + "0" * 18),
        ("int64", "9007199254740993.0 900719925474099.3e1 0e999999999", "9007199254740993 9007199254740993 0"),
        ("uint64", "18446744073709551615", "18446744073709551615"),
        ("float32", "0.5 nan inf -inf true 16777217", "0.5 NaN Infinity -Infinity 1 16777216"),
        ("float64", "1e308 1e-400", "1e+308 0"),
    ],
)
def test_typed_numbers(dtype: str, text: str, wanted: str) -> None:
    assert in_node("typed", dtype, text) == wanted.split()


@pytest.mark.parametrize(
    ("dtype", "text", "told"),
    [
        ("uint8", "300 -1", "300 is not in the range of uint8, 0 to 255"),
        ("uint8", "1 -1", "-1 is not in the range of uint8, 0 to 255"),
        ("bool", "2", "2 is not in the range of bool, 0 to 1"),
        ("int32", "3000000000", "3000000000 is not in the range of int32, -2147483648 to 2147483647"),
        ("int64", "9223372036854775808", "9223372036854775808 is not in the range of int64"),
        ("uint64", "-1", "-1 is not in the range of uint64, 0 to 18446744073709551615"),
        ("int8", "2.5", "int8 needs whole numbers, not 2.5"),
        ("int64", "4503599627370497.5", "int64 needs whole numbers, not 4503599627370497.5"),
        ("int32", "1e-500", "int32 needs whole numbers, not 1e-500"),
        ("int32", "nan", "int32 needs whole numbers, not nan"),
        ("int32", "1e999999999", "1e999999999 is too large for int32"),
        ("float32", "1e39", "1e+39 is too large for float32"),
        ("float64", "1e400", "1e400 is too large for float64"),
        *(
            (dtype, word, f"“{word}” is not a number")
            for dtype in ("float32", "int32")
            for word in ("constructor", ".")
        ),
    ],
)
def test_typed_numbers_that_would_become_others(dtype: str, text: str, told: str) -> None:
    assert told in in_node("typed", dtype, text)


@pytest.mark.parametrize(
    ("dtype", "text", "wanted"),
    [
        ("int", "7", ["7"]),
        ("float", "1.5", ["1.5"]),
        ("int", "", "a number is needed"),
        ("int", "1.5", "int needs whole numbers, not 1.5"),
        (
            "int",
            "9007199254740993",
            "9007199254740993 is more than a page can pass on: up to 2^53 - 1, on both sides of 0",
        ),
    ],
)
def test_scalars(dtype: str, text: str, wanted: Any) -> None:
    assert in_node("scalar", dtype, text) == wanted


@pytest.mark.parametrize(
    ("dtype", "numbers", "wanted"),
    [
        ("uint8", np.array([2.0, 255.0]), "2 255"),
        ("int64", np.array([2**63 - 1], np.uint64), "9223372036854775807"),
        ("uint64", np.array([2**53 + 1, 0]), "9007199254740993 0"),
        ("int8", np.array([True, False]), "1 0"),
        ("float32", np.array([1.5, np.inf, np.nan]), "1.5 Infinity NaN"),
        ("float32", np.array([2**24 + 1]), "16777216"),
    ],
)
def test_a_file_of_another_type(dtype: str, numbers: Any, wanted: str) -> None:
    assert in_node("file", dtype, saved(numbers)) == wanted.split()


@pytest.mark.parametrize(
    ("dtype", "numbers", "told"),
    [
        ("uint8", np.array([2.7, 300.2]), "uint8 needs whole numbers, not 2.7; the file is float64"),
        ("uint8", np.array([300.0]), "300 is not in the range of uint8, 0 to 255; the file is float64"),
        (
            "int32",
            np.array([2**31]),
            "2147483648 is not in the range of int32, -2147483648 to 2147483647; the file is int64",
        ),
        ("int64", np.array([2**63], np.uint64), "9223372036854775808 is not in the range of int64"),
        ("int32", np.array([np.nan]), "int32 needs whole numbers, not NaN"),
        ("float32", np.array([1e39]), "1e+39 is too large for float32; the file is float64"),
    ],
)
def test_a_file_whose_numbers_would_become_others(dtype: str, numbers: Any, told: str) -> None:
    found = in_node("file", dtype, saved(numbers))
    assert told in found
    assert f": round or clip it with numpy, and save it as {dtype}" in found
