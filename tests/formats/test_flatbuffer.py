"""The flatbuffer reader on small hand-made buffers: what it reads, and that it reads nothing outside of them."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from liveshape.errors import FormatError
from liveshape.formats.flatbuffer import FlatbufferReader, Table, fields

LAYOUT = fields("first", "second", "third")


def buffer(inline: bytes, slots: list[int], tail: bytes = b"") -> bytes:
    """A flatbuffer of one table: its inline bytes after the vtable offset, the slots of its vtable, what follows it.

    The vtable is at byte 8, the table right behind it, the tail right behind that.
    """
    vtable = struct.pack(f"<HH{len(slots)}H", 4 + 2 * len(slots), 4 + len(inline), *slots)
    vtable += bytes(-len(vtable) % 4)
    position = 8 + len(vtable)
    return struct.pack("<I4s", position, b"TEST") + vtable + struct.pack("<i", position - 8) + inline + tail


def root(data: bytes) -> Table:
    return FlatbufferReader(memoryview(data)).root(b"TEST", "Root", LAYOUT)


def vector(count: int, elements: bytes) -> bytes:
    """A table whose first field is a vector right behind it."""
    return buffer(struct.pack("<I", 4), [4], struct.pack("<I", count) + elements)


def test_scalars() -> None:
    table = root(buffer(struct.pack("<qd", -5, 0.5), [4, 12]))
    assert (table.i64("first"), table.f64("second"), table.u64("first")) == (-5, 0.5, 2**64 - 5)
    assert (table.i32("first"), table.u32("first"), table.i8("first"), table.u8("first")) == (-5, 2**32 - 5, -5, 251)
    assert table.boolean("first") is True
    assert (table.has("first"), table.has("third")) == (True, False)


def test_fields_left_out_have_their_default() -> None:
    # One slot is zero, one is beyond the vtable.
    table = root(buffer(struct.pack("<I", 4), [4, 0]))
    for name in ("second", "third"):
        assert (table.u8(name, 127), table.i32(name), table.f64(name), table.boolean(name)) == (127, 0, 0.0, False)
        assert (table.i32s(name), table.u8s(name), table.f64s(name), table.booleans(name)) == ((), (), (), ())
        assert (table.optional_string(name), table.optional_table(name, LAYOUT)) == (None, None)
        assert (len(table.blob(name)), list(table.tables(name, LAYOUT))) == (0, [])


def test_vectors() -> None:
    assert root(vector(2, struct.pack("<2i", 7, -8))).i32s("first") == (7, -8)
    assert root(vector(2, struct.pack("<2i", 7, -8))).u32s("first") == (7, 2**32 - 8)
    assert root(vector(1, struct.pack("<q", -9))).i64s("first") == (-9,)
    assert root(vector(1, struct.pack("<q", -9))).u64s("first") == (2**64 - 9,)
    assert root(vector(1, struct.pack("<d", 2.5))).f64s("first") == (2.5,)
    assert root(vector(3, b"\x00\x01\xff")).u8s("first") == (0, 1, 255)
    assert root(vector(3, b"\x00\x01\xff")).booleans("first") == (False, True, True)
    assert root(vector(3, b"\x00\x01\xff")).blob("first") == b"\x00\x01\xff"
    assert root(vector(4, "né!".encode())).string("first") == "né!"


def test_blobs_are_not_copied() -> None:
    data = bytearray(vector(3, b"abc"))
    view = FlatbufferReader(memoryview(data)).root(b"TEST", "Root", LAYOUT).blob("first")
    data[-1] = ord("z")
    assert view == b"abz"


def test_names_of_codes() -> None:
    table = root(buffer(b"\x02\xff\x00\x00", [4, 5]))
    assert table.choice("first", {2: "two"}) == "two"
    assert table.choice("third", {9: "nine"}, default=9) == "nine"
    with pytest.raises(
        FormatError, match=r"Root\.second: unknown code -1, known are 2 two; the file is damaged or newer"
    ):
        table.choice("second", {2: "two"})


def shared_tables(count: int) -> bytes:
    """A vector of offsets that all point at one table behind it; its one field holds 77."""
    start = len(vector(count, b""))
    table_at = start + 4 * count + 8
    offsets = b"".join(struct.pack("<I", table_at - start - 4 * index) for index in range(count))
    return vector(count, offsets) + struct.pack("<HHHxxii", 6, 8, 4, 8, 77)


def test_tables_and_their_paths() -> None:
    tables = root(shared_tables(2)).tables("first", LAYOUT)
    assert [(table.path, table.i32("first")) for table in tables] == [("Root.first[0]", 77), ("Root.first[1]", 77)]


BROKEN: dict[str, tuple[bytes, Callable[[Table], object], str]] = {
    "vtable before": (
        struct.pack("<I4si", 8, b"TEST", 99),
        lambda table: None,
        r"Root: vtable at offset -91 is outside the 12 bytes of the flatbuffer",
    ),
    "vtable behind": (
        struct.pack("<I4si", 8, b"TEST", -99),
        lambda table: None,
        r"Root: vtable at offset 107 is outside the 12 bytes",
    ),
    "vtable size": (
        struct.pack("<I4siHH", 8, b"TEST", -4, 40, 4),
        lambda table: None,
        r"Root: vtable of 40 bytes at offset 12 does not fit",
    ),
    "vtable too small": (
        struct.pack("<I4siHH", 8, b"TEST", -4, 2, 4),
        lambda table: None,
        r"Root: vtable of 2 bytes at offset 12 does not fit",
    ),
    "table size": (
        struct.pack("<I4siHH", 8, b"TEST", -4, 4, 99),
        lambda table: None,
        r"Root: table of 99 bytes at offset 8 does not fit",
    ),
    "root": (
        struct.pack("<I4s", 2**32 - 1, b"TEST"),
        lambda table: None,
        r"Root: 4 bytes at offset 4294967295 are out",
    ),
    "field": (
        buffer(bytes(4), [6]),
        lambda table: table.i32("first"),
        r"Root\.first: 4 bytes at offset 6 of a table of 8",
    ),
    "field low": (
        buffer(bytes(4), [2]),
        lambda table: table.u8("first"),
        r"Root\.first: 1 bytes at offset 2 of a table",
    ),
    "offset": (
        buffer(struct.pack("<I", 2**32 - 1), [4]),
        lambda table: table.i32s("first"),
        r"Root\.first: offset 4294967295 at byte \d+ leaves the \d+ bytes there are",
    ),
    "offset zero": (
        buffer(struct.pack("<I", 0), [4]),
        lambda table: table.optional_table("first", LAYOUT),
        r"Root\.first: offset 0 at byte \d+ leaves",
    ),
    "count": (
        vector(2**32 - 1, bytes(8)),
        lambda table: table.i64s("first"),
        r"Root\.first: 4294967295 elements of 8 bytes at offset \d+ do not fit in \d+ bytes",
    ),
    "table": (
        vector(1, struct.pack("<I", 2**32 - 1)),
        lambda table: list(table.tables("first", LAYOUT)),
        r"Root\.first\[0\]: 4 bytes at offset 42949\d+ are outside",
    ),
    "count of tables": (
        vector(3, bytes(8)),
        lambda table: list(table.tables("first", LAYOUT)),
        r"Root\.first: 3 elements of 4 bytes",
    ),
    "text": (vector(2, b"\xc3("), lambda table: table.string("first"), r"Root\.first: b'\\xc3\(' is not UTF-8 \(inv"),
    "no text": (buffer(b"", []), lambda table: table.string("first"), r"Root\.first: missing, and it must be there"),
    "no table": (buffer(b"", []), lambda table: table.table("first", LAYOUT), r"Root\.first: missing, and it must be"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_buffers(name: str) -> None:
    data, use, message = BROKEN[name]
    with pytest.raises(FormatError, match=message):
        use(root(data))


def test_identifiers() -> None:
    with pytest.raises(FormatError, match=r"Root: 7 bytes are too few for a flatbuffer"):
        root(b"1234567")
    with pytest.raises(
        FormatError, match=r"Root: file identifier b'FT01' at byte 4, expected b'TEST'; this is a tensor"
    ):
        root(struct.pack("<I4s", 8, b"FT01"))


def test_a_vector_used_over_and_over_runs_out_of_budget() -> None:
    data = vector(10_000, bytes(40_000))
    table = root(data)
    # Twice the size of the buffer is allowed, three times is not.
    assert [len(table.i32s("first")) for _ in range(2)] == [10_000, 10_000]
    with pytest.raises(FormatError, match=r"Root\.first: the same bytes are used over and over, beyond what 40\d+"):
        table.i32s("first")


def test_tables_used_over_and_over_run_out_of_budget() -> None:
    with pytest.raises(FormatError, match=r"Root\.first\[2\d+\]: the same bytes are used over and over"):
        list(root(shared_tables(50_000)).tables("first", LAYOUT))
