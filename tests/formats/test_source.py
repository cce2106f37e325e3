"""A file that is cut or written over while it is open is an error before its bytes are read, never the end of us."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from liveshape.errors import FormatError, InputError
from liveshape.formats import open_program, open_tensor_data, parse_vkgraph
from liveshape.formats.source import Source, check_view
from liveshape.graph.constants import Interleaved, all_bytes, pieces

PathOf = Callable[[str], Path]
SIZE = 40_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights.bin"
    path.write_bytes(bytes(range(250)) * (SIZE // 250))
    return path


def write_over(path: Path) -> None:
    """Other bytes in the same file, as `cp` puts them there."""
    before = path.stat()
    path.write_bytes(b"x" * before.st_size)
    # A clock may be too coarse to tell two writes apart; ours are seconds apart.
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 10**9))


READERS: dict[str, Callable[[memoryview], object]] = {
    "check_view": check_view,
    "a slice of a slice": lambda view: check_view(view[100:][:8]),
    "all_bytes": all_bytes,
    "pieces": lambda view: list(pieces(view, 4096)),
    "woven": lambda view: list(Interleaved((view[:64], view[-64:]), (4, 4)).pieces(4)),
    "delegates": parse_vkgraph,
}


@pytest.mark.parametrize("name", READERS)
def test_a_cut_file_is_an_error_before_it_is_read(file: Path, name: str) -> None:
    source = Source(file)
    view = source.view
    os.truncate(file, 1000)
    with pytest.raises(FormatError, match=rf"weights\.bin: .*cut from {SIZE} to 1000 bytes.* open it again"):
        READERS[name](view)
    with pytest.raises(FormatError, match="cut from"):
        source.check()


@pytest.mark.parametrize("name", READERS)
def test_a_file_written_over_is_an_error_too(file: Path, name: str) -> None:
    view = Source(file).view
    write_over(file)
    with pytest.raises(FormatError, match=r"weights\.bin: the file was written to while it was open"):
        READERS[name](view)


def test_a_cut_in_the_middle_of_a_constant(file: Path) -> None:
    stream = pieces(Source(file).view, 4096)
    assert len(next(stream)) == 4096
    os.truncate(file, 5000)
    with pytest.raises(FormatError, match="cut from"):
        next(stream)


def test_a_file_that_was_replaced_or_removed_keeps_its_bytes(file: Path, tmp_path: Path) -> None:
    source = Source(file)
    expected = file.read_bytes()
    other = tmp_path / "other"
    other.write_bytes(b"other")
    os.replace(other, file)
    source.check()
    assert source.view == expected
    file.unlink()
    source.check()
    assert source.view == expected


def test_views_outlive_the_source_and_are_still_checked(file: Path) -> None:
    source = Source(file)
    view = source.view[8:16]
    source.close()
    with pytest.raises(InputError, match="the file is closed"):
        source.check()
    check_view(view)
    os.truncate(file, 12)
    with pytest.raises(FormatError, match="cut from"):
        check_view(view)


def test_bytes_have_no_file_to_lose() -> None:
    source = Source(b"12345678")
    source.check()
    check_view(source.view[2:4])


def test_a_program_says_it_before_any_data_is_taken(tmp_path: Path, program_path: PathOf) -> None:
    path = tmp_path / "program.pte"
    path.write_bytes(program_path("split").read_bytes())
    program = open_program(path)
    blob = program.plans[0].delegates[0].blob
    os.truncate(path, 64)
    takers = (lambda: program.named_data, lambda: program.constant(0), lambda: parse_vkgraph(blob))
    for take in takers:
        with pytest.raises(FormatError, match=r"program\.pte: .*cut from"):
            take()


def test_paths_that_no_file_can_have() -> None:
    with pytest.raises(InputError, match="no path"):
        open_program("a\0b")
    with pytest.raises(InputError, match="no path"):
        open_tensor_data("a\0b")


def test_without_maps_a_file_is_ranges(file: Path) -> None:
    code = f"""
import sys
sys.modules["mmap"] = None
from liveshape.errors import FormatError
from liveshape.formats.source import FileRange, Source, check_view, drop_pages, in_memory
source = Source({str(file)!r})
view = source.view
assert isinstance(view, FileRange) and len(view) == {SIZE}
source.check(), check_view(view[3:]), drop_pages(view)
assert bytes(view[:3]) == bytes(range(3)) and view[2:][:1] == view[2:3] != view[:1]
source.close()
assert in_memory(view[-2:]).tobytes() == bytes(view)[-2:]
open({str(file)!r}, "wb").close()
try:
    bytes(view[:3])
except FormatError as error:
    assert "was cut" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_cut_model_does_not_kill_the_process(tmp_path: Path) -> None:
    """In a process of its own: what this guards against is SIGBUS."""
    code = f"""
import os, shutil
import liveshape
from liveshape.runtime import Runtime
path = {str(tmp_path / "model.pte")!r}
shutil.copy(os.path.join(os.path.dirname(liveshape.__file__), "demo", "story", "model.pte"), path)
program = Runtime.get().load_program(path)
os.truncate(path, 100_000)
try:
    program.load_method("forward")
except liveshape.FormatError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    assert "to 100000 bytes" in done.stdout
