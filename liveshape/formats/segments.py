"""Data segments behind the flatbuffer of a `.pte` or `.ptd`: bounds-checked, sliced lazily.

Views are interned: one range of a segment is always one view, so `is` tells whether two constants share memory, as
with weight tying of embedding and head.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from liveshape.formats.flatbuffer import Table, damaged, fields

SEGMENT = fields("offset", "size")
SUBSEGMENT = fields("segment_index", "offsets")
NAMED = fields("key", "segment_index")


class Segments:
    """The data segments of a file, by index."""

    __slots__ = ("_data", "_ranges", "_views")

    def __init__(self, data: memoryview, ranges: tuple[tuple[int, int], ...]) -> None:
        self._data, self._ranges = data, ranges
        self._views: dict[tuple[int, int], memoryview] = {}

    def __len__(self) -> int:
        return len(self._ranges)

    def check(self, index: int, path: str) -> int:
        """Validate a segment index."""
        if not 0 <= index < len(self._ranges):
            raise damaged(path, f"segment {index} of a file that has {len(self._ranges)}")
        return index

    def view(self, index: int) -> memoryview:
        """The bytes of a segment whose index was validated."""
        start, stop = self._ranges[index]
        return self._views.setdefault((start, stop), self._data[start:stop])


def read_segments(root: Table, data: memoryview) -> Segments:
    """Parse the segment list of a root table, each bounds-checked against the data.

    Example: `read_segments(program, view[segment_base:]).view(0)`.
    """
    ranges = []
    for entry in root.tables("segments", SEGMENT):
        start, size = entry.u64("offset"), entry.u64("size")
        if start + size > len(data):
            raise damaged(
                entry.path, f"{size} bytes at offset {start} do not fit in the {len(data)} bytes of segment data"
            )
        ranges.append((start, start + size))
    return Segments(data, tuple(ranges))


class NamedData(Mapping[str, memoryview]):
    """Named data by key, sliced on access: a thousand keys cost a thousand integers."""

    __slots__ = ("_index", "_segments")

    def __init__(self, segments: Segments, index: dict[str, int]) -> None:
        self._segments, self._index = segments, index

    def __getitem__(self, key: str) -> memoryview:
        return self._segments.view(self._index[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)

    def __repr__(self) -> str:
        return f"<NamedData of {len(self)} keys>"


class Constants:
    """Constant buffers by index: ranges of one segment, or the inline buffers of an older file."""

    __slots__ = ("_offsets", "_pieces", "_starts", "_views")

    def __init__(self, views: Sequence[memoryview], offsets: tuple[int, ...] = ()) -> None:
        self._views = views
        self._offsets = offsets
        self._starts = sorted(set(offsets))
        self._pieces: dict[tuple[int, int, int], memoryview] = {}  # by view, start and size

    @classmethod
    def read(cls, entry: Table, segments: Segments) -> Constants:
        """Parse a table of offsets into a segment."""
        offsets = entry.u64s("offsets")
        data = segments.view(segments.check(entry.u32("segment_index"), f"{entry.path}.segment_index"))
        for index, offset in enumerate(offsets):
            if offset > len(data):
                raise damaged(
                    f"{entry.path}.offsets[{index}]", f"{offset} is past the {len(data)} bytes of its segment"
                )
        return cls([data], offsets)

    def __len__(self) -> int:
        return len(self._offsets) if self._offsets else len(self._views)

    def room(self, index: int) -> int:
        """Bytes from the start of a buffer to the end of its segment."""
        return len(self._views[0]) - self._offsets[index] if self._offsets else len(self._views[index])

    def piece(self, index: int, start: int, size: int) -> memoryview:
        """The interned view of `size` bytes at `start` of a buffer; they must be within `room`."""
        place, start = (0, self._offsets[index] + start) if self._offsets else (index, start)
        return self._pieces.setdefault((place, start, size), self._views[place][start : start + size])

    def view(self, index: int) -> memoryview:
        """The bytes of a buffer up to the start of the next one, padding included."""
        if not self._offsets:
            return self._views[index]
        start = self._offsets[index]
        following = bisect_right(self._starts, start)
        return self._views[0][start : self._starts[following] if following < len(self._starts) else None]


def read_named_data(root: Table, segments: Segments) -> NamedData:
    """Parse the named data entries of a root table.

    Example: `read_named_data(program, segments)["a key"]`.
    """
    index: dict[str, int] = {}
    for entry in root.tables("named_data", NAMED):
        key = entry.string("key")
        if key in index:
            raise damaged(f"{entry.path}.key", f"a second {key!r}, keys must differ")
        index[key] = segments.check(entry.u32("segment_index"), f"{entry.path}.segment_index")
    return NamedData(segments, index)
