"""Where the bytes of a file come from: a path is mapped, so that its weights cost nothing until they are used.

A map shows the file as it is now. Whoever reads one asks first whether the file is still the one that was opened:
reading past the end of a file that was cut kills the process. Where a platform has no maps, a file is read whole.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

from liveshape.disk import open_file
from liveshape.errors import FormatError, InputError

if TYPE_CHECKING:
    import mmap
else:
    try:
        import mmap
    except ImportError:  # as in a browser
        mmap = None

FileSource = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO


class Source:
    """The bytes of one file, as a read-only view.

    Example: `Source("model.pte").view[:8]`.
    """

    __slots__ = ("_view",)

    def __init__(self, source: FileSource) -> None:
        if isinstance(source, (bytes, bytearray, memoryview)):
            self._view: memoryview | None = _flat(memoryview(source))
        elif isinstance(source, (str, os.PathLike)):
            self._view = _open_view(os.fsdecode(source))
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

    def check(self) -> None:
        """An InputError once the file is closed, a FormatError once it is no longer the file that was opened."""
        check_view(self.view)

    def close(self) -> None:
        """Let go of the bytes. Views of them stay valid: they keep the map until the last one goes."""
        held, self._view = self._view, None
        if held is not None and mmap is not None and isinstance(held.obj, mmap.mmap):
            mapped = held.obj
            del held  # or the map would never be free to close
            with suppress(BufferError):
                mapped.close()


def check_view(view: memoryview) -> None:
    """Raise a FormatError if the file under a view was cut or written over since it was opened.

    It costs two questions to the system, so it may be asked before every piece. Views of plain bytes always pass.

    Example: `check_view(constant); device.write(buffer, 0, constant)`.
    """
    if mmap is not None and isinstance(view.obj, FileMap):
        view.obj.check()


def drop_pages(view: memoryview) -> None:
    """Let go of the pages of the map under a view, which count as memory of the process until the kernel runs short.

    Nothing is lost: whoever reads the view again gets them from the file.
    """
    if mmap is not None and isinstance(view.obj, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        view.obj.madvise(mmap.MADV_DONTNEED)


if mmap is not None:

    class FileMap(mmap.mmap):
        """A map that knows what its file was when it was opened."""

        path: str
        opened: os.stat_result

        def check(self) -> None:
            """See `check_view`."""
            size = self.size()  # of the file that is mapped, whatever its path leads to by now
            if size < len(self):
                raise FormatError(
                    f"{self.path}: the file was cut from {len(self)} to {size} bytes while it was open; "
                    "copy or export it again, and open it again"
                )
            with suppress(OSError):  # a file that moved away or was replaced by another keeps its bytes
                now = os.stat(self.path)
                if os.path.samestat(now, self.opened) and now.st_mtime_ns != self.opened.st_mtime_ns:
                    raise FormatError(
                        f"{self.path}: the file was written to while it was open ({len(self)} bytes then, {size} now); "
                        "open it again, and replace files by renaming a new one over them"
                    )


def _open_view(path: str) -> memoryview:
    with open_file(path) as file:
        opened = os.fstat(file.fileno())
        if opened.st_size == 0:
            raise FormatError(f"{path}: the file is empty; copy or export it again")
        if mmap is None:
            return memoryview(file.read())
        try:
            mapped = FileMap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:  # cut to nothing between the two questions
            raise FormatError(f"{path}: {error}; copy or export it again") from error
        mapped.path, mapped.opened = path, opened
        return memoryview(mapped)


def _flat(view: memoryview) -> memoryview:
    if not view.c_contiguous:
        raise InputError("cannot read a program from a view with gaps; pass contiguous bytes")
    return view.cast("B").toreadonly()
