"""File sources: a path is memory-mapped (mmap), so that weights cost no memory until they are used.

A mapping shows the file as it is now, so check that the file is unchanged before reading: reading past the end of a
truncated file is a SIGBUS. A browser maps nothing and has little memory: there a file is ranges, read when asked for.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from liveshape.disk import open_file
from liveshape.errors import FormatError, InputError

if TYPE_CHECKING:
    import mmap

    from typing_extensions import TypeIs
else:
    try:
        import mmap
    except ImportError:
        mmap = None
    if sys.platform == "emscripten":  # what it calls a mapping is a copy in memory
        mmap = None

FileSource = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO


class Source:
    """The bytes of one file, as a read-only view.

    Example: `Source("model.pte").view[:8]`.
    """

    __slots__ = ("_view",)

    def __init__(self, source: FileSource) -> None:
        if isinstance(source, FileRange):
            self._view: memoryview | None = source
        elif isinstance(source, (bytes, bytearray, memoryview)):
            self._view = _flat(memoryview(source))
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
        if isinstance(held, FileRange):
            return  # ranges of it may still be read, and a page has files enough
        if held is not None and mmap is not None and isinstance(held.obj, mmap.mmap):
            mapped = held.obj
            del held  # a reference would keep the mapping open
            with suppress(BufferError):
                mapped.close()


class FileRange:
    """Bytes of a file that are read when they are asked for, each time anew: a memoryview that holds none of them.

    Example: `bytes(FileRange("model.pte", os.open("model.pte", os.O_RDONLY), 0, 64)[8:12])`.
    """

    __slots__ = ("file", "nbytes", "path", "start")

    def __init__(self, path: str, file: int, start: int, nbytes: int) -> None:
        self.path, self.file, self.start, self.nbytes = path, file, start, nbytes

    @property
    def obj(self) -> FileRange:
        """Itself: nothing else holds its bytes."""
        return self

    def __len__(self) -> int:
        return self.nbytes

    def __getitem__(self, part: slice) -> FileRange:
        start, stop, _ = part.indices(self.nbytes)
        return FileRange(self.path, self.file, self.start + start, max(stop - start, 0))

    def __bytes__(self) -> bytes:
        found = os.pread(self.file, self.nbytes, self.start)
        if len(found) < self.nbytes:
            end = self.start + self.nbytes
            raise FormatError(f"{self.path}: the file was cut from {end} bytes or more to {self.start + len(found)}")
        return found

    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(bytes(self))

    def cast(self, form: Any) -> memoryview:
        """Its elements, read."""
        return memoryview(bytes(self)).cast(form)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileRange) and bytes(self) == bytes(other)

    __hash__ = None  # type: ignore[assignment]


def is_view(data: Any) -> TypeIs[memoryview]:
    """Whether data are bytes of a file: a view, or a range that is one in all that callers do with it.

    >>> is_view(memoryview(b"")), is_view(b"")
    (True, False)
    """
    return isinstance(data, (memoryview, FileRange))


def in_memory(view: memoryview) -> memoryview:
    """A view whose bytes are in memory, for those who read it piece by piece.

    >>> in_memory(memoryview(b"abc")).tobytes()
    b'abc'
    """
    return memoryview(bytes(view)) if isinstance(view, FileRange) else view


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
            return FileRange(path, os.dup(file.fileno()), 0, opened.st_size)
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
