"""Sources that are converted at their first use: what is kept, what is another, what a broken one leaves."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from liveshape.errors import FormatError, InputError, StorageError
from liveshape.export import conversions, folder
from liveshape.export.folder import Settings
from liveshape.export.model.checkpoint import Checkpoint
from liveshape.export.model.config import Quantization
from liveshape.export.runnable import Conversion, runnable
from liveshape.export.sources.opening import located, open_checkpoint, runs_as_it_is
from liveshape.llm import load
from liveshape.packages import MissingPackageError
from tests.export.test_readers import WEIGHTS, gguf_of_weights
from tests.export.tiny import LLAMA, write_folder

SMALL = Conversion(max_context=32)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LIVESHAPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    gguf_of_weights(tmp_path / "tiny.gguf")
    return tmp_path / "tiny.gguf"


def converted(source: object, conversion: Conversion = SMALL) -> tuple[Path, str]:
    """The folder of a source, and the line that was told."""
    told: list[str] = []
    with runnable(str(source), conversion, tell=told.append) as path:
        assert (path / "model.pte").exists()
    (line,) = told
    return path, line


def test_the_second_time_is_the_first_one_kept(cache: Path, gguf: Path) -> None:
    path, line = converted(gguf)
    assert line == f"converting {gguf} once, into {path}"
    assert path.parent == cache
    written = (path / "model.pte").stat().st_mtime_ns
    again, line = converted(gguf)
    assert (again, line) == (path, f"{gguf}, as converted before in {path}")
    assert (path / "model.pte").stat().st_mtime_ns == written
    assert [entry.folder for entry in conversions.entries()] == [path]
    assert not list(cache.glob(".*"))


def test_another_source_recipe_or_writer_is_another_entry(
    cache: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = converted(gguf)
    assert converted(gguf, Conversion("none", 32))[0] != first
    assert converted(gguf, Conversion(max_context=64))[0] == first
    assert not any(entry.is_stale for entry in conversions.entries())
    os.utime(gguf, (1, 1))
    changed, line = converted(gguf)
    assert changed != first
    assert line.startswith("converting")
    assert len([entry for entry in conversions.entries() if entry.is_stale]) == 2
    monkeypatch.setattr(conversions, "_writer", lambda: "the next")
    assert converted(gguf)[0] != changed
    assert len(list(cache.iterdir())) == 4


def test_a_file_of_a_folder_counts(cache: Path, tmp_path: Path) -> None:
    write_folder(tmp_path / "model", LLAMA, WEIGHTS)
    first, _ = converted(tmp_path / "model")
    (tmp_path / "model" / "README.md").write_text("not read")
    assert converted(tmp_path / "model")[0] == first
    (tmp_path / "model" / "generation_config.json").write_text('{"eos_token_id": 5}')
    assert converted(tmp_path / "model")[0] != first


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.EIO, "Input/output error")])
def test_what_is_cut_short_leaves_nothing(
    cache: Path, gguf: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(type(error)), runnable(str(gguf), SMALL, progress=stopped_by(error)):
        pass
    assert not list(cache.iterdir())


def stopped_by(error: BaseException) -> Callable[[int, int], None]:
    def stopped(done: int, total: int) -> None:
        raise error

    return stopped


@pytest.mark.parametrize(("keep", "advice"), [(True, "LIVESHAPE_CACHE"), (False, "TMPDIR")])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_names_the_folder_and_what_helps(
    cache: Path, gguf: Path, number: int, keep: bool, advice: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    where = cache if keep else tmp_path / "liveshape-"
    conversion = Conversion(max_context=32, cache=keep)
    full = stopped_by(OSError(number, os.strerror(number)))
    with (
        pytest.raises(StorageError, match=rf"^{re.escape(str(where))}.*(space|quota).*MB are free.*{advice}"),
        runnable(str(gguf), conversion, progress=full),
    ):
        pass
    assert not list(cache.glob("*"))


def test_files_that_may_not_grow(cache: Path, gguf: Path) -> None:
    """The system's own limit, in a process of its own: EFBIG where a disk says ENOSPC."""
    code = f"""
import resource, signal, sys
from liveshape.errors import StorageError
from liveshape.export.runnable import Conversion, runnable
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    with runnable({str(gguf)!r}, Conversion(max_context=32)):
        pass
except StorageError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith(f"{cache}: file too large"), done.stderr
    assert not list(cache.glob("*"))


def test_a_source_that_is_replaced_is_another_whatever_its_time_says(cache: Path, gguf: Path, tmp_path: Path) -> None:
    """As `cp -p`, `rsync -t` and `tar x` do it: same name, same size, same time."""
    os.utime(gguf, (1_700_000_000, 1_700_000_000))
    first, _ = converted(gguf)
    content = bytearray(gguf.read_bytes())
    content[-1] ^= 1
    (tmp_path / "other").write_bytes(content)
    os.utime(tmp_path / "other", (1_700_000_000, 1_700_000_000))
    os.replace(tmp_path / "other", gguf)
    second, line = converted(gguf)
    assert second != first
    assert line.startswith("converting")
    # And in place, where the inode stays.
    content[-1] ^= 3
    gguf.write_bytes(content)
    os.utime(gguf, (1_700_000_000, 1_700_000_000))
    assert converted(gguf)[0] not in (first, second)


def test_an_entry_is_never_written_again(cache: Path, gguf: Path) -> None:
    """Whoever asked before another was done takes what is there."""
    settings = Settings(max_context=32)
    first = conversions.convert(gguf, settings)
    before = (first / "model.pte").stat()
    assert conversions.convert(gguf, settings) == first
    now = (first / "model.pte").stat()
    assert (before.st_ino, before.st_ctime_ns) == (now.st_ino, now.st_ctime_ns)


def test_what_was_left_inside_of_an_entry_is_swept(cache: Path, gguf: Path) -> None:
    first, _ = converted(gguf)
    part = first / ".tiny.1.part"
    (part / "deep").mkdir(parents=True)
    (part / "deep" / "model.pte").write_bytes(b"half")
    size = conversions.Entry(first).size
    assert size > 4
    for path in (part / "deep" / "model.pte", part / "deep", part):
        os.utime(path, (1, 1))
    converted(gguf, Conversion("none", 32))
    assert not part.exists()
    assert conversions.Entry(first).size == size - 4
    assert conversions.Entry(cache / "gone").size == 0


def cut_program(entry: Path) -> None:
    os.truncate(entry / "model.pte", 1000)


def no_tokenizer(entry: Path) -> None:
    (entry / "tokenizer.json").unlink()


def other_settings(entry: Path) -> None:
    file = entry / "generation_config.json"
    file.write_bytes(b"x" * file.stat().st_size)


def no_note(entry: Path) -> None:
    (entry / "conversion.json").write_text("{")


def fifo(entry: Path) -> None:
    (entry / "tokenizer.json").unlink()
    os.mkfifo(entry / "tokenizer.json")


@pytest.mark.parametrize("damage", [cut_program, no_tokenizer, other_settings, no_note, fifo])
def test_a_damaged_entry_is_made_again(damage: Callable[[Path], None], cache: Path, gguf: Path) -> None:
    first, _ = converted(gguf)
    whole = {file.name: file.read_bytes() for file in first.iterdir()}
    damage(first)
    again, line = converted(gguf)
    assert again == first
    assert line.startswith("converting")
    assert {file.name: file.read_bytes() for file in again.iterdir()} == whole
    assert not list(cache.glob(".*"))


def test_a_damaged_entry_is_listed_and_removed(cache: Path, gguf: Path) -> None:
    first, _ = converted(gguf)
    no_note(first)
    (entry,) = conversions.entries()
    assert (entry.folder, entry.source, entry.is_stale) == (first, "", True)
    conversions.remove(entry)
    assert not list(cache.iterdir())


def test_a_source_that_changes_while_it_is_converted(cache: Path, gguf: Path) -> None:
    (gguf.parent / "many").mkdir()
    gguf.rename(gguf.parent / "many" / "a.gguf")
    config = gguf.parent / "many" / "config.jinja"

    def added(done: int, total: int) -> None:
        config.write_text("{{ messages }}")

    with pytest.raises(FormatError, match="was changed while it was converted"):
        conversions.convert(gguf.parent / "many", Settings(max_context=32), added)
    assert not list(cache.iterdir())


def test_whoever_is_second_takes_what_the_first_one_made(
    cache: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at once: the other one ends while this one writes its last bytes."""
    original = folder.write_program
    others: list[Path] = []

    def write_program(program: Any, path: Path, *rest: Any) -> int:
        size = original(program, path, *rest)
        if not others:
            others.append(path)
            others.append(converted(gguf)[0])
        return size

    monkeypatch.setattr(folder, "write_program", write_program)
    path, _ = converted(gguf)
    assert path == others[1]
    assert [each.name for each in cache.iterdir()] == [path.name]
    assert {"model.pte", "tokenizer.json", "conversion.json"} <= {each.name for each in path.iterdir()}


def test_what_a_killed_process_left_is_swept_but_not_what_is_being_made(cache: Path, gguf: Path) -> None:
    for name, age in ((".dead.1.part", 7200), (".alive.2.part", 60)):
        (cache / name).mkdir(parents=True)
        (cache / name / "model.pte").write_bytes(b"half")
        then = time.time() - age
        os.utime(cache / name / "model.pte", (then, then))
        os.utime(cache / name, (then, then))
    converted(gguf)
    assert [each.name for each in cache.glob(".*")] == [".alive.2.part"]


def test_without_the_cache_nothing_stays(cache: Path, gguf: Path) -> None:
    path, line = converted(gguf, Conversion(max_context=32, cache=False))
    assert line == f"converting {gguf} for this time alone"
    assert not path.exists()
    assert not cache.exists()


def test_a_cache_that_cannot_be_written_says_what_to_do(
    tmp_path: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LIVESHAPE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(InputError, match=r"LIVESHAPE_CACHE .* or give --no-cache"), runnable(str(gguf), SMALL):
        pass


def test_load_converts(cache: Path, gguf: Path) -> None:
    told: list[tuple[int, int]] = []
    for keep in (True, False):
        model, tokenizer = load(gguf, max_context=32, quant="none", cache=keep, progress=lambda *at: told.append(at))
        with model:
            assert (model.max_context, tokenizer.vocab_size) == (32, 130)
            assert np.isfinite(model.evaluate([1, 5, 9])).all()
    assert len(list(cache.iterdir())) == 1
    assert told
    with pytest.raises(InputError, match=r"quant '5w': .*none"):
        load(gguf, quant="5w")  # type: ignore[arg-type]


def test_one_conversion_serves_every_context(cache: Path, gguf: Path) -> None:
    ids, rows = [1, 5, 9, 2, 7], []
    for context in (None, 7, 300):
        model, _ = load(gguf, max_context=context)
        with model:
            assert model.max_context == (context or model.trained_context)
            rows.append(model.evaluate(ids))
    assert all(np.array_equal(row, rows[0]) for row in rows)
    (entry,) = conversions.entries()
    assert [file.name for file in entry.folder.glob("*.pte")] == ["model.pte"]


def test_a_model_may_be_refused_before_it_is_converted(cache: Path, gguf: Path) -> None:
    def never(checkpoint: Checkpoint) -> None:
        raise InputError(f"trained for {checkpoint.config.context}")

    for keep in (True, False):
        with pytest.raises(InputError, match="trained for"), runnable(str(gguf), Conversion(cache=keep), check=never):
            pass
    assert not list(cache.glob("*"))


def test_a_tokenizer_that_cannot_be_read_is_told_before_a_model_is_converted(cache: Path, tmp_path: Path) -> None:
    write_folder(tmp_path / "model", LLAMA, WEIGHTS)  # its tokenizer.json is empty
    with pytest.raises(FormatError, match=r"tokenizer\.json"):
        load(tmp_path / "model")
    assert not list(cache.glob("*"))


def test_what_is_a_program_is_taken_as_it_is(tmp_path: Path, cache: Path, gguf: Path) -> None:
    path, _ = converted(gguf)
    for given in (path, path / "model.pte"):
        with runnable(str(given), Conversion()) as found:
            assert found == given
        with runnable(str(given), SMALL) as found:
            assert found == given
        with (
            pytest.raises(InputError, match="a program already, and --quant none cannot"),
            runnable(str(given), Conversion("none")),
        ):
            pass
    (path / "model.pte").rename(tmp_path / "any.bin")
    assert runs_as_it_is(tmp_path / "any.bin")
    with pytest.raises(FileNotFoundError):
        located(str(tmp_path / "nowhere.gguf"))


def test_a_folder_of_several_gguf_files(tmp_path: Path, gguf: Path) -> None:
    (tmp_path / "many").mkdir()
    gguf.rename(tmp_path / "many" / "a.gguf")
    assert open_checkpoint(tmp_path / "many").config.family == "llama"
    (tmp_path / "many" / "b.gguf").write_bytes(b"GGUF")
    with pytest.raises(InputError, match=r"has 2 GGUF files: name one of them, such as .*a\.gguf"):
        open_checkpoint(tmp_path / "many")


def test_settings_are_part_of_the_name(cache: Path, gguf: Path) -> None:
    assert conversions.entry_folder(gguf, Settings(Quantization("none"))).name.startswith("tiny-none-")
    path, _ = converted(gguf)
    assert json.loads((path / "conversion.json").read_text())["source"] == str(gguf)


# The Hub


class Hub(ModuleType):
    """huggingface_hub as far as it is called, over folders of this disk."""

    def __init__(self, files: dict[str, Path], error: Exception | None = None) -> None:
        super().__init__("huggingface_hub")
        self.__spec__ = ModuleSpec("huggingface_hub", None)
        self.files, self.error = files, error

    def snapshot_download(self, name: str, allow_patterns: list[str]) -> str:
        if self.error is not None:
            raise self.error
        assert "*.safetensors" in allow_patterns
        return str(next(iter(self.files.values())).parent)

    def list_repo_files(self, name: str) -> list[str]:
        return ["README.md", *self.files]

    def hf_hub_download(self, name: str, file: str) -> str:
        return str(self.files[file])


def test_a_name_of_the_hub(tmp_path: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "snapshot", LLAMA, WEIGHTS)
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub({"config.json": tmp_path / "snapshot" / "config.json"}))
    assert located("owner/name") == tmp_path / "snapshot"
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub({"a.gguf": gguf}))
    assert located("owner/name") == located("owner/name/a.gguf") == gguf
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub({"a.gguf": gguf, "b.gguf": gguf}))
    with pytest.raises(InputError, match=r"has 2 GGUF files, name one of them:\n  owner/name/a.gguf\n"):
        located("owner/name")


def test_no_network_and_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hub = Hub({}, ConnectionError("unreachable\nlong story"))
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    with pytest.raises(
        InputError, match=r"owner/name: .*ConnectionError: unreachable\); .*hf download owner/name --local-dir name"
    ):
        located("owner/name")
    # A folder that is here, a file by its ending, a path: none of these asks the Hub.
    (tmp_path / "models").mkdir()
    for typo in ("models/lama", "owner/model.gguf", "/owner/name", "./owner", "name"):
        with pytest.raises(FileNotFoundError):
            located(typo)
    monkeypatch.setattr("liveshape.packages.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"owner/name: .*pip install 'liveshape\[hub\]'"):
        located("owner/name")
