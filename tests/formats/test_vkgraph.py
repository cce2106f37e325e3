"""Vulkan graphs read by liveshape equal what ExecuTorch reads, and broken ones say what is broken."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from liveshape.errors import FormatError
from liveshape.formats import ValueList, VkConstant, VkSymInt, VkTensor, open_program, parse_vkgraph, vkgraph
from tests.formats import recipes
from tests.formats.schema import enum_names, table_fields, union_names

PathOf = Callable[[str], Path]
SCHEMA = "backends/vulkan/serialization/schema.fbs"


def blobs_of(path: Path) -> list[memoryview]:
    return [delegate.blob for plan in open_program(path).plans for delegate in plan.delegates]


def golden_of(blob: memoryview) -> Any:
    """The same graph through ExecuTorch, which calls flatc."""
    from executorch.backends.vulkan.serialization.vulkan_graph_serialize import (
        extract_vk_flatbuffer,
        flatbuffer_to_vk_graph,
    )

    return flatbuffer_to_vk_graph(extract_vk_flatbuffer(bytes(blob)))


def blob_of(graph: Any, raw: bytes = b"") -> bytes:
    """A delegate blob from ExecuTorch's dataclasses."""
    from executorch.backends.vulkan.serialization.vulkan_graph_serialize import convert_to_flatbuffer

    flatbuffer = convert_to_flatbuffer(graph)
    padded = flatbuffer + bytes(-len(flatbuffer) % 16)
    header = struct.pack("<4x4sHIIIQ2x", b"VH00", 30, 32, len(flatbuffer), 32 + len(padded), len(raw))
    return header + padded + raw


@pytest.mark.parametrize("name", [name for name in recipes.RECIPES if name not in ("portable", "external")])
def test_equals_the_deserializer_of_executorch(name: str, program_path: PathOf) -> None:
    blobs = blobs_of(program_path(name))
    assert blobs
    for blob in blobs:
        ours, theirs = parse_vkgraph(blob), golden_of(blob)
        assert ours.version == theirs.version
        assert ours.input_ids == tuple(theirs.input_ids)
        assert ours.output_ids == tuple(theirs.output_ids)
        calls = [(call.node_id, call.name, tuple(call.args)) for call in theirs.chain]
        assert [(call.node_id, call.name, call.args) for call in ours.chain] == calls
        for constant, expected in zip(ours.constants, theirs.constants, strict=True):
            if expected.offset == 2**64 - 1:
                assert constant == VkConstant(expected.named_key, expected.length, None)
            else:
                assert (constant.key, constant.length, len(constant.data or b"")) == (
                    None,
                    expected.length,
                    expected.length,
                )
        for value, wanted in zip(ours.values, theirs.values, strict=True):
            check_value(value, wanted.value)


def check_value(value: Any, expected: Any) -> None:
    from executorch.backends.vulkan.serialization import vulkan_graph_schema as schema

    kind = type(expected)
    if kind is schema.Null:
        assert value is None
    elif kind is schema.Int:
        assert (type(value), value) == (int, expected.int_val)
    elif kind is schema.Double:
        # Their text form of a double keeps 12 digits or so.
        assert type(value) is float
        assert value == pytest.approx(expected.double_val, rel=1e-9)
    elif kind is schema.Bool:
        assert value is expected.bool_val
    elif kind is schema.String:
        assert value == expected.string_val
    elif kind is schema.SymInt:
        assert value == VkSymInt(expected.value)
    elif kind is schema.ValueList:
        assert value == ValueList(tuple(expected.items))
    elif kind is schema.VkTensor:
        staging = None if expected.staging_datatype == 127 else vkgraph.DATA_TYPES[int(expected.staging_datatype)]
        dtype = vkgraph.DATA_TYPES[int(expected.datatype)]
        assert value == VkTensor(dtype, tuple(expected.dims), expected.constant_id, expected.mem_obj_id, staging)
    else:
        assert value == tuple(expected.items)


def test_every_slot_is_the_one_of_the_schema() -> None:
    tables = table_fields(SCHEMA)
    ours = {
        "VkGraph": vkgraph.GRAPH,
        "OperatorCall": vkgraph.OPERATOR_CALL,
        "VkTensor": vkgraph.TENSOR,
        "VkBytes": vkgraph.BYTES,
        "VkValue": vkgraph.VALUE,
        "Int": vkgraph.INT,
        "Double": vkgraph.DOUBLE,
        "Bool": vkgraph.BOOL,
        "String": vkgraph.STRING,
        "SymInt": vkgraph.SYM_INT,
        "IntList": vkgraph.LIST,
        "DoubleList": vkgraph.LIST,
        "BoolList": vkgraph.LIST,
        "ValueList": vkgraph.LIST,
    }
    assert {name: list(layout) for name, layout in ours.items()} == {name: tables[name] for name in ours}
    assert union_names(SCHEMA, "GraphTypes") == vkgraph.KINDS
    types = {code: name.lower() for code, name in enum_names(SCHEMA, "VkDataType").items() if name != "UNSET"}
    assert types == vkgraph.DATA_TYPES


def test_what_real_graphs_hold(program_path: PathOf) -> None:
    (cache,) = (parse_vkgraph(blob) for blob in blobs_of(program_path("kv_cache")))
    assert [call.name for call in cache.chain][-1] == "sdpa_with_kv_cache.default"
    # Two caches of equal content share a key, and still are two constants.
    assert cache.constants[0] == cache.constants[1]
    (half,) = (parse_vkgraph(blob) for blob in blobs_of(program_path("fp16")))
    assert VkTensor("float16", (1, 128, 64), -1, 0, "float32").dtype in {
        value.dtype for value in half.values if isinstance(value, VkTensor)
    }
    assert any(isinstance(value, ValueList) for value in half.values)


def test_a_constant_may_be_longer_than_its_tensor(program_path: PathOf) -> None:
    (graph,) = (parse_vkgraph(blob) for blob in blobs_of(program_path("view_constant")))
    tensor = next(value for value in graph.values if isinstance(value, VkTensor) and value.constant_id == 0)
    assert (tensor.shape, graph.constants[0].length) == ((64,), 512)


@pytest.fixture
def graph() -> Any:
    """A small graph in ExecuTorch's dataclasses: a constant, an input, two scalars, a list, an output."""
    from executorch.backends.vulkan.serialization import vulkan_graph_schema as schema

    def tensor(constant_id: int = -1) -> Any:
        return schema.VkValue(schema.VkTensor(schema.VkDataType.FLOAT32, [2, 3], constant_id, -1))

    values = [tensor(0), tensor(), schema.VkValue(schema.Int(4)), schema.VkValue(schema.SymInt(0))]
    values += [schema.VkValue(schema.ValueList([2, 3])), tensor()]
    return schema.VkGraph(
        version="0",
        chain=[schema.OperatorCall(node_id=9, name="aten.add.Tensor", args=[0, 1, 2, 5])],
        values=values,
        input_ids=[1],
        output_ids=[5],
        constants=[schema.VkBytes(0, 24)],
        shaders=[],
        storage_type_override=schema.VkStorageType.DEFAULT_STORAGE,
        memory_layout_override=schema.VkMemoryLayout.DEFAULT_LAYOUT,
    )


def test_inline_constants(graph: Any) -> None:
    raw = bytes(range(32))
    parsed = parse_vkgraph(memoryview(blob_of(graph, raw)))
    assert parsed.constants == (VkConstant(None, 24, memoryview(raw[:24])),)
    # A size of zero in the header stands for the rest of the blob.
    rest = bytearray(blob_of(graph, raw))
    struct.pack_into("<Q", rest, 22, 0)
    assert parse_vkgraph(memoryview(rest)) == parsed


def test_values_of_every_kind(graph: Any) -> None:
    from executorch.backends.vulkan.serialization import vulkan_graph_schema as schema

    kinds = [schema.Null(), schema.Int(-(2**40)), schema.Double(0.25), schema.Bool(True), schema.IntList([1, -1])]
    kinds += [schema.DoubleList([0.5]), schema.BoolList([True, False]), schema.ValueList([]), schema.String("none")]
    kinds += [schema.SymInt(-3), schema.IntList([])]
    graph.values += [schema.VkValue(kind) for kind in kinds]
    parsed = parse_vkgraph(memoryview(blob_of(graph, bytes(32)))).values[6:]
    expected = (None, -(2**40), 0.25, True, (1, -1), (0.5,), (True, False), ValueList(()), "none", VkSymInt(-3), ())
    assert parsed == expected
    assert [type(value) for value in parsed] == [type(value) for value in expected]


def change_tensor(**attributes: Any) -> Callable[[Any], None]:
    def change(graph: Any) -> None:
        for name, value in attributes.items():
            setattr(graph.values[0].value, name, value)

    return change


def change_constant(**attributes: Any) -> Callable[[Any], None]:
    def change(graph: Any) -> None:
        for name, value in attributes.items():
            setattr(graph.constants[0], name, value)

    return change


BROKEN = {
    "arg": (lambda g: g.chain[0].args.append(6), r"VkGraph\.chain\[0\]\.args\[4\]: value 6 of a graph that has 6"),
    "arg below": (lambda g: g.chain[0].args.insert(0, -1), r"VkGraph\.chain\[0\]\.args\[0\]: value -1 of a graph"),
    "input": (lambda g: g.input_ids.append(77), r"VkGraph\.input_ids\[1\]: value 77 of a graph that has 6"),
    "output": (lambda g: g.output_ids.append(2**32 - 1), r"VkGraph\.output_ids\[1\]: value 4294967295 of a graph"),
    "list": (
        lambda g: g.values[4].value.items.append(9),
        r"VkGraph\.values\[4\]\.value\.items\[2\]: value 9 of a graph",
    ),
    "nested": (
        lambda g: g.values[4].value.items.append(4),
        r"items\[2\]: value 4 is a list itself, and lists do not nest",
    ),
    "constant id": (
        change_tensor(constant_id=1),
        r"values\[0\]\.value\.constant_id: 1 of a graph that has 1 constants",
    ),
    "short": (change_tensor(dims=[2, 4]), r"constant 0 holds 24 bytes, float32 of shape \(2, 4\) takes 32"),
    "rank": (change_tensor(dims=[1] * 65), r"value\.dims: a tensor of 65 dimensions, at most 64 are allowed"),
    "huge": (change_tensor(dims=[2**32 - 1] * 2), r"value\.dims: float32 of shape \(4294967295, 4294967295\) takes"),
    "dtype": (change_tensor(datatype=127), r"value\.datatype: unknown code 127, known are 0 bool, 1 uint8"),
    "staging": (change_tensor(staging_datatype=-2), r"value\.staging_datatype: unknown code -2, known are"),
    "offset": (
        change_constant(offset=16),
        r"VkGraph\.constants\[0\]: 24 bytes at offset 16 do not fit in the 32 bytes",
    ),
    "length": (change_constant(length=2**64 - 1), r"18446744073709551615 bytes at offset 0 do not fit"),
    "key": (change_constant(offset=2**64 - 1), r"VkGraph\.constants\[0\]\.named_key: "),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_graphs(name: str, graph: Any) -> None:
    change, message = BROKEN[name]
    change(graph)
    with pytest.raises(FormatError, match=message):
        parse_vkgraph(memoryview(blob_of(graph, bytes(32))))


HEADERS = {
    "magic": (4, "4s", b"VH01", r"VH00 header\.magic: b'VH01' at byte 4 of the delegate blob, expected b'VH00'"),
    "header size": (8, "<H", 29, r"VH00 header\.header_size: 29, at least 30 is allowed"),
    "graph at": (10, "<I", 8, r"VH00 header\.flatbuffer_offset: 8 lies inside the header of 30 bytes"),
    "graph size": (14, "<I", 0, r"VH00 header\.flatbuffer_size: 0, between 1 and \d+ bytes are allowed"),
    "graph end": (14, "<I", 2**32 - 1, r"VH00 header\.flatbuffer_size: 4294967295, between"),
    "bytes at": (18, "<I", 2**32 - 1, r"VH00 header\.bytes_size: 0 bytes at offset 4294967295 do not fit"),
    "bytes size": (22, "<Q", 2**64 - 1, r"VH00 header\.bytes_size: 18446744073709551615 bytes at offset"),
    "identifier": (36, "4s", b"ET12", r"VkGraph: file identifier b'ET12' at byte 4, expected b'VK00'; this is an Exec"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_broken_headers(name: str, program_path: PathOf) -> None:
    at, form, value, message = HEADERS[name]
    blob = bytearray(blobs_of(program_path("rms_norm"))[0])
    struct.pack_into(form, blob, at, value)
    with pytest.raises(FormatError, match=message):
        parse_vkgraph(memoryview(blob))


@pytest.mark.parametrize("keep", [0, 29, 32, 100])
def test_blobs_cut_short(keep: int, program_path: PathOf) -> None:
    with pytest.raises(FormatError, match="VH00 header"):
        parse_vkgraph(blobs_of(program_path("rms_norm"))[0][:keep])
