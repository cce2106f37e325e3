"""Opening the files of a program: the `.pte`, named itself or by its folder, and its external `.ptd` files."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from liveshape.disk import Path
from liveshape.errors import FormatError, InputError, UnsupportedError
from liveshape.formats import PteFile, open_program, open_tensor_data
from liveshape.formats.file_kinds import foreign_name
from liveshape.formats.source import FileSource
from liveshape.shipped import shipped


def program_file(path: pathlib.Path) -> pathlib.Path:
    """Resolve a path to a `.pte`: in a folder its `model.pte` or its only `.pte`; a short name is a shipped model.

    Example: `program_file(Path("SmolLM2-135M-Instruct-pte"))`.
    """
    path = shipped(str(path)) or path
    if not path.is_dir():
        return path
    found = sorted(path.glob("*.pte"))
    usual = path / "model.pte"
    if usual in found or len(found) == 1:
        return usual if usual in found else found[0]
    names = ", ".join(file.name for file in found) or "none at all"
    raise FormatError(
        f"{path} must hold a model.pte or a single .pte, it has {names}; a GGUF file or a Hugging Face folder "
        f"(config.json, safetensors) becomes such a folder: liveshape export SOURCE -o {path.name}-pte"
    )


def program_source(source: FileSource) -> FileSource:
    """What to open for a path, a folder or a short name; bytes and binary files are themselves.

    >>> program_source(b"ET12")
    b'ET12'
    """
    return program_file(pathlib.Path(source)) if isinstance(source, (str, os.PathLike)) else source


def open_file(source: FileSource) -> PteFile:
    """Open a `.pte` from a path, bytes or a binary file.

    Example: `open_file("model.pte").plans`.
    """
    with _naming(source):
        return open_program(source)


def read_tensor_data(data_path: Path | Sequence[Path] | None) -> dict[str, memoryview]:
    """Tensor data of one `.ptd` or several by key; the files stay memory-mapped while a view exists.

    Example: `read_tensor_data(["base.ptd", "adapter.ptd"])`.
    """
    paths = () if data_path is None else (data_path,) if isinstance(data_path, (str, os.PathLike)) else data_path
    found: dict[str, memoryview] = {}
    for path in paths:
        with _naming(path), open_tensor_data(path) as file:
            for key, entry in file.entries.items():
                if key in found and found[key] != entry.data:
                    raise InputError(f"{os.fspath(path)}: another file has other data under {key!r}; give one of them")
                found[key] = entry.data
    return found


@contextmanager
def _naming(source: object) -> Iterator[None]:
    """Prefix errors of an unreadable file with its path."""
    try:
        yield
    except (FormatError, UnsupportedError) as error:
        if not isinstance(source, (str, os.PathLike)) or str(error).startswith(f"{os.fspath(source)}:"):
            raise
        kind = foreign_name(os.fspath(source))
        raise type(error)(f"{os.fspath(source)}{'' if kind is None else f' is {kind}'}: {error}") from error
