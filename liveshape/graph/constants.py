"""The data of a constant: bytes of the file, those of several constants interleaved into one, or in another order."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from liveshape.formats.source import check_view, drop_pages


@dataclass(frozen=True)
class Paired:
    """Blocks of a constant, each with a run of bytes of its first half and of its second in turn.

    >>> bytes(Paired(memoryview(b"aabbAABB"), 8, 2)[2:6])
    b'AAbb'
    """

    source: memoryview
    block: int
    run: int

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, part: slice) -> memoryview:
        start, stop, _ = part.indices(len(self))
        first = start // self.block * self.block
        last = -(-stop // self.block) * self.block
        return memoryview(_pair(self.source[first:last], self.block, self.run))[start - first : stop - first]


@dataclass(frozen=True)
class Interleaved:
    """Constants as one: a run of bytes of each in turn, again and again. Nothing is copied before it is asked for.

    >>> bytes(next(Interleaved((memoryview(b"aaaabbbb"), memoryview(b"AABB")), (4, 2)).pieces(1 << 20)))
    b'aaaaAAbbbbBB'
    """

    parts: tuple[memoryview | Paired, ...]
    runs: tuple[int, ...]

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def pieces(self, nbytes: int) -> Iterator[memoryview]:
        """The bytes in pieces of about `nbytes`, each but the last of whole words if every part is."""
        width = sum(self.runs)
        rounds = len(self) // width
        if rounds == 1:
            for part in self.parts:
                yield from pieces(part, nbytes)
            return
        step = max(nbytes // width // 4, 1) * 4
        for start in range(0, rounds, step):
            count = min(step, rounds - start)
            for part in self.parts:
                check_view(_source(part))
            rows = [part[start * run : (start + count) * run] for part, run in zip(self.parts, self.runs, strict=True)]
            yield memoryview(_interleave(rows, self.runs, count))
            for part in self.parts:
                drop_pages(_source(part))


_LONG_RUN = 64  # bytes from which copying run by run beats copying word by word


def _interleave(rows: list[memoryview], runs: tuple[int, ...], count: int) -> bytes | bytearray:
    if min(runs) >= _LONG_RUN:
        pairs = list(zip(rows, runs, strict=True))
        return b"".join([row[turn * run : (turn + 1) * run] for turn in range(count) for row, run in pairs])
    width, place = sum(runs), 0
    result = bytearray(count * width)
    size = 4 if all(run % 4 == 0 for run in runs) else 1
    target = memoryview(result).cast("I" if size == 4 else "B")
    for row, run in zip(rows, runs, strict=True):
        source = row.cast("I" if size == 4 else "B")
        for offset in range(run // size):
            target[(place + offset * size) // size :: width // size] = source[offset :: run // size]
        place += run
    return result


def _pair(blocks: memoryview, block: int, run: int) -> bytes | bytearray:
    half = block // 2
    if run >= _LONG_RUN:
        starts = range(0, len(blocks), block)
        places = [start + place for start in starts for at in range(0, half, run) for place in (at, at + half)]
        return b"".join([blocks[place : place + run] for place in places])
    result = bytearray(len(blocks))
    size = 4 if run % 4 == 0 else 1
    source, target = (memoryview(each).cast("I" if size == 4 else "B") for each in (blocks, result))
    for at in range(half // size):
        turn, offset = divmod(at * size, run)
        place = (2 * turn * run + offset) // size
        target[place :: block // size] = source[at :: block // size]
        target[place + run // size :: block // size] = source[at + half // size :: block // size]
    return result


def _source(part: memoryview | Paired) -> memoryview:
    """The view of the file that a part is read from."""
    return part.source if isinstance(part, Paired) else part


Constant = memoryview | Interleaved


class _Buffer(ctypes.Structure):
    """Py_buffer of Python's C interface, which alone says where a read-only view lies."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def address_of(view: memoryview) -> int:
    """Where the bytes of a view lie: two views of one place and size hold the same.

    >>> data = memoryview(b"abcd")
    >>> address_of(data[2:]) - address_of(data)
    2
    """
    buffer = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), 0)
    try:
        return int(buffer.buf or 0)
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))


def pieces(constant: Constant | Paired, nbytes: int) -> Iterator[Any]:
    """The bytes of a constant, piece by piece; what was taken does not stay in memory."""
    if isinstance(constant, Interleaved):
        yield from constant.pieces(nbytes)
        return
    for start in range(0, len(constant), nbytes):
        check_view(_source(constant))
        yield constant[start : start + nbytes]
        drop_pages(_source(constant))


def all_bytes(constant: Constant) -> memoryview:
    """All bytes of a constant; those of the file are not copied."""
    if isinstance(constant, Interleaved):
        return memoryview(b"".join(constant.pieces(len(constant))))
    check_view(constant)
    return constant
