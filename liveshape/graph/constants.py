"""The data of a constant: bytes of the file, those of several interleaved into one, in another order, rounded or
scaled.

All but the bytes of the file are made as they are asked for, slice by slice, and of each other.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from liveshape.formats.source import check_view, drop_pages, in_memory, is_view


@dataclass(frozen=True)
class Paired:
    """Blocks of a constant with their two halves interleaved, run by run.

    >>> bytes(Paired(memoryview(b"aabbAABB"), 8, 2)[2:6])
    b'AAbb'
    """

    source: ConstantSource
    block: int
    run: int

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, part: slice) -> memoryview:
        start, stop, _ = part.indices(len(self))
        first = start // self.block * self.block
        last = -(-stop // self.block) * self.block
        return memoryview(_pair(in_memory(self.source[first:last]), self.block, self.run))[start - first : stop - first]


@dataclass(frozen=True)
class Transposed:
    """The transpose of a matrix of so many rows; an element is `size` bytes, 1, 2 or 4.

    >>> bytes(Transposed(memoryview(b"aAbBcC"), 3, 1)[1:5])
    b'bcAB'
    """

    source: memoryview
    rows: int
    size: int

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, part: slice) -> memoryview:
        start, stop, _ = part.indices(len(self))
        run = self.rows * self.size
        items = self.source.cast(_ITEMS[self.size])
        columns = len(items) // self.rows
        first, last = start // run, -(-stop // run)
        made = b"".join([items[column::columns].tobytes() for column in range(first, last)])
        return memoryview(made)[start - first * run : stop - first * run]


_ITEMS: dict[int, Any] = {1: "B", 2: "H", 4: "I"}


@dataclass(frozen=True)
class RoundedConstant:
    """A constant of float32 numbers, rounded to float16. Uploads round by numpy (run/arrays.py), which is faster.

    >>> RoundedConstant(memoryview(struct.pack("<2f", 1.0, -2.5)))[2:4].tobytes() == struct.pack("<e", -2.5)
    True
    """

    source: ConstantSource

    def __len__(self) -> int:
        return len(self.source) // 2

    def __getitem__(self, part: slice) -> memoryview:
        start, stop, _ = part.indices(len(self))
        numbers = memoryview(bytes(self.source[start // 2 * 4 : -(-stop // 2) * 4])).cast("f")
        made = struct.pack(f"<{len(numbers)}e", *numbers)
        return memoryview(made)[start % 2 : start % 2 + stop - start]


@dataclass(frozen=True)
class ScaledConstant:
    """A constant of float32 numbers, each run of them times a factor; the factors begin anew after the last of them.

    Uploads multiply by numpy (run/arrays.py), which is faster.

    >>> ones = memoryview(struct.pack("<6f", *[1.0] * 6))
    >>> ScaledConstant(ones, (2.0, 3.0), 2)[4:20].cast("f").tolist()
    [2.0, 3.0, 3.0, 2.0]
    """

    source: memoryview
    factors: tuple[float, ...]
    run: int

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, part: slice) -> memoryview:
        start, stop, _ = part.indices(len(self))
        first, last = start // 4, -(-stop // 4)
        numbers = memoryview(bytes(self.source[first * 4 : last * 4])).cast("f")
        scaled = array("f", (number * self.factor_of(place) for place, number in enumerate(numbers, first)))
        return memoryview(scaled.tobytes())[start % 4 : start % 4 + stop - start]

    def factor_of(self, place: int) -> float:
        """The factor of a number.

        >>> ScaledConstant(memoryview(bytes(8)), (2.0, 3.0), 1).factor_of(1)
        3.0
        """
        return self.factors[place // self.run % len(self.factors)]


@dataclass(frozen=True)
class Interleaved:
    """Constants interleaved: a run of bytes of each, period by period. Nothing is copied before it is asked for.

    >>> bytes(next(Interleaved((memoryview(b"aaaabbbb"), memoryview(b"AABB")), (4, 2)).pieces(1 << 20)))
    b'aaaaAAbbbbBB'
    """

    sources: tuple[ConstantSource, ...]
    runs: tuple[int, ...]

    def __len__(self) -> int:
        return sum(len(source) for source in self.sources)

    def __getitem__(self, part: slice) -> memoryview:
        start, stop, _ = part.indices(len(self))
        width = sum(self.runs)
        first = start // width
        return self._periods(first, -(-stop // width) - first)[start - first * width : stop - first * width]

    def pieces(self, nbytes: int) -> Iterator[memoryview]:
        """The bytes in pieces of about `nbytes`, each but the last of whole words if every source is."""
        width = sum(self.runs)
        rounds = len(self) // width
        if rounds == 1:
            for source in self.sources:
                yield from pieces(source, nbytes)
            return
        step = max(nbytes // width // 4, 1) * 4
        for start in range(0, rounds, step):
            for view in _views(self):
                check_view(view)
            yield self._periods(start, min(step, rounds - start))
            for view in _views(self):
                drop_pages(view)

    def _periods(self, start: int, count: int) -> memoryview:
        """So many periods, each a run of every source."""
        parts = [each[start * run : (start + count) * run] for each, run in zip(self.sources, self.runs, strict=True)]
        rows = [in_memory(part) for part in parts]
        return memoryview(_interleave(rows, self.runs, count))


_LONG_RUN = 64  # bytes from which copying run by run beats copying word by word


def _interleave(rows: list[memoryview], runs: tuple[int, ...], count: int) -> bytes | bytearray:
    if min(runs) >= _LONG_RUN:
        pairs = list(zip(rows, runs, strict=True))
        return b"".join([row[period * run : (period + 1) * run] for period in range(count) for row, run in pairs])
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
        period, offset = divmod(at * size, run)
        place = (2 * period * run + offset) // size
        target[place :: block // size] = source[at :: block // size]
        target[place + run // size :: block // size] = source[at + half // size :: block // size]
    return result


Constant = memoryview | Transposed | Interleaved | RoundedConstant | ScaledConstant
ConstantSource = Constant | Paired


def _views(source: ConstantSource) -> Iterator[memoryview]:
    """The views of the file that a source is read from."""
    if is_view(source):
        yield source
    else:
        for each in source.sources if isinstance(source, Interleaved) else (source.source,):
            yield from _views(each)


def is_in_memory(constant: ConstantSource) -> bool:
    """Whether the host has the bytes, or maps them; in a page they go from their file to the GPU.

    >>> is_in_memory(RoundedConstant(memoryview(bytes(8))))
    True
    """
    return all(isinstance(view, memoryview) for view in _views(constant))


def view_identity(view: memoryview) -> int:
    """Equal for two living views only if they are the same bytes, as one range of a file is, which is one view.

    A view does not tell where it begins, but one of all of an object begins where the object does.

    >>> data = b"abcd"
    >>> view_identity(memoryview(data)) == view_identity(memoryview(data))
    True
    >>> first, second = memoryview(data)[:2], memoryview(data)[2:]
    >>> view_identity(first) == view_identity(second)
    False
    """
    if view.obj is view:  # a range of a file that is not mapped
        return id(view)
    try:
        whole = memoryview(view.obj)
    except TypeError:  # of an exporter written in Python, as the numpy of a page: each view has an object of its own
        return id(view)
    return id(view.obj) if whole.nbytes == view.nbytes else id(view)


def pieces(constant: ConstantSource, nbytes: int) -> Iterator[Any]:
    """The bytes of a constant, piece by piece; what was taken does not stay in memory."""
    if isinstance(constant, Interleaved):
        yield from constant.pieces(nbytes)
        return
    for start in range(0, len(constant), nbytes):
        for view in _views(constant):
            check_view(view)
        yield constant[start : start + nbytes]
        for view in _views(constant):
            drop_pages(view)


def all_bytes(constant: Constant) -> memoryview:
    """All bytes of a constant; those of the file are not copied."""
    if not is_view(constant):
        return memoryview(b"".join(pieces(constant, len(constant))))
    check_view(constant)
    return in_memory(constant)
