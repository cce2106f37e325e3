"""Archives of arrays that anybody may have written: what is asked for is read, in bounds, and all else is one error."""

from __future__ import annotations

import io
import json
import random
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape.check.cases import Case
from liveshape.errors import FormatError, InputError
from liveshape.run.array_files import read_arrays

ARRAYS = {
    "x": np.arange(6, dtype=np.float32).reshape(2, 3),
    "by columns": np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
    "scalar": np.array(2.5),
    "nothing": np.zeros((0, 4), np.int8),
}


def member(array: Any, shape: tuple[int, ...] | None = None, version: tuple[int, int] = (1, 0)) -> bytes:
    """A `.npy`, whose header may say another shape than it has."""
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version)
    data = file.getvalue()
    return data if shape is None else data.replace(str(array.shape).encode(), str(shape).encode())


def archive(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return path


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_numpy_wrote(save: Any, tmp_path: Path) -> None:
    save(tmp_path / "a.npz", **ARRAYS)
    found = read_arrays(tmp_path / "a.npz")
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    assert read_arrays(tmp_path / "a.npz", ["scalar", "absent"]).keys() == {"scalar"}


def test_a_member_that_nobody_named_is_not_unpacked(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.npz", {"junk.npy": bytes(64 << 20), "x.npy": member(ARRAYS["x"], version=(2, 0))})
    tracemalloc.start()
    np.testing.assert_array_equal(read_arrays(path, ["x"])["x"], ARRAYS["x"])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.parametrize(
    ("members", "compression", "reason"),
    [
        ({"x.npy": member(np.zeros(1 << 20, np.uint8))}, zipfile.ZIP_DEFLATED, "bytes when unpacked, at most 65536"),
        ({"x.npy": member(np.zeros(9), (10**9,))}, zipfile.ZIP_DEFLATED, "8000000000 bytes when unpacked"),
        ({"x.npy": member(np.zeros(19), (17,))}, zipfile.ZIP_STORED, "136 bytes, and has more"),
        ({"x.npy": member(np.zeros(19), (21,))}, zipfile.ZIP_STORED, "168 bytes, and has 152"),
        ({"x.npy": member(np.zeros(9))}, zipfile.ZIP_LZMA, "in a way that numpy does not write"),
        ({"x.npy": member(np.array(["text"]))}, zipfile.ZIP_STORED, "arrays are of numbers"),
        ({"x.npy": b"\x93NUMPY\x03\x00"}, zipfile.ZIP_STORED, "version"),
        ({"x.npy": b"text"}, zipfile.ZIP_STORED, "x.npz"),
    ],
)
def test_what_is_no_array_or_too_large(members: Any, compression: int, reason: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "x.npz", members, compression)
    with pytest.raises(FormatError, match=reason) as caught:
        read_arrays(path, most=1 << 16)
    assert str(path) in str(caught.value)


CASE: dict[str, Any] = {
    "version": 1, "operator": "aten.relu.default", "label": "n", "tolerance": 1e-4,
    "values": [{"dtype": "float32", "shape": [2, 3], "constant": False, "name": name} for name in "xy"],
    "args": [{"value": 0}, {"value": 1}],
}  # fmt: skip


def case_file(path: Path, case: Any) -> Path:
    arrays = {"case": np.frombuffer(json.dumps(case).encode(), np.uint8), "given 0": ARRAYS["x"], "want 1": ARRAYS["x"]}
    np.savez_compressed(path, **arrays)
    return path


@pytest.mark.parametrize(
    "change",
    [
        {"operator": []}, {"args": 5}, {"args": [{"value": 9}, {"value": 1}]}, {"values": None}, {"tolerance": {}},
        {"values": [{"initial": {}}, *CASE["values"]]}, {"args": [{"value": 1}, {"value": 0}]},
        {"values": [{**CASE["values"][0], "dtype": "text"}, CASE["values"][1]]},
        {"values": [{**CASE["values"][0], "shape": [-1]}, CASE["values"][1]]},
        {"values": [{**CASE["values"][0], "shape": [1e400]}, CASE["values"][1]]},
        {"values": [{**CASE["values"][0], "constant": True}, CASE["values"][1]]},
    ],
)  # fmt: skip
def test_a_case_of_other_parts_is_refused(change: Any, tmp_path: Path) -> None:
    assert Case.load(case_file(tmp_path / "whole.npz", CASE)).node.name == "aten.relu.default"
    with pytest.raises((FormatError, InputError)):
        Case.load(case_file(tmp_path / "case.npz", {**CASE, **change}))


def test_flipped_and_cut_cases_end_in_an_error_of_ours_or_load(tmp_path: Path) -> None:
    whole = case_file(tmp_path / "whole.npz", CASE).read_bytes()
    chance, refused = random.Random(7), 0
    for turn in range(300):
        data = bytearray(whole)
        if turn % 3:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        else:
            del data[chance.randrange(len(data)) :]
        (tmp_path / "case.npz").write_bytes(data)
        try:
            Case.load(tmp_path / "case.npz")
        except (FormatError, InputError):
            refused += 1
    assert refused > 150
