"""An export that is stopped leaves nothing behind, and one that ends is there as a whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from liveshape.errors import FormatError, InputError
from liveshape.export import folder
from liveshape.export.folder import export_folder, whole_folder
from tests.export.tiny import LLAMA, checkpoint_of

OLD = {"model.pte": b"old model", "tokenizer.json": b"old words", "notes.txt": b"mine"}


def everything_below(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def fill(out: Path) -> None:
    out.mkdir()
    for name, content in OLD.items():
        (out / name).write_bytes(content)


def checkpoint() -> Any:
    made = checkpoint_of(LLAMA)
    return type(made)(
        made.config, made.shapes, made.read, {"tokenizer.json": b"words", "a.json": json.dumps(1).encode()}
    )


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Everything but the weights: the writer writes a few bytes, then does what it is told."""

    def install(after: BaseException | None) -> None:
        def write_program(program: Any, path: Path, *args: Any, **kwargs: Any) -> int:
            path.write_bytes(b"new model")
            if after is not None:
                raise after
            return 9

        monkeypatch.setattr(folder, "write_program", write_program)

    return install


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("stopped", [KeyboardInterrupt, FormatError, MemoryError])
def test_a_stopped_export_leaves_nothing(quick: Any, tmp_path: Path, exists: bool, stopped: Any) -> None:
    out = tmp_path / "model"
    if exists:
        fill(out)
    quick(stopped())
    with pytest.raises(stopped):
        export_folder(checkpoint(), out)
    assert out.exists() == exists
    assert everything_below(tmp_path) == ({f"model/{name}": content for name, content in OLD.items()} if exists else {})
    assert [path.name for path in tmp_path.iterdir()] == (["model"] if exists else [])


@pytest.mark.parametrize("exists", [False, True])
def test_an_export_that_ends_is_there_as_a_whole(quick: Any, tmp_path: Path, exists: bool) -> None:
    out = tmp_path / "deep" / "model"
    out.parent.mkdir()
    if exists:
        fill(out)
    quick(None)
    assert export_folder(checkpoint(), out) == 9
    expected = {"model.pte": b"new model", "tokenizer.json": b"words", "a.json": b"1"}
    assert everything_below(out) == {**(OLD if exists else {}), **expected}
    assert [path.name for path in out.parent.iterdir()] == ["model"]


def test_an_interrupt_while_files_are_moved_leaves_no_mixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "model"
    fill(out)
    replace, calls = Path.replace, 0

    def interrupted(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    new = dict.fromkeys(("model.pte", "tokenizer.json", "c.json"), b"new")

    def write() -> None:
        with whole_folder(out) as unfinished:
            for name, content in new.items():
                (unfinished / name).write_bytes(content)

    with pytest.raises(KeyboardInterrupt):
        write()
    assert everything_below(out) == {**OLD, **new}


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"")
    with pytest.raises(InputError, match="is a file"), whole_folder(tmp_path / "model"):
        pass
