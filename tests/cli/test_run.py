"""`liveshape run`: inputs from files or random ones, and what is refused."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import liveshape
from liveshape.metadata import TensorInfo
from liveshape.tools.commands.run import make_inputs
from tests.cli.calls import Capture, call
from tests.runtime.files import LENGTH, several


def test_run_with_random_inputs(capsys: Capture) -> None:
    code, out, _ = call(capsys, "run", several(), "--input-shapes", "1x7x64", "--repeat", 3)
    assert code == 0
    assert "forward(1x7x64)" in out
    assert "median of 2" in out
    code, out, _ = call(capsys, "run", several(), "--json", "--print-output", "all", "--num-executions", 2)
    document = json.loads(out)
    assert (code, len(document["milliseconds"])) == (0, 2)
    assert np.shape(document["outputs"][0]["values"]) == (1, LENGTH, 64)


def test_run_with_files(capsys: Capture, tmp_path: Path) -> None:
    x, y = np.full((5, 8), 2, np.float32), np.full((5, 8), 3, np.float32)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "y.npz", y=y)
    x.tofile(tmp_path / "x.bin")
    result = tmp_path / "out.npz"
    common = ("run", several(), "--method", "sums", "--print", "none", "--output-file", result)
    assert call(capsys, *common, "--inputs", tmp_path / "x.npy", tmp_path / "y.npz")[0] == 0
    with np.load(result) as outputs:
        np.testing.assert_array_equal(outputs["output_0"], x + y)
        np.testing.assert_array_equal(outputs["output_1"], y + 1.5)
    raw = f"{tmp_path / 'x.bin'},{tmp_path / 'x.bin'}"
    assert call(capsys, *common, "--inputs", raw, "--input-shapes", "5x8,5x8")[0] == 0
    with np.load(result) as outputs:
        np.testing.assert_array_equal(outputs["output_0"], x + x)


def test_run_is_repeatable_by_its_seed(capsys: Capture, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        call(capsys, "run", several(), "--seed", seed, "--output-file", tmp_path / f"{name}.npy")
    first, again, other = (np.load(tmp_path / f"{name}.npy") for name in "abc")
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.usefixtures("no_adapter")
def test_run_a_constant_method_without_a_gpu(capsys: Capture) -> None:
    code, out, _ = call(capsys, "run", several(), "--method", "get_max_seq_len")
    assert code == 0
    assert str(LENGTH) in out


def test_a_wrong_rank_is_told_as_such(capsys: Capture) -> None:
    code, _, err = call(capsys, "run", several(), "--input-shapes", "1x7")
    assert code == 2
    assert "rank 2 was given, 3 is needed" in err
    with liveshape.load(several()) as model, pytest.raises(liveshape.ShapeError, match="rank 1 was given, 3 is needed"):
        model(np.zeros(64, np.float32))


@pytest.mark.parametrize("shapes", ["1x7", "1x7x64,1", "1,7,64", "1x44x64", "seven", "-1x7x64", ""])
def test_a_wrong_shape_is_explained_with_the_inputs_of_the_program(capsys: Capture, shapes: str) -> None:
    code, _, err = call(capsys, "run", several(), f"--input-shapes={shapes}")
    assert code == 2
    assert "input 0: float32 up to 1x43x64" in err
    assert "--input-shapes 1x43x64" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--output-file", "out.txt"), ".npz"),
        (("--method", "sums", "--output-file", "out.npy"), "a .npy holds one array"),
        (("--method", "backward"), "it has forward"),
        (("--inputs", "x.txt"), ".npy, .npz or .bin"),
        (("--inputs", "missing.npy"), "No such file"),
    ],
)
def test_wrong_input_is_2(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = call(capsys, "run", several(), *arguments)
    assert code == 2
    assert message in err


def write_npz_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(20 << 20))


def npy_header(shape: str, dtype: str = "'<f4'") -> bytes:
    text = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}}}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


INPUT_FILES: dict[str, tuple[str, bytes]] = {
    "empty npy": (".npy", b""),
    "text npy": (".npy", b"hello world"),
    "cut npy": (".npy", npy_header("(1, 2, 64)") + bytes(16)),
    "terabytes npy": (".npy", npy_header("(1000000, 1000000)") + bytes(64)),
    "beyond npy": (".npy", npy_header("(" + "9" * 400 + ",)")),
    "negative npy": (".npy", npy_header("(-1, 2)") + bytes(64)),
    "code npy": (".npy", npy_header("__import__('os')")),
    "deep npy": (".npy", npy_header("(" * 110)),
    "pickle npy": (".npy", npy_header("(1,)", "'|O'") + b"cos\nsystem\n(S'false'\ntR."),
    "no dtype npy": (".npy", npy_header("(1,)", "'zz'")),
    "zip as npy": (".npy", b"PK\x03\x04" + bytes(40)),
    "empty npz": (".npz", b""),
    "text npz": (".npz", b"hello world"),
    "cut npz": (".npz", b"PK\x03\x04" + bytes(40)),
    "short bin": (".bin", bytes(5)),
    "long bin": (".bin", bytes(1 << 20)),
    "text": (".txt", b"1 2 3"),
    "of another dtype": (".npy", npy_header("(1, 2, 64)", "'<f8'") + bytes(1024)),
    "of another shape": (".npy", npy_header("(2, 64)") + bytes(512)),
}


@pytest.mark.parametrize("name", INPUT_FILES)
def test_input_files_that_are_none(capsys: Capture, tmp_path: Path, name: str) -> None:
    suffix, content = INPUT_FILES[name]
    path = tmp_path / f"x{suffix}"
    path.write_bytes(content)
    code, _, err = call(capsys, "run", several(), "--inputs", path)
    assert code == 2
    assert err.startswith("liveshape: ")
    assert "Traceback" not in err
    assert str(path) in err or "input 0" in err
    assert len(err.splitlines()) == 1


def test_archives_that_unpack_to_more_than_anything_takes(capsys: Capture, tmp_path: Path) -> None:
    write_npz_bomb(tmp_path / "x.npz")
    code, _, err = call(capsys, "run", several(), "--inputs", tmp_path / "x.npz")
    assert code == 2
    assert "bytes when unpacked" in err
    np.savez(tmp_path / "y.npz", x=np.array([None]))
    assert call(capsys, "run", several(), "--inputs", tmp_path / "y.npz")[0] == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("--inputs", "."),
        ("--inputs", ","),
        ("--seed", "-1"),
        ("--input-shapes", "9" * 5000),
        ("--input-shapes", "1x٣x64"),
    ],
)
def test_arguments_that_are_none(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = call(capsys, "run", several(), *arguments)
    assert code == 2
    assert err.startswith("liveshape: ")


def test_inputs_that_have_no_random_form() -> None:
    assert make_inputs([TensorInfo("input 0", "NoneType", (), False)], None, None) == [None]
    for dtype in ("str", "tuple", "complex32", "float8_e5m2"):
        with pytest.raises(liveshape.InputError, match="input 0"):
            make_inputs([TensorInfo("input 0", dtype, (2,), False)], None, None)
    with pytest.raises(liveshape.InputError, match="smaller --input-shapes"):
        make_inputs([TensorInfo("input 0", "float32", (1 << 31, 1 << 31), True)], None, None)


def test_values_that_are_no_numbers_are_counted(capsys: Capture, tmp_path: Path) -> None:
    x = np.zeros((1, 2, 64), np.float32)
    x[0, 0, 0] = np.nan
    np.save(tmp_path / "x.npy", x)
    document = json.loads(call(capsys, "run", several(), "--inputs", tmp_path / "x.npy", "--json")[1])
    assert document["outputs"][0]["nan"] == 64
    assert document["outputs"][0]["max"] == 0
