"""A FIFO, a device or a folder in the place of a file is refused at once: opening a FIFO waits for its other end."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import liveshape
from liveshape import disk
from liveshape.errors import FormatError, InputError, StorageError
from liveshape.export.sources.lora import with_adapter
from liveshape.export.sources.opening import open_checkpoint, runs_as_it_is
from liveshape.formats import open_program, open_tensor_data
from liveshape.llm.text.tokenizer import Tokenizer
from tests.export.test_readers import WEIGHTS, gguf_of_weights, write_llama2c
from tests.export.tiny import LLAMA, checkpoint_of, write_folder, write_safetensors

STORY = Path(liveshape.__file__).parent / "demo" / "story"


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


SPECIAL = pytest.mark.parametrize("made", [fifo, device, folder])
Made = Callable[[Path], None]


def refused(path: Path, made: Made) -> str:
    """The message for what is put in the place of a file."""
    path.unlink(missing_ok=True)
    made(path)
    return rf"{path.name} is a {made.__name__.replace('fifo', 'FIFO')}, and an ordinary file is needed"


@SPECIAL
def test_programs_and_their_data(made: Made, tmp_path: Path) -> None:
    path = tmp_path / "a.pte"
    message = refused(path, made)
    # A folder may hold a program for load.
    for read in (open_program, open_tensor_data, *(() if made is folder else (liveshape.load,))):
        with pytest.raises(InputError, match=message):
            read(path)  # type: ignore[operator]


@SPECIAL
@pytest.mark.parametrize("name", ["a.gguf", "a.bin", "a.safetensors", "a"])
def test_sources(made: Made, name: str, tmp_path: Path) -> None:
    message = refused(tmp_path / name, made)
    if made is folder:
        with pytest.raises(InputError, match="it is not a Hugging Face folder"):
            open_checkpoint(tmp_path / name)
        return
    for read in (open_checkpoint, runs_as_it_is):
        with pytest.raises(InputError, match=message):
            read(tmp_path / name)


@SPECIAL
@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]
)
def test_files_of_a_folder(made: Made, name: str, tmp_path: Path) -> None:
    write_folder(tmp_path, LLAMA, WEIGHTS)
    message = refused(tmp_path / name, made)
    with pytest.raises(InputError, match=message):
        open_checkpoint(tmp_path)


@SPECIAL
def test_an_index_and_what_it_names(made: Made, tmp_path: Path) -> None:
    write_folder(tmp_path, LLAMA, WEIGHTS)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "part.safetensors"}}))
    message = refused(tmp_path / "part.safetensors", made)
    with pytest.raises(InputError, match=message):
        open_checkpoint(tmp_path)
    message = refused(index, made)
    with pytest.raises(InputError, match=message):
        open_checkpoint(tmp_path)


@SPECIAL
def test_the_tokenizer_of_a_llama2c_checkpoint(made: Made, tmp_path: Path) -> None:
    path = write_llama2c(tmp_path, tied=True)
    message = refused(tmp_path / "tokenizer.bin", made)
    with pytest.raises(InputError, match=message):
        open_checkpoint(path)


@SPECIAL
@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_adapters(made: Made, name: str, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 2}))
    write_safetensors(tmp_path / "adapter_model.safetensors", {"x": np.zeros(2, np.float32)})
    message = refused(tmp_path / name, made)
    with pytest.raises(InputError, match=message):
        with_adapter(checkpoint_of(LLAMA), tmp_path)


@SPECIAL
@pytest.mark.parametrize(
    "name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"]
)
def test_tokenizers(made: Made, name: str, tmp_path: Path) -> None:
    shutil.copytree(STORY, tmp_path / "story")
    message = refused(tmp_path / "story" / name, made)
    with pytest.raises(InputError, match=message):
        Tokenizer.load(tmp_path / "story")


def test_what_takes_the_place_of_a_file_after_it_was_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the question and the open; the open does not wait, and asks again."""
    path = tmp_path / "a.gguf"
    gguf_of_weights(path)
    asked = os.stat

    def replaced(name: str) -> os.stat_result:
        found = asked(name)
        monkeypatch.undo()
        refused(path, fifo)
        return found

    monkeypatch.setattr(disk.os, "stat", replaced)
    with pytest.raises(InputError, match="is a FIFO"):
        disk.open_file(str(path))


def test_names_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no path"):
        disk.read_bytes("a\0b")
    with pytest.raises(FileNotFoundError):
        disk.read_bytes(tmp_path / "nowhere")
    (tmp_path / "empty.pte").touch()
    with pytest.raises(FormatError, match="is empty"):
        open_program(tmp_path / "empty.pte")


def test_only_a_full_disk_is_told_as_one(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), disk.room_in(tmp_path, "advice"):
        raise PermissionError(13, "no", "x")
    with (
        pytest.raises(StorageError, match=r"no space left on device \(.* MB are free\).*advice"),
        disk.room_in(tmp_path / "not" / "yet", "advice"),
    ):
        raise OSError(28, "No space left on device")


def test_an_interrupt_between_any_two_lines_closes_a_file_at_most_once(tmp_path: Path) -> None:
    """A second close would fail, or close what another thread has opened by then."""
    path = tmp_path / "bytes"
    path.write_bytes(b"bytes")
    for last in itertools.count():
        events = itertools.count()

        def interrupt(
            frame: FrameType, event: str, value: Any, events: Iterator[int] = events, last: int = last
        ) -> Any:
            del value  # which the traceback would keep open
            if next(events) == last:
                raise KeyboardInterrupt
            return interrupt

        sys.settrace(interrupt)
        try:
            disk.open_file(path).close()
        except KeyboardInterrupt:
            continue
        finally:
            sys.settrace(None)
        break
    assert last > 10
