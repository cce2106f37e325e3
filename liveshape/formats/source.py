"""File sources: a path is memory-mapped (mmap), so that weights cost no memory until they are used.

A mapping shows the file as it is now, so check that the file is unchanged before reading: reading past the end of a
truncated file is a SIGBUS. Where a platform has no mmap, a file is read whole.
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
        """All bytes of the file; InputError once closed."""
        if self._view is None:
            raise InputError("the file is closed; open it again, or keep it open while its data is read")
        return self._view

    def check(self) -> None:
        """Raise InputError if the file is closed, FormatError if it was modified since it was opened."""
        check_view(self.view)

    def close(self) -> None:
        """Close the source. Existing views stay valid and keep the mapping alive."""
        held, self._view = self._view, None
        if held is not None and mmap is not None and isinstance(held.obj, mmap.mmap):
            mapped = held.obj
            del held  # a reference would keep the mapping open
            with suppress(BufferError):
                mapped.close()


def check_view(view: memoryview) -> None:
    """Raise FormatError if the file under a view was truncated or overwritten since it was opened.

    It costs two system calls, so it may be called before every chunk. Views of plain bytes always pass.

    Example: `check_view(constant); device.write(buffer, 0, constant)`.
    """
    if mmap is not None and isinstance(view.obj, FileMap):
        view.obj.check()


def drop_pages(view: memoryview) -> None:
    """Release the pages of a view's mapping (madvise), which count as resident memory until the kernel reclaims them.

    Nothing is lost: a later read gets them from the file again.
    """
    if mmap is not None and isinstance(view.obj, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        view.obj.madvise(mmap.MADV_DONTNEED)


if mmap is not None:

    class FileMap(mmap.mmap):
        """An mmap that remembers its file's size and mtime at opening."""

        path: str
        opened: os.stat_result

        def check(self) -> None:
            """See `check_view`."""
            size = self.size()  # of the mapped file, even if its path was replaced
            if size < len(self):
                raise FormatError(
                    f"{self.path}: the file was cut from {len(self)} to {size} bytes while it was open; "
                    "copy or export it again, and open it again"
                )
            with suppress(OSError):  # a file that was moved or replaced keeps its bytes
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
        except ValueError as error:  # truncated to nothing between stat and mmap
            raise FormatError(f"{path}: {error}; copy or export it again") from error
        mapped.path, mapped.opened = path, opened
        return memoryview(mapped)


def _flat(view: memoryview) -> memoryview:
    if not view.c_contiguous:
        raise InputError("cannot read a program from a view with gaps; pass contiguous bytes")
    return view.cast("B").toreadonly()
