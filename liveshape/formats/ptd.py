"""`.ptd` tensor data files: external weights by key, which several programs can share."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, TracebackType

from liveshape.errors import FormatError, UnsupportedError
from liveshape.formats.dtypes import ITEM_SIZES, SCALAR_TYPES, check_dim_order, tensor_size
from liveshape.formats.flatbuffer import FlatbufferReader, Table, damaged, fields
from liveshape.formats.segments import read_segments
from liveshape.formats.source import FileSource, Source

FLAT_TENSOR = fields("version", "segments", "named_data")
NAMED_TENSOR = fields("key", "segment_index", "tensor_layout")
LAYOUT = fields("scalar_type", "sizes", "dim_order")

_HEADER = struct.Struct("<4sIQQQQ")


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """The bytes under one key, with dtype and shape where given: delegates store opaque bytes."""

    data: memoryview = field(repr=False)
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    dim_order: tuple[int, ...] | None = None


class TensorData:
    """An open `.ptd`: its entries by key. Close it, or use it in a `with` statement.

    Example: `with open_tensor_data("weights.ptd") as weights: print(sorted(weights.entries))`.
    """

    def __init__(self, source: Source, version: int, entries: Mapping[str, TensorEntry]) -> None:
        self.version = version
        self.entries = entries
        self._source = source

    def close(self) -> None:
        """Close the file. Existing views stay valid and keep the mapping alive."""
        self._source.close()

    def __enter__(self) -> TensorData:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_tensor_data(source: FileSource) -> TensorData:
    """Open a `.ptd` from a path (memory-mapped), bytes, a view, or a binary file (read whole).

    Example: `open_tensor_data("weights.ptd").entries["linear.weight"].shape`.
    """
    opened = Source(source)
    try:
        return _read(opened)
    except BaseException:
        opened.close()
        raise


def _read(source: Source) -> TensorData:
    view = source.view
    flatbuffer, data = _split(view)
    root = FlatbufferReader(flatbuffer).root(b"FT01", "FlatTensor", FLAT_TENSOR)
    version = root.u32("version")
    if version != 0:
        raise UnsupportedError(f"FlatTensor.version: {version}, this version of liveshape reads 0; update liveshape")
    segments = read_segments(root, data)
    entries: dict[str, TensorEntry] = {}
    for entry in root.tables("named_data", NAMED_TENSOR):
        key = entry.string("key")
        if key in entries:
            raise damaged(f"{entry.path}.key", f"a second {key!r}, keys must differ")
        index = segments.check(entry.u32("segment_index"), f"{entry.path}.segment_index")
        entries[key] = _entry(segments.view(index), entry.optional_table("tensor_layout", LAYOUT))
    return TensorData(source, version, MappingProxyType(entries))


def _split(view: memoryview) -> tuple[memoryview, memoryview]:
    """Split a file into flatbuffer and segment data, by the header at byte 8."""
    if len(view) < 8 + _HEADER.size:
        raise damaged("FH01 header", f"{len(view)} bytes end before its {_HEADER.size} bytes at byte 8 do")
    magic, length, offset, size, segment_base, segment_size = _HEADER.unpack_from(view, 8)
    if magic != b"FH01":
        # For another format an error about its identifier says more than one about a missing header.
        FlatbufferReader(view).root(b"FT01", "FlatTensor", FLAT_TENSOR)
        raise FormatError(f"FH01 header.magic: {bytes(magic)!r} at byte 8, expected b'FH01'; export the .ptd again")
    if length < _HEADER.size:
        raise damaged("FH01 header.length", f"{length}, at least {_HEADER.size} is allowed")
    if offset + size > len(view):
        raise damaged(
            "FH01 header.flatbuffer_size", f"{size} bytes at offset {offset}, and the file ends at {len(view)}"
        )
    if segment_base + segment_size > len(view):
        raise damaged(
            "FH01 header.segment_data_size",
            f"{segment_size} bytes from byte {segment_base} on, and the file ends at {len(view)}",
        )
    return view[: offset + size], view[segment_base : segment_base + segment_size]


def _entry(data: memoryview, layout: Table | None) -> TensorEntry:
    if layout is None:
        return TensorEntry(data)
    dtype = layout.choice("scalar_type", SCALAR_TYPES)
    shape = layout.i32s("sizes")
    size = tensor_size(dtype, shape, f"{layout.path}.sizes")
    dim_order = check_dim_order(layout.u8s("dim_order"), shape, f"{layout.path}.dim_order")
    if dtype in ITEM_SIZES and size > len(data):
        raise damaged(
            f"{layout.path}.sizes", f"{dtype} of shape {shape} takes {size} bytes, its segment holds {len(data)}"
        )
    return TensorEntry(data, dtype, shape, dim_order)
