"""The command line itself: streams, names, help and exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import liveshape
from liveshape.cli import main
from liveshape.device import backends
from tests.cli.calls import Capture, call
from tests.runtime.files import several


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
    seen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", err)  # without colours and moves of the spinner
    assert max(len(line) for line in seen.splitlines()) <= 40


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
