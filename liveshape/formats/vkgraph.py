"""Vulkan delegate graphs: a 30-byte VH00 header, a VK00 flatbuffer, and the bytes of inline constants."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from liveshape.formats.dtypes import tensor_size
from liveshape.formats.flatbuffer import FlatbufferReader, Table, damaged, fields
from liveshape.formats.source import check_view, in_memory


@dataclass(frozen=True, slots=True)
class VkTensor:
    """A tensor at its upper bound. `constant_id` and `mem_obj_id` are negative where it has none."""

    dtype: str
    shape: tuple[int, ...]
    constant_id: int
    mem_obj_id: int
    staging_dtype: str | None


@dataclass(frozen=True, slots=True)
class VkSymInt:
    """A symbolic integer (SymInt), known only at run time; exporters write 0."""

    value: int


@dataclass(frozen=True, slots=True)
class ValueList:
    """A list whose items are values of the graph, by id."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One operator call of the chain; the last arg is the output."""

    node_id: int
    name: str
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VkConstant:
    """The bytes of a constant: inline in the delegate (`data`), or under `key` in the named data of the program."""

    key: str | None
    length: int
    data: memoryview | None


VkValue = (
    None
    | bool
    | int
    | float
    | str
    | VkTensor
    | VkSymInt
    | ValueList
    | tuple[int, ...]
    | tuple[float, ...]
    | tuple[bool, ...]
)


@dataclass(frozen=True, slots=True)
class VkGraph:
    """The graph of one delegate: operator calls in program order over values by id."""

    version: str
    chain: tuple[OperatorCall, ...]
    values: tuple[VkValue, ...]
    input_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    constants: tuple[VkConstant, ...]


_HEADER = struct.Struct("<4x4sHIIIQ")
_NAMED = 2**64 - 1
_UNSET = 127

GRAPH = fields(
    "version",
    "chain",
    "values",
    "input_ids",
    "output_ids",
    "constants",
    "shaders",
    "storage_type_override",
    "memory_layout_override",
)
OPERATOR_CALL = fields("node_id", "name", "args")
TENSOR = fields("datatype", "dims", "constant_id", "mem_obj_id", "storage_type", "memory_layout", "staging_datatype")
BYTES = fields("offset", "length", "named_key")
VALUE = fields("value_type", "value")
INT, DOUBLE, BOOL, STRING = fields("int_val"), fields("double_val"), fields("bool_val"), fields("string_val")
LIST, SYM_INT = fields("items"), fields("value")

KINDS = dict(
    enumerate(
        (
            "Null",
            "Int",
            "Double",
            "Bool",
            "VkTensor",
            "IntList",
            "DoubleList",
            "BoolList",
            "ValueList",
            "String",
            "SymInt",
        ),
        start=1,
    )
)
DATA_TYPES = {
    0: "bool",
    1: "uint8",
    2: "int8",
    3: "int32",
    4: "float16",
    5: "float32",
    6: "float64",
    7: "int64",
}
OWN_DATA_TYPES = {64: "complex64"}  # of ours: no other runtime has these in a delegate
ALL_DATA_TYPES = DATA_TYPES | OWN_DATA_TYPES


def parse_vkgraph(blob: memoryview) -> VkGraph:
    """Parse the graph of a delegate blob. Constants are zero-copy views of the blob.

    Example: `parse_vkgraph(program.plans[0].delegates[0].blob).chain[0].name`.
    """
    check_view(blob)
    flatbuffer, raw = _split(blob)
    root = FlatbufferReader(in_memory(flatbuffer)).root(b"VK00", "VkGraph", GRAPH)
    views: dict[tuple[int, int], memoryview] = {}  # interned: one range is one view, as in segments.py
    constants = tuple(_constant(entry, raw, views) for entry in root.tables("constants", BYTES))
    values = tuple(_value(entry, constants) for entry in root.tables("values", VALUE))
    for index, value in enumerate(values):
        if isinstance(value, ValueList):
            _check_list(value, values, f"VkGraph.values[{index}].value.items")
    return VkGraph(
        version=root.optional_string("version") or "",
        chain=tuple(_operator_call(entry, len(values)) for entry in root.tables("chain", OPERATOR_CALL)),
        values=values,
        input_ids=_check_ids(root.u32s("input_ids"), len(values), "VkGraph.input_ids"),
        output_ids=_check_ids(root.u32s("output_ids"), len(values), "VkGraph.output_ids"),
        constants=constants,
    )


def _split(blob: memoryview) -> tuple[memoryview, memoryview]:
    """Split a blob into flatbuffer and constant bytes, by its header."""
    if len(blob) < _HEADER.size:
        raise damaged("VH00 header", f"the delegate blob has {len(blob)} bytes, the header alone takes {_HEADER.size}")
    header = in_memory(blob[: _HEADER.size])
    magic, header_size, graph_at, graph_size, bytes_at, bytes_size = _HEADER.unpack_from(header)
    if magic != b"VH00":
        raise damaged("VH00 header.magic", f"{magic!r} at byte 4 of the delegate blob, expected b'VH00'")
    if header_size < _HEADER.size:
        raise damaged("VH00 header.header_size", f"{header_size}, at least {_HEADER.size} is allowed")
    if graph_at < header_size:
        raise damaged("VH00 header.flatbuffer_offset", f"{graph_at} lies inside the header of {header_size} bytes")
    if graph_size == 0 or graph_at + graph_size > bytes_at:
        raise damaged(
            "VH00 header.flatbuffer_size", f"{graph_size}, between 1 and {bytes_at - graph_at} bytes are allowed"
        )
    if bytes_at + bytes_size > len(blob):
        raise damaged(
            "VH00 header.bytes_size",
            f"{bytes_size} bytes at offset {bytes_at} do not fit in the {len(blob)} bytes of the delegate blob",
        )
    # Size 0: the constants extend to the end of the blob.
    stop = bytes_at + bytes_size if bytes_size else len(blob)
    return blob[graph_at : graph_at + graph_size], blob[bytes_at:stop]


def _constant(entry: Table, raw: memoryview, views: dict[tuple[int, int], memoryview]) -> VkConstant:
    offset, length = entry.u64("offset"), entry.u64("length")
    if offset == _NAMED:
        key = entry.string("named_key")
        if not key:
            raise damaged(f"{entry.path}.named_key", "empty, and the constant has no inline bytes either")
        return VkConstant(key, length, None)
    if offset + length > len(raw):
        raise damaged(
            entry.path, f"{length} bytes at offset {offset} do not fit in the {len(raw)} bytes of inline constants"
        )
    return VkConstant(None, length, views.setdefault((offset, length), raw[offset : offset + length]))


def _value(entry: Table, constants: tuple[VkConstant, ...]) -> VkValue:
    kind = entry.choice("value_type", KINDS)
    if kind == "Null":
        return None
    if kind == "Int":
        return entry.table("value", INT).i64("int_val")
    if kind == "Double":
        return entry.table("value", DOUBLE).f64("double_val")
    if kind == "Bool":
        return entry.table("value", BOOL).boolean("bool_val")
    if kind == "String":
        return entry.table("value", STRING).string("string_val")
    if kind == "SymInt":
        return VkSymInt(entry.table("value", SYM_INT).i32("value"))
    if kind == "VkTensor":
        return _tensor(entry.table("value", TENSOR), constants)
    items = entry.table("value", LIST)
    if kind == "IntList":
        return items.i64s("items")
    if kind == "DoubleList":
        return items.f64s("items")
    if kind == "BoolList":
        return items.booleans("items")
    return ValueList(items.i32s("items"))


def _tensor(entry: Table, constants: tuple[VkConstant, ...]) -> VkTensor:
    dtype = entry.choice("datatype", ALL_DATA_TYPES)
    shape = entry.u32s("dims")
    constant_id = entry.i32("constant_id")
    size = tensor_size(dtype, shape, f"{entry.path}.dims")
    if constant_id >= len(constants):
        raise damaged(f"{entry.path}.constant_id", f"{constant_id} of a graph that has {len(constants)} constants")
    held = constants[constant_id].length if constant_id >= 0 else size
    if held < size:
        raise damaged(
            f"{entry.path}.constant_id",
            f"constant {constant_id} holds {held} bytes, {dtype} of shape {shape} takes {size}",
        )
    staging = None
    if entry.i8("staging_datatype", _UNSET) != _UNSET:
        staging = entry.choice("staging_datatype", ALL_DATA_TYPES)
    return VkTensor(dtype, shape, constant_id, entry.i32("mem_obj_id"), staging)


def _operator_call(entry: Table, count: int) -> OperatorCall:
    args = _check_ids(entry.i32s("args"), count, f"{entry.path}.args")
    return OperatorCall(entry.u32("node_id"), entry.string("name"), args)


def _check_ids(ids: tuple[int, ...], count: int, path: str) -> tuple[int, ...]:
    for position, index in enumerate(ids):
        if not 0 <= index < count:
            raise damaged(f"{path}[{position}]", f"value {index} of a graph that has {count}")
    return ids


def _check_list(items: ValueList, values: tuple[VkValue, ...], path: str) -> None:
    for position, index in enumerate(_check_ids(items.ids, len(values), path)):
        if isinstance(values[index], ValueList):
            raise damaged(f"{path}[{position}]", f"value {index} is a list itself, and lists do not nest")
