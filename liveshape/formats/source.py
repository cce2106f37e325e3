"""Where the bytes of a file come from: a path is mapped, so that its weights cost nothing until they are used."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from typing import BinaryIO

from liveshape.errors import FormatError, InputError

FileSource = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO


class Source:
    """The bytes of one file, as a read-only view, and the map under them.

    Example: `Source("model.pte").view[:8]`.
    """

    __slots__ = ("_map", "_view")

    def __init__(self, source: FileSource) -> None:
        self._map: mmap.mmap | None = None
        if isinstance(source, (bytes, bytearray, memoryview)):
            self._view: memoryview | None = _flat(memoryview(source))
        elif isinstance(source, (str, os.PathLike)):
            self._map = _map_file(source)
            self._view = memoryview(self._map)
        elif hasattr(source, "read"):
            content = source.read()
            if not isinstance(content, bytes):
                raise InputError("cannot read a program from a text file; open it in binary mode or pass its path")
            self._view = memoryview(content)
        else:
            raise InputError(f"cannot read a program from {type(source).__name__}; pass a path, bytes or a binary file")

    @property
    def view(self) -> memoryview:
        """All bytes of the file; an InputError once it is closed."""
        if self._view is None:
            raise InputError("the file is closed; open it again, or keep it open while its data is read")
        return self._view

    def check_open(self) -> None:
        """An InputError once the file is closed."""
        _ = self.view

    def close(self) -> None:
        """Let go of the bytes. Views of them stay valid: they keep the map until the last one goes."""
        self._view = None
        if self._map is not None:
            with suppress(BufferError):
                self._map.close()


def drop_pages(view: memoryview) -> None:
    """Let go of the pages of the map under a view, which count as memory of the process until the kernel runs short.

    Nothing is lost: whoever reads the view again gets them from the file.
    """
    if isinstance(view.obj, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        view.obj.madvise(mmap.MADV_DONTNEED)


def _map_file(path: str | os.PathLike[str]) -> mmap.mmap:
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise FormatError(f"{os.fspath(path)}: the file is empty; copy or export it again")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _flat(view: memoryview) -> memoryview:
    if not view.c_contiguous:
        raise InputError("cannot read a program from a view with gaps; pass contiguous bytes")
    return view.cast("B").toreadonly()
