"""Files that are written whole or not at all, and only where there is an ordinary file or nothing."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from liveshape.errors import InputError
from liveshape.formats.whole_file import place_of, whole_file


def write(path: Any, content: bytes = b"new") -> None:
    with whole_file(path, "a saved cache") as file:
        file.write(content)


def test_a_file_takes_its_place_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 250)
    path.write_bytes(b"old")
    path.chmod(0o640)
    with whole_file(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_what_stops_it_leaves_no_trace(tmp_path: Path, error: type[BaseException]) -> None:
    (tmp_path / "file").write_bytes(b"old")

    def stopped() -> None:
        with whole_file(tmp_path / "file") as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        stopped()
    assert (tmp_path / "file").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("there", [True, False], ids=["a file", "nothing yet"])
def test_a_link_is_followed(tmp_path: Path, there: bool) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "target"
    if there:
        target.write_bytes(b"old")
    (tmp_path / "link").symlink_to("middle")
    (tmp_path / "middle").symlink_to("elsewhere/target")
    write(tmp_path / "link")
    assert target.read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()
    assert os.listdir(target.parent) == ["target"]


def test_what_is_no_place_for_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("to-pipe").symlink_to("pipe")
    Path("file").write_bytes(b"old")
    Path("loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
    wrong = {
        "": "'' is no path that a saved cache could have",
        ".": r"\. is a folder; give the name of a file for a saved cache",
        "/": "/ is a folder",
        "a\0b": "is no path",
        "pipe": "pipe is no ordinary file but a pipe: a saved cache is not written over it",
        "to-pipe": "to-pipe is no ordinary file but a pipe",
        "socket": "no ordinary file but a socket",
        "/dev/null": "/dev/null is no ordinary file but a device",
        "none/x": "none/x: the folder .*none does not exist; make it first",
        "file/x": "file/x is no place for a saved cache: Not a directory",
        "loop": "loop is no place for a saved cache: Too many levels",
    }
    before = {name: os.lstat(name).st_ino for name in os.listdir()}
    for path, message in wrong.items():
        with pytest.raises(InputError, match=message):
            write(path)
    with pytest.raises(InputError, match="the path of a file is expected, 5 was given"):
        place_of(5)
    assert {name: os.lstat(name).st_ino for name in os.listdir()} == before
