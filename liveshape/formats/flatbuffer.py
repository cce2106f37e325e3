"""Zero-copy FlatBuffers reader for untrusted files: every offset, size and count is bounds-checked, and the total work
is bounded by the size of the buffer."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from liveshape.errors import FormatError
from liveshape.formats.file_kinds import HEAD, foreign_kind

Fields = Mapping[str, int]

_I8, _U8, _U16 = struct.Struct("<b"), struct.Struct("<B"), struct.Struct("<H")
_I32, _U32, _I64, _U64 = struct.Struct("<i"), struct.Struct("<I"), struct.Struct("<q"), struct.Struct("<Q")
_F64 = struct.Struct("<d")
_VTABLE = struct.Struct("<HH")

# Budget charged per decoded Python object, beside its bytes.
_OBJECT_COST = 16

# File identifiers of other formats, for errors.
_KNOWN_FILES = {
    b"ET12": "an ExecuTorch program (.pte)",
    b"FT01": "a tensor data file (.ptd)",
    b"BP08": "a bundled program (.bpte)",
    b"VK00": "a Vulkan graph",
}


def fields(*names: str) -> dict[str, int]:
    """vtable slots by field name, from the names in schema order; a union takes two: its type, then its value.

    Example: `fields("key", "segment_index")["segment_index"] == 1`.
    """
    return {name: slot for slot, name in enumerate(names)}


def damaged(path: str, problem: str) -> FormatError:
    """FormatError for a corrupt file: the field, the problem, and what to do.

    Example: `raise damaged("Program.segments[2].offset", "640 is past the end of the file (512 bytes)")`.
    """
    return FormatError(f"{path}: {problem}; the file is damaged or cut short, copy or export it again")


class FlatbufferReader:
    """The bytes of one flatbuffer and its remaining decoding budget.

    A regular flatbuffer references each table, vector and string once. A malicious one can reference one vector from
    every table and expand to gigabytes, so decoding stops at a cost of about twice the size of the buffer.
    """

    __slots__ = ("_budget", "size", "view")

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.size = len(view)
        self._budget = 2 * self.size + 1024

    def root(self, identifier: bytes, name: str, layout: Fields) -> Table:
        """The root table, after validating the file identifier.

        Example: `FlatbufferReader(view).root(b"ET12", "Program", fields("version"))`.
        """
        found = bytes(self.view[4:8])
        wanted = _KNOWN_FILES.get(identifier, "another file")
        if self.size < 8:
            raise damaged(name, f"{self.size} bytes are too few for a flatbuffer, which takes 8 or more")
        if found not in _KNOWN_FILES and (kind := foreign_kind(bytes(self.view[:HEAD]))) is not None:
            raise FormatError(f"{name}: this is no {wanted.split(' ', 1)[1]}, but {kind}")
        if found != identifier:
            known = _KNOWN_FILES.get(found)
            raise FormatError(
                f"{name}: file identifier {found!r} at byte 4, expected {identifier!r}; "
                + (f"this is {known}, pass {wanted}" if known else "not this format")
            )
        return Table(self, self.integer(_U32, 0, name), name, layout)

    def charge(self, cost: int, path: str) -> None:
        """Charge the decoding budget; FormatError when it is exceeded."""
        self._budget -= cost
        if self._budget < 0:
            raise damaged(path, f"the same bytes are used over and over, beyond what {self.size} bytes pay for")

    def integer(self, form: struct.Struct, at: int, path: str) -> int:
        """The integer at an absolute position."""
        if at < 0 or at + form.size > self.size:
            raise damaged(path, f"{form.size} bytes at offset {at} are outside the {self.size} bytes of the flatbuffer")
        value: int = form.unpack_from(self.view, at)[0]
        return value


class Table:
    """One table of a flatbuffer: typed access to its fields by name.

    Example: `FlatbufferReader(view).root(b"ET12", "Program", fields("version")).u32("version")`.
    """

    __slots__ = ("_inline_size", "_layout", "_position", "_reader", "_vtable", "_vtable_size", "path")

    def __init__(self, reader: FlatbufferReader, position: int, path: str, layout: Fields) -> None:
        reader.charge(_OBJECT_COST, path)
        self.path = path
        self._reader, self._position, self._layout = reader, position, layout
        self._vtable = position - reader.integer(_I32, position, path)
        if not 0 <= self._vtable <= reader.size - 4:
            raise damaged(path, f"vtable at offset {self._vtable} is outside the {reader.size} bytes of the flatbuffer")
        self._vtable_size, self._inline_size = _VTABLE.unpack_from(reader.view, self._vtable)
        if self._vtable_size < 4 or self._vtable + self._vtable_size > reader.size:
            raise damaged(path, f"vtable of {self._vtable_size} bytes at offset {self._vtable} does not fit")
        if self._inline_size < 4 or position + self._inline_size > reader.size:
            raise damaged(path, f"table of {self._inline_size} bytes at offset {position} does not fit")

    def _locate(self, name: str, width: int) -> int:
        """The absolute position of a field, or 0 (never a valid position) where the field is absent."""
        entry = 4 + 2 * self._layout[name]
        if entry + 2 > self._vtable_size:
            return 0
        offset: int = _U16.unpack_from(self._reader.view, self._vtable + entry)[0]
        if offset == 0:
            return 0
        if offset < 4 or offset + width > self._inline_size:
            raise damaged(
                f"{self.path}.{name}", f"{width} bytes at offset {offset} of a table of {self._inline_size} bytes"
            )
        return self._position + offset

    def _integer(self, name: str, form: struct.Struct, default: int) -> int:
        at = self._locate(name, form.size)
        if at == 0:
            return default
        value: int = form.unpack_from(self._reader.view, at)[0]
        return value

    def _follow(self, name: str) -> int:
        """The absolute position that an offset field points at, or 0 where it is absent."""
        at = self._locate(name, 4)
        if at == 0:
            return 0
        offset: int = _U32.unpack_from(self._reader.view, at)[0]
        if offset < 4 or at + offset + 4 > self._reader.size:
            raise damaged(
                f"{self.path}.{name}", f"offset {offset} at byte {at} leaves the {self._reader.size} bytes there are"
            )
        return at + offset

    def _vector(self, name: str, width: int) -> tuple[int, int]:
        """Start and count of a vector, bounds-checked; (0, 0) where it is absent."""
        at = self._follow(name)
        if at == 0:
            return 0, 0
        count: int = _U32.unpack_from(self._reader.view, at)[0]
        if count * width > self._reader.size - at - 4:
            raise damaged(
                f"{self.path}.{name}",
                f"{count} elements of {width} bytes at offset {at + 4} do not fit in {self._reader.size} bytes",
            )
        return at + 4, count

    def _integers(self, name: str, code: str, width: int) -> tuple[int, ...]:
        start, count = self._vector(name, width)
        self._reader.charge(count * width, f"{self.path}.{name}")
        return struct.unpack_from(f"<{count}{code}", self._reader.view, start)

    def has(self, name: str) -> bool:
        """Whether the field is present."""
        return self._locate(name, 1) != 0

    def i8(self, name: str, default: int = 0) -> int:
        """A signed byte."""
        return self._integer(name, _I8, default)

    def u8(self, name: str, default: int = 0) -> int:
        """An unsigned byte."""
        return self._integer(name, _U8, default)

    def i32(self, name: str, default: int = 0) -> int:
        """A signed 32-bit integer."""
        return self._integer(name, _I32, default)

    def u32(self, name: str, default: int = 0) -> int:
        """An unsigned 32-bit integer."""
        return self._integer(name, _U32, default)

    def i64(self, name: str, default: int = 0) -> int:
        """A signed 64-bit integer."""
        return self._integer(name, _I64, default)

    def u64(self, name: str, default: int = 0) -> int:
        """An unsigned 64-bit integer."""
        return self._integer(name, _U64, default)

    def boolean(self, name: str) -> bool:
        """A bool; any byte but zero is true."""
        return self.u8(name) != 0

    def f64(self, name: str) -> float:
        """A double."""
        at = self._locate(name, 8)
        if at == 0:
            return 0.0
        value: float = _F64.unpack_from(self._reader.view, at)[0]
        return value

    def choice(self, name: str, names: Mapping[int, str], default: int = 0) -> str:
        """An enum, or the type of a union, as the name of its code.

        Example: `tensor.choice("shape_dynamism", {0: "static", 1: "bound", 2: "unbound"})`.
        """
        code = self.i8(name, default)
        if code not in names:
            allowed = ", ".join(f"{key} {value}" for key, value in names.items())
            raise FormatError(
                f"{self.path}.{name}: unknown code {code}, known are {allowed}; "
                "the file is damaged or newer than this version of liveshape"
            )
        return names[code]

    def i32s(self, name: str) -> tuple[int, ...]:
        """A vector of signed 32-bit integers; empty if absent."""
        return self._integers(name, "i", 4)

    def u32s(self, name: str) -> tuple[int, ...]:
        """A vector of unsigned 32-bit integers; empty if absent."""
        return self._integers(name, "I", 4)

    def i64s(self, name: str) -> tuple[int, ...]:
        """A vector of signed 64-bit integers; empty if absent."""
        return self._integers(name, "q", 8)

    def u64s(self, name: str) -> tuple[int, ...]:
        """A vector of unsigned 64-bit integers; empty if absent."""
        return self._integers(name, "Q", 8)

    def f64s(self, name: str) -> tuple[float, ...]:
        """A vector of doubles; empty if absent."""
        start, count = self._vector(name, 8)
        self._reader.charge(count * 8, f"{self.path}.{name}")
        return struct.unpack_from(f"<{count}d", self._reader.view, start)

    def u8s(self, name: str) -> tuple[int, ...]:
        """A vector of bytes as integers; empty if absent."""
        return tuple(self._octets(name))

    def booleans(self, name: str) -> tuple[bool, ...]:
        """A vector of bools; empty if absent."""
        return tuple(octet != 0 for octet in self._octets(name))

    def _octets(self, name: str) -> memoryview:
        start, count = self._vector(name, 1)
        self._reader.charge(count, f"{self.path}.{name}")
        return self._reader.view[start : start + count]

    def blob(self, name: str) -> memoryview:
        """A vector of bytes as a zero-copy view; empty if absent."""
        self._reader.charge(_OBJECT_COST, f"{self.path}.{name}")
        start, count = self._vector(name, 1)
        return self._reader.view[start : start + count]

    def string(self, name: str) -> str:
        """A required string."""
        text = self.optional_string(name)
        if text is None:
            raise damaged(f"{self.path}.{name}", "missing, and it must be there")
        return text

    def optional_string(self, name: str) -> str | None:
        """A string, or None if absent."""
        if self._follow(name) == 0:
            return None
        octets = bytes(self._octets(name))
        try:
            return octets.decode("utf-8")
        except UnicodeDecodeError as error:
            raise damaged(f"{self.path}.{name}", f"{octets[:16]!r} is not UTF-8 ({error.reason})") from None

    def table(self, name: str, layout: Fields) -> Table:
        """A required table, or the value of a union."""
        found = self.optional_table(name, layout)
        if found is None:
            raise damaged(f"{self.path}.{name}", "missing, and it must be there")
        return found

    def optional_table(self, name: str, layout: Fields) -> Table | None:
        """A table, or None if absent."""
        at = self._follow(name)
        return Table(self._reader, at, f"{self.path}.{name}", layout) if at else None

    def tables(self, name: str, layout: Fields) -> Iterator[Table]:
        """Iterate over a vector of tables; empty if absent.

        Example: `[plan.string("name") for plan in program.tables("execution_plan", fields("name"))]`.
        """
        start, count = self._vector(name, 4)
        for index in range(count):
            at = start + 4 * index
            path = f"{self.path}.{name}[{index}]"
            yield Table(self._reader, at + self._reader.integer(_U32, at, path), path, layout)
