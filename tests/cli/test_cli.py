"""The commands: what they print, and their exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import liveshape
from liveshape.cli import main
from liveshape.device import backends
from liveshape.metadata import TensorInfo
from liveshape.tools.commands.run import make_inputs
from tests.runtime.files import LENGTH, portable, several
from tests.support.programs import programs

Capture = pytest.CaptureFixture[str]


def call(capsys: Capture, *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def no_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends._backends, "wgpu", list)


# The command itself


def test_the_module_is_the_command() -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "liveshape", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LIVESHAPE_DEBUG": ""})

    assert run("--version").stdout == f"liveshape {liveshape.__version__}\n"
    missing = run("inspect", "/nonexistent/model.pte")
    assert missing.returncode == 2
    assert missing.stderr == "liveshape: /nonexistent/model.pte: No such file or directory\n"


def run_command(*arguments: str | bytes, **options: Any) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "LIVESHAPE_DEBUG": "", **options.pop("env", {})}
    command = [sys.executable, "-m", "liveshape", *arguments]
    return subprocess.run(command, stderr=subprocess.PIPE, env=environment, check=False, **options)


def test_streams_that_are_closed_or_full(tmp_path: Path) -> None:
    for closed in (">&-", "2>&-", "<&-", ">&- 2>&- <&-"):
        done = subprocess.run(
            ["sh", "-c", f'exec "$0" -m liveshape ops softmax {closed}', sys.executable],
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, closed
        assert b"Traceback" not in done.stderr
    with open("/dev/full", "wb") as full:
        for arguments, code in ((("ops",), 2), (("--help",), 0)):
            done = run_command(*arguments, stdout=full)
            assert done.returncode == code
            assert b"Traceback" not in done.stderr
            assert b"Exception ignored" not in done.stderr


def test_names_that_are_no_text(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/\xff.pte"
    Path(os.fsdecode(name)).write_bytes(several().read_bytes())
    for environment in ({"PYTHONUTF8": "1"}, {"LC_ALL": "C.UTF-8"}):
        done = run_command("inspect", name, stdout=subprocess.PIPE, env=environment)
        assert done.returncode == 0
        assert b"/?.pte: 5" in done.stdout
    done = run_command(b"\xff", stdout=subprocess.PIPE)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


def test_no_line_breaks_in_the_middle_of_a_word(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from liveshape.cli import _parser

    (commands,) = (each.choices for each in _parser()._actions if isinstance(each.choices, dict))
    wide = {name: " ".join(call(capsys, name, "--help")[1].split()) for name in commands}
    assert len(wide) > 10
    for columns in (60, 80):
        monkeypatch.setenv("COLUMNS", str(columns))
        for name in commands:
            out = call(capsys, name, "--help")[1]
            assert max(map(len, out.splitlines())) <= columns, name
            assert sorted(out.replace("[", " ").replace("]", " ").split()) == sorted(
                wide[name].replace("[", " ").replace("]", " ").split()
            )
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    err = call(capsys, "run", several(), "--input-shapes", "1x7")[2]
    assert "rank 2 was given" in " ".join(err.split())
    assert max(len(line) for line in err.splitlines()) <= 40


def test_colours_are_there_if_they_are_asked_for(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert "\033[" not in call(capsys, "ops", "softmax")[1]
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = call(capsys, "devices")[1]
    assert "\033[" in out
    assert all(adapter.name in out for adapter in backends.list_adapters())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033[3" not in call(capsys, "devices")[1]


def test_the_demo_without_packages_for_text(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    code, out, _ = call(capsys, "demo")
    assert code == 0
    assert "liveshape[llm]" in out
    assert "right at every live shape" in out
    assert "0 buffers created, 0 pipelines compiled" in out


@pytest.mark.parametrize("command", [(), ("devices",), ("inspect",), ("run",), ("bench",), ("profile",), ("demo",)])
def test_help_teaches_with_examples(capsys: Capture, command: tuple[str, ...]) -> None:
    code, out, _ = call(capsys, *command, "--help")
    assert code == 0
    assert "examples:" in out
    assert f"liveshape {' '.join(command)}" in out


@pytest.mark.parametrize(
    "arguments", [(), ("fly",), ("run",), ("run", "m.pte", "--repeat", "0"), ("run", "m.pte", "-z")]
)
def test_wrong_usage_is_2(capsys: Capture, arguments: tuple[str, ...]) -> None:
    code, _, err = call(capsys, *arguments)
    assert code == 2
    assert "usage:" in err


def test_a_bad_file_is_2_and_a_traceback_is_for_debugging(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bad.pte"
    path.write_bytes(several().read_bytes()[:100])
    monkeypatch.setenv("LIVESHAPE_DEBUG", "0")
    code, _, err = call(capsys, "inspect", path)
    assert code == 2
    assert "bad.pte" in err
    assert "Traceback" not in err
    monkeypatch.setenv("LIVESHAPE_DEBUG", "1")
    with pytest.raises(liveshape.FormatError):
        main(["inspect", str(path)])


# devices


def test_devices_lists_and_chooses(capsys: Capture) -> None:
    code, out, _ = call(capsys, "devices")
    listed = backends.list_adapters()
    assert code == 0
    assert all(adapter.name in out for adapter in listed)
    code, out, _ = call(capsys, "devices", "--json", "--device", listed[-1].index)
    document = json.loads(out)
    assert (code, document["chosen"]) == (0, listed[-1].index)
    assert document["adapters"][-1]["max_buffer_bytes"] == listed[-1].max_buffer_bytes


def test_devices_without_the_wanted_one(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVESHAPE_DEVICE", "no such gpu")
    code, out, err = call(capsys, "devices")
    assert code == 3
    assert "adapters" in out
    assert "no such gpu" in err
    names = ", ".join(f"{adapter.name} (index {adapter.index})" for adapter in backends.list_adapters())
    assert f"this machine has {names}\n" in err


@pytest.mark.usefixtures("no_adapter")
def test_no_adapter_is_3_with_the_fix(capsys: Capture) -> None:
    for arguments in (("devices",), ("run", several()), ("inspect", several(), "--device", "nvidia")):
        code, _, err = call(capsys, *arguments)
        assert code == 3
        assert "driver" in err


# inspect


def test_inspect_shows_what_is_there(capsys: Capture) -> None:
    code, out, _ = call(capsys, "inspect", several())
    assert code == 0
    for part in (
        "get_max_seq_len",
        "input 0",
        "1x43x64",
        "dynamic: dimension 1 up to 43\n",
        "et_vk.rms_norm.default",
        "256 B",
        "activations",
    ):
        assert part in out


def test_inspect_as_json(capsys: Capture) -> None:
    code, out, _ = call(capsys, "inspect", several(), "--json")
    document = json.loads(out)
    assert code == 0
    assert document["constant_methods"]["get_eos_ids"] == [1, 2]
    forward, sums = document["methods"]
    assert forward["operators"] == {"et_vk.rms_norm.default": 1, "aten.add.Tensor": 1}
    (taken,) = forward["inputs"]
    dims = taken.pop("dims")
    assert taken == {"name": "input 0", "dtype": "float32", "bounds": [1, LENGTH, 64], "dynamic": True}
    # Only dimension 1 can be planned below its bound, and the file says that the tensor is dynamic.
    assert [(dim["status"], dim["min"], dim["max"]) for dim in dims] == [
        ("static", 1, 1),
        ("dynamic", 0, LENGTH),
        ("static", 64, 64),
    ]
    assert not forward["signature"]
    assert forward["dynamic"] == {"input 0": [1], "output 0": [1]}
    assert forward["constants"]["nbytes"] == 256
    assert (sums["name"], sums["problems"]) == ("sums", [])


@pytest.mark.parametrize("kind", ["several", "language model"])
def test_inspect_predicts_a_load(capsys: Capture, kind: str) -> None:
    path = several() if kind == "several" else Path(liveshape.__file__).parent / "demo" / "story" / "model.pte"
    document = json.loads(call(capsys, "inspect", path, "--json", "--method", "forward")[1])
    opened = backends.open_device()
    opened._pipelines.clear()  # what another program compiled does not count
    compiled = opened.counters.pipelines
    with liveshape.load(path) as model:
        used = vars(model.memory)
    assert document["methods"][0]["memory"] == used
    assert document["methods"][0]["kernels"] == opened.counters.pipelines - compiled


def test_inspect_says_what_was_left_for_later(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from liveshape.plan import routes

    document = json.loads(call(capsys, "inspect", several(), "--json", "--method", "forward")[1])
    assert document["methods"][0]["untried"] == 0
    assert document["methods"][0]["classes"] == document["methods"][0]["planned_nodes"] == 2
    assert "untried" not in call(capsys, "inspect", several(), "--method", "forward")[1]
    monkeypatch.setattr(routes, "_MAX_TRIALS", 3)
    document = json.loads(call(capsys, "inspect", several(), "--json", "--method", "forward")[1])
    left = document["methods"][0]["untried"]
    assert left > 5
    out = call(capsys, "inspect", several(), "--method", "forward")[1]
    assert f"untried: {left} combinations of live sizes, whose kernels compile at first use" in out
    assert "2 nodes after fusion, planned as 2 classes" in out


@pytest.mark.usefixtures("no_adapter")
def test_inspect_needs_no_gpu(capsys: Capture) -> None:
    code, out, _ = call(capsys, "inspect", several())
    assert code == 0
    assert "no adapter here" in out


def test_inspect_names_everything_unsupported(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from liveshape.ops import OPS

    monkeypatch.delitem(OPS, "aten.add.Tensor")
    monkeypatch.delitem(OPS, "et_vk.rms_norm.default")
    for room in ("tools.commands.inspect", "run.host"):
        monkeypatch.setattr(f"liveshape.{room}.find_on_host", lambda name: "nothing on the host knows it")
    code, out, _ = call(capsys, "inspect", several(), "--method", "forward")
    assert code == 4
    assert "2 parts CANNOT RUN" in out
    assert "1 x aten.add.Tensor (node" in out
    assert "outside of the delegate it would run" in out
    assert "outside of the delegate either" in out
    assert call(capsys, "run", several())[0] == 4


def test_what_the_host_computes_is_shown_and_can_be_refused(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from liveshape.ops import OPS

    monkeypatch.delitem(OPS, "aten.add.Tensor")
    code, out, _ = call(capsys, "inspect", several(), "--method", "forward")
    assert code == 0
    assert re.search(r"aten.add.Tensor\s+1\s+ON THE HOST", out)
    assert re.search(r"aten.add.Tensor \(node \d+\)\s+torch", out)
    report = json.loads(call(capsys, "inspect", several(), "--method", "forward", "--json")[1])
    assert [(each["operator"], each["library"]) for each in report["methods"][0]["host"]] == [
        ("aten.add.Tensor", "torch")
    ]
    assert call(capsys, "run", several(), "--print", "none")[0] == 0
    code, _, err = call(capsys, "run", several(), "--strict")
    assert code == 4
    assert "1 x aten.add.Tensor" in err
    assert "load without strict" in err


def test_inspect_shows_what_a_device_cannot_do(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from liveshape.errors import UnsupportedError
    from liveshape.plan import plan_state

    def refuse(*given: Any) -> Any:
        raise UnsupportedError("not this one; nor that one")

    monkeypatch.setattr(plan_state, "specialize", refuse)
    monkeypatch.setattr("liveshape.run.host.find_on_host", lambda name: "nothing on the host knows it")
    code, out, _ = call(capsys, "inspect", several(), "--method", "forward", "--json")
    problems = json.loads(out)["methods"][0]["problems"]
    assert code == 4
    assert ["rms_norm" in problem["node"] for problem in problems] == [True, False]
    assert all("not this one; nor that one" in problem["reason"] for problem in problems)


def test_inspect_tells_free_reads_from_round_trips(capsys: Capture) -> None:
    def reads(name: str) -> list[bool]:
        document = json.loads(call(capsys, "inspect", programs()[name].pte(), "--json")[1])
        return [read["free"] for read in document["methods"][0]["reads"]]

    assert set(reads("position")) == {True}
    assert set(reads("computed_position")) == {False}


def test_inspect_shows_portable_operators(capsys: Capture) -> None:
    document = json.loads(call(capsys, "inspect", portable(), "--json")[1])
    assert document["methods"][0]["portable"] == {"aten::add.out": 2}


# run


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
